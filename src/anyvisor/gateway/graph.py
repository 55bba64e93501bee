"""objectgraph: the objects that a VM or its run depends on, as a tree; what a backup has to take along."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from anyvisor.admission.values import items, mapping, text
from anyvisor.api.meta import Json, annotations, list_at, name, object_at, owner_references, text_at
from anyvisor.api.selectors import EVERYTHING, Selector, SelectorError, selector_of
from anyvisor.gateway.answers import Decision, bad_request, entity
from anyvisor.gateway.call import VMS, Call, flag_option, object_option, options
from anyvisor.gateway.world import Listing, World

GATE: Final = "ObjectGraph"
DEPENDENCY: Final = "kubevirt.io/dependency-type"
LAUNCHERS: Final = "kubevirt.io=virt-launcher"
DOMAIN: Final = "kubevirt.io/domain"
STATE_OF: Final = "persistent-state-for"

_VIRT, _TYPES, _NETWORK = "kubevirt.io", "instancetype.kubevirt.io", "k8s.cni.cncf.io"
_KINDS: Final = {
    "VirtualMachine": (_VIRT, "compute"),
    "VirtualMachineInstance": (_VIRT, "compute"),
    "Pod": ("", "compute"),
    "DataVolume": ("cdi.kubevirt.io", "storage"),
    "PersistentVolumeClaim": ("", "storage"),
    "ConfigMap": ("", "config"),
    "Secret": ("", "config"),
    "ControllerRevision": ("apps", "config"),
    "VirtualMachineInstancetype": (_TYPES, "config"),
    "VirtualMachineClusterInstancetype": (_TYPES, "config"),
    "VirtualMachinePreference": (_TYPES, "config"),
    "VirtualMachineClusterPreference": (_TYPES, "config"),
    "NetworkAttachmentDefinition": (_NETWORK, "network"),
}
"""API group of a kind, and what sort of dependency an object of it is."""

_CLOUD_INIT: Final = ("cloudInitNoCloud", "cloudInitConfigDrive")
_SECRET_REFERENCES: Final = ("secretRef", "networkDataSecretRef")


def listings(call: Call, world: World) -> tuple[Listing, ...]:
    """Return the collections that a graph looks through: launcher pods, and the claim of the VM's own state."""
    if not world.config.on(GATE):
        return ()
    return (Listing("pods", LAUNCHERS), Listing("persistentvolumeclaims", f"{STATE_OF}={call.name}"))


def graph(call: Call, world: World) -> Decision:
    """Answer with the tree, without what the options leave out."""
    if not world.config.on(GATE):
        raise bad_request(f"the object graph is off: it needs the feature gate {GATE}")
    if call.resource == VMS:
        kind, children = "VirtualMachine", _of_vm(call, world, world.the_vm(call))
    else:
        kind, children = "VirtualMachineInstance", _of_vmi(call, world, object_at(world.the_vmi(call), "spec"))
    found = options(call)
    kept = _kept(children, _selector(found), optional=found.get("includeOptionalNodes") is None or _wanted(found))
    return entity(_node(kind, call.name, call.namespace, kept))


def _wanted(found: Json) -> bool:
    return flag_option(found, "includeOptionalNodes")


def _selector(found: Json) -> Selector:
    wanted = object_option(found, "labelSelector")
    try:
        return selector_of(wanted) if wanted is not None else EVERYTHING
    except SelectorError as error:
        raise bad_request(f"labelSelector: {error}") from error


def _kept(nodes: Iterable[Json], selector: Selector, *, optional: bool) -> list[Json]:
    """Leave out nodes that are not wanted, and with them what hangs on them."""
    kept: list[Json] = []
    for node in nodes:
        if (node.get("optional") and not optional) or not selector.matches(node["labels"]):
            continue
        below = _kept(node.get("children", []), selector, optional=optional)
        rest = {key: value for key, value in node.items() if key != "children"}
        kept.append({**rest, **({"children": below} if below else {})})
    return kept


