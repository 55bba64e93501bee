"""Data volume templates of a VM."""

from anyvisor.admission.config import ARCHITECTURES
from anyvisor.admission.result import UPDATE, AdmissionRequest, Causes
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, items, mapping, text

_ARCHITECTURE_LABEL = "template.kubevirt.io/architecture"


def architecture_of_source(vm: Obj, request: AdmissionRequest) -> tuple[str, str]:
    """The architecture that a DataSource used by the VM is labelled with, and where that was found."""
    own = text(mapping(vm.get("metadata")).get("namespace")) or request.namespace
    for template in items(mapping(vm.get("spec")).get("dataVolumeTemplates")):
        reference = mapping(mapping(template.get("spec")).get("sourceRef"))
        if text(reference.get("kind")).lower() != "datasource":
            continue
        namespace = text(reference.get("namespace")) or own
        source = request.related.get("DataSource", namespace, text(reference.get("name")))
        if source is None:
            continue
        other = mapping(mapping(mapping(source.get("spec")).get("source")).get("dataSource"))
        if other:
            source = request.related.get("DataSource", text(other.get("namespace")), text(other.get("name")))
        labels = mapping(mapping(mapping(source).get("metadata")).get("labels"))
        found = text(labels.get(_ARCHITECTURE_LABEL))
        if found in ARCHITECTURES:
            return found, f"label of the DataSource {namespace}/{text(reference.get('name'))}"
    return "", ""


def check_namespaces(vm: Obj, request: AdmissionRequest, out: Causes) -> None:
    """Data volumes are made in the VM's own namespace."""
    templates = items(mapping(vm.get("spec")).get("dataVolumeTemplates"))
    if request.operation == UPDATE:
        old = items(mapping(mapping(request.old_object).get("spec")).get("dataVolumeTemplates"))
        if equal(templates, old):
            return
    own = text(mapping(vm.get("metadata")).get("namespace")) or request.namespace
    for index, template in enumerate(templates):
        namespace = text(mapping(template.get("metadata")).get("namespace"))
        if namespace and namespace != own:
            at = f"spec.dataVolumeTemplates[{index}]"
            out.invalid(
                at,
                f"{at}.metadata.namespace is {namespace!r}, but the VM is in {own!r}; remove it",
                f"{at}.metadata.namespace",
            )


def check_templates(spec: Obj, volumes: list[Obj], out: Causes) -> None:
    """Each template makes one claim from one source and is used by a volume."""
    used = {
        text(mapping(volume.get(kind)).get(key))
        for volume in volumes
        for kind, key in (("dataVolume", "name"), ("persistentVolumeClaim", "claimName"))
        if volume.get(kind) is not None
    }
    for index, template in enumerate(items(spec.get("dataVolumeTemplates"))):
        wire, path = f"spec.dataVolumeTemplate[{index}]", f"spec.dataVolumeTemplates[{index}]"
        name = text(mapping(template.get("metadata")).get("name"))
        if not name:
            out.required(f"{wire}.name", f"{path}.metadata.name is missing", path)
        elif not _check_claim(wire, path, mapping(template.get("spec")), out) and name not in used:
            out.required(wire, f"{path}: no volume uses the data volume {name!r}; add one or remove the template", path)


def _check_claim(wire: str, path: str, spec: Obj, out: Causes) -> bool:
    """Whether something is wrong with the claim or its source."""
    kinds = [kind for kind in ("pvc", "storage") if spec.get(kind) is not None]
    if len(kinds) != 1:
        told = "has both pvc and storage; keep one" if kinds else "says nothing about its size; add storage"
        out.invalid(f"{wire}.PVC.Storage", f"{path}.spec {told}", f"{path}.spec")
        return True
    claim = mapping(spec[kinds[0]])
    populated = any(claim.get(key) is not None for key in ("dataSource", "dataSourceRef"))
    sourced = any(spec.get(key) is not None for key in ("source", "sourceRef"))
    if populated and sourced:
        out.invalid(f"{wire}.source", f"{path}.spec has a data source of the claim and one of its own; keep one", path)
    elif not populated and not sourced:
        out.invalid(f"{wire}.source.sourceRef", f"{path}.spec has no source; give source or sourceRef", f"{path}.spec")
    elif spec.get("source") is not None:
        named = [key for key, value in mapping(spec["source"]).items() if value is not None]
        if len(named) == 1:
            return False
        told = f"has several kinds ({', '.join(named)}); keep one" if named else "is empty; name a source such as blank"
        out.invalid(f"{wire}.source", f"{path}.spec.source {told}", f"{path}.spec.source")
    else:
        return False
    return True
