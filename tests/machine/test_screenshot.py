"""A picture of the display of a real VMM, over its socket."""

import asyncio
import shutil
import struct
from pathlib import Path

import pytest

from anyvisor.gateway.picture import take_picture
from tests.ends import TcpEnd

QEMU = shutil.which("qemu-system-x86_64")


async def connected(path: Path) -> TcpEnd:
    async with asyncio.timeout(20):
        while True:
            try:
                return TcpEnd(*await asyncio.open_unix_connection(path))
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.05)


@pytest.mark.skipif(QEMU is None, reason="qemu-system-x86_64 is not installed (make system)")
async def test_the_screen_of_a_machine_that_has_not_started(rundir: Path) -> None:
    assert QEMU is not None
    path = rundir / "vnc"
    machine = ["-machine", "q35,accel=tcg", "-m", "32", "-S", "-nodefaults", "-vga", "std"]
    vmm = await asyncio.create_subprocess_exec(QEMU, *machine, "-display", "none", "-vnc", f"unix:{path}")
    try:
        picture = await take_picture(await connected(path), move_cursor=True)
    finally:
        vmm.kill()
        await vmm.wait()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    assert width >= 320
    assert height >= 200
