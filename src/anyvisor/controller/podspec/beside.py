"""Containers beside the VMM, which only a cluster's kubelet needs and runs: the console's log, copies of disks.

One machine serves the log by its agent, and has the images in a store of its own.
"""

import posixpath
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.controller.launch import Launch
from anyvisor.controller.podspec.volumes import KERNEL_BOOT, RUN, RUN_PATH, PodVolumes

CONSOLE_LOG: Final = "guest-console-log"
SERIAL_LOG: Final = "serial0.log"
"""The agent's name for the file that the console is written to."""
PROGRAM: Final = ("python3", "-I", "-S", "/opt/beside.pyc")
COPIER: Final = "/copy/busybox"
"""A static program, as an image of a disk holds nothing that could be run."""
TARGET: Final = "/target"
SCRIPT: Final = f'while [ $# -gt 1 ]; do {COPIER} mkdir -p "$2" && {COPIER} cp -R "$1" "$2/" || exit 1; shift 2; done'
_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_LITTLE: Final = {"cpu": "5m", "memory": "16M"}
_AT_MOST: Final = {"cpu": "100m", "memory": "48M"}


def containers(vmi: Json, launch: Launch, found: PodVolumes, *, copied: bool) -> list[Json]:
    """The init containers; `copied`: images cannot be volumes here, so their disks are copied into `found`."""
    made = _copies(vmi, launch, found) if copied else []
    devices = object_at(vmi, "spec", "domain", "devices")
    if devices.get("logSerialConsole") is True and devices.get("autoattachSerialConsole") is not False:
        made.append(_console_log(vmi, launch))
    return made


def _console_log(vmi: Json, launch: Launch) -> Json:
    """`kubectl logs -c guest-console-log`; it ends with the VMM (a sidecar, KEP-753)."""
    return {
        "name": CONSOLE_LOG,
        "image": launch.image,
        "command": [*PROGRAM, "log", RUN_PATH, SERIAL_LOG],
        "restartPolicy": "Always",
        "resources": _resources(vmi),
        "securityContext": _SECURITY,
        "volumeMounts": [{"name": RUN, "mountPath": RUN_PATH, "readOnly": True}],
    }


def _resources(vmi: Json) -> Json:
    """Little; the same as limit and as request where the pod is to be guaranteed its CPUs."""
    guaranteed = object_at(vmi, "spec", "domain", "cpu").get("dedicatedCpuPlacement") is True
    return {"requests": dict(_AT_MOST if guaranteed else _LITTLE), "limits": dict(_AT_MOST)}


def _copies(vmi: Json, launch: Launch, found: PodVolumes) -> list[Json]:
    wanted = [
        (text_at(volume, "name"), object_at(volume, "containerDisk"), _disk(object_at(volume, "containerDisk")))
        for volume in list_at(vmi, "spec", "volumes")
        if "containerDisk" in volume
    ]
    boot = object_at(vmi, "spec", "domain", "firmware", "kernelBoot", "container")
    if boot:
        paths = [text_at(boot, key) for key in ("kernelPath", "initrdPath") if text_at(boot, key)]
        wanted.append((KERNEL_BOOT, boot, [word for path in paths for word in _file(path)]))
    if not wanted:
        return []
    found.volumes.append({"name": "copy", "emptyDir": {}})
    made: list[Json] = [
        {
            "name": "copier",
            "image": launch.image,
            "command": ["/bin/busybox", "cp", "/bin/busybox", COPIER],
            "resources": _resources(vmi),
            "securityContext": _SECURITY,
            "volumeMounts": [{"name": "copy", "mountPath": posixpath.dirname(COPIER)}],
        }
    ]
    for number, (name, source, words) in enumerate(wanted):
        found.mount(name, {"emptyDir": {}}, read_only=True)
        made.append(_copy(vmi, f"container-disk-{number}", name, source, words))
    return made


def _copy(vmi: Json, called: str, volume: str, source: Json, words: list[str]) -> Json:
    container: Json = {
        "name": called,
        "image": text_at(source, "image"),
        "command": [COPIER, "sh", "-c", SCRIPT, called, *words],
        "resources": _resources(vmi),
        "securityContext": _SECURITY,
        "volumeMounts": [
            {"name": "copy", "mountPath": posixpath.dirname(COPIER), "readOnly": True},
            {"name": volume, "mountPath": TARGET},
        ],
    }
    policy = text_at(source, "imagePullPolicy")
    return {**container, "imagePullPolicy": policy} if policy else container


def _disk(source: Json) -> list[str]:
    path = text_at(source, "path")
    return _file(path) if path else ["/disk", TARGET]


def _file(path: str) -> list[str]:
    """What to copy, and into which directory: the file keeps its place."""
    path = posixpath.normpath(f"/{path.strip('/')}")
    return [path, f"{TARGET}{posixpath.dirname(path)}".rstrip("/")]
