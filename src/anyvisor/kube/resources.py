"""Which path an API resource has, and the resources that this project uses."""

from dataclasses import dataclass
from urllib.parse import quote

_STEPS = (".", "..")


@dataclass(frozen=True, slots=True)
class Resource:
    """An API resource: group, version and plural make its path."""

    group: str
    version: str
    plural: str
    namespaced: bool
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the encoded path of the collection (in one namespace or all) or of one object.

        Raises ValueError for names that would make it the path of something else: an object of a namespace
        without that namespace, an empty name, `.` and `..`.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root = f"{root}/namespaces/{quote(namespace, safe='')}"
        elif self.namespaced and name is not None:
            raise ValueError(f"{self.kind} {name!r} is namespaced: a namespace is needed")
        root = f"{root}/{self.plural}"
        if namespace in _STEPS:
            raise ValueError(f"{namespace!r} is no name of a namespace")
        if name is not None:
            if not name or name in _STEPS:
                raise ValueError(f"{name!r} is no name of a {self.kind}")
            root = f"{root}/{quote(name, safe='')}"
        return f"{root}/{subresource}" if subresource else root


def _core(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", plural, namespaced, kind)


def _kubevirt(plural: str, kind: str) -> Resource:
    return Resource("kubevirt.io", "v1", plural, namespaced=True, kind=kind)


def _instancetype(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("instancetype.kubevirt.io", "v1beta1", plural, namespaced, kind)


def _anyvisor(plural: str, kind: str) -> Resource:
    return Resource("anyvisor.io", "v1alpha1", plural, namespaced=False, kind=kind)


NAMESPACES = _core("namespaces", "Namespace", namespaced=False)
NODES = _core("nodes", "Node", namespaced=False)
PODS = _core("pods", "Pod")
SERVICES = _core("services", "Service")
SECRETS = _core("secrets", "Secret")
CONFIG_MAPS = _core("configmaps", "ConfigMap")
SERVICE_ACCOUNTS = _core("serviceaccounts", "ServiceAccount")
EVENTS = _core("events", "Event")
PVCS = _core("persistentvolumeclaims", "PersistentVolumeClaim")
PVS = _core("persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False, kind="StorageClass")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, kind="PriorityClass")
LEASES = Resource("coordination.k8s.io", "v1", "leases", namespaced=True, kind="Lease")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", namespaced=True, kind="ControllerRevision")
PDBS = Resource("policy", "v1", "poddisruptionbudgets", namespaced=True, kind="PodDisruptionBudget")
NETWORK_ATTACHMENTS = Resource(
    "k8s.cni.cncf.io",
    "v1",
    "network-attachment-definitions",
    namespaced=True,
    kind="NetworkAttachmentDefinition",
)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", namespaced=True, kind="EndpointSlice")
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    namespaced=False,
    kind="CustomResourceDefinition",
)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False, kind="SubjectAccessReview"
)

VMS = _kubevirt("virtualmachines", "VirtualMachine")
VMIS = _kubevirt("virtualmachineinstances", "VirtualMachineInstance")
MIGRATIONS = _kubevirt("virtualmachineinstancemigrations", "VirtualMachineInstanceMigration")
REPLICA_SETS = _kubevirt("virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet")
PRESETS = _kubevirt("virtualmachineinstancepresets", "VirtualMachineInstancePreset")
KUBEVIRTS = _kubevirt("kubevirts", "KubeVirt")

INSTANCETYPES = _instancetype("virtualmachineinstancetypes", "VirtualMachineInstancetype", namespaced=True)
CLUSTER_INSTANCETYPES = _instancetype(
    "virtualmachineclusterinstancetypes", "VirtualMachineClusterInstancetype", namespaced=False
)
PREFERENCES = _instancetype("virtualmachinepreferences", "VirtualMachinePreference", namespaced=True)
CLUSTER_PREFERENCES = _instancetype(
    "virtualmachineclusterpreferences", "VirtualMachineClusterPreference", namespaced=False
)

DRIVERS = _anyvisor("hypervisordrivers", "HypervisorDriver")
CLASSES = _anyvisor("hypervisorclasses", "HypervisorClass")
HYPERVISOR_NODES = _anyvisor("hypervisornodes", "HypervisorNode")
