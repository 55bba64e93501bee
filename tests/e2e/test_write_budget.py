"""What a VM costs the API server from its creation to Running, by the audit log of a whole instance."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.instance import open_instance
from tests.bench.test_fake_many import fake_vm
from tests.e2e.conftest import Instance, end, eventually

VERBS = ("create", "update", "patch", "delete")
MOST = {"virtualmachines": 5, "controllerrevisions": 1, "virtualmachineinstances": 6, "pods": 3, "events": 6}
"""Writes by kind. The least is 3, 1, 4, 3 and 5; a slow machine shows some of the steps in between."""


@pytest.fixture
def audited() -> Iterator[Instance]:
    """An instance with the driver that boots nothing, which records who asks for what."""
    made = Instance(Path(tempfile.mkdtemp(prefix="anyvisor-e2e-")))
    made.up("--drivers", "fake", "--audit-log", "on")
    yield made
    end(made)


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


def test_a_vm_runs_after_few_writes(audited: Instance) -> None:
    eventually(lambda: bool(audited.items("nodes")), 60)
    before = len(writes(audited))
    audited.apply(fake_vm("frugal"))
    eventually(lambda: (audited.get("vm", "frugal") or {}).get("status", {}).get("ready") is True, 90)
    seen = writes(audited)[before:]
    counted = Counter(kind for kind, _ in seen)
    assert all(counted[kind] <= most for kind, most in MOST.items()), "\n".join(line for _, line in seen)
