"""The part of the objects' form that their CRDs leave open and this API still refuses: choices, and counts.

Such a refusal carries a cause without type and field, as clients of this API know it from its own schema check; the
message names the path.
"""

from collections.abc import Iterator

from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, items, mapping, shown, text

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_SCHEMES = ("HTTP", "HTTPS")
_POLICIES = ("Honor", "Ignore")
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem", "FromStorageProfile")
_REQUIRED_NODE = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]"
_PREFERRED_NODE = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference"

# Path in a VMI spec ([] = each member) -> what may stand there; the last part says whether something must.
_CHOICES: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    *(
        (f"{terms}.{kind}[].operator", _OPERATORS, True)
        for terms in (_REQUIRED_NODE, _PREFERRED_NODE)
        for kind in ("matchExpressions", "matchFields")
    ),
    ("dnsPolicy", ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"), False),
    ("domain.firmware.kernelBoot.container.imagePullPolicy", _PULL_POLICIES, False),
    ("livenessProbe.httpGet.scheme", _SCHEMES, False),
    ("readinessProbe.httpGet.scheme", _SCHEMES, False),
    ("tolerations[].effect", ("NoExecute", "NoSchedule", "PreferNoSchedule"), False),
    ("tolerations[].operator", ("Equal", "Exists"), False),
    ("topologySpreadConstraints[].nodeAffinityPolicy", _POLICIES, False),
    ("topologySpreadConstraints[].nodeTaintsPolicy", _POLICIES, False),
    ("topologySpreadConstraints[].whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"), True),
)
_LARGEST_COUNT = 2**32 - 1
_STEPS = tuple(
    (path.partition(".")[0].removesuffix("[]"), tuple(path.split(".")), allowed, required)
    for path, allowed, required in _CHOICES
)


def check_spec(at: str, spec: Obj, out: Causes, *, complete: bool) -> None:
    """The choices and counts in a VMI spec at the path `at`; `complete`: choices that must be made have to be there."""
    for top, steps, allowed, required in _STEPS:
        if top not in spec:
            continue
        for path, holder in _holders(at, spec, steps[:-1]):
            _check_choice(f"{path}.{steps[-1]}", holder.get(steps[-1]), allowed, out, missing=complete and required)
    for index, volume in enumerate(items(spec.get("volumes"))):
        if "containerDisk" in volume:
            policy = mapping(volume["containerDisk"]).get("imagePullPolicy")
            _check_choice(f"{at}.volumes[{index}].containerDisk.imagePullPolicy", policy, _PULL_POLICIES, out)
    domain = mapping(spec.get("domain"))
    if domain:
        _check_counts(f"{at}.domain", domain, out)
    if complete:
        _check_ports(at, spec, out)


def _check_ports(at: str, spec: Obj, out: Causes) -> None:
    """A probe over the network has a port."""
    for probe in ("livenessProbe", "readinessProbe"):
        actions = mapping(spec.get(probe))
        for action in ("httpGet", "tcpSocket"):
            if actions.get(action) is not None and mapping(actions[action]).get("port") is None:
                _add(f"{at}.{probe}.{action}.port", "is missing; name the port of the guest", out)


def _check_counts(at: str, domain: Obj, out: Causes) -> None:
    """Numbers that cannot be negative and end where 32 bits do."""
    _check_numbers(f"{at}.cpu", domain.get("cpu"), ("cores", "maxSockets", "sockets", "threads"), out)
    _check_numbers(f"{at}.ioThreads", domain.get("ioThreads"), ("supplementalPoolThreadCount",), out)
    hyperv = mapping(mapping(domain.get("features")).get("hyperv"))
    _check_numbers(f"{at}.features.hyperv.spinlocks", hyperv.get("spinlocks"), ("spinlocks",), out)
    devices = mapping(domain.get("devices"))
    for kind in ("disks", "interfaces"):
        for index, device in enumerate(items(devices.get(kind))):
            if "bootOrder" in device:
                _check_numbers(f"{at}.devices.{kind}[{index}]", device, ("bootOrder",), out)
            if "blockSize" in device:
                sizes = mapping(device["blockSize"]).get("custom")
                where = f"{at}.devices.{kind}[{index}].blockSize.custom"
                _check_numbers(where, sizes, ("discardGranularity", "logical", "physical"), out)


def _check_numbers(at: str, holder: object, names: tuple[str, ...], out: Causes) -> None:
    if type(holder) is not dict:
        return
    for name in names:
        count = mapping(holder).get(name)
        if type(count) is int and not 0 <= count <= _LARGEST_COUNT:
            _add(f"{at}.{name}", f"is {shown(count)}; give a count from 0 to {_LARGEST_COUNT}", out)


def check_data_volumes(vm_spec: Obj, out: Causes) -> None:
    """The choices in a VM's data volume templates."""
    for index, template in enumerate(items(vm_spec.get("dataVolumeTemplates"))):
        spec = mapping(template.get("spec"))
        for kind in ("pvc", "storage"):
            at, claim = f"spec.dataVolumeTemplates[{index}].spec.{kind}", mapping(spec.get(kind))
            _check_choice(f"{at}.volumeMode", claim.get("volumeMode"), _VOLUME_MODES, out)
            for number, mode in enumerate(claim.get("accessModes") or () if claim else ()):
                _check_choice(f"{at}.accessModes[{number}]", mode, _ACCESS_MODES, out)


def check_data_sources(vm_spec: Obj, out: Causes) -> None:
    """References of a VM's data volume templates to sources, which must name their API group."""
    for index, template in enumerate(items(vm_spec.get("dataVolumeTemplates"))):
        spec = mapping(template.get("spec"))
        for kind in ("pvc", "storage"):
            for reference in ("dataSource", "dataSourceRef"):
                named = mapping(spec.get(kind)).get(reference)
                if named is not None and mapping(named).get("apiGroup") is None:
                    at = f"spec.dataVolumeTemplates[{index}].spec.{kind}.{reference}.apiGroup"
                    _add(at, "is missing; name the API group of the source", out)


def _holders(path: str, value: Obj, steps: tuple[str, ...]) -> Iterator[tuple[str, Obj]]:
    """Every object at the end of the steps, with its path."""
    if not steps:
        yield path, value
        return
    step, rest = steps[0], steps[1:]
    if step.endswith("[]"):
        name = step[:-2]
        for index, member in enumerate(items(value.get(name))):
            yield from _holders(f"{path}.{name}[{index}]", member, rest)
    elif value.get(step) is not None:
        yield from _holders(f"{path}.{step}", mapping(value[step]), rest)


def _check_choice(at: str, written: object, allowed: tuple[str, ...], out: Causes, *, missing: bool = False) -> None:
    if written is None:
        if missing:
            _add(at, f"is missing; use one of {', '.join(allowed)}", out)
    elif text(written) not in allowed:
        _add(at, f"is {shown(written)}; use one of {', '.join(allowed)}", out)


def _add(path: str, problem: str, out: Causes) -> None:
    out.add("", "", f"{path} {problem}", path)
