"""Objects of one custom kind in its other versions, by the conversion webhook of its definition.

Conversions are asked for in batches before an answer is written, and kept, so that what answers and watches share is
converted once. Source: the API reference of `apiextensions.k8s.io/v1 ConversionReview`.
"""

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.callout import Callout
from anyvisor.embedded.apiserver.codec import decode_json, encode_json
from anyvisor.embedded.apiserver.endpoints import UnreachableError
from anyvisor.embedded.apiserver.status import internal
from anyvisor.embedded.apiserver.values import as_list, as_object

Json = dict[str, Any]

SECONDS = 30.0
BATCH = 200
KEPT = 4096
"""Converted objects that are kept for the next answer."""
_FREE_METADATA = ("labels", "annotations")


class Converter:
    """Converts the objects of one kind; `config` is the webhook's `clientConfig`."""

    def __init__(self, callout: Callout, kind: str, config: Json) -> None:
        self._callout = callout
        self._kind = kind
        self._config = config
        self._kept: OrderedDict[tuple[bytes, str], bytes] = OrderedDict()

    def form(self, raw: bytes, version: str) -> bytes:
        """Return the form of stored bytes in a version; `prepare` must have been awaited for them."""
        return self._kept[(raw, version)]

    async def prepare(self, raws: Iterable[bytes], version: str) -> None:
        """Convert what is not converted yet. Raises a 500 Status."""
        wanted = dict.fromkeys(raws)
        lacking: list[bytes] = []
        for raw in wanted:
            if (raw, version) in self._kept:
                self._kept.move_to_end((raw, version))
            else:
                lacking.append(raw)
        for start in range(0, len(lacking), BATCH):
            part = lacking[start : start + BATCH]
            converted = await self.convert([decode_json(raw) for raw in part], version)
            for raw, obj in zip(part, converted, strict=True):
                self._kept[(raw, version)] = encode_json(obj)
        while len(self._kept) > max(KEPT, len(wanted)):
            self._kept.popitem(last=False)

    async def convert(self, objects: Sequence[Json], version: str) -> list[Json]:
        """Return the objects in a version. Raises a 500 Status when the webhook fails or answers wrongly."""
        asked = [obj for obj in objects if obj["apiVersion"] != version]
        if not asked:
            return list(objects)
        identity = str(uuid.uuid4())
        review = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": identity, "desiredAPIVersion": version, "objects": asked},
        }
        try:
            answer = await self._callout.post(self._config, review, SECONDS)
            converted = iter(_checked(asked, object_at(answer, "response"), identity, version))
        except UnreachableError as error:
            first = asked[0]["apiVersion"]
            raise internal(f"conversion webhook for {first}, Kind={self._kind} failed: {error}") from error
        return [next(converted) if obj["apiVersion"] != version else obj for obj in objects]


def _checked(asked: Sequence[Json], response: Json, identity: str, version: str) -> list[Json]:
    """Return the converted objects of an answer. Raises UnreachableError when it is not what was asked for."""
    if response.get("uid") != identity:
        raise UnreachableError("its answer has another uid than the request")
    result = object_at(response, "result")
    if result.get("status") != "Success":
        raise UnreachableError(str(result.get("message") or "it gave no reason"))
    converted = [as_object(item) for item in as_list(response.get("convertedObjects"))]
    if len(converted) != len(asked):
        raise UnreachableError(f"it returned {len(converted)} objects, expected {len(asked)}")
    for before, after in zip(asked, converted, strict=True):
        if after.get("apiVersion") != version or after.get("kind") != before["kind"]:
            raise UnreachableError(f"it returned a {after.get('kind')} of {after.get('apiVersion')}, not of {version}")
        _restore(before, after)
    return converted


def _restore(before: Json, after: Json) -> None:
    """Let a conversion change labels and annotations only, of all metadata. Raises UnreachableError."""
    kept, given = before["metadata"], as_object(after.get("metadata"))
    for name in ("name", "namespace", "uid"):
        if given.get(name) != kept.get(name):
            raise UnreachableError(f"it changed metadata.{name}")
    after["metadata"] = {**kept, **{name: given[name] for name in _FREE_METADATA if name in given}}
