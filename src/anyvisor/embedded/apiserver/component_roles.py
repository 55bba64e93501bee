"""What each component of an instance may do, and nothing more. The agents may not read Secrets."""

from typing import Any

from anyvisor.embedded.apiserver.bootstrap import READ, WRITE, cluster_binding, cluster_role, rule

Json = dict[str, Any]

CONTROLLER = "system:anyvisor:controller"
GATEWAY = "system:anyvisor:gateway"
SCHEDULER = "system:anyvisor:scheduler"
AGENTS = "system:anyvisor:agents"
NODES = "system:nodes"
ENDPOINT_SLICES = "system:controller:endpointslice-controller"

_EVENTS = rule("core,events.k8s.io", "events", "create,patch,update")
_LEASES = rule("coordination.k8s.io", "leases", "create,get,list,watch,update,patch")
_READ_MACHINES = rule("kubevirt.io", "*", READ)
_READ_CLASSES = rule("anyvisor.io", "*", READ)


def component_roles() -> list[Json]:
    """Return the roles and bindings of the controller, gateway, scheduler, agents and pod runners."""
    return [
        cluster_role(CONTROLLER, _controller()),
        cluster_binding(CONTROLLER, CONTROLLER, users=[CONTROLLER]),
        cluster_role(GATEWAY, _gateway()),
        cluster_binding(GATEWAY, GATEWAY, users=[GATEWAY]),
        cluster_role(SCHEDULER, _scheduler()),
        cluster_binding(SCHEDULER, SCHEDULER, users=[SCHEDULER]),
        cluster_role(AGENTS, _agent()),
        cluster_binding(AGENTS, AGENTS, groups=[AGENTS]),
        cluster_role(ENDPOINT_SLICES, [rule("discovery.k8s.io", "endpointslices", f"{READ},{WRITE}")]),
        cluster_binding(ENDPOINT_SLICES, ENDPOINT_SLICES, users=[ENDPOINT_SLICES]),
        cluster_role("system:node", _node()),
        cluster_binding("system:node", "system:node", groups=[NODES]),
    ]


def _controller() -> list[Json]:
    return [
        rule("kubevirt.io", "*", f"{READ},{WRITE}"),
        rule(
            "pool.kubevirt.io,instancetype.kubevirt.io,snapshot.kubevirt.io,clone.kubevirt.io", "*", f"{READ},{WRITE}"
        ),
        _READ_CLASSES,
        rule("cdi.kubevirt.io", "*", READ),
        rule("cdi.kubevirt.io", "datavolumes", WRITE),
        rule("k8s.cni.cncf.io", "network-attachment-definitions", READ),
        rule("core", "resourcequotas", READ),
        rule("core", "pods", f"{READ},{WRITE}"),
        rule("core", "pods/status", "patch,update"),
        rule("core", "pods/eviction", "create"),
        rule("core", "nodes", f"{READ},patch"),
        rule("core", "persistentvolumeclaims", f"{READ},{WRITE}"),
        rule("core", "namespaces,persistentvolumes", READ),
        rule("core", "services,configmaps,secrets", "get,list,watch,create,delete,patch,update"),
        rule("storage.k8s.io", "storageclasses", READ),
        rule("apps", "controllerrevisions", f"{READ},{WRITE}"),
        rule("policy", "poddisruptionbudgets", f"{READ},{WRITE}"),
        _EVENTS,
        _LEASES,
    ]


def _gateway() -> list[Json]:
    return [
        rule("kubevirt.io,instancetype.kubevirt.io", "*", f"{READ},create,patch,update"),
        _READ_CLASSES,
        rule("core", "nodes,namespaces,pods,persistentvolumeclaims,persistentvolumes", READ),
        rule("core", "pods/status", "patch"),
        rule("apps", "controllerrevisions", READ),
        rule("authorization.k8s.io", "subjectaccessreviews", "create"),
        rule("authentication.k8s.io", "tokenreviews", "create"),
        _EVENTS,
        _LEASES,
    ]


def _scheduler() -> list[Json]:
    return [
        rule("core", "pods", READ),
        rule("core", "pods", "delete"),
        rule("core", "pods/binding", "create"),
        rule("core", "pods/status", "patch,update"),
        rule("core", "nodes,namespaces,persistentvolumes", READ),
        rule("core", "persistentvolumeclaims", f"{READ},patch,update"),
        rule("storage.k8s.io", "storageclasses", READ),
        rule("scheduling.k8s.io", "priorityclasses", READ),
        rule("policy", "poddisruptionbudgets", READ),
        _EVENTS,
        _LEASES,
    ]


def _agent() -> list[Json]:
    return [
        _READ_MACHINES,
        rule(
            "kubevirt.io",
            "virtualmachineinstances,virtualmachineinstances/status,virtualmachineinstancemigrations,"
            "virtualmachineinstancemigrations/status",
            "patch,update",
        ),
        rule("anyvisor.io", "hypervisordrivers,hypervisorclasses", READ),
        rule("anyvisor.io", "hypervisornodes", f"{READ},create,patch,update"),
        rule("anyvisor.io", "hypervisornodes/status", "patch,update"),
        rule("core", "pods,nodes,persistentvolumeclaims,persistentvolumes", READ),
        rule("core", "pods,pods/status,nodes,nodes/status", "patch"),
        _EVENTS,
        _LEASES,
    ]


def _node() -> list[Json]:
    return [
        rule("core", "nodes", f"{READ},create,patch,update"),
        rule("core", "nodes/status", "patch,update"),
        rule("core", "pods", f"{READ},delete"),
        rule("core", "pods/status", "patch,update"),
        rule("core", "configmaps,secrets", "get"),
        rule("core", "persistentvolumeclaims", f"{READ},create,patch,update"),
        rule("core", "persistentvolumeclaims/status", "patch,update"),
        rule("core", "persistentvolumes", f"{READ},create,delete,patch,update"),
        rule("core", "persistentvolumes/status", "patch,update"),
        rule("storage.k8s.io", "storageclasses", READ),
        rule("core", "serviceaccounts/token", "create"),
        rule("core", "services", READ),
        rule("discovery.k8s.io", "endpointslices", READ),
        rule("k8s.cni.cncf.io", "network-attachment-definitions", READ),
        rule("cdi.kubevirt.io", "*", READ),
        rule("cdi.kubevirt.io", "datavolumes/status", "patch,update"),
        _EVENTS,
        _LEASES,
    ]
