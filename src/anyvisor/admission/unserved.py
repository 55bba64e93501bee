"""What the API has and Anyvisor does not serve yet: refused with a sentence, never ignored.

A stage of its own: the server applies it to a create after the compatible rules, and to an update for what the update
adds. As a feature is built, its row goes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, items, mapping, text


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is not served: its path (`[]` = each member), optionally the value alone that is not."""

    path: str
    sentence: str
    value: object = None


_SERVED_VOLUMES = "containerDisk, persistentVolumeClaim, dataVolume, ephemeral and emptyDisk"
_UNSERVED_VOLUMES = ("containerPath", "downwardMetrics", "memoryDump")
_SHARED_VOLUMES = (
    *("persistentVolumeClaim", "dataVolume", "configMap", "secret", "downwardAPI", "serviceAccount"),
    *_UNSERVED_VOLUMES,
)
_SERVED_SHARES = "persistentVolumeClaim, dataVolume, configMap, secret, downwardAPI and serviceAccount"
"""What a filesystem may be of; the last are told of as volumes."""
_UNSERVED_BINDINGS = ("binding", "passtBinding", "sriov")

SPEC_ROWS: tuple[Row, ...] = (
    *(
        Row(f"volumes[].{kind}", f"volumes of this kind are not served yet; use {_SERVED_VOLUMES}")
        for kind in _UNSERVED_VOLUMES
    ),
    *(
        Row(f"domain.devices.interfaces[].{kind}", "this binding is not served yet; use masquerade or bridge")
        for kind in _UNSERVED_BINDINGS
    ),
    Row("networks[].pod.vmIPv6NetworkCIDR", "guests have IPv4 on the pod network, not IPv6 yet; remove it"),
    Row("networks[].multus.default", "another default network is not served yet; use `pod: {}`", value=True),
    Row("networks[].resourceClaim", "networks by claim are not served yet; use the pod network"),
    Row("resourceClaims", "resource claims are not served yet; remove them"),
)
VM_ROWS: tuple[Row, ...] = (
    Row("spec.updateVolumesStrategy", "volume migration is not served yet; remove it", "Migration"),
    Row("spec.runStrategy", "receiving a migration is not served yet; use another run strategy", "WaitAsReceiver"),
)
KINDS: dict[str, str] = {
    "VirtualMachineInstanceMigration": "live migration is not served yet; stop and start the VM instead",
    "VirtualMachineInstanceReplicaSet": "replica sets are not served yet; create single VirtualMachines",
}
_SPEC_PATHS = {
    "VirtualMachine": "spec.template.spec",
    "VirtualMachineInstance": "spec",
}


def check(kind: str, obj: Obj, old: Obj | None = None) -> Causes:
    """The reasons why an object cannot be served; what `old` already has (an update) is let be."""
    out = Causes()
    if kind in KINDS:
        if old is None:
            out.unsupported("kind", f"{kind}: {KINDS[kind]}")
        return out
    known = {path for path, _ in _found(kind, old)} if old is not None else set[str]()
    for path, row in _found(kind, obj):
        if path not in known:
            out.unsupported(path, f"{path}: {row.sentence}")
    return out


def _found(kind: str, obj: Obj) -> Iterator[tuple[str, Row]]:
    if kind not in _SPEC_PATHS:
        return
    at = _SPEC_PATHS[kind]
    spec = obj
    for step in at.split("."):
        spec = mapping(spec.get(step))
    for row in SPEC_ROWS:
        for path in _present(at, spec, row.path.split("."), row):
            yield path, row
    for path in _unshared(at, spec):
        yield path, Row("", f"a volume of this kind is not served as a filesystem; use {_SERVED_SHARES}, or a disk")
    if kind == "VirtualMachine":
        for row in VM_ROWS:
            for path in _present("", obj, row.path.split("."), row):
                yield path, row


def _unshared(at: str, spec: Obj) -> Iterator[str]:
    """The filesystems of volumes that cannot be shared."""
    volumes = {text(volume.get("name")): volume for volume in items(spec.get("volumes"))}
    for index, filesystem in enumerate(items(mapping(mapping(spec.get("domain")).get("devices")).get("filesystems"))):
        volume = volumes.get(text(filesystem.get("name")))
        if volume is not None and all(volume.get(kind) is None for kind in _SHARED_VOLUMES):
            yield f"{at}.domain.devices.filesystems[{index}]"


def _present(at: str, holder: Obj, steps: list[str], row: Row) -> Iterator[str]:
    step, rest = steps[0], steps[1:]
    name = step.removesuffix("[]")
    value, path = holder.get(name), f"{at}.{name}" if at else name
    if value is None:
        return
    if step != name:
        for index, member in enumerate(items(value)):
            yield from _present(f"{path}[{index}]", member, rest, row)
    elif rest:
        yield from _present(path, mapping(value), rest, row)
    elif value == row.value if row.value is not None else value != []:
        yield path
