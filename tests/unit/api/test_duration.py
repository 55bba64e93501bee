"""Durations read and write as Go's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.api.duration import MAX, DurationError, duration_seconds, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds", "shown"),
    [
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("-0", 0, "0s"),
        ("1ns", 1, "1ns"),
        ("1.1us", 1100, "1.1µs"),
        ("2µs", 2000, "2µs"),
        ("2μs", 2000, "2µs"),
        ("1.5ms", 1_500_000, "1.5ms"),
        ("999ms", 999_000_000, "999ms"),
        ("1s", 10**9, "1s"),
        ("1.5s", 15 * 10**8, "1.5s"),
        (".5s", 5 * 10**8, "500ms"),
        ("5.s", 5 * 10**9, "5s"),
        ("90s", 90 * 10**9, "1m30s"),
        ("1m0.3s", 60_300_000_000, "1m0.3s"),
        ("168h", 168 * 3600 * 10**9, "168h0m0s"),
        ("1h30m", 5400 * 10**9, "1h30m0s"),
        ("+1h", 3600 * 10**9, "1h0m0s"),
        ("-1.5h", -5400 * 10**9, "-1h30m0s"),
        ("2h3m0.5s", 7380_500_000_000, "2h3m0.5s"),
        ("1h1h", 7200 * 10**9, "2h0m0s"),
    ],
)
def test_text_and_value(text: str, nanoseconds: int, shown: str):
    assert parse_duration(text) == nanoseconds
    assert format_duration(nanoseconds) == shown


@pytest.mark.parametrize("text", ["", "-", "1", "s", ".s", "1d", "1 s", " 1s", "1s ", "1.1.1s", "--1s", "1e3s", "٣s"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(DurationError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9223372036854775808ns", "3000000h", "1" * 200 + "s"])
def test_durations_have_an_end(text: str):
    with pytest.raises(DurationError):
        parse_duration(text)


@given(st.integers(-MAX - 1, MAX))
def test_the_text_of_a_duration_reads_back(nanoseconds: int):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@given(st.text(max_size=30))
def test_no_text_makes_parsing_fail_otherwise(text: str):
    try:
        parsed = parse_duration(text)
    except DurationError:
        return
    assert -MAX - 1 <= parsed <= MAX


def test_seconds_are_for_timers():
    assert duration_seconds("1m500ms") == 60.5
