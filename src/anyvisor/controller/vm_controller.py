"""The shell of the VM controller: caches in, patches out."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from anyvisor.api.meta import Json, condition_is, list_at, metadata, name, namespace, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.conditions import parse_timestamp
from anyvisor.controller.outcome import Change, Write
from anyvisor.controller.settling import creates, held_back, settle
from anyvisor.controller.sources import OWNER, Sources, configuration, get, index, key_of, owner_key, types
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vm.reconcile import reconcile_vm, with_failure
from anyvisor.controller.vm.world import VmWorld, template_spec
from anyvisor.controller.writer import RefusedError, UnfinishedError, Writer
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.metrics import QueueObserver
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import VMIS, VMS

MIRROR_DELAY: Final = 0.2
"""Seconds in which changes of a living instance are gathered before the VM's status follows them."""
START_DELAY: Final = 1.0
"""The same while an instance starts, which it does in steps that follow each other closely."""
LONG_START: Final = timedelta(seconds=10)
"""How long small changes of a status may wait for an instance that starts."""
WORKERS: Final = 4


class VmController:
    """Reconciles VirtualMachines until cancelled."""

    def __init__(
        self, client: Client, events: EventRecorder, sources: Sources, observer: QueueObserver | None = None
    ) -> None:
        self._client = client
        self._events = events
        self._sources = sources
        self._queue: WorkQueue[str] = WorkQueue(observer=observer)

    async def run(self) -> None:
        """Work on every VM that something happened to."""
        sources = self._sources
        sources.vms.on_change(self._vm_changed)
        sources.vmis.on_change(self._vmi_changed)
        sources.claims.on_change(self._claim_changed)
        if sources.data_volumes is not None:
            sources.data_volumes.on_change(self._claim_changed)
        offers = (sources.classes, sources.drivers, sources.configurations)
        sizes = (sources.instancetypes, sources.cluster_instancetypes, sources.preferences, sources.cluster_preferences)
        for informer in (*offers, *(one for one in sizes if one is not None)):
            informer.on_change(self._offer_changed)
        await self._queue.run(self._reconcile, WORKERS)

    def _vm_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        if found is not None:
            self._queue.add(key_of(found))

    def _vmi_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        """An instance that appears, ends or goes is acted upon at once; the rest only moves the status."""
        found = new or old
        if found is None:
            return
        urgent = old is None or new is None or new.meta.deletion_timestamp is not None
        for key in {owner_key(found, "VirtualMachine"), key_of(found)} - {None}:
            if key is None or self._sources.vms.get(*key.split("/", 1)) is None:
                continue
            if urgent or _is_final(found):
                self._queue.add(key)
            else:
                self._queue.add_after(key, START_DELAY if _is_starting(old, found) else MIRROR_DELAY)

    def _claim_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        if found is not None:
            for machine in self._sources.vms.index("claim", key_of(found)):
                self._queue.add(key_of(machine))

    def _offer_changed(self, _old: CachedObject | None, _new: CachedObject | None) -> None:
        """What was refused may be accepted now; a VM must not sit out its back-off for that."""
        for machine in self._sources.vms.values():
            if condition_is(machine.json(), words.FAILURE):
                self._queue.add(key_of(machine))

    async def _reconcile(self, key: str) -> float | None:
        space, own = key.split("/", 1)
        vm = get(self._sources.vms, space, own)
        if vm is None:
            return None
        world = self._world(vm)
        outcome = settle(world, reconcile_vm, _follow)
        if creates(VMIS, outcome):
            outcome = held_back(outcome, _tells_status, START_DELAY)
        elif _just_made(world):
            outcome = held_back(outcome, lambda one: _tells_status(one) and _says_little(one), START_DELAY)
        writer = Writer(self._client, self._events, VMS, vm)
        try:
            await writer.carry_out(outcome)
        except RefusedError as refused:
            failed = with_failure(world, refused.problem)
            await writer.carry_out(failed)
            raise UnfinishedError(refused.problem) from refused
        if outcome.problem is not None and outcome.problem.retry:
            raise UnfinishedError(outcome.problem)
        return outcome.requeue_after

    def _world(self, vm: Json) -> VmWorld:
        sources = self._sources
        space = namespace(vm)
        wanted = {claim_name(volume) for volume in list_at(template_spec(vm), "volumes")}
        wanted |= {name(template) for template in list_at(vm, "spec", "dataVolumeTemplates")}
        revisions = index(sources.revisions, OWNER, uid(vm))
        claims = {one: get(sources.claims, space, one) for one in wanted if one}
        volumes = {one: get(sources.data_volumes, space, one) for one in wanted if one}
        return VmWorld(
            vm=vm,
            vmi=get(sources.vmis, space, name(vm)),
            now=datetime.now(UTC),
            jitter=random.randrange,
            revisions={name(one): one for one in revisions},
            data_volumes={key: one for key, one in volumes.items() if one is not None},
            claims={key: one for key, one in claims.items() if one is not None},
            types=types(sources, vm),
            settings=configuration(sources),
        )


def _follow(world: VmWorld, changes: Sequence[Change]) -> VmWorld | None:
    """The world after a pass that changed nothing but the VM's metadata."""
    if len(changes) != 1 or changes[0].resource != VMS or changes[0].status:
        return None
    return replace(world, vm=changes[0].after)


def _tells_status(write: Write) -> bool:
    return isinstance(write, Change) and write.resource == VMS and write.status


def _just_made(world: VmWorld) -> bool:
    """Whether the instance is on its way to run, and not for long: it is about to say more."""
    if world.vmi is None or text_at(world.vmi, "status", "phase") not in words.STARTING:
        return False
    made = parse_timestamp(metadata(world.vmi).get("creationTimestamp"))
    return made is not None and world.now - made < LONG_START


def _says_little(write: Write) -> bool:
    """Whether a status differs from the one before in nothing that somebody waits for."""
    assert isinstance(write, Change)
    return _essence(write.before) == _essence(write.after)


def _essence(vm: Json) -> tuple[str, dict[str, str]]:
    states = {str(one.get("type")): str(one.get("status")) for one in list_at(vm, "status", "conditions")}
    return text_at(vm, "status", "printableStatus"), states


def _is_starting(old: CachedObject | None, vmi: CachedObject) -> bool:
    """Whether more is about to follow: the guest does not run yet, or just began to and is not ready."""
    now = vmi.json()
    if text_at(now, "status", "phase") != words.RUNNING:
        return True
    if condition_is(now, words.READY) or old is None:
        return False
    return text_at(old.json(), "status", "phase") != words.RUNNING


def _is_final(vmi: CachedObject) -> bool:
    return text_at(vmi.json(), "status", "phase") in {words.SUCCEEDED, words.FAILED}
