"""Which values of a VM's machine nobody wrote, and what gave them: `anyvisor why vm/NAME --defaults`."""

from typing import Any, cast

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit_machine
from anyvisor.api.meta import object_at

Json = dict[str, Any]
# Defaults are the same for every machine but for identities, which are made anew for each and so told as such.
_NEW_UUID = "(made for each machine)"


def defaults(template: Json, kubevirt: Json, architecture: str) -> list[tuple[str, str, str]]:
    """Field, value and source of each default that a machine of this template gets."""
    config = ClusterConfig.of(object_at(kubevirt, "spec", "configuration"), architecture)
    answer = admit_machine(object_at(template, "spec"), config, namespace="default", uuid=_NEW_UUID)
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
