"""Certificates of our own components: one authority in a Secret, and what it has issued; pure but for keys and time.

Nothing outside the cluster is needed. The authority signs three certificates: the gateway's, by which the API server
knows it; the agents', by which the gateway knows them; and the one by which agents know the gateway. The first of them
may come from somebody else, as from a certificate manager.
"""

import base64
import binascii
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 90
RENEW_DAYS: Final = 30
"""Days before its end at which a certificate is made anew; the authority at a year."""
AUTHORITY_RENEW_DAYS: Final = 365
_BACKDATE: Final = datetime.timedelta(minutes=10)
"""Clocks of nodes differ."""
BUNDLE: Final = "ca.crt"
_AUTHORITY: Final = ("authority.crt", "authority.key")
GATEWAY: Final = "gateway"
AGENT: Final = "agent"
GATEWAY_CLIENT: Final = "gateway-client"


class ForeignError(Exception):
    """A certificate that somebody else makes cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Names:
    """What the gateway's certificate is for."""

    service: str
    namespace: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which the API server reaches the Service."""
        base = f"{self.service}.{self.namespace}"
        return (f"{base}.svc", f"{base}.svc.cluster.local", base, "localhost")


def renewed(data: Mapping[str, str], names: Names, now: datetime.datetime) -> dict[str, str]:
    """The Secret's data with everything that is missing, ends soon or does not fit made anew; equal when all is well.

    A new authority is added to the bundle and the old one stays in it, so that what the old one signed is trusted
    until it is replaced.
    """
    kept = {key: data[key] for key in data}
    authority = _pair(kept, *_AUTHORITY)
    if authority is None or _ends(authority, now, AUTHORITY_RENEW_DAYS) or not _in_bundle(kept, authority):
        authority = _new_authority(now)
        _put(kept, authority, *_AUTHORITY)
        kept[BUNDLE] = _encode(authority.certificate + _still_valid(_decode(kept.get(BUNDLE, "")), now))
    for name, hosts, usage in (
        (GATEWAY, names.hosts, ExtendedKeyUsageOID.SERVER_AUTH),
        (AGENT, ("anyvisor-agent",), ExtendedKeyUsageOID.SERVER_AUTH),
        (GATEWAY_CLIENT, (), ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        files = (f"{name}.crt", f"{name}.key")
        found = _pair(kept, *files)
        if found is None or _ends(found, now, RENEW_DAYS) or not _issued_by(found, authority):
            _put(kept, _issue(authority, f"anyvisor-{name}", hosts, usage, now), *files)
    return kept


def pair_of(data: Mapping[str, str], name: str) -> Pair | None:
    """A certificate of the Secret's data; None when it is missing or not readable."""
    return _pair(data, f"{name}.crt", f"{name}.key")


def bundle_of(data: Mapping[str, str]) -> bytes:
    """The authorities that are trusted, as PEM."""
    return _decode(data.get(BUNDLE, ""))


def from_elsewhere(data: Mapping[str, str], names: Names, now: datetime.datetime) -> tuple[dict[str, str], str]:
    """The gateway's certificate from the data of a Secret of type `kubernetes.io/tls`.

    As our own Secret has it, and the bundle by which the API server is to know it.

    Raises:
        ForeignError: it is of no use.
    """
    pair = _pair(data, "tls.crt", "tls.key")
    if pair is None:
        raise ForeignError("its tls.crt and tls.key are missing, or do not belong together: have it issued anew")
    if end_of(pair) <= now:
        raise ForeignError(f"its certificate ended at {end_of(pair):%Y-%m-%d %H:%M} UTC: look at who renews it")
    wanted = names.hosts[0]
    if not _names(pair, wanted):
        raise ForeignError(f"its certificate is not for {wanted}: add that to its DNS names")
    if not data.get(BUNDLE):
        raise ForeignError(f"it has no {BUNDLE}, by which the API server would know it: use an issuer that gives one")
    own: dict[str, str] = {}
    _put(own, pair, f"{GATEWAY}.crt", f"{GATEWAY}.key")
    return own, data[BUNDLE]


def _names(pair: Pair, host: str) -> bool:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return False
    return {host, f"*.{host.partition('.')[2]}"} & set(found.value.get_values_for_type(x509.DNSName)) != set()


def end_of(pair: Pair) -> datetime.datetime:
    """When a certificate ends."""
    return x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc


def _new_authority(now: datetime.datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"anyvisor {now:%Y-%m-%d}")])
    certificate = (
        _builder(name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _as_pair(certificate, key)


def _issue(
    authority: Pair, name: str, hosts: Sequence[str], usage: x509.ObjectIdentifier, now: datetime.datetime
) -> Pair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, issuer.subject, key, now, LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return _as_pair(builder.sign(signer, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _as_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), pem)


def _pair(data: Mapping[str, str], certificate: str, key: str) -> Pair | None:
    found = Pair(_decode(data.get(certificate, "")), _decode(data.get(key, "")))
    try:
        public = x509.load_pem_x509_certificate(found.certificate).public_key()
        private = serialization.load_pem_private_key(found.key, None)
    except ValueError:
        return None
    return found if private.public_key() == public else None


def _ends(pair: Pair, now: datetime.datetime, days: int) -> bool:
    return end_of(pair) - now < datetime.timedelta(days=days)


def _issued_by(pair: Pair, authority: Pair) -> bool:
    try:
        x509.load_pem_x509_certificate(pair.certificate).verify_directly_issued_by(
            x509.load_pem_x509_certificate(authority.certificate)
        )
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not a certificate of ours
        return False
    return True


def _in_bundle(data: Mapping[str, str], authority: Pair) -> bool:
    return authority.certificate.strip() in _decode(data.get(BUNDLE, ""))


def _still_valid(bundle: bytes, now: datetime.datetime) -> bytes:
    try:
        found = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return b""
    valid = [one for one in found if one.not_valid_after_utc > now]
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in valid)


def _put(data: dict[str, str], pair: Pair, certificate: str, key: str) -> None:
    data[certificate], data[key] = _encode(pair.certificate), _encode(pair.key)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
