"""The cache's rules, without a server."""

import json
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.kube.lines import LineSplitter, LineTooLong
from anyvisor.kube.objects import CachedObject, parse_object, without_managed_fields
from anyvisor.kube.owners import add_finalizer, controller_uid, remove_finalizer
from anyvisor.kube.store import Change, Store


def obj(name: str, version: int, uid: str = "", node: str = "", **meta: object) -> CachedObject:
    document = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {"node": node} if node else {},
            **meta,
        }
    }
    return parse_object(msgspec.json.encode(document))


def by_node(found: CachedObject) -> Iterable[str]:
    node = (found.meta.labels or {}).get("node")
    return (node,) if node else ()


def told(changes: list[Change]) -> list[tuple[str | None, str | None]]:
    def version(found: CachedObject | None) -> str | None:
        return found.meta.resource_version if found else None

    return [(version(change.old), version(change.new)) for change in changes]


def test_changes_are_told_once() -> None:
    store = Store()
    assert told(store.put(obj("a", 1))) == [(None, "1")]
    assert told(store.put(obj("a", 1))) == []
    assert told(store.put(obj("a", 2))) == [("1", "2")]
    assert told(store.remove(obj("a", 3))) == [("3", None)]
    assert told(store.remove(obj("a", 3))) == []


def test_an_object_made_anew_under_the_same_name_is_a_deletion_and_a_creation() -> None:
    store = Store()
    store.put(obj("a", 1, "first"))
    assert told(store.put(obj("a", 5, "second"))) == [("1", None), (None, "5")]
    assert told(store.replace([obj("a", 9, "third")])) == [("5", None), (None, "9")]


def test_a_list_tells_what_it_lacks_as_deleted_with_the_last_known_state() -> None:
    store = Store()
    store.replace([obj("a", 1), obj("b", 2), obj("c", 3)])
    assert told(store.replace([obj("b", 2), obj("c", 7), obj("d", 8)])) == [
        ("1", None),
        ("3", "7"),
        (None, "8"),
    ]


def test_all_objects_are_the_same_tuple_until_one_changes() -> None:
    store = Store()
    store.replace([obj("a", 1), obj("b", 2)])
    before = store.values()
    store.put(obj("a", 1))
    assert store.values() is before
    store.put(obj("a", 3))
    assert store.values() is not before
    assert {found.meta.resource_version for found in store.values()} == {"2", "3"}
    store.remove(obj("b", 4))
    assert [found.meta.name for found in store.values()] == ["a"]


def test_indexes_follow_the_objects() -> None:
    store = Store({"node": by_node})
    store.put(obj("a", 1, node="n1"))
    store.put(obj("b", 2, node="n1"))
    store.put(obj("a", 3, node="n2"))
    assert {found.meta.name for found in store.index("node", "n1")} == {"b"}
    store.remove(obj("a", 4))
    assert store.index("node", "n2") == ()
    with pytest.raises(KeyError):
        store.index("unknown", "n1")


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "remove", "list"]), st.sampled_from("abc"), st.sampled_from(["", "n", "m"]))
    )
)
def test_what_handlers_heard_is_what_the_store_holds(steps: list[tuple[str, str, str]]) -> None:
    store, heard = Store({"node": by_node}), dict[str, CachedObject]()
    for version, (verb, name, node) in enumerate(steps):
        one = obj(name, version, uid=f"{name}{node}", node=node)
        match verb:
            case "put":
                changes = store.put(one)
            case "remove":
                changes = store.remove(one)
            case _:
                changes = store.replace([one])
        for change in changes:
            if change.new is None:
                assert change.old is not None
                del heard[change.old.meta.name]
            else:
                assert (change.old is None) == (change.new.meta.name not in heard)
                heard[change.new.meta.name] = change.new
        assert set(heard.values()) == set(store.values())
        for key in ("n", "m"):
            assert set(store.index("node", key)) == {o for o in store.values() if key in by_node(o)}


@given(st.lists(st.binary(max_size=8)), st.integers(1, 5))
def test_lines_do_not_depend_on_chunks(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found = [line for start in range(0, len(stream), size) for line in splitter.feed(stream[start : start + size])]
    assert found == [line for line in stream.split(b"\n") if line.strip()]


def test_a_line_without_end_is_refused() -> None:
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"0123456789\n01234") == [b"0123456789"]
    with pytest.raises(LineTooLong):
        splitter.feed(b"567890")


def test_finalizers_are_changed_under_guard_of_the_resource_version() -> None:
    plain, marked = obj("a", 7), obj("a", 8, finalizers=["x", "y"])
    assert add_finalizer(plain, "x") == {"metadata": {"resourceVersion": "7", "finalizers": ["x"]}}
    assert add_finalizer(marked, "x") is None
    assert add_finalizer(obj("a", 9, deletionTimestamp="2026-01-01T00:00:00Z"), "x") is None
    assert remove_finalizer(marked, "x") == {"metadata": {"resourceVersion": "8", "finalizers": ["y"]}}
    assert remove_finalizer(plain, "x") is None


def test_the_managing_owner_is_an_index() -> None:
    owners = [{"uid": "u1", "kind": "A", "name": "a"}, {"uid": "u2", "kind": "B", "name": "b", "controller": True}]
    assert controller_uid(obj("a", 1, ownerReferences=owners)) == ("u2",)
    assert controller_uid(obj("a", 1)) == ()


def test_an_index_asks_once_for_each_version_of_an_object() -> None:
    asked: list[str] = []

    def by_name(one: CachedObject) -> tuple[str, ...]:
        asked.append(one.meta.resource_version)
        return (one.meta.name,)

    store = Store({"name": by_name})
    for version in (1, 2, 3):
        store.put(obj("a", version))
    store.remove(obj("a", 4))
    assert asked == ["1", "2", "3"]
    assert store.index("name", "a") == ()


def test_objects_are_cached_without_the_record_of_who_wrote_which_field() -> None:
    whole = {"metadata": {"name": "a", "managedFields": [{"manager": "m"}], "labels": {"x": "y"}}, "spec": {"n": 1.5}}
    bare = {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"n": 1.5}}
    assert without_managed_fields(parse_object(json.dumps(whole).encode())).json() == bare
    untouched = parse_object(json.dumps(bare).encode())
    assert without_managed_fields(untouched) is untouched
    spoken_of = parse_object(b'{"metadata":{"name":"a","annotations":{"b":"\\"managedFields\\""}}}')
    assert without_managed_fields(spoken_of).json() == spoken_of.json()
