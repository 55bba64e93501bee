"""The shell of the VMI controller: caches in, patches out.

It gathers writes: a pass is run on its own result until nothing more changes, so that an instance whose pod runs
already is handed over in one patch, and the first status after a pod's creation waits a moment for the pod.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from anyvisor.api.meta import (
    Json,
    controller_of,
    is_deleting,
    list_at,
    name,
    namespace,
    object_at,
    resource_version,
    text_at,
    uid,
)
from anyvisor.controller import words
from anyvisor.controller.echoes import Echoes
from anyvisor.controller.outcome import Change, Outcome, Write, only_changes
from anyvisor.controller.planned import Fleet, plan_instance
from anyvisor.controller.podspec.networks import attachment_names
from anyvisor.controller.settling import changes_of, held_back, settle
from anyvisor.controller.sources import (
    CLAIM,
    OWNER,
    STATE_OF,
    Sources,
    configuration,
    every,
    get,
    index,
    key_of,
    owner_key,
    within,
)
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vmi.reconcile import reconcile_vmi, with_problem
from anyvisor.controller.vmi.topology import needed
from anyvisor.controller.vmi.world import VmiWorld, spec_volumes
from anyvisor.controller.writer import RefusedError, UnfinishedError, Writer
from anyvisor.kube.client import Client
from anyvisor.kube.derived import Derived, decoded
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.metrics import QueueObserver
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import PODS, VMIS
from anyvisor.planning.facts import fleet

WORKERS: Final = 8
POD_HEAD_START: Final = 1.0
"""Seconds that a new pod gets to run before the instance's first status is written without it."""
POD_FOLLOWS: Final = 2.0
"""Seconds that labels and gates of a pod may wait for its guest to run, so that they cost no write before."""
WAITING: Final = frozenset({words.UNSET, words.PENDING, words.SCHEDULING})
FIRST_VSOCK_ID: Final = 3
"""0 to 2 mean hypervisor, loopback and host."""


