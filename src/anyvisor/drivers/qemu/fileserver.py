"""Which server for shared directories this node has, and whether it can be confined here."""

import asyncio
import os
from typing import Final

from anyvisor.drivers.qemu.translate.filesystems import INSTALL
from anyvisor.drivers.qemu.translate.host import FileServer

SERVERS: Final = (FileServer("/usr/libexec/virtiofsd", own=False), FileServer("/usr/lib/qemu/virtiofsd"))
"""The one that stands alone, in Rust, and the one that came with QEMU until 8.0; where Debian has them."""
IN_NAMESPACE: Final = ("/usr/bin/unshare", "--user", "--map-root-user", "--", "/usr/bin/true")
"""What works where this process, and so a launcher, may be in a user namespace of its own."""
_SECONDS: Final = 10.0


def installed() -> str:
    """The server's path, empty when there is none."""
    found = _installed()
    return found.path if found else ""


def _installed() -> FileServer | None:
    return next((server for server in SERVERS if os.access(server.path, os.X_OK)), None)


async def find() -> tuple[FileServer | None, str]:
    """The server, or the sentence that says why none can be used."""
    server = _installed()
    if server is None:
        return None, f"no server for shared directories is installed on this node: {INSTALL}"
    code, reason = await _run(*IN_NAMESPACE)
    if code:
        return None, (
            "shared directories need user namespaces, which the driver's process may not make "
            f"({reason.decode(errors='replace').strip()[:200]}): allow them by sysctl (user.max_user_namespaces, "
            "kernel.apparmor_restrict_unprivileged_userns); the default seccomp profile of pods forbids them"
        )
    return server, ""


async def _run(*command: str) -> tuple[int, bytes]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={},
    )
    try:
        async with asyncio.timeout(_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 1, b"it does not answer"
    return process.returncode or 0, said
