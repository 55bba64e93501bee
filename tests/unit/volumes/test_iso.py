"""Media of configuration data."""

import io

import pycdlib
import pytest

from anyvisor.agent.volumes import iso
from anyvisor.agent.volumes.iso import IsoError

LABEL = slice(32808, 32840)


def read(image: bytes, path: str, **form: str) -> bytes:
    medium, out = pycdlib.PyCdlib(), io.BytesIO()
    medium.open_fp(io.BytesIO(image))
    try:
        medium.get_file_from_iso_fp(out, **(form or {"joliet_path": path}))
    finally:
        medium.close()
    return out.getvalue()


def test_files_are_there_by_both_kinds_of_names() -> None:
    files = {"user-data": b"#!/bin/sh\n", "openstack/latest/meta_data.json": b"{}", "openstack/content/0": b"zero"}
    image = iso.build("config-2", files)
    assert image[LABEL].decode().strip() == "config-2"
    for path, content in files.items():
        assert read(image, f"/{path}") == content
        assert read(image, "", rr_path=f"/{path}") == content


def test_a_medium_without_files_is_one() -> None:
    assert iso.build("cfgdata", {})[LABEL].decode().strip() == "cfgdata"


def test_a_name_is_cut_for_windows_alone() -> None:
    name = "k" * 200
    image = iso.build("cfgdata", {name: b"long"})
    assert read(image, f"/{name[:64]}") == b"long"
    assert read(image, "", rr_path=f"/{name}") == b"long"


def test_two_names_that_windows_could_not_tell_apart_are_refused() -> None:
    with pytest.raises(IsoError, match="rename one"):
        iso.build("cfgdata", {"k" * 64 + "a": b"", "k" * 64 + "b": b""})


def test_too_much_data_is_refused_with_both_numbers() -> None:
    with pytest.raises(IsoError, match=f"{iso.MAX_BYTES + 1} bytes, and .* at most {iso.MAX_BYTES}"):
        iso.build("cfgdata", {"big": b"x" * (iso.MAX_BYTES + 1)})


@pytest.mark.parametrize("label", ["x" * 33, "a\nb", "é"])
def test_a_label_that_no_volume_can_have_is_refused(label: str) -> None:
    with pytest.raises(IsoError, match="volume label"):
        iso.build(label, {})
