"""Certificates of a test cluster, made with the same library as the product's own."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """One certificate authority in a folder; `name`.crt and `name`.key are its files."""

    folder: Path
    name: str

    def create(self) -> None:
        """Make the authority."""
        key = new_key(self.folder / f"{self.name}.key")
        subject = _subject(f"test-{self.name}")
        builder = _builder(subject, subject, key).add_extension(x509.BasicConstraints(True, None), critical=True)
        _write(self.folder / f"{self.name}.crt", builder.sign(key, hashes.SHA256()))

    def issue(self, name: str, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """Make `name`.crt and `name`.key for a user, or a server that is reached at `hosts`."""
        issuer = x509.load_pem_x509_certificate((self.folder / f"{self.name}.crt").read_bytes())
        signer = serialization.load_pem_private_key((self.folder / f"{self.name}.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = new_key(self.folder / f"{name}.key")
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = _builder(_subject(user, groups), issuer.subject, key).add_extension(usage, critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
        _write(self.folder / f"{name}.crt", builder.sign(signer, hashes.SHA256()))


def new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Make a key and keep it at `path`."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return key


def write_public(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    """Keep the public half of a key."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    path.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


def _subject(user: str, groups: Sequence[str] = ()) -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
    )


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
