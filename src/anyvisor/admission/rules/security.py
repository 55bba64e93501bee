"""Rules for encrypted guests (launch security) and persistent reservations."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import FORBIDDEN, Causes
from anyvisor.admission.values import Obj, enabled, mapping, shown
from anyvisor.admission.view import Spec

_TYPES = {"sev": "SEV", "snp": "SNP", "tdx": "TDX"}
_GATES = {"sev": "WorkloadEncryptionSEV", "snp": "WorkloadEncryptionSEV", "tdx": "WorkloadEncryptionTDX"}


def launch_security(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Encrypted guests: one kind, on amd64 or s390x, with what that kind needs."""
    if spec.domain.get("launchSecurity") is None or spec.architecture == "s390x":
        return
    wire, path = f"{spec.at}.launchSecurity", f"{spec.at}.domain.launchSecurity"
    if spec.architecture != "amd64":
        out.invalid(
            f"{spec.at}.architecture",
            f"{path} exists on amd64 and s390x, not on {spec.architecture or 'an unnamed architecture'}; "
            f"set {spec.at}.architecture or remove it",
            path,
        )
        return
    security = mapping(spec.domain["launchSecurity"])
    kinds = [kind for kind in _TYPES if security.get(kind) is not None]
    if len(kinds) != 1:
        out.add(FORBIDDEN, wire, f"{path} needs exactly one of {', '.join(_TYPES)}", path)
        return
    kind = kinds[0]
    if not config.on(_GATES[kind]):
        out.invalid(wire, f"{path}.{kind} needs the feature gate {_GATES[kind]}; enable it or remove it", path)
        return
    for problem in _problems(kind, security, spec):
        out.invalid(wire, f"{path}.{kind}: {problem}", path)


def _problems(kind: str, security: Obj, spec: Spec) -> list[str]:
    found: list[str] = []
    if kind == "tdx" and enabled(mapping(spec.domain.get("features")).get("smm")):
        found.append("TDX has no system management mode; remove features.smm")
    efi = mapping(mapping(spec.domain.get("firmware")).get("bootloader")).get("efi")
    if efi is None:
        found.append(f"{_TYPES[kind]} guests boot by EFI; set firmware.bootloader.efi")
    else:
        if kind != "tdx" and mapping(efi).get("secureBoot") is not False:
            found.append(f"{_TYPES[kind]} has no secure boot; set firmware.bootloader.efi.secureBoot to false")
        if kind != "sev" and mapping(efi).get("persistent") is True:
            found.append(f"{_TYPES[kind]} cannot store EFI variables; remove firmware.bootloader.efi.persistent")
    attested = mapping(security.get("sev")).get("attestation") is not None
    if attested and spec.raw.get("startStrategy") != "Paused":
        found.append("attestation happens before the guest runs; set startStrategy to Paused")
    found.extend(
        f"an encrypted guest cannot boot from the network; remove bootOrder of {shown(interface.get('name'))}"
        for interface in spec.interfaces
        if interface.get("bootOrder") is not None
    )
    return found


def reservation(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """SCSI persistent reservations must be switched on in the cluster."""
    if config.persistent_reservation:
        return
    for index, disk in enumerate(spec.disks):
        if mapping(disk.get("lun")).get("reservation") is True:
            path = f"{spec.at}.domain.devices.disks[{index}].lun.reservation"
            out.invalid(
                f"{spec.at}.domain.devices.disks.luns.reservation",
                f"{path}: reservations are off in this cluster; set persistentReservationConfiguration.enabled "
                "in its configuration or remove the field",
                path,
            )
