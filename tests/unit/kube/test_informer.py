"""The reflector's traps, against a server that misbehaves."""

import asyncio

import pytest

from anyvisor.kube import informer as module
from anyvisor.kube.backoff import Backoff
from anyvisor.kube.client import Client
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import PODS
from tests.fakekube import FakeServer

Heard = list[tuple[str, str]]


class Ear:
    """A handler that remembers and can be waited for."""

    def __init__(self) -> None:
        self.heard: Heard = []
        self._changed = asyncio.Event()

    def __call__(self, old: CachedObject | None, new: CachedObject | None) -> None:
        verb = "add" if old is None else "delete" if new is None else "change"
        found = new or old
        assert found is not None
        self.heard.append((verb, found.meta.name))
        self._changed.set()

    async def until(self, *expected: tuple[str, str]) -> None:
        async with asyncio.timeout(5):
            while self.heard != list(expected):
                self._changed.clear()
                await self._changed.wait()


@pytest.mark.parametrize("watch_list", [True, False])
async def test_objects_come_by_watch_list_or_by_list(server: FakeServer, client: Client, watch_list: bool) -> None:
    server.watch_list = watch_list
    server.put("pods", "a")
    server.put("pods", "b")
    ear = Ear()
    async with Informer(client, PODS, indexes={"name": lambda o: (o.meta.name,)}) as pods:
        pods.on_change(ear)
        await pods.synced.wait()
        assert sorted(ear.heard) == [("add", "a"), ("add", "b")]
        ear.heard.clear()
        server.put("pods", "c")
        server.put("pods", "a")
        server.remove("pods", "b")
        await ear.until(("add", "c"), ("change", "a"), ("delete", "b"))
        assert [found.meta.name for found in pods.index("name", "c")] == ["c"]
        assert pods.get("default", "b") is None
    lists = [call for call in server.calls if "watch" not in call[2]]
    assert len(lists) == (0 if watch_list else 1)


async def test_the_store_is_published_once_at_the_bookmark(server: FakeServer, client: Client) -> None:
    for name in "abc":
        server.put("pods", name)
    sizes: list[int] = []
    async with Informer(client, PODS) as pods:
        pods.on_change(lambda old, new: sizes.append(len(pods.values())))
        await pods.synced.wait()
    assert sizes == [3, 3, 3]


async def test_a_server_that_ignores_watch_lists_is_found_out(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INITIAL_IDLE", 0.05)
    server.ignore_watch_list = True
    server.put("pods", "a")
    async with Informer(client, PODS) as pods:
        await pods.synced.wait()
        assert [found.meta.name for found in pods.values()] == ["a"]


async def test_a_broken_watch_goes_on_where_it_was(server: FakeServer, client: Client) -> None:
    server.put("pods", "a")
    ear = Ear()
    async with Informer(client, PODS) as pods:
        pods.on_change(ear)
        await pods.synced.wait()
        server.cut()
        await server.until(lambda: len(server.calls) == 2)
        server.put("pods", "b")
        await ear.until(("add", "a"), ("add", "b"))
    versions = [call[2].get("resourceVersion") for call in server.calls]
    assert versions == [None, "101"]


async def test_a_bookmark_moves_the_resource_version(server: FakeServer, client: Client) -> None:
    async with Informer(client, PODS) as pods:
        await pods.synced.wait()
        server.bookmark("pods")
        server.cut()
        await server.until(lambda: len(server.calls) == 2)
    assert server.calls[1][2]["resourceVersion"] == "101"


@pytest.mark.parametrize("as_event", [True, False])
async def test_after_gone_a_new_list_tells_what_was_missed(server: FakeServer, client: Client, as_event: bool) -> None:
    server.gone_as_event = as_event
    server.put("pods", "a")
    server.put("pods", "b")
    ear = Ear()
    async with Informer(client, PODS) as pods:
        await pods.synced.wait()
        pods.on_change(ear)
        ear.heard.clear()
        server.compacted = 1000
        server.rv = 1000
        server.remove("pods", "a", silent=True)
        server.put("pods", "c", metadata={})
        server.history["pods"].clear()
        server.cut()
        await ear.until(("delete", "a"), ("add", "c"))
        assert pods.last_error is None


async def test_failures_are_slowed_down_and_told(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(_backoff: Backoff) -> float:
        pauses.append(0.001)
        return 0.001

    monkeypatch.setattr(Backoff, "next", pause)
    server.failures = [(403, {"reason": "Forbidden", "message": "no"}, {})] * 3
    async with Informer(client, PODS) as pods:
        await server.until(lambda: len(server.calls) == 3)
        await pods.synced.wait()
    assert len(pauses) == 3


async def test_a_handler_that_raises_ends_the_informer(server: FakeServer, client: Client) -> None:
    server.put("pods", "a")

    def broken(_old: CachedObject | None, _new: CachedObject | None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        async with Informer(client, PODS) as pods:
            pods.on_change(broken)
            await asyncio.Event().wait()
    assert caught.group_contains(ZeroDivisionError)


async def test_a_late_handler_hears_what_is_there(server: FakeServer, client: Client) -> None:
    server.put("pods", "a")
    ear = Ear()
    async with Informer(client, PODS) as pods:
        await pods.synced.wait()
        pods.on_change(ear)
        assert ear.heard == [("add", "a")]
