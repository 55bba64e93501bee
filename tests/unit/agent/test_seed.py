"""New files hold what the driver wants, and kept ones what they held."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anyvisor.agent.descriptors import Descriptors
from anyvisor.agent.launchers import LauncherError
from anyvisor.agent.seed import LIMIT, sow
from anyvisor.hri.v1.machine_pb2 import Seed

CONTENT = b"template" * 1000


@pytest.fixture
def held() -> Iterator[Descriptors]:
    with Descriptors() as bag:
        yield bag


def kept(held: Descriptors, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    held.put("kept", os.open(path, os.O_RDWR | os.O_CLOEXEC))


def test_a_file_that_nobody_has_is_made_and_goes_with_its_descriptors(held: Descriptors) -> None:
    sow([Seed(handle="fresh", content=CONTENT)], held)
    descriptor = held.get("fresh")
    assert descriptor is not None
    assert os.pread(descriptor, len(CONTENT) + 1, 0) == CONTENT
    assert os.fstat(descriptor).st_nlink == 0


@pytest.mark.parametrize("before", [b"", CONTENT[:4096], CONTENT[:1]], ids=["empty", "half filled", "begun"])
def test_an_unfilled_file_is_filled(held: Descriptors, tmp_path: Path, before: bytes) -> None:
    kept(held, tmp_path / "store", before)
    sow([Seed(handle="kept", content=CONTENT)], held)
    assert (tmp_path / "store").read_bytes() == CONTENT


def test_what_a_guest_wrote_stays(held: Descriptors, tmp_path: Path) -> None:
    kept(held, tmp_path / "store", CONTENT[::-1])
    sow([Seed(handle="kept", content=CONTENT)], held)
    assert (tmp_path / "store").read_bytes() == CONTENT[::-1]


def test_a_file_without_content_of_ours_is_the_programs_own(held: Descriptors, tmp_path: Path) -> None:
    kept(held, tmp_path / "store", b"state")
    sow([Seed(handle="kept")], held)
    assert (tmp_path / "store").read_bytes() == b"state"


@pytest.mark.parametrize("before", [CONTENT + b"x", CONTENT[::-1][:100]], ids=["longer", "another"])
def test_another_firmwares_variables_are_refused_and_stay(held: Descriptors, tmp_path: Path, before: bytes) -> None:
    kept(held, tmp_path / "store", before)
    with pytest.raises(LauncherError, match="delete the claim"):
        sow([Seed(handle="kept", content=CONTENT)], held)
    assert (tmp_path / "store").read_bytes() == before


def test_content_is_bounded(held: Descriptors) -> None:
    with pytest.raises(LauncherError, match="larger than"):
        sow([Seed(handle="fresh", content=bytes(LIMIT + 1))], held)
