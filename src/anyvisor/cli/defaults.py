"""Which values of a VM's machine nobody wrote, and what gave them: `anyvisor why vm/NAME --defaults`."""

from typing import Any, cast

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import AdmissionRequest, User
from anyvisor.api.meta import object_at

Json = dict[str, Any]
_CONTROLLER = User("system:anyvisor:controller")
# Defaults are the same for every machine but for identities, which are made anew for each and so told as such.
_NEW_UUID = "(made for each machine)"


def defaults(template: Json, kubevirt: Json, architecture: str) -> list[tuple[str, str, str]]:
    """Field, value and source of each default that a machine of this template gets."""
    question = AdmissionRequest(
        operation="CREATE",
        kind="VirtualMachineInstance",
        object={
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": "machine", "namespace": "default"},
            "spec": object_at(template, "spec"),
        },
        new_uuid=lambda: _NEW_UUID,
        now="1970-01-01T00:00:00Z",
        namespace="default",
        user=_CONTROLLER,
    )
    answer = admit(question, ClusterConfig.of(object_at(kubevirt, "spec", "configuration"), architecture))
    return [(d.path, _shown(answer.object, d.path), d.source) for d in answer.defaults]


def _shown(obj: Json, path: str) -> str:
    """The value at a path such as `spec.domain.devices.disks[0].disk.bus`, as short text."""
    prefix, _, key = path.partition("annotations.")
    if key:
        return str(object_at(obj, *prefix.split(".")[:-1], "annotations").get(key, ""))[:60]
    value: Any = obj
    for step in path.replace("[", ".[").split("."):
        if step.startswith("["):
            value = value[int(step[1:-1])]
        elif isinstance(value, dict):
            value = cast("Json", value).get(step)
    if isinstance(value, dict | list):
        import json

        value = json.dumps(value)
    return str(value)[:60]
