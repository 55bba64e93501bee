"""Plans an instance on its hypervisor class and turns the plan into what the pod needs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anyvisor.api.meta import Json, annotations, namespace, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.launch import Launch, Refusal
from anyvisor.planning.classes import ClassError, candidates, choose
from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.plan import Plan, PlanError, decode, digest, encode
from anyvisor.planning.planner import Policy, effective

REFUSED: Final = "HypervisorRefused"
MESSAGE_LIMIT: Final = 1024


@dataclass(frozen=True, slots=True)
class Fleet:
    """The hypervisors that are offered, and the nodes that have them."""

    classes: Sequence[Json] = ()
    drivers: Sequence[Json] = ()
    nodes: Sequence[NodeFacts] = ()
    on_cluster: bool = False


def plan_instance(vmi: Json, fleet: Fleet) -> Launch | Refusal:
    """The launch of the instance on the class that it names, or why there is none.

    Every field counts as asked for: defaults that the driver cannot meet were left out when the instance was stored.
    """
    spec = object_at(vmi, "spec")
    policy = Policy(on_cluster=fleet.on_cluster, namespace=namespace(vmi))
    try:
        among = candidates(text_at(spec, "hypervisor"), fleet.classes, fleet.drivers)
    except ClassError as cause:
        return Refusal(cause.reason, _sentence(str(cause)))
    plan = choose(spec, among, fleet.nodes, policy)
    if not plan.accepted:
        return Refusal(REFUSED, _refusal(plan))
    return launch_of(plan)


def _refusal(plan: Plan) -> str:
    """What stands against it: errors, or what is not known and so not promised."""
    errors = [one for one in plan.findings if one.severity == "error"]
    reasons = errors or [one for one in plan.findings if one.severity == "warn"]
    listed = "; ".join("; ".join((one.message, *one.remedies)) for one in reasons)
    return _sentence(f"Hypervisor class {plan.hypervisor_class} cannot run this instance: {listed}")


def _sentence(text: str) -> str:
    text = text if len(text) <= MESSAGE_LIMIT else f"{text[: MESSAGE_LIMIT - 3]}..."
    return text if text.endswith((".", "...")) else f"{text}."


def launch_of(plan: Plan) -> Launch:
    """What the pod needs to know of a plan."""
    profile = plan.pod.seccomp_profile
    return Launch(
        image=plan.pod.image,
        overhead_bytes=plan.resources.overhead_bytes,
        shared_memory_bytes=plan.pod.shared_memory_bytes,
        devices={one.resource: one.count for one in plan.resources.devices},
        emulation=plan.accelerator not in {"kvm", "mshv"},
        plan=encode(plan).decode(),
        hypervisor=chosen(plan),
        seccomp={"type": "Localhost", "localhostProfile": profile} if profile else None,
        run_as_user=plan.pod.run_as_user,
        node_selector=dict.fromkeys(plan.host_needs, "true"),
        substitute=lambda spec: effective(spec, plan),
    )


def chosen(plan: Plan) -> Json:
    """`status.hypervisor`: what was chosen, and the digest that binds it to the plan."""
    why = {"reason": plan.reason, "runnerUp": plan.runner_up}
    return {
        **{name: value for name, value in why.items() if value},
        "class": plan.hypervisor_class,
        "driver": plan.driver,
        "driverVersion": plan.driver_version,
        "hriMinor": plan.hri_minor,
        "planDigest": digest(plan),
        "accelerator": plan.accelerator,
    }


def chosen_by(pod: Json) -> Json | None:
    """`status.hypervisor` as the plan of an existing launcher pod has it; None where it has none."""
    text = annotations(pod).get(words.PLAN)
    if not text:
        return None
    try:
        return chosen(decode(text))
    except PlanError:
        return None
