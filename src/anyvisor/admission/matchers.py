"""A VM's references to an instance type and a preference: their form, their change, and inferring them."""

from anyvisor.admission.defaults.filler import Filler
from anyvisor.admission.result import NOT_FOUND, AdmissionRequest, Causes
from anyvisor.admission.values import Obj, items, mapping, shown, text
from anyvisor.api import instancetypes

_KINDS = ("instancetype", "preference")
_POLICIES = ("Reject", "Ignore")
_LABEL = "instancetype.kubevirt.io/default-"


class _NotInferableError(Exception):
    """The volume exists but tells nothing, which the policy Ignore lets pass."""


class _NotFoundError(Exception):
    """Something that should tell does not exist."""


def check(vm: Obj, old: Obj | None) -> Causes:
    """The form of both references; on an update, a new name needs a new revision."""
    out = Causes()
    spec = mapping(vm.get("spec"))
    for kind in _KINDS if old is not None else ():
        _check_update(kind, spec.get(kind), mapping(mapping(old).get("spec")).get(kind), out)
        if out:
            return out
    for kind in _KINDS:
        if spec.get(kind) is not None:
            _check_form(f"spec.{kind}", mapping(spec[kind]), out)
        if out:
            return out
    return out


def _check_update(kind: str, written: object, before: object, out: Causes) -> None:
    if written is None or before is None:
        return
    new, old = mapping(written), mapping(before)
    revision = text(new.get("revisionName"))
    if revision and text(new.get("name")) != text(old.get("name")) and revision == text(old.get("revisionName")):
        at = f"spec.{kind}.revisionName"
        out.invalid(at, f"{at} belongs to {text(old.get('name'))!r}; clear it when changing the name")


def _check_form(at: str, matcher: Obj, out: Causes) -> None:
    name, volume = text(matcher.get("name")), text(matcher.get("inferFromVolume"))
    if not name and not volume:
        out.add(NOT_FOUND, at, f"{at} names nothing; give name or inferFromVolume")
    if volume:
        for key in ("name", "kind"):
            if text(matcher.get(key)):
                out.unsupported(f"{at}.{key}", f"{at}.{key} excludes inferFromVolume; keep one of them")
    policy = matcher.get("inferFromVolumeFailurePolicy")
    if policy is not None and policy not in _POLICIES:
        where = f"{at}.inferFromVolumeFailurePolicy"
        out.invalid(where, f"{where} is {shown(policy)}; use {' or '.join(_POLICIES)}")


def expand(vm: Obj, request: AdmissionRequest, template: Obj, out: Causes) -> bool:
    """Apply what the VM refers to, as far as it exists, to a copy of its template that is to be judged.

    False where something of it does not exist (yet): the VM is stored, and says so when it is to start.
    """
    spec, found, complete = mapping(vm.get("spec")), dict[str, Obj](), True
    namespace = text(mapping(vm.get("metadata")).get("namespace")) or request.namespace
    for field in instancetypes.KINDS:
        wanted = instancetypes.referred(spec, field)
        if wanted is None:
            continue
        kind, name = wanted
        one = request.related.get(kind, "" if "Cluster" in kind else namespace, name)
        if one is None:
            complete = False
        else:
            found[field] = mapping(one.get("spec"))
    if not found:
        return complete
    for path in instancetypes.apply(found.get("instancetype"), found.get("preference"), template):
        at = f"spec.template.{path}"
        out.invalid(at, f"VM field(s) {at} conflicts with selected instance type; leave it to one of them")
    shortage = instancetypes.shortage(found.get("preference") or {}, template)
    if shortage and not out:
        out.invalid("spec.preference", f"spec.preference: {shortage}; take a larger instance type")
    return complete


