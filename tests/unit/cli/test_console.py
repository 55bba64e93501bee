"""When the console is left by itself."""

from hypothesis import given
from hypothesis import strategies as st

from anyvisor.cli.console import Awaited


@given(before=st.binary(max_size=20), after=st.binary(max_size=20), cut=st.integers(0, 60))
def test_a_text_is_seen_however_it_comes_in_pieces(before: bytes, after: bytes, cut: int) -> None:
    data = before + b"login:" + after
    awaited = Awaited("login:")
    awaited.typed = True
    awaited.feed(data[:cut])
    awaited.feed(data[cut:])
    assert awaited.seen


def test_what_came_before_all_was_typed_does_not_count() -> None:
    awaited = Awaited("done")
    assert not awaited.feed(b"done")
    awaited.typed = True
    assert not awaited.feed(b"and on")
    assert awaited.feed(b" done")


def test_an_empty_text_is_not_awaited() -> None:
    awaited = Awaited("")
    awaited.typed = True
    assert (awaited.feed(b"anything"), awaited.seen) == (False, True)
