"""`auto`: the best class by what the machine prefers, with the reason and the one that would have been next."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.api.hypervisor import PREFERENCES
from anyvisor.planning.classes import ClassError, candidates, choose
from anyvisor.planning.plan import Plan
from tests.unit.planning.builders import manifest, small

Json = dict[str, Any]


def offered() -> tuple[list[Json], list[Json]]:
    """`big` can more, `lean` costs less, `quick` starts sooner; `small` fits few machines."""
    drivers = {
        "big": manifest({"device.rng": {}, "device.watchdog": {}, "ops.rootless": {}}, driver="big.example.org"),
        "lean": manifest(driver="lean.example.org", overhead={"fixed": "1Mi"}),
        "quick": manifest(driver="quick.example.org", startMilliseconds=50),
        "small": manifest({"cpu.count": {"max": 1}}, driver="small.example.org", overhead={"fixed": "0"}),
    }
    classes = [
        {"metadata": {"name": name}, "spec": {"driver": raw["driver"], "weight": weight}}
        for weight, (name, raw) in enumerate(reversed(drivers.items()))
    ]
    objects = [{"metadata": {"name": raw["driver"]}, "spec": {"manifest": raw}} for raw in drivers.values()]
    return classes, objects


def chosen(named: str, cpus: int = 2) -> Plan:
    classes, drivers = offered()
    spec = {**small(cpu={"sockets": cpus, "cores": 1, "threads": 1}), "hypervisor": named}
    return choose(spec, candidates(named, classes, drivers))


@pytest.mark.parametrize(
    ("named", "wins", "next_", "because"),
    [
        ("auto", "big", "lean", "before lean by the classes' weight"),
        ("auto/memory", "lean", "big", "it needs "),
        ("auto/start", "quick", "big", "it starts in about 50 ms; big does not say how fast it starts"),
        ("auto/isolation", "big", "lean", "without privileges; lean runs the guest by"),
        ("auto/features", "big", "lean", "it has "),
        ("auto/start,memory", "quick", "lean", "it starts in about 50 ms"),
    ],
)
def test_what_is_preferred_decides(named: str, wins: str, next_: str, because: str):
    made = chosen(named)
    assert (made.hypervisor_class, made.runner_up) == (wins, next_)
    assert because in made.reason


def test_only_classes_that_accept_the_machine_count():
    assert chosen("auto/memory", cpus=1).hypervisor_class == "small"
    assert chosen("auto/memory", cpus=2).hypervisor_class == "lean"


def test_the_only_one_that_is_left_has_no_runner_up():
    classes, drivers = offered()
    spec = {**small(), "hypervisor": "auto"}
    made = choose(spec, candidates("auto", classes[:1], drivers))
    assert (made.reason, made.runner_up) == ("it is the only class that accepts the machine", "")


def test_a_class_that_was_named_has_no_reason():
    assert (chosen("lean").reason, chosen("lean").runner_up) == ("", "")


def test_a_preference_that_means_nothing_is_told():
    with pytest.raises(ClassError, match="prefers beauty; after auto/ may stand features, isolation, memory, start"):
        chosen("auto/beauty")


@given(st.lists(st.sampled_from(PREFERENCES), max_size=4), st.integers(1, 4))
def test_the_winner_always_accepts_and_the_choice_is_stable(wanted: list[str], cpus: int):
    named = f"auto/{','.join(wanted)}" if wanted else "auto"
    made = chosen(named, cpus)
    assert made.accepted
    assert made == chosen(named, cpus)
    assert made.runner_up != made.hypervisor_class
