"""Metrics of machines: names, labels, directions, and what is not known."""

from prometheus_client.parser import text_string_to_metric_families

from anyvisor.agent.counters import HostCounters, ThreadTimes, parse_links
from anyvisor.agent.machine_metrics import METRICS, render
from anyvisor.agent.stats import Sample, Samples, Streams, usage
from anyvisor.hri.v1.stats_pb2 import DiskStats, GuestMemoryStats, MachineStats, VcpuStats

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  tap0:    1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
"""  # noqa: E501
ONE = Sample(
    "ns",
    "web",
    {"app": "web"},
    MachineStats(
        machine_id="m",
        vcpus=[VcpuStats(index=0, thread_id=7)],
        memory=GuestMemoryStats(total_bytes=100, swap_in_bytes=0),
        disks=[DiskStats(device_id="root", read_requests=3, read_nanoseconds=2_000_000_000)],
    ),
    HostCounters(1.5, 0.5, 4096, {7: ThreadTimes(9.0, 1.0)}),
    {"default": parse_links(NET_DEV)["tap0"]},
    64 << 20,
    Streams(1, 2, 3),
)


def samples(text: bytes) -> dict[str, tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(text.decode())
    return {each.name: (each.labels, each.value) for family in families for each in family.samples}


def test_the_names_and_labels_that_dashboards_query() -> None:
    found = samples(render("n1", Samples([ONE], 0.25, {"d": "gone"})))
    vmi = {"node": "n1", "namespace": "ns", "name": "web", "kubernetes_vmi_label_app": "web"}
    assert found["kubevirt_vmi_cpu_usage_seconds_total"] == (vmi, 2.0)
    assert found["kubevirt_vmi_vcpu_seconds_total"] == ({**vmi, "id": "0"}, 9.0)
    assert found["kubevirt_vmi_vcpu_delay_seconds_total"][1] == 1.0
    assert found["kubevirt_vmi_memory_domain_bytes"] == (vmi, 64 << 20)
    assert found["kubevirt_vmi_memory_resident_bytes"][1] == 4096
    assert found["kubevirt_vmi_memory_available_bytes"][1] == 100
    assert found["kubevirt_vmi_memory_swap_in_traffic_bytes"][1] == 0
    assert found["kubevirt_vmi_storage_iops_read_total"] == ({**vmi, "drive": "root"}, 3)
    assert found["kubevirt_vmi_storage_read_times_seconds_total"][1] == 2.0
    assert found["kubevirt_console_active_connections"] == ({"namespace": "ns", "vmi": "web"}, 1)
    assert found["anyvisor_agent_stats_silent"] == ({"driver": "d"}, 1)
    assert set(found) <= {metric.name for metric in METRICS}
    assert "kubevirt_vmi_memory_unused_bytes" not in found, "what nobody knows is absent, not 0"


def test_a_tap_is_seen_from_the_guest() -> None:
    found = samples(render("n1", Samples([ONE])))
    assert found["kubevirt_vmi_network_receive_bytes_total"][1] == 2000
    assert found["kubevirt_vmi_network_transmit_packets_total"][1] == 10
    assert found["kubevirt_vmi_network_receive_packets_dropped_total"][1] == 4


def test_usage_for_people() -> None:
    assert usage(ONE) == {
        "namespace": "ns",
        "name": "web",
        "cpuSeconds": 2.0,
        "memoryBytes": 4096,
        "guestMemoryBytes": 64 << 20,
        "diskReadBytes": 0,
        "diskWriteBytes": 0,
        "networkReceivedBytes": 2000,
        "networkSentBytes": 1000,
    }


def test_a_machine_of_which_nothing_is_known_breaks_nothing() -> None:
    nothing = Sample("ns", "x", {}, MachineStats(), HostCounters(), {})
    assert samples(render("n1", Samples([nothing])))["kubevirt_vnc_active_connections"][1] == 0
