"""The NoCloud medium."""

import base64
import io
import json

import pycdlib
import pytest
from pycdlib.pycdlibexception import PyCdlibInvalidInput

from anyvisor.agent.volumes import cloudinit
from anyvisor.agent.volumes.cloudinit import CloudInitError, NoCloud


def read(image: bytes, name: str) -> bytes:
    iso, out = pycdlib.PyCdlib(), io.BytesIO()
    iso.open_fp(io.BytesIO(image))
    try:
        iso.get_file_from_iso_fp(out, joliet_path=f"/{name}")
    finally:
        iso.close()
    return out.getvalue()


def test_inline_data_becomes_files() -> None:
    source = {"userData": "#cloud-config\n", "networkDataBase64": base64.b64encode(b"version: 2\n").decode()}
    files = cloudinit.from_source(source, "uid-1", "web")
    assert files.user_data == b"#cloud-config\n"
    assert files.network_data == b"version: 2\n"
    assert json.loads(files.meta_data) == {"instance-id": "uid-1", "local-hostname": "web"}


def test_the_medium_has_the_name_that_cloud_init_looks_for() -> None:
    image = cloudinit.iso(NoCloud(b"#!/bin/sh\n", b"version: 2\n", b"{}"))
    assert image[32808:32840].decode().strip() == "cidata"
    assert read(image, "user-data") == b"#!/bin/sh\n"
    assert read(image, "network-config") == b"version: 2\n"
    assert read(image, "meta-data") == b"{}"


def test_without_network_data_there_is_no_such_file() -> None:
    image = cloudinit.iso(NoCloud(b"", b"", b"{}"))
    with pytest.raises(PyCdlibInvalidInput):
        read(image, "network-config")


def test_what_is_no_base64_names_its_field() -> None:
    with pytest.raises(CloudInitError) as caught:
        cloudinit.from_source({"userDataBase64": "%%%"}, "i", "h")
    assert caught.value.field == "userDataBase64"


def test_data_is_capped() -> None:
    with pytest.raises(CloudInitError, match="at most"):
        cloudinit.from_source({"userData": "x" * (1 << 21)}, "i", "h")
