"""The pods' networks of one instance."""

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Generator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

import msgspec

from anyvisor.agent.network.namespace import CommandError, run_ip, run_nft, run_tools
from anyvisor.embedded.podnetwork import host, plans
from anyvisor.embedded.podnetwork.books import BookFile, Books, Pod
from anyvisor.embedded.podnetwork.plans import PodNetworkError

log = logging.getLogger(__name__)

SPARES: Final = 1
"""Namespaces that wait for the next pod, since one takes some ten milliseconds to make."""
REFILL_SECONDS: Final = 1.0
"""After a pod took one, so that its guest does not compete with the making of the next."""


class BridgedPods:
    """All methods are idempotent, also after a crash in the middle. Node processes share the books."""

    def __init__(self, instance: str, file: Path, services: IPv4Network | None = None) -> None:
        self._instance = instance
        self._services = services
        self._books = BookFile(file)
        self._noted = file.parent.parent / "forwarding"
        """A file for each interface of the host on which forwarding was off before the first instance came."""
        self._refill: asyncio.TimerHandle | None = None
        self._refilling: asyncio.Future[None] | None = None

    async def create(self, pod_uid: str) -> str:
        """Give the pod a namespace, or find it again; the pod's address. Raises PodNetworkError."""
        address = await asyncio.to_thread(self._create, pod_uid)
        self._refill_soon()
        return address

    async def namespace(self, pod_uid: str) -> int | None:
        """A descriptor of it, the caller's to close; None when there is none."""
        return await asyncio.to_thread(self._namespace, pod_uid)

    def name(self, pod_uid: str) -> str:
        """What `ip netns` calls the pod's namespace. Raises PodNetworkError when there is none."""
        pod = self._books.read().pods.get(pod_uid)
        if pod is None:
            raise PodNetworkError("the pod has no network")
        return pod.name

    async def destroy(self, pod_uid: str) -> None:
        """Remove it; nothing when there is none."""
        await asyncio.to_thread(self._destroy, pod_uid)

    async def warm(self) -> None:
        """Make a spare namespace now, so that the first pod need not wait for one; trouble is logged."""
        await asyncio.to_thread(self._fill_quietly)

    async def network(self) -> IPv4Network:
        """The pods' network, with its bridge up; its first address is the host's. Raises PodNetworkError."""
        return await asyncio.to_thread(self._network)

    async def clean_up(self) -> None:
        """Remove everything of the instance: its pods', the bridge, the translation, what was opened on the host."""
        if self._refill is not None:
            self._refill.cancel()
        if self._refilling is not None:
            await asyncio.wait([self._refilling])
        await asyncio.to_thread(self._clean_up)

    def _refill_soon(self) -> None:
        if self._refill is None:
            self._refill = asyncio.get_running_loop().call_later(REFILL_SECONDS, self._refill_now)

    def _refill_now(self) -> None:
        self._refill = None
        self._refilling = asyncio.get_running_loop().run_in_executor(None, self._fill_quietly)

    def _fill_quietly(self) -> None:
        try:
            self._fill()
        except OSError as error:
            log.warning("no spare network for the next pod: %s", error)

    # With the books' lock held, in a thread

    def _create(self, pod_uid: str) -> str:
        with self._books.locked() as books, _reported():
            pod = books.pods.get(pod_uid)
            if pod is not None and pod.ready and _path(pod).exists():
                return pod.address
            if pod is not None:
                host.remove_namespace(pod.name)
                books = books.with_pod(pod_uid, None)
            books, network = self._with_bridge(books)
            spare = next((each for each in books.spares if _path(each).exists()), None)
            if spare is not None:
                left = tuple(each for each in books.spares if each != spare)
                self._books.write(msgspec.structs.replace(books, spares=left).with_pod(pod_uid, spare))
                return spare.address
            name = plans.pod_name(self._instance, pod_uid)
            made = Pod(str(plans.choose_address(network, books.addresses())), name)
            self._books.write(books.with_pod(pod_uid, made))
            ready = self._make(made, network)
            self._books.write(books.with_pod(pod_uid, ready))
            return ready.address

    def _fill(self) -> None:
        with self._books.locked() as books, _reported():
            books, network = self._with_bridge(books)
            self._sweep(books)
            spares = [each for each in books.spares if _path(each).exists()]
            while len(spares) < SPARES:
                name = plans.pod_name(self._instance, secrets.token_hex(8))
                spare = Pod(str(plans.choose_address(network, books.addresses())), name)
                spares.append(self._make(spare, network))
            self._books.write(msgspec.structs.replace(books, spares=tuple(spares)))

    def _make(self, pod: Pod, network: IPv4Network) -> Pod:
        """Make a namespace anew, whatever is left of an earlier one by that name."""
        host.remove_namespace(pod.name)
        run_ip(plans.pod_batch(self._instance, pod.name, host.uplink_mtu()))
        run_tools((("ip", "-n", pod.name, "-batch", "-"), plans.inner_batch(pod.address, network)))
        return msgspec.structs.replace(pod, ready=True)

    def _namespace(self, pod_uid: str) -> int | None:
        pod = self._books.read().pods.get(pod_uid)
        if pod is None:
            return None
        try:
            return os.open(_path(pod), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _destroy(self, pod_uid: str) -> None:
        with self._books.locked() as books, _reported():
            pod = books.pods.get(pod_uid)
            if pod is not None:
                host.remove_namespace(pod.name)
                self._books.write(books.with_pod(pod_uid, None))

    def _clean_up(self) -> None:
        with self._books.locked(), _reported():
            self._sweep(Books())
            bridge, table = plans.bridge_name(self._instance), plans.table_name(self._instance)
            if host.exists(bridge):
                run_ip(f"link delete {bridge}\n")
            for each in (table, plans.services_table_name(self._instance)):
                run_nft(f"table ip {each}\ndelete table ip {each}\n")
            host.close_forwarding(self._noted)
            self._books.remove()

    def _sweep(self, books: Books) -> None:
        """Remove namespaces of ours that no book knows: a crash left them."""
        for name in set(host.namespaces(self._instance)) - books.names():
            host.remove_namespace(name)

    def _network(self) -> IPv4Network:
        with self._books.locked() as books, _reported():
            return self._with_bridge(books)[1]

    def _taken(self) -> list[IPv4Network]:
        return [*host.routes(), *([self._services] if self._services is not None else [])]

    def _with_bridge(self, books: Books) -> tuple[Books, IPv4Network]:
        """The books with a network, and the bridge up. Found again, it is left as it is."""
        bridge = plans.bridge_name(self._instance)
        exists = host.exists(bridge)
        if books.network and exists:
            return books, IPv4Network(books.network)
        self._sweep(books)
        network = IPv4Network(books.network or plans.choose_network(self._instance, self._taken()))
        books = msgspec.structs.replace(books, network=str(network))
        self._books.write(books)
        run_ip(plans.bridge_batch(self._instance, network, exists=exists, services=self._services))
        run_nft(plans.masquerade(self._instance, network))
        host.open_forwarding(bridge, self._noted)
        return books, network


def _path(pod: Pod) -> Path:
    return host.NAMESPACES / pod.name


@contextlib.contextmanager
def _reported() -> Generator[None]:
    try:
        yield
    except CommandError as error:
        raise PodNetworkError(f"the pod's network could not be made: {error}") from error
