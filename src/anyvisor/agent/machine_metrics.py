"""Metrics of running machines, under the names that KubeVirt's dashboards query."""

from collections.abc import Iterable
from typing import Final

from anyvisor.agent.counters import NANO
from anyvisor.agent.stats import Sample, Samples
from anyvisor.api.exposition import Exposition, Metric, label_text, object_labels
from anyvisor.hri.v1.stats_pb2 import GuestMemoryStats

_VMI = ("node", "namespace", "name")
_P: Final = "kubevirt_vmi_"


def _metrics(prefix: str, kind: str, rows: Iterable[tuple[str, str]], *labels: str) -> list[Metric]:
    what = "counter" if kind == "counter" else "gauge"
    return [Metric(f"{_P}{prefix}{name}", what, text, (*_VMI, *labels)) for name, text in rows]


METRICS: Final[tuple[Metric, ...]] = (
    *_metrics(
        "cpu_",
        "counter",
        (
            ("usage_seconds_total", "CPU time of the VMM, user and system."),
            ("user_usage_seconds_total", "CPU time of the VMM in user mode; a guest's own time is in it."),
            ("system_usage_seconds_total", "CPU time of the VMM in the host's kernel."),
        ),
    ),
    *_metrics(
        "vcpu_",
        "counter",
        (
            ("seconds_total", "Time that a virtual CPU ran."),
            ("delay_seconds_total", "Time that a virtual CPU could have run and waited for a CPU of the host."),
        ),
        "id",
    ),
    *_metrics(
        "memory_",
        "gauge",
        (
            ("domain_bytes", "Memory that the guest has."),
            ("resident_bytes", "Memory of the host that the VMM uses."),
            ("actual_balloon_bytes", "Memory that the balloon leaves to the guest."),
            ("available_bytes", "Memory that the guest's system can use at all."),
            ("unused_bytes", "Memory that the guest does not use."),
            ("usable_bytes", "Memory that the guest could use without swapping."),
            ("cached_bytes", "Memory in the guest that caches disks."),
            ("swap_in_traffic_bytes", "Bytes that the guest read from its swap."),
            ("swap_out_traffic_bytes", "Bytes that the guest wrote to its swap."),
        ),
    ),
    *_metrics(
        "memory_",
        "counter",
        (
            ("pgmajfault_total", "Page faults in the guest that read from a disk."),
            ("pgminfault_total", "Page faults in the guest that read from no disk."),
        ),
    ),
    *_metrics(
        "network_",
        "counter",
        [
            (f"{way}_{what}_total", f"{text} that the guest {verb}.")
            for way, verb in (("receive", "received"), ("transmit", "sent"))
            for what, text in (
                ("bytes", "Bytes"),
                ("packets", "Packets"),
                ("errors", "Faulty packets"),
                ("packets_dropped", "Packets lost on the way"),
            )
        ],
        "interface",
    ),
    *_metrics(
        "storage_",
        "counter",
        (
            ("iops_read_total", "Reads of a disk."),
            ("iops_write_total", "Writes to a disk."),
            ("read_traffic_bytes_total", "Bytes read from a disk."),
            ("write_traffic_bytes_total", "Bytes written to a disk."),
            ("read_times_seconds_total", "Time spent in reads."),
            ("write_times_seconds_total", "Time spent in writes."),
            ("flush_requests_total", "Flushes of a disk."),
            ("flush_times_seconds_total", "Time spent in flushes."),
        ),
        "drive",
    ),
    *(
        Metric(f"kubevirt_{name}", "gauge", f"{text} now.", ("namespace", "vmi"))
        for name, text in (
            ("console_active_connections", "Open serial consoles"),
            ("vnc_active_connections", "Open displays"),
            ("usbredir_active_connections", "Channels for USB devices in use"),
            ("portforward_active_tunnels", "Open connections to ports of a guest"),
        )
    ),
    Metric("anyvisor_agent_stats_seconds", "gauge", "Time that reading all machines' counters took."),
    Metric("anyvisor_agent_stats_silent", "gauge", "Drivers that did not tell their counters.", ("driver",)),
)

