"""Quantities are exact, and their canonical text is Kubernetes'."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.api.quantity import MAX_BINARY, Format, Quantity, QuantityError, canonical, parse_quantity

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("0Ki", "0"),
        ("00.00", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("0001", "1"),
        ("1.", "1"),
        (".5", "500m"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("100m", "100m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1234567", "1234567"),
        ("1000000", "1M"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e2", "100"),
        ("1.5e3", "1500"),
        ("1e-3", "1e-3"),
        ("1E", "1E"),
        ("1000E", "1e21"),
        ("1Ki", "1Ki"),
        ("1024Ki", "1Mi"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1.1Ki", "1126400m"),
        ("-1Gi", "-1Gi"),
        ("-0.5", "-500m"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("0.0000000001", "1n"),
        ("-0.1n", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("8Ei", str(MAX_BINARY)),
        ("100Ei", str(MAX_BINARY)),
        ("-100Ei", str(-MAX_BINARY)),
    ],
)
def test_the_canonical_text(text: str, expected: str):
    assert canonical(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-",
        "+",
        ".",
        "1 ",
        " 1",
        "1 Gi",
        "Gi",
        "1gi",
        "1K",
        "1ki",
        "1i",
        "1mi",
        "1Zi",
        "1kk",
        "1.1.M",
        "1+1.0M",
        "--1",
        "1e",
        "1e+",
        "1e1.5",
        "1e1e1",
        "0x10",
        "1_000",
        "½",
        "٣",
        "1e1001",
        "1e-1001",
        "1" * 257,
        "1Gi\n",
        "nan",
    ],
)
def test_what_is_no_quantity_is_refused_with_a_cause(text: str):
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert caught.value.cause
    assert "512Mi" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_numbers_are_quantities_but_booleans_are_not():
    assert parse_quantity(2) == parse_quantity("2")
    with pytest.raises(QuantityError, match="boolean"):
        parse_quantity(True)
    with pytest.raises(QuantityError, match="digits"):
        parse_quantity(10**300)


decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=9)


@given(decimals, st.sampled_from(sorted(SUFFIXES)))
def test_the_value_is_exact_but_for_rounding_away_from_zero_at_a_billionth(number: object, suffix: str):
    exact = Fraction(f"{number:f}") * SUFFIXES[suffix]
    found = parse_quantity(f"{number:f}{suffix}").exact
    if suffix.endswith("i") and abs(exact) > MAX_BINARY:
        assert abs(found) == MAX_BINARY
    else:
        assert 0 <= abs(found) - abs(exact) < Fraction(1, 10**9)
        assert found * exact >= 0


@given(st.integers(-(10**40), 10**40), st.sampled_from(list(Format)))
def test_the_canonical_text_has_the_same_value_and_is_a_fixed_point(nanos: int, form: Format):
    text = str(Quantity(nanos, form))
    if form is not Format.BINARY_SI or abs(nanos) <= MAX_BINARY * 10**9:
        assert parse_quantity(text).nanos == nanos
    assert canonical(text) == str(parse_quantity(text))


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_order_sum_and_difference_are_those_of_the_numbers(a: int, b: int):
    first, second = Quantity(a), Quantity(b, Format.BINARY_SI)
    assert (first < second, first == second, first > second) == (a < b, a == b, a > b)
    assert (first + second).nanos == a + b
    assert (first - second).nanos == a - b
    assert (-first).nanos == -a


@given(st.text(max_size=40))
def test_no_text_makes_parsing_fail_otherwise(text: str):
    try:
        parsed = parse_quantity(text)
    except QuantityError:
        return
    assert parse_quantity(str(parsed)) == parsed


def test_whole_numbers_round_away_from_zero():
    assert [parse_quantity(text).value for text in ("1500m", "-1500m", "1n", "0")] == [2, -2, 1, 0]
    assert [parse_quantity(text).milli for text in ("1500m", "1u", "2")] == [1500, 1, 2000]


def test_the_sum_keeps_the_suffixes_of_the_first_that_is_not_zero():
    assert str(parse_quantity("1Gi") + parse_quantity("1073741824")) == "2Gi"
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("1Gi") * 3) == "3Gi"
    assert str(Quantity.of_bytes(3 * 2**20)) == "3Mi"
    assert str(Quantity.of(Fraction(1, 3))) == "333333334n"


def test_equal_values_are_equal_whatever_their_suffixes():
    assert parse_quantity("1024Mi") == parse_quantity("1Gi") == parse_quantity("1073741824")
    assert len({parse_quantity("1024Mi"), parse_quantity("1Gi")}) == 1
    assert not parse_quantity("0Gi")
    assert parse_quantity("1n")
