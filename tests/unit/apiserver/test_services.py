"""Services in the API server: defaults, rules, addresses and node ports."""

import asyncio
from collections.abc import AsyncGenerator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import MASTERS, Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.client import Client
from anyvisor.kube.errors import Invalid
from anyvisor.kube.resources import SERVICES

Json = dict[str, Any]
NETWORK = IPv4Network("10.99.0.0/26")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[Client]:
    async with ApiServer(ServerConfig(database=tmp_path / "db", service_network=NETWORK)) as server:
        yield Client(server.inprocess(Identity("admin", (MASTERS,)).with_authenticated()))


def service(name: str, *ports: Json, **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": list(ports or ({"port": 80},)), **spec},
    }


async def test_a_service_gets_an_address_and_keeps_it(client: Client) -> None:
    made = await client.create(SERVICES, service("web"))
    spec = made["spec"]
    assert IPv4Address(spec["clusterIP"]) in NETWORK
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["type"], spec["ipFamilies"], spec["ipFamilyPolicy"]) == ("ClusterIP", ["IPv4"], "SingleStack")
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    replaced = await client.update(
        SERVICES, {**service("web", {"port": 81}), "metadata": {**made["metadata"]}, "kind": "Service"}
    )
    assert replaced["spec"]["clusterIP"] == spec["clusterIP"]
    with pytest.raises(Invalid, match="may not change once set"):
        await client.patch(
            SERVICES, "web", "default", {"spec": {"clusterIP": "10.99.0.1", "clusterIPs": ["10.99.0.1"]}}
        )


async def test_addresses_are_given_once(client: Client) -> None:
    made = await asyncio.gather(*(client.create(SERVICES, service(f"s{number}")) for number in range(40)))
    assert len({each["spec"]["clusterIP"] for each in made}) == 40
    chosen = made[0]["spec"]["clusterIP"]
    with pytest.raises(Invalid, match="provided IP is already allocated"):
        await client.create(SERVICES, service("mine", clusterIP=chosen))
    await client.delete(SERVICES, "s0", "default")
    again = await client.create(SERVICES, service("s0", clusterIP=chosen))
    assert again["spec"]["clusterIP"] == chosen


async def test_when_all_are_taken_the_sentence_says_so(client: Client) -> None:
    for number in range(NETWORK.num_addresses - 2):
        await client.create(SERVICES, service(f"s{number}"))
    with pytest.raises(Invalid, match="are taken; delete Services"):
        await client.create(SERVICES, service("more"))


async def test_headless_and_external_names_have_none(client: Client) -> None:
    headless = await client.create(SERVICES, service("db", clusterIP="None"))
    assert headless["spec"]["clusterIPs"] == ["None"]
    external = await client.create(
        SERVICES, {"metadata": {"name": "out", "namespace": "default"},
                   "spec": {"type": "ExternalName", "externalName": "example.org"}}
    )  # fmt: skip
    assert "clusterIP" not in external["spec"]


async def test_node_ports(client: Client) -> None:
    made = await client.create(
        SERVICES,
        service("web", {"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30001}, type="NodePort"),
    )
    first, second = (port["nodePort"] for port in made["spec"]["ports"])
    assert 30000 <= first <= 32767
    assert second == 30001
    with pytest.raises(Invalid, match="provided port is already allocated"):
        await client.create(SERVICES, service("two", {"port": 80, "nodePort": 30001}, type="NodePort"))
    with pytest.raises(Invalid, match="The range of valid ports is 30000-32767"):
        await client.create(SERVICES, service("three", {"port": 80, "nodePort": 80}, type="NodePort"))
    inner = await client.patch(SERVICES, "web", "default", {"spec": {"type": "ClusterIP"}})
    assert all("nodePort" not in port for port in inner["spec"]["ports"])
    await client.create(SERVICES, service("four", {"port": 80, "nodePort": 30001}, type="LoadBalancer"))


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        ("a.b", {}, "metadata.name"),
        ("web", {"ports": []}, "spec.ports"),
        ("web", {"ports": [{"port": 1}, {"port": 2}]}, "spec.ports[0].name"),
        ("web", {"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, "spec.ports[1].name"),
        ("web", {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}, "spec.ports[1]"),
        ("web", {"ports": [{"port": 70000}]}, "spec.ports[0].port"),
        ("web", {"ports": [{"port": 1, "targetPort": "no_name"}]}, "spec.ports[0].targetPort"),
        ("web", {"ports": [{"port": 1, "protocol": "ICMP"}]}, "spec.ports[0].protocol"),
        ("web", {"ports": [{"port": 1, "nodePort": 30000}]}, "spec.ports[0].nodePort"),
        ("web", {"type": "Other"}, "spec.type"),
        ("web", {"type": "ExternalName"}, "spec.externalName"),
        ("web", {"type": "NodePort", "clusterIP": "None"}, "spec.clusterIPs[0]"),
        ("web", {"clusterIP": "192.0.2.1"}, "spec.clusterIPs"),
        ("web", {"ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]"),
        ("web", {"ipFamilyPolicy": "RequireDualStack"}, "spec.ipFamilyPolicy"),
        ("web", {"sessionAffinity": "Random"}, "spec.sessionAffinity"),
        ("web", {"externalIPs": ["fd00::1"]}, "spec.externalIPs[0]"),
    ],
)
async def test_mistakes_are_named(client: Client, name: str, spec: Json, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(SERVICES, service(name, **spec))
    assert field in [cause["field"] for cause in caught.value.details["causes"]]
