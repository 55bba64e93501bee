"""A libvirt daemon of a test's own."""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

NOBODY = 65534
SECONDS = 60.0
PATH = f"{os.environ['PATH']}:/usr/sbin"


class Daemon:
    """An unprivileged libvirtd with its state in `directory`; root's own would be the system's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = directory / "run" / "libvirt" / "libvirt-sock"
        config = directory / "home" / ".config" / "libvirt"
        for path in (config, directory / "run"):
            path.mkdir(parents=True)
        # The driver has a user of its own.
        (config / "libvirtd.conf").write_text('unix_sock_rw_perms = "0777"\nauth_unix_rw = "none"\n')
        if os.geteuid() == 0:
            directory.parent.chmod(0o711)
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(directory)], check=True)

    @property
    def uri(self) -> str:
        """How to reach it."""
        return f"qemu+unix:///session?socket={self.socket}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {
            "HOME": str(self._directory / "home"),
            "XDG_RUNTIME_DIR": str(self._directory / "run"),
            "PATH": PATH,
        }
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*drop, "libvirtd"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < deadline, "libvirtd does not answer"
            time.sleep(0.05)
        with contextlib.suppress(PermissionError):
            self.socket.parent.chmod(0o711)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def stop(self) -> None:
        """End it; domains go on."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)

    def virsh(self, *words: str) -> str:
        """What another client of the same daemon sees or does."""
        command = ["virsh", "--quiet", "-c", self.uri, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout

    def domains(self) -> list[str]:
        """Names of all domains, also of those that do not run."""
        return self.virsh("list", "--all", "--name").split()

    def clear(self) -> None:
        """End and forget all domains."""
        for name in self.domains():
            for verb in ("destroy", "undefine"):
                with contextlib.suppress(subprocess.CalledProcessError):
                    self.virsh(verb, name)


def missing() -> str:
    """Why there can be no daemon here; empty when there can."""
    for program, package in (("libvirtd", "libvirt-daemon"), ("virsh", "libvirt-clients"), ("setpriv", "util-linux")):
        if shutil.which(program, path=PATH) is None:
            return f"{program} is not installed (Debian: apt-get install {package})"
    if importlib.util.find_spec("libvirt") is None:
        return "libvirt-python is not installed (pip install 'anyvisor[libvirt]', with Debian's libvirt-dev)"
    return ""
