"""The store and the state above it: order, durability, history, compaction, failure."""

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.apiserver import backup
from anyvisor.embedded.apiserver import state as states
from anyvisor.embedded.apiserver import watcher as watchers
from anyvisor.embedded.apiserver.entries import Entry, Event, classify
from anyvisor.embedded.apiserver.selectors import EVERYTHING, parse
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.apiserver.store import Store, StoreError
from anyvisor.embedded.apiserver.watcher import Watcher

Json = dict[str, Any]


def thing(name: str, value: int = 0, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": {"name": name, "namespace": "n", "uid": f"u-{name}", "labels": labels},
        "value": value,
    }


class Opened:
    """A started state over one file."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path)
        self.state = State(self.store)

    async def __aenter__(self) -> State:
        self.store.open()
        self.state.load()
        self.state.start()
        return self.state

    async def __aexit__(self, *_: object) -> None:
        await self.state.close()


async def put(state: State, obj: Json) -> Entry:
    collection = state.collection("things")
    key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
    return await state.put(collection, obj, collection.latest(key))


async def test_versions_rise_and_survive_a_restart(tmp_path: Path):
    async with Opened(tmp_path / "s.db") as state:
        entries = await asyncio.gather(*(put(state, thing(f"t{i}", i)) for i in range(50)))
        assert [entry.rv for entry in entries] == sorted(entry.rv for entry in entries)
        last = await put(state, thing("t7", 99))
        collection = state.collection("things")
        await state.remove(collection, thing("t8"), collection.entries["n", "t8"])
    async with Opened(tmp_path / "s.db") as state:
        collection = state.collection("things")
        assert len(collection.entries) == 49
        assert collection.entries["n", "t7"].object()["value"] == 99
        assert ("n", "t8") not in collection.entries
        assert [event.deleted for event in collection.since(last.rv)] == [True], "history is kept over a restart"
        newer = await put(state, thing("new"))
        assert newer.rv > last.rv + 1


async def test_a_write_is_visible_only_when_durable_but_the_next_write_sees_it(tmp_path: Path):
    async with Opened(tmp_path / "s.db") as state:
        collection = state.collection("things")
        future = state.put(collection, thing("a", 1), None)
        assert ("n", "a") not in collection.entries
        pending = collection.latest(("n", "a"))
        assert pending is not None
        second = state.put(collection, thing("a", 2), pending)
        removed = state.remove(collection, thing("a", 2), await future if future.done() else pending)
        assert collection.latest(("n", "a")) is None
        third = state.put(collection, thing("a", 3), None)
        await asyncio.gather(future, second, removed, third)
        assert collection.entries["n", "a"].object()["value"] == 3
        assert not collection.pending


async def test_a_version_on_its_way_can_be_waited_for(tmp_path: Path):
    async with Opened(tmp_path / "s.db") as state:
        collection = state.collection("things")
        future = state.put(collection, thing("a", 1), None)
        pending = collection.latest(("n", "a"))
        assert pending is not None
        await state.durable(pending)
        assert future.done()
        assert collection.entries["n", "a"] is pending
        await state.durable(pending)


async def test_compaction_bounds_history_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(states, "HISTORY_EVENTS", 20)
    monkeypatch.setattr(states, "COMPACT_ROWS", 5)
    async with Opened(tmp_path / "s.db") as state:
        for value in range(200):
            await put(state, thing("a", value))
        collection = state.collection("things")
        assert len(collection.history) == 20
        with pytest.raises(StatusError) as caught:
            collection.since(5)
        assert caught.value.code == 410
        recent = collection.history[0].rv
    with sqlite3.connect(tmp_path / "s.db") as db:
        rows: int = db.execute("SELECT count(*) FROM log").fetchone()[0]
    db.close()
    assert rows < 40
    async with Opened(tmp_path / "s.db") as state:
        collection = state.collection("things")
        assert collection.entries["n", "a"].object()["value"] == 199
        assert len(collection.since(recent)) == 19
        with pytest.raises(StatusError):
            collection.since(5)


async def test_snapshot_shows_the_past(tmp_path: Path):
    async with Opened(tmp_path / "s.db") as state:
        for name in "abc":
            await put(state, thing(name, 1))
        at = state.visible
        await put(state, thing("b", 2))
        await put(state, thing("d", 1))
        collection = state.collection("things")
        await state.remove(collection, thing("c"), collection.entries["n", "c"])
        past = [(entry.key[1], entry.object()["value"]) for entry in collection.snapshot(at, "n")]
        assert past == [("a", 1), ("b", 1), ("c", 1)]
        assert [entry.key[1] for entry in collection.snapshot(at, "n", ("n", "b"))] == ["b", "c"]
        assert [entry.key[1] for entry in collection.range("n")] == ["a", "b", "d"]


async def test_a_failed_commit_takes_back_all_that_builds_on_it(tmp_path: Path):
    async with Opened(tmp_path / "s.db") as state:
        first = await put(state, thing("a", 1))
        blocker = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        blocker.execute("CREATE TRIGGER full BEFORE INSERT ON log BEGIN SELECT RAISE(FAIL, 'disk full'); END")
        blocker.execute("COMMIT")
        collection = state.collection("things")
        failing = [state.put(collection, thing("a", value), first) for value in (2, 3)]
        for future in failing:
            with pytest.raises(StatusError, match="was not stored: disk full"):
                await future
        assert collection.latest(("n", "a")) is first
        blocker.execute("DROP TRIGGER full")
        blocker.close()
        again = await put(state, thing("a", 4))
        assert collection.entries["n", "a"] is again


def test_two_processes_never_share_a_database(tmp_path: Path):
    first = Store(tmp_path / "s.db")
    first.open()
    with pytest.raises(StoreError, match="is in use by another process"):
        Store(tmp_path / "s.db").open()
    with pytest.raises(StoreError, match="is in use by another process"):
        backup.restore(tmp_path / "s.db", tmp_path / "s.db")
    first.close()
    second = Store(tmp_path / "s.db")
    second.open()
    second.close()


def test_a_damaged_file_is_refused_with_a_sentence(tmp_path: Path):
    path = tmp_path / "s.db"
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(StoreError, match=r"cannot open the database .*restore it from a backup"):
        Store(path).open()


async def test_a_backup_is_consistent_and_a_restore_never_reuses_versions(tmp_path: Path):
    path, copy = tmp_path / "s.db", tmp_path / "b.db"
    async with Opened(path) as state:
        await asyncio.gather(*(put(state, thing(f"t{i}", i)) for i in range(20)))
        collection = state.collection("things")
        await state.remove(collection, thing("t0"), collection.entries["n", "t0"])
        await asyncio.get_running_loop().run_in_executor(None, backup.take, path, copy)
        with pytest.raises(StoreError, match="exists; name a new file"):
            backup.take(path, copy)
        lost = await put(state, thing("lost"))
    backup.restore(copy, path)
    async with Opened(path) as state:
        collection = state.collection("things")
        assert len(collection.entries) == 19
        assert ("n", "lost") not in collection.entries
        with pytest.raises(StatusError) as caught:
            collection.since(lost.rv)
        assert caught.value.code == 410
        assert (await put(state, thing("new"))).rv > lost.rv + 1000


def test_a_damaged_backup_is_refused_and_nothing_is_lost(tmp_path: Path):
    path, bad = tmp_path / "s.db", tmp_path / "bad.db"
    store = Store(path)
    store.open()
    store.close()
    before = path.read_bytes()
    bad.write_bytes(b"junk" * 5000)
    with pytest.raises(StoreError):
        backup.restore(bad, path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.restoring*"))
    with pytest.raises(StoreError, match="there is no backup"):
        backup.restore(tmp_path / "none.db", path)


LABELED = parse("app=a", "", ())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, {"app": "a"}, "ADDED"),
        (None, {"app": "b"}, None),
        ({"app": "a"}, {"app": "a"}, "MODIFIED"),
        ({"app": "b"}, {"app": "a"}, "ADDED"),
        ({"app": "a"}, {"app": "b"}, "DELETED"),
        ({"app": "b"}, {"app": "c"}, None),
    ],
)
def test_an_object_enters_and_leaves_a_selector(
    before: dict[str, str] | None, after: dict[str, str], expected: str | None
):
    previous = Entry(1, ("n", "a"), "u", b"{}", before, {}) if before is not None else None
    event = Event(2, Entry(2, ("n", "a"), "u", b"{}", after, {}), previous, deleted=False)
    assert classify(event, LABELED) == expected


async def test_a_slow_watcher_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watchers, "WATCH_EVENTS", 10)
    async with Opened(tmp_path / "s.db") as state:
        watcher = Watcher(None, None, EVERYTHING)
        other = Watcher("elsewhere", None, EVERYTHING)
        collection = state.collection("things")
        collection.watch(watcher)
        collection.watch(other)
        for value in range(5):
            await put(state, thing("a", value))
        loop = asyncio.get_running_loop()
        assert [kind for kind, _ in await watcher.wait(loop.time() + 1)] == ["ADDED", *["MODIFIED"] * 4]
        for value in range(12):
            await put(state, thing("a", value))
        assert watcher.cut_off
        assert await watcher.wait(loop.time() + 1) == []
        assert not other.cut_off
        assert await other.wait(loop.time()) == []


class Killed:
    """A state that ends as by kill -9: nothing is closed, the write-ahead log stays."""

    def __init__(self, path: Path, copy: Path) -> None:
        self._path = path
        self._copy = copy

    async def write(self, names: str) -> None:
        async with Opened(self._path) as state:
            for name in names:
                await put(state, thing(name))
            for suffix in ("", "-wal"):
                shutil.copyfile(f"{self._path}{suffix}", f"{self._copy}{suffix}")


async def names_in(path: Path) -> tuple[list[str], str]:
    opened = Opened(path)
    async with opened as state:
        return [key[1] for key in state.collection("things").order], opened.store.note


@pytest.mark.parametrize("at", [-4100, -100, 24, 3])
async def test_a_damaged_end_of_the_log_is_told_and_what_is_before_is_there(tmp_path: Path, at: int):
    path = tmp_path / "s.db"
    await Killed(tmp_path / "first.db", path).write("abc")
    assert await names_in(path) == (["a", "b", "c"], "")
    path.with_name("s.db").unlink()
    await Killed(tmp_path / "second.db", path).write("abc")
    wal = path.with_name("s.db-wal")
    content = bytearray(wal.read_bytes())
    content[at] ^= 0xFF
    wal.write_bytes(content)
    found, note = await names_in(path)
    assert found == (["a", "b"] if at < 0 else []), "all that was written before"
    assert "cannot be read" in note
    assert path.with_name("s.db-wal.unreadable").read_bytes() == bytes(content)
    assert await names_in(path) == (found, ""), "told once"


async def test_a_page_that_changed_on_the_disk_is_told(tmp_path: Path):
    path = tmp_path / "s.db"
    async with Opened(path) as state:
        for name in "abc":
            await put(state, {**thing(name), "mark": "spotless"})
    content = path.read_bytes()
    path.write_bytes(content.replace(b"spotless", b"spotlesS", 1))
    opened = Opened(path)
    opened.store.open()
    with pytest.raises(StoreError, match=r"damaged: things n/[abc], version \d+ is not what was written; restore"):
        opened.state.load()
    opened.store.close()


async def test_a_database_of_the_first_format_is_read_and_brought_up_to_date(tmp_path: Path):
    path = tmp_path / "s.db"
    async with Opened(path) as state:
        await put(state, thing("a"))
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE log DROP COLUMN sum")
        db.execute("UPDATE meta SET value='1' WHERE key='format'")
        db.commit()
    async with Opened(path) as state:
        await put(state, thing("b"))
    assert await names_in(path) == (["a", "b"], "")
