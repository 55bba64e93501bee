"""The fleet dry run: what each VM would need to move to another hypervisor class. Pure; `review` asks and prints."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, cast

from anyvisor.api.meta import list_at, text_at

Json = dict[str, Any]
Verdict = Literal["already", "as it is", "with changes", "no"]
HEADER: Final = ("NAMESPACE", "VM", "CLASS NOW", "COULD MOVE", "COST", "NEEDS")
_ACCEPTED: Final = ("SATISFIED", "DEGRADED")
_UNPLACED: Final = ("", "Stopped", "Halted")
RESTART: Final = "a restart"


@dataclass(frozen=True, slots=True)
class Move:
    """What it takes to bring one VM to the class."""

    namespace: str
    vm: str
    now: str
    """The class that runs it, or would."""
    to: str
    verdict: Verdict
    cost: str = ""
    """Of the changes, as counter-offers have it: none, invisible, visible, feature."""
    needs: tuple[str, ...] = ()
    """What has to be done, or for `no` what stands against it."""
    patch: tuple[Json, ...] = ()
    """JSON Patch (RFC 6902) against spec.template.spec."""

    @property
    def row(self) -> Sequence[str]:
        """For the table."""
        return (self.namespace, self.vm, self.now, self.verdict, self.cost or "-", "; ".join(self.needs) or "-")


def move(vm: Mapping[str, Any], review: Mapping[str, Any], target: str) -> Move:
    """From a VM and the status of a MachineReview that asked for the class `target` alone."""
    now = text_at(vm, "status", "hypervisor", "class") or text_at(review, "class")
    where = (text_at(vm, "metadata", "namespace"), text_at(vm, "metadata", "name"), now, target)
    judged = next((each for each in _objects(review, "classes") if each.get("class") == target), Json())
    accepted = judged.get("verdict") in _ACCEPTED
    if accepted and now == target:
        return Move(*where, "already")
    restart = () if text_at(vm, "status", "printableStatus") in _UNPLACED else (RESTART,)
    offer = next((each for each in _objects(review, "offers") if each.get("class") == target), None)
    if accepted:
        lost = tuple(_messages(judged, "warn"))
        cost = str(offer["cost"]) if offer is not None else "feature" if lost else "none"
        patch: Json = {"op": "add", "path": "/hypervisor", "value": target}
        return Move(*where, "as it is", cost, (*lost, *restart), (patch,))
    if offer is not None:
        changes = tuple(f"{each['field']}: {_value(each['value'])}" for each in _objects(offer, "changes"))
        return Move(*where, "with changes", str(offer["cost"]), (*changes, *restart), tuple(_objects(offer, "patch")))
    return Move(*where, "no", "", tuple(dict.fromkeys(_messages(judged, "error"))))


def summary(moves: Sequence[Move], target: str) -> str:
    """One line over all."""
    count = {verdict: sum(each.verdict == verdict for each in moves) for verdict in ("already", "as it is", "no")}
    changed = len(moves) - sum(count.values())
    return (
        f"{len(moves)} VMs: {count['already']} have class {target}, {count['as it is']} could move as they are, "
        f"{changed} with changes, {count['no']} could not"
    )


def as_json(moves: Sequence[Move]) -> list[Json]:
    """For programs."""
    return [asdict(each) for each in moves]


def _objects(holder: Mapping[str, Any], name: str) -> list[Json]:
    return cast("list[Json]", list_at(cast("Json", holder), name))


def _messages(judged: Mapping[str, Any], severity: str) -> list[str]:
    return [str(each["message"]) for each in _objects(judged, "findings") if each["severity"] == severity]


def _value(value: Any) -> str:
    return "remove it" if value is None else str(value)
