"""Annotations that the instance takes over from its VM while it runs, as others act upon them at any time."""

from collections.abc import Mapping
from typing import Final

from anyvisor.api.meta import annotations, is_deleting, object_at
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Change
from anyvisor.controller.vm.world import VmPass
from anyvisor.kube.resources import VMIS

OF_TEMPLATE: Final = (words.EVICT, words.PREFER_NO_EVICTION)
OF_VM: Final = (words.SKIP_BACKUP_HOOKS,)


def follow_annotations(run: VmPass) -> None:
    """Bring the instance's annotations to what the VM and its template say now."""
    vmi = run.vmi
    if vmi is None or is_deleting(vmi):
        return
    after = duplicate(vmi)
    present = after["metadata"].setdefault("annotations", {})
    _follow(present, object_at(run.vm, "spec", "template", "metadata", "annotations"), OF_TEMPLATE)
    _follow(present, annotations(run.vm), OF_VM)
    if present != annotations(vmi):
        run.draft.writes.append(Change(VMIS, vmi, after))
        run.vmi = after


def _follow(present: dict[str, str], source: Mapping[str, str], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in source:
            present[key] = source[key]
        else:
            present.pop(key, None)