_LINKS: Final = tuple(
    (f"{_P}network_{way}_{name}_total", f"{side}_{field}")
    for way, side in (("receive", "received"), ("transmit", "sent"))
    for name, field in (("bytes", "bytes"), ("packets", "packets"), ("errors", "errors"), ("packets_dropped", "drops"))
)
_DISKS: Final = (
    (f"{_P}storage_iops_read_total", "read_requests", 0),
    (f"{_P}storage_iops_write_total", "write_requests", 0),
    (f"{_P}storage_read_traffic_bytes_total", "read_bytes", 0),
    (f"{_P}storage_write_traffic_bytes_total", "write_bytes", 0),
    (f"{_P}storage_read_times_seconds_total", "read_nanoseconds", NANO),
    (f"{_P}storage_write_times_seconds_total", "write_nanoseconds", NANO),
    (f"{_P}storage_flush_requests_total", "flush_requests", 0),
    (f"{_P}storage_flush_times_seconds_total", "flush_nanoseconds", NANO),
)
_MEMORY: Final = (
    (f"{_P}memory_actual_balloon_bytes", "balloon_bytes"),
    (f"{_P}memory_available_bytes", "total_bytes"),
    (f"{_P}memory_unused_bytes", "unused_bytes"),
    (f"{_P}memory_usable_bytes", "available_bytes"),
    (f"{_P}memory_cached_bytes", "disk_cache_bytes"),
    (f"{_P}memory_pgmajfault_total", "major_faults"),
    (f"{_P}memory_pgminfault_total", "minor_faults"),
    (f"{_P}memory_swap_in_traffic_bytes", "swap_in_bytes"),
    (f"{_P}memory_swap_out_traffic_bytes", "swap_out_bytes"),
)


def render(node: str, samples: Samples) -> bytes:
    """The text of all machines of a node."""
    out = Exposition(METRICS)
    for sample in samples.machines:
        labels = label_text(
            {
                "node": node,
                "namespace": sample.namespace,
                "name": sample.name,
                **object_labels("kubernetes_vmi_label_", sample.labels),
            }
        )
        _add_processor(out, labels, sample)
        _add_memory(out, labels, sample)
        _add_devices(out, labels, sample)
        _add_streams(out, sample)
    out.add("anyvisor_agent_stats_seconds", "", samples.seconds)
    for driver in samples.silent:
        out.add("anyvisor_agent_stats_silent", label_text({"driver": driver}), 1)
    return out.text()


def _add_processor(out: Exposition, labels: str, sample: Sample) -> None:
    user, system = sample.host.user_seconds, sample.host.system_seconds
    if user is not None and system is not None:
        out.add(f"{_P}cpu_usage_seconds_total", labels, user + system)
        out.add(f"{_P}cpu_user_usage_seconds_total", labels, user)
        out.add(f"{_P}cpu_system_usage_seconds_total", labels, system)
    for vcpu in sample.stats.vcpus:
        its = f'{labels},id="{vcpu.index}"'
        times = sample.host.threads.get(vcpu.thread_id)
        if vcpu.HasField("run_nanoseconds"):
            out.add(f"{_P}vcpu_seconds_total", its, vcpu.run_nanoseconds * NANO)
        elif times is not None:
            out.add(f"{_P}vcpu_seconds_total", its, times.run)
        if times is not None:
            out.add(f"{_P}vcpu_delay_seconds_total", its, times.delay)


def _add_memory(out: Exposition, labels: str, sample: Sample) -> None:
    out.add(f"{_P}memory_domain_bytes", labels, sample.memory_bytes or None)
    out.add(f"{_P}memory_resident_bytes", labels, sample.host.resident_bytes)
    memory: GuestMemoryStats = sample.stats.memory
    for name, field in _MEMORY:
        if memory.HasField(field):  # pyright: ignore[reportArgumentType]
            out.add(name, labels, getattr(memory, field))


def _add_devices(out: Exposition, labels: str, sample: Sample) -> None:
    for disk in sample.stats.disks:
        its = f"{labels},{label_text({'drive': disk.device_id})}"
        for name, field, scale in _DISKS:
            value = getattr(disk, field)
            out.add(name, its, value * scale if scale else value)
    for interface, link in sample.links.items():
        its = f"{labels},{label_text({'interface': interface})}"
        for name, field in _LINKS:
            out.add(name, its, getattr(link, field))


def _add_streams(out: Exposition, sample: Sample) -> None:
    labels = label_text({"namespace": sample.namespace, "vmi": sample.name})
    out.add("kubevirt_console_active_connections", labels, sample.streams.consoles)
    out.add("kubevirt_vnc_active_connections", labels, sample.streams.displays)
    out.add("kubevirt_portforward_active_tunnels", labels, sample.streams.forwards)
    out.add("kubevirt_usbredir_active_connections", labels, sample.streams.usb_devices)
