"""Kubeconfigs, in-cluster accounts, TLS and tokens, against real sockets."""

import base64
import datetime
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from anyvisor.kube import errors
from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig, ConfigError, from_kubeconfig, in_cluster, load
from anyvisor.kube.http import HttpTransport
from anyvisor.kube.resources import NODES

Pair = tuple[bytes, bytes]
Peer = dict[str, tuple[tuple[tuple[str, str], ...], ...]]


def certificate(name: str) -> Pair:
    """Make a self-signed certificate and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        built.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


@asynccontextmanager
async def who_am_i(tmp_path: Path, server: Pair, clients: bytes | None = None) -> AsyncGenerator[str]:
    """Serve TLS on loopback; each answer names the caller as a node."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "server.pem").write_bytes(server[0] + server[1])
    context.load_cert_chain(tmp_path / "server.pem")
    if clients is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=clients.decode())

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = cast("Peer | None", request.transport.get_extra_info("peercert"))
        name = peer["subject"][0][0][1] if peer else ""
        token = request.headers.get("authorization", "")
        if token == "Bearer expired":
            return web.json_response({"reason": "Unauthorized"}, status=401)
        return web.json_response({"metadata": {"name": name or token}})

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def ask(config: ClientConfig) -> str:
    transport = HttpTransport(config)
    try:
        return (await Client(transport).get(NODES, "n"))["metadata"]["name"]
    finally:
        await transport.close()


async def test_a_kubeconfig_with_a_client_certificate(tmp_path: Path) -> None:
    server, client = certificate("server"), certificate("kubernetes-admin")
    async with who_am_i(tmp_path, server, clients=client[0]) as url:
        (tmp_path / "ca.pem").write_bytes(server[0])
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": url, "certificate-authority": "ca.pem"}}],
            "users": [
                {
                    "name": "u",
                    "user": {
                        "client-certificate-data": base64.b64encode(client[0]).decode(),
                        "client-key-data": base64.b64encode(client[1]).decode(),
                    },
                }
            ],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(document))
        config = load(None, env={"KUBECONFIG": f"/nowhere:{path}"})
        assert await ask(config) == "kubernetes-admin"
        assert await ask(replace(config, certificate=None, token="t")) == "Bearer t"
        with pytest.raises(errors.Unreachable, match="certificate"):
            await ask(replace(config, ca=client[0]))
        assert await ask(replace(config, ca=None, insecure=True, certificate=None, token="t")) == "Bearer t"


async def test_a_rotated_token_is_read_again_when_the_old_one_is_refused(tmp_path: Path) -> None:
    server = certificate("server")
    async with who_am_i(tmp_path, server) as url:
        (tmp_path / "token").write_text("first\n")
        transport = HttpTransport(ClientConfig(url, ca=server[0], token_file=tmp_path / "token"))
        client = Client(transport)
        assert (await client.get(NODES, "n"))["metadata"]["name"] == "Bearer first"
        (tmp_path / "token").write_text("expired")
        transport._token_read = float("-inf")
        with pytest.raises(errors.Unauthorized):
            await client.get(NODES, "n")
        (tmp_path / "token").write_text("second")
        assert (await client.get(NODES, "n"))["metadata"]["name"] == "Bearer second"
        await transport.close()


def test_in_cluster(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        in_cluster(env, tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("pem")
    config = in_cluster(env, tmp_path)
    assert (config.server, config.token_file) == ("https://[fd00::1]:6443", tmp_path / "token")
    assert "pem" not in repr(config)


GOOD = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://h"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"current-context": ""}, "current-context is not set"),
        ({"current-context": "x"}, "contexts has no entry named 'x'"),
        ({"clusters": []}, "clusters has no entry named 'k'"),
        ({"clusters": [{"name": "k", "cluster": {"server": "ftp://h"}}]}, r"http\(s\) URL"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "x"}}}]}, "exec is not supported"),
        ({"users": [{"name": "u", "user": {"client-key-data": "%"}}]}, "no base64"),
        ({"users": [{"name": "u", "user": {"client-key": "gone"}}]}, "gone cannot be read"),
    ],
)
def test_a_faulty_kubeconfig_is_named_with_the_place(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(ConfigError, match=says) as caught:
        from_kubeconfig(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("text", "says"), [("[]", "no kubeconfig"), ("{", "no YAML"), (None, "cannot be read")])
def test_what_is_no_kubeconfig(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        from_kubeconfig(path)


def test_no_configuration_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no cluster is configured"):
        load(env={"HOME": str(tmp_path)})
