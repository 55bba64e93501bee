"""Metrics of VMs and their runs as objects, under the names and labels that KubeVirt's dashboards query. Pure."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from anyvisor.api.exposition import Exposition, Metric, label_text

T = TypeVar("T")

NONE: Final = "<none>"
"""What KubeVirt writes for a label that nobody gave."""
_GUEST: Final = ("os", "workload", "flavor")
_OWN: Final = "vm.kubevirt.io/"
_STATUS_GROUPS: Final = {
    **dict.fromkeys(("Provisioning", "Starting", "WaitingForVolumeBinding", "WaitingForReceiver"), "starting"),
    "Running": "running",
    "Migrating": "migrating",
    **dict.fromkeys(("Stopped", "Paused", "Stopping", "Terminating"), "non_running"),
}
GROUPS: Final = ("starting", "running", "migrating", "non_running", "error")
_VM_LABELS: Final = ("name", "namespace")
_INFO: Final = (*_GUEST, "instance_type", "preference")
_VMI_INFO: Final = ("node", "namespace", "name", "phase", *_INFO)

METRICS: Final = (
    Metric("kubevirt_number_of_vms", "gauge", "VMs by namespace.", ("namespace",)),
    Metric("kubevirt_vm_info", "gauge", "A VM and what it is.", (*_VM_LABELS, *_INFO, "status", "status_group")),
    Metric("kubevirt_vm_create_date_timestamp_seconds", "gauge", "When a VM was created.", _VM_LABELS),
    *(
        Metric(
            f"kubevirt_vm_{group}_status_last_transition_timestamp_seconds",
            "gauge",
            f"Since when a VM is {group.replace('_', ' ')}; 0 when it is not.",
            _VM_LABELS,
        )
        for group in GROUPS
    ),
    Metric("kubevirt_vmi_info", "gauge", "A run of a VM and what it is.", (*_VMI_INFO, "evictable", "vmi_pod")),
    Metric("kubevirt_vmi_phase_count", "gauge", "Runs of VMs by phase.", ("node", "phase", *_INFO)),
    Metric(
        "kubevirt_vmi_status_addresses",
        "gauge",
        "An address of a guest.",
        ("node", "namespace", "name", "network_name", "address", "type"),
    ),
    Metric(
        "kubevirt_vmi_non_evictable",
        "gauge",
        "1 for a run that must be moved before its node can be emptied, and cannot be moved.",
        ("node", "namespace", "name"),
    ),
)


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    creation_timestamp: datetime | None = None
    annotations: dict[str, str] = {}


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _Machine(msgspec.Struct, frozen=True):
    type: str = ""


class _Domain(msgspec.Struct, frozen=True):
    machine: _Machine | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    domain: _Domain = _Domain()
    eviction_strategy: str | None = None


class _Template(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _VmSpec(msgspec.Struct, frozen=True):
    template: _Template = _Template()
    instancetype: _Named | None = None
    preference: _Named | None = None


class _VmStatus(msgspec.Struct, frozen=True, rename="camel"):
    printable_status: str = "Unknown"
    conditions: tuple[_Condition, ...] = ()


class Vm(msgspec.Struct, frozen=True):
    """What is read of a VirtualMachine."""

    metadata: _Meta
    spec: _VmSpec = _VmSpec()
    status: _VmStatus = _VmStatus()


class _Interface(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    ip_address: str = ""
    ip_addresses: tuple[str, ...] = ()


class _VmiStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    node_name: str = ""
    conditions: tuple[_Condition, ...] = ()
    interfaces: tuple[_Interface, ...] = ()
    active_pods: dict[str, str] = {}


class Vmi(msgspec.Struct, frozen=True):
    """What is read of a VirtualMachineInstance."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _VmiStatus = _VmiStatus()


def render(vms: Iterable[bytes], vmis: Iterable[bytes], pods: dict[str, str]) -> bytes:
    """The text for all objects, given as JSON; one of an unknown shape is left out. `pods`: names by uid."""
    out = Exposition(METRICS)
    count: Counter[str] = Counter()
    for raw in vms:
        if (vm := _decoded(raw, Vm)) is not None:
            count[vm.metadata.namespace] += 1
            _add_vm(out, vm)
    for namespace, number in sorted(count.items()):
        out.add("kubevirt_number_of_vms", label_text({"namespace": namespace}), number)
    phases: Counter[str] = Counter()
    for raw in vmis:
        if (vmi := _decoded(raw, Vmi)) is not None:
            phases[label_text({"node": vmi.status.node_name, "phase": vmi.status.phase.lower(), **_kind(vmi)})] += 1
            _add_vmi(out, vmi, pods)
    for labels, number in sorted(phases.items()):
        out.add("kubevirt_vmi_phase_count", labels, number)
    return out.text()


def _decoded(raw: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError:
        return None


def _add_vm(out: Exposition, vm: Vm) -> None:
    its = label_text({"name": vm.metadata.name, "namespace": vm.metadata.namespace})
    template, status = vm.spec.template, vm.status.printable_status
    group = _STATUS_GROUPS.get(status, "error")
    machine = template.spec.domain.machine
    info = {
        **{name: template.metadata.annotations.get(_OWN + name, NONE) for name in _GUEST},
        "machine_type": (machine.type if machine is not None else "") or NONE,
        "instance_type": vm.spec.instancetype.name if vm.spec.instancetype is not None else NONE,
        "preference": vm.spec.preference.name if vm.spec.preference is not None else NONE,
        "status": status.lower(),
        "status_group": group,
    }
    out.add("kubevirt_vm_info", f"{its},{label_text(info)}", 1)
    created = _seconds(vm.metadata.creation_timestamp)
    out.add("kubevirt_vm_create_date_timestamp_seconds", its, created)
    since = max((_seconds(each.last_transition_time) for each in vm.status.conditions), default=0) or created
    for each in GROUPS:
        name = f"kubevirt_vm_{each}_status_last_transition_timestamp_seconds"
        out.add(name, its, since if each == group else 0)


def _add_vmi(out: Exposition, vmi: Vmi, pods: dict[str, str]) -> None:
    status = vmi.status
    its = label_text({"node": status.node_name, "namespace": vmi.metadata.namespace, "name": vmi.metadata.name})
    movable = any(each.type == "LiveMigratable" and each.status == "True" for each in status.conditions)
    more = {
        "phase": status.phase.lower(),
        **_kind(vmi),
        "evictable": "true" if movable else "false",
        "vmi_pod": next((pods[uid] for uid in status.active_pods if uid in pods), NONE),
    }
    out.add("kubevirt_vmi_info", f"{its},{label_text(more)}", 1)
    out.add("kubevirt_vmi_non_evictable", its, int(vmi.spec.eviction_strategy == "LiveMigrate" and not movable))
    for interface in status.interfaces:
        for address in interface.ip_addresses or ((interface.ip_address,) if interface.ip_address else ()):
            where = {"network_name": interface.name, "address": address, "type": "InternalIP"}
            out.add("kubevirt_vmi_status_addresses", f"{its},{label_text(where)}", 1)


def _kind(vmi: Vmi) -> dict[str, str]:
    annotations = vmi.metadata.annotations
    return {
        **{name: annotations.get(_OWN + name, NONE) for name in _GUEST},
        "instance_type": annotations.get("kubevirt.io/instancetype-name", NONE),
        "preference": annotations.get("kubevirt.io/preference-name", NONE),
    }


def _seconds(time: datetime | None) -> float:
    return time.timestamp() if time is not None else 0
