"""`plan`: can this class run this machine, where, at what cost, and if not, why not. Pure and total.

Total: no spec, class or manifest that parsed makes it raise; what is wrong becomes a finding.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from anyvisor.api.meta import object_at
from anyvisor.planning import findings as codes
from anyvisor.planning import resources
from anyvisor.planning.facts import DriverFacts, NodeFacts
from anyvisor.planning.judge import Judgement, Policy, judge
from anyvisor.planning.manifest import Manifest
from anyvisor.planning.overhead import OverheadError, check
from anyvisor.planning.patching import effective
from anyvisor.planning.plan import Finding, Plan, PodShape
from anyvisor.planning.registry import Need, Registry, registry

__all__ = ["Assessment", "Driver", "Policy", "assess", "effective", "plan"]

CORE_MINOR: Final = 1
"""The newest HRI minor that the core speaks; equal to the HRI room's, held by a test."""
SKEW: Final = 3
PLAIN_IMAGE: Final = "anyvisor/launcher"
"""Of a driver that names none: the launcher alone, which is enough where there is no VMM in it or it is the host's."""


@dataclass(frozen=True, slots=True)
class Driver:
    """An installed driver: its manifest and the digest of what the file said."""

    manifest: Manifest
    digest: str


@dataclass(frozen=True, slots=True)
class Assessment:
    """A plan, and what it was made from."""

    plan: Plan
    judgement: Judgement


def plan(
    spec: Mapping[str, Any],
    hypervisor_class: Mapping[str, Any],
    driver: Driver,
    nodes: Sequence[NodeFacts] = (),
    policy: Policy | None = None,
    *,
    defaulted: Mapping[str, str] | None = None,
    capabilities: Registry | None = None,
) -> Plan:
    """The plan of a VirtualMachineInstanceSpec on a class.

    `spec` has its defaults filled in; `defaulted` names the paths that nobody wrote, with what gave the value (paths
    with or without a leading `spec.`). `hypervisor_class` is the HypervisorClass object. Without `nodes`, nothing is
    said about where it could run.
    """
    return assess(spec, hypervisor_class, driver, nodes, policy, defaulted=defaulted, capabilities=capabilities).plan


def assess(
    spec: Mapping[str, Any],
    hypervisor_class: Mapping[str, Any],
    driver: Driver,
    nodes: Sequence[NodeFacts] = (),
    policy: Policy | None = None,
    *,
    defaulted: Mapping[str, str] | None = None,
    capabilities: Registry | None = None,
) -> Assessment:
    """The plan with the needs behind it; arguments as of `plan`."""
    manifest = driver.manifest
    allowed = _policy(policy or Policy(), hypervisor_class)
    sources = {path.removeprefix("spec."): source for path, source in (defaulted or {}).items()}
    verdicts = judge(spec, sources, manifest, allowed, capabilities or registry())
    found = list(verdicts.findings)
    parameters, problems = _parameters(hypervisor_class, manifest)
    found += problems
    found += _class_findings(hypervisor_class, manifest, allowed)
    accelerator, possible, problems = _accelerator(hypervisor_class, manifest, nodes, allowed)
    found += problems
    found += _node_findings(driver, nodes, verdicts.needs, accelerator)
    model = resources.model_of(manifest, hypervisor_class)
    for problem in check(model):
        found.append(_class_finding("PARAM_INVALID", f"the class's {problem}"))
    try:
        needs = resources.resources(verdicts.spec, manifest, model, accelerator, possible)
    except OverheadError:
        needs = resources.resources(verdicts.spec, manifest, manifest.overhead, accelerator, possible)
    if not needs.guest_memory_bytes:
        found.append(_no_memory())
    made = Plan(
        hypervisor_class=_name(hypervisor_class),
        driver=manifest.driver,
        driver_version=manifest.version,
        hri_minor=min(manifest.hri.max_minor, CORE_MINOR),
        manifest_digest=driver.digest,
        verdict=codes.verdict(found),
        confirmed=verdicts.confirmed,
        findings=tuple(found),
        accelerator=accelerator,
        machine_type=_text(object_at(verdicts.spec, "domain", "machine").get("type")),
        parameters=parameters,
        launch_mode=manifest.launch_mode,
        resources=needs,
        pod=_pod(manifest, verdicts.spec),
        host_needs=_host_needs(manifest, verdicts, accelerator),
        substitutions=tuple(verdicts.substitutions),
        disk_formats=manifest.capabilities["disk.format"].values if manifest.states("disk.format") else (),
    )
    return Assessment(made, verdicts)


