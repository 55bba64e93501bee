"""A directory of root's for another user, and a user namespace in which that user is root.

The directory is a mount of its own that is nowhere to be found, with owners translated: what the launcher's user, which
is another with each pod, writes there belongs to root on the disk, and files of anybody else are not its own. See
mount_setattr(2), ID-mapped mounts; a file system that lacks them cannot be shared.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from anyvisor.agent import linux
from anyvisor.agent.launchers import SharedDirectory

_HOLDER: Final = ("/usr/bin/unshare", "--user", "--", "/usr/bin/cat")
"""A process in a user namespace of its own, which ends with its standard input; it has answered once it is there."""
_SECONDS: Final = 10.0


async def for_user(directory: int, uid: int, gid: int, *, read_only: bool) -> SharedDirectory:
    """The directory for `uid`, whose files there are root's; both descriptors are the caller's to close. Needs root.

    Raises:
        OSError: the file system cannot translate owners, or there are no user namespaces.
    """
    async with _namespace(uid, gid) as namespace:
        mount = linux.detached_mount(directory, namespace, read_only=read_only)
        try:
            return SharedDirectory(mount, os.dup(namespace))
        except OSError:
            os.close(mount)
            raise


@asynccontextmanager
async def _namespace(uid: int, gid: int) -> AsyncGenerator[int]:
    """A user namespace that belongs to `uid`, which is root in it and alone."""
    become = ("/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--")
    holder = await asyncio.create_subprocess_exec(
        *become, *_HOLDER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={}
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        async with asyncio.timeout(_SECONDS):
            holder.stdin.write(b"\n")
            if await holder.stdout.readline() != b"\n":
                raise OSError(1, "user namespaces cannot be made here; raise user.max_user_namespaces by sysctl")
        _translate(holder.pid, uid, gid)
        namespace = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield namespace
        finally:
            os.close(namespace)
    finally:
        holder.stdin.close()
        await holder.wait()


def _translate(holder: int, uid: int, gid: int) -> None:
    for name, outside in (("uid_map", uid), ("gid_map", gid)):
        Path(f"/proc/{holder}/{name}").write_text(f"0 {outside} 1\n")
