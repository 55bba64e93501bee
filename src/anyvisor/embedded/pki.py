"""The instance's certificates: one authority, a server certificate, and a client certificate for each component.

Kubernetes reads a client's user from the subject's CN and its groups from the O entries
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates).
"""

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anyvisor.embedded.instance import Instance, write_file

_AUTHORITY_YEARS = 10
_LEAF_DAYS = 365
_RENEW_DAYS = 60
_BACKDATE = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _save(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_file(pair.key, pem, 0o600)
    write_file(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _load(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return None
    fresh = certificate.not_valid_after_utc - _now() > datetime.timedelta(days=_RENEW_DAYS)
    return (certificate, key) if fresh and isinstance(key, ec.EllipticCurvePrivateKey) else None


def _pair(instance: Instance, name: str) -> Pair:
    return Pair(instance.pki_dir / f"{name}.crt", instance.pki_dir / f"{name}.key")


def ensure_authority(instance: Instance) -> Pair:
    """The instance's certificate authority, made at first use."""
    pair = _pair(instance, "ca")
    if _load(pair) is not None:
        return pair
    key = _new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"anyvisor-{instance.id}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _BACKDATE)
        .not_valid_after(_now() + datetime.timedelta(days=365 * _AUTHORITY_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _save(pair, certificate, key)
    return pair


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _issue(instance: Instance, name: str, subject: x509.Name, extensions: Sequence[x509.ExtensionType]) -> Pair:
    pair = _pair(instance, name)
    authority = _load(ensure_authority(instance))
    assert authority is not None
    issuer, issuer_key = authority
    existing = _load(pair)
    if existing is not None and existing[0].subject == subject and existing[0].issuer == issuer.subject:
        return pair
    key = _new_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _BACKDATE)
        .not_valid_after(_now() + datetime.timedelta(days=_LEAF_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    _save(pair, builder.sign(issuer_key, hashes.SHA256()), key)
    return pair


def ensure_server(instance: Instance) -> Pair:
    """The API server's certificate, for loopback and the usual in-cluster names."""
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    addresses = ["127.0.0.1", "::1"]
    alternatives = x509.SubjectAlternativeName(
        [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(a)) for a in addresses)]
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "anyvisor-apiserver")])
    return _issue(
        instance,
        "apiserver",
        subject,
        [alternatives, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])],
    )


def ensure_client(instance: Instance, name: str, user: str, groups: Sequence[str] = ()) -> Pair:
    """A client certificate for `user` in `groups`, kept in the file `name`."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    return _issue(instance, name, subject, [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])])


def kubeconfig(instance: Instance, pair: Pair, user: str) -> bytes:
    """A kubeconfig (JSON is YAML) with everything embedded, for `user`."""

    def encoded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    name = "anyvisor"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": f"https://127.0.0.1:{instance.api_port}",
                    "certificate-authority-data": encoded(ensure_authority(instance).certificate),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": encoded(pair.certificate),
                    "client-key-data": encoded(pair.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
        "current-context": name,
    }
    return json.dumps(config, indent=1).encode() + b"\n"


def write_kubeconfig(instance: Instance) -> None:
    """Write the admin's kubeconfig to its place in the data directory."""
    user = "kubernetes-admin"
    pair = ensure_client(instance, "admin", user, ["system:masters"])
    write_file(instance.kubeconfig, kubeconfig(instance, pair, user), 0o600)


def make_certificates(instance: Instance, nodes: Sequence[str]) -> None:
    """All certificates of an instance that are missing or end soon, and the admin's kubeconfig."""
    ensure_server(instance)
    write_kubeconfig(instance)
    for node in nodes:
        ensure_client(instance, f"kubelet-{node}", f"system:node:{node}", ["system:nodes"])
        ensure_client(instance, f"agent-{node}", f"system:anyvisor:agent:{node}", ["system:anyvisor:agents"])
