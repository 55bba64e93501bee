"""All rules for a VMI spec, wherever it stands: in a VMI, a VM's template or a replica set's template."""

from collections.abc import Callable

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.rules import (
    claims,
    coherent_gpu,
    cpu,
    credentials,
    devices,
    disks,
    firmware,
    network,
    pod,
    resources,
    scheduling,
    security,
    volumes,
)
from anyvisor.admission.view import Spec

Rule = Callable[[Spec, ClusterConfig, Causes], None]


def _domain(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    del config
    at = f"{spec.at}.domain"
    disks.check(f"{at}.devices.disks", spec.devices.get("disks"), out)
    firmware.check(f"{at}.firmware", spec.domain.get("firmware"), out)
    firmware.check_secure_boot(at, spec.domain, out)


RULES: tuple[Rule, ...] = (
    pod.host_names,
    resources.memory,
    resources.hugepages,
    resources.guest_memory,
    resources.machine_type,
    resources.acpi_tables,
    resources.cpu,
    cpu.dedicated,
    cpu.numa,
    cpu.isolated_emulator,
    cpu.features,
    cpu.sockets,
    pod.start_strategy,
    cpu.realtime,
    scheduling.affinity,
    scheduling.topology_spread,
    network.networks,
    claims.claims_and_devices,
    volumes.disks_and_volumes,
    devices.inputs,
    devices.io_threads,
    pod.probes,
    _domain,
    volumes.volumes,
    volumes.container_disks,
    volumes.utility_volumes,
    credentials.access_credentials,
    pod.dns,
    pod.eviction,
    devices.displays,
    devices.host_devices,
    coherent_gpu.coherent_gpus,
    devices.sound,
    security.launch_security,
    devices.vsock,
    security.reservation,
    devices.downward_metrics,
    volumes.filesystems,
    devices.panic_devices,
    devices.reboot_policy,
    resources.reserved_overhead,
    volumes.service_account,
)


def check(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Apply every rule; the order decides the order of the causes alone."""
    for rule in RULES:
        rule(spec, config, out)


def discontinued_gates(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Bindings whose discontinued gate is listed: the cause names no field, as their gate is what is wrong."""
    for gate, binding in (("Passt", "passt"), ("Macvtap", "macvtap")):
        if gate not in config.listed_gates:
            continue
        for index, interface in enumerate(spec.interfaces):
            if interface.get(binding) is not None:
                path = f"{spec.at}.domain.devices.interfaces[{index}].{binding}"
                out.unsupported(
                    "", f"{path}: the {binding} binding and its gate are gone; use passtBinding or bridge", path
                )
                break
