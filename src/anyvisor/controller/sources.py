"""The caches that the controllers look into, and how one finds an object in them."""

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from anyvisor.api import instancetypes
from anyvisor.api.meta import Json, namespace, object_at
from anyvisor.controller import words
from anyvisor.controller.installation import configuration_of
from anyvisor.controller.settings import Settings
from anyvisor.controller.vm.data_volumes import DATA_VOLUMES
from anyvisor.kube import errors
from anyvisor.kube.client import Client
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.owners import controller_of, controller_uid
from anyvisor.kube.resources import (
    CLASSES,
    CLUSTER_INSTANCETYPES,
    CLUSTER_PREFERENCES,
    CONTROLLER_REVISIONS,
    DRIVERS,
    HYPERVISOR_NODES,
    INSTANCETYPES,
    KUBEVIRTS,
    LEASES,
    MIGRATIONS,
    NAMESPACES,
    NETWORK_ATTACHMENTS,
    NODES,
    PODS,
    PREFERENCES,
    PVCS,
    STORAGE_CLASSES,
    VMIS,
    VMS,
    Resource,
)
from anyvisor.kube.store import IndexFunction

log = logging.getLogger(__name__)

QUOTAS = Resource("", "v1", "resourcequotas", namespaced=True, kind="ResourceQuota")
_IMPORT = "cdi.kubevirt.io"
STORAGE_PROFILES = Resource(_IMPORT, "v1beta1", "storageprofiles", namespaced=False, kind="StorageProfile")
IMPORTERS = Resource(_IMPORT, "v1beta1", "cdis", namespaced=False, kind="CDI")
IMPORTER_CONFIGS = Resource(_IMPORT, "v1beta1", "cdiconfigs", namespaced=False, kind="CDIConfig")
NODE_LEASES = "kube-node-lease"
OWNER = "owner"
CLAIM = "claim"
NODE = "node"
STATE_OF = "state"