def _name(obj: Mapping[str, Any]) -> str:
    return _text(object_at(obj, "metadata").get("name"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _policy(policy: Policy, hypervisor_class: Mapping[str, Any]) -> Policy:
    stated = object_at(hypervisor_class, "spec", "policy")
    experimental, emulation = stated.get("allowExperimental"), stated.get("allowEmulation")
    if isinstance(experimental, bool):
        policy = replace(policy, allow_experimental=experimental)
    if isinstance(emulation, bool):
        policy = replace(policy, allow_emulation=emulation)
    return policy


def _class_finding(code: str, message: str, **more: Any) -> Finding:
    return Finding(code=code, severity="error", message=message, field="spec.hypervisor", **more)


def _class_findings(hypervisor_class: Mapping[str, Any], manifest: Manifest, policy: Policy) -> list[Finding]:
    found: list[Finding] = []
    name = _name(hypervisor_class)
    namespaces = object_at(hypervisor_class, "spec", "policy").get("namespaces")
    if isinstance(namespaces, list) and policy.namespace and policy.namespace not in namespaces:
        found.append(
            _class_finding(
                "NAMESPACE_FORBIDDEN",
                f"class {name} may not be used from namespace {policy.namespace}; choose another class, "
                "or ask an admin to add the namespace to the class's policy",
            )
        )
    if manifest.launch_mode == "external" and policy.on_cluster:
        found.append(
            _class_finding(
                "EXTERNAL_ON_CLUSTER",
                f"{manifest.driver} runs machines in a daemon outside their pods, which a cluster cannot account for; "
                "choose another class, or use it on a single machine",
                retry="never",
            )
        )
    newest = manifest.hri.max_minor
    if not (CORE_MINOR - SKEW <= newest <= CORE_MINOR + SKEW and manifest.hri.min_minor <= CORE_MINOR):
        found.append(
            _class_finding(
                "SKEW",
                f"{manifest.driver} speaks HRI minors {manifest.hri.min_minor} to {newest}, "
                f"this core up to {CORE_MINOR}: upgrade the older one",
                have=f"{manifest.hri.min_minor}..{newest}",
                want=str(CORE_MINOR),
            )
        )
    return found


def _parameters(hypervisor_class: Mapping[str, Any], manifest: Manifest) -> tuple[dict[str, str], list[Finding]]:
    given = dict(object_at(hypervisor_class, "spec", "parameters"))
    given.pop("accelerator", None)
    properties = object_at(manifest.parameters, "properties")
    values = {name: fact["default"] for name, fact in properties.items() if _has_default(fact)} | given
    found: list[Finding] = []
    for name in sorted(set(given) - set(properties)):
        known = ", ".join(sorted(properties)) or "none"
        found.append(
            _class_finding(
                "PARAM_UNKNOWN",
                f"class {_name(hypervisor_class)} sets the parameter {name[:64]!r}, which {manifest.driver} "
                f"does not know; it knows {known}",
            )
        )
    if manifest.parameters and not found:
        for error in _validator(json.dumps(manifest.parameters, sort_keys=True)).iter_errors(values):
            at = ".".join(str(part) for part in error.instance_path) or "the parameters"
            found.append(
                _class_finding("PARAM_INVALID", f"class {_name(hypervisor_class)}: {at}: {error.message[:256]}")
            )
    return {name: _scalar(value) for name, value in sorted(values.items())}, found


def _has_default(fact: Any) -> bool:
    return isinstance(fact, dict) and "default" in fact


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    return jsonschema_rs.validator_for(json.loads(schema))


def _accelerator(
    hypervisor_class: Mapping[str, Any], manifest: Manifest, nodes: Sequence[NodeFacts], policy: Policy
) -> tuple[str, tuple[str, ...], list[Finding]]:
    """The accelerator that every node that has the driver would use, `auto` when they differ or nothing is known;
    and those that it may turn out to be."""
    offered = [name for name in manifest.accelerators if name != "emulation" or policy.allow_emulation]
    asked = object_at(hypervisor_class, "spec", "parameters").get("accelerator")
    if isinstance(asked, str) and asked not in ("", "auto"):
        if asked not in offered:
            return (
                asked,
                (),
                [
                    _class_finding(
                        "ACCELERATOR_UNAVAILABLE",
                        f"class {_name(hypervisor_class)} asks for accelerator {asked[:32]!r}; "
                        f"{manifest.driver} offers {', '.join(offered) or 'none that the class allows'}",
                    )
                ],
            )
        offered = [asked]
    known = [
        facts.accelerators
        for node in nodes
        if (facts := node.drivers.get(manifest.driver)) is not None and facts.accelerators is not None
    ]
    best = {next((name for name in offered if name in present), "") for present in known}
    if known and best == {""}:
        return "auto", tuple(offered), [_no_accelerator(hypervisor_class, manifest, offered)]
    best.discard("")
    possible = tuple(sorted(best)) or tuple(offered)
    chosen = best.pop() if len(best) == 1 else offered[0] if len(offered) == 1 else "auto"
    if chosen == "emulation":
        return (
            chosen,
            (chosen,),
            [
                Finding(
                    code="EMULATION",
                    severity="info",
                    field="spec.hypervisor",
                    message="the guest runs without hardware virtualization, many times slower: no node offers it",
                    remedies=("turn virtualization on in the firmware of the host, or use another node",),
                )
            ],
        )
    return chosen, possible if chosen == "auto" else (chosen,), []


def _no_accelerator(hypervisor_class: Mapping[str, Any], manifest: Manifest, offered: list[str]) -> Finding:
    return _class_finding(
        "ACCELERATOR_UNAVAILABLE",
        f"no node runs a guest with {', '.join(offered) or 'any accelerator that the class allows'}",
        have="none of them",
        want=", ".join(offered),
        remedies=(
            "turn virtualization on in the firmware of the host",
            f"allow emulation in class {_name(hypervisor_class)}: policy.allowEmulation: true",
        )
        if "emulation" in manifest.accelerators
        else ("turn virtualization on in the firmware of the host",),
    )


def _node_findings(
    driver: Driver, nodes: Sequence[NodeFacts], needs: Sequence[Need], accelerator: str
) -> list[Finding]:
    manifest = driver.manifest
    if not nodes:
        return []
    present = [(node, facts) for node in nodes if (facts := node.drivers.get(manifest.driver)) is not None]
    if not present:
        return [
            Finding(
                code="DRIVER_ABSENT",
                severity="warn",
                field="spec.hypervisor",
                message=f"no node has the driver {manifest.driver}; the machine waits until one has it",
                remedies=(f"install {manifest.driver} on a node",),
            )
        ]
    lacking = [(node, _node_lack(facts, needs, accelerator)) for node, facts in present]
    if all(found is not None for _, found in lacking):
        node, first = lacking[0]
        assert first is not None
        need, reason = first
        return [
            Finding(
                code="NODE_LACKS",
                severity="error",
                field="spec." + need.fields[0] if need and need.fields else "spec.hypervisor",
                capability=need.capability.id if need else f"accel.{accelerator}",
                message=f"no node can run it; {node.name}: {reason}",
                have=f"0 of {len(present)} nodes",
                retry="backoff",
            )
        ]
    able = [facts for (_, facts), (_, found) in zip(present, lacking, strict=True) if found is None]
    if not any(facts.healthy and facts.runs(driver.digest) for facts in able):
        reason = next((found for facts in able if (found := _trouble(facts, driver))), "it reports no reason")
        return [
            Finding(
                code="DRIVER_UNHEALTHY",
                severity="warn",
                field="spec.hypervisor",
                message=f"no node has {manifest.driver} in a healthy state now ({reason}); the machine waits",
                retry="backoff",
            )
        ]
    return []


def _trouble(facts: DriverFacts, driver: Driver) -> str:
    if facts.runs(driver.digest):
        return facts.reason
    other = f"version {facts.version}" if facts.version != driver.manifest.version else "the same version"
    return f"there it is {other} by another manifest than the installed one: complete the upgrade of the driver's pods"


def _node_lack(facts: DriverFacts, needs: Sequence[Need], accelerator: str) -> tuple[Need | None, str] | None:
    if accelerator != "auto" and facts.accelerators is not None and accelerator not in facts.accelerators:
        return None, f"accelerator {accelerator} does not run a guest there"
    for need in needs:
        narrowed = facts.narrowed.get(need.capability.id)
        if narrowed is None:
            continue
        why = f" ({narrowed.reason})" if narrowed.reason else ""
        if not narrowed.state:
            return need, f"{need.capability.id} is not available{why}"
        if narrowed.values is not None and need.value is not None and str(need.value) not in narrowed.values:
            return need, f"{need.capability.id} {need.value} is not available{why}"
        if narrowed.max is not None and isinstance(need.value, int) and need.value > narrowed.max:
            return need, f"{need.capability.id} is at most {narrowed.max}{why}"
    return None


def _no_memory() -> Finding:
    return Finding(
        code="MEMORY_UNKNOWN",
        severity="error",
        field="spec.domain.memory.guest",
        message="the machine states no memory; set domain.memory.guest, as 512Mi",
    )


def _pod(manifest: Manifest, spec: Mapping[str, Any]) -> PodShape:
    architecture = _text(spec.get("architecture")) or manifest.architectures[0]
    return PodShape(
        image=manifest.pod.images.get(architecture, manifest.pod.image) or PLAIN_IMAGE,
        seccomp_profile=manifest.pod.seccomp_profile,
        run_as_user=manifest.pod.run_as_user,
        shared_memory_bytes=resources.guest_memory(spec) if manifest.pod.shared_memory == "guest" else 0,
    )


def _host_needs(manifest: Manifest, verdicts: Judgement, accelerator: str) -> tuple[str, ...]:
    """Labels under the driver's own prefix, which the agent sets from the node's facts."""
    labels = [f"{manifest.driver}/driver"]
    if accelerator in ("kvm", "mshv"):
        labels.append(f"{manifest.driver}/accelerator.{accelerator}")
    varying = {need.capability.id for need in verdicts.needs if need.capability.node_varies}
    return (*labels, *(f"{manifest.driver}/capability.{name}" for name in sorted(varying)))
