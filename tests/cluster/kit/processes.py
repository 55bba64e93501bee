"""Processes of a test cluster: each with a log file, and ended with the test run whatever becomes of it."""

import contextlib
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_HARD = resource.getrlimit(resource.RLIMIT_AS)[1]
# Also after kill -9 of the test run, nothing stays behind. A limit of the test run's own memory is not theirs.
_ENDS_WITH_US = (
    "prlimit",
    f"--as={'unlimited' if _HARD == resource.RLIM_INFINITY else _HARD}:",
    *("setpriv", "--pdeathsig", "KILL", "--"),
)


class Processes:
    """Named processes that log below one folder."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        logs.mkdir(parents=True, exist_ok=True)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> int:
        """Start a process; its pid."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [*_ENDS_WITH_US, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )
        self._running[name] = process
        return process.pid

    def log(self, name: str) -> Path:
        """Where the process writes."""
        return self.logs / f"{name}.log"

    def alive(self, name: str) -> bool:
        """Whether the process runs."""
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def pid(self, name: str) -> int:
        """The pid of a process that was started."""
        return self._running[name].pid

    def send(self, name: str, number: int) -> None:
        """Send a signal."""
        self._running[name].send_signal(number)

    def stop(self, name: str, seconds: float = 20) -> None:
        """End a process, at last by force; nothing if it was never started."""
        process = self._running.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop_all(self, *, force: bool = True) -> None:
        """End everything, the last started first; test data needs no orderly end."""
        for name in reversed(list(self._running)):
            if force:
                with contextlib.suppress(KeyError):
                    self.kill(name)
            else:
                self.stop(name)

    def tail(self, name: str, size: int = 3000) -> str:
        """The end of a process's log."""
        path = self.log(name)
        return path.read_text(errors="replace")[-size:] if path.exists() else ""
