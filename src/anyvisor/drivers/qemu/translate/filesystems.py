"""Shared directories: one virtiofsd for each, which QEMU reaches over a socket, as a helper beside it.

A guest that takes its server over must not see more than the directory. So the server stands in a user namespace that
the agent made, in which it is root and the launcher's user is all it can be, with the shared directory for its root.
What a guest writes belongs to the launcher's user, whatever user of the guest wrote it.
"""

from typing import Final

from anyvisor.drivers.qemu.translate import addresses
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.host import FileServer, Host
from anyvisor.hri.v1.machine_pb2 import DescriptorSlot, Helper, SocketPair
from anyvisor.hri.v1.machine_spec_pb2 import Filesystem, Machine

INSTALL: Final = "apt-get install virtiofsd, or before Debian 13 qemu-system-common"
MAX_FILESYSTEMS: Final = 8
MAX_TAG_BYTES: Final = 36
"""https://docs.oasis-open.org/virtio/virtio/v1.2/virtio-v1.2.html, 5.11.4 Device configuration layout"""
_SOCKET_NUMBER: Final = 3
_DIRECTORY_NUMBER: Final = 4
_NAMESPACE_NUMBER: Final = 5
_CONFINED: Final = ("/usr/bin/nsenter", f"--user=/proc/self/fd/{_NAMESPACE_NUMBER}", "--")
_DIRECTORY: Final = f"/proc/self/fd/{_DIRECTORY_NUMBER}/."
"""With the dot it is the directory itself, not a link to it."""


def add_filesystems(draft: Draft, machine: Machine, host: Host) -> None:
    """The devices and the helpers behind them."""
    if not machine.filesystems:
        return
    if len(machine.filesystems) > MAX_FILESYSTEMS:
        have, want = str(MAX_FILESYSTEMS), str(len(machine.filesystems))
        message = f"a machine has at most {MAX_FILESYSTEMS} shared directories; put several below one"
        draft.refuse("LIMIT_EXCEEDED", "filesystems", message, have=have, want=want)
        return
    if not machine.memory.shared:
        draft.refuse("VALUE_INVALID", "memory.shared", "a shared directory needs guest memory that its server can map")
    server = host.file_server
    if server is None:
        message = f"no server for shared directories can be used on this node: {INSTALL}"
        draft.refuse("HELPER_MISSING", "filesystems", message)
        return
    for index, filesystem in enumerate(machine.filesystems):
        _add(draft, filesystem, index, server, several=len(machine.filesystems) > 1)


def _add(draft: Draft, filesystem: Filesystem, index: int, server: FileServer, *, several: bool) -> None:
    if not 0 < len(filesystem.tag.encode()) <= MAX_TAG_BYTES:
        message = f"the tag {filesystem.tag[:40]!r} must have 1 to {MAX_TAG_BYTES} bytes; rename the volume"
        draft.refuse("VALUE_INVALID", f"filesystems[{index}].tag", message)
        return
    name = f"filesystem-{filesystem.id}"
    ours, theirs = f"{name}/vmm", f"{name}/server"
    draft.pairs.append(SocketPair(first=ours, second=theirs, listening=True))
    draft.option("chardev", f"socket,id={name},fd={draft.number(ours)}")
    first = True if index == 0 and several else None
    draft.device(
        name,
        "vhost-user-fs-pci",
        addresses.function("filesystem", index),
        {"chardev": name, "tag": filesystem.tag, "multifunction": first},
    )
    draft.helpers.append(
        Helper(
            name=name,
            argv=[*_CONFINED, server.path, *_options(server, read_only=filesystem.read_only)],
            descriptors=[
                DescriptorSlot(number=_SOCKET_NUMBER, handle=theirs),
                DescriptorSlot(number=_DIRECTORY_NUMBER, handle=filesystem.directory_handle),
                DescriptorSlot(number=_NAMESPACE_NUMBER, handle=filesystem.namespace_handle),
            ],
            on_exit=Helper.ON_EXIT_IGNORE,
            becomes=server.path,
        )
    )


def _options(server: FileServer, *, read_only: bool) -> list[str]:
    """The directory's mount is read-only where it must be; the newer server refuses writes by itself, too."""
    shared = [f"--fd={_SOCKET_NUMBER}", "--rlimit-nofile=0"]
    if server.own:
        return [*shared, "-f", "-o", f"source={_DIRECTORY}", "-o", "sandbox=chroot,cache=auto,log_level=err"]
    confined = ["--shared-dir", _DIRECTORY, "--sandbox", "chroot", "--cache", "auto", "--log-level", "error"]
    return [*shared, *confined, *(["--readonly"] if read_only else [])]
