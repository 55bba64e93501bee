"""Names are checked in Kubernetes' words, and ours are stable, valid and distinct."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.api import names

subdomains = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?){0,4}", fullmatch=True
)


@pytest.mark.parametrize("value", ["a", "0", "a-b", "a" * 63, "1-2"])
def test_labels_that_are_right(value: str):
    assert names.dns1123_label(value) == []


@pytest.mark.parametrize("value", ["", "A", "-a", "a-", "a.b", "a_b", "a\n", "ä", "a b"])
def test_labels_that_are_wrong_say_the_form(value: str):
    assert names.dns1123_label(value) == [
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    ]


def test_length_is_said_on_its_own():
    assert names.dns1123_label("a" * 64) == ["must be no more than 63 characters"]
    assert names.dns1123_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert names.dns1123_label("A" * 10**6) == ["must be no more than 63 characters"]


@pytest.mark.parametrize(
    ("value", "right"), [("a.b", True), ("a..b", False), (".a", False), ("a.-b", False), ("a", True)]
)
def test_subdomains(value: str, right: bool):
    assert (names.dns1123_subdomain(value) == []) is right


@pytest.mark.parametrize(("value", "right"), [("a1", True), ("1a", False), ("a.b", False)])
def test_service_names(value: str, right: bool):
    assert (names.dns1035_label(value) == []) is right


@pytest.mark.parametrize(("value", "right"), [("", True), ("A_b.c", True), ("_a", False), ("a" * 64, False)])
def test_label_values(value: str, right: bool):
    assert (names.label_value(value) == []) is right


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("app", ""),
        ("kubevirt.io/nodeName", ""),
        ("", "name part must be non-empty"),
        ("/a", "prefix part must be non-empty"),
        ("a/", "name part must be non-empty"),
        ("A/b", "prefix part a lowercase RFC 1123 subdomain"),
        ("a/b/c", "a qualified name must consist of"),
        ("a b", "name part must consist of"),
        ("a/" + "b" * 64, "name part must be no more than 63 characters"),
    ],
)
def test_qualified_names(value: str, problem: str):
    found = names.qualified_name(value)
    assert found == [] if not problem else found[0].startswith(problem)


def test_the_launcher_pod_has_one_name_per_machine_and_attempt():
    first = names.launcher_pod_name("web", "uid-1")
    assert re.fullmatch(r"virt-launcher-web-[a-z2-7]{8}", first)
    assert first == names.launcher_pod_name("web", "uid-1", 0)
    others = {names.launcher_pod_name("web", "uid-1", 1), names.launcher_pod_name("web", "uid-2"), first}
    assert len(others) == 3


@given(subdomains, st.text(max_size=40))
def test_the_launcher_pod_name_is_a_valid_name_of_63_characters(vmi: str, uid: str):
    name = names.launcher_pod_name(vmi, uid)
    assert len(name) <= 63
    assert names.dns1123_subdomain(name) == []
    if "." not in vmi:
        assert names.dns1123_label(name) == []


def test_long_names_with_one_head_get_distinct_launchers():
    assert len({names.launcher_pod_name("a" * 253, f"uid-{number}") for number in range(100)}) == 100


def test_the_id_label_is_the_name_while_that_fits():
    assert names.vmi_id_label("a" * 63) == "a" * 63
    # head and SHA-1 as KubeVirt's clients compute them: sha1("a" * 64) begins with 0098ba82
    assert names.vmi_id_label("a" * 64) == "a" * 54 + "-0098ba82"


@given(subdomains)
def test_the_id_label_is_a_label_value(vmi: str):
    assert len(names.vmi_id_label(vmi)) <= 63
