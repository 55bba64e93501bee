"""`anyvisor run IMAGE`: a VM from an image, in one command."""

import argparse
import re
from typing import TYPE_CHECKING, Any

from anyvisor.cli.api import KUBEVIRT, ApiRefusalError, connect
from anyvisor.cli.lifecycle import WAIT_SECONDS, wait_for
from anyvisor.cli.main import CommandError

if TYPE_CHECKING:
    from anyvisor.embedded.images.store import Image


_EXISTS = 409


def configure(parser: argparse.ArgumentParser) -> None:
    """Name, size, hypervisor."""
    parser.add_argument("image", metavar="IMAGE", help="an imported image (see `anyvisor image list`)")
    parser.add_argument("--name", help="name of the VM (default: from the image)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("--memory", default="512Mi", help="guest memory (default: 512Mi)")
    parser.add_argument("--cpus", type=int, default=1, help="virtual CPUs (default: 1)")
    parser.add_argument("--persistent", action="store_true", help="a disk of its own that lasts as long as the VM")
    parser.add_argument("--disk-size", metavar="SIZE", help="of that disk, such as 10Gi (default: the image's)")
    parser.add_argument("--hypervisor", help="hypervisor class (default: the default class)")
    parser.add_argument("--user-data", metavar="FILE", help="file with cloud-init user data")
    parser.add_argument("--kernel-args", default="console=ttyS0", help="for images with a kernel of their own")
    parser.add_argument("--dry-run", action="store_true", help="print the manifest instead of creating it")
    parser.add_argument("--wait", action="store_true", help="return when the guest runs")


def run(arguments: argparse.Namespace) -> int:
    """Create it."""
    _check(arguments)
    image = _find(arguments.image)
    persistent = arguments.persistent or arguments.disk_size is not None
    size = disk_size(image, arguments.disk_size) if persistent else ""
    manifest = render(arguments, _kernel_paths(image), size)
    if arguments.dry_run:
        from anyvisor.cli.documents import to_yaml

        print(to_yaml(manifest), end="")
        return 0
    api = connect()
    name = manifest["metadata"]["name"]
    try:
        api.call("POST", f"{KUBEVIRT}/namespaces/{arguments.namespace}/virtualmachines", manifest)
    except ApiRefusalError as refusal:
        if refusal.status != _EXISTS:
            raise
        raise CommandError(f"there is a VM {name} already: give another name by --name") from refusal
    if arguments.wait:
        if size:
            from anyvisor.cli.filling import wait_for_disk

            wait_for_disk(api, arguments.namespace, disk_name(name))
        wait_for(
            api,
            arguments.namespace,
            name,
            lambda vmi: (vmi or {}).get("status", {}).get("phase") == "Running",
            "running",
            WAIT_SECONDS,
        )
    if size and not arguments.wait:
        print(f"VM {name} created; it starts when its disk is filled: `anyvisor why {name}` tells how far it is")
    else:
        print(f"VM {name} created; `anyvisor console {name}` shows its console")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Sizes in the command's own words: the server would speak of a manifest that nobody wrote."""
    from anyvisor.api.quantity import QuantityError, parse_quantity

    if arguments.cpus < 1:
        raise CommandError(f"--cpus {arguments.cpus} is none: give 1 or more")
    try:
        if parse_quantity(arguments.memory).value <= 0:
            raise CommandError(f"--memory {arguments.memory} is none: give a size like 1Gi")
    except QuantityError as error:
        raise CommandError(f"--memory {arguments.memory!r} is no size, like 1Gi: {error}") from error


def _find(reference: str) -> "Image":
    """The image, which must be here."""
    from anyvisor.agent.volumes.qcow2 import ImageError
    from anyvisor.cli.api import instance
    from anyvisor.embedded.images.store import ImageStore

    try:
        return ImageStore(instance().image_dir).get(reference)
    except ImageError as error:
        raise CommandError(str(error)) from error


def disk_size(image: "Image", asked: str | None) -> str:
    """The size of a lasting disk: at least the image's."""
    from anyvisor.agent.volumes.qcow2 import ImageError
    from anyvisor.api.quantity import QuantityError, parse_quantity

    try:
        least = image.disk().virtual_bytes
        size = parse_quantity(asked).value if asked is not None else least
    except ImageError as error:
        raise CommandError(f"--persistent: {error}") from error
    except QuantityError as error:
        raise CommandError(f"--disk-size {asked!r} is no size, like 10Gi: {error}") from error
    if size < least:
        raise CommandError(
            f"--disk-size {asked} is less than the image's disk has: give {-(-least // 1024**2)}Mi or more"
        )
    return asked if asked is not None else str(size)


def _kernel_paths(image: "Image") -> tuple[str, str] | None:
    """Paths of kernel and initrd when the image has them and no disk."""
    files = image.files
    if any(file.format for file in files):
        return None
    kernels = [file.path for file in files if re.search(r"/vmlinu[xz]|/kernel", file.path)]
    if not kernels:
        raise CommandError(f"image {image.reference} has neither a disk below /disk nor a kernel in /boot")
    initrds = [file.path for file in files if "initr" in file.path]
    return kernels[0], initrds[0] if initrds else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"--user-data {path}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise CommandError(f"--user-data {path} is no text: {error}") from error


def default_name(image: str) -> str:
    """A VM name out of an image name."""
    base = image.split("@")[0].rsplit("/", 1)[-1].split(":")[0].lower()
    name = re.sub(r"[^a-z0-9]+", "-", base).strip("-")[:63].strip("-")
    return name or "vm"


def disk_name(vm: str) -> str:
    """Of a VM's lasting disk."""
    return f"{vm}-disk"


def _disk_template(name: str, image: str, size: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "source": {"registry": {"url": f"docker://{image}"}},
            "storage": {"resources": {"requests": {"storage": size}}},
        },
    }


