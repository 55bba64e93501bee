"""What the embedded container network decides before it touches anything."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.podnetwork.plans import (
    POOL,
    PodNetworkError,
    bridge_batch,
    choose_address,
    choose_network,
    inner_batch,
    masquerade,
    pod_batch,
    pod_name,
)

ids = st.text("0123456789abcdef", min_size=8, max_size=8)


@given(ids)
def test_an_instance_has_always_the_same_network(instance: str) -> None:
    network = choose_network(instance, [])
    assert network == choose_network(instance, [])
    assert network.subnet_of(POOL)


@given(ids, st.integers(0, 3))
def test_networks_that_the_host_knows_are_left_alone(instance: str, count: int) -> None:
    taken: list[IPv4Network] = [IPv4Network("10.64.0.0/13")]
    for _ in range(count):
        taken.append(choose_network(instance, taken))
    assert not any(choose_network(instance, taken).overlaps(each) for each in taken)


def test_a_full_pool_says_so() -> None:
    with pytest.raises(PodNetworkError, match="no network is free"):
        choose_network("01234567", [POOL])


def test_addresses_are_free_and_neither_first_nor_last() -> None:
    network = IPv4Network("10.64.0.0/29")
    taken: set[str] = set()
    for _ in range(5):
        taken.add(str(choose_address(network, taken)))
    assert taken == {f"10.64.0.{number}" for number in range(2, 7)}
    with pytest.raises(PodNetworkError, match="5 addresses"):
        choose_address(network, taken)


@given(ids, st.text(max_size=60))
def test_names_are_short_and_the_instances_own(instance: str, pod: str) -> None:
    name = pod_name(instance, pod)
    assert len(name) <= 15
    assert name.startswith(f"av{instance[:6]}")
    assert name.isalnum()


def test_texts_for_the_tools() -> None:
    network = IPv4Network("10.64.0.0/22")
    assert bridge_batch("01234567", network, exists=False).splitlines()[0] == "link add name avb01234567 type bridge"
    assert "link add" not in bridge_batch("01234567", network, exists=True)
    assert 'ip saddr 10.64.0.0/22 oifname != "avb01234567" masquerade' in masquerade("01234567", network)
    assert "mtu 1400 type veth peer name eth0 mtu 1400" in pod_batch("01234567", "avx", 1400)
    assert "route add default via 10.64.0.1" in inner_batch(network[9], network)
