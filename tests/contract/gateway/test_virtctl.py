"""The HTTP calls that the real virtctl makes, word for word, against the embedded API server and the gateway."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from anyvisor.kube.resources import NODES, PVCS
from tests.contract.gateway.lab import Lab

Json = dict[str, Any]
RECORDED = Path(__file__).parents[2] / "data" / "judges" / "virtctl_calls.jsonl"
SERVED = ("/apis/subresources.kubevirt.io", "/apis/kubevirt.io/v1/namespaces/default/virtualmachine", "/version")
NOT_HERE = {"objectgraph": 400, "guestfs": 404, "vnc": 500, "usbredir": 409}
"""What is not there in this lab, and what is answered then."""


def recorded() -> Iterator[Any]:
    seen: set[str] = set()
    for line in RECORDED.read_text().splitlines():
        case: Json = json.loads(line)
        for call in case["calls"]:
            key = json.dumps([call.get("method"), call.get("path"), call.get("body")], sort_keys=True)
            if call["path"].startswith(SERVED) and key not in seen:
                seen.add(key)
                yield pytest.param(call, id=f"{case['cmd'][:60]}-{call['method']}-{call['path'][-40:]}")


def expected(call: Json) -> set[int]:
    path = call["path"].partition("?")[0]
    verb = path.rstrip("/").rsplit("/", 1)[-1]
    if "/gone" in path:
        return {404}
    if "virtualmachineinstancereplicasets/rs1" in path or "migrations/mig1" in path or "/namespaces/other/" in path:
        return {404}
    if "/vnc" in path:
        return {400, 500}
    if verb in ("guestosinfo", "filesystemlist", "userlist"):
        return {500}
    if verb in NOT_HERE:
        return {NOT_HERE[verb]}
    if "/console" in path or "/portforward/" in path:
        return {400}
    if call["method"] == "PATCH":
        return {200, 422}  # a test that fails, on which virtctl sends its second patch
    return {200, 201, 202, 409}


@pytest.mark.parametrize("call", list(recorded()))
async def test_recorded_call(lab: Lab, call: Json) -> None:
    await lab.running("vm1", owned="/virtualmachines/" in call["path"])
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    await lab.admin.create(NODES, {"metadata": {"name": "node1"}})
    for name in ("pvc1", "new"):
        await lab.admin.create(PVCS, {"metadata": {"name": name, "namespace": "default"}, "spec": claim})
    body = json.dumps(call["body"]).encode() if call.get("body") is not None else None
    headers = {"authorization": "Bearer admin", "accept": call.get("accept") or "application/json, */*"}
    if call.get("content-type"):
        headers["content-type"] = call["content-type"]
    async with (
        aiohttp.ClientSession(skip_auto_headers=("content-type",)) as session,
        session.request(call["method"], lab.url + call["path"], data=body, headers=headers) as answer,
    ):
        text = await answer.text()
        assert answer.status in expected(call), text
        if answer.status >= 400 and answer.status != 500:
            assert json.loads(text)["kind"] == "Status"
