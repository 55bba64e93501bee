"""A Cloud Hypervisor for tests: no hardware, but the API of v53 with its texts, its delays and its traps.

Started by `program.install`, on the standard library alone and without an environment. What it answers was captured
from v53.0. It differs on purpose in one thing: its guest is the tiny one, played here.

Its knobs stand in a JSON file beside the program (`faults.py` has them).
"""

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 51200
CONNECTIONS = 10
STEP = 128 << 20
SERIAL_KEPT = 1 << 20
REASONS = {
    "create": "The VM could not be created",
    "boot": "The VM could not boot",
    "info": "The VM info is not available",
    "pause": "The VM could not be paused",
    "resume": "The VM could not resume",
    "reboot": "The VM could not reboot",
    "shutdown": "The VM could not shutdown",
    "power-button": "Power Button could not be pressed",
    "resize": "The VM could not be resized",
    "resize-disk": "The disk could not be resized",
    "add-disk": "The disk could not be added to the VM",
    "add-net": "The network device could not be added to the VM",
    "remove-device": "The device could not be removed from the VM",
    "counters": "The VM counters could not be retrieved",
}


class ApiError(Exception):
    """An answer with an error chain."""

    def __init__(self, status: int, *chain: str) -> None:
        super().__init__(": ".join(chain))
        self.status = status
        self.chain = ["Error from API", *chain] if status != 400 else list(chain)


