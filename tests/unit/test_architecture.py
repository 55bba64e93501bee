"""The arrows between rooms, and the words that core code may not know (docs/architecture.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "anyvisor"
ROOMS = {
    "api": set[str](),
    "admission": {"api"},
    "planning": {"api"},
    "kube": {"api"},
    "launcher": set[str](),
    "hri": {"planning"},
    "drivers": {"hri"},
    "controller": {"api", "planning", "kube"},
    "gateway": {"api", "admission", "planning", "kube"},
    "agent": {"api", "planning", "hri", "kube", "launcher"},
    "embedded": {"api", "admission", "planning", "kube", "launcher", "hri", "controller", "gateway", "agent"},
    "cluster": {"api", "admission", "planning", "kube", "launcher", "hri", "controller", "gateway", "agent"},
    "cli": {"api", "admission", "planning", "kube", "hri", "agent", "embedded", "cluster"},
}
PURE = ("api", "admission", "planning")
# Modules that a pure room may not import: what does I/O, and what tells the time.
IMPURE = {
    *("asyncio", "socket", "subprocess", "shutil", "tempfile", "threading", "multiprocessing", "selectors", "select"),
    *("time", "http", "urllib.request", "aiohttp", "grpclib", "sqlite3", "random", "secrets", "pathlib", "io"),
}
# Programs, not rooms' logic: `python -m` entry points that write generated files.
GENERATORS = {SRC / "api" / "crd.py", SRC / "api" / "__main__.py"}
CORE = ("admission", "planning", "controller", "gateway", "agent", "embedded", "cluster", "kube")
VMM_NAMES = re.compile(r"qemu|libvirt|cloud.?hypervisor|\bqmp\b|firecracker|crosvm|user.mode.linux", re.IGNORECASE)
# Wire names of the served API, Debian packages that guests get, and the format's own documentation.
ALLOWED_NAMES = re.compile(
    r"/var/run/libvirt|LibvirtHooksServerAndClient|libvirt-log-filters|libvirt-runtime|qemuGuestAgent|QemuGuestAgent|QEMUGuestAgent|org\.qemu\.guest_agent|qemu_guest_agent|qemu-guest-agent|https://www\.qemu\.org/docs"
)


def modules(room: str) -> Iterator[Path]:
    yield from sorted((SRC / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.lineno, node.module or ""
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def test_every_room_is_in_the_table() -> None:
    found = {path.parent.name for path in SRC.glob("*/__init__.py")} - {"web"}
    assert found <= set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_arrows(room: str) -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line} imports {name}"
        for path in modules(room)
        for line, name in imports(path)
        if name.startswith("anyvisor.") and (target := name.split(".")[1]) != room and (SRC / target).is_dir()
        if target not in ROOMS[room]
    ]
    assert wrong == []


def test_drivers_do_not_know_each_other() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line} imports {name}"
        for path in modules("drivers")
        for line, name in imports(path)
        if name.startswith("anyvisor.drivers.") and name.split(".")[2] != path.relative_to(SRC / "drivers").parts[0]
    ]
    assert wrong == []


def pure_modules() -> list[Path]:
    translations = [path for path in modules("drivers") if "translate" in str(path.relative_to(SRC))]
    return [path for room in PURE for path in modules(room) if path not in GENERATORS] + translations


def test_pure_rooms_do_no_io_and_know_no_clock() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line} imports {name}"
        for path in pure_modules()
        for line, name in imports(path)
        if name in IMPURE or name.split(".")[0] in IMPURE
    ]
    assert wrong == []


def test_the_shim_stands_alone_on_a_minimal_python() -> None:
    lacking = {"json", "ctypes", "resource", "secrets", "dataclasses", "anyvisor", "typing"}
    wrong = [
        f"shim.py:{line} imports {name}"
        for line, name in imports(SRC / "launcher" / "shim.py")
        if name.split(".")[0] in lacking
    ]
    assert wrong == []


def test_core_code_names_no_vmm() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{number}: {line.strip()}"
        for room in CORE
        for path in (SRC / room).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if VMM_NAMES.search(ALLOWED_NAMES.sub("", line))
    ]
    assert wrong == []
