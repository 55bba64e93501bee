"""Which minors two sides speak with each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.hri.versions import MINOR, SKEW, VersionSkewError, negotiate
from anyvisor.planning import planner


@pytest.mark.parametrize(
    ("driver", "core", "spoken"),
    [
        ((1, 1), 1, 1),
        ((1, 4), 1, 1),
        ((1, 1), 4, 1),
        ((3, 5), 5, 5),
        ((3, 8), 5, 5),
        ((3, 9), 5, None),
        ((1, 1), 5, None),
        ((6, 7), 5, None),
        ((0, 1), 1, None),
        ((2, 1), 1, None),
    ],
)
def test_negotiation(driver: tuple[int, int], core: int, spoken: int | None):
    if spoken is None:
        with pytest.raises(VersionSkewError):
            negotiate(*driver, core_minor=core)
    else:
        assert negotiate(*driver, core_minor=core) == spoken


@given(core=st.integers(1, 50), newest=st.integers(1, 50), span=st.integers(0, 6))
def test_a_minor_is_spoken_only_when_both_know_it(core: int, newest: int, span: int):
    oldest = max(newest - span, 1)
    try:
        minor = negotiate(oldest, newest, core_minor=core)
    except VersionSkewError:
        assert abs(newest - core) > SKEW or oldest > core
    else:
        assert oldest <= minor <= newest
        assert minor <= core


def test_planner_and_interface_agree():
    assert (planner.CORE_MINOR, planner.SKEW) == (MINOR, SKEW)
