"""Image archives: the same from the same input, and readable by others."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tools.images import application, oci

CONFIG = oci.Config(entrypoint=("/bin/a",), user="107", labels={"b": "2", "a": "1"}, stop_signal="SIGURG")


def write(target: Path) -> str:
    base = target.with_suffix(".layer")
    base.write_bytes(oci.files_layer({"/etc/base": b"base"}).content)  # pyright: ignore[reportArgumentType]
    layers = [oci.Layer(base), oci.files_layer({"/bin/a": b"#!/bin/sh\n"}, executable=True)]
    return oci.write(target, "localhost/a:1", layers, CONFIG)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "1.tar", tmp_path / "2.tar"
    assert write(first) == write(second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_others_read_it(tmp_path: Path) -> None:
    digest = write(tmp_path / "a.tar")
    done = subprocess.run(
        ["skopeo", "inspect", f"oci-archive:{tmp_path / 'a.tar'}"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["Digest"] == digest
    assert len(found["Layers"]) == 2
    assert found["Labels"] == {"a": "1", "b": "2"}


def test_the_application_holds_what_components_import_and_no_more(tmp_path: Path) -> None:
    layer = application.layer()
    (tmp_path / "layer.tar").write_bytes(layer.content)  # pyright: ignore[reportArgumentType]
    with tarfile.open(tmp_path / "layer.tar") as tar:
        names = tar.getnames()
        tar.extractall(tmp_path / "root", filter="data")
    assert not any("anyvisor/embedded" in name or "anyvisor/cli/" in name or "kubectl" in name for name in names)
    site = tmp_path / "root" / application.SITE.strip("/")
    script = (
        f"import sys; sys.path.insert(0, {str(site)!r}); "
        "from anyvisor.cluster import agent, controller, driver, gateway; from anyvisor.hri.packages import load; "
        "load('qemu'); print(sys.modules['aiohttp'].__file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout
