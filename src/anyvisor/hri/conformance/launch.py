"""The form of a launch plan: what the agent must be able to trust before it starts anything."""

from collections.abc import Iterator, Sequence

from anyvisor.hri.v1.machine_pb2 import DescriptorSlot, Helper, LaunchPlan, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import Endpoint

LOWEST, HIGHEST = 3, 250


def problems(machine: Machine, answer: PrepareResponse) -> list[str]:
    """Everything that is wrong with the answer to Prepare."""
    return [*_endpoints(machine, answer), *_launch(machine, answer)]


def _endpoints(machine: Machine, answer: PrepareResponse) -> Iterator[str]:
    seen: set[str] = set()
    for endpoint in answer.endpoints:
        where = f"endpoint {endpoint.id!r}"
        if not endpoint.id or endpoint.id in seen:
            yield f"{where}: ids must be there and be unique"
        seen.add(endpoint.id)
        if endpoint.purpose == Endpoint.PURPOSE_UNSPECIFIED or not endpoint.protocol:
            yield f"{where}: has no purpose or no protocol"
        other = endpoint.shared_with
        if other and other not in {one.id for one in answer.endpoints}:
            yield f"{where}: is served with {other!r}, which is no endpoint"
        if endpoint.WhichOneof("location") is None:
            yield f"{where}: has no location"
        path = endpoint.vmm_path
        if path and (path.startswith("/") or ".." in path.split("/")):
            yield f"{where}: vmm_path {path!r} leaves the launcher's directory"
        if endpoint.purpose == Endpoint.PURPOSE_STOP and not endpoint.stop_script.request:
            yield f"{where}: a stop endpoint needs a script"
    for handle in answer.driver_handles:
        if handle not in seen | set(handles(machine)):
            yield f"driver_handles names {handle!r}, which is neither a handle nor an endpoint"


def _launch(machine: Machine, answer: PrepareResponse) -> Iterator[str]:
    launch = answer.launch
    if launch.mode == LaunchPlan.MODE_UNSPECIFIED:
        yield "the launch mode is not stated"
    if launch.mode in (LaunchPlan.MODE_NONE, LaunchPlan.MODE_EXTERNAL):
        if launch.argv:
            yield "a mode without a process of ours has an argv"
        return
    known = set(handles(machine)) | {endpoint.id for endpoint in answer.endpoints if _number(endpoint)}
    known |= {seed.handle for seed in launch.seeds} | {
        end for pair in launch.pairs for end in (pair.first, pair.second)
    }
    yield from _command("the VMM", launch.argv, launch.env, launch.descriptors, known)
    for helper in launch.helpers:
        if helper.on_exit == Helper.ON_EXIT_UNSPECIFIED:
            yield f"helper {helper.name!r}: on_exit is not stated"
        yield from _command(f"helper {helper.name!r}", helper.argv, helper.env, helper.descriptors, known)
    for endpoint in answer.endpoints:
        number = _number(endpoint)
        slots = {slot.number for slot in launch.descriptors if slot.handle == endpoint.id}
        if number and number not in slots:
            yield f"endpoint {endpoint.id!r}: its descriptor {number} is not in the launch plan"


def _number(endpoint: Endpoint) -> int:
    """The descriptor number of an endpoint that has one, else 0."""
    return endpoint.listen_descriptor or endpoint.pair_descriptor


def _command(
    what: str,
    arguments: Sequence[str],
    variables: Sequence[str],
    descriptors: Sequence[DescriptorSlot],
    known: set[str],
) -> Iterator[str]:
    if not arguments or not arguments[0].startswith("/"):
        yield f"{what}: argv[0] must be an absolute path"
    yield from (f"{what}: argv holds a NUL byte" for text in arguments if "\0" in text)
    for variable in variables:
        name, separator, _ = variable.partition("=")
        if not name or not separator or "\0" in variable:
            yield f"{what}: {variable!r} is not NAME=value"
    numbers = [slot.number for slot in descriptors]
    if len(set(numbers)) != len(numbers):
        yield f"{what}: a descriptor number is used twice"
    for slot in descriptors:
        if not LOWEST <= slot.number <= HIGHEST:
            yield f"{what}: descriptor {slot.number} is outside {LOWEST} to {HIGHEST}"
        if slot.handle not in known:
            yield (
                f"{what}: descriptor {slot.number} is {slot.handle!r}, "
                "which is neither a handle nor a listening endpoint"
            )


def handles(machine: Machine) -> Iterator[str]:
    """Every handle that the machine names."""
    kernel, firmware = machine.boot.kernel, machine.boot.firmware
    yield from (h for h in (kernel.kernel_handle, kernel.initrd_handle, firmware.variables_handle) if h)
    for disk in machine.disks:
        yield from (layer.handle for layer in disk.volume.layers)
        yield disk.volume.vhost_user_handle
    for nic in machine.nics:
        yield from (*nic.tap.handles, *nic.tap.vhost_handles, nic.vhost_user.handle, nic.pci.handle)
    yield from (console.log_handle for console in machine.consoles)
    for device in machine.devices:
        yield from (device.tpm.handle, device.vsock.handle, device.pci.handle)
    for filesystem in machine.filesystems:
        yield from (filesystem.vhost_user_handle, filesystem.directory_handle, filesystem.namespace_handle)
