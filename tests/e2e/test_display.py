"""A VM's display through the command line: a picture, and VNC on a local port."""

import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import BIN, Instance, tiny_vm


@pytest.fixture
def screen(shared: Instance):
    """A VM with the display that the API gives every VM."""
    shared.apply(tiny_vm("screen"))
    shared.wait_phase("screen")
    yield "screen"
    shared.kubectl("delete", "vm", "screen")


def greeting(port: int) -> bytes:
    """What a VNC server says first."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as viewer:
        return viewer.recv(12, socket.MSG_WAITALL)


def test_a_picture_and_a_viewer(shared: Instance, screen: str, tmp_path: Path) -> None:
    file = tmp_path / "screen.png"
    assert "wrote" in shared.cli("vnc", "screenshot", screen, "-f", str(file))
    picture = file.read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(picture[16:20]) >= 320

    command = [str(BIN / "anyvisor"), "--data-dir", str(shared.data_dir), "vnc", screen, "--proxy-only"]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=shared.environment)
    try:
        assert proxy.stdout is not None
        line = proxy.stdout.readline()
        match = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert match is not None, line
        assert greeting(int(match[1])) == b"RFB 003.008\n"
        assert shared.cli("vnc", "screenshot", screen, "-f", str(file))
        assert greeting(int(match[1])) == b"RFB 003.008\n"
    finally:
        proxy.terminate()
        proxy.communicate(timeout=20)


def test_a_vm_without_a_display_says_so(shared: Instance) -> None:
    vm = tiny_vm("blind")
    vm["spec"]["template"]["spec"]["domain"]["devices"]["autoattachGraphicsDevice"] = False
    shared.apply(vm)
    shared.wait_phase("blind")
    assert "No graphics devices are present" in shared.cli("vnc", "screenshot", "blind", "-f", "-", check=False)
    assert shared.counter("blind") > 0
    shared.kubectl("delete", "vm", "blind")
