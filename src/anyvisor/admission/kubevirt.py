"""Admission of the KubeVirt object: the cluster's configuration. There is exactly one."""

import math
from fnmatch import fnmatchcase

import msgspec

from anyvisor.admission import gates
from anyvisor.admission.config import ARCHITECTURES, ClusterConfig, is_usable
from anyvisor.admission.result import (
    CREATE,
    DELETE,
    FORBIDDEN,
    UPDATE,
    AdmissionRequest,
    AdmissionResult,
    Causes,
    refuse,
    refuse_with,
)
from anyvisor.admission.rules import scheduling
from anyvisor.admission.rules.pod import EVICTION_STRATEGIES
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, items, mapping, shown, strings, text
from anyvisor.admission.view import Spec
from anyvisor.api.duration import DurationError, duration_seconds

_AT = "spec.configuration"
_HOUR = 3600.0
_CA_DURATION, _CERT_DURATION = 168 * _HOUR, 24 * _HOUR
_RENEW_BEFORE = 0.2
_CIPHERS = frozenset(
    f"TLS_{exchange}_WITH_{cipher}"
    for exchange, ciphers in {
        "RSA": (
            "RC4_128_SHA",
            "3DES_EDE_CBC_SHA",
            "AES_128_CBC_SHA",
            "AES_256_CBC_SHA",
            "AES_128_CBC_SHA256",
            "AES_128_GCM_SHA256",
            "AES_256_GCM_SHA384",
        ),
        "ECDHE_ECDSA": (
            "RC4_128_SHA",
            "AES_128_CBC_SHA",
            "AES_256_CBC_SHA",
            "AES_128_CBC_SHA256",
            "AES_128_GCM_SHA256",
            "AES_256_GCM_SHA384",
            "CHACHA20_POLY1305_SHA256",
        ),
        "ECDHE_RSA": (
            "RC4_128_SHA",
            "3DES_EDE_CBC_SHA",
            "AES_128_CBC_SHA",
            "AES_256_CBC_SHA",
            "AES_128_CBC_SHA256",
            "AES_128_GCM_SHA256",
            "AES_256_GCM_SHA384",
            "CHACHA20_POLY1305_SHA256",
        ),
    }.items()
    for cipher in ciphers
) | {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
_WORKLOADS = {
    "VirtualMachineInstance": "Virtual Machine Instances",
    "VirtualMachine": "Virtual Machines",
    "VirtualMachineInstanceReplicaSet": "Virtual Machine Instance Replica Sets",
}
_DOWNTIME_GATES = ("MigrationStallDetection", "MigrationDowntimeTuning")


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """The rules for a create, update and delete of the configuration object."""
    del config
    if request.subresource:
        return AdmissionResult(allowed=True, object=request.object)
    if request.operation == DELETE:
        return _delete(request)
    if request.operation == CREATE and request.related.list("KubeVirt"):
        return refuse_with(
            request.object, "there is already a KubeVirt object, and only one can exist; change that one"
        )
    old = mapping(request.old_object) if request.operation == UPDATE else {}
    spec, old_spec, out = mapping(request.object.get("spec")), mapping(old.get("spec")), Causes()
    configuration = mapping(spec.get("configuration"))
    _check_usable(configuration, out)
    _check_eviction(configuration, out)
    _check_patches(spec, out)
    _check_certificates(mapping(mapping(spec.get("certificateRotateStrategy")).get("selfSigned")), out)
    _check_overhead_ratio(configuration, out)
    _check_gated(configuration, mapping(old_spec.get("configuration")), out)
    _check_tls(mapping(configuration.get("tlsConfiguration")), out)
    _check_seccomp(mapping(configuration.get("seccompConfiguration")), out)
    _check_placement(spec, old_spec, out)
    _check_gate_lists(mapping(configuration.get("developerConfiguration")), out)
    if out:
        return refuse(request.object, out)
    return AdmissionResult(allowed=True, object=request.object, warnings=_warnings(configuration))


def _check_usable(configuration: Obj, out: Causes) -> None:
    if not is_usable(configuration):
        out.invalid(
            _AT,
            f"{_AT} cannot be used as a whole: imagePullPolicy must be Always, IfNotPresent or Never, "
            "network.defaultNetworkInterface bridge or masquerade, memoryOvercommit and cpuAllocationRatio above 0, "
            "pvcTolerateLessSpaceUpToPercent 0 to 100",
        )


def _check_eviction(configuration: Obj, out: Causes) -> None:
    strategy, at = configuration.get("evictionStrategy"), f"{_AT}.evictionStrategy"
    if strategy is not None and strategy not in EVICTION_STRATEGIES:
        out.invalid(at, f"{at} is {shown(strategy)}; use one of {', '.join(EVICTION_STRATEGIES)}")


def _check_patches(spec: Obj, out: Causes) -> None:
    for index, patch in enumerate(items(mapping(spec.get("customizeComponents")).get("patches"))):
        try:
            msgspec.json.decode(text(patch.get("patch")))
        except (msgspec.DecodeError, RecursionError):
            path = f"spec.customizeComponents.patches[{index}].patch"
            out.unsupported("", f"{path} is no valid JSON; correct it", path)


def _seconds(holder: Obj, key: str, default: float) -> float:
    try:
        return duration_seconds(text(holder[key]))
    except (KeyError, DurationError):
        return default


def _check_certificates(rotation: Obj, out: Causes) -> None:
    at = "spec.certificateRotateStrategy.selfSigned"
    old = [
        key for key in ("caRotateInterval", "certRotateInterval", "caOverlapInterval") if rotation.get(key) is not None
    ]
    if old and any(rotation.get(key) is not None for key in ("ca", "server")):
        out.unsupported("", f"{at}: {', '.join(old)} are the old form of ca and server; keep the new one", at)
    ca, server = mapping(rotation.get("ca")), mapping(rotation.get("server"))
    ca_duration = _seconds(rotation, "caRotateInterval", _seconds(ca, "duration", _CA_DURATION))
    ca_renew = _seconds(rotation, "caOverlapInterval", _seconds(ca, "renewBefore", ca_duration * _RENEW_BEFORE))
    cert_duration = _seconds(rotation, "certRotateInterval", _seconds(server, "duration", _CERT_DURATION))
    cert_renew = _seconds(server, "renewBefore", cert_duration * _RENEW_BEFORE)
    if ca_duration < ca_renew:
        out.invalid("", f"{at}.ca: renewBefore is longer than duration; shorten it", f"{at}.ca.renewBefore")
    if cert_duration < cert_renew:
        out.invalid("", f"{at}.server: renewBefore is longer than duration; shorten it", f"{at}.server.renewBefore")
    if cert_duration > ca_duration:
        out.invalid("", f"{at}: server.duration is longer than ca.duration; shorten it", f"{at}.server.duration")


def _check_overhead_ratio(configuration: Obj, out: Causes) -> None:
    written = configuration.get("additionalGuestMemoryOverheadRatio")
    if written is None:
        return
    try:
        ratio = float(text(written))
    except ValueError:
        ratio = math.nan
    if not ratio >= 1.0:
        path = f"{_AT}.additionalGuestMemoryOverheadRatio"
        out.unsupported("", f"{path} is {shown(written)}; give a number of at least 1.0, as text", path)


def _check_gated(configuration: Obj, old: Obj, out: Causes) -> None:
    """Settings that need a gate of the same configuration."""
    on = gates.enabled_gates(configuration.get("developerConfiguration"))
    if mapping(configuration.get("virtTemplateDeployment")).get("enabled") is True and "Template" not in on:
        at = f"{_AT}.virtTemplateDeployment.enabled"
        out.invalid(at, f"{at} needs the feature gate Template; enable it")
    if text(configuration.get("roleAggregationStrategy")) not in ("", "AggregateToDefault") and (
        "OptOutRoleAggregation" not in on
    ):
        at = f"{_AT}.roleAggregationStrategy"
        out.invalid(at, f"{at} Manual needs the feature gate OptOutRoleAggregation; enable it")
    downtime = mapping(configuration.get("migrations")).get("maxDowntimeMs")
    if downtime is None or downtime == mapping(old.get("migrations")).get("maxDowntimeMs"):
        return
    if not on.intersection(_DOWNTIME_GATES):
        wire, path = f"{_AT}.migrationConfiguration.maxDowntimeMs", f"{_AT}.migrations.maxDowntimeMs"
        out.invalid(wire, f"{path} needs the feature gate {' or '.join(_DOWNTIME_GATES)}; enable one", path)


def _check_tls(tls: Obj, out: Causes) -> None:
    at, ciphers = f"{_AT}.tlsConfiguration.ciphers", strings(tls.get("ciphers"))
    if ciphers and text(tls.get("minTLSVersion")) in ("", "VersionTLS13"):
        out.unsupported(at, f"{at} cannot be chosen with TLS 1.3 (the default of minTLSVersion); remove them")
        return
    for index, cipher in enumerate(ciphers):
        if cipher not in _CIPHERS:
            path = f"{at}[{index}]"
            out.unsupported(
                f"{at}#{index}", f"{path} is {cipher!r}, which is no TLS cipher suite; use an IANA name", path
            )


def _check_seccomp(seccomp: Obj, out: Causes) -> None:
    if seccomp.get("virtualMachineInstanceProfile") is None:
        return
    at = f"{_AT}.seccompConfiguration.virtualMachineInstanceProfile.customProfile"
    written = mapping(seccomp["virtualMachineInstanceProfile"]).get("customProfile")
    if written is None:
        out.invalid(at, f"{at} is missing; set localhostProfile or runtimeDefaultProfile")
        return
    profile = mapping(written)
    if profile.get("localhostProfile") is not None and profile.get("runtimeDefaultProfile") is True:
        for key in ("localhostProfile", "runtimeDefaultProfile"):
            out.invalid(f"{at}.{key}", f"{at}: localhostProfile and runtimeDefaultProfile exclude each other; keep one")


def _check_placement(spec: Obj, old: Obj, out: Causes) -> None:
    for part in ("infra", "workloads"):
        section = mapping(spec.get(part))
        placement = section.get("nodePlacement")
        if placement is None or equal(placement, mapping(old.get(part)).get("nodePlacement")):
            continue
        found = Causes()
        scheduling.affinity(Spec.of(mapping(placement), f"spec.{part}.nodePlacement"), ClusterConfig.of(), found)
        for cause in found:
            out.invalid("", cause.message, cause.location)
    replicas = mapping(spec.get("infra")).get("replicas")
    if type(replicas) is int and replicas == 0:
        out.invalid("", "spec.infra.replicas is 0; at least one is needed", "spec.infra.replicas")


def _check_gate_lists(developer: Obj, out: Causes) -> None:
    disabled = set(strings(developer.get("disabledFeatureGates")))
    at = f"{_AT}.developerConfiguration.featureGates"
    for gate in dict.fromkeys(strings(developer.get("featureGates"))):
        if gate in disabled:
            out.add(FORBIDDEN, at, f"{at}: {gate} is enabled and disabled at once; remove it from one of the lists")


def _warnings(configuration: Obj) -> list[str]:
    found = _warnings_of_defaults(configuration)
    found += gates.warnings(strings(mapping(configuration.get("developerConfiguration")).get("featureGates")))
    devices = mapping(configuration.get("mediatedDevicesConfiguration"))
    at = f"{_AT}.mediatedDevicesConfiguration"
    if devices.get("mediatedDevicesTypes") is not None:
        found.append(f"{at}.mediatedDevicesTypes is deprecated, use mediatedDeviceTypes")
    for index, node in enumerate(items(devices.get("nodeMediatedDeviceTypes"))):
        if node.get("mediatedDevicesTypes") is not None:
            found.append(
                f"{at}.nodeMediatedDeviceTypes[{index}].mediatedDevicesTypes is deprecated, use mediatedDeviceTypes"
            )
    if mapping(configuration.get("architectureConfiguration")).get("ppc64le") is not None:
        found.append(f"{_AT}.architectureConfiguration.ppc64le is deprecated and no longer supported; remove it")
    if text(configuration.get("minCPUModel")):
        found.append(f"{_AT}.minCPUModel has no effect any more; remove it")
    policy = text(mapping(configuration.get("instancetype")).get("referencePolicy"))
    if policy not in ("", "reference"):
        found.append(f"{_AT}.instancetype.referencePolicy {policy} is not served yet: VMs keep their references")
    return found


def _warnings_of_defaults(configuration: Obj) -> list[str]:
    """Defaults that would get every guest refused that relies on them."""
    config, found = ClusterConfig.of(configuration), list[str]()
    if config.network_interface.value == "slirp":
        found.append(f"{_AT}.network.defaultNetworkInterface is slirp, which is gone since v1.3; use masquerade")
    for architecture in ARCHITECTURES:
        machine, allowed = config.machine_type(architecture), config.emulated_machines(architecture)
        configured = "configuration" in machine.source and architecture in machine.source
        if configured and not any(fnmatchcase(machine.value, pattern) for pattern in allowed):
            found.append(
                f"{_AT}: the machine type {machine.value!r} is the default on {architecture}, but is not among the "
                f"allowed ones ({', '.join(allowed)}); guests that name none will be refused"
            )
    return found


def _delete(request: AdmissionRequest) -> AdmissionResult:
    current = mapping(request.old_object) or request.object
    strategy = text(mapping(current.get("spec")).get("uninstallStrategy"))
    phase = text(mapping(current.get("status")).get("phase"))
    if strategy in ("", "RemoveWorkloads") or phase != "Deployed":
        return AdmissionResult(allowed=True, object=request.object)
    for kind, plural in _WORKLOADS.items():
        if request.related.list(kind):
            return refuse_with(
                request.object,
                f"there are still {plural}; delete them first, or set spec.uninstallStrategy to RemoveWorkloads",
            )
    return AdmissionResult(allowed=True, object=request.object)