def infer(vm: Obj, request: AdmissionRequest, filler: Filler) -> str:
    """Replace references to a volume by what that volume's labels name; gives a sentence when that fails."""
    spec = mapping(vm.get("spec"))
    for kind in _KINDS:
        matcher = mapping(spec.get(kind))
        volume = text(matcher.get("inferFromVolume"))
        if not volume:
            continue
        ignore = matcher.get("inferFromVolumeFailurePolicy") == "Ignore"
        try:
            labels = _labels_of_volume(vm, volume, f"{_LABEL}{kind}", request)
        except _NotInferableError as error:
            if not ignore:
                return (
                    f"spec.{kind}.inferFromVolume: {error}; name the {kind} or set inferFromVolumeFailurePolicy: Ignore"
                )
            del spec[kind]
            continue
        except _NotFoundError as error:
            return f"spec.{kind}.inferFromVolume: {error}; correct it or name the {kind}"
        if ignore and kind == "instancetype":
            mapping(mapping(mapping(spec.get("template")).get("spec")).get("domain")).pop("memory", None)
        found = {"name": text(labels[f"{_LABEL}{kind}"])}
        if text(labels.get(f"{_LABEL}{kind}-kind")):
            found["kind"] = text(labels[f"{_LABEL}{kind}-kind"])
        filler.set(spec, kind, found, "spec", f"labels of the volume {volume}")
    return ""


def _labels_of_volume(vm: Obj, name: str, label: str, request: AdmissionRequest) -> Obj:
    volumes = items(mapping(mapping(mapping(vm.get("spec")).get("template")).get("spec")).get("volumes"))
    volume = next((v for v in volumes if text(v.get("name")) == name), None)
    if volume is None:
        raise _NotFoundError(f"there is no volume {name!r}")
    own = text(mapping(vm.get("metadata")).get("namespace")) or request.namespace
    look = _Lookup(request, label, own)
    if volume.get("persistentVolumeClaim") is not None:
        return look.claim(text(mapping(volume["persistentVolumeClaim"]).get("claimName")), own)
    if volume.get("dataVolume") is not None:
        templates = items(mapping(vm.get("spec")).get("dataVolumeTemplates"))
        return look.data_volume(text(mapping(volume["dataVolume"]).get("name")), templates)
    raise _NotInferableError(f"the volume {name!r} is no volume claim or data volume and has no labels")


class _Lookup:
    """Follows a volume to the first object that carries the label."""

    def __init__(self, request: AdmissionRequest, label: str, namespace: str) -> None:
        self._request, self._label, self._namespace = request, label, namespace

    def _get(self, kind: str, namespace: str, name: str) -> Obj:
        found = self._request.related.get(kind, namespace, name)
        if found is None:
            raise _NotFoundError(f"there is no {kind} {namespace}/{name}")
        return found

    def _labels(self, obj: Obj) -> Obj:
        labels = mapping(mapping(obj.get("metadata")).get("labels"))
        if self._label not in labels:
            raise _NotInferableError(f"the volume lacks the label {self._label}")
        return labels

    def claim(self, name: str, namespace: str) -> Obj:
        return self._labels(self._get("PersistentVolumeClaim", namespace, name))

    def data_volume(self, name: str, templates: list[Obj]) -> Obj:
        for template in templates:
            if text(mapping(template.get("metadata")).get("name")) == name:
                return self._data_volume_spec(mapping(template.get("spec")))
        found = self._request.related.get("DataVolume", self._namespace, name)
        if found is None:
            return self.claim(name, self._namespace)
        try:
            return self._labels(found)
        except _NotInferableError:
            return self._data_volume_spec(mapping(found.get("spec")))

    def _data_volume_spec(self, spec: Obj) -> Obj:
        source, reference = mapping(spec.get("source")), mapping(spec.get("sourceRef"))
        if (labels := self._source(source)) is not None:
            return labels
        if reference.get("kind") == "DataSource":
            return self._data_source(text(reference.get("name")), text(reference.get("namespace")) or self._namespace)
        raise _NotInferableError("the source of the data volume has no labels")

    def _source(self, source: Obj) -> Obj | None:
        for key, kind in (("pvc", "PersistentVolumeClaim"), ("snapshot", "VolumeSnapshot")):
            if source.get(key) is not None:
                named = mapping(source[key])
                return self._labels(self._get(kind, text(named.get("namespace")), text(named.get("name"))))
        return None

    def _data_source(self, name: str, namespace: str) -> Obj:
        found = self._get("DataSource", namespace, name)
        try:
            return self._labels(found)
        except _NotInferableError:
            labels = self._source(mapping(mapping(found.get("spec")).get("source")))
            if labels is None:
                raise
            return labels
