"""Fetching images from registries by skopeo, which knows their protocols, logins, mirrors and certificates.

It runs confined (`confined`), is given one private directory, and is ended when nothing comes any more. Registries
are configured as for every container tool: `registries.conf(5)` of the instance, else of the host.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from anyvisor.embedded.images.confined import MODULE
from anyvisor.embedded.images.reference import repository, source

CONFIGURATION: Final = "registries.conf"
LAYOUT: Final = "image"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_MAX_MANIFEST: Final = 4 * 1024**2
_MAX_LAYERS: Final = 128
_POLICY: Final = Path("/etc/containers/policy.json")
PASSED: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
"""What of our own environment programs get that reach the network."""
_LOOK_SECONDS: Final = 0.25


class PullError(Exception):
    """An image could not be fetched; the message says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pull may cost."""

    answer_seconds: float = 60.0
    """For a registry to answer about an image."""
    stall_seconds: float = 60.0
    """Without one more byte of a layer."""
    compressed_bytes: int = 256 * 1024**3
    """Of all layers as they are transferred."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a reference stands for now. `digest` is what its tag names, `manifest` this machine's part of it."""

    digest: str
    manifest: str
    bytes: int


Progress = Callable[[int, int], None]
"""Told the bytes that are here, and of how many."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Pulls below `directory` as `user`; `configuration` is the instance's own registries.conf, where it exists."""

    directory: Path
    user: int
    configuration: Path
    limits: Limits = Limits()

    @asynccontextmanager
    async def session(self, credentials: bytes = b"") -> AsyncGenerator["Session"]:
        """A private directory for one pull, gone afterwards.

        Raises:
            PullError: there is no skopeo.
        """
        if shutil.which("skopeo") is None:
            raise PullError("skopeo is not installed: apt-get install skopeo, or `anyvisor image import` a file")
        self.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="pull-", dir=self.directory))
        try:
            for name, content in (("auth.json", credentials or b"{}"), (CONFIGURATION, self._configured())):
                if content is not None:
                    (place / name).write_bytes(content)
                    (place / name).chmod(0o400)
                    os.chown(place / name, self.user, self.user)
            os.chown(place, self.user, self.user)
            yield Session(self, place)
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    def _configured(self) -> bytes | None:
        try:
            return self.configuration.read_bytes()
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Session:
    """One pull."""

    registry: Registry
    place: Path

    async def resolve(self, reference: str) -> Resolved:
        """Ask the registry what the reference stands for.

        Raises:
            PullError: it does not answer, does not know it, or has nothing for this machine.
        """
        raw = await self._inspect(source(reference))
        digest = chosen = "sha256:" + hashlib.sha256(raw).hexdigest()
        document = _manifest(raw)
        if "manifests" in document:
            chosen = _for_this_machine(document)
            raw = await self._inspect(f"{repository(reference)}@{chosen}")
            document = _manifest(raw)
        return Resolved(digest, chosen, _layer_bytes(document, self.registry.limits.compressed_bytes))

    async def copy(self, reference: str, resolved: Resolved, progress: Progress) -> Path:
        """Fetch the layers; the directory in the OCI layout that they are in. Their digests were checked.

        Raises:
            PullError: nothing comes any more, or not what the manifest says.
        """
        layout = self.place / LAYOUT
        free = shutil.disk_usage(self.place).free
        if resolved.bytes > free:
            raise PullError(f"its layers have {resolved.bytes} bytes, and only {free} are free at {self.place.parent}")
        image = f"docker://{repository(reference)}@{resolved.manifest}"
        words = ("copy", "--quiet", "--dest-compress-format", "gzip", "--authfile", "auth.json", image)
        async with self._running(*words, f"oci:{LAYOUT}:{LAYOUT}") as process:
            await self._follow(process, resolved.bytes, progress)
        return layout

    async def _follow(self, process: asyncio.subprocess.Process, total: int, progress: Progress) -> None:
        """Until it ends: what is written tells whether something still comes."""
        ending = asyncio.ensure_future(_output(process))
        seen, since, clock = 0, 0.0, asyncio.get_running_loop().time
        since = clock()
        try:
            while not (await asyncio.wait([ending], timeout=_LOOK_SECONDS))[0]:
                here = await asyncio.to_thread(_size, self.place)
                if here > seen:
                    seen, since = here, clock()
                    progress(min(seen, total), total)
                if clock() - since > self.registry.limits.stall_seconds:
                    raise PullError(
                        f"the registry sends nothing any more: {seen} of {total} bytes came, and none for "
                        f"{self.registry.limits.stall_seconds:g} s"
                    )
            _check(process, await ending)
        finally:
            ending.cancel()

    async def _inspect(self, image: str) -> bytes:
        words = ("inspect", "--raw", "--authfile", "auth.json", f"docker://{image}")
        async with self._running(*words) as process:
            try:
                out, err = await asyncio.wait_for(_output(process), self.registry.limits.answer_seconds)
            except TimeoutError as error:
                message = f"the registry does not answer within {self.registry.limits.answer_seconds:g} s"
                raise PullError(message) from error
        _check(process, (out, err))
        if len(out) > _MAX_MANIFEST:
            raise PullError(f"its manifest is larger than {_MAX_MANIFEST} bytes")
        return out

    @asynccontextmanager
    async def _running(self, *words: str) -> AsyncGenerator[asyncio.subprocess.Process]:
        registry = self.registry
        options = ["--override-os", "linux", "--tmpdir", str(self.place)]
        options += ["--policy", str(_POLICY)] if _POLICY.exists() else ["--insecure-policy"]
        own = self.place / CONFIGURATION
        options += ["--registries-conf", str(own)] if own.exists() else []
        limit = str(registry.limits.compressed_bytes)
        confined = (sys.executable, "-m", MODULE, str(registry.user), str(self.place), limit)
        process = await asyncio.create_subprocess_exec(
            *(*confined, "skopeo", *options, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
                await process.wait()

    def _environment(self) -> dict[str, str]:
        place = str(self.place)
        made = {"PATH": os.environ.get("PATH", os.defpath), "HOME": place, "XDG_RUNTIME_DIR": place, "TMPDIR": place}
        return made | {name: os.environ[name] for name in PASSED if name in os.environ}


async def _output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """What it wrote, each cut where it becomes too much, and its end."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = await asyncio.gather(_read(process.stdout), _read(process.stderr))
    await process.wait()
    return out, err


async def _read(stream: asyncio.StreamReader) -> bytes:
    kept = bytearray()
    while chunk := await stream.read(65536):
        if len(kept) <= _MAX_MANIFEST:
            kept += chunk
    return bytes(kept)


def _check(process: asyncio.subprocess.Process, output: tuple[bytes, bytes]) -> None:
    if process.returncode == 0:
        return
    lines = output[1].decode("utf-8", "replace").strip().splitlines()
    said = lines[-1] if lines else f"skopeo ended with {process.returncode}"
    _, marked, message = said.partition('msg="')
    raise PullError((message.removesuffix('"').replace('\\"', '"') if marked else said)[-600:])


def _manifest(raw: bytes) -> dict[str, Any]:
    try:
        document: Any = json.loads(raw)
    except ValueError as error:
        raise PullError(f"its manifest cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise PullError("its manifest is no object")
    return cast("dict[str, Any]", document)


def _for_this_machine(index: dict[str, Any]) -> str:
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    known: list[str] = []
    try:
        for entry in index["manifests"]:
            described: dict[str, Any] = entry.get("platform") or {}
            known.append(f"{described.get('os')}/{described.get('architecture')}")
            if known[-1] == f"linux/{architecture}":
                return str(entry["digest"])
    except (KeyError, TypeError, AttributeError) as error:
        raise PullError(f"its index cannot be read: {error!r}") from error
    raise PullError(f"it is not made for linux/{architecture}, but for {', '.join(known[:8]) or 'nothing'}")


def _layer_bytes(manifest: dict[str, Any], limit: int) -> int:
    try:
        sizes = [int(layer["size"]) for layer in manifest["layers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise PullError("its manifest is of a kind that is not read: OCI or Docker schema 2 is") from error
    if len(sizes) > _MAX_LAYERS or min(sizes, default=0) < 0 or sum(sizes) > limit:
        raise PullError(f"its manifest names {len(sizes)} layers of {sum(sizes)} bytes; at most {limit} are fetched")
    return sum(sizes)


def _size(directory: Path) -> int:
    """Bytes of all files below, those that vanish meanwhile left out."""
    total = 0
    for root, _, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                total += (Path(root) / name).lstat().st_size
    return total