class VmiController:
    """Reconciles VirtualMachineInstances until cancelled."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        sources: Sources,
        *,
        on_cluster: bool,
        image_volumes: bool = True,
        observer: QueueObserver | None = None,
    ) -> None:
        self._client = client
        self._events = events
        self._sources = sources
        self._classes = Derived(sources.classes, decoded)
        self._drivers = Derived(sources.drivers, decoded)
        self._nodes = Derived(sources.hypervisor_nodes, lambda found: fleet(decoded(found)))
        self._on_cluster = on_cluster
        self._image_volumes = image_volumes
        self._queue: WorkQueue[str] = WorkQueue(observer=observer)
        self._started: dict[str, float] = {}
        self._echoes = Echoes()

    async def run(self) -> None:
        """Work on every instance that something happened to."""
        sources = self._sources
        sources.vmis.on_change(self._instance_changed)
        sources.pods.on_change(self._pod_changed)
        sources.claims.on_change(self._claim_changed)
        sources.vms.on_change(self._machine_changed)
        for informer in (sources.classes, sources.drivers, sources.hypervisor_nodes, sources.configurations):
            informer.on_change(self._offer_changed)
        if sources.attachments is not None:
            sources.attachments.on_change(self._offer_changed)
        for optional in (sources.data_volumes, sources.migrations):
            if optional is not None:
                optional.on_change(self._claim_changed)
        await self._queue.run(self._reconcile, WORKERS)

    def _instance_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        if found is None:
            return
        if old is None or new is None or old.meta.uid != new.meta.uid:
            self._echoes.news(key_of(found))
        if new is None:
            self._started.pop(found.meta.uid, None)
        self._queue.add(key_of(found))

    def _wake(self, key: str) -> None:
        self._echoes.news(key)
        self._queue.add(key)

    def _pod_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        if found is None:
            return
        key = owner_key(found, "VirtualMachineInstance")
        launcher = owner_key(found, "Pod")
        if launcher is not None:
            pod = self._sources.pods.get(*launcher.split("/", 1))
            key = owner_key(pod, "VirtualMachineInstance") if pod is not None else None
        if key is not None:
            self._wake(key)

    def _claim_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        if found is None:
            return
        for instance in self._sources.vmis.index(CLAIM, key_of(found)):
            self._wake(key_of(instance))
        state_of = (found.meta.labels or {}).get(words.STATE_CLAIM_LABEL)
        if state_of:
            self._wake(f"{found.meta.namespace}/{state_of}")

    def _machine_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        """An instance whose VM is gone must not wait for the VM's finalizer."""
        if new is None and old is not None:
            self._wake(key_of(old))

    def _offer_changed(self, _old: CachedObject | None, _new: CachedObject | None) -> None:
        """A class, driver, node, configuration or network that changed may allow what was refused before."""
        for instance in self._sources.vmis.values():
            vmi = instance.json()
            refused = any(one.get("type") == words.SYNCHRONIZED for one in list_at(vmi, "status", "conditions"))
            if refused and text_at(vmi, "status", "phase") in {words.UNSET, words.PENDING}:
                self._wake(key_of(instance))

    async def _reconcile(self, key: str) -> float | None:
        space, own = key.split("/", 1)
        vmi = get(self._sources.vmis, space, own)
        if vmi is None:
            self._echoes.forget(key)
            return None
        now = asyncio.get_running_loop().time()
        if self._echoes.is_echo(key, resource_version(vmi), now):
            return self._echoes.wait(key, now)
        self._echoes.begin(key)
        world = self._world(vmi)
        wanted = settle(world, reconcile_vmi, _follow)
        outcome = self._spare_writes(vmi, wanted)
        writer = Writer(self._client, self._events, VMIS, vmi)
        try:
            await writer.carry_out(outcome)
        except RefusedError as refused:
            await writer.carry_out(with_problem(world, refused.problem))
            raise UnfinishedError(refused.problem) from refused
        if outcome.problem is not None and outcome.problem.retry:
            raise UnfinishedError(outcome.problem)
        if outcome is wanted and only_changes(outcome):
            again = outcome.requeue_after
            self._echoes.settled(key, writer.version(VMIS, vmi), None if again is None else now + again)
        return outcome.requeue_after

    def _spare_writes(self, vmi: Json, outcome: Outcome) -> Outcome:
        """Leave out what a moment later goes into another write."""
        if is_deleting(vmi):
            return outcome
        now = asyncio.get_running_loop().time()
        age = now - self._started.setdefault(uid(vmi), now)
        phase = text_at(vmi, "status", "phase")
        if phase in {words.UNSET, words.PENDING} and age < POD_HEAD_START:
            outcome = held_back(outcome, _tells_of_the_wait, POD_HEAD_START - age)
        if phase in words.STARTING and age < POD_FOLLOWS:
            outcome = held_back(outcome, lambda one: changes_of(PODS, one), POD_FOLLOWS - age)
        elif phase in WAITING:
            outcome = replace(outcome, writes=tuple(one for one in outcome.writes if not changes_of(PODS, one)))
        return outcome

    def _world(self, vmi: Json) -> VmiWorld:
        sources = self._sources
        space = namespace(vmi)
        launchers = index(sources.pods, OWNER, uid(vmi))
        attachments = [pod for launcher in launchers for pod in index(sources.pods, OWNER, uid(launcher))]
        owner = controller_of(vmi)
        claims = self._claims(vmi)
        return VmiWorld(
            vmi=vmi,
            now=datetime.now(UTC),
            plan=lambda wanted: plan_instance(wanted, self._fleet()),
            pods=[*launchers, *attachments],
            owner=get(sources.vms, space, str(owner.get("name", ""))) if owner is not None else None,
            data_volumes=self._data_volumes(space, claims),
            claims=claims,
            storage_classes={name(one): one for one in every(sources.storage_classes)},
            storage_profiles={name(one): one for one in every(sources.storage_profiles)},
            importers=every(sources.importers),
            importer_config=next(iter(every(sources.importer_configs)), None),
            migrations=self._migrations(vmi),
            nodes=every(sources.nodes) if needed(vmi) else (),
            namespace_labels=self._namespace_labels(space),
            quotas=self._quotas(space),
            attachments=self._attachments(vmi),
            settings=configuration(sources),
            on_cluster=self._on_cluster,
            image_volumes=self._image_volumes,
            launcher_image=self._image(vmi),
            vsock_id=lambda: self._vsock_id(vmi),
        )

    def _fleet(self) -> Fleet:
        return Fleet(self._classes.get(), self._drivers.get(), self._nodes.get(), self._on_cluster)

    def _claims(self, vmi: Json) -> dict[str, Json]:
        space = namespace(vmi)
        wanted = {claim_name(volume) for volume in spec_volumes(vmi)}
        wanted |= {text_at(one, "ephemeral", "persistentVolumeClaim", "claimName") for one in spec_volumes(vmi)}
        wanted |= {text_at(one, "claimName") for one in list_at(vmi, "spec", "utilityVolumes")}
        found = [get(self._sources.claims, space, one) for one in sorted(wanted) if one]
        found += index(self._sources.claims, STATE_OF, f"{space}/{name(vmi)}")
        return {name(one): one for one in found if one is not None}

    def _data_volumes(self, space: str, claims: dict[str, Json]) -> dict[str, Json]:
        wanted = set(claims)
        for claim in claims.values():
            owner = controller_of(claim)
            if owner is not None and owner.get("kind") == "DataVolume":
                wanted.add(str(owner.get("name", "")))
        found = [get(self._sources.data_volumes, space, one) for one in sorted(wanted)]
        return {name(one): one for one in found if one is not None}

    def _migrations(self, vmi: Json) -> list[Json]:
        return within(self._sources.migrations, namespace(vmi))

    def _namespace_labels(self, space: str) -> dict[str, str]:
        found = self._sources.namespaces.get(None, space)
        return dict(found.meta.labels or {}) if found is not None else {}

    def _quotas(self, space: str) -> list[Json]:
        return within(self._sources.quotas, space)

    def _attachments(self, vmi: Json) -> dict[str, Json] | None:
        """The definitions of the networks that the instance names, by `namespace/name`; None = no such kind."""
        if self._sources.attachments is None:
            return None
        wanted = attachment_names(namespace(vmi), list_at(vmi, "spec", "networks"))
        found = {one: get(self._sources.attachments, *one.split("/", 1)) for one in wanted}
        return {one: definition for one, definition in found.items() if definition is not None}

    def _image(self, vmi: Json) -> str:
        """The image that the instance's driver ships now."""
        driver = get(self._sources.drivers, None, text_at(vmi, "status", "hypervisor", "driver"))
        return text_at(driver, "spec", "manifest", "pod", "image") if driver is not None else ""

    def _vsock_id(self, vmi: Json) -> int:
        """A context id that no other instance has, the same at each try."""
        others = (object_at(one.json(), "status").get("VSOCKCID") for one in self._sources.vmis.values())
        taken = {one for one in others if isinstance(one, int)}
        span = 2**32 - FIRST_VSOCK_ID - 1
        start = int.from_bytes(hashlib.sha256(uid(vmi).encode()).digest()[:8]) % span
        return next(found for step in range(span) if (found := FIRST_VSOCK_ID + (start + step) % span) not in taken)


def _follow(world: VmiWorld, changes: Sequence[Change]) -> VmiWorld | None:
    """The world after a pass that changed the instance."""
    if not any(one.resource == VMIS for one in changes):
        return None
    vmi, pods = world.vmi, {uid(pod): pod for pod in world.pods}
    for change in changes:
        if change.resource == VMIS:
            vmi = change.after
        elif uid(change.after) in pods:
            pods[uid(change.after)] = change.after
    return replace(world, vmi=vmi, pods=list(pods.values()))


def _tells_of_the_wait(write: Write) -> bool:
    """Whether a change of an instance says no more than that it waits; a problem must be seen at once."""
    if not isinstance(write, Change) or write.resource != VMIS:
        return False
    troubled = any(one.get("type") == words.SYNCHRONIZED for one in list_at(write.after, "status", "conditions"))
    return not troubled and text_at(write.after, "status", "phase") in WAITING
