"""Passes that would see only what the one before them wrote are left out, and no others."""

import pytest

from anyvisor.controller.echoes import Echoes
from anyvisor.controller.outcome import Change, Create, Outcome, Problem, only_changes
from anyvisor.kube.resources import PODS, VMIS


@pytest.fixture
def left() -> Echoes:
    """A pass that left object `a` at version 2, to be looked at again at 10."""
    echoes = Echoes()
    echoes.begin("a")
    echoes.settled("a", "2", 10.0)
    return echoes


def test_the_own_write_comes_back_and_waits_for_what_is_due(left: Echoes) -> None:
    assert left.is_echo("a", "2", 4.0)
    assert left.wait("a", 4.0) == 6.0


def test_somebody_elses_write_is_none(left: Echoes) -> None:
    assert not left.is_echo("a", "3", 4.0)
    assert not left.is_echo("b", "2", 4.0)


def test_what_is_due_is_done(left: Echoes) -> None:
    assert not left.is_echo("a", "2", 10.0)
    assert left.wait("a", 11.0) == 0.0


def test_news_are_never_lost(left: Echoes) -> None:
    left.news("a")
    assert not left.is_echo("a", "2", 4.0)
    left.begin("a")
    left.news("a")  # while the pass runs
    left.settled("a", "2", None)
    assert not left.is_echo("a", "2", 4.0)


def test_a_pass_that_did_not_end_well_leaves_nothing(left: Echoes) -> None:
    left.begin("a")
    assert not left.is_echo("a", "2", 4.0)
    assert left.wait("a", 4.0) is None


def test_an_object_that_went_is_forgotten(left: Echoes) -> None:
    left.forget("a")
    assert not left.is_echo("a", "2", 4.0)


def test_only_a_pass_that_changed_objects_is_at_its_end() -> None:
    change = Change(VMIS, {}, {})
    assert only_changes(Outcome((change,)))
    assert only_changes(Outcome())
    assert not only_changes(Outcome((change, Create(PODS, {}))))
    assert not only_changes(Outcome((change,), problem=Problem("Stuck", "It is stuck.")))
