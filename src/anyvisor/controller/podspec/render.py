"""The launcher pod as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from anyvisor.api.meta import Json, annotations, labels, list_at, name, namespace, object_at, text_at, uid
from anyvisor.api.names import launcher_pod_name
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.launch import Launch
from anyvisor.controller.podspec import beside, identity, networks, placement, reservations, volumes
from anyvisor.controller.podspec.probes import probe
from anyvisor.controller.podspec.resources import Tenancy, compute_resources
from anyvisor.controller.settings import Settings
from anyvisor.controller.vmi.owner import vmi_reference
from anyvisor.controller.vmi.state_claim import is_needed as state_claim_needed

SHIM: Final = ("python3", "-I", "-S", "/opt/shim.pyc")
DEFAULT_GRACE: Final = 30
GRACE_PADDING: Final = 30
"""Seconds that the pod gets beyond the guest's own time to shut down."""
COPIED_TO_POD: Final = (
    "subdomain",
    "dnsConfig",
    "dnsPolicy",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
)
VERBOSITY_LABEL: Final = "logVerbosity"
HOOKS_ANNOTATION: Final = "hooks.kubevirt.io/hookSidecars"


class RenderError(Exception):
    """The pod cannot be made from this instance; the message is a sentence for its Synchronized condition."""


class ClaimMissingError(RenderError):
    """A claim that a volume names does not exist (yet)."""


@dataclass(frozen=True, slots=True)
class PodContext:
    """What beside instance and plan decides the pod."""

    settings: Settings = field(default_factory=Settings)
    claims: Mapping[str, Json] = field(default_factory=dict[str, Json])
    state_claim: str = ""
    """The claim of persistent firmware and TPM state; empty = none."""
    tenancy: Tenancy = field(default_factory=Tenancy)
    attempt: int = 0
    """Which pod of the instance this is; makes its name."""
    temporary: bool = False
    """Whether the pod only makes the first consumer of its claims known."""
    on_cluster: bool = False
    """Whether a kubelet runs the pod."""
    image_volumes: bool = True
    """Whether a pod can have an image as a volume."""
    attachments: Mapping[str, Json] | None = field(default_factory=dict[str, Json])
    """NetworkAttachmentDefinitions by `namespace/name`, as far as the instance names them; None = no such kind."""


def render(vmi: Json, launch: Launch, context: PodContext) -> Json:
    """The launcher pod; raises RenderError."""
    vmi = {**vmi, "spec": launch.substitute(object_at(vmi, "spec"))}
    _check(vmi, context.settings)
    if state_claim_needed(vmi) and not context.state_claim:
        raise RenderError("the claim that keeps firmware and TPM state does not exist yet")
    images = context.settings.gate("ImageVolume") and context.image_volumes
    try:
        found = volumes.pod_volumes(vmi, context.claims, context.state_claim, launch.shared_memory_bytes, images=images)
        context = _with_network_devices(vmi, context)
        pod_annotations = identity.pod_annotations(vmi, launch, context.settings)
    except volumes.MissingClaimError as cause:
        raise ClaimMissingError(str(cause)) from cause
    except (networks.UnknownBindingError, networks.UnknownAttachmentError) as cause:
        raise RenderError(str(cause)) from cause
    if context.temporary:
        pod_annotations[words.EPHEMERAL_PROVISIONING] = "true"
    extra = beside.containers(vmi, launch, found, copied=not images) if _has_kubelet(context) else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": launcher_pod_name(name(vmi), uid(vmi), context.attempt),
            "namespace": namespace(vmi),
            "labels": identity.pod_labels(vmi) | reservations.labels(vmi, context.claims),
            "annotations": pod_annotations,
            "ownerReferences": [vmi_reference(vmi)],
        },
        "spec": _spec(vmi, launch, context, found) | ({"initContainers": extra} if extra else {}),
    }


def _has_kubelet(context: PodContext) -> bool:
    """Whether a kubelet runs the machine's containers; a pod for a claim's first consumer has none to run."""
    return context.on_cluster and not context.temporary


def _with_network_devices(vmi: Json, context: PodContext) -> PodContext:
    """Where no webhook of the cluster injects the networks' devices into pods, this project asks for them."""
    wanted = list_at(vmi, "spec", "networks")
    definitions = networks.known(namespace(vmi), wanted, context.attachments)
    if context.settings.gate("ExternalNetResourceInjection"):
        return context
    found = networks.device_resources(namespace(vmi), wanted, definitions)
    return replace(context, tenancy=replace(context.tenancy, network_devices=found))


