"""Services and slices to packet rules."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.services.rules import Ground, ruleset
from anyvisor.embedded.services.targets import ServedPort, Target, served

Json = dict[str, Any]
GROUND = Ground("t", "avb0", IPv4Network("10.70.0.0/22"), IPv4Network("10.80.0.0/22"), 5300)


def service(**spec: Any) -> Json:
    ports = [{"name": "", "port": 80, "protocol": "TCP", "targetPort": 8080}]
    return {"metadata": {}, "spec": {"type": "ClusterIP", "clusterIP": "10.80.0.9", "ports": ports, **spec}}


def slice_of(*endpoints: tuple[str, Json], name: str = "", number: int = 8080, protocol: str = "TCP") -> Json:
    return {
        "ports": [{"name": name, "port": number, "protocol": protocol}],
        "endpoints": [{"addresses": [address], "conditions": conditions} for address, conditions in endpoints],
    }


READY: Json = {"ready": True}
UNKNOWN: Json = {}
NONE: list[str] = []
NOBODY: list[tuple[str, Json]] = []
NOT_READY: Json = {"ready": False, "serving": False, "terminating": False}
ENDING: Json = {"ready": False, "serving": True, "terminating": True}


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([("10.70.0.3", READY), ("10.70.0.2", READY)], ["10.70.0.2", "10.70.0.3"]),
        ([("10.70.0.3", READY), ("10.70.0.2", NOT_READY)], ["10.70.0.3"]),
        ([("10.70.0.3", READY), ("10.70.0.2", ENDING)], ["10.70.0.3"]),
        ([("10.70.0.3", NOT_READY), ("10.70.0.2", ENDING)], ["10.70.0.2"]),
        ([("10.70.0.3", UNKNOWN)], ["10.70.0.3"]),
        ([("not an address", READY), ("fd00::1", READY)], NONE),
        (NOBODY, NONE),
    ],
)
def test_who_gets_the_packets(endpoints: list[tuple[str, Json]], expected: list[str]) -> None:
    [found] = served(service(), [slice_of(*endpoints)])
    assert [str(target.address) for target in found.targets] == expected


def test_ports_find_theirs_by_name_and_protocol() -> None:
    two = service(
        ports=[
            {"name": "a", "port": 80, "protocol": "TCP"},
            {"name": "b", "port": 53, "protocol": "UDP", "nodePort": 30053},
        ]
    )
    slices = [
        slice_of(("10.70.0.3", READY), name="a", number=8080),
        slice_of(("10.70.0.3", READY), name="b", number=5353, protocol="UDP"),
        slice_of(("10.70.0.4", READY), name="b", number=1, protocol="TCP"),
    ]
    first, second = served(two, slices)
    assert first.targets == (Target(IPv4Address("10.70.0.3"), 8080),)
    assert second.targets == (Target(IPv4Address("10.70.0.3"), 5353),)
    assert second.node_port == 0, "a node port counts only for the types that have them"


@pytest.mark.parametrize("spec", [{"clusterIP": "None"}, {"type": "ExternalName"}, {"clusterIP": ""}])
def test_names_only(spec: Json) -> None:
    assert served(service(**spec), [slice_of(("10.70.0.3", READY))]) == []


def port(*targets: str, **more: Any) -> ServedPort:
    fields: Json = {"addresses": (IPv4Address("10.80.0.9"),), "protocol": "tcp", "port": 80, "node_port": 30080}
    fields |= {"sticky": False, "targets": tuple(Target(IPv4Address(text), 8080) for text in targets), **more}
    return ServedPort(**fields)


def test_the_rules_of_a_balanced_port() -> None:
    text = ruleset(GROUND, [port("10.70.0.2", "10.70.0.3")])
    assert "10.80.0.9 . tcp . 80 : goto port_0" in text
    assert "tcp . 30080 : goto port_0" in text
    assert "numgen random mod 2 map { 0 : 10.70.0.2 . 8080, 1 : 10.70.0.3 . 8080 }" in text
    assert "10.70.0.2 . 10.70.0.2" in text
    assert text.startswith("table ip t\ndelete table ip t\ntable ip t {")


def test_a_sticky_client_is_told_by_its_address() -> None:
    assert "jhash ip saddr mod 2" in ruleset(GROUND, [port("10.70.0.2", "10.70.0.3", sticky=True)])


def test_without_targets_it_is_refused() -> None:
    text = ruleset(GROUND, [port()])
    assert "goto port_0" not in text
    assert "elements = { tcp . 30080 }" in text
    assert "ip daddr 10.80.0.0/22 reject" in text


def test_names_are_asked_for_at_port_53() -> None:
    assert 'iifname "avb0" ip daddr 10.70.0.1 udp dport 53 redirect to :5300' in ruleset(GROUND, [])


slice_ports = st.fixed_dictionaries(
    {}, optional={"name": st.just(""), "port": st.integers(-2, 70000), "protocol": st.sampled_from(["TCP", "UDP", "x"])}
)
slice_endpoints = st.fixed_dictionaries(
    {}, optional={"addresses": st.lists(st.text("10.:/ {}\n", max_size=12) | st.just("10.0.0.1"), max_size=2)}
)


@given(st.lists(slice_ports, max_size=2), st.lists(slice_endpoints, max_size=2))
def test_no_text_of_an_endpoint_slice_reaches_the_rules(ports: list[Json], endpoints: list[Json]) -> None:
    for each in served(service(), [{"ports": ports, "endpoints": endpoints}]):
        assert all(isinstance(target.address, IPv4Address) and 0 < target.port < 65536 for target in each.targets)
