"""The instance as systemd units: one for the control plane, one that shuts guests down when the host goes down.

The second starts before the first, and so is stopped after it: while guests go down, no controller starts them anew.
The control plane's unit ends no guest: only its own process is told to stop (`KillMode=process`), and a guest that runs
out of memory is no reason to stop it (`OOMPolicy=continue`). https://www.freedesktop.org/software/systemd/man/
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONTROL: Final = "anyvisor.service"
GUESTS: Final = "anyvisor-guests.service"
SHUTDOWN_SECONDS: Final = 300
_SYSTEMCTL_SECONDS: Final = 120


class ServiceError(Exception):
    """The service could not be changed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A systemd: the host's for root, else the user's own."""

    directory: Path
    """Where an administrator's units lie."""
    options: tuple[str, ...]
    """Of systemctl."""
    target: str
    """What is reached when the machine, or the user's session, is up."""
    running: bool
    """Whether it runs here; units can be written and enabled without."""


def manager() -> Manager:
    """The one for the caller."""
    if os.geteuid() == 0:
        running = Path("/run/systemd/system").is_dir()
        return Manager(Path("/etc/systemd/system"), (), "multi-user.target", running)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    running = bool(runtime) and Path(runtime, "systemd").is_dir()
    return Manager(Path(base) / "systemd/user", ("--user",), "default.target", running)


def units(data_dir: Path, options: tuple[str, ...], target: str) -> dict[str, str]:
    """The units' texts by their names: pure. `options` are those of `anyvisor up`."""
    program = _quoted(str(Path(sys.executable).with_name("anyvisor")), "--data-dir", str(data_dir))
    control = f"""\
[Unit]
Description=Anyvisor: the Kubernetes virtualization API on this machine
Documentation=https://kubevirt.io/api-reference/
After=network-online.target local-fs.target time-sync.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={program} up --stay {_quoted(*options)}
Restart=always
RestartSec=1
KillMode=process
OOMPolicy=continue
TimeoutStopSec=60
TasksMax=infinity
LimitNOFILE=1048576

[Install]
WantedBy={target}
"""
    guests = f"""\
[Unit]
Description=Anyvisor: shut guests down before this machine goes down
Before={CONTROL}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={_quoted(shutil.which("true") or "/usr/bin/true")}
ExecStop={program} service shutdown --timeout {SHUTDOWN_SECONDS}
TimeoutStopSec={SHUTDOWN_SECONDS + 60}
KillMode=process

[Install]
WantedBy={target}
"""
    return {CONTROL: control.replace(" \n", "\n"), GUESTS: guests}


def _quoted(*words: str) -> str:
    """Words of a command line in a unit: `%` and `$` mean nothing, blanks do not part them."""
    safe = [word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") for word in words]
    return " ".join(f'"{word}"' if any(char.isspace() or char in "\"'\\;" for char in word) else word for word in safe)


def install(where: Manager, data_dir: Path, options: tuple[str, ...]) -> list[str]:
    """Write, enable and start the units, as far as that is not so already; returns what was done.

    Raises:
        ServiceError: one of them could not be.
    """
    done: list[str] = []
    try:
        where.directory.mkdir(parents=True, exist_ok=True)
        for name, text in units(data_dir, options, where.target).items():
            path = where.directory / name
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
                done.append(f"wrote {path}")
    except OSError as error:
        raise ServiceError(f"{error.filename}: {error.strerror}") from error
    if where.running and done:
        _systemctl(where, "daemon-reload")
    for name in (CONTROL, GUESTS):
        if not _enabled(where, name):
            _systemctl(where, "enable", name)
            done.append(f"enabled {name}")
        if where.running and not _active(where, name):
            _systemctl(where, "start", name)
            done.append(f"started {name}")
    return done


def uninstall(where: Manager) -> list[str]:
    """Stop, disable and remove the units; guests go on. Returns what was done."""
    done: list[str] = []
    for name in (GUESTS, CONTROL):
        path = where.directory / name
        if not path.exists():
            continue
        if where.running and name == CONTROL and _active(where, name):
            _systemctl(where, "stop", name)
            done.append(f"stopped {name}")
        if _enabled(where, name):
            _systemctl(where, "disable", name)
            done.append(f"disabled {name}")
        path.unlink()
        done.append(f"removed {path}")
    if where.running and done:
        _systemctl(where, "daemon-reload")
    return done


@dataclass(frozen=True, slots=True)
class UnitState:
    """How a unit stands."""

    name: str
    installed: bool
    enabled: bool
    active: bool


def states(where: Manager) -> list[UnitState]:
    """Of both units."""
    found: list[UnitState] = []
    for name in (CONTROL, GUESTS):
        installed = (where.directory / name).exists()
        enabled = installed and _enabled(where, name)
        found.append(UnitState(name, installed, enabled, installed and where.running and _active(where, name)))
    return found


def _enabled(where: Manager, name: str) -> bool:
    return (where.directory / f"{where.target}.wants" / name).is_symlink()


def _active(where: Manager, name: str) -> bool:
    return _call(where, "is-active", "--quiet", name).returncode == 0


def _systemctl(where: Manager, *words: str) -> None:
    ended = _call(where, *words)
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip()[-500:]
        raise ServiceError(f"systemctl {' '.join(words)} failed: {said}")


def _call(where: Manager, *words: str) -> "subprocess.CompletedProcess[str]":
    # Without a running systemd, enabling works on the files alone, and needs no bus.
    offline = () if where.running else ("--root=/",) if not where.options else ()
    command = ["systemctl", *where.options, *offline, *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SYSTEMCTL_SECONDS, check=False)
    except FileNotFoundError as error:
        raise ServiceError("systemctl is not here: this machine is not run by systemd") from error
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"systemctl {' '.join(words)} did not end in {_SYSTEMCTL_SECONDS} s") from error
