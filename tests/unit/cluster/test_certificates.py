"""Certificates of the components: made, kept, renewed; the old authority stays trusted until nothing needs it."""

import datetime

import pytest
from cryptography import x509

from anyvisor.cluster import certificates
from anyvisor.cluster.certificates import Names, bundle_of, pair_of, renewed

NAMES = Names("gate", "ours")
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def days(count: int) -> datetime.datetime:
    return NOW + datetime.timedelta(days=count)


def certificate(data: dict[str, str], name: str) -> x509.Certificate:
    pair = pair_of(data, name)
    assert pair is not None
    return x509.load_pem_x509_certificate(pair.certificate)


def authorities(data: dict[str, str]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle_of(data))


def test_everything_is_made_from_nothing_and_kept_while_it_is_good() -> None:
    data = renewed({}, NAMES, NOW)
    for name in (certificates.GATEWAY, certificates.AGENT, certificates.GATEWAY_CLIENT):
        certificate(data, name).verify_directly_issued_by(authorities(data)[0])
    names = certificate(data, certificates.GATEWAY).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert "gate.ours.svc" in names.value.get_values_for_type(x509.DNSName)
    assert renewed(data, NAMES, days(certificates.LEAF_DAYS - certificates.RENEW_DAYS - 1)) == data


def test_a_certificate_that_ends_soon_is_renewed_by_the_same_authority() -> None:
    data = renewed({}, NAMES, NOW)
    later = renewed(data, NAMES, days(certificates.LEAF_DAYS - certificates.RENEW_DAYS + 1))
    assert later["gateway.crt"] != data["gateway.crt"]
    assert bundle_of(later) == bundle_of(data)


def test_a_new_authority_is_trusted_beside_the_old_one() -> None:
    data = renewed({}, NAMES, NOW)
    later = renewed(data, NAMES, days(certificates.AUTHORITY_DAYS - certificates.AUTHORITY_RENEW_DAYS + 1))
    found = authorities(later)
    assert len(found) == 2
    certificate(later, certificates.GATEWAY).verify_directly_issued_by(found[0])
    assert authorities(data)[0] == found[1]


def test_an_authority_that_ended_leaves_the_bundle() -> None:
    data = renewed({}, NAMES, NOW)
    assert len(authorities(renewed(data, NAMES, days(certificates.AUTHORITY_DAYS + 1)))) == 1


def test_what_does_not_fit_is_made_anew() -> None:
    data = renewed({}, NAMES, NOW)
    other = renewed({}, NAMES, NOW)
    mixed = renewed({**data, "gateway.key": other["gateway.key"]}, NAMES, NOW)
    assert mixed["gateway.crt"] != data["gateway.crt"]
    assert mixed["agent.crt"] == data["agent.crt"]
    foreign = renewed({**data, "agent.crt": other["agent.crt"], "agent.key": other["agent.key"]}, NAMES, NOW)
    certificate(foreign, certificates.AGENT).verify_directly_issued_by(authorities(data)[0])
    broken = renewed({"authority.crt": "!", "ca.crt": "bm8="}, NAMES, NOW)
    assert len(authorities(broken)) == 1


def elsewhere(days_ago: int = 0, names: Names = NAMES) -> dict[str, str]:
    """The gateway's certificate of another authority, in the form of a certificate manager."""
    made = renewed({}, names, days(-days_ago))
    return {"tls.crt": made["gateway.crt"], "tls.key": made["gateway.key"], "ca.crt": made["ca.crt"]}


def test_a_certificate_that_somebody_else_makes_takes_the_place_of_the_gateways() -> None:
    theirs = elsewhere()
    own, bundle = certificates.from_elsewhere(theirs, NAMES, NOW)
    assert (own["gateway.crt"], own["gateway.key"]) == (theirs["tls.crt"], theirs["tls.key"])
    assert bundle == theirs["ca.crt"]
    data = renewed({}, NAMES, NOW)
    certificate(data | own, certificates.GATEWAY).verify_directly_issued_by(
        x509.load_pem_x509_certificates(bundle_of(theirs))[0]
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "missing"),
        (elsewhere() | {"tls.key": elsewhere()["tls.key"]}, "do not belong together"),
        (elsewhere(certificates.LEAF_DAYS + 1), "ended at 2025-12-31"),
        (elsewhere(names=Names("gate", "theirs")), "not for gate.ours.svc"),
        (elsewhere() | {"ca.crt": ""}, "no ca.crt"),
    ],
)
def test_one_that_is_of_no_use_is_told_with_the_reason(data: dict[str, str], why: str) -> None:
    with pytest.raises(certificates.ForeignError, match=why):
        certificates.from_elsewhere(data, NAMES, NOW)
