"""Passes that run on their own results cost one write."""

from collections.abc import Sequence

from anyvisor.controller.outcome import Change, Create, Outcome, Problem, normal
from anyvisor.controller.settling import creates, held_back, joined, merged, settle
from anyvisor.kube.resources import PODS, VMIS, VMS

Json = dict[str, object]


def thing(step: int) -> Json:
    return {"metadata": {"name": "a"}, "step": step}


def counts_to(end: int, problem_at: int = -1) -> Outcome:
    def step(world: Json) -> Outcome:
        now = int(str(world["step"]))
        event = (normal("Step", f"step {now}"),)
        if now == problem_at:
            return Outcome((Change(VMIS, world, thing(now + 1)),), event, Problem("Stuck", "It is stuck."))
        return Outcome((Change(VMIS, world, thing(now + 1)),), event) if now < end else Outcome()

    return settle(thing(0), step, lambda _, changes: changes[-1].after if changes else None)


def test_the_sum_of_all_steps_is_one_change() -> None:
    outcome = counts_to(3)
    assert outcome.writes == (Change(VMIS, thing(0), thing(3)),)
    assert [event.message for event in outcome.events] == ["step 0", "step 1", "step 2"]


def test_a_problem_ends_the_steps() -> None:
    outcome = counts_to(3, problem_at=1)
    assert outcome.writes == (Change(VMIS, thing(0), thing(2)),)
    assert outcome.problem == Problem("Stuck", "It is stuck.")


def test_endless_steps_are_cut_off() -> None:
    (write,) = counts_to(1000).writes
    assert isinstance(write, Change)
    assert 1 < int(str(write.after["step"])) < 10


def test_after_a_creation_the_world_has_to_answer_first() -> None:
    def step(_: Json) -> Outcome:
        return Outcome((Create(PODS, thing(0)), Change(VMIS, thing(0), thing(1))))

    def follow(_: Json, changes: Sequence[Change]) -> Json:
        raise AssertionError(changes)

    assert len(settle(thing(0), step, follow).writes) == 2


def test_changes_of_different_parts_and_objects_stay_apart() -> None:
    status = Change(VMS, thing(0), thing(1), status=True)
    rest = Change(VMS, thing(0), thing(2))
    other = Change(VMIS, thing(0), thing(3))
    assert merged([status, rest, other]) == (status, rest, other)


def test_held_back_writes_are_looked_at_again_soon() -> None:
    outcome = Outcome((Change(VMIS, thing(0), thing(1)), Create(PODS, thing(0))), requeue_after=5)
    less = held_back(outcome, lambda write: isinstance(write, Change), 0.5)
    assert (less.writes, less.requeue_after) == (outcome.writes[1:], 0.5)
    assert held_back(outcome, lambda _: False, 0.5) == outcome


def test_a_creation_that_a_problem_hinders_is_none() -> None:
    create = (Create(PODS, thing(0)),)
    assert creates(PODS, Outcome(create))
    assert not creates(VMIS, Outcome(create))
    assert not creates(PODS, Outcome(create, problem=Problem("Stuck", "It is stuck.")))


def pod(marks: Json, status: Json) -> Json:
    return {"metadata": {"name": "p", "labels": marks}, "status": status}


def test_a_pods_metadata_and_status_go_in_one_write_at_the_place_of_the_first() -> None:
    first, told, marked = pod({}, {}), pod({}, {"s": 1}), pod({"l": "1"}, {"s": 1})
    other = Change(VMIS, thing(0), thing(1))
    once = Change(PODS, first, marked, status=True, metadata=True)
    assert joined([Change(PODS, first, told, status=True), other, Change(PODS, told, marked)]) == (once, other)
    labelled = pod({"l": "1"}, {})
    assert joined([Change(PODS, first, labelled), Change(PODS, labelled, marked, status=True)]) == (once,)


def test_what_is_one_write_already_or_of_several_objects_stays_as_it_is() -> None:
    first, second = pod({}, {}), {**pod({}, {}), "metadata": {"name": "q"}}
    marked = pod({"l": "1"}, {})
    apart = (Change(PODS, first, marked), Change(PODS, second, second, status=True))
    assert joined(apart) == apart
    vms = (Change(VMS, thing(0), thing(1)), Change(VMS, thing(0), thing(1), status=True))
    assert joined(vms) == vms, "a custom resource takes nothing but the status at its subresource"
