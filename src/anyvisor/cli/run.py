"""`anyvisor run IMAGE`: a VM from an image, in one command."""

import argparse
import re
from typing import Any

from anyvisor.cli.api import KUBEVIRT, connect
from anyvisor.cli.lifecycle import WAIT_SECONDS, wait_for
from anyvisor.cli.main import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Name, size, hypervisor."""
    parser.add_argument("image", metavar="IMAGE", help="an imported image (see `anyvisor image list`)")
    parser.add_argument("--name", help="name of the VM (default: from the image)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("--memory", default="512Mi", help="guest memory (default: 512Mi)")
    parser.add_argument("--cpus", type=int, default=1, help="virtual CPUs (default: 1)")
    parser.add_argument("--hypervisor", help="hypervisor class (default: the default class)")
    parser.add_argument("--user-data", metavar="FILE", help="file with cloud-init user data")
    parser.add_argument("--kernel-args", default="console=ttyS0", help="for images with a kernel of their own")
    parser.add_argument("--dry-run", action="store_true", help="print the manifest instead of creating it")
    parser.add_argument("--wait", action="store_true", help="return when the guest runs")


def run(arguments: argparse.Namespace) -> int:
    """Create it."""
    manifest = render(arguments, _kernel_paths(arguments.image))
    if arguments.dry_run:
        from anyvisor.cli.documents import to_yaml

        print(to_yaml(manifest), end="")
        return 0
    api = connect()
    name = manifest["metadata"]["name"]
    api.call("POST", f"{KUBEVIRT}/namespaces/{arguments.namespace}/virtualmachines", manifest)
    if arguments.wait:
        wait_for(
            api,
            arguments.namespace,
            name,
            lambda vmi: (vmi or {}).get("status", {}).get("phase") == "Running",
            "running",
            WAIT_SECONDS,
        )
    print(f"VM {name} created; `anyvisor console {name}` shows its console")
    return 0


def _kernel_paths(image: str) -> tuple[str, str] | None:
    """Paths of kernel and initrd when the image has them and no disk."""
    from anyvisor.agent.volumes.qcow2 import ImageError
    from anyvisor.cli.api import instance
    from anyvisor.embedded.images.store import ImageStore

    try:
        files = ImageStore(instance().image_dir).get(image).files
    except ImageError as error:
        raise CommandError(str(error)) from error
    if any(file.format for file in files):
        return None
    kernels = [file.path for file in files if re.search(r"/vmlinu[xz]|/kernel", file.path)]
    if not kernels:
        raise CommandError(f"image {image} has neither a disk below /disk nor a kernel in /boot")
    initrds = [file.path for file in files if "initr" in file.path]
    return kernels[0], initrds[0] if initrds else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeError) as error:
        raise CommandError(f"--user-data {path}: {error}") from error


def default_name(image: str) -> str:
    """A VM name out of an image name."""
    base = image.split("@")[0].rsplit("/", 1)[-1].split(":")[0].lower()
    name = re.sub(r"[^a-z0-9]+", "-", base).strip("-")[:63].strip("-")
    return name or "vm"


def render(arguments: argparse.Namespace, kernel: tuple[str, str] | None) -> dict[str, Any]:
    """The manifest: a plain VirtualMachine."""
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
        volumes.append({"name": "root", "containerDisk": {"image": arguments.image}})
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
    name = arguments.name or default_name(arguments.image)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": arguments.namespace},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    }
