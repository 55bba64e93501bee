"""Turns: a driver never has more than its share, nobody waits for ever, and drivers do not wait for each other."""

from hypothesis import given
from hypothesis import strategies as st

from anyvisor.agent.turns import Turns


def test_who_comes_too_late_is_called_when_a_turn_ends():
    called: list[str] = []
    turns = Turns(2, called.append)
    assert turns.take("a", "1")
    assert turns.take("a", "2")
    assert not turns.take("a", "3")
    assert not turns.take("a", "3")
    assert turns.take("b", "4")
    turns.give_back("a")
    assert called == ["3"]
    assert turns.take("a", "3")
    turns.give_back("a")
    turns.give_back("a")
    assert called == ["3"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=60), st.integers(1, 4))
def test_all_get_their_turn(arrivals: list[tuple[str, int]], limit: int):
    queue = [(driver, f"{driver}{number}") for driver, number in dict.fromkeys(arrivals)]
    wanted = set(queue)
    done: set[tuple[str, str]] = set()
    active: list[tuple[str, str]] = []
    turns = Turns(limit, lambda machine: queue.append((machine[0], machine)))
    while queue or active:
        if queue:
            driver, machine = queue.pop(0)
            if turns.take(driver, machine):
                active.append((driver, machine))
        else:
            driver, machine = active.pop(0)
            done.add((driver, machine))
            turns.give_back(driver)
        assert all(sum(each[0] == name for each in active) <= limit for name in "ab")
    assert done == wanted
