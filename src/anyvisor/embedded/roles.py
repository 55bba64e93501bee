"""Who may do what: the least that each of our components needs, and the roles that users of the API know."""

from typing import Any

from anyvisor.embedded import identities
from anyvisor.embedded.apiserver.bootstrap import READ, WRITE, cluster_binding, cluster_role, rule

Json = dict[str, Any]
_OWN = "anyvisor.io"
_VIRT = "kubevirt.io"
_SUB = "subresources.kubevirt.io"
_EVENTS = rule("core,events.k8s.io", "events", "create,patch,update,get")
_LEASES = rule("coordination.k8s.io", "leases", f"{READ},create,update,patch,delete")
_AGENTS = "system:anyvisor:agents"
_NODES = "system:nodes"

_READ_MACHINE = "guestosinfo,filesystemlist,userlist,objectgraph"
_ACT_ON_MACHINE = "pause,unpause,freeze,unfreeze,reset,softreboot,addvolume,removevolume,evacuate/cancel"
_ACT_ON_VM = "start,stop,restart,addvolume,removevolume,memorydump,removememorydump,evacuate/cancel"


def roles() -> list[Json]:
    """ClusterRoles and bindings, made where they are missing."""
    return [*_components(), *_users()]


def _components() -> list[Json]:
    rights = {
        identities.CONTROLLER.user: [
            rule(_VIRT, "*", f"{READ},{WRITE}"),
            rule(_OWN, "*", READ),
            rule("core", "pods,pods/status", f"{READ},{WRITE}"),
            rule("core", "nodes,namespaces,persistentvolumeclaims,persistentvolumes,services,resourcequotas", READ),
            rule("core", "nodes,nodes/status", "patch"),
            rule("apps", "controllerrevisions", f"{READ},{WRITE}"),
            rule("storage.k8s.io", "storageclasses", READ),
            _LEASES,
            _EVENTS,
        ],
        identities.SCHEDULER.user: [
            rule("core", "pods,nodes,namespaces,persistentvolumeclaims,persistentvolumes", READ),
            rule("core", "pods/binding", "create"),
            rule("core", "pods/status", "patch,update"),
            _EVENTS,
        ],
        identities.GATEWAY.user: [
            rule(_VIRT, "virtualmachines,virtualmachineinstances,virtualmachineinstancemigrations", f"{READ},{WRITE}"),
            rule(_VIRT, "virtualmachines/status,virtualmachineinstances/status", "patch,update"),
            rule(_VIRT, "kubevirts", READ),
            rule(_OWN, "*", READ),
            rule("core", "nodes,namespaces,persistentvolumeclaims,pods", READ),
        ],
    }
    groups = {
        _AGENTS: [
            rule(_VIRT, "virtualmachineinstances", f"{READ},patch,update"),
            rule(_OWN, "hypervisornodes,hypervisornodes/status", f"{READ},create,patch,update"),
            rule(_OWN, "hypervisordrivers,hypervisorclasses", READ),
            rule("core", "pods,nodes", READ),
            _EVENTS,
        ],
        _NODES: [
            rule("core", "nodes,nodes/status", f"{READ},create,patch,update"),
            rule("core", "pods,pods/status", f"{READ},patch,update,delete"),
            rule("core", "secrets,configmaps,persistentvolumeclaims,persistentvolumes,services", READ),
            _LEASES,
            _EVENTS,
        ],
    }
    made: list[Json] = []
    for user, rules in rights.items():
        made += [cluster_role(user, rules), cluster_binding(user, user, users=[user])]
    for group, rules in groups.items():
        made += [cluster_role(group, rules), cluster_binding(group, group, groups=[group])]
    return made


def _users() -> list[Json]:
    """Roles that are aggregated to Kubernetes' own `admin`, `edit` and `view`."""
    view = [
        rule(_VIRT, "*", READ),
        rule(_SUB, ",".join(f"virtualmachineinstances/{name}" for name in _READ_MACHINE.split(",")), "get"),
        rule(_SUB, "virtualmachines/expand-spec,virtualmachines/objectgraph", "get"),
        rule(_SUB, "expand-vm-spec", "update"),
    ]
    edit = [
        *view,
        rule(_VIRT, "virtualmachines,virtualmachineinstances,virtualmachineinstancereplicasets", WRITE),
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
        cluster_binding("kubevirt.io:default", "kubevirt.io:default", groups=["system:authenticated"]),
    ]
