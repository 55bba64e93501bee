"""CPUs that are added to a running guest: which places of the board are filled. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from anyvisor.hri.errors import Refused, finding

FIELD: Final = "set_cpu.sockets"
EMULATED: Final = (
    "under software emulation QEMU may abort when a CPU is added (its cache of translated code may have no part left "
    "for one more thread); stop the machine and start it with more"
)


def additions(places: Sequence[Mapping[str, Any]], sockets: int) -> list[dict[str, Any]]:
    """The arguments of `device_add` that bring the guest to so many sockets; none when it has them.

    `places` is QEMU's answer to query-hotpluggable-cpus, in no order: `props` is where a CPU sits, in integers, and a
    place with a `qom-path` is taken.

    Raises:
        Refused: more sockets than the board has places for, or fewer than the guest has.
    """
    taken = {_socket(place) for place in places if "qom-path" in place}
    most = 1 + max((_socket(place) for place in places), default=-1)
    if sockets > most:
        message = f"the machine was started with places for {most} CPU sockets; stop and start it with more"
        raise Refused(message, findings=[_finding("LIMIT_EXCEEDED", message, most, sockets)])
    if sockets < len(taken):
        message = "CPU sockets are not taken from a running guest; stop and start it with fewer"
        raise Refused(message, findings=[_finding("CAP_NO", message, len(taken), sockets)])
    free = [place for place in places if "qom-path" not in place and _socket(place) < sockets]
    return [_arguments(place) for place in sorted(free, key=_position)]


def _finding(code: str, message: str, have: int, want: int) -> Any:
    return finding(code, message, field=FIELD, have=str(have), want=str(want))


def _socket(place: Mapping[str, Any]) -> int:
    return int(place["props"].get("socket-id", 0))


def _position(place: Mapping[str, Any]) -> tuple[int, ...]:
    props = place["props"]
    return tuple(int(props.get(f"{part}-id", 0)) for part in ("socket", "die", "core", "thread"))


def _arguments(place: Mapping[str, Any]) -> dict[str, Any]:
    name = "-".join(str(number) for number in _position(place))
    return {"driver": place["type"], "id": f"cpu-{name}", **place["props"]}
