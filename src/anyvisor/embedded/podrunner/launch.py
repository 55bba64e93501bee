"""Start a launcher: forked by the zygote, or as a program of its own where there is no zygote (tests)."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from anyvisor.embedded import system
from anyvisor.embedded.zygote_client import Launched, LaunchRequest, ZygoteClient, ZygoteError
from anyvisor.launcher import shim


class LaunchError(Exception):
    """A launcher did not start; the message is a sentence for the pod."""


class Launch(Protocol):
    """Starts one launcher."""

    async def __call__(self, request: LaunchRequest) -> Launched:
        """Raises LaunchError. The pidfd is the caller's to close."""
        ...


def by_zygote(path: Path) -> Launch:
    """Fork it from the zygote at `path`: nothing is imported or compiled anew."""
    client = ZygoteClient(path)

    async def launch(request: LaunchRequest) -> Launched:
        try:
            return await asyncio.to_thread(client.launch, request)
        except ZygoteError as error:
            raise LaunchError(f"the launcher could not be forked: {error}") from error

    return launch


def by_program(reaped: Callable[[int], None] = lambda _pid: None) -> Launch:
    """Run the shim's file with this Python."""

    async def launch(request: LaunchRequest) -> Launched:
        def prepare() -> None:
            for path in request.cgroup_procs:
                with open(path, "w") as file:
                    file.write(str(os.getpid()))
            if request.netns is not None:
                system.setns(request.netns, system.CLONE_NEWNET)
            system.become(request.uid, request.gid)
            system.forbid_new_privileges()

        try:
            process = await asyncio.to_thread(
                lambda: subprocess.Popen(
                    [sys.executable, "-I", "-S", shim.__file__, "run", request.directory],
                    stdin=subprocess.DEVNULL,
                    stdout=request.log,
                    stderr=request.log,
                    env={},
                    cwd="/",
                    start_new_session=True,
                    preexec_fn=prepare,
                )
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise LaunchError(f"the launcher could not be started: {error}") from error
        pidfd = os.pidfd_open(process.pid)
        _reap_at_end(process, reaped)
        return Launched(process.pid, pidfd)

    return launch


def _reap_at_end(process: "subprocess.Popen[bytes]", reaped: Callable[[int], None]) -> None:
    """Wait for the child when it ends, so that it leaves no zombie."""
    loop = asyncio.get_running_loop()
    watched = os.pidfd_open(process.pid)

    def ended() -> None:
        loop.remove_reader(watched)
        os.close(watched)
        process.wait()
        reaped(process.pid)

    loop.add_reader(watched, ended)
