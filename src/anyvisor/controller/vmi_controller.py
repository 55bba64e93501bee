"""The shell of the VMI controller: caches in, patches out.

It gathers writes: a pass is run on its own result until nothing more changes, so that an instance whose pod runs
already is handed over in one patch, and the first status after a pod's creation waits a moment for the pod.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from anyvisor.api.meta import Json, controller_of, is_deleting, list_at, name, namespace, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.outcome import Change, Create, Delete, Outcome, Write
from anyvisor.controller.planned import Fleet, plan_instance
from anyvisor.controller.sources import CLAIM, OWNER, STATE_OF, Sources, get, index, key_of, owner_key
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vm_controller import configuration
from anyvisor.controller.vmi.reconcile import reconcile_vmi, with_problem
from anyvisor.controller.vmi.topology import needed
from anyvisor.controller.vmi.world import VmiWorld, spec_volumes
from anyvisor.controller.writer import RefusedError, UnfinishedError, Writer
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import PODS, VMIS
from anyvisor.planning.facts import node_facts

WORKERS: Final = 8
ROUNDS: Final = 4
"""Passes on their own result; more than an instance has steps between two writes of others."""
POD_HEAD_START: Final = 0.15
"""Seconds that a new pod gets to run before the instance's first status is written without it."""
POD_FOLLOWS: Final = 2.0
"""Seconds that labels and gates of a pod may wait for its guest to run, so that they cost no write before."""
STARTING: Final = frozenset({words.UNSET, words.PENDING, words.SCHEDULING, words.SCHEDULED})
FIRST_VSOCK_ID: Final = 3
"""0 to 2 mean hypervisor, loopback and host."""


class VmiController:
    """Reconciles VirtualMachineInstances until cancelled."""

    def __init__(self, client: Client, events: EventRecorder, sources: Sources, *, on_cluster: bool) -> None:
        self._client = client
        self._events = events
        self._sources = sources
        self._on_cluster = on_cluster
        self._queue: WorkQueue[str] = WorkQueue()
        self._started: dict[str, float] = {}

    async def run(self) -> None:
        """Work on every instance that something happened to."""
        sources = self._sources
        sources.vmis.on_change(self._instance_changed)
        sources.pods.on_change(self._pod_changed)
        sources.claims.on_change(self._claim_changed)
        sources.vms.on_change(self._machine_changed)
        for informer in (sources.classes, sources.drivers, sources.hypervisor_nodes):
            informer.on_change(self._fleet_changed)
        for optional in (sources.data_volumes, sources.migrations):
            if optional is not None:
                optional.on_change(self._claim_changed)
        await self._queue.run(self._reconcile, WORKERS)

    def _instance_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        if found is None:
            return
        if new is None:
            self._started.pop(found.meta.uid, None)
        self._queue.add(key_of(found))

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
            self._queue.add(key)

    def _claim_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        if found is None:
            return
        for instance in self._sources.vmis.index(CLAIM, key_of(found)):
            self._queue.add(key_of(instance))
        state_of = (found.meta.labels or {}).get(words.STATE_CLAIM_LABEL)
        if state_of:
            self._queue.add(f"{found.meta.namespace}/{state_of}")

    def _machine_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        """An instance whose VM is gone must not wait for the VM's finalizer."""
        if new is None and old is not None:
            self._queue.add(key_of(old))

    def _fleet_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        """A class, driver or node that changed may run what was refused before."""
        for instance in self._sources.vmis.values():
            vmi = instance.json()
            refused = any(one.get("type") == words.SYNCHRONIZED for one in list_at(vmi, "status", "conditions"))
            if refused and text_at(vmi, "status", "phase") in {words.UNSET, words.PENDING}:
                self._queue.add(key_of(instance))

    async def _reconcile(self, key: str) -> float | None:
        space, own = key.split("/", 1)
        vmi = get(self._sources.vmis, space, own)
        if vmi is None:
            return None
        world = self._world(vmi)
        outcome, again = self._spare_writes(vmi, settle(world))
        writer = Writer(self._client, self._events, VMIS, vmi)
        try:
            await writer.carry_out(outcome)
        except RefusedError as refused:
            await writer.carry_out(with_problem(world, refused.problem))
            raise UnfinishedError(refused.problem) from refused
        if outcome.problem is not None and outcome.problem.retry:
            raise UnfinishedError(outcome.problem)
        return again

    def _spare_writes(self, vmi: Json, outcome: Outcome) -> tuple[Outcome, float | None]:
        """Leave out what a moment later goes into another write."""
        now = asyncio.get_running_loop().time()
        since = self._started.setdefault(uid(vmi), now)
        again = outcome.requeue_after
        writes = outcome.writes
        if any(isinstance(one, Create) and one.resource == PODS for one in writes) and outcome.problem is None:
            kept = tuple(one for one in writes if not _changes(one, VMIS.plural) or _in_trouble(one))
            if kept != writes:
                writes, again = kept, _sooner(again, POD_HEAD_START)
        if text_at(vmi, "status", "phase") in STARTING and now - since < POD_FOLLOWS and not is_deleting(vmi):
            kept = tuple(one for one in writes if not _changes(one, PODS.plural))
            if kept != writes:
                writes, again = kept, _sooner(again, POD_FOLLOWS)
        return replace(outcome, writes=writes), again

    def _world(self, vmi: Json) -> VmiWorld:
        sources = self._sources
        space = namespace(vmi)
        launchers = index(sources.pods, OWNER, uid(vmi))
        attachments = [pod for launcher in launchers for pod in index(sources.pods, OWNER, uid(launcher))]
        owner = controller_of(vmi)
        claims = self._claims(vmi)
        fleet = self._fleet()
        return VmiWorld(
            vmi=vmi,
            now=datetime.now(UTC),
            plan=lambda wanted: plan_instance(wanted, fleet),
            pods=[*launchers, *attachments],
            owner=get(sources.vms, space, str(owner.get("name", ""))) if owner is not None else None,
            data_volumes=self._data_volumes(space, claims),
            claims=claims,
            storage_classes={one.meta.name: one.json() for one in sources.storage_classes.values()},
            migrations=self._migrations(vmi),
            nodes=[one.json() for one in sources.nodes.values()] if needed(vmi) else (),
            namespace_labels=self._namespace_labels(space),
            quotas=self._quotas(space),
            settings=configuration(sources),
            launcher_image=self._image(vmi),
            vsock_id=lambda: self._vsock_id(vmi),
        )

    def _fleet(self) -> Fleet:
        sources = self._sources
        return Fleet(
            classes=[one.json() for one in sources.classes.values()],
            drivers=[one.json() for one in sources.drivers.values()],
            nodes=[node_facts(one.json()) for one in sources.hypervisor_nodes.values()],
            on_cluster=self._on_cluster,
        )

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
        found = self._sources.migrations.values() if self._sources.migrations is not None else ()
        return [one.json() for one in found if one.meta.namespace == namespace(vmi)]

    def _namespace_labels(self, space: str) -> dict[str, str]:
        found = self._sources.namespaces.get(None, space)
        return dict(found.meta.labels or {}) if found is not None else {}

    def _quotas(self, space: str) -> list[Json]:
        found = self._sources.quotas.values() if self._sources.quotas is not None else ()
        return [one.json() for one in found if one.meta.namespace == space]

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


