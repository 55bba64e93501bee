"""The pod runner of one node: takes launcher pods that are bound to it, runs them, reports them, ends them."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from anyvisor.agent import plan, processes, script
from anyvisor.agent.launchers import Launcher, SharedDirectory
from anyvisor.api.meta import Json, is_deleting, labels, list_at, metadata, name, namespace, object_at, text_at, uid
from anyvisor.embedded.podrunner import cgroups, probes, shares, status
from anyvisor.embedded.podrunner.images import PodImages
from anyvisor.embedded.podrunner.launch import Launch, LaunchError
from anyvisor.embedded.podrunner.mounts import PodVolumes, open_mount, write
from anyvisor.embedded.podrunner.networks import PodNetworks
from anyvisor.embedded.podrunner.node import HOST_IP, NodeKeeper
from anyvisor.embedded.podrunner.prober import GuestAgents, Listener, Prober, no_guest
from anyvisor.embedded.podrunner.probes import Probe
from anyvisor.embedded.podrunner.projection import ProjectionError
from anyvisor.embedded.podrunner.records import ExitRecord, PodBooks, PodRecord
from anyvisor.embedded.podrunner.sandbox import Sandbox
from anyvisor.embedded.zygote_client import LaunchRequest
from anyvisor.kube.client import Client
from anyvisor.kube.errors import Conflict, NotFound
from anyvisor.kube.events import EventKind, EventRecorder, reference
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import PODS
from anyvisor.kube.store import IndexFunction
from anyvisor.launcher import shim
from anyvisor.planning.plan import PlanError

log = logging.getLogger(__name__)

LAUNCHER_LABEL: Final = "kubevirt.io"
LAUNCHER_VALUE: Final = "virt-launcher"
ATTACHMENT_VALUE: Final = "hotplug-disk"
BY_UID: Final = "uid"
RETRY_SECONDS: Final = 1.0
REFILL_SECONDS: Final = 5.0
"""How old a pod's volumes may be when the agent looks into them."""
RENEW_SECONDS: Final = 20.0
"""How old they may be while the guest itself looks into them."""
SHARES: Final = "fs.virtiofs"
HELD_SECONDS: Final = 3.0
"""How long the agent may take to say on the VMI how a machine ended, before the pod's end is reported."""
STOP_SIGNAL: Final = signal.SIGURG
"""As in launcher images: a waiting shim ends, a VMM takes no notice."""


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """All that the pod runner of a node needs to know."""

    node: str
    client: Client
    """As `system:node:<node>`."""
    state_dir: Path
    """Durable: records."""
    run_dir: Path
    """Lost at a reboot: the pods' directories; a short path."""
    volume_dir: Path
    """Where the agent keeps the machines' own disk files."""
    launch: Launch
    instance: str
    """Names the cgroups of this instance and node."""
    first_user: int
    users: int
    separate: bool
    """Whether launchers have users of their own, as we are root."""
    networks: PodNetworks | None = None
    certificate: bytes = b""
    """The CA of the API server, for pods that get a token."""
    forbidden: tuple[Path, ...] = ()
    """Where no pod may have a directory of the host: the instance's own."""
    guests: GuestAgents = no_guest
    """The agents in guests, for probes."""
    events: EventRecorder | None = None
    """Where probes tell of what they found."""
    images: PodImages | None = None
    """None: images come here by other means."""
    workers: int = 16
    pods: Informer | None = None
    """The pods of this node, by `BY_UID`, where somebody else keeps that cache; else the runner has one of its own."""


def node_pods(client: Client, node: str, indexes: Mapping[str, IndexFunction]) -> Informer:
    """A cache of the pods of one node, by `BY_UID` and by what others need."""
    return Informer(client, PODS, fields=f"spec.nodeName={node}", indexes={BY_UID: lambda o: (o.meta.uid,), **indexes})


