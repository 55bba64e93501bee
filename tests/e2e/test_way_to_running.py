"""A VM's way from its creation to Running, on a whole instance: what it costs the API server, and who writes what.

The driver boots nothing; a machine with a disk and an interface has all parts that a status has at a start.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.api.meta import condition_is, labels
from anyvisor.embedded.instance import open_instance
from tests.bench.test_fake_many import fake_vm
from tests.bench.test_many import revision
from tests.e2e.conftest import Instance, end, eventually

VERBS = ("create", "update", "patch", "delete")
MOST = {"virtualmachines": 8, "controllerrevisions": 1, "virtualmachineinstances": 7, "pods": 3, "events": 6}
"""Writes by kind. The least is 3, 1, 4, 3 and 5; a slow machine shows some of the steps in between."""
CONTROLLER, AGENT = "anyvisor-controller", "anyvisor-agent"
HANDED_OVER = {"f:phase", "f:phaseTransitionTimestamps", "f:volumeStatus", "f:interfaces"}
"""What the controller begins and the agent goes on with when the guest runs (`docs/architecture.md`)."""
AGENTS = {"f:machine"}


@pytest.fixture
def audited() -> Iterator[Instance]:
    """An instance with the driver that boots nothing, which records who asks for what."""
    made = Instance(Path(tempfile.mkdtemp(prefix="anyvisor-e2e-")))
    made.up("--drivers", "fake", "--audit-log", "on")
    yield made
    end(made)


def furnished_vm(name: str) -> dict[str, Any]:
    """A VM of the fake driver with a disk and the default interface."""
    vm: dict[str, Any] = fake_vm(name)
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["memory"]["guest"] = "32Mi"
    spec["domain"]["devices"] = {
        "autoattachGraphicsDevice": False,
        "disks": [{"name": "extra", "disk": {"bus": "virtio"}}],
    }
    spec["volumes"] = [{"name": "extra", "emptyDisk": {"capacity": "1Mi"}}]
    return vm


def writes(instance: Instance) -> list[tuple[str, str]]:
    """What was written of the kinds that a VM consists of: the kind, and a line for a person."""
    found: list[tuple[str, str]] = []
    for line in open_instance(instance.data_dir).audit_log.read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        about = event.get("objectRef", {})
        kind, part = about.get("resource", ""), about.get("subresource", "")
        if event["verb"] in VERBS and kind in MOST and event["responseStatus"]["code"] < 300:
            who = event["user"]["username"]
            found.append((kind, f"{event['stageTimestamp']} {who}: {event['verb']} {kind} {part}"))
    return found


def takes_machines(instance: Instance) -> bool:
    """Whether the node says that the driver works on it: a pod that came before would be told why it waits."""
    nodes = instance.items("nodes")
    ready = [condition_is(node, "Ready") for node in nodes]
    marks = [label for node in nodes for label in labels(node) if "fake" in label]
    return ready == [True] and bool(marks)


def versions(instance: Instance, since: int) -> list[dict[str, Any]]:
    """Each version of the instances, as a watch from an earlier resourceVersion tells."""
    path = f"/apis/kubevirt.io/v1/virtualmachineinstances?watch=true&timeoutSeconds=2&resourceVersion={since}"
    return [json.loads(line)["object"] for line in instance.kubectl("get", "--raw", path).splitlines()]


def holders(vmis: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Of each field of the status, who held it in turn."""
    held: dict[str, list[str]] = {}
    for vmi in vmis:
        for entry in vmi["metadata"]["managedFields"]:
            for field in entry["fieldsV1"].get("f:status", {}).keys() - {"."}:
                in_turn = held.setdefault(field, [])
                if in_turn[-1:] != [entry["manager"]]:
                    in_turn.append(entry["manager"])
    return held


def test_a_vm_runs_after_few_writes_and_each_field_has_one_writer_at_a_time(audited: Instance) -> None:
    eventually(lambda: takes_machines(audited), 60)
    before, since = len(writes(audited)), revision(audited)
    audited.apply(furnished_vm("frugal"))
    eventually(lambda: (audited.get("vm", "frugal") or {}).get("status", {}).get("ready") is True, 90)
    seen = writes(audited)[before:]
    counted = Counter(kind for kind, _ in seen)
    assert all(counted[kind] <= most for kind, most in MOST.items()), "\n".join(line for _, line in seen)
    assert {field: held for field, held in holders(versions(audited, since)).items() if held != [CONTROLLER]} == {
        **{field: [CONTROLLER, AGENT] for field in HANDED_OVER},
        **{field: [AGENT] for field in AGENTS},
    }