def _spec(vmi: Json, launch: Launch, context: PodContext, found: volumes.PodVolumes) -> Json:
    wanted = object_at(vmi, "spec")
    grace = wanted.get("terminationGracePeriodSeconds")
    spec: Json = {
        "hostname": identity.hostname(vmi),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": (DEFAULT_GRACE if grace is None else grace) + GRACE_PADDING,
        "enableServiceLinks": False,
        "readinessGates": [{"conditionType": words.UNPAUSED}],
        "nodeSelector": placement.node_selector(vmi, launch, context.settings),
        "securityContext": _pod_security(launch, context.settings),
        "containers": [_compute(vmi, launch, context, found)],
        "volumes": found.volumes,
        **_service_account(vmi),
    }
    spec |= {key: duplicate(wanted[key]) for key in COPIED_TO_POD if wanted.get(key)}
    optional: Json = {
        "affinity": placement.affinity(vmi, reservations.labels(vmi, context.claims)),
        "imagePullSecrets": volumes.pull_secrets(vmi),
        "runtimeClassName": text_at(context.settings.config, "defaultRuntimeClass"),
        "resourceClaims": duplicate(list_at(wanted, "resourceClaims")),
    }
    return spec | {key: value for key, value in optional.items() if value}


def _compute(vmi: Json, launch: Launch, context: PodContext, found: volumes.PodVolumes) -> Json:
    container: Json = {
        "name": "compute",
        "image": launch.image,
        "command": ["/bin/true"] if context.temporary else [*SHIM, "run", volumes.RUN_PATH],
        "resources": compute_resources(vmi, launch, context.settings, context.tenancy),
        "volumeMounts": found.mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if not context.temporary:
        stop = {"exec": {"command": [*SHIM, "stop", volumes.RUN_PATH]}}
        container["lifecycle"] = {"preStop": stop}
    optional: Json = {
        "imagePullPolicy": text_at(context.settings.config, "imagePullPolicy"),
        "volumeDevices": found.devices,
        "ports": _ports(vmi),
        "readinessProbe": probe(vmi, "readinessProbe"),
        "livenessProbe": probe(vmi, "livenessProbe"),
    }
    return container | {key: value for key, value in optional.items() if value}


def _ports(vmi: Json) -> list[Json]:
    """Ports of the guest, so that Services and policies can name them."""
    found: list[Json] = []
    for interface in list_at(vmi, "spec", "domain", "devices", "interfaces"):
        for port in list_at(interface, "ports"):
            entry: Json = {"containerPort": port["port"], "protocol": port.get("protocol") or "TCP"}
            found.append({"name": port["name"], **entry} if port.get("name") else entry)
    return found


def _pod_security(launch: Launch, settings: Settings) -> Json:
    profile = object_at(settings.config, "seccompConfiguration", "virtualMachineInstanceProfile", "customProfile")
    if text_at(profile, "localhostProfile"):
        seccomp: Json = {"type": "Localhost", "localhostProfile": text_at(profile, "localhostProfile")}
    elif launch.seccomp is not None:
        seccomp = launch.seccomp
    else:
        seccomp = {"type": "RuntimeDefault"}
    user = launch.run_as_user
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": seccomp,
    }


def _service_account(vmi: Json) -> Json:
    """The pod gets a token only where the guest or a service mesh is to have one."""
    by_volume = next(
        (
            text_at(volume, "serviceAccount", "serviceAccountName")
            for volume in list_at(vmi, "spec", "volumes")
            if "serviceAccount" in volume
        ),
        "",
    )
    mesh = annotations(vmi).get(identity.ISTIO_INJECT) == "true"
    account = text_at(vmi, "spec", "serviceAccountName") or by_volume
    found: Json = {"automountServiceAccountToken": bool(by_volume) or mesh}
    return {**found, "serviceAccountName": account} if account else found


def _check(vmi: Json, settings: Settings) -> None:
    verbosity = labels(vmi).get(VERBOSITY_LABEL)
    if verbosity is not None and not verbosity.lstrip("+-").isdecimal():
        raise RenderError(f"label {VERBOSITY_LABEL} is {verbosity!r}, which is no number; correct or remove it")
    permitted = settings.config.get("permittedHostDevices")
    if isinstance(permitted, dict):
        _check_host_devices(vmi, object_at(settings.config, "permittedHostDevices"))
    if annotations(vmi).get(HOOKS_ANNOTATION):
        raise RenderError(
            f"annotation {HOOKS_ANNOTATION} asks for hook side containers, which this version does not serve; "
            "remove it to start the machine without them"
        )


def _check_host_devices(vmi: Json, permitted: Json) -> None:
    kinds = ("pciHostDevices", "mediatedDevices", "usb")
    allowed = {one.get("resourceName") for kind in kinds for one in list_at(permitted, kind)}
    devices = object_at(vmi, "spec", "domain", "devices")
    for kind in ("gpus", "hostDevices"):
        for one in list_at(devices, kind):
            wanted = one.get("deviceName")
            if wanted and wanted not in allowed:
                raise RenderError(
                    f"spec.domain.devices.{kind} asks for {wanted!r}, which permittedHostDevices in the "
                    "KubeVirt configuration does not list; add it there or ask for another device"
                )