def render(arguments: argparse.Namespace, kernel: tuple[str, str] | None, disk_size: str = "") -> dict[str, Any]:
    """The manifest: a plain VirtualMachine; with `disk_size`, of a disk that is filled from the image and lasts."""
    name = arguments.name or default_name(arguments.image)
    domain: dict[str, Any] = {
        "cpu": {"cores": arguments.cpus},
        "memory": {"guest": arguments.memory},
        "devices": {
            "disks": [],
            "interfaces": [{"name": "default", "masquerade": {}}],
            "rng": {},
        },
    }
    volumes: list[dict[str, Any]] = []
    if kernel is None:
        domain["devices"]["disks"].append({"name": "root", "disk": {"bus": "virtio"}})
        source = (
            {"dataVolume": {"name": disk_name(name)}} if disk_size else {"containerDisk": {"image": arguments.image}}
        )
        volumes.append({"name": "root", **source})
    else:
        container = {"image": arguments.image, "kernelPath": kernel[0]}
        if kernel[1]:
            container["initrdPath"] = kernel[1]
        domain["firmware"] = {"kernelBoot": {"kernelArgs": arguments.kernel_args, "container": container}}
    if arguments.user_data is not None:
        domain["devices"]["disks"].append({"name": "cloud-init", "disk": {"bus": "virtio"}})
        volumes.append({"name": "cloud-init", "cloudInitNoCloud": {"userData": _read(arguments.user_data)}})
    spec: dict[str, Any] = {"domain": domain, "networks": [{"name": "default", "pod": {}}], "volumes": volumes}
    if arguments.hypervisor:
        spec["hypervisor"] = arguments.hypervisor
    whole: dict[str, Any] = {"runStrategy": "Always"}
    if disk_size:
        whole["dataVolumeTemplates"] = [_disk_template(disk_name(name), arguments.image, disk_size)]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": arguments.namespace},
        "spec": {**whole, "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    }
