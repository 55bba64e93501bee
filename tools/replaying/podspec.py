"""Replays recorded launcher pods: an instance goes through admission's defaults and becomes a pod."""

import copy
from typing import Any

from replaying import launches, worlds
from replaying.vmi_reconcile import HELPER_VOLUMES

from anyvisor.admission import vmi as admission
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import CREATE, AdmissionRequest
from anyvisor.api.meta import Json, name, namespace
from anyvisor.controller.podspec.render import PodContext, RenderError, render
from anyvisor.controller.podspec.resources import Tenancy
from anyvisor.controller.settings import Settings
from anyvisor.controller.vmi import state_claim

SCHEDULING = (
    "affinity",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostname",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "readinessGates",
    "resourceClaims",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "serviceAccountName",
    "subdomain",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
)
"""Fields of a pod that its cluster acts upon."""
COMPUTE = ("ports", "resources", "readinessProbe", "livenessProbe")
OVERHEAD = "kubevirt.io/memory-overhead-bytes"


def replay(case: Json) -> list[str]:
    """The differences between the recorded pod and ours in what the cluster relies on."""
    want = case["expect"]
    config = case["in"].get("config") or {}
    vmi = _defaulted(case, config)
    try:
        pod = render(vmi, launches.launch(Settings(config).emulation), _context(case, vmi, config))
    except RenderError as cause:
        return [] if "error" in want else [f"no pod: {cause}"]
    if "error" in want:
        return [f"a pod instead of the error {want['error']!r}"]
    return worlds.differences(_facts(want["pod"], vmi), _facts(pod, vmi))


def _defaulted(case: Json, config: Json) -> Json:
    given = case["in"]["object"]
    cluster = ClusterConfig.of(config, case["in"].get("arch", "amd64"))
    request = AdmissionRequest(
        operation=CREATE,
        kind="VirtualMachineInstance",
        object=copy.deepcopy(given),
        namespace=namespace(given),
        new_uuid=lambda: "00000000-0000-4000-8000-000000000000",
        now="2026-06-01T00:00:00Z",
    )
    filled = admission.admit(request, cluster).object or given
    metadata = {**filled["metadata"], "uid": given["metadata"].get("uid")}
    return {**filled, "metadata": metadata, "status": given.get("status", {})}


def _context(case: Json, vmi: Json, config: Json) -> PodContext:
    claims = worlds.by_name(worlds.of_kind(case, "PersistentVolumeClaim"))
    label = "persistent-state-for"
    state = [one for one in claims.values() if one["metadata"].get("labels", {}).get(label) == name(vmi)]
    space = worlds.by_name(worlds.of_kind(case, "Namespace")).get(namespace(vmi), {})
    networks = worlds.of_kind(case, "NetworkAttachmentDefinition")
    return PodContext(
        settings=Settings(config),
        claims=claims,
        state_claim=name(state[0]) if state and state_claim.is_needed(vmi) else "",
        tenancy=Tenancy(space.get("metadata", {}).get("labels", {}), worlds.quotas(case)),
        attachments={f"{namespace(one)}/{name(one)}": one for one in networks},
    )


def _facts(pod: Json, vmi: Json) -> Json:
    spec = pod["spec"]
    compute = next(one for one in spec["containers"] if one["name"] == "compute")
    container: dict[str, Any] = {key: compute.get(key) for key in COMPUTE}
    container["resources"] = launches.memory_without_overhead(pod, compute["resources"], vmi)
    for kind in ("readinessProbe", "livenessProbe"):
        container[kind] = _probe(container[kind])
    annotations = dict(pod["metadata"].get("annotations", {}))
    annotations.pop(OVERHEAD, None)
    return {
        "annotations": annotations,
        "labels": pod["metadata"].get("labels"),
        "owners": pod["metadata"].get("ownerReferences"),
        "prefix": name(pod).startswith("virt-launcher-") or "virt-launcher-" in str(pod["metadata"]),
        "spec": {key: spec.get(key) for key in SCHEDULING},
        "container": container,
        "devices": sorted(one["name"] for one in compute.get("volumeDevices", [])),
        "volumes": [one for one in spec["volumes"] if one["name"] not in HELPER_VOLUMES],
        "seccomp": _seccomp(spec),
    }


def _probe(probe: Json | None) -> Json | None:
    """A probe without the command by which a launcher asks its guest."""
    if probe is None or "exec" not in probe:
        return probe
    return {**probe, "exec": "asks the guest"}


def _seccomp(spec: Json) -> Json | None:
    """A profile that an admin chose; the one that a launcher has by itself is its own."""
    profile = spec.get("securityContext", {}).get("seccompProfile")
    return profile if profile and profile["type"] == "Localhost" else None
