"""ControllerRevisions of a VM: the spec that the running instance was started from.

A later edit is compared with it to tell what needs a restart. Instance type and preference are in its template.
"""

import re
from typing import Final

from anyvisor.api.meta import Json, controller_reference, generation, name, namespace, object_at, uid
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Create, Delete
from anyvisor.controller.vm.world import VmPass
from anyvisor.kube.resources import CONTROLLER_REVISIONS

_GENERATION: Final = re.compile(r"-([0-9]+)$")


def _prefix(vm: Json) -> str:
    return f"revision-start-vm-{uid(vm)}"


def revision_name(vm: Json) -> str:
    """The name of the revision of the VM's present generation."""
    return f"{_prefix(vm)}-{generation(vm)}"


def revision_generation(revision: str) -> int | None:
    """The generation in a revision's name."""
    match = _GENERATION.search(revision)
    return int(match[1]) if match else None


def last_started_spec(run: VmPass) -> Json | None:
    """The VM spec that the newest start revision holds, if there is one."""
    newest, found = -1, None
    for key, revision in run.world.revisions.items():
        number = revision_generation(key)
        if key.startswith(_prefix(run.vm)) and number is not None and number > newest:
            newest, found = number, revision
    return object_at(found, "data", "spec") if found is not None else None


def record_revision(run: VmPass) -> str:
    """Have the present spec recorded as the one that is started; older start revisions are deleted."""
    wanted = revision_name(run.vm)
    for key, revision in run.world.revisions.items():
        if key.startswith(_prefix(run.vm)) and key != wanted:
            run.draft.writes.append(Delete(CONTROLLER_REVISIONS, revision))
    if wanted not in run.world.revisions:
        run.draft.writes.append(Create(CONTROLLER_REVISIONS, _revision(run.effective)))
    return wanted


def _revision(vm: Json) -> Json:
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": revision_name(vm),
            "namespace": namespace(vm),
            "ownerReferences": [controller_reference(_typed(vm))],
        },
        "data": {"spec": duplicate(vm["spec"])},
        "revision": generation(vm),
    }


def _typed(vm: Json) -> Json:
    """The VM with its type, which items of a list lack."""
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", **vm}


def vm_reference(vm: Json) -> Json:
    """The owner reference by which this VM controls another object."""
    return controller_reference(_typed(vm))


def named(vm: Json) -> str:
    """`namespace/name` of a VM, for messages."""
    return f"{namespace(vm)}/{name(vm)}"
