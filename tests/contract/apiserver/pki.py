"""A certificate authority and the certificates of one test run."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


@dataclass(frozen=True)
class Pki:
    root: Path
    ca: Pair
    server: Pair

    def client(self, user: str, groups: tuple[str, ...]) -> Pair:
        """Return a client certificate; made once for each user and groups."""
        stem = self.root / f"{user}-{'-'.join(groups)}".replace(":", "_")
        pair = Pair(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        if not pair.cert.exists():
            names = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
            names += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            _issue(pair, x509.Name(names), self.ca, ExtendedKeyUsageOID.CLIENT_AUTH)
        return pair


def make_pki(root: Path) -> Pki:
    ca = Pair(root / "ca.crt", root / "ca.key")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
    _issue(ca, name, None, None)
    server = Pair(root / "server.crt", root / "server.key")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    _issue(server, subject, ca, ExtendedKeyUsageOID.SERVER_AUTH)
    return Pki(root, ca, server)


def issue_server(pki: Pki, name: str) -> Pair:
    """Return a server certificate for one DNS name."""
    pair = Pair(pki.root / f"{name}.crt", pki.root / f"{name}.key")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    _issue(pair, subject, pki.ca, ExtendedKeyUsageOID.SERVER_AUTH, (name,))
    return pair


def _issue(
    pair: Pair,
    subject: x509.Name,
    ca: Pair | None,
    usage: x509.ObjectIdentifier | None,
    hosts: tuple[str, ...] = ("localhost",),
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    if ca is None:
        issuer, signer = subject, key
    else:
        issuer = x509.load_pem_x509_certificate(ca.cert.read_bytes()).subject
        loaded = serialization.load_pem_private_key(ca.key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if usage is not None:
        names = [*(x509.DNSName(host) for host in hosts), x509.IPAddress(IPv4Address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pair.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
