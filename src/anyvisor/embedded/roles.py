"""The roles that users of the virtualization API know, by the names under which they are bound elsewhere."""

from typing import Any

from anyvisor.embedded.apiserver.bootstrap import READ, WRITE, cluster_binding, cluster_role, rule

Json = dict[str, Any]
_OWN = "anyvisor.io"
_VIRT = "kubevirt.io"
_SUB = "subresources.kubevirt.io"
_TYPES = "instancetype.kubevirt.io"

_READ_MACHINE = "guestosinfo,filesystemlist,userlist,objectgraph"
_ACT_ON_MACHINE = "pause,unpause,freeze,unfreeze,reset,softreboot,addvolume,removevolume,evacuate/cancel"
_ACT_ON_VM = "start,stop,restart,addvolume,removevolume,memorydump,removememorydump,evacuate/cancel"


def roles() -> list[Json]:
    """ClusterRoles and bindings, made where they are missing; aggregated to Kubernetes' `admin`, `edit` and `view`."""
    view = [
        rule(f"{_VIRT},{_TYPES}", "*", READ),
        rule(_SUB, ",".join(f"virtualmachineinstances/{name}" for name in _READ_MACHINE.split(",")), "get"),
        rule(_SUB, "virtualmachines/expand-spec,virtualmachines/objectgraph", "get"),
        rule(_SUB, "expand-vm-spec", "update"),
    ]
    edit = [
        *view,
        rule(_VIRT, "virtualmachines,virtualmachineinstances,virtualmachineinstancereplicasets", WRITE),
        rule(_TYPES, "virtualmachineinstancetypes,virtualmachinepreferences", WRITE),
        rule(
            _SUB, "virtualmachineinstances/console,virtualmachineinstances/vnc,virtualmachineinstances/usbredir", "get"
        ),
        rule(_SUB, "virtualmachineinstances/portforward,virtualmachines/portforward", "get"),
        rule(_SUB, ",".join(f"virtualmachineinstances/{name}" for name in _ACT_ON_MACHINE.split(",")), "update"),
        rule(_SUB, ",".join(f"virtualmachines/{name}" for name in _ACT_ON_VM.split(",")), "update"),
    ]
    admin = [*edit, rule(_SUB, "virtualmachineinstances/vnc/screenshot", "get")]
    migrate = [
        rule(_SUB, "virtualmachines/migrate", "update"),
        rule(_VIRT, "virtualmachineinstancemigrations", f"{READ},{WRITE}"),
    ]
    default = [
        rule(_SUB, "version,guestfs", "get,list"),
        rule(_VIRT, "kubevirts", "get,list"),
        rule(_OWN, "hypervisorclasses", READ),
        rule("reviews.anyvisor.io", "machinereviews", "create"),
    ]
    aggregated = {"admin": admin, "edit": edit, "view": view}
    made = [
        cluster_role(f"kubevirt.io:{name}", rules, {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"})
        for name, rules in aggregated.items()
    ]
    return [
        *made,
        cluster_role("kubevirt.io:migrate", migrate),
        cluster_role("kubevirt.io:default", default),
        cluster_role(
            f"{_TYPES}:view",
            [rule(_TYPES, "virtualmachineclusterinstancetypes,virtualmachineclusterpreferences", READ)],
        ),
        cluster_binding(f"{_TYPES}:view", f"{_TYPES}:view", groups=["system:authenticated"]),
        cluster_binding("kubevirt.io:default", "kubevirt.io:default", groups=["system:authenticated"]),
    ]
