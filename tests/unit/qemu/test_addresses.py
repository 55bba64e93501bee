"""PCI addresses: unique, stable, given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.hri.kit.ports import MAX_PORTS, NICS, AddressError, address, allocate, choose, ports


@given(st.lists(st.integers(1, MAX_PORTS), unique=True, max_size=MAX_PORTS), st.integers(0, MAX_PORTS))
def test_every_device_has_a_bus_of_its_own_and_keeps_what_it_had(earlier: list[int], fresh: int) -> None:
    wanted = [(f"old{bus}", address(bus)) for bus in earlier]
    wanted += [(f"new{number}", "") for number in range(min(fresh, MAX_PORTS - len(earlier)))]
    half = len(wanted) // 2
    buses = allocate(wanted[:half], wanted[half:])
    assert len(set(buses.values())) == len(wanted)
    assert all(buses[f"old{bus}"] == bus for bus in earlier)
    again = allocate((), [(device, address(bus)) for device, bus in buses.items()])
    assert again == buses


def test_new_devices_take_free_buses_upwards() -> None:
    assert allocate([("a", ""), ("b", "0000:01:00.0"), ("c", "")], [("d", "")]) == {"a": 3, "b": 1, "c": 5, "d": 2}


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_device_that_came_later_is_where_it_was_at_the_next_start(nics: int, disks: int) -> None:
    listed = [(f"n{number}", "") for number in range(nics)], [(f"d{number}", "") for number in range(disks)]
    before = allocate(*listed)
    place = choose(NICS, set(range(1, MAX_PORTS + 1)) - set(before.values()))
    assert allocate([*listed[0], ("late", "")], listed[1]) == {**before, "late": place}


@pytest.mark.parametrize("wrong", ["0000:00:03.0", "0000:81:01.10", "0000:01:01.0", "0001:01:00.0", "nonsense"])
def test_other_places_are_refused(wrong: str) -> None:
    with pytest.raises(AddressError, match="no place for a device"):
        allocate([("a", wrong)], ())


def test_an_address_given_twice_is_refused() -> None:
    with pytest.raises(AddressError, match="two devices"):
        allocate([("a", "0000:01:00.0")], [("b", "01:00.0")])


def test_too_many_devices_are_refused() -> None:
    with pytest.raises(AddressError, match=f"more than {MAX_PORTS}"):
        allocate((), [(f"d{number}", "") for number in range(MAX_PORTS + 1)])


@given(st.integers(0, MAX_PORTS))
def test_ports_are_only_added_at_the_end(count: int) -> None:
    made = ports(count)
    assert [port.bus for port in made] == list(range(1, count + 1))
    assert len({(port.slot, port.function) for port in made}) == count
    assert made == ports(MAX_PORTS)[:count]
