"""Rules for firmware, kernel boot and the domain as a whole."""

from anyvisor.admission.result import Causes
from anyvisor.admission.rules.disks import check_path
from anyvisor.admission.values import Obj, enabled, mapping, text


def check(at: str, written: object, out: Causes) -> None:
    """All rules for a firmware object at the path `at`."""
    firmware = mapping(written)
    loader = mapping(firmware.get("bootloader"))
    if loader.get("efi") is not None and loader.get("bios") is not None:
        out.invalid(f"{at}.bootloader", f"{at}.bootloader is both efi and bios; keep one of them")
    if firmware.get("kernelBoot") is not None:
        _kernel_boot(f"{at}.kernelBoot", mapping(firmware["kernelBoot"]), out)


def _kernel_boot(at: str, boot: Obj, out: Causes) -> None:
    if boot.get("container") is None:
        if text(boot.get("kernelArgs")):
            out.invalid(f"{at}.kernelArgs", f"{at}.kernelArgs needs a kernel; name its image in {at}.container")
        return
    container, where = mapping(boot["container"]), f"{at}.container"
    paths = {key: text(container.get(key)) for key in ("kernelPath", "initrdPath")}
    if not text(container.get("image")):
        out.required(f"{where}.image", f"{where}.image is missing; name the image that holds the kernel")
    if not any(paths.values()):
        out.required(where, f"{where} names no file; give kernelPath, initrdPath or both")
    for key, path in paths.items():
        if path:
            check_path(f"{where}.{key}", path, out)


def secure_boot(domain: Obj) -> bool:
    """Whether the guest boots with EFI secure boot (the default of EFI)."""
    efi = mapping(mapping(domain.get("firmware")).get("bootloader")).get("efi")
    return efi is not None and mapping(efi).get("secureBoot") is not False


def check_secure_boot(at: str, domain: Obj, out: Causes) -> None:
    """Secure boot needs system management mode, except with TDX, whose firmware stores nothing."""
    if mapping(domain.get("launchSecurity")).get("tdx") is not None:
        return
    if secure_boot(domain) and not enabled(mapping(domain.get("features")).get("smm")):
        out.invalid(
            at,
            f"{at}: EFI secure boot (the default) needs features.smm; set {at}.features.smm.enabled, "
            f"or {at}.firmware.bootloader.efi.secureBoot to false",
            f"{at}.firmware.bootloader.efi",
        )
