"""What a request says and a receiver would skip is found, with its path."""

import pytest
from google.protobuf.message import Message

from anyvisor.hri.errors import Refused
from anyvisor.hri.kit.understood import refuse_unhonoured, refuse_unknown
from anyvisor.hri.v1.machine_spec_pb2 import Device, Disk, Features, Machine, Memory, Rng, Tpm

HONOURED = {"id", "disks.id", "disks.serial", "devices.id", "devices.rng", "parameters", "memory"}


@pytest.mark.parametrize(
    "machine",
    [
        Machine(id="a"),
        Machine(id="a", disks=[Disk(id="x", serial="y"), Disk(id="z")]),
        Machine(devices=[Device(id="r", rng=Rng())]),
        Machine(parameters={"a": "b"}, memory=Memory(size_bytes=1, locked=True)),
    ],
)
def test_what_is_honoured_passes(machine: Machine):
    refuse_unhonoured(machine, HONOURED, "x")


@pytest.mark.parametrize(
    ("machine", "fields"),
    [
        (Machine(name="a"), ["name"]),
        (Machine(disks=[Disk(id="x"), Disk(id="y", read_only=True)]), ["disks[1].read_only"]),
        (Machine(devices=[Device(id="t", tpm=Tpm())]), ["devices[0].tpm"]),
        (Machine(features=Features(hyperv={"relaxed": "on"}), name="n"), ["features", "name"]),
        (Machine(features=Features(acpi=False)), ["features"]),
    ],
)
def test_what_is_not_honoured_is_refused_by_path(machine: Machine, fields: list[str]):
    with pytest.raises(Refused) as caught:
        refuse_unhonoured(machine, HONOURED, "x")
    assert sorted(finding.field for finding in caught.value.findings) == sorted(fields)


def places(machine: Machine) -> dict[str, Message]:
    """Some of its messages, by path."""
    return {
        "": machine,
        "disks[0]": machine.disks[0],
        "features": machine.features,
        "devices[0].rng": machine.devices[0].rng,
    }


@pytest.mark.parametrize("field", ["", "disks[0]", "features", "devices[0].rng"])
def test_unknown_fields_are_found_at_any_depth(field: str):
    machine = Machine(disks=[Disk(id="a")], features=Features(smm=True), devices=[Device(rng=Rng())])
    refuse_unknown(machine, "the machine")
    places(machine)[field].MergeFromString(b"\xfa\x3e\x01x")
    with pytest.raises(Refused) as caught:
        refuse_unknown(machine, "the machine")
    assert [(f.code, f.field) for f in caught.value.findings] == [("FIELD_UNKNOWN", field)]
