"""The official Kubernetes, built from its Go modules into a cache that outlives the checkout.

`python -m tests.cluster.kit.build [--beside] [TARGET ...]` builds what is named, or all of the newest version, and
prints the folder of the programs; `api` stands for what the tests without nodes need. What is there already, built from
the same sources by the same compiler, is not built again: a second call takes no time. Go modules come through the
ordinary client; nothing of them is kept here but the locked list of their versions.

With `--beside` it takes only what nobody else wants of the processors, so that tests may run meanwhile; those that need
the programs wait for it (`wait_for_build`).
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

VERSION = "1.37.2"
OLDER = ("1.36.3", "1.35.4")
"""Of these, only the API server; etcd is that of the newest version."""
CONTAINERD = "2.4.2"
HERE = Path(__file__).parent
MODULES = HERE / "go"
NICE = ("nice", "-n", "15")
NEEDED_BYTES = 10 << 30
"""On the disk, for modules, objects and programs of a build that starts from nothing."""
WAIT_SECONDS = 600.0
_LOOK_SECONDS = 1.0


class CannotBuildError(Exception):
    """What is missing, and why it cannot be built here."""


@dataclass(frozen=True, slots=True)
class Target:
    """Some programs of one Go module; `links` names those that one binary acts as."""

    module: str
    packages: tuple[str, ...]
    links: tuple[str, ...] = ()
    tags: str = ""
    ldflags: str = ""
    folder: str = ""
    version: str = VERSION


_LOCK = ".building"
API = ("apiserver", "controllers")
"""What the tests without nodes need."""


def _kubernetes(version: str, package: str, *links: str, module: str = "kubernetes") -> Target:
    major, minor, _ = version.split(".")
    said = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in said.items())
    return Target(module, (f"./{package}",), links, "selinux,notest", flags, version=version)


_CTD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins/plugins"
TARGETS: Mapping[str, Target] = {
    "apiserver": _kubernetes(VERSION, "apiserver", "etcd", "kube-apiserver"),
    "controllers": _kubernetes(VERSION, "controllers", "kube-controller-manager", "kube-scheduler"),
    "node": _kubernetes(VERSION, "node", "kubelet", "kube-proxy"),
    "runtime": Target(
        "containerd",
        tuple(f"{_CTD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
        tags="no_btrfs,no_devmapper,no_zfs",
        ldflags=f"-X {_CTD}/version.Version={CONTAINERD}",
        folder="runtime",
    ),
    "cni": Target(
        "containerd",
        tuple(f"{_CNI}/{name}" for name in ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")),
        folder="cni",
    ),
    **{
        f"apiserver-{version}": _kubernetes(
            version, "apiserver", "kube-apiserver", module=f"kubernetes-{version.rpartition('.')[0]}"
        )
        for version in OLDER
    },
}
DEFAULT = tuple(name for name, target in TARGETS.items() if target.version == VERSION)


def cache(version: str = VERSION) -> Path:
    """The folder of the programs of a version."""
    base = os.environ.get("ANYVISOR_CACHE") or Path.home() / ".cache" / "anyvisor"
    return Path(base) / "kubernetes" / version


def programs(target: Target) -> list[str]:
    """Names of a target's programs, relative to the cache."""
    names = target.links or tuple(package.rsplit("/", 1)[-1] for package in target.packages)
    return [str(Path(target.folder, name)) for name in names]


def is_built(name: str) -> bool:
    """Whether the target is in the cache, built from the sources as they are."""
    target = TARGETS[name]
    place = cache(target.version)
    stamp = _stamp(place, name)
    present = all((place / program).exists() for program in programs(target))
    return present and stamp.exists() and stamp.read_text() == _key(name)


def _stamp(place: Path, name: str) -> Path:
    return place / f".{name}.key"


def missing(names: Sequence[str]) -> list[str]:
    """Which of the targets are not built."""
    return [name for name in names if not is_built(name)]


def build(names: Sequence[str]) -> Path:
    """Build what is missing of the targets, all of one version; the folder of the programs.

    Raises:
        CannotBuildError: Go or room on the disk is missing, or says why it fails.
    """
    place = cache(TARGETS[names[0]].version)
    if missing(names):
        place.mkdir(parents=True, exist_ok=True)
        with _building(place):
            for name in missing(names):
                _build(name, place)
    return place


@contextmanager
def _building(place: Path) -> Generator[None]:
    """One build at a time in a folder: held until all that was asked for is there."""
    with (place / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def wait_for_build(names: Sequence[str], seconds: float = WAIT_SECONDS) -> bool:
    """Wait while somebody builds in the targets' folder, so long and no longer; whether all of them are there then."""
    lock = cache(TARGETS[names[0]].version) / _LOCK
    deadline = time.monotonic() + seconds
    while missing(names) and _is_held(lock) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return not missing(names)


def _is_held(path: Path) -> bool:
    try:
        with path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def fetch(names: Sequence[str]) -> None:
    """Have the modules of what is missing; a failure is left to the build, which says why.

    Not beside others: it holds locks of the module cache, for which their builds would wait.
    """
    go = shutil.which("go")
    for module in dict.fromkeys(TARGETS[name].module for name in missing(names)) if go else ():
        subprocess.run([str(go), "mod", "download"], cwd=MODULES / module, capture_output=True, check=False)


def step_aside() -> None:
    """Have this process and those that it starts run only where nobody else would.

    Niceness counts within a session only where the kernel groups by sessions, so the session's group steps aside too.
    """
    os.nice(19)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")


def _key(name: str) -> str:
    """What a build stands on: our sources and the locked versions (the compiler's is in go.mod)."""
    target, found = TARGETS[name], hashlib.sha256(repr(TARGETS[name]).encode())
    module = MODULES / target.module
    own = [module / package for package in target.packages if package.startswith("./")]
    for path in sorted([*module.glob("*.*"), *(file for folder in own for file in folder.glob("*.go"))]):
        found.update(path.read_bytes())
    return found.hexdigest()


def _build(name: str, place: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise CannotBuildError(f"{name} is not in {place}, and building it needs Go, which is not installed here")
    if shutil.disk_usage(place).free < NEEDED_BYTES:
        raise CannotBuildError(f"{name} is not in {place}, and building it needs {NEEDED_BYTES >> 30} GiB on the disk")
    target = TARGETS[name]
    folder = place / target.folder
    folder.mkdir(exist_ok=True)
    command = [*NICE, go, "build", "-trimpath", "-ldflags", f"-s -w {target.ldflags}", "-o", f"{folder}/"]
    command += ["-tags", target.tags] if target.tags else []
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0"}
    print(f"building {name} of Kubernetes {target.version} into {folder}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [*command, *target.packages],
        cwd=MODULES / target.module,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotBuildError(f"{name}: go build failed:\n{done.stderr[-4000:]}")
    for link in target.links:
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(target.packages[0].removeprefix("./"))
    _stamp(place, name).write_text(_key(name))


def main(arguments: Sequence[str]) -> int:
    """Build the named targets, or all of the newest version."""
    beside = "--beside" in arguments
    words = [word for word in arguments if word != "--beside"]
    names = [name for word in words for name in (API if word == "api" else (word,))] or list(DEFAULT)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"no such target: {', '.join(unknown)}; there are api, {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if beside:
        fetch(names)
        step_aside()
    try:
        for version in dict.fromkeys(TARGETS[name].version for name in names):
            print(build([name for name in names if TARGETS[name].version == version]))
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
