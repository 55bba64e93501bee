"""The parts of the conformance program that judge: what a guest said, whether a model of memory is true."""

from pathlib import Path

import pytest

from anyvisor.hri.conformance.materials import Materials, qcow2
from anyvisor.hri.conformance.overhead import MIB, Measured, corrected, guest_resident
from anyvisor.hri.conformance.report_guest import parse
from anyvisor.planning.overhead import OverheadModel, Shape
from anyvisor.planning.overhead import overhead as items

SAID = (
    "/ # report\r\nREPORT begin\r\nREPORT system uuid=u serial=\r\n"
    "REPORT disk name=vda serial=one label=one sectors=8 ro=0 pci=0000:01:00.0\r\nREPORT disk name=vdb serial=two\r\n"
    "REPORT nic name=eth0 mac=02:00:00:C0:FF:01 mtu=1400\r\nREPORT end\r\n"
)


def test_what_a_guest_said_is_read_by_kind():
    report = parse(SAID)
    assert report.one("system") == {"uuid": "u", "serial": ""}
    assert [disk["name"] for disk in report.all("disk")] == ["vda", "vdb"]
    assert report.disk("two")["name"] == "vdb"
    assert report.nic("02:00:00:c0:ff:01")["mtu"] == "1400"
    assert report.disk("three") == {} == report.one("cpu")


@pytest.mark.parametrize("noise", ["", "REPORT", "REPORT \n", "REPORT Disk a=b\n", "\0\xff REPORT x=1"])
def test_noise_is_no_report(noise: str):
    assert parse(noise).records == {}


@pytest.mark.parametrize(
    ("modelled", "charged", "resident", "low", "high"),
    [
        (100, 90, 95, False, False),
        (100, 101, 120, True, False),
        (100, 49, 49, False, True),
        (100, 40, 60, False, False),  # most of it is shared with others here, and would not be elsewhere
    ],
)
def test_a_model_is_too_low_or_too_high(modelled: int, charged: int, resident: int, low: bool, high: bool):
    measured = Measured(Shape(0), modelled, charged, resident)
    assert (measured.too_low, measured.too_high) == (low, high)


def test_the_corrected_model_is_above_every_peak():
    model = OverheadModel(fixed="10Mi", per_vcpu="2Mi")
    seen = [
        Measured(shape, sum(item.bytes for item in items(model, shape)), peak * MIB, 0)
        for shape, peak in ((Shape(0, vcpus=1, launcher=False), 40), (Shape(0, vcpus=4, launcher=False), 44))
    ]
    assert corrected(model, seen) == "fixed: 42Mi in place of 10Mi, the rest as it is"


def test_the_memory_of_a_guest_is_the_mapping_of_its_size(tmp_path: Path):
    smaps = tmp_path / "smaps"
    smaps.write_text(
        "1-2 rw-p 0 00:00 0\nSize: 1024 kB\nRss: 8 kB\n3-4 rw-p 0 00:00 0\nSize: 131072 kB\nRss: 4096 kB\n"
    )
    assert guest_resident(smaps, 128 * MIB) == 4 * MIB
    assert guest_resident(smaps, 64 * MIB) == 64 * MIB


def test_materials_are_made_and_gone():
    with Materials() as made:
        volume = made.overlay("a/0", "label", 1 << 20)
        assert [layer.handle for layer in volume.layers] == ["a/0", "a/0/below"]
        assert made.file("a/0").read_bytes() == qcow2(1 << 20)
        assert made.file("a/0/below").stat().st_size == 1 << 20
        folder = made.path
    assert not folder.exists()
    assert made.handles == {}
