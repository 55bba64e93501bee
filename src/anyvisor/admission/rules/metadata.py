"""Rules for labels and annotations of a VMI or a VM's template."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, mapping, text

RESERVED_LABELS = (
    "kubevirt.io/created-by",
    "kubevirt.io/migrationJobUID",
    "kubevirt.io/nodeName",
    "kubevirt.io/migrationTargetNodeName",
    "kubevirt.io/schedulable",
    "kubevirt.io/install-strategy",
)
_GATED_ANNOTATIONS = {
    "kubevirt.io/ignitiondata": "ExperimentalIgnitionSupport",
    "hooks.kubevirt.io/hookSidecars": "Sidecar",
}


def reserved_labels(metadata: Obj) -> Obj:
    """The labels that only the control plane sets."""
    labels = mapping(metadata.get("labels"))
    return {name: labels[name] for name in RESERVED_LABELS if name in labels}


def check(at: str, metadata: Obj, config: ClusterConfig, *, by_component: bool, out: Causes) -> None:
    """Reserved labels and gated annotations of the metadata at the path `at`."""
    reserved = () if by_component else reserved_labels(metadata)
    if reserved:
        out.unsupported(
            f"{at}.labels", f"{at}.labels: {', '.join(reserved)} is set by the control plane alone; remove it"
        )
    annotations = mapping(metadata.get("annotations"))
    for name, gate in _GATED_ANNOTATIONS.items():
        if text(annotations.get(name)) and not config.on(gate):
            out.invalid(
                f"{at}.annotations", f"{at}.annotations: {name} needs the feature gate {gate}; enable it or remove it"
            )
