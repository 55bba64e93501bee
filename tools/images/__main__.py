"""`python -m tools.images [--out DIR] [--registry NAME] [IMAGE ...]`: make the images as OCI archives.

anyvisor          our components (controller, gateway, agent)
driver-NAME       the driver's process, with the VMM that it asks for its facts
launcher-NAME     the launcher: the VMM and the shim, on python3-minimal

No Debian package brings Cloud Hypervisor: its images are made where ANYVISOR_CLOUD_HYPERVISOR names the program (and
ANYVISOR_CLOUD_HYPERVISOR_FIRMWARE a firmware, if machines are to boot by one).
"""

import argparse
import filecmp
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anyvisor import __version__
from anyvisor.hri import versions
from tools.images import application, oci, rootfs

DEFAULT_REGISTRY: Final = "ghcr.io/anyvisor"
_COMPONENT: Final = ("/usr/bin/python3", "-I", "-c", "import runpy,sys;sys.path.insert(0,'/opt/anyvisor');"
                     "sys.argv[0]='anyvisor';runpy.run_module('anyvisor.cluster',run_name='__main__')")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Image:
    """What an image is made of."""

    packages: tuple[str, ...]
    title: str
    user: str
    application: bool
    stop_signal: str = ""
    program: str = ""
    """The environment's variable that names a program to put in, which no package brings."""
    small: bool = False
    """Only what the packages hold and need: no shell's tools, no package manager's state."""


_CLOUD_HYPERVISOR: Final = "ANYVISOR_CLOUD_HYPERVISOR"
_FIRMWARE: Final = "ANYVISOR_CLOUD_HYPERVISOR_FIRMWARE"
IMAGES: Final = {
    "anyvisor": Image(("python3", "nftables", "iproute2"), "Anyvisor's components", "65532", application=True),
    # The driver looks for the same programs in its own image as the launcher runs.
    "driver-qemu": Image(
        ("python3", "qemu-system-x86", "ovmf", "swtpm"), "Anyvisor's driver for QEMU", "65532", application=True
    ),
    # A VMM that is PID 1 would end at SIGTERM at once, a power cut for its guest: it takes no notice of SIGURG. The
    # static busybox copies disks out of images that hold nothing else.
    "launcher-qemu": Image(
        ("python3-minimal", "qemu-system-x86", "ovmf", "swtpm", "busybox-static"), "Launcher for QEMU", "107",
        application=False, stop_signal="SIGURG",
    ),
    "driver-cloud-hypervisor": Image(
        ("python3", "libgcc-s1"), "Anyvisor's driver for Cloud Hypervisor", "65532", application=True,
        program=_CLOUD_HYPERVISOR,
    ),
    "launcher-cloud-hypervisor": Image(
        ("python3-minimal", "libgcc-s1", "dash", "busybox-static"), "Launcher for Cloud Hypervisor", "107",
        application=False, stop_signal="SIGURG", program=_CLOUD_HYPERVISOR, small=True,
    ),
}  # fmt: skip


def offered() -> list[str]:
    """The images that can be made here."""
    return [name for name, image in IMAGES.items() if not image.program or os.environ.get(image.program)]


def cache() -> Path:
    """Where file systems are kept."""
    base = os.environ.get("ANYVISOR_CACHE") or Path.home() / ".cache" / "anyvisor"
    return Path(base) / "images"


def build(
    name: str,
    out: Path,
    registry: str,
    *,
    tag: str = __version__,
    source: Path = application.SOURCE,
    kept: Path | None = None,
) -> Path:
    """Make one image, with our code from a checkout of it; its archive. The bill of materials lies beside it.

    File systems are kept in the cache, or where `kept` says.
    """
    image = IMAGES[name]
    base = rootfs.build(image.packages, kept or cache(), small=image.small)
    layers = [oci.Layer(base), *programs(name)]
    code = application.layer(source) if image.application else application.launcher_layer(source)
    config = oci.Config(
        entrypoint=_COMPONENT if image.application else (),
        user=image.user,
        stop_signal=image.stop_signal,
        labels={
            "org.opencontainers.image.title": image.title,
            "org.opencontainers.image.version": __version__,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "io.anyvisor.hri.minor": f"{versions.MINOR}",
        },
    )
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"{name}.tar"
    digest = oci.write(archive, f"{registry}/{name}:{tag}", [*layers, code], config)
    (out / f"{name}.spdx.json").write_text(json.dumps(bill(name, digest, base, image), indent=1) + "\n")
    print(f"{registry}/{name}:{tag} {digest} {archive} {archive.stat().st_size / 1e6:.0f} MB", flush=True)
    return archive


def programs(name: str) -> list[oci.Layer]:
    """What the environment names, at the places where the driver looks for it. Raises rootfs.CannotBuildError."""
    variable = IMAGES[name].program
    if not variable:
        return []
    program, firmware = (Path(os.environ.get(each, "")) for each in (variable, _FIRMWARE))
    if not os.environ.get(variable):
        raise rootfs.CannotBuildError(f"{name}: no package brings its program, so name it in {variable}")
    if not program.is_file():
        raise rootfs.CannotBuildError(f"{name}: {variable} names {program}, which is no file")
    layers = [oci.files_layer({"/usr/local/bin/cloud-hypervisor": program}, executable=True)]
    if firmware.is_file():
        layers.append(oci.files_layer({f"/usr/share/cloud-hypervisor/{firmware.name}": firmware}))
    return layers


def bill(name: str, digest: str, base: Path, image: Image) -> dict[str, Any]:
    """The bill of materials (SPDX 2.3): Debian's packages and Python's."""
    listed = [(f"deb-{one.name}", one.name, one.version) for one in rootfs.contents(base)]
    if image.program:
        content = hashlib.sha256(Path(os.environ[image.program]).read_bytes()).hexdigest()
        listed.append(("program", "cloud-hypervisor", f"sha256:{content}"))
    if image.application:
        listed += [(f"python-{one.name}", one.name, one.version) for one in application.distributions()]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://anyvisor.io/spdx/{name}/{digest}",
        "creationInfo": {"created": "2023-11-14T22:13:20Z", "creators": ["Tool: anyvisor-images"]},
        "packages": [
            {
                "SPDXID": f"SPDXRef-{identity}",
                "name": package,
                "versionInfo": version,
                "downloadLocation": "NOASSERTION",
                "filesAnalyzed": False,
            }
            for identity, package, version in listed
        ],
    }


def is_reproducible(name: str, archive: Path, registry: str) -> bool:
    """Whether a build with an empty cache makes the same bytes."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        again = build(name, Path(place), registry, kept=Path(place) / "cache")
        return filecmp.cmp(archive, again, shallow=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the named images, or all."""
    parser = argparse.ArgumentParser(prog="python -m tools.images", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/images"))
    parser.add_argument("--registry", default=DEFAULT_REGISTRY)
    parser.add_argument("--verify", action="store_true", help="make each from nothing once more, and compare")
    parser.add_argument("images", nargs="*", metavar="IMAGE")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.images if name not in IMAGES]
    if unknown:
        parser.error(f"no such image: {', '.join(unknown)}; there are {', '.join(IMAGES)}")
    try:
        for name in options.images or offered():
            archive = build(name, options.out, options.registry)
            if options.verify and not is_reproducible(name, archive, options.registry):
                print(f"{name}: two builds of the same packages and the same code differ", file=sys.stderr)
                return 1
    except rootfs.CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    for name in () if options.images else sorted(IMAGES.keys() - set(offered())):
        print(f"{name} is left out: no package brings its program; name it in {IMAGES[name].program}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
