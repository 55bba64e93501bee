"""Rules for passing NVIDIA Grace GPUs through, which share coherent memory with their CPU."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, items, mapping, text
from anyvisor.admission.view import Spec

_VENDOR = "10DE"
_DEVICES = frozenset({"2342", "2348", "2941"})
_GATES = ("GraceIOVirtualization", "GraceIO")
_COMPANION_GATES = ("PCINUMAAwareTopology", "IOMMUFD")
_ROOT_COMPLEX = "kubevirt.io/placePCIDevicesOnRootComplex"
_NO_HOLE = "kubevirt.io/disablePCIHole64"


def _selector(written: str) -> tuple[str, str]:
    parts = [part.strip().upper().removeprefix("0X") for part in written.split(":")]
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")


def _requests(spec: Spec, config: ClusterConfig) -> tuple[list[str], list[str]]:
    """The paths of the devices that are such a GPU, and of those that might be one."""
    permitted = items(config.permitted_pci_devices)
    if not permitted:
        return [], []
    selectors = {
        text(device["resourceName"]): _selector(text(device["pciVendorSelector"]))
        for device in permitted
        if text(device.get("resourceName")) and text(device.get("pciVendorSelector"))
    }
    certain: list[str] = []
    possible: list[str] = []
    for kind in ("gpus", "hostDevices"):
        for index, device in enumerate(items(spec.devices.get(kind))):
            vendor, model = selectors.get(text(device.get("deviceName")), ("", ""))
            if vendor != _VENDOR:
                continue
            path = f"{spec.at}.domain.devices.{kind}[{index}].deviceName"
            if model in _DEVICES:
                certain.append(path)
            elif model == "*":
                possible.append(path)
    return certain, possible


def coherent_gpus(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Such a GPU needs its gate, arm64, the virt machine and dedicated CPUs."""
    certain, possible = _requests(spec, config)
    gated = any(config.on(gate) for gate in _GATES)
    if gated:
        for path in possible:
            out.invalid(
                path, f"{path}: its pciVendorSelector ends in '*', but may be a Grace GPU; list the exact model"
            )
    if not certain:
        return
    if not gated:
        for path in certain:
            out.invalid(path, f"{path} is a Grace GPU, which needs the feature gate {_GATES[0]}; enable it")
        return
    arch = spec.architecture or config.architecture
    if arch != "arm64":
        out.invalid(
            f"{spec.at}.architecture", f"{certain[0]} is a Grace GPU, which exists on arm64 only, not on {arch}"
        )
    at = f"{spec.at}.domain"
    machine = text(mapping(spec.domain.get("machine")).get("type")) or config.machine_type(arch).value
    if not machine.startswith("virt"):
        out.invalid(f"{at}.machine.type", f"{at}.machine.type is {machine!r}; a Grace GPU needs a virt machine")
    if spec.cpu.get("dedicatedCpuPlacement") is not True:
        where = f"{at}.cpu.dedicatedCpuPlacement"
        out.required(where, f"{where} must be true with a Grace GPU")
    for gate in _COMPANION_GATES:
        if not config.on(gate):
            out.invalid(
                f"{at}.devices", f"{certain[0]} is a Grace GPU, which needs the feature gate {gate} too; enable it"
            )


def annotations(spec: Spec, written: Obj, at: str, config: ClusterConfig, out: Causes) -> None:
    """Annotations that such a GPU excludes; `at` is the path of the metadata."""
    if not _requests(spec, config)[0]:
        return
    for name, problem in (
        (_ROOT_COMPLEX, "a Grace GPU cannot sit on the root complex"),
        (_NO_HOLE, "a Grace GPU needs the 64-bit PCI hole"),
    ):
        if written.get(name) == "true":
            where = f"{at}.annotations[{name}]"
            out.invalid(where, f"{where}: {problem}; remove the annotation")
