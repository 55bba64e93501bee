"""Which CPUs are added to a running guest."""

from typing import Any

import pytest

from anyvisor.drivers.qemu.cpus import additions
from anyvisor.hri.errors import Refused


def places(sockets: int, taken: int, threads: int = 1) -> list[dict[str, Any]]:
    """As QEMU lists them: the last place first."""
    found: list[dict[str, Any]] = []
    for socket in range(sockets):
        for thread in range(threads):
            props = {"socket-id": socket, "core-id": 0, "thread-id": thread}
            place: dict[str, Any] = {"type": "max-x86_64-cpu", "vcpus-count": 1, "props": props}
            if socket < taken:
                place["qom-path"] = f"/machine/unattached/device[{socket}]"
            found.append(place)
    return found[::-1]


def test_free_places_are_filled_in_order_with_integers() -> None:
    added = additions(places(4, taken=1, threads=2), 3)
    assert [each["id"] for each in added] == ["cpu-1-0-0-0", "cpu-1-0-0-1", "cpu-2-0-0-0", "cpu-2-0-0-1"]
    assert added[1] == {
        "driver": "max-x86_64-cpu",
        "id": "cpu-1-0-0-1",
        "socket-id": 1,
        "core-id": 0,
        "thread-id": 1,
    }


def test_what_the_guest_has_is_not_added_again() -> None:
    assert additions(places(4, taken=3), 3) == []


@pytest.mark.parametrize(("sockets", "sentence"), [(5, "places for 4 CPU sockets"), (1, "not taken from a running")])
def test_what_cannot_be_is_refused_with_the_next_step(sockets: int, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence) as caught:
        additions(places(4, taken=2), sockets)
    assert "stop and start" in str(caught.value)
