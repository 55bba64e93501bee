"""The overhead model: a table that adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.planning.overhead import (
    SERIAL_LOG_BYTES,
    STOP_HOOK_BYTES,
    OverheadError,
    OverheadModel,
    Shape,
    amount,
    check,
    overhead,
    ratio,
)

MIB = 1 << 20
GIB = 1 << 30
# KubeVirt's formula for its own launcher as a table; its known examples show that the form carries it.
REFERENCE = OverheadModel(
    fixed="240Mi",
    guest_memory_ratio="1/512",
    per_vcpu="8Mi",
    per_io_thread="8Mi",
    per_display="32Mi",
    architecture={"arm64": "128Mi"},
    tpm="53Mi",
    vfio="1Gi",
    confidential="256Mi",
    dedicated_cpu="100Mi",
)


@pytest.mark.parametrize(
    ("shape", "mebibytes"),
    [
        (Shape(GIB, vcpus=1, displays=1), 282),
        (Shape(GIB, vcpus=1), 250),
        (Shape(32 * GIB, vcpus=8, displays=1), 400),
        (Shape(GIB, vcpus=1, architecture="arm64"), 378),
        (Shape(GIB, vcpus=1, tpm=True), 303),
        (Shape(GIB, vcpus=1, vfio=True), 1274),
        (Shape(GIB, vcpus=1, confidential=True, dedicated_cpu=True), 606),
        (Shape(GIB, vcpus=1, io_threads=1), 258),
    ],
)
def test_the_reference_formula_fits_the_table(shape: Shape, mebibytes: int):
    items = overhead(REFERENCE, shape)
    ours = STOP_HOOK_BYTES + SERIAL_LOG_BYTES
    assert sum(item.bytes for item in items) - ours == mebibytes * MIB


def test_items_are_named_and_zero_ones_left_out():
    model = OverheadModel(fixed="1Mi", per_disk="1Ki", margin="0.1")
    items = {i.item: i.bytes for i in overhead(model, Shape(GIB, disks=2, added_bytes=7, launcher=False))}
    assert items == {"fixed": MIB, "disks": 2048, "margin": (MIB + 2048) // 10, "reserved": 7}


@given(
    memory=st.integers(0, 1 << 45),
    vcpus=st.integers(1, 512),
    disks=st.integers(0, 256),
    more=st.integers(0, 64),
)
def test_more_never_costs_less(memory: int, vcpus: int, disks: int, more: int):
    model = OverheadModel(fixed="30Mi", guest_memory_ratio="1/512", per_vcpu="1Mi", per_disk="64Ki", margin="0.05")
    small = sum(i.bytes for i in overhead(model, Shape(memory, vcpus=vcpus, disks=disks)))
    large = sum(i.bytes for i in overhead(model, Shape(memory + more, vcpus=vcpus + more, disks=disks + more)))
    assert large >= small > 0


@pytest.mark.parametrize("text", ["", "x", "-1", "1/0", "17", "1e99", "1" * 100])
def test_a_share_has_a_form(text: str):
    with pytest.raises(OverheadError):
        ratio(text, "margin")


def test_a_model_is_checked_as_a_whole():
    assert check(REFERENCE) == []
    broken = OverheadModel(fixed="x", per_vcpu="-1", firmware={"uefi": "?"}, margin="x")
    assert len(check(broken)) == 4
    with pytest.raises(OverheadError, match="negative"):
        amount("-1Mi", "fixed")


def test_of_several_possible_accelerators_the_dearest_counts():
    model = OverheadModel(fixed="1Mi", accelerator={"emulation": "64Mi", "kvm": "1Mi"})

    def item(*accelerators: str) -> int:
        shape = Shape(0, accelerators=accelerators, launcher=False)
        return sum(each.bytes for each in overhead(model, shape) if each.item == "accelerator")

    assert item("kvm") == 1 << 20
    assert item("kvm", "emulation") == item("emulation") == 64 << 20
    assert item() == item("none") == 0
    assert check(OverheadModel(fixed="0", accelerator={"kvm": "-1"})) == [
        "overhead.accelerator.kvm: -1 is negative; write 0 or more"
    ]