class _Claim(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str = ""
    name: str = ""


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    persistent_volume_claim: _Claim | None = None
    data_volume: _Claim | None = None
    memory_dump: _Claim | None = None


class _InstanceSpec(msgspec.Struct, frozen=True, rename="camel"):
    volumes: tuple[_Volume, ...] = ()
    utility_volumes: tuple[_Claim, ...] = ()


class _Instance(msgspec.Struct, frozen=True):
    class Status(msgspec.Struct, frozen=True, rename="camel"):
        node_name: str = ""

    spec: _InstanceSpec = _InstanceSpec()
    status: Status = Status()


class _Machine(msgspec.Struct, frozen=True):
    class Spec(msgspec.Struct, frozen=True):
        class Template(msgspec.Struct, frozen=True):
            spec: _InstanceSpec = _InstanceSpec()

        template: Template = Template()

    spec: Spec = Spec()


class _Pod(msgspec.Struct, frozen=True):
    class Spec(msgspec.Struct, frozen=True, rename="camel"):
        node_name: str = ""

    spec: Spec = Spec()


def _claims(namespace: str, spec: _InstanceSpec) -> Iterable[str]:
    for volume in spec.volumes:
        for source in (volume.persistent_volume_claim, volume.data_volume, volume.memory_dump):
            if source is not None:
                yield f"{namespace}/{source.claim_name or source.name}"
    for utility in spec.utility_volumes:
        yield f"{namespace}/{utility.claim_name}"


def instance_claims(obj: CachedObject) -> Iterable[str]:
    """Index of instances by the claims that they name."""
    return _claims(obj.meta.namespace, obj.decode(_Instance).spec)


def machine_claims(obj: CachedObject) -> Iterable[str]:
    """Index of VMs by the claims that their templates name."""
    return _claims(obj.meta.namespace, obj.decode(_Machine).spec.template.spec)


def instance_node(obj: CachedObject) -> Iterable[str]:
    """Index of instances by their node."""
    node = obj.decode(_Instance).status.node_name
    return (node,) if node else ()


def pod_node(obj: CachedObject) -> Iterable[str]:
    """Index of pods by their node."""
    node = obj.decode(_Pod).spec.node_name
    return (node,) if node else ()


def state_claim(obj: CachedObject) -> Iterable[str]:
    """Index of claims by the instance whose firmware and TPM state they keep."""
    labelled = (obj.meta.labels or {}).get(words.STATE_CLAIM_LABEL)
    if labelled:
        yield f"{obj.meta.namespace}/{labelled}"
    prefix = f"{words.STATE_CLAIM_LABEL}-"
    if obj.meta.name.startswith(prefix):
        yield f"{obj.meta.namespace}/{obj.meta.name.removeprefix(prefix)}"


def key_of(obj: CachedObject) -> str:
    """`namespace/name`: the key of work queues."""
    return f"{obj.meta.namespace}/{obj.meta.name}"


def owner_key(obj: CachedObject, kind: str) -> str | None:
    """The key of the object's controller, if it is of a kind."""
    owner = controller_of(obj.meta)
    if owner is None or owner.kind != kind:
        return None
    return f"{obj.meta.namespace}/{owner.name}"


@dataclass(frozen=True, slots=True)
class Sources:
    """The caches; optional ones are None where the API server does not serve their kind."""

    vms: Informer
    vmis: Informer
    pods: Informer
    claims: Informer
    revisions: Informer
    storage_classes: Informer
    nodes: Informer
    leases: Informer
    namespaces: Informer
    configurations: Informer
    classes: Informer
    drivers: Informer
    hypervisor_nodes: Informer
    migrations: Informer | None
    data_volumes: Informer | None
    quotas: Informer | None
    attachments: Informer | None
    storage_profiles: Informer | None
    importers: Informer | None
    importer_configs: Informer | None
    instancetypes: Informer | None
    cluster_instancetypes: Informer | None
    preferences: Informer | None
    cluster_preferences: Informer | None

    def all(self) -> Sequence[Informer]:
        """Every cache that there is."""
        found = (getattr(self, field) for field in self.__dataclass_fields__)
        return [one for one in found if one is not None]


def get(informer: Informer | None, namespace: str | None, name: str) -> Json | None:
    """One cached object, decoded."""
    found = informer.get(namespace, name) if informer is not None and name else None
    return found.json() if found is not None else None


def index(informer: Informer | None, name: str, key: str) -> list[Json]:
    """The cached objects under a key of an index, decoded."""
    return [found.json() for found in informer.index(name, key)] if informer is not None else []


def every(informer: Informer | None) -> list[Json]:
    """All cached objects, decoded."""
    return [found.json() for found in informer.values()] if informer is not None else []


def within(informer: Informer | None, namespace: str) -> list[Json]:
    """The cached objects of one namespace, decoded; those of others are only passed over."""
    found = informer.values() if informer is not None else ()
    return [one.json() for one in found if one.meta.namespace == namespace]


def types(sources: Sources, vm: Json) -> dict[str, Json]:
    """The instance type and the preference that a VM refers to, as far as they exist, by its fields."""
    caches = {
        "VirtualMachineInstancetype": sources.instancetypes,
        "VirtualMachineClusterInstancetype": sources.cluster_instancetypes,
        "VirtualMachinePreference": sources.preferences,
        "VirtualMachineClusterPreference": sources.cluster_preferences,
    }
    found: dict[str, Json] = {}
    for field in instancetypes.KINDS:
        wanted = instancetypes.referred(object_at(vm, "spec"), field)
        if wanted is None:
            continue
        kind, name = wanted
        space = "" if "Cluster" in kind else namespace(vm)
        one = get(caches[kind], space, name)
        if one is not None:
            found[field] = one
    return found


def configuration(sources: Sources) -> Settings:
    """The settings in force; all defaults while there is no KubeVirt object."""
    return Settings(configuration_of([one.json() for one in sources.configurations.values()]))


FOREIGN: Final = (DATA_VOLUMES, NETWORK_ATTACHMENTS, STORAGE_PROFILES, IMPORTERS, IMPORTER_CONFIGS)
"""Kinds that somebody else installs, perhaps later than this project: `open_sources` reads those that it finds."""


async def _served(client: Client, resource: Resource) -> bool:
    try:
        await client.list(resource, limit=1)
    except errors.NotFound:
        return False
    except errors.Forbidden as cause:
        log.warning("%s are left out of account: %s", resource.plural, cause)
        return False
    return True


@asynccontextmanager
async def open_sources(client: Client) -> AsyncGenerator[Sources]:
    """Start all caches and wait until each knows its first list."""
    async with AsyncExitStack() as stack:

        async def cache(resource: Resource, namespace: str | None = None, **indexes: IndexFunction) -> Informer:
            informer = Informer(client, resource, namespace, indexes=indexes)
            return await stack.enter_async_context(informer)

        async def optional(resource: Resource) -> Informer | None:
            return await cache(resource) if await _served(client, resource) else None

        sources = Sources(
            vms=await cache(VMS, claim=machine_claims),
            vmis=await cache(VMIS, claim=instance_claims, node=instance_node),
            pods=await cache(PODS, owner=controller_uid, node=pod_node),
            claims=await cache(PVCS, state=state_claim),
            revisions=await cache(CONTROLLER_REVISIONS, owner=controller_uid),
            storage_classes=await cache(STORAGE_CLASSES),
            nodes=await cache(NODES),
            leases=await cache(LEASES, NODE_LEASES),
            namespaces=await cache(NAMESPACES),
            configurations=await cache(KUBEVIRTS),
            classes=await cache(CLASSES),
            drivers=await cache(DRIVERS),
            hypervisor_nodes=await cache(HYPERVISOR_NODES),
            migrations=await optional(MIGRATIONS),
            data_volumes=await optional(DATA_VOLUMES),
            quotas=await optional(QUOTAS),
            attachments=await optional(NETWORK_ATTACHMENTS),
            storage_profiles=await optional(STORAGE_PROFILES),
            importers=await optional(IMPORTERS),
            importer_configs=await optional(IMPORTER_CONFIGS),
            instancetypes=await optional(INSTANCETYPES),
            cluster_instancetypes=await optional(CLUSTER_INSTANCETYPES),
            preferences=await optional(PREFERENCES),
            cluster_preferences=await optional(CLUSTER_PREFERENCES),
        )
        for informer in sources.all():
            await informer.synced.wait()
        yield sources