class PodRunner:
    """Use as `async with runner.running():`; it is also the agent's source of launchers on this node."""

    def __init__(self, config: RunnerConfig) -> None:
        self.config = config
        self._books = PodBooks(config.state_dir / "pods")
        self._volumes = PodVolumes(config.client, config.certificate)
        self._filled: dict[str, float] = {}
        """When a pod's volumes were filled, in monotonic seconds."""
        self._queue: WorkQueue[str] = WorkQueue()
        self._pidfds: dict[str, int] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._held: set[str] = set()
        self._late: dict[str, float] = {}
        """Until when the end of a held pod may stay unreported, in monotonic seconds."""
        self._pods = config.pods or node_pods(config.client, config.node, {})
        self._tasks = asyncio.TaskGroup()
        self._prober = Prober(config.guests, Listener(self._queue.add, self._probe_failed, self._end_unhealthy))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run inside the block. Launchers are known at once, so that an agent that starts now finds them."""
        await asyncio.to_thread(self._books.load)
        for reason in self._books.broken.values():
            log.error("%s", reason)
        if self.config.images is not None:
            await asyncio.to_thread(self.config.images.keep_only, {*self._books.pods, *self._books.broken})
        for record in list(self._books.pods.values()):
            await self._adopt(record)
        async with self._tasks:
            work = self._tasks.create_task(self._work(), name="pod runner")
            keeper = self._tasks.create_task(NodeKeeper(self.config.client, self.config.node).run(), name="node")
            try:
                yield
            finally:
                self._prober.close()
                for task in (work, keeper, *self._stopping.values()):
                    task.cancel()
                if self.config.images is not None:
                    self.config.images.close()
        for pod_uid in list(self._pidfds):
            self._unwatch(pod_uid)

    async def _work(self) -> None:
        async with AsyncExitStack() as stack:
            if self.config.pods is None:
                await stack.enter_async_context(self._pods)
            await self._pods.synced.wait()
            self._pods.on_change(self._changed)
            for pod_uid in list(self._books.pods):
                self._queue.add(pod_uid)
            await self._queue.run(self._reconcile, self.config.workers)

    def _changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        for seen in (old, new):
            if seen is not None:
                self._queue.add(seen.meta.uid)

    # What the agent asks

    @property
    def stop_hooks(self) -> bool:
        """None: this runner plays the stop script itself where the agent does not answer."""
        return False

    async def find(self, pod_uid: str) -> Launcher | None:
        """The running launcher of a pod, the caller's to close."""
        record, pidfd = self._books.pods.get(pod_uid), self._pidfds.get(pod_uid)
        if record is None or pidfd is None or record.exit is not None:
            return None
        sandbox = self._sandbox(pod_uid)
        try:
            directory = sandbox.open_launcher_dir()
        except OSError as error:
            log.warning("pod %s: its launcher's directory cannot be opened: %s", pod_uid, error)
            return None
        return Launcher(record.pid, os.dup(pidfd), directory, record.user, record.group, str(sandbox.log))

    async def network_namespace(self, pod_uid: str) -> int | None:
        """A descriptor of the pod's network namespace, the caller's to close."""
        networks = self.config.networks
        return await networks.namespace(pod_uid) if networks is not None else None

    async def mount(self, pod_uid: str, path: str) -> int:
        """What the pod has mounted at `path`: a directory, the caller's to close; raises OSError.

        What changed in its Secrets since the pod began is there then, as with a kubelet after a while.
        """
        pod = self._pod(pod_uid)
        if pod is None:
            raise FileNotFoundError(errno.ENOENT, "the pod is gone", path)
        sandbox = self._sandbox(pod_uid)
        if time.monotonic() - self._filled.get(pod_uid, -REFILL_SECONDS) >= REFILL_SECONDS and sandbox.mounts.exists():
            await self._refill(pod, sandbox)
        return await open_mount(sandbox.mounts, pod, path, self.config.forbidden)

    async def share(self, pod_uid: str, directory: int, *, read_only: bool) -> SharedDirectory:
        """The directory, which is root's, for the launcher's user."""
        record = self._books.pods.get(pod_uid)
        if record is None:
            raise FileNotFoundError(errno.ENOENT, "the pod is gone", pod_uid)
        if not self.config.separate:
            raise OSError(errno.EPERM, "directories are shared by root alone: run `anyvisor up` as root")
        return await shares.for_user(directory, record.user, record.group, read_only=read_only)

    async def resize(self, pod_uid: str, more: int) -> None:
        """Let the pod have so many bytes of memory more than it was planned with."""
        pod, record = self._pod(pod_uid), self._books.pods.get(pod_uid)
        if pod is None or record is None:
            raise FileNotFoundError(errno.ENOENT, "the pod is gone", pod_uid)
        limit = cgroups.limits(plan.of_pod(pod).plan.resources).memory_bytes
        if limit:
            await asyncio.to_thread(cgroups.set_memory, record.cgroups, limit + max(more, 0))

    async def _renew_shares(self, pod: Json) -> float | None:
        """What a guest has mounted follows its objects after a while; returns the seconds until the next look."""
        sandbox = self._sandbox(uid(pod))
        if not sandbox.mounts.exists() or SHARES not in plan.of_pod(pod).plan.confirmed:
            return None
        left = self._filled.get(uid(pod), 0.0) + RENEW_SECONDS - time.monotonic()
        if left > 0:
            return left
        await self._refill(pod, sandbox)
        return RENEW_SECONDS

    async def _refill(self, pod: Json, sandbox: Sandbox) -> None:
        try:
            content = await self._volumes.content(pod)
            await asyncio.to_thread(write, sandbox.mounts, content)
        except (ProjectionError, OSError) as error:
            log.warning("pod %s/%s keeps its volumes as they are: %s", namespace(pod), name(pod), error)
        self._filled[uid(pod)] = time.monotonic()

    def _pod(self, pod_uid: str) -> Json | None:
        found = self._pods.index(BY_UID, pod_uid)
        return found[0].json() if found else None

    def hold(self, pod_uid: str) -> None:
        """Report this pod's end only after `release`, or a few seconds late."""
        self._held.add(pod_uid)

    def release(self, pod_uid: str) -> None:
        """The agent said on the VMI how the machine ended."""
        if pod_uid in self._held:
            self._held.discard(pod_uid)
            self._queue.add(pod_uid)

    def log_path(self, pod_uid: str) -> str:
        """Where the standard output of the pod's launcher is, as long as the pod exists."""
        return str(self._sandbox(pod_uid).log) if pod_uid in self._books.pods else ""

    # One pod

    async def _reconcile(self, pod_uid: str) -> float | None:
        if pod_uid in self._books.broken:
            return None
        pod = self._pod(pod_uid)
        record = self._books.pods.get(pod_uid)
        if pod is None:
            if record is None:
                self._forget_images(pod_uid)
                return None
            return await self._orphan(record)
        if labels(pod).get(LAUNCHER_LABEL) == ATTACHMENT_VALUE:
            return await self._hold_claims(pod)
        if labels(pod).get(LAUNCHER_LABEL) != LAUNCHER_VALUE:
            return await self._refuse(pod)
        if record is not None and record.pid == 0:
            await self._clear_half_started(record)
            record = None
        if record is None:
            return await self._begin(pod)
        if record.exit is not None and pod_uid in self._held:
            wait = self._late.setdefault(pod_uid, time.monotonic() + HELD_SECONDS) - time.monotonic()
            if wait > 0:
                return wait
        self._probe(pod, record)
        await self._report(pod, record)
        if not is_deleting(pod):
            return await self._renew_shares(pod) if record.exit is None else None
        if record.exit is None:
            return self._stop(pod, record)
        await self._clean(record)
        await self._remove(pod)
        return None

    async def _orphan(self, record: PodRecord) -> float | None:
        """The pod's object is gone: it was deleted by force, so its process ends now."""
        if record.exit is None and record.pid:
            self._kill(record)
            return RETRY_SECONDS
        await self._clear_half_started(record)
        return None

    async def _refuse(self, pod: Json) -> float | None:
        if text_at(pod, "status", "phase") in ("Succeeded", "Failed"):
            return None
        message = "this node runs launcher pods only; use a Kubernetes cluster for other pods"
        patch: Json = {"status": {"phase": "Failed", "reason": "NotALauncherPod", "message": message}}
        await self.config.client.patch(PODS, name(pod), namespace(pod), patch, subresource="status")
        return None

    async def _hold_claims(self, pod: Json) -> None:
        """A pod that holds claims on this node for a running machine needs no process here: its object does it."""
        if is_deleting(pod):
            await self._remove(pod)
            return
        if text_at(pod, "status", "phase") != "Running":
            held = PodRecord(
                uid=uid(pod), namespace=namespace(pod), name=name(pod), user=0, group=0, pid=1, started_at=_now()
            )
            await self._report(pod, held)

    async def _begin(self, pod: Json) -> float | None:
        if is_deleting(pod):
            await self._remove(pod)
            return None
        if text_at(pod, "status", "phase") in ("Succeeded", "Failed"):
            return None
        if self.config.images is not None:
            waiting = await self.config.images.prepare(pod, self._tasks, self._queue.add)
            if waiting is not None:
                await self._say_waiting(pod, waiting.message, waiting.reason)
                return waiting.again
        try:
            record = await self._start(pod)
        except ProjectionError as error:
            await self._say_waiting(pod, str(error), status.CONFIGURATION)
            return RETRY_SECONDS
        except (OSError, LaunchError, PlanError) as error:
            log.warning("pod %s/%s does not start: %s", namespace(pod), name(pod), error)
            await self._say_waiting(pod, str(error))
            return RETRY_SECONDS
        self._probe(pod, record)
        await self._report(pod, record)
        return None

    async def _start(self, pod: Json) -> PodRecord:
        """Record, sandbox, launch, record: a crash in between leaves nothing that could take a plan unseen."""
        config, pod_uid = self.config, uid(pod)
        content = await self._volumes.content(pod)
        limits = cgroups.limits(plan.of_pod(pod).plan.resources)
        user = os.geteuid()
        if config.separate:
            user = self._books.reserve_user(pod_uid, config.first_user, config.users)
        group = user if config.separate else os.getegid()
        record = PodRecord(uid=pod_uid, namespace=namespace(pod), name=name(pod), user=user, group=group)
        await self._books.write(record)
        sandbox = self._sandbox(pod_uid)
        # All three at once, and all three to their end: what still works at it would collide with the next try.
        made, groups, address = await asyncio.gather(
            asyncio.to_thread(sandbox.create, user, group),
            asyncio.to_thread(cgroups.create, config.instance, pod_uid, limits),
            self._address(pod_uid),
            return_exceptions=True,
        )
        for result in (made, groups, address):
            if isinstance(result, BaseException):
                raise result
        assert isinstance(groups, tuple)
        assert isinstance(address, str)
        await asyncio.to_thread(sandbox.create_mounts, content)
        self._filled[pod_uid] = time.monotonic()
        record = msgspec.structs.replace(record, cgroups=groups, pod_ip=address)
        return await self._launch(record, sandbox)

    async def _address(self, pod_uid: str) -> str:
        return await self.config.networks.create(pod_uid) if self.config.networks is not None else ""

    async def _launch(self, record: PodRecord, sandbox: Sandbox) -> PodRecord:
        netns = await self.network_namespace(record.uid)
        output = sandbox.open_log()
        try:
            launched = await self.config.launch(
                LaunchRequest(
                    directory=str(sandbox.launcher_dir),
                    uid=record.user,
                    gid=record.group,
                    log=output,
                    cgroup_procs=cgroups.procs(record.cgroups),
                    netns=netns,
                )
            )
        finally:
            os.close(output)
            if netns is not None:
                os.close(netns)
        identity = processes.identify(launched.pid, launched.pidfd)
        if identity is None:
            os.close(launched.pidfd)
            raise LaunchError(f"the launcher ended at once; see {sandbox.log}")
        record = msgspec.structs.replace(
            record,
            boot_id=identity.boot_id,
            pid=identity.pid,
            start_time=identity.start_time,
            started_at=_now(),
        )
        try:
            await self._books.write(record)
        except OSError:
            processes.send_signal(launched.pidfd, signal.SIGKILL)
            os.close(launched.pidfd)
            raise
        self._watch(record, launched.pidfd)
        return record

    async def _report(self, pod: Json, record: PodRecord) -> None:
        networked = self.config.networks is not None
        answering = self._prober.ready(record.uid)
        patch = status.patch(pod, record, HOST_IP, _now(), answering=answering, networked=networked)
        if patch is not None:
            with contextlib.suppress(NotFound):
                await self.config.client.patch(PODS, name(pod), namespace(pod), patch, subresource="status")

    async def _say_waiting(self, pod: Json, message: str, reason: str = status.START) -> None:
        """Tell why the pod does not run yet; once, as long as it is the same."""
        patch = status.waiting(pod, message, reason)
        if all(object_at(pod, "status").get(key) == value for key, value in patch["status"].items()):
            return
        with contextlib.suppress(NotFound):
            await self.config.client.patch(PODS, name(pod), namespace(pod), patch, subresource="status")

    def _forget_images(self, pod_uid: str) -> None:
        if self.config.images is not None:
            self.config.images.forget(pod_uid)

    # Probes

    def _probe(self, pod: Json, record: PodRecord) -> None:
        """Begin the pod's probes once its launcher runs, and end them with it."""
        if record.exit is not None or is_deleting(pod):
            self._prober.forget(record.uid)
            return
        found = probes.of_pod(pod, record.pod_ip)
        if found:
            reported = list_at(pod, "status", "containerStatuses")
            ready = any(each.get("ready") is True for each in reported)
            running = time.time() - _moment(record.started_at)
            self._prober.follow(record.uid, found, running_seconds=running, ready=ready)

    def _probe_failed(self, pod_uid: str, probe: Probe, why: str) -> None:
        self._say(pod_uid, EventKind.WARNING, "Unhealthy", f"{probe.purpose.event_name} probe failed: {why}")

    def _say(self, pod_uid: str, kind: EventKind, reason: str, message: str) -> None:
        found = self._pods.index(BY_UID, pod_uid)
        if found and self.config.events is not None:
            self.config.events.record(reference(PODS, found[0]), kind, reason, message)

    async def _end_unhealthy(self, pod_uid: str, probe: Probe, why: str) -> None:
        """A guest that does not live any more is ended as by a deletion of its pod, which stays to tell."""
        self._say(pod_uid, EventKind.NORMAL, "Killing", f"Container {probe.container} failed liveness probe: {why}")
        record, found = self._books.pods.get(pod_uid), self._pods.index(BY_UID, pod_uid)
        if record is None or not found or pod_uid in self._stopping:
            return
        grace = float(object_at(found[0].json(), "spec").get("terminationGracePeriodSeconds") or 0)
        task = self._tasks.create_task(self._end(record, grace), name=f"end {pod_uid}")
        self._stopping[pod_uid] = task
        task.add_done_callback(lambda _: self._stopping.pop(pod_uid, None))

    async def _end(self, record: PodRecord, grace: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._pre_stop(record.uid, grace)
        self._kill(record)

    # The end

    def _stop(self, pod: Json, record: PodRecord) -> float:
        """A pod that is deleted gets its preStop, then the stop signal, and is killed when its grace ends."""
        left = _deadline(pod) - time.time()
        if left <= 0:
            self._kill(record)
            return RETRY_SECONDS
        if record.uid not in self._stopping:
            task = self._tasks.create_task(self._pre_stop(record.uid, left), name=f"stop {record.uid}")
            self._stopping[record.uid] = task
            task.add_done_callback(lambda _: self._stopping.pop(record.uid, None))
        return left

    async def _pre_stop(self, pod_uid: str, left: float) -> None:
        """What the launcher image's stop hook does, done here: the agent first, the stop script without it."""
        try:
            directory = self._sandbox(pod_uid).open_launcher_dir()
        except OSError:
            return
        try:
            reserve = shim.FINISH_RESERVE
            down = await script.ask_agent(directory, max(left - reserve, 0.0))
            if not down:
                down = await script.request(directory, max(left - reserve, 0.0))
            pidfd = self._pidfds.get(pod_uid)
            if pidfd is not None:
                processes.send_signal(pidfd, STOP_SIGNAL)
            if down:
                await asyncio.sleep(shim.FINISH_DELAY)
            await script.finish(directory, reserve)
        finally:
            os.close(directory)

    def _kill(self, record: PodRecord) -> None:
        pidfd = self._pidfds.get(record.uid)
        if pidfd is not None:
            processes.send_signal(pidfd, signal.SIGKILL)

    async def _ended(self, pod_uid: str) -> None:
        pidfd = self._pidfds.get(pod_uid)
        record = self._books.pods.get(pod_uid)
        if pidfd is None or record is None or record.exit is not None:
            return
        await self._write_exit(record, await processes.exit_of(pidfd))
        self._unwatch(pod_uid)
        self._queue.add(pod_uid)

    async def _write_exit(self, record: PodRecord, seen: processes.Exit) -> None:
        killed = any(processes.out_of_memory_kills(directory) for directory in record.cgroups)
        ended = ExitRecord(code=seen.code, signal=seen.signal, out_of_memory=killed, at=_now())
        ended_record = msgspec.structs.replace(record, exit=ended)
        try:
            await self._books.write(ended_record)
        except OSError as error:
            log.warning("pod %s: its end is not on the disk: %s", record.uid, error)
            self._books.pods[record.uid] = ended_record

    async def _clean(self, record: PodRecord) -> None:
        """Leave nothing of the pod on the host. Its directory goes last: by it, others see that something is left."""
        groups = await asyncio.to_thread(cgroups.find, self.config.instance, record.uid)
        cgroups.kill_all(groups)
        if self.config.networks is not None:
            await self.config.networks.destroy(record.uid)
        await asyncio.to_thread(cgroups.remove, groups)
        await asyncio.to_thread(self._sandbox(record.uid).remove)
        self._held.discard(record.uid)
        self._late.pop(record.uid, None)
        self._filled.pop(record.uid, None)
        self._forget_images(record.uid)
        await self._books.forget(record.uid)

    async def _clear_half_started(self, record: PodRecord) -> None:
        """End a launcher that a crash of ours cut off before it was on record; it can have no plan."""
        sandbox = self._sandbox(record.uid)
        pid = await asyncio.to_thread(sandbox.waiting_shim)
        if pid and record.pid == 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._clean(record)

    async def _remove(self, pod: Json) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self.config.client.delete(PODS, name(pod), namespace(pod), grace=0, uid=uid(pod))

    # Processes

    async def _adopt(self, record: PodRecord) -> None:
        if record.exit is not None or record.pid == 0:
            return
        pidfd = processes.open_process(record.process)
        if pidfd is None:
            await self._write_exit(record, processes.Exit())
        else:
            self._watch(record, pidfd)

    def _watch(self, record: PodRecord, pidfd: int) -> None:
        self._pidfds[record.uid] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, partial(self._process_ended, record.uid))

    def _process_ended(self, pod_uid: str) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfds[pod_uid])
        self._tasks.create_task(self._ended(pod_uid), name=f"end of {pod_uid}")

    def _unwatch(self, pod_uid: str) -> None:
        pidfd = self._pidfds.pop(pod_uid)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)

    def _sandbox(self, pod_uid: str) -> Sandbox:
        return Sandbox(self.config.run_dir / "pods" / pod_uid, self.config.separate)


def _deadline(pod: Json) -> float:
    """When a deleted pod's grace ends: that is what its deletionTimestamp says."""
    text = str(metadata(pod).get("deletionTimestamp") or "")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _moment(text: str) -> float:
    """A time of ours in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp() if text else time.time()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
