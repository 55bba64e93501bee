"""One row or more for every rule of a VMI spec: the change to a valid VMI, and the causes that it brings."""

from typing import Any

import pytest

from anyvisor.admission.rules import spec
from tests.unit.admission.deciding import Change, Json, both, causes, decide, drop, gates, put, vmi

RULES = spec.RULES

Causes = set[tuple[str, str]]
DEVICES = "spec.domain.devices"
DISK = f"{DEVICES}.disks[0]"
NIC = f"{DEVICES}.interfaces[0]"
CPU = "spec.domain.cpu"
REQUESTS, LIMITS = "spec.domain.resources.requests", "spec.domain.resources.limits"
DEDICATED = put(f"{CPU}.dedicatedCpuPlacement", True)
GRACE = {"resourceName": "nvidia.com/grace", "pciVendorSelector": "10DE:2342"}


def volume(source: Json, disk: Json | None = None) -> Change:
    """A second volume with its disk."""

    def change(obj: Json) -> None:
        obj["spec"]["volumes"].append({"name": "more", **source})
        obj["spec"]["domain"]["devices"]["disks"].append({"name": "more", **(disk or {"disk": {"bus": "virtio"}})})

    return change


def network(source: Json, interface: Json) -> Change:
    """A second network with its interface."""

    def change(obj: Json) -> None:
        obj["spec"]["networks"].append({"name": "more", **source})
        obj["spec"]["domain"]["devices"]["interfaces"].append({"name": "more", **interface})

    return change


REQUIRED_NODES = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
WIRE_NODES = "spec.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
REQUIRED_PODS = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
WIRE_PODS = "spec.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"