def _node(kind: str, of: str, namespace: str, children: Iterable[Json] = (), *, optional: bool = False) -> Json:
    group, sort = _KINDS[kind]
    reference = {"apiGroup": group, "kind": kind, "name": of, "namespace": namespace}
    node: Json = {"objectReference": reference, "labels": {DEPENDENCY: sort}}
    below = list(children)
    if optional:
        node["optional"] = True
    if below:
        node["children"] = below
    return node


def _of_vm(call: Call, world: World, vm: Json) -> Iterator[Json]:
    if object_at(vm, "status").get("created"):
        yield _node("VirtualMachineInstance", call.name, call.namespace, _launchers(call, world))
    for matcher, status in (("instancetype", "instancetypeRef"), ("preference", "preferenceRef")):
        yield from _of_matcher(call, object_at(vm, "spec", matcher), object_at(vm, "status").get(status))
    yield from _of_spec(call, world, object_at(vm, "spec", "template", "spec"))


def _of_vmi(call: Call, world: World, spec: Json) -> Iterator[Json]:
    yield from _launchers(call, world)
    yield from _of_spec(call, world, spec)


def _launchers(call: Call, world: World) -> Iterator[Json]:
    for pod in world.listed.get("pods", ()):
        owners = owner_references(pod)
        ours = any(owner.get("kind") == "VirtualMachineInstance" and owner.get("name") == call.name for owner in owners)
        if ours or annotations(pod).get(DOMAIN) == call.name:
            yield _node("Pod", name(pod), call.namespace)
            return


def _of_matcher(call: Call, matcher: Json, status: Any) -> Iterator[Json]:
    named, kind = text_at(matcher, "name"), text_at(matcher, "kind").lower().removesuffix("s")
    match = next((known for known in _KINDS if known.lower() == kind), "")
    if named and match:
        yield _node(match, named, "" if "Cluster" in match else call.namespace, optional=True)
    revision = text_at(mapping(status), "controllerRevisionRef", "name")
    if status is None:
        revision = text_at(matcher, "revisionName")
    if revision:
        yield _node("ControllerRevision", revision, call.namespace)


def _of_spec(call: Call, world: World, spec: Json) -> Iterator[Json]:
    for credential in items(spec.get("accessCredentials")):
        for way in ("sshPublicKey", "userPassword"):
            secret = text_at(credential, way, "source", "secret", "secretName")
            if secret:
                yield _node("Secret", secret, call.namespace)
    for volume in items(spec.get("volumes")):
        yield from _of_volume(call.namespace, volume)
    for claim in world.listed.get("persistentvolumeclaims", ()):
        yield _node("PersistentVolumeClaim", name(claim), call.namespace)
    for network in list_at(spec, "networks"):
        definition = text_at(mapping(network), "multus", "networkName")
        if definition:
            space, _, plain = definition.rpartition("/")
            yield _node("NetworkAttachmentDefinition", plain, space or call.namespace, optional=True)


_OF_VOLUMES: Final[tuple[tuple[str, Callable[[Json], str]], ...]] = (
    ("PersistentVolumeClaim", lambda volume: text_at(volume, "persistentVolumeClaim", "claimName")),
    ("PersistentVolumeClaim", lambda volume: text_at(volume, "ephemeral", "persistentVolumeClaim", "claimName")),
    ("PersistentVolumeClaim", lambda volume: text_at(volume, "memoryDump", "claimName")),
    ("ConfigMap", lambda volume: text_at(volume, "configMap", "name")),
    ("ConfigMap", lambda volume: text_at(volume, "sysprep", "configMap", "name")),
    ("Secret", lambda volume: text_at(volume, "secret", "secretName")),
    ("Secret", lambda volume: text_at(volume, "sysprep", "secret", "name")),
)


def _of_volume(namespace: str, volume: Json) -> Iterator[Json]:
    data = text_at(volume, "dataVolume", "name")
    if data:
        yield _node("DataVolume", data, namespace, [_node("PersistentVolumeClaim", data, namespace)])
    for kind, named in _OF_VOLUMES:
        if found := named(volume):
            yield _node(kind, found, namespace)
    for source in _CLOUD_INIT:
        for reference in _SECRET_REFERENCES:
            secret = text(object_at(volume, source, reference).get("name"))
            if secret:
                yield _node("Secret", secret, namespace)
