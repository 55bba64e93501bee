"""Annotations that reach a running instance and its pod."""

from datetime import UTC, datetime
from typing import Any

import pytest

from anyvisor.controller.outcome import Change
from anyvisor.controller.vm.followed import follow_annotations
from anyvisor.controller.vm.world import VmWorld, begin
from anyvisor.controller.vmi.pod_sync import sync_metadata
from anyvisor.controller.vmi.world import VmiWorld
from anyvisor.controller.vmi.world import begin as begin_instance

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
EVICT = "descheduler.alpha.kubernetes.io/evict"
SKIP = "kubevirt.io/skip-backup-hooks"


def followed(vm: Json, template: Json, present: Json) -> Json | None:
    machine = {
        "metadata": {"name": "a", "annotations": vm},
        "spec": {"template": {"metadata": {"annotations": template}}},
    }
    vmi = {"metadata": {"name": "a", "annotations": present}}
    run = begin(VmWorld(vm=machine, vmi=vmi, now=NOW, jitter=lambda _: 0), vmi)
    follow_annotations(run)
    changes = [one.after for one in run.draft.writes if isinstance(one, Change)]
    return changes[0]["metadata"]["annotations"] if changes else None


@pytest.mark.parametrize(
    ("vm", "template", "present", "becomes"),
    [
        ({}, {EVICT: "true"}, {"own": "x"}, {"own": "x", EVICT: "true"}),
        ({EVICT: "true"}, {}, {}, None),
        ({}, {}, {EVICT: "true"}, {}),
        ({SKIP: "true"}, {}, {}, {SKIP: "true"}),
        ({}, {"other": "y"}, {"own": "x"}, None),
    ],
)
def test_annotations_of_the_instance(vm: Json, template: Json, present: Json, becomes: Json | None) -> None:
    assert followed(vm, template, present) == becomes


@pytest.mark.parametrize(("skip", "hooked"), [("", True), ("true", False)])
def test_backup_hooks_of_the_pod_follow_the_instance(skip: str, *, hooked: bool) -> None:
    vmi = {"metadata": {"name": "a", "namespace": "d", "annotations": {SKIP: skip} if skip else {}}}
    pod = {"metadata": {"name": "p", "annotations": {"pre.hook.backup.velero.io/timeout": "9s", "own": "x"}}}
    run = begin_instance(VmiWorld(vmi=vmi, now=NOW, plan=lambda _: pytest.fail("planned")))
    found = sync_metadata(run, pod)["metadata"]["annotations"]
    assert found["own"] == "x"
    assert found.get("pre.hook.backup.velero.io/timeout") == ("60s" if hooked else None)
