"""A container registry on loopback, and the ways in which one can fail.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass
class Registry:
    """What it serves, how it fails, and what it was asked."""

    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])
    """By `NAME:TAG` and `NAME@DIGEST`: media type and content."""
    login: str = ""
    """`USER:PASSWORD` that it asks for."""
    hangs_at: str = ""
    """`manifest` or `blob`: it answers no more there, until it ends."""
    half: bool = False
    """Blobs end in their middle."""
    asked: list[str] = field(default_factory=list[str])
    uploads: dict[str, bytearray] = field(default_factory=dict[str, bytearray])
    """By place: what came so far of a blob that is pushed."""
    port: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def host(self) -> str:
        """As images name it."""
        return f"127.0.0.1:{self.port}"

    def push(self, name: str, files: Mapping[str, bytes], tag: str = "latest", *, indexed: bool = False) -> str:
        """Serve an image of one layer; the digest of what the tag names."""
        layer = _tar(files)
        return self.push_layer(name, gzip.compress(layer, 1), _digest(layer), tag, indexed=indexed)

    def push_layer(self, name: str, layer: bytes, diff: str, tag: str = "latest", *, indexed: bool = False) -> str:
        """Serve an image of a layer that is packed already."""
        rootfs = {"type": "layers", "diff_ids": [diff]}
        config = _json({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs})
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": self._blob(CONFIG, config),
                "layers": [self._blob(LAYER, layer)],
            }
        )
        digest = self._manifest(name, MANIFEST, manifest)
        if indexed:
            entry = {"mediaType": MANIFEST, "digest": digest, "size": len(manifest)}
            other = {**entry, "digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "s390x"}}
            ours = {**entry, "platform": {"os": "linux", "architecture": "amd64"}}
            digest = self._manifest(
                name, INDEX, _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [other, ours]})
            )
        self.manifests[f"{name}:{tag}"] = self.manifests[f"{name}@{digest}"]
        return digest

    def _blob(self, media_type: str, content: bytes) -> dict[str, Any]:
        self.blobs[_digest(content)] = content
        return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}

    def _manifest(self, name: str, media_type: str, content: bytes) -> str:
        self.manifests[f"{name}@{_digest(content)}"] = (media_type, content)
        return _digest(content)


@contextmanager
def serving() -> Generator[Registry]:
    """A registry that answers inside the block."""
    registry = Registry()

    class Handler(_Handler):
        of = registry

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        registry.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def allow_plain_http(data_dir: Path, registry: Registry) -> None:
    """The instance's registries.conf, so that the registry needs no certificate."""
    (data_dir / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry.host}"\ninsecure = true\n')


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: Registry

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        """An upload begins."""
        self._take()
        place = f"{self.path}{len(self.of.uploads)}"
        self.of.uploads[place] = bytearray()
        self._send(202, b"", "text/plain", {"Location": place, "Range": "0-0"}, body=True)

    def do_PATCH(self) -> None:
        """Bytes of an upload."""
        self.of.uploads[self.path] += self._take()
        self._send(202, b"", "text/plain", {"Location": self.path}, body=True)

    def do_PUT(self) -> None:
        """The end of an upload, or a manifest."""
        content = self._take()
        name, _, what = self.path.removeprefix("/v2/").partition("/manifests/")
        if what:
            digest = self.of._manifest(name, self.headers["Content-Type"], content)
            self.of.manifests[f"{name}:{what}"] = self.of.manifests[f"{name}@{digest}"]
        else:
            path, _, query = self.path.partition("?")
            content = bytes(self.of.uploads.pop(path)) + content
            digest = _digest(content)
            assert query == f"digest={digest.replace(':', '%3A')}"
            self.of.blobs[digest] = content
        self._send(201, b"", "text/plain", {"Docker-Content-Digest": digest}, body=True)

    def _take(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        taken = bytearray()
        while size := int(self.rfile.readline(), 16):
            taken += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(taken)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        return

    def _answer(self, *, body: bool) -> None:
        registry = self.of
        registry.asked.append(self.path)
        basic = "Basic " + base64.b64encode(registry.login.encode()).decode()
        if registry.login and self.headers.get("Authorization") != basic:
            self._send(401, b"", "text/plain", {"WWW-Authenticate": 'Basic realm="test"'}, body=body)
        elif self.path == "/v2/":
            self._send(200, b"{}", "application/json", {}, body=body)
        elif "/manifests/" in self.path:
            self._manifest(body=body)
        elif "/blobs/" in self.path:
            self._blob(body=body)
        else:
            self._send(404, b"", "text/plain", {}, body=body)

    def _manifest(self, *, body: bool) -> None:
        self._hang("manifest")
        name, _, what = self.path.removeprefix("/v2/").partition("/manifests/")
        found = self.of.manifests.get(f"{name}@{what}" if ":" in what else f"{name}:{what}")
        if found is None:
            error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            self._send(404, _json(error), "application/json", {}, body=body)
            return
        media_type, content = found
        self._send(200, content, media_type, {"Docker-Content-Digest": _digest(content)}, body=body)

    def _blob(self, *, body: bool) -> None:
        content = self.of.blobs.get(self.path.rpartition("/")[2])
        if content is None:
            self._send(404, b"", "text/plain", {}, body=body)
            return
        if self.of.hangs_at == "blob" or self.of.half:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content[: len(content) // 2])
            self._hang("blob")
            self.close_connection = True
            return
        self._send(200, content, "application/octet-stream", {}, body=body)

    def _hang(self, where: str) -> None:
        if self.of.hangs_at == where:
            self.of.ended.wait(60)

    def _send(self, status: int, content: bytes, media_type: str, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": media_type, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            with contextlib.suppress(OSError):
                self.wfile.write(content)


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
