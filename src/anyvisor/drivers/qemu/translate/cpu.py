"""The CPU: model, features, and what the accelerator puts into it."""

import re
from collections.abc import Iterator
from typing import Final

from anyvisor.drivers.qemu.translate import clock, hyperv
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.v1.machine_spec_pb2 import CpuFeature, Machine
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, Accelerator

HOST_MODELS: Final = ("", "host-model", "host-passthrough")
MAX_CPUS: Final = 255
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def add_cpu(draft: Draft, machine: Machine, host: Host, accelerator: Accelerator) -> None:
    """Model, features and topology."""
    words = [_model(draft, machine, host, accelerator)]
    words += _features(draft, machine, host.cpu_features.get(accelerator))
    if machine.features.hidden_hypervisor:
        words.append("kvm=off")
    words += clock.cpu_flags(machine, accelerator)
    words += hyperv.cpu_flags(draft, machine, accelerator)
    words += _spinlocks(draft, machine, accelerator)
    draft.option("cpu", ",".join(words))
    _add_topology(draft, machine)


def _model(draft: Draft, machine: Machine, host: Host, accelerator: Accelerator) -> str:
    model, kvm = machine.cpu.model, accelerator == ACCELERATOR_KVM
    if model in HOST_MODELS:
        if model and not kvm:
            draft.note(
                "SUBSTITUTED",
                "cpu.model",
                f"{model} has no meaning under software emulation; the guest gets all that it can emulate",
                have="max",
                want=model,
            )
        return "host" if kvm else "max"
    if not _WORD.fullmatch(model):
        draft.refuse("VALUE_INVALID", "cpu.model", f"{model[:80]!r} is no CPU model's name", have=model[:80])
    elif model != "max" and model not in host.cpu_models:
        text = f"CPU model {model[:80]!r} is not known to this QEMU; use one that the node lists"
        draft.refuse("VALUE_NOT_IN_SET", "cpu.model", text, want=model[:80])
    return model


def _features(draft: Draft, machine: Machine, known: frozenset[str] | None) -> Iterator[str]:
    """`known`: what the accelerator can give; None = QEMU itself has to find out."""
    required = False
    for index, feature in enumerate(machine.cpu.features):
        path, name = f"cpu.features[{index}]", feature.name.replace("_", "-")
        if not _WORD.fullmatch(feature.name):
            draft.refuse("VALUE_INVALID", f"{path}.name", "this is no feature's name", have=feature.name[:40])
            continue
        has = known is None or name in known
        match feature.policy:
            case CpuFeature.POLICY_FORCE:
                yield f"{name}=on"
            case CpuFeature.POLICY_REQUIRE:
                required = True
                if not has:
                    draft.refuse("VALUE_UNAVAILABLE", path, f"this node's CPUs have no {name}", want=name)
                yield f"{name}=on"
            case CpuFeature.POLICY_OPTIONAL:
                if has:
                    yield f"{name}=on"
            case CpuFeature.POLICY_DISABLE:
                yield f"{name}=off"
            case CpuFeature.POLICY_FORBID:
                if known is not None and has:
                    text = f"this node's CPUs have {name}, which the machine forbids; use disable to hide it"
                    draft.refuse("VALUE_UNAVAILABLE", path, text, have=name)
                yield f"{name}=off"
            case _:
                draft.refuse("CAP_NO", f"{path}.policy", "use force, require, optional, disable or forbid")
    if required and known is None:
        yield "enforce=on"


def _spinlocks(draft: Draft, machine: Machine, accelerator: Accelerator) -> list[str]:
    if not machine.features.HasField("pv_spinlocks"):
        return []
    wanted = machine.features.pv_spinlocks
    if accelerator == ACCELERATOR_KVM:
        return [f"kvm-pv-unhalt={'on' if wanted else 'off'}"]
    if wanted:
        text = "software emulation has no paravirtual spin locks; the guest does without"
        draft.note("IGNORED", "features.pv_spinlocks", text, severity="warn")
    return []


def _add_topology(draft: Draft, machine: Machine) -> None:
    cpu = machine.cpu
    sockets, cores, threads = cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1
    total = sockets * cores * threads
    if total > MAX_CPUS:
        have, want = str(MAX_CPUS), str(total)
        draft.refuse("LIMIT_EXCEEDED", "cpu", f"a machine has at most {MAX_CPUS} CPUs", have=have, want=want)
    most = _most_sockets(draft, machine, sockets, cores * threads)
    maximum = f",maxcpus={most * cores * threads}" if most > sockets else ""
    draft.option("smp", f"cpus={total}{maximum},sockets={most},cores={cores},threads={threads}")


def _most_sockets(draft: Draft, machine: Machine, sockets: int, per_socket: int) -> int:
    """The sockets that the board has places for; those above `sockets` can be filled while the guest runs."""
    wanted = max(machine.cpu.max_sockets, sockets)
    most = max(min(wanted, MAX_CPUS // per_socket), sockets)
    if most < wanted:
        text = f"the machine has places for {most} sockets, as it can have {MAX_CPUS} CPUs at most"
        draft.note("LIMITED", "cpu.max_sockets", text, have=str(most), want=str(wanted))
    return most
