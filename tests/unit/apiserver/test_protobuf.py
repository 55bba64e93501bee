"""Protobuf bodies of built-in kinds."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.apiserver.protobuf import MAGIC, ProtobufError, decode, message_name
from anyvisor.embedded.apiserver.typetable import closure, messages, openapi_schema

Json = dict[str, Any]


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def text(number: int, value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    return MAGIC + text(1, text(1, api_version) + text(2, kind)) + text(2, raw)


META = text(1, text(1, "n") + text(11, text(1, "k") + text(2, "v")) + text(8, number(1, 1767225600)))
PROBE = text(1, text(2, text(1, "/h") + text(2, number(1, 0) + number(2, 80)))) + number(2, 5)
CASES: list[tuple[str, bytes, Json]] = [
    (
        "maps and times",
        body("v1", "ConfigMap", META + text(2, text(1, "a") + text(2, "b")) + text(2, text(1, "empty"))),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "n", "labels": {"k": "v"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "data": {"a": "b", "empty": ""},
        },
    ),
    (
        "bytes",
        body("v1", "Secret", text(2, text(1, "a") + text(2, b"\x00\xff"))),
        {"apiVersion": "v1", "kind": "Secret", "data": {"a": "AP8="}},
    ),
    (
        "repeated messages and strings",
        body("rbac.authorization.k8s.io/v1", "Role", text(2, text(1, "get") + text(1, "list") + text(3, "pods"))),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "rules": [{"verbs": ["get", "list"], "resources": ["pods"]}],
        },
    ),
    (
        "inline messages, numbers, int-or-string",
        body("v1", "Pod", text(2, text(2, text(1, "c") + text(10, PROBE)))),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {
                "containers": [
                    {"name": "c", "livenessProbe": {"httpGet": {"path": "/h", "port": 80}, "initialDelaySeconds": 5}}
                ]
            },
        },
    ),
    (
        "quantities and negative numbers",
        body("v1", "PersistentVolumeClaim", text(2, text(2, text(2, text(1, "storage") + text(2, text(1, "1Gi")))))),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    ),
    (
        "options of deletion",
        body("v1", "DeleteOptions", number(1, -1) + text(4, "Background") + text(2, text(1, "u"))),
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": -1,
            "propagationPolicy": "Background",
            "preconditions": {"uid": "u"},
        },
    ),
    (
        "unknown fields are skipped",
        body("v1", "Namespace", text(1, text(1, "n") + text(999, "future")) + number(500, 7)),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_decode(raw: bytes, expected: Json):
    assert decode(raw) == expected


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{}", "magic bytes"),
        (body("v1", "Unheard", b""), "not known in protobuf"),
        (body("v1", "ConfigMap", META)[:-3], "past the end"),
        (body("v1", "ConfigMap", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "past the end"),
        (body("v1", "ConfigMap", b"\x0b"), "unknown wire type"),
        (body("v1", "ConfigMap", text(1, text(1, b"\xff\xfe"))), "not valid UTF-8"),
    ],
)
def test_damaged_bodies_are_refused(raw: bytes, message: str):
    with pytest.raises(ProtobufError, match=message):
        decode(raw)


@given(st.binary(max_size=200), st.sampled_from(["ConfigMap", "Pod", "Namespace", "Secret"]))
def test_no_bytes_do_harm(raw: bytes, kind: str):
    with contextlib.suppress(ProtobufError):
        decode(body("v1", kind, raw))


def test_names_of_messages():
    assert message_name("v1", "Pod") == "core.v1.Pod"
    assert message_name("rbac.authorization.k8s.io/v1", "Role") == "rbac.v1.Role"
    assert message_name("coordination.k8s.io/v1", "Lease") == "coordination.v1.Lease"


def test_the_table_is_closed_and_has_what_apply_needs():
    for name, message in messages().items():
        assert set(closure(name)) <= set(messages()), name
        numbers = [field.number for field in message.fields]
        assert len(numbers) == len(set(numbers)), name
    containers = openapi_schema("core.v1.PodSpec")["properties"]["containers"]
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert "handler" not in openapi_schema("core.v1.Probe")["properties"], "inline in JSON"
