"""Rules for the smaller devices and settings of the domain."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.values import enabled, integer, items, mapping, shown, text
from anyvisor.admission.view import Spec

IO_THREAD_POLICIES = ("shared", "auto", "supplementalPool")
PANIC_MODELS = ("hyperv", "isa", "pvpanic")
SOUND_MODELS = ("ich9", "ac97")


def inputs(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Input devices: a tablet, on usb or virtio."""
    del config
    for index, device in enumerate(items(spec.devices.get("inputs"))):
        at = f"{spec.at}.domain.devices.inputs[{index}]"
        if text(device.get("bus")) not in ("", "virtio", "usb"):
            out.invalid(f"{at}.bus", f"{at}.bus is {shown(device.get('bus'))}; use virtio or usb")
        if device.get("type") != "tablet":
            out.invalid(f"{at}.type", f"{at}.type is {shown(device.get('type'))}; the only input device is a tablet")


def io_threads(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The policy for IO threads; a pool needs its size."""
    del config
    policy = spec.domain.get("ioThreadsPolicy")
    if policy is None:
        return
    at = f"{spec.at}.domain"
    if policy not in IO_THREAD_POLICIES:
        where = f"{at}.ioThreadsPolicy"
        out.invalid(where, f"{where} is {shown(policy)}; use one of {', '.join(IO_THREAD_POLICIES)}")
    if policy == "supplementalPool":
        count = integer(mapping(spec.domain.get("ioThreads")).get("supplementalPoolThreadCount"))
        if count < 1:
            where = f"{at}.ioThreads.supplementalPoolThreadCount"
            out.invalid(
                f"{at}.ioThreads.count", f"{where} is missing; the policy supplementalPool needs at least 1", where
            )


def displays(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Only one virtual GPU can show the early boot; a video device needs graphics."""
    del config
    count = 0
    for gpu in items(spec.devices.get("gpus")):
        display = mapping(gpu.get("virtualGPUOptions")).get("display")
        if display is None or mapping(display).get("enabled") is False:
            continue
        ram_framebuffer = mapping(display).get("ramFB")
        count += ram_framebuffer is None or enabled(ram_framebuffer)
    if count > 1:
        path = f"{spec.at}.domain.devices.gpus"
        out.invalid(
            f"{spec.at}.GPUs", f"{path}: {count} displays have ramFB; keep it on one (ramFB.enabled: false)", path
        )
    if spec.devices.get("video") is not None and spec.devices.get("autoattachGraphicsDevice") is False:
        path = f"{spec.at}.domain.devices.video"
        out.invalid(
            f"{spec.at}.video", f"{path} has no effect with autoattachGraphicsDevice: false; remove one of them", path
        )


def host_devices(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Passing host devices through needs its gate."""
    if spec.devices.get("hostDevices") and not config.on("HostDevices"):
        path = f"{spec.at}.domain.devices.hostDevices"
        out.invalid(
            f"{spec.at}.HostDevices",
            f"{path} needs the feature gate HostDevices; enable it or remove the devices",
            path,
        )


def sound(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The sound device: a name and a known model."""
    del config
    if spec.devices.get("sound") is None:
        return
    device, at, path = mapping(spec.devices["sound"]), f"{spec.at}.Sound", f"{spec.at}.domain.devices.sound"
    if text(device.get("model")) not in ("", *SOUND_MODELS):
        out.invalid(
            at, f"{path}.model is {shown(device.get('model'))}; use {' or '.join(SOUND_MODELS)}", f"{path}.model"
        )
    if not text(device.get("name")):
        out.invalid(at, f"{path}.name is missing; give the device a name", path)


def vsock(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """A vsock needs its gate."""
    if spec.devices.get("autoattachVSOCK") is True and not config.on("VSOCK"):
        at = f"{spec.at}.domain.devices.autoattachVSOCK"
        out.invalid(at, f"{at} needs the feature gate VSOCK; enable it or remove the field")


def downward_metrics(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The metrics channel needs its gate."""
    if spec.devices.get("downwardMetrics") is not None and not config.on("DownwardMetrics"):
        at = f"{spec.at}.domain.devices.downwardMetrics"
        out.invalid(at, f"{at} needs the feature gate DownwardMetrics; enable it or remove the field")


def panic_devices(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Panic devices: known models, not on s390x."""
    listed = items(spec.devices.get("panicDevices"))
    if not listed:
        return
    at = f"{spec.at}.domain.devices.panicDevices"
    if (spec.architecture or config.architecture) == "s390x":
        out.invalid(at, f"{at}: s390x has a panic device of its own; remove the list")
    for index, device in enumerate(listed):
        if device.get("model") is not None and device["model"] not in PANIC_MODELS:
            where = f"{at}[{index}].model"
            out.invalid(where, f"{where} is {shown(device['model'])}; use one of {', '.join(PANIC_MODELS)}")


def reboot_policy(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """What a reboot by the guest does can be chosen with its gate only."""
    if spec.domain.get("rebootPolicy") is not None and not config.on("RebootPolicy"):
        at = f"{spec.at}.domain.rebootPolicy"
        out.invalid(at, f"{at} needs the feature gate RebootPolicy; enable it or remove the field")
