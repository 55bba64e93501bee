"""The official Kubernetes, built from its Go modules into a cache that outlives the checkout.

`python -m tests.cluster.kit.build [apiserver] [components] [runtime]` builds what is named, or all, and prints
the folder of the programs. What is there already, built from the same sources by the same compiler, is not built
again: a second call takes no time. Go modules come through the ordinary client; nothing of them is kept here but the
locked list of their versions.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

VERSION = "1.37.2"
CONTAINERD = "2.4.2"
HERE = Path(__file__).parent
MODULES = HERE / "go"
NICE = ("nice", "-n", "15")


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


_KUBERNETES_FLAGS = " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in (
        ("gitVersion", f"v{VERSION}"),
        ("gitMajor", VERSION.split(".")[0]),
        ("gitMinor", VERSION.split(".")[1]),
        ("gitTreeState", "clean"),
    )
)
_CTD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins/plugins"
TARGETS: Mapping[str, Target] = {
    "apiserver": Target(
        "kubernetes", ("./apiserver",), ("etcd", "kube-apiserver"), "selinux,notest", _KUBERNETES_FLAGS
    ),
    "components": Target(
        "kubernetes",
        ("./components",),
        ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"),
        "selinux,notest",
        _KUBERNETES_FLAGS,
    ),
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
}


def cache() -> Path:
    """The folder of the programs of this version."""
    base = os.environ.get("ANYVISOR_CACHE") or Path.home() / ".cache" / "anyvisor"
    return Path(base) / "kubernetes" / VERSION


def programs(target: Target) -> list[str]:
    """Names of a target's programs, relative to the cache."""
    names = target.links or tuple(package.rsplit("/", 1)[-1] for package in target.packages)
    return [str(Path(target.folder, name)) for name in names]


def is_built(name: str) -> bool:
    """Whether the target is in the cache, built from the sources as they are."""
    stamp = cache() / f".{name}"
    present = all((cache() / program).exists() for program in programs(TARGETS[name]))
    return present and stamp.exists() and stamp.read_text() == _key(name)


def missing(names: Sequence[str]) -> list[str]:
    """Which of the targets are not built."""
    return [name for name in names if not is_built(name)]


def build(names: Sequence[str]) -> Path:
    """Build what is missing of the targets; the folder of the programs.

    Raises:
        CannotBuildError: Go is missing, or says why it fails.
    """
    place = cache()
    place.mkdir(parents=True, exist_ok=True)
    for name in missing(names):
        with (place / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_built(name):
                _build(name, place)
    return place


def _key(name: str) -> str:
    """What a build stands on: our sources and the locked versions (the compiler's is in go.mod)."""
    target, found = TARGETS[name], hashlib.sha256(repr(TARGETS[name]).encode())
    for path in sorted((MODULES / target.module).rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def _build(name: str, place: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise CannotBuildError(f"{name} is not in {place}, and building it needs Go, which is not installed here")
    target = TARGETS[name]
    folder = place / target.folder
    folder.mkdir(exist_ok=True)
    command = [*NICE, go, "build", "-trimpath", "-ldflags", f"-s -w {target.ldflags}", "-o", f"{folder}/"]
    command += ["-tags", target.tags] if target.tags else []
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0"}
    print(f"building {name} of Kubernetes {VERSION} into {folder}", file=sys.stderr, flush=True)
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
    (place / f".{name}").write_text(_key(name))


def main(arguments: Sequence[str]) -> int:
    """Build the named targets, or all."""
    unknown = [name for name in arguments if name not in TARGETS]
    if unknown:
        print(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    try:
        print(build(arguments or list(TARGETS)))
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
