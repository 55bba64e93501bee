"""A VM's display through the command line: a picture, and VNC on a local port; and its channels for USB devices."""

import contextlib
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import BIN, Instance, eventually, tiny_vm


@pytest.fixture(scope="module")
def screen(shared: Instance) -> Iterator[str]:
    """A VM with the display that the API gives every VM, and channels for USB devices of its user."""
    vm = tiny_vm("screen")
    vm["spec"]["template"]["spec"]["domain"]["devices"]["clientPassthrough"] = {}
    shared.apply(vm)
    shared.wait_phase("screen")
    yield "screen"
    shared.kubectl("delete", "vm", "screen")


def greeting(port: int) -> bytes:
    """What a VNC server says first."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as viewer:
        return viewer.recv(12, socket.MSG_WAITALL)


def never_reads(port: int) -> socket.socket:
    """A viewer that asks for the whole picture again and again and takes none of it; its connection, to be closed."""
    viewer = socket.create_connection(("127.0.0.1", port), timeout=20)
    viewer.recv(12, socket.MSG_WAITALL)
    viewer.sendall(b"RFB 003.008\n")
    viewer.recv(viewer.recv(1)[0], socket.MSG_WAITALL)
    viewer.sendall(b"\1")  # no authentication behind the gateway's
    viewer.recv(4, socket.MSG_WAITALL)
    viewer.sendall(b"\1")
    begun = viewer.recv(24, socket.MSG_WAITALL)
    viewer.settimeout(2)
    with contextlib.suppress(TimeoutError, ConnectionError):
        for _ in range(20_000):
            viewer.sendall(b"\3\0" + bytes(4) + begun[:4])
    return viewer


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

        before = shared.counter(screen)
        with never_reads(int(match[1])):
            eventually(lambda: shared.counter(screen) > before, 60, lambda: shared.story(screen))
            assert "wrote" in shared.cli("vnc", "screenshot", screen, "-f", str(file))
        assert greeting(int(match[1])) == b"RFB 003.008\n"
    finally:
        proxy.terminate()
        proxy.communicate(timeout=20)


def test_usb_devices_of_the_user_have_four_channels(shared: Instance, screen: str) -> None:
    command = [str(BIN / "anyvisor"), "--data-dir", str(shared.data_dir), "usbredir", screen, "--no-launch"]
    with contextlib.ExitStack() as ends:
        for _ in range(4):
            process = ends.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            ends.callback(process.terminate)
            assert process.stdout is not None
            match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert match is not None
            client = ends.enter_context(socket.create_connection(("127.0.0.1", int(match[1])), timeout=20))
            greeting = client.recv(12 + 64, socket.MSG_WAITALL)
            assert greeting[:4] == bytes(4), "a usbredir hello"
            assert b"usb-redir" in greeting[12:]
        said = shared.cli("usbredir", screen, "--no-launch", check=False)
        assert "all 4 channels for USB devices of this machine are in use" in said


def test_a_vm_without_a_display_says_so(shared: Instance) -> None:
    vm = tiny_vm("blind")
    vm["spec"]["template"]["spec"]["domain"]["devices"]["autoattachGraphicsDevice"] = False
    shared.apply(vm)
    shared.wait_phase("blind")
    assert "No graphics devices are present" in shared.cli("vnc", "screenshot", "blind", "-f", "-", check=False)
    assert "Not configured with USB Redirection" in shared.cli("usbredir", "blind", "--no-launch", check=False)
    assert shared.counter("blind") > 0
    shared.kubectl("delete", "vm", "blind")