ROWS: list[tuple[str, Change, Causes]] = [
    # resources
    ("memory negative", put(f"{REQUESTS}.memory", "-1Gi"), {(f"{REQUESTS}.memory", "Invalid")}),
    ("guest memory negative", put("spec.domain.memory.guest", "-1Gi"), {("spec.domain.memory.guest", "Invalid")}),
    ("memory tiny", put(f"{REQUESTS}.memory", "1k"), {(f"{REQUESTS}.memory", "Invalid")}),
    ("memory limit negative", put(f"{LIMITS}.memory", "-1"), {(f"{LIMITS}.memory", "Invalid")}),
    (
        "memory request above limit",
        both(put(f"{REQUESTS}.memory", "2Gi"), put(f"{LIMITS}.memory", "1Gi")),
        {(f"{REQUESTS}.memory", "Invalid")},
    ),
    (
        "hugepages without a size",
        put("spec.domain.memory.hugepages", {"pageSize": "0"}),
        {("spec.domain.memory.hugepages.pageSize", "Invalid")},
    ),
    (
        "less than a hugepage",
        put("spec.domain.memory.hugepages", {"pageSize": "1Gi"}),
        {(f"{REQUESTS}.memory", "Invalid")},
    ),
    (
        "half a hugepage",
        both(put("spec.domain.memory.guest", "3Mi"), put("spec.domain.memory.hugepages", {"pageSize": "2Mi"})),
        {(f"{REQUESTS}.memory", "Invalid")},
    ),
    ("no memory", drop("spec.domain.memory"), {("", "Required")}),
    ("machine", put("spec.domain.machine.type", "pc"), {("spec.domain.machine.type", "Invalid")}),
    ("acpi tables without a name", put("spec.domain.firmware.acpi", {}), {("spec.acpi", "Invalid")}),
    (
        "acpi table in a container disk",
        put("spec.domain.firmware.acpi.slicNameRef", "root"),
        {("spec.acpi.slicNameRef", "Invalid")},
    ),
    ("cpu request negative", put(f"{REQUESTS}.cpu", "-1"), {(f"{REQUESTS}.cpu", "Invalid")}),
    (
        "cpu request above limit",
        both(put(f"{REQUESTS}.cpu", "3"), put(f"{LIMITS}.cpu", "2")),
        {(f"{REQUESTS}.cpu", "Invalid")},
    ),
    (
        "reserved overhead without gate",
        put("spec.domain.memory.reservedOverhead", {"addedOverhead": "1Mi"}),
        {("spec.domain.memory.reservedOverhead", "Invalid")},
    ),
    # cpu
    (
        "dedicated, half a cpu",
        both(DEDICATED, put(f"{LIMITS}.cpu", "1500m")),
        {(f"{REQUESTS}.cpu", "Invalid"), (f"{LIMITS}.cpu", "Invalid")},
    ),
    (
        "dedicated, other number of cores",
        both(DEDICATED, put(f"{CPU}.cores", 3), put(f"{REQUESTS}.cpu", "2")),
        {(f"{CPU}.dedicatedCpuPlacement", "Invalid")},
    ),
    (
        "dedicated, memory request and limit differ",
        both(DEDICATED, put(f"{REQUESTS}.memory", "1Gi"), put(f"{LIMITS}.memory", "2Gi")),
        {(f"{REQUESTS}.memory", "Invalid")},
    ),
    (
        "dedicated, three threads",
        both(DEDICATED, put(f"{CPU}.threads", 3)),
        {(f"{CPU}.dedicatedCpuPlacement", "Invalid")},
    ),
    (
        "numa alone",
        put(f"{CPU}.numa.guestMappingPassthrough", {}),
        {(f"{CPU}.numa.guestMappingPassthrough", "Invalid")},
    ),
    (
        "isolated emulator alone",
        put(f"{CPU}.isolateEmulatorThread", True),
        {(f"{CPU}.isolateEmulatorThread", "Invalid")},
    ),
    (
        "feature policy",
        put(f"{CPU}.features", [{"name": "vmx", "policy": "maybe"}]),
        {(f"{CPU}.features[0].policy", "NotSupported")},
    ),
    (
        "sockets above their limit",
        put(CPU, {"sockets": 4, "maxSockets": 2}),
        {(f"{CPU}.sockets", "Invalid")},
    ),
    (
        "realtime alone",
        put(f"{CPU}.realtime", {}),
        {(f"{CPU}.dedicatedCpuPlacement", "Required"), (f"{CPU}.numa.guestMappingPassthrough", "Required")},
    ),
    # pod
    ("hostname", put("spec.hostname", "a.b"), {("spec.hostname", "Invalid")}),
    ("subdomain", put("spec.subdomain", "-"), {("spec.subdomain", "Invalid")}),
    ("start strategy", put("spec.startStrategy", "Later"), {("spec.startStrategy", "Invalid")}),
    (
        "paused with a liveness probe",
        both(put("spec.startStrategy", "Paused"), put("spec.livenessProbe.exec.command", ["x"])),
        {("spec.startStrategy", "Invalid")},
    ),
    ("probe without handler", put("spec.readinessProbe", {}), {("spec.readinessProbe", "Required")}),
    ("probe of no port", put("spec.readinessProbe.httpGet.path", "/health"), {("", "")}),
    (
        "probe with two handlers",
        put("spec.readinessProbe", {"exec": {}, "tcpSocket": {"port": 1}}),
        {("spec.readinessProbe", "Invalid")},
    ),
    (
        "network probe without pod network",
        both(
            put("spec.networks[0]", {"name": "default", "multus": {"networkName": "n"}}),
            put(NIC, {"name": "default", "bridge": {}}),
            put("spec.livenessProbe.httpGet.port", 80),
        ),
        {("spec.livenessProbe.httpGet", "Invalid")},
    ),
    ("eviction strategy", put("spec.evictionStrategy", "Perhaps"), {("spec.evictionStrategy", "Invalid")}),
    ("dns None alone", put("spec.dnsPolicy", "None"), {("spec.dnsConfig", "Required")}),
    (
        "dns",
        put("spec.dnsConfig", {"nameservers": ["a"], "searches": ["_"], "options": [{}]}),
        {("nameservers", "Invalid"), ("searchDomains", "Invalid"), ("options", "Invalid")},
    ),
    # scheduling
    ("node affinity without terms", put(REQUIRED_NODES, []), {(WIRE_NODES, "Invalid")}),
    (
        "node expression",
        put(REQUIRED_NODES, [{"matchExpressions": [{"key": "a/b/c", "operator": "Gt", "values": []}]}]),
        {
            (f"{WIRE_NODES}[0].matchExpressions[0].key", "Invalid"),
            (f"{WIRE_NODES}[0].matchExpressions[0].values", "Invalid"),
        },
    ),
    (
        "node field",
        put(REQUIRED_NODES, [{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}]),
        {(f"{WIRE_NODES}[0].matchFields[0].key", "Invalid")},
    ),
    (
        "pod affinity",
        put(
            REQUIRED_PODS,
            [{"topologyKey": "", "namespaces": ["A"], "labelSelector": {"matchLabels": {"a": "-"}}}],
        ),
        {
            (f"{WIRE_PODS}[0].topologyKey", "Invalid"),
            (f"{WIRE_PODS}[0].namespace", "Invalid"),
            (f"{WIRE_PODS}[0].labelSelector.matchLabels", "Invalid"),
        },
    ),
    (
        "spread",
        put(
            "spec.topologySpreadConstraints",
            [
                {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            ],
        ),
        {
            ("spec.topologySpreadConstraints[0].maxSkew", "Invalid"),
            ("spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}", "Invalid"),
        },
    ),
    # network
    ("two pod networks", network({"pod": {}}, {"masquerade": {}}), {("spec.interfaces", "Duplicate")}),
    (
        "multus default beside the pod network",
        network({"multus": {"networkName": "n", "default": True}}, {"bridge": {}}),
        {("spec.networks", "Invalid")},
    ),
    ("network of no kind", network({}, {"bridge": {}}), {("spec.networks[1]", "Required")}),
    ("interface state", put(f"{NIC}.state", "sideways"), {(f"{NIC}.state", "Invalid")}),
    ("interface without binding", put(NIC, {"name": "default"}), {(NIC, "Invalid")}),
    (
        "masquerade elsewhere",
        network({"multus": {"networkName": "n"}}, {"masquerade": {}}),
        {(f"{DEVICES}.interfaces[1].name", "Invalid")},
    ),
    ("the gateway's mac", put(f"{NIC}.macAddress", "02:00:00:00:00:00"), {(f"{NIC}.macAddress", "Invalid")}),
    ("mac", put(f"{NIC}.macAddress", "02:00"), {(f"{NIC}.macAddress", "Invalid")}),
    ("model", put(f"{NIC}.model", "wifi"), {(f"{NIC}.model", "NotSupported")}),
    ("pci address", put(f"{NIC}.pciAddress", "1:2"), {(f"{NIC}.pciAddress", "Invalid")}),
    ("old binding", put(f"{NIC}.slirp", {}), {(f"{NIC}.slirp", "Invalid")}),
    (
        "ports",
        put(f"{NIC}.ports", [{"port": 0}, {"port": 1, "name": "A", "protocol": "ICMP"}]),
        {
            (f"{NIC}.ports[0].port", "Required"),
            (f"{NIC}.ports[1].name", "Invalid"),
            (f"{NIC}.ports[1].protocol", "Invalid"),
        },
    ),
    ("port ranges without gate", put(f"{NIC}.portRanges", [{"start": 1}]), {(f"{NIC}.name", "Invalid")}),
    (
        "dhcp options",
        put(f"{NIC}.dhcpOptions", {"ntpServers": ["ntp"], "privateOptions": [{"option": 1}]}),
        {("spec", "Invalid"), (f"{NIC}.dhcpOptions.ntpServers[0]", "Invalid")},
    ),
    (
        "interface without network",
        drop("spec.networks"),
        {(f"{NIC}.name", "Invalid")},
    ),
    ("network without interface", drop(f"{DEVICES}.interfaces"), {("spec.networks[0].name", "Required")}),
    # claims
    (
        "claims",
        put("spec.resourceClaims", [{"name": "A"}, {}]),
        {
            ("spec.resourceClaims[0].name", "Invalid"),
            ("spec.resourceClaims[0]", "Invalid"),
            ("spec.resourceClaims[1].name", "Required"),
            ("spec.resourceClaims[1]", "Invalid"),
        },
    ),
    ("gpu that is none", put(f"{DEVICES}.gpus", [{"name": "g"}]), {(f"{DEVICES}.gpus", "Required")}),
    (
        "gpu of an unknown claim",
        put(f"{DEVICES}.gpus", [{"name": "g", "claimName": "c", "requestName": "r"}]),
        {("spec.resourceClaims", "Invalid")},
    ),
    # disks and volumes
    ("disk without volume", drop("spec.volumes"), {(f"{DISK}.name", "Invalid")}),
    (
        "disk names",
        put(DISK, {"name": "Root", "disk": {"bus": "virtio"}}),
        {
            (f"{DISK}.name", "Invalid"),
            ("spec.domain.devices.disks.domain.devices.disks[0].name", "Invalid"),
        },
    ),
    ("ide", put(f"{DISK}.disk.bus", "ide"), {(f"{DISK}.disk.bus", "Invalid")}),
    ("boot order", put(f"{DISK}.bootOrder", 0), {(f"{DISK}.bootOrder", "Invalid")}),
    (
        "boot order twice",
        both(put(f"{DISK}.bootOrder", 1), put(f"{NIC}.bootOrder", 1)),
        {(f"{NIC}.bootOrder", "Invalid")},
    ),
    ("cache", put(f"{DISK}.cache", "some"), {(f"{DISK}.cache", "Invalid")}),
    ("serial", put(f"{DISK}.serial", "a b"), {(f"{DISK}.serial", "Invalid")}),
    (
        "block size",
        put(f"{DISK}.blockSize.custom", {"logical": 100, "physical": 3000}),
        {(f"{DISK}.blockSize.custom.logical", "Invalid"), (f"{DISK}.blockSize.custom.physical", "Invalid")},
    ),
    ("lun of an image", put(DISK, {"name": "root", "lun": {}}), {(f"{DISK}.lun", "Invalid")}),
    ("volume of no kind", put("spec.volumes[0]", {"name": "root"}), {("spec.volumes[0]", "Invalid")}),
    (
        "cloud-init too large",
        volume({"cloudInitNoCloud": {"userData": "x" * 2049}}),
        {("spec.volumes[1].cloudInitNoCloud", "Invalid")},
    ),
    (
        "cloud-init no base64",
        volume({"cloudInitConfigDrive": {"userDataBase64": "%"}}),
        {("spec.volumes[1].cloudInitConfigDrive.userDataBase64", "Invalid")},
    ),
    (
        "host disk without gate",
        volume({"hostDisk": {"path": "/x", "type": "Disk"}}),
        {("spec.volumes[1]", "Invalid")},
    ),
    (
        "path of a container disk",
        put("spec.volumes[0].containerDisk.path", "/a/../b"),
        {("spec.volumes[0].containerDisk", "Invalid")},
    ),
    ("utility volume", put("spec.utilityVolumes", [{}]), {("spec.utilityVolumes", "Invalid")}),
    (
        "filesystem of a claim",
        both(
            put("spec.volumes", [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]),
            put(
                DEVICES,
                {
                    "filesystems": [{"name": "root", "virtiofs": {}}],
                    "interfaces": vmi()["spec"]["domain"]["devices"]["interfaces"],
                },
            ),
        ),
        {(f"{DEVICES}.filesystems", "Invalid")},
    ),
    ("service account", put("spec.serviceAccountName", "A"), {("spec.serviceAccountName", "Invalid")}),
    # credentials
    ("credential of no kind", put("spec.accessCredentials", [{}]), {("spec.accessCredentials[0]", "Invalid")}),
    (
        "ssh key without volume",
        put(
            "spec.accessCredentials",
            [{"sshPublicKey": {"source": {"secret": {}}, "propagationMethod": {"noCloud": {}}}}],
        ),
        {("spec.accessCredentials[0].sshPublicKey.propagationMethod", "Invalid")},
    ),
    # firmware and security
    (
        "two bootloaders",
        put("spec.domain.firmware.bootloader", {"bios": {}, "efi": {"secureBoot": False}}),
        {("spec.domain.firmware.bootloader", "Invalid")},
    ),
    ("secure boot without smm", put("spec.domain.firmware.bootloader.efi", {}), {("spec.domain", "Invalid")}),
    (
        "kernel arguments alone",
        put("spec.domain.firmware.kernelBoot.kernelArgs", "a"),
        {("spec.domain.firmware.kernelBoot.kernelArgs", "Invalid")},
    ),
    ("encryption of no kind", put("spec.domain.launchSecurity", {}), {("spec.launchSecurity", "Forbidden")}),
    ("encryption without efi", put("spec.domain.launchSecurity.sev", {}), {("spec.launchSecurity", "Invalid")}),
    (
        "reservation",
        both(
            put("spec.volumes", [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]),
            put(DISK, {"name": "root", "lun": {"reservation": True, "bus": "scsi"}}),
        ),
        {("spec.domain.devices.disks.luns.reservation", "Invalid")},
    ),
    # devices
    ("input", put(f"{DEVICES}.inputs", [{"type": "mouse"}]), {(f"{DEVICES}.inputs[0].type", "Invalid")}),
    ("io threads", put("spec.domain.ioThreadsPolicy", "few"), {("spec.domain.ioThreadsPolicy", "Invalid")}),
    (
        "io thread pool without size",
        put("spec.domain.ioThreadsPolicy", "supplementalPool"),
        {("spec.domain.ioThreads.count", "Invalid")},
    ),
    (
        "two early displays",
        put(
            f"{DEVICES}.gpus",
            [{"name": n, "deviceName": "a/b", "virtualGPUOptions": {"display": {}}} for n in ("a", "b")],
        ),
        {("spec.GPUs", "Invalid")},
    ),
    (
        "video without graphics",
        both(put(f"{DEVICES}.video.type", "vga"), put(f"{DEVICES}.autoattachGraphicsDevice", False)),
        {("spec.video", "Invalid")},
    ),
    (
        "host device without gate",
        put(f"{DEVICES}.hostDevices", [{"name": "h", "deviceName": "a/b"}]),
        {("spec.HostDevices", "Invalid")},
    ),
    ("sound", put(f"{DEVICES}.sound", {"model": "x"}), {("spec.Sound", "Invalid")}),
    ("vsock", put(f"{DEVICES}.autoattachVSOCK", True), {(f"{DEVICES}.autoattachVSOCK", "Invalid")}),
    ("metrics channel", put(f"{DEVICES}.downwardMetrics", {}), {(f"{DEVICES}.downwardMetrics", "Invalid")}),
    (
        "panic device",
        put(f"{DEVICES}.panicDevices", [{"model": "x"}]),
        {(f"{DEVICES}.panicDevices[0].model", "Invalid")},
    ),
    # architecture, hyperv, metadata
    ("architecture", put("spec.architecture", "sparc"), {("spec.architecture", "Invalid")}),
    ("watchdog", put(f"{DEVICES}.watchdog", {"diag288": {}}), {(f"{DEVICES}.watchdog", "NotSupported")}),
    ("video", put(f"{DEVICES}.video.type", "qxl"), {(f"{DEVICES}.video.type", "NotSupported")}),
    (
        "hyperv",
        put("spec.domain.features.hyperv", {"synic": {}, "vpindex": {"enabled": False}}),
        {("spec.domain.features.hyperv.domain.features.hyperv.synic", "Invalid")},
    ),
    (
        "hyperv twice",
        put("spec.domain.features", {"hyperv": {}, "hypervPassthrough": {}}),
        {("spec.domain.features.hyperv", "Invalid")},
    ),
    ("reserved label", put("metadata.labels", {"kubevirt.io/nodeName": "n"}), {("metadata.labels", "NotSupported")}),
    (
        "gated annotation",
        put("metadata.annotations", {"kubevirt.io/ignitiondata": "x"}),
        {("metadata.annotations", "Invalid")},
    ),
    # ours
    ("hypervisor", put("spec.hypervisor", "Not A Name"), {("spec.hypervisor", "Invalid")}),
    ("hypervisor of another type", put("spec.hypervisor", 3), {("spec.hypervisor", "Invalid")}),
    # shape
    ("choice", put("spec.dnsPolicy", "Mine"), {("", "")}),
    ("count", put(f"{CPU}.cores", -1), {("", "")}),
]


CONFIGURED: list[tuple[str, Change, Json, Causes]] = [
    (
        "guest above its limit, changes at restart",
        both(put("spec.domain.memory.guest", "2Gi"), put(f"{LIMITS}.memory", "1Gi")),
        {"vmRolloutStrategy": "Stage"},
        {("spec.domain.memory.guest", "Invalid")},
    ),
    (
        "grace gpu without gate",
        put(f"{DEVICES}.gpus", [{"name": "g", "deviceName": "nvidia.com/grace"}]),
        {"permittedHostDevices": {"pciHostDevices": [GRACE]}},
        {(f"{DEVICES}.gpus[0].deviceName", "Invalid")},
    ),
    (
        "grace gpu on the root complex",
        both(
            put(f"{DEVICES}.gpus", [{"name": "g", "deviceName": "nvidia.com/grace"}]),
            put("metadata.annotations", {"kubevirt.io/placePCIDevicesOnRootComplex": "true"}),
        ),
        {"permittedHostDevices": {"pciHostDevices": [GRACE]}},
        {
            (f"{DEVICES}.gpus[0].deviceName", "Invalid"),
            ("metadata.annotations[kubevirt.io/placePCIDevicesOnRootComplex]", "Invalid"),
        },
    ),
    (
        "reboot policy without gate",
        put("spec.domain.rebootPolicy", "Terminate"),
        gates(off=["RebootPolicy"]),
        {("spec.domain.rebootPolicy", "Invalid")},
    ),
    (
        "passt without gate",
        put(NIC, {"name": "default", "passtBinding": {}}),
        gates(off=["PasstBinding"]),
        {(f"{NIC}.name", "Invalid")},
    ),
    (
        "bridge that the cluster does not permit",
        put(NIC, {"name": "default", "bridge": {}}),
        {"network": {"permitBridgeInterfaceOnPodNetwork": False}},
        {(f"{NIC}.name", "Invalid")},
    ),
    (
        "empty drive without gate",
        put(f"{DEVICES}.disks[1]", {"name": "drive", "cdrom": {}}),
        gates(off=["DeclarativeHotplugVolumes"]),
        {(f"{DEVICES}.disks[1].name", "Invalid")},
    ),
    (
        "overlapping port ranges",
        put(
            f"{NIC}.portRanges", [{"start": 1, "end": 9, "protocol": "TCP"}, {"start": 9, "end": 12, "protocol": "TCP"}]
        ),
        gates("PortRangesSpec"),
        {(f"{NIC}.portRanges", "Invalid")},
    ),
    (
        "network by claim with a bridge",
        network({"resourceClaim": {"claimName": "c", "requestName": "r"}}, {"bridge": {}}),
        gates("NetworkDevicesWithDRA"),
        {(f"{DEVICES}.interfaces", "Invalid"), ("spec.networks[1].resourceClaim.claimName", "NotFound")},
    ),
    (
        "discontinued gate and binding",
        put(f"{NIC}.passt", {}),
        gates("Passt"),
        {("", "NotSupported"), (f"{NIC}.passt", "Invalid")},
    ),
]
ALL: list[tuple[str, Change, Json, Causes]] = [
    *((name, change, dict[str, Any](), wanted) for name, change, wanted in ROWS),
    *CONFIGURED,
]
NAMES = [row[0] for row in ALL]


def answer(change: Change, configuration: Json) -> Causes:
    return causes(decide(vmi(change), **configuration))


@pytest.mark.parametrize(("change", "configuration", "wanted"), [row[1:] for row in ALL], ids=NAMES)
def test_rule(change: Change, configuration: Json, wanted: Causes) -> None:
    assert answer(change, configuration) == wanted


@pytest.mark.parametrize(("change", "configuration"), [row[1:3] for row in ALL], ids=NAMES)
def test_every_message_names_its_place(change: Change, configuration: Json) -> None:
    for cause in decide(vmi(change), **configuration).causes:
        assert cause.location.startswith(("spec", "metadata")), cause
        assert len(cause.message) > len(cause.location)


def test_the_base_is_valid() -> None:
    assert decide(vmi()).allowed


def test_every_rule_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving any rule out changes the answer to some row."""
    before = [answer(*row[1:3]) for row in ALL]
    silent: list[str] = []
    for rule in spec.RULES:
        monkeypatch.setattr(spec, "RULES", tuple(one for one in RULES if one is not rule))
        if [answer(*row[1:3]) for row in ALL] == before:
            silent.append(rule.__name__)
        monkeypatch.setattr(spec, "RULES", RULES)
    assert silent == []
