"""Needs against statements: what is met, what is replaced, what is missing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from anyvisor.api.quantity import Quantity
from anyvisor.planning.manifest import Manifest, Statement
from anyvisor.planning.patching import with_value
from anyvisor.planning.plan import Finding, Substitution
from anyvisor.planning.registry import Capability, Need, Registry, Substitute, value_at

MAX_ROUNDS: Final = 8
"""A substitution may raise new needs; this many times it is looked again."""
FIRST: Final = "$first"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the caller and the class allow."""

    allow_experimental: bool = False
    allow_degraded: bool = True
    allow_unknown: bool = False
    """Accept what the driver does not state: verdict UNKNOWN in place of REFUSED."""
    allow_emulation: bool = True
    on_cluster: bool = False
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a need is not met."""

    code: str
    message: str
    have: str = ""
    want: str = ""


@dataclass(slots=True)
class Judgement:
    """The outcome over all needs of one machine."""

    spec: dict[str, Any]
    """With substitutions applied."""
    needs: list[Need] = field(default_factory=list[Need])
    """Those that are met."""
    unmet: list[Need] = field(default_factory=list[Need])
    findings: list[Finding] = field(default_factory=list[Finding])
    substitutions: list[Substitution] = field(default_factory=list[Substitution])

    @property
    def confirmed(self) -> tuple[str, ...]:
        """The ids that the machine needs and the driver states."""
        return tuple(sorted({need.capability.id for need in self.needs}))


def lack(need: Need, manifest: Manifest, policy: Policy, architecture: str) -> Lack | None:
    """What stands between the need and the driver; None when it is met."""
    capability = need.capability
    doc = capability.doc.rstrip(".")
    who = manifest.title or manifest.driver
    statement = manifest.capabilities.get(capability.id)
    if statement is None:
        return Lack("CAP_NOT_STATED", f"{who} does not state {capability.id} ({doc})", "not stated", "yes")
    note = f": {statement.note}" if statement.note else ""
    if not statement.yes or (statement.arch and architecture not in statement.arch):
        return Lack("CAP_NO", f"{who} does not have {capability.id} ({doc}){note}", "no", "yes")
    if statement.level == "experimental" and not policy.allow_experimental:
        return Lack(
            "CAP_EXPERIMENTAL",
            f"{who} has {capability.id} as experimental, which the class does not allow{note}",
            "experimental",
            "supported",
        )
    if need.value is None:
        return None
    return _value_lack(need, statement, who, note)


def _value_lack(need: Need, statement: Statement, who: str, note: str) -> Lack | None:
    capability, value = need.capability, need.value
    if capability.kind == "set":
        if _in_set(str(value), statement.values, glob=capability.match == "glob"):
            return None
        have = ", ".join(statement.values)
        return Lack(
            "VALUE_NOT_IN_SET",
            f"{who} has no {capability.id} {str(value)[:64]!r}, but {have}{note}",
            have,
            str(value)[:64],
        )
    if statement.max is not None and value > statement.max:
        most, wanted = _shown(statement.max, capability), _shown(value, capability)
        return Lack("LIMIT_EXCEEDED", f"{who} allows {capability.id} up to {most}, not {wanted}{note}", most, wanted)
    if statement.min is not None and value < statement.min:
        least, wanted = _shown(statement.min, capability), _shown(value, capability)
        return Lack(
            "OUT_OF_RANGE", f"{who} needs {capability.id} of at least {least}, not {wanted}{note}", least, wanted
        )
    return None


def _shown(value: int, capability: Capability) -> str:
    """A number as its user would write it in the field."""
    return str(Quantity.of_bytes(value)) if capability.unit == "bytes" else str(value)


def _in_set(value: str, values: Iterable[str], *, glob: bool) -> bool:
    return any(fnmatchcase(value, one) if glob else value == one for one in values)


def judge(
    spec: Mapping[str, Any],
    defaulted: Mapping[str, str],
    manifest: Manifest,
    policy: Policy,
    registry: Registry,
) -> Judgement:
    """All needs of the machine against the driver. Defaults that cannot be met are replaced or dropped."""
    current = dict(spec)
    sources = dict(defaulted)
    substitutions: list[Substitution] = []
    notes: list[Finding] = []
    result = Judgement(spec=current)
    before: dict[str, list[Need]] | None = None
    changed: list[str] = []
    for _ in range(MAX_ROUNDS):
        result = Judgement(spec=current, findings=list(notes), substitutions=list(substitutions))
        needs = registry.needs(current, sources, before, changed)
        before, changed = {}, []
        for need in needs:
            before.setdefault(need.capability.id, []).append(need)
        for need in needs:
            problem = lack(need, manifest, policy, _architecture(current, manifest))
            if problem is None:
                result.needs.append(need)
                continue
            degrades = need.capability.miss == "degrade" and policy.allow_degraded
            replaced = _substitutes(need, manifest, result.spec) if need.soft or degrades else None
            if replaced is None and degrades:
                replaced = _removals(need, result.spec)
            if replaced is None:
                result.unmet.append(need)
                result.findings.append(_refusal(need, problem, policy))
                continue
            note = _replaced(need, problem, replaced)
            result.findings.append(note)
            if replaced:
                notes.append(note)
            for substitution in replaced:
                current = with_value(current, substitution.field, substitution.to)
                sources[substitution.field] = f"driver {manifest.driver}"
                substitutions.append(substitution)
                changed.append(substitution.field)
            result.spec, result.substitutions = current, list(substitutions)
        if not changed:
            break
    result.findings += _together(result, manifest)
    result.findings += _unmapped(result.spec, registry, policy)
    return result


def _architecture(spec: Mapping[str, Any], manifest: Manifest) -> str:
    stated = spec.get("architecture")
    return stated if isinstance(stated, str) and stated else manifest.architectures[0]


def _substitutes(need: Need, manifest: Manifest, spec: Mapping[str, Any]) -> list[Substitution] | None:
    """The first substitute that the driver can do, at every place of the need; None when there is none."""
    for substitute in need.capability.substitutes:
        if not all(manifest.states(other) for other in substitute.needs):
            continue
        value = _substitute_value(substitute, manifest.capabilities.get(need.capability.id))
        if value == FIRST:
            continue
        paths = (substitute.path,) if substitute.path else need.fields
        return [
            Substitution(field=path, from_=value_at(spec, path), to=value, reason=need.capability.id)
            for path in paths
            if value_at(spec, path) != value
        ]
    return None


def _substitute_value(substitute: Substitute, statement: Statement | None) -> Any:
    if substitute.value == FIRST and statement is not None and statement.yes and statement.values:
        return statement.values[0]
    return substitute.value


def _removals(need: Need, spec: Mapping[str, Any]) -> list[Substitution]:
    return [
        Substitution(field=path, from_=value, reason=need.capability.id)
        for path in need.fields
        if (value := value_at(spec, path)) is not None and not path.endswith("]")
    ]


def _replaced(need: Need, problem: Lack, substitutions: list[Substitution]) -> Finding:
    capability = need.capability
    soft = need.soft and capability.miss != "degrade"
    made = [s for s in substitutions if s.to is not None]
    shown = [s for s in made if s.to is not False]
    what = f"it runs with {str(shown[0].to)[:64]} instead" if shown else "it runs without"
    return Finding(
        code=("SUBSTITUTED" if shown else "DROPPED") if soft else "DEGRADED",
        severity="info" if soft or need.soft else "warn",
        field="spec." + need.fields[0] if need.fields else "spec",
        capability=capability.id,
        have=problem.have,
        want=problem.want,
        message=f"{problem.message}; {what}"
        + (f" (the value came from {need.source}, not from the machine)" if need.soft else ""),
        remedies=tuple(remedy.text for remedy in capability.remedies),
    )


def _refusal(need: Need, problem: Lack, policy: Policy) -> Finding:
    unknown = problem.code == "CAP_NOT_STATED" and policy.allow_unknown
    return Finding(
        code=problem.code,
        severity="warn" if unknown else "error",
        field="spec." + need.fields[0] if need.fields else "spec",
        capability=need.capability.id,
        have=problem.have,
        want=problem.want,
        message=problem.message,
        remedies=tuple(remedy.text for remedy in need.capability.remedies),
    )


def _together(result: Judgement, manifest: Manifest) -> list[Finding]:
    """What the driver says of capabilities that go, or do not go, together."""
    present = {need.capability.id: need for need in result.needs}
    found: list[Finding] = []
    for capability_id, need in present.items():
        statement = manifest.capabilities[capability_id]
        field_ = "spec." + need.fields[0] if need.fields else "spec"
        problems = [
            ("REQUIRES", other, f"only together with {other}, which the machine does not ask for")
            for other in statement.requires
            if other not in present
        ] + [
            ("CONFLICT", other, f"only without {other}; leave out one of them")
            for other in statement.conflicts
            if other in present
        ]
        found += [
            Finding(
                code=code,
                severity="error",
                field=field_,
                capability=capability_id,
                want=other,
                message=f"{manifest.driver} can do {capability_id} {how}",
            )
            for code, other, how in problems
        ]
    return found


def _unmapped(spec: Mapping[str, Any], registry: Registry, policy: Policy) -> list[Finding]:
    return [
        Finding(
            code="FIELD_UNMAPPED",
            severity="warn" if policy.allow_unknown else "error",
            field="spec." + path[:256],
            message=f"spec.{path[:256]} is not known to the capability registry, so no driver can promise it; "
            "leave it out",
            retry="never",
        )
        for path in registry.unmapped(spec)[:32]
    ]