def settle(world: VmiWorld) -> Outcome:
    """Run the pass on its own result until nothing more changes, and ask for the sum of the changes.

    Only changes are carried forward: a pod that was asked for or deleted is seen when it is there or gone.
    """
    total = reconcile_vmi(world)
    latest = total
    for _ in range(ROUNDS):
        moved = any(_changes(one, VMIS.plural) for one in latest.writes)
        if not moved or total.problem is not None or not all(isinstance(one, Change) for one in latest.writes):
            break
        world = _after(world, latest.writes)
        latest = reconcile_vmi(world)
        total = Outcome(
            writes=tuple(_merged([*total.writes, *latest.writes])),
            events=(*total.events, *latest.events),
            problem=latest.problem,
            requeue_after=latest.requeue_after,
        )
    return total


def _after(world: VmiWorld, writes: Iterable[Write]) -> VmiWorld:
    vmi, pods = world.vmi, {uid(pod): pod for pod in world.pods}
    for write in writes:
        if not isinstance(write, Change):
            continue
        if write.resource == VMIS:
            vmi = write.after
        elif uid(write.after) in pods:
            pods[uid(write.after)] = write.after
    return replace(world, vmi=vmi, pods=list(pods.values()))


def _merged(writes: list[Write]) -> list[Write]:
    """One change per object and part, from what it was to what it is to become."""
    result: list[Write] = []
    places: dict[tuple[str, str, bool], int] = {}
    for write in writes:
        if not isinstance(write, Change):
            result.append(write)
            continue
        key = (write.resource.plural, name(write.before), write.status)
        if key in places:
            first = result[places[key]]
            assert isinstance(first, Change)
            result[places[key]] = replace(first, after=write.after)
        else:
            places[key] = len(result)
            result.append(write)
    return result


def _changes(write: Write, plural: str) -> bool:
    return isinstance(write, Change) and write.resource.plural == plural


def _in_trouble(write: Write) -> bool:
    """Whether the change tells of a problem, which must not wait."""
    if isinstance(write, Create | Delete):
        return True
    return any(one.get("type") == words.SYNCHRONIZED for one in list_at(write.after, "status", "conditions"))


def _sooner(known: float | None, seconds: float) -> float:
    return seconds if known is None else min(known, seconds)
