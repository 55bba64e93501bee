"""Ports of a guest on QEMU's user-mode network, against the output of a real QEMU."""

import pytest

from anyvisor.drivers.qemu.forwards import LIMIT, Forwards, listed
from anyvisor.hri.errors import HriError, NotImplementedByDriver, Refused

HEADER = "Hub -1 (net-x):\r\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n"
ROW = "  {}[HOST_FORWARD]  12       127.0.0.1 {}       10.0.2.15    {}     0     0\r\n"
ESTABLISHED = "  TCP[ESTABLISHED]  13       127.0.0.1 33725       10.0.2.15    22     0     0\r\n"


class Monitor:
    """The part of QEMU's monitor that forwards ports."""

    def __init__(self, refusal: str = "") -> None:
        self.rows: dict[str, str] = {}
        self.refusal = refusal

    async def __call__(self, line: str) -> str:
        command, _, rest = line.partition(" ")
        if command == "hostfwd_add" and not self.refusal:
            protocol, _, guest = rest.partition(":127.0.0.1:0-:")
            port = 40000 + len(self.rows)
            self.rows[f"{protocol}:127.0.0.1:{port}"] = ROW.format(protocol.upper(), port, guest)
            return ""
        if command == "hostfwd_remove":
            del self.rows[rest]
            return ""
        return HEADER + "".join(self.rows.values()) + ESTABLISHED if command == "info" else self.refusal


def test_only_forwards_are_listed() -> None:
    text = HEADER + ROW.format("TCP", 33725, 22) + ROW.format("UDP", 44073, 53) + ESTABLISHED
    assert listed(text) == {("tcp", 33725, 22), ("udp", 44073, 53)}


async def test_a_port_is_open_until_it_is_closed() -> None:
    monitor = Monitor()
    forwards = Forwards(monitor)
    first, address = await forwards.open("tcp", 22)
    second, other = await forwards.open("tcp", 22)
    assert (address, other) == ("127.0.0.1:40000", "127.0.0.1:40001")
    await forwards.close(first)
    await forwards.close("tcp:127.0.0.1:9")
    assert list(monitor.rows) == [second]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("user mode network stack not in use\r\n", NotImplementedByDriver),
        ("could not set up host forwarding rule 'tcp::0-:22'\r\n", Refused),
    ],
)
async def test_refusals(said: str, kind: type[HriError]) -> None:
    with pytest.raises(kind):
        await Forwards(Monitor(said)).open("tcp", 22)


@pytest.mark.parametrize(("protocol", "port"), [("tcp", 0), ("tcp", 1 << 16), ("tcp:1.2.3.4:1-:2\n", 22)])
async def test_what_is_no_port_never_reaches_the_monitor(protocol: str, port: int) -> None:
    monitor = Monitor()
    with pytest.raises(Refused):
        await Forwards(monitor).open(protocol, port)
    assert not monitor.rows


async def test_forwards_are_bounded() -> None:
    forwards = Forwards(Monitor())
    for _ in range(LIMIT):
        await forwards.open("tcp", 22)
    with pytest.raises(Refused, match="close some"):
        await forwards.open("tcp", 22)