class Guest:
    """The tiny guest, as far as the serial port, the power button and hot-plug show it."""

    def __init__(self, vmm: "Vmm", config: dict[str, Any]) -> None:
        self.vmm = vmm
        self.config = config
        self.paused = False
        self.deaf = False
        self.ticks = 0
        self.button = False
        self.plugged: list[int] = []
        self.leaving: dict[str, int] = {}
        self.cpus = config["cpus"]["boot_vcpus"]
        self.removing: set[int] = set()
        self.slots = self._slots()
        self.kept = bytearray()
        self.client: socket.socket | None = None
        self.listener = self._listen()
        self.say("ANYVISOR tiny\r\n")
        self.timer = asyncio.get_running_loop().call_later(0.1, self._tick)

    def _slots(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        listed = [(item, "1042") for item in self.config.get("disks", [])]
        listed += [(item, "1041") for item in self.config.get("net", [])]
        listed += [
            (self.config[kind], code) for kind, code in (("balloon", "1045"), ("rng", "1044")) if kind in self.config
        ]
        for item, code in listed:
            found[item["id"]] = (item["pci_device_id"], f"1af4:{code}")
        return found

    def _listen(self) -> socket.socket | None:
        serial = self.config.get("serial", {"mode": "Null"})
        if serial["mode"] != "Socket":
            return None
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(serial["socket"])
        except OSError as error:
            raise ApiError(
                500,
                REASONS["create"],
                "Error creating console devices",
                "Error creating console device",
                f"{error.strerror} (os error {error.errno})",
            ) from error
        listener.listen(1)
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self._accept)
        return listener

    def _accept(self) -> None:
        assert self.listener is not None
        client, _ = self.listener.accept()
        client.setblocking(False)
        self._drop_client()
        self.client = client
        asyncio.get_running_loop().add_reader(client, self._typed)
        kept, self.kept = bytes(self.kept), bytearray()
        self._send(kept)

    def _drop_client(self) -> None:
        if self.client is not None:
            asyncio.get_running_loop().remove_reader(self.client)
            self.client.close()
            self.client = None

    def _send(self, data: bytes) -> None:
        assert self.client is not None
        try:
            self.client.send(data)
        except BlockingIOError:
            self.kept += data
        except OSError:
            self._drop_client()

    def say(self, text: str) -> None:
        if self.client is None:
            self.kept += text.encode()
            del self.kept[:-SERIAL_KEPT]
        else:
            self._send(text.encode())

    def _typed(self) -> None:
        assert self.client is not None
        try:
            data = self.client.recv(4096)
        except OSError:
            data = b""
        if not data:
            self._drop_client()
            return
        for line in data.decode().splitlines():
            self._command(line)

    def _command(self, line: str) -> None:
        match line:
            case "off":
                self._off()
            case "reset":
                self.say("ANYVISOR reset\r\n")
                self.vmm.later(self.vmm.reboot)
            case "cmdline":
                self.say(f"cmdline {self.config['payload'].get('cmdline', '')}\r\n")
            case "deaf":
                self.deaf = True
            case "pci":
                self._scan()
            case "panic":
                self.vmm.event("guest", "panic")
            case "internal-error":
                print("VCPU generated error: VcpuRun(InternalError)", file=sys.stderr, flush=True)
                self.vmm.later(self.vmm.end)
            case _:
                self.say(f"unknown: {line}\r\n")

    def _off(self) -> None:
        self.say("ANYVISOR off\r\n")
        self.vmm.later(self.vmm.guest_exit)

    def _scan(self) -> None:
        self.say("pci 00:00.0 8086:0d57\r\n")
        for slot, code in sorted(self.slots.values()):
            self.say(f"pci 00:{slot:02x}.0 {code}\r\n")
        self.say("pci end\r\n")

    def _tick(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(0.1, self._tick)
        if self.paused:
            return
        self.ticks += 1
        self.say(f"ANYVISOR t={self.ticks}\r\n")
        self._poll_hotplug()
        if self.button and not self.deaf:
            self.say("ANYVISOR button\r\n")
            self._off()
        self.button = False

    def _poll_hotplug(self) -> None:
        for slot in self.plugged:
            self.say(f"plugged {1 << slot:08x}\r\n" if slot < 32 else "memory plugged\r\n" if slot == 32 else "")
            if slot > 32:
                self.say(f"cpu plugged {slot - 33:02x}\r\n")
        self.plugged.clear()
        for name, slot in list(self.leaving.items()):
            self.say(f"ejected {1 << slot:08x}\r\n")
            del self.leaving[name], self.slots[name]
            self.vmm.event("vm", "device-removed", {"id": name, "bdf": f"0000:00:{slot:02x}.0"})
        for cpu in sorted(self.removing):
            self.say(f"cpu ejected {cpu:02x}\r\n")
            self.cpus -= 1
        self.removing.clear()

    def plug(self, item: dict[str, Any], code: str) -> str:
        slot = item.get("pci_device_id")
        if slot is None:
            taken = {place for place, _ in self.slots.values()}
            slot = next(number for number in range(1, 32) if number not in taken)
        self.slots[item["id"]] = (slot, f"1af4:{code}")
        self.plugged.append(slot)
        return f"0000:00:{slot:02x}.0"

    def close(self) -> None:
        self.timer.cancel()
        self._drop_client()
        if self.listener is not None:
            asyncio.get_running_loop().remove_reader(self.listener)
            self.listener.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.config["serial"]["socket"])


