"""Sends steps to a server, and brings its answers into a form in which two servers can be compared."""

import copy
import http.client
import json
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, urlencode, urlsplit

import yaml

from tests.cluster.differential.script import Step

Json = dict[str, Any]
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"\d+[sm]")
TIMEOUT_SECONDS = 120
"""For one answer: a machine that is full of other work stalls for longer than one thinks."""
_FIXED_TIMES = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000006Z")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    body: Any
    warnings: tuple[str, ...]


class Server:
    """One API server, reached with a kubeconfig's client certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        config: Json = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        place: SplitResult = urlsplit(str(cluster["server"]))
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._connection = http.client.HTTPSConnection(
            str(place.hostname), place.port, timeout=TIMEOUT_SECONDS, context=context
        )

    def close(self) -> None:
        self._connection.close()

    def send(self, step: Step) -> Answer:
        """Carry out one step."""
        body = self._body(step)
        headers = {"Accept": step.accept, "User-Agent": "differential"}
        data: bytes | None = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = step.content_type
        target = step.path + ("?" + urlencode(step.query) if step.query else "")
        self._connection.request(step.method, target, data, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        warnings = tuple(value for name, value in answer.getheaders() if name.lower() == "warning")
        return Answer(answer.status, _read(text, answer.getheader("Content-Type", "")), warnings)

    def watch(self, path: str, query: dict[str, str]) -> list[Json]:
        """Return the events that a watch with a short timeout tells."""
        self._connection.request("GET", path + "?" + urlencode({**query, "watch": "true", "timeoutSeconds": "1"}))
        answer = self._connection.getresponse()
        return [json.loads(line) for line in answer.read().splitlines() if line]

    def _body(self, step: Step) -> Any:
        if not step.base:
            return step.body
        found: Json = self.send(Step("GET", step.base)).body
        if found.get("kind") == "Status":
            found = {"metadata": {"name": step.base.rsplit("/", 1)[-1]}}
        metadata: Json = found["metadata"]
        if step.method == "DELETE":
            text = json.dumps(step.body)
            return json.loads(
                text.replace("$uid", metadata.get("uid", "none")).replace("$rv", metadata.get("resourceVersion", "9"))
            )
        return {**found, **copy.deepcopy(step.body)}


def _read(text: bytes, kind: str) -> Any:
    if "json" in kind:
        return json.loads(text)
    if "yaml" in kind:
        return yaml.safe_load(text)
    return text.decode(errors="replace")


class Normal:
    """Replaces what must differ between two servers; leaves out what is meant to (docs/kubernetes-differences.md)."""

    def answer(self, answer: Answer) -> Json:
        if answer.status in (400, 405):  # whether the method or the body is looked at first
            return {"status": 400}
        if answer.status == 406 or (answer.status == 404 and _says_no_path(answer.body)):
            return {"status": answer.status}
        warnings = [part for item in answer.warnings for part in re.split(r", (?=299 )", item)]
        return {
            "status": answer.status,
            "body": self.value(answer.body),
            "warnings": sorted(_text(item) for item in warnings),
        }

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return self._fields(cast("Json", value), key)
        if isinstance(value, list):
            return self._items(cast("list[Any]", value), key)
        if not isinstance(value, str):
            return value
        if key == "cells" and _AGE.fullmatch(value):
            return "AGE"
        if key == "message":
            return _text(_OUR_WORDS.sub(lambda found: found[1] or "", value))
        return "V" if key in ("resourceVersion", "continue") and value else _text(value)

    def _fields(self, fields: Json, key: str) -> Json:
        found = {name: self.value(item, name) for name, item in fields.items() if name not in _LEFT_OUT}
        if key == "columnDefinitions":
            found = {"name": found["name"], "priority": found["priority"]}
        if found.get("kind") == "Status":
            found.pop("details" if "our request" in found.get("message", "") else "", None)
        if len(found.get("causes", ())) > 1 or ("message" in found and "causes" in found.get("details", {})):
            found.pop("message", None)  # it has the causes once more, in an order of chance
        return {name: item for name, item in found.items() if name not in _MAY_BE_EMPTY or item}

    def _items(self, items: list[Any], key: str) -> list[Any]:
        values: list[Any] = [self.value(item, key) for item in items]
        if key == "managedFields":
            values.sort(key=lambda item: (item["manager"], item["operation"], item.get("subresource", "")))
        elif key == "causes":
            values = [json.loads(text) for text in sorted({json.dumps(item, sort_keys=True) for item in values})]
        elif key == "items":
            for item in values:
                item.pop("apiVersion", None)
                item.pop("kind", None)
        return values


def _says_no_path(body: Any) -> bool:
    return isinstance(body, str) or "could not find the requested resource" in str(body)


_MAY_BE_EMPTY = ("rules", "items", "rows", "spec", "continue")
_LEFT_OUT = ("selfLink", "ipFamilies", "ipFamilyPolicy", "f:ipFamilies", "f:ipFamilyPolicy")
_OUR_WORDS = re.compile(
    r"(the server rejected our request due to an error in our request|Invalid value: \"(?=map\[|\{|\[)).*", re.DOTALL
)
"""Messages whose end is ours: the original shows Go's types there, or nothing."""


def _text(text: str) -> str:
    text = _UID.sub("UID", text)
    text = re.sub(r"(in record )\(\d+\)", r"\1(V)", text)
    return _TIME.sub(lambda found: found[0] if found[0] in _FIXED_TIMES else "T", text)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return the places at which two normalized answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        left, right = cast("Json", ours), cast("Json", theirs)
        found: list[str] = []
        for name in sorted({*left, *right}):
            where = f"{path}.{name}"
            if name not in left:
                found.append(f"{where}: ours lacks {json.dumps(right[name])[:300]}")
            elif name not in right:
                found.append(f"{where}: only ours has {json.dumps(left[name])[:300]}")
            else:
                found.extend(differences(left[name], right[name], where))
        return found
    if isinstance(ours, list) and isinstance(theirs, list):
        mine, reference = cast("list[Any]", ours), cast("list[Any]", theirs)
        pairs = list(zip(mine, reference, strict=False))
        if len(mine) != len(reference):
            return [f"{path}: ours has {len(mine)} items, theirs {len(reference)}: {json.dumps([ours, theirs])[:900]}"]
        return [each for at, (a, b) in enumerate(pairs) for each in differences(a, b, f"{path}[{at}]")]
    if ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool):
        return []
    return [f"{path}:\n    ours   {json.dumps(ours)[:600]}\n    theirs {json.dumps(theirs)[:600]}"]