class Vmm:
    """The VMM: its API's state, its events, its end."""

    def __init__(self, events: int, no_shutdown: bool, knobs: dict[str, Any]) -> None:
        self.events = events
        os.set_blocking(events, False)
        self.no_shutdown = no_shutdown
        self.knobs = knobs
        self.began = time.monotonic()
        self.config: dict[str, Any] | None = None
        self.guest: Guest | None = None
        self.files: dict[str, list[int]] = {}
        self.locks: dict[str, int] = {}
        self.done = asyncio.Event()
        self.event("vmm", "starting")

    def event(self, source: str, name: str, properties: dict[str, str] | None = None) -> None:
        elapsed = time.monotonic() - self.began
        stamp = {"secs": int(elapsed), "nanos": int(elapsed % 1 * 1e9)}
        found = {"timestamp": stamp, "source": source, "event": name, "properties": properties}
        for text in (json.dumps(found, indent=2), "\n\n"):
            with contextlib.suppress(OSError):
                os.write(self.events, text.encode())

    def later(self, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(work)

    # The end

    def guest_exit(self) -> None:
        if self.no_shutdown:
            self.shutdown()
        else:
            self.end()

    def end(self) -> None:
        if self.guest is not None:
            self.shutdown()
        if self.config is not None:
            self.config = None
            self.event("vm", "deleted")
        self.event("vmm", "shutdown")
        self.done.set()

    def shutdown(self) -> None:
        if self.guest is None:
            raise ApiError(500, REASONS["shutdown"], "VM is not running")
        self.guest.close()
        self.guest = None
        self._unlock()
        self.event("vm", "shutdown")

    def _unlock(self) -> None:
        for descriptor in self.locks.values():
            os.close(descriptor)
        self.locks.clear()

    # Calls

    def ping(self) -> dict[str, Any]:
        version = self.knobs.get("version", "53.0.0")
        return {"build_version": f"v{version}", "version": version, "pid": os.getpid(), "features": ["io_uring", "kvm"]}

    def create(self, body: dict[str, Any], files: list[int]) -> None:
        if self.config is not None:
            raise ApiError(500, REASONS["create"], "VM is already created")
        for part, field in (("cpus", "boot_vcpus"), ("cpus", "max_vcpus"), ("memory", "size")):
            if field not in body.get(part, {}):
                raise ApiError(400, "Failed to deserialize JSON", f"missing field `{field}` at line 1 column 2")
        self.config = body
        serial = body.get("serial", {})
        if serial.get("mode") == "Socket" and os.path.exists(serial["socket"]):
            raise ApiError(
                500,
                REASONS["create"],
                "Error creating console devices",
                "Error creating console device",
                "Address already in use (os error 98)",
            )

    def boot(self) -> None:
        self.event("vm", "booting")
        if self.config is None:
            raise ApiError(404, REASONS["boot"], "VM config is missing")
        if self.guest is not None:
            raise ApiError(500, REASONS["boot"], "VM is already created")
        self._load_kernel(self.config.get("payload", {}))
        try:
            for disk in self.config.get("disks", []):
                self._open_disk(disk, REASONS["boot"])
        except ApiError:
            self._unlock()
            raise
        self.guest = Guest(self, self.config)
        self.event("vm", "booted")

    def _load_kernel(self, payload: dict[str, Any]) -> None:
        if not payload.get("kernel") and not payload.get("firmware"):
            raise ApiError(
                500,
                REASONS["boot"],
                "Payload configuration is not bootable",
                "No bootitem provided: neither firmware nor kernel",
            )
        try:
            head = Path(payload.get("kernel") or payload["firmware"]).read_bytes()[:5]
        except OSError as error:
            raise ApiError(
                500, REASONS["boot"], "Cannot open kernel file", f"{error.strerror} (os error {error.errno})"
            ) from error
        if head != b"\x7fELF\x02":
            raise ApiError(
                500,
                REASONS["boot"],
                "Cannot load the kernel in memory",
                "Kernel Loader: failed to load bzImage kernel image: Kernel Loader: Invalid bzImage",
            )

    def _open_disk(self, disk: dict[str, Any], reason: str) -> None:
        path = disk["path"]
        try:
            opened = os.open(path, (os.O_RDONLY if disk.get("readonly") else os.O_RDWR) | os.O_CLOEXEC)
        except OSError as error:
            raise ApiError(
                500,
                reason,
                "Error from device manager",
                "Cannot open disk path",
                f"I/O error (path={path} op=open)",
                f"{error.strerror} (os error {error.errno})",
            ) from error
        found = "Qcow2" if os.pread(opened, 4, 0) == b"QFI\xfb" else "Raw"
        wanted = disk.get("image_type", found)
        if wanted != found:
            os.close(opened)
            raise ApiError(
                500,
                reason,
                "Error from device manager",
                "Disk image type does not match expected type: "
                f"specified = {wanted.lower()}, detected = {found.lower()}",
            )
        if found == "Qcow2":
            self._follow(opened, disk, reason)
        kind = fcntl.F_RDLCK if disk.get("readonly") else fcntl.F_WRLCK
        try:
            fcntl.fcntl(opened, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(opened)
            raise ApiError(
                500,
                reason,
                "Error locking disk images: Another instance likely holds a lock",
                "Cannot lock images of all block devices",
                f"Failed to get Write lock for disk image: {path}",
                "The file is already locked",
            ) from error
        self.locks[disk["id"]] = opened

    def _follow(self, opened: int, disk: dict[str, Any], reason: str) -> None:
        """The image below, by the name in the header."""
        offset, size = struct.unpack(">QI", os.pread(opened, 12, 8))
        name = os.pread(opened, size, offset).decode() if offset else ""
        if name and not disk.get("backing_files"):
            raise ApiError(500, reason, "Error from device manager", "Maximum disk nesting depth exceeded")
        if name:
            os.close(os.open(name, os.O_RDONLY))

    def counters(self) -> dict[str, Any]:
        if self.guest is None:
            raise ApiError(500, REASONS["counters"], "VM is not running")
        assert self.config is not None
        idle = {"latency_min": (1 << 64) - 1, "latency_max": (1 << 64) - 1, "latency_avg": ((1 << 64) - 1) // 10000}
        of_disk = {"read_bytes": 0, "write_bytes": 0, "read_ops": 0, "write_ops": 0}
        of_disk |= {f"{kind}_{name}": value for kind in ("read", "write") for name, value in idle.items()}
        of_nic = {"rx_bytes": 0, "tx_bytes": 0, "tx_frames": 0, "rx_frames": 0}
        found = {disk["id"]: of_disk for disk in self.config.get("disks") or ()}
        return found | {nic["id"]: of_nic for nic in self.config.get("net") or ()}

    def info(self) -> dict[str, Any]:
        if self.config is None:
            raise ApiError(404, REASONS["info"], "VM is not created")
        config = {key: value for key, value in self.config.items() if not key.startswith("_")}
        found: dict[str, Any] = {"config": config, "memory_actual_size": self.config["memory"]["size"]}
        if self.guest is None:
            return {**found, "state": "Created"}
        tree = {
            f"_virtio-pci-{name}": {
                "id": f"_virtio-pci-{name}",
                "resources": [],
                "children": [name],
                "pci_bdf": f"0000:00:{slot:02x}.0",
            }
            for name, (slot, _) in self.guest.slots.items()
        }
        tree |= {
            name: {"id": name, "resources": [], "parent": f"_virtio-pci-{name}", "children": []}
            for name in self.guest.slots
        }
        return {**found, "state": "Paused" if self.guest.paused else "Running", "device_tree": tree}

    def _running(self, call: str) -> Guest:
        if self.guest is None:
            raise ApiError(500, REASONS[call], "VM is not running")
        return self.guest

    def pause(self, paused: bool) -> None:
        call = "pause" if paused else "resume"
        guest = self._running(call)
        self.event("vm", "pausing" if paused else "resuming")
        if guest.paused == paused:
            state = "Paused" if paused else "Running"
            raise ApiError(
                500,
                REASONS[call],
                f"Cannot {call} VM",
                f"Failed to {call} migratable component",
                f"Invalid transition: InvalidStateTransition({state}, {state})",
            )
        guest.paused = paused
        self.event("vm", "paused" if paused else "resumed")

    def reboot(self) -> None:
        self.event("vm", "rebooting")
        guest = self._running("reboot")
        guest.close()
        assert self.config is not None
        self.guest = Guest(self, self.config)
        self.event("vm", "rebooted")

    def press(self) -> None:
        self._running("power-button").button = True

    def add_disk(self, body: dict[str, Any], files: list[int]) -> dict[str, Any] | None:
        return self._add("disks", "1042", body, files)

    def add_net(self, body: dict[str, Any], files: list[int]) -> dict[str, Any] | None:
        return self._add("net", "1041", body, files)

    def _add(self, kind: str, code: str, body: dict[str, Any], files: list[int]) -> dict[str, Any] | None:
        call = "add-disk" if kind == "disks" else "add-net"
        if self.config is None:
            raise ApiError(404, REASONS[call], "VM is not created")
        if any(item["id"] == body["id"] for part in ("disks", "net") for item in self.config.get(part, [])):
            raise ApiError(500, REASONS[call], "Failed to validate config", f"Identifier {body['id']} is not unique")
        if self.guest is not None and body["id"] in self.guest.slots:
            raise ApiError(
                500, REASONS[call], "Error from device manager", f"Invalid identifier as it is not unique: {body['id']}"
            )
        if kind == "net":
            if 2 * len(files) != body.get("num_queues", 2):
                raise ApiError(
                    500, REASONS[call], "Failed to validate config", "Number of FDs does not match the number of queues"
                )
            body["fds"] = self.files[body["id"]] = [os.dup(descriptor) for descriptor in files]
        elif self.guest is not None:
            self._open_disk(body, REASONS[call])
        self.config.setdefault(kind, []).append(body)
        return None if self.guest is None else {"id": body["id"], "bdf": self.guest.plug(body, code)}

    def remove(self, body: dict[str, Any], files: list[int]) -> None:
        guest = self._running("remove-device")
        assert self.config is not None
        name = body["id"]
        for kind in ("disks", "net"):
            kept = [item for item in self.config.get(kind, []) if item["id"] != name]
            if len(kept) != len(self.config.get(kind, [])):
                self.config[kind] = kept
                guest.leaving[name] = guest.slots[name][0]
                if name in self.locks:
                    os.close(self.locks.pop(name))
                for descriptor in self.files.pop(name, []):
                    os.close(descriptor)
                return
        raise ApiError(
            500,
            REASONS["remove-device"],
            "Error from device manager",
            f"Failed to find device corresponding to the given identifier: {name}",
        )

    def resize(self, body: dict[str, Any], files: list[int]) -> None:
        guest = self._running("resize")
        self.event("vm", "resizing")
        if (wanted := body.get("desired_vcpus")) is not None:
            self._resize_cpus(guest, wanted)
        if (size := body.get("desired_ram")) is not None:
            self._resize_memory(guest, size)
        self.event("vm", "resized")

    def _resize_cpus(self, guest: Guest, wanted: int) -> None:
        assert self.config is not None
        if wanted != guest.cpus:
            if wanted < 1:
                raise ApiError(500, REASONS["resize"], "Error from CPU manager", "Requested zero vCPUs")
            if guest.removing:
                raise ApiError(429, "Too Many Requests")
            if wanted > self.config["cpus"]["max_vcpus"]:
                raise ApiError(500, REASONS["resize"], "Error from CPU manager", "Requested vCPUs exceed maximum")
            if wanted < guest.cpus:
                guest.removing = set(range(wanted, guest.cpus))
            else:
                guest.plugged += [33 + cpu for cpu in range(guest.cpus, wanted)]
                guest.cpus = wanted
        self.config["cpus"]["boot_vcpus"] = wanted

    def _resize_memory(self, guest: Guest, size: int) -> None:
        assert self.config is not None
        more = size - self.config["memory"]["size"]
        if more > 0 and (more % STEP or more > self.config["memory"].get("hotplug_size", 0)):
            raise ApiError(
                500,
                REASONS["resize"],
                "Error from memory manager",
                "The requested hotplug memory addition is not a valid size",
            )
        if more > 0:
            guest.plugged.append(32)
        self.config["memory"]["size"] = size

    def resize_disk(self, body: dict[str, Any], files: list[int]) -> None:
        """Shrinks as well, and says nothing."""
        self._running("resize-disk")
        assert self.config is not None
        for disk in self.config.get("disks", []):
            if disk["id"] == body["id"]:
                os.truncate(disk["path"], body["desired_size"])
                return
        raise ApiError(500, REASONS["resize-disk"], "Error from device manager", f"Unknown device: {body['id']}")

    def delete(self) -> None:
        if self.guest is not None:
            self.shutdown()
        if self.config is not None:
            self.config = None
            self.event("vm", "deleted")
