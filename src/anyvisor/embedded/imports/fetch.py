"""Fill one volume from its source: bring the content here, make it raw, and write it to the volume's disk.

Nothing of a disk is seen under its name before all of it is there (`Disks.fill`), so a fill that is cut off starts
anew, and is never attached half.
"""

import asyncio
import base64
import binascii
import contextlib
import json
import os
import shutil
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.agent.volumes.source import ClaimError, ClaimSource
from anyvisor.api.meta import Json, object_at, text_at
from anyvisor.embedded.images import download, formats
from anyvisor.embedded.images.convert import INPUT, OUTPUT, convert, find_tool, foreign_format, own_directory
from anyvisor.embedded.images.credentials import KEYS, CredentialsError, merged
from anyvisor.embedded.images.pull import NeverPullError, Puller, default_policy
from anyvisor.embedded.images.reference import repository
from anyvisor.embedded.images.registry import PASSED, PullError
from anyvisor.embedded.images.tool import Confinement, run
from anyvisor.embedded.imports.sources import Blank, FromAddress, FromClaim, FromRegistry, Source, header
from anyvisor.embedded.volumes.disks import Disks, FillStoppedError
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError
from anyvisor.kube.resources import CONFIG_MAPS, SECRETS

_REQUEST: Final = "request.json"
_CERTIFICATES: Final = "ca.pem"
_DOWNLOAD_EXTRA: Final = 64 * 1024**2
_SHARE_OF_TRANSFER: Final = 70

Report = Callable[[int], None]
"""Told how much is done, in percent."""


class FillError(Exception):
    """A volume cannot be filled; the message says why. A `final` one is not tried again."""

    def __init__(self, reason: str, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.final = final


@dataclass(frozen=True, slots=True)
class Job:
    """One volume to fill for a claim."""

    uid: str
    namespace: str
    claim: str
    volume: str
    bytes: int
    source: Source
    preallocate: bool = False


@dataclass(frozen=True, slots=True)
class Fetcher:
    """What fills need on this machine; programs for them run as `user` below `place`."""

    client: Client
    puller: Puller
    disks: Disks
    claims: ClaimSource
    user: int
    place: Path
    in_use: Callable[[str, str], str]
    """The pod that uses a claim (namespace, name); empty for none."""

    async def fill(self, job: Job, report: Report) -> None:
        """Fill it.

        Raises:
            FillError: it could not be filled.
        """
        try:
            await self._fill(job, report)
        except (ImageError, NeverPullError) as error:
            raise FillError("Error", str(error), final=True) from error
        except PullError as error:
            raise FillError("ImagePullFailed", str(error)) from error
        except ClaimError as error:
            raise FillError("Error", str(error)) from error
        except OSError as error:
            raise FillError("Error", f"the disk cannot be written: {error.strerror or error}; free space") from error
        except ApiError as error:
            raise FillError("Error", str(error)) from error

    async def _fill(self, job: Job, report: Report) -> None:
        match job.source:
            case Blank():
                await self._write(job, None, job.bytes, report)
            case FromRegistry():
                await self._from_registry(job, job.source, report)
            case FromAddress():
                await self._from_address(job, job.source, report)
            case FromClaim():
                await self._from_claim(job, job.source, report)

    async def _from_registry(self, job: Job, source: FromRegistry, report: Report) -> None:
        def pulled(here: int, total: int) -> None:
            report(_SHARE_OF_TRANSFER * here // max(total, 1))

        credentials = await self._registry_login(job, source)
        store, user = self.puller.store, f"fill-{job.uid}"
        await self.puller.ensure(source.reference, default_policy(source.reference), credentials, pulled)
        title = f"{job.namespace}/{job.claim}"
        images = await asyncio.to_thread(store.use, user, "fills", title, [source.reference])
        try:
            file = images[source.reference].disk()
            _fits(file.virtual_bytes, job)
            blob = store.open(file)
            try:
                await self._write_image(job, blob, file.format, report)
            finally:
                os.close(blob)
        finally:
            store.done(user)

    async def _from_claim(self, job: Job, source: FromClaim, report: Report) -> None:
        user = self.in_use(job.namespace, source.name)
        if user:
            message = f"claim {source.name} is in use by pod {user}; it is copied when its VM has stopped"
            raise FillError("CloneSourceInUse", message)
        opened = await self.claims.open(job.namespace, source.name, read_only=True)
        try:
            _fits(opened.virtual_bytes, job)
            await self._write(job, opened.descriptor, opened.virtual_bytes, report)
        finally:
            os.close(opened.descriptor)

    async def _from_address(self, job: Job, source: FromAddress, report: Report) -> None:
        async with self._directory() as directory:
            wanted = download.Wanted(source.url, *await self._http_access(job, source))
            _hand_over(directory / _REQUEST, json.dumps(_encoded(wanted)).encode(), self.user)
            limit = job.bytes + job.bytes // 8 + _DOWNLOAD_EXTRA
            command = [sys.executable, "-m", download.MODULE, str(directory / _REQUEST), str(limit)]
            environment = {name: os.environ[name] for name in PASSED if name in os.environ}
            try:
                await run(
                    command,
                    Confinement(self.user, directory, limit, environment),
                    lambda done, _: report(_SHARE_OF_TRANSFER * done // 100),
                )
            except ImageError as error:
                raise FillError("Error", f"{source.url} {error}") from error
            await self._take(job, directory, source.url, report)

    async def _take(self, job: Job, directory: Path, what: str, report: Report) -> None:
        """Write a file that came, whatever its format."""
        handle = os.open(directory / INPUT, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            foreign = foreign_format(directory / INPUT)
            if foreign:
                await self._convert(job, directory, foreign, report)
                return
            found = await asyncio.to_thread(formats.detect, handle)
            _fits(found.virtual_bytes, job)
            if found.name == "qcow2":
                await self._convert(job, directory, found.name, report)
            else:
                await self._write(job, handle, found.virtual_bytes, report)
        except ImageError as error:
            raise ImageError(f"{what} {error}") from error
        finally:
            os.close(handle)

    async def _write_image(self, job: Job, blob: int, name: str, report: Report) -> None:
        if name != "qcow2":
            await self._write(job, blob, os.fstat(blob).st_size, report)
            return
        async with self._directory() as directory:
            await asyncio.to_thread(_copy_in, blob, directory / INPUT, self.user)
            await self._convert(job, directory, name, report)

    async def _convert(self, job: Job, directory: Path, name: str, report: Report) -> None:
        limits = Confinement(self.user, directory, job.bytes, {})
        try:
            await convert(find_tool(name), limits, lambda done, _: report(_SHARE_OF_TRANSFER + done // 10))
        except ImageError as error:
            raise FillError("Error", f"the disk {error}") from error
        made = os.open(directory / OUTPUT, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(made).st_size
            _fits(size, job)
            await self._write(job, made, size, report)
        finally:
            os.close(made)

    async def _write(self, job: Job, content: int | None, size: int, report: Report) -> None:
        """The last step; ends at once when it is cancelled."""
        stopped = threading.Event()
        loop = asyncio.get_running_loop()

        def written(done: int) -> None:
            loop.call_soon_threadsafe(report, _SHARE_OF_TRANSFER + (99 - _SHARE_OF_TRANSFER) * done // max(size, 1))

        work = asyncio.ensure_future(
            asyncio.to_thread(
                self.disks.fill,
                job.volume,
                job.bytes,
                content,
                preallocate=job.preallocate,
                progress=written,
                stopped=stopped.is_set,
            )
        )
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            stopped.set()
            with contextlib.suppress(FillStoppedError, ClaimError, OSError):
                await work
            raise

    @asynccontextmanager
    async def _directory(self) -> AsyncGenerator[Path]:
        directory, held = await asyncio.to_thread(own_directory, self.place)
        try:
            if os.geteuid() != self.user:
                os.chown(directory, self.user, self.user)
            yield directory
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            os.close(held)

    async def _registry_login(self, job: Job, source: FromRegistry) -> bytes:
        if not source.secret:
            return b""
        secret = await self._secret(job, source.secret)
        if text_at(secret, "type") in KEYS:
            try:
                return merged([secret])
            except CredentialsError as error:
                raise FillError("Error", f"{error}; put it right, it is read again") from error
        login = base64.b64encode(":".join(_login(secret)).encode()).decode()
        return json.dumps({"auths": {repository(source.reference): {"auth": login}}}).encode()

    async def _http_access(self, job: Job, source: FromAddress) -> tuple[dict[str, str], str]:
        """Headers, and the authorities to trust."""
        lines = list(source.headers)
        for named in source.secret_headers:
            secret = await self._secret(job, named)
            lines += [_text(secret, key) for key in sorted(object_at(secret, "data"))]
        headers = dict(found for line in lines if (found := header(line)))
        if source.secret:
            login = ":".join(_login(await self._secret(job, source.secret)))
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        if not source.certificates:
            return headers, ""
        trusted = object_at(await self._object(job, "ConfigMap", source.certificates), "data")
        return headers, "\n".join(str(trusted[key]) for key in sorted(trusted))

    async def _secret(self, job: Job, name: str) -> Json:
        return await self._object(job, "Secret", name)

    async def _object(self, job: Job, kind: str, name: str) -> Json:
        try:
            return await self.client.get(SECRETS if kind == "Secret" else CONFIG_MAPS, name, job.namespace)
        except ApiError as error:
            message = f"{kind} {name} of namespace {job.namespace} cannot be read: {error}; create it"
            raise FillError("Error", message) from error


def _encoded(wanted: download.Wanted) -> dict[str, object]:
    return {"url": wanted.url, "headers": dict(wanted.headers), "certificates": wanted.certificates}


def _login(secret: Json) -> tuple[str, str]:
    return _text(secret, "accessKeyId"), _text(secret, "secretKey")


def _text(secret: Json, key: str) -> str:
    name = text_at(secret, "metadata", "name")
    encoded = object_at(secret, "data").get(key)
    if encoded is None:
        raise FillError("Error", f"Secret {name} has no {key}; add it")
    try:
        return base64.b64decode(encoded, validate=True).decode().strip()
    except (binascii.Error, ValueError, TypeError) as error:
        raise FillError("Error", f"{key} of Secret {name} cannot be read: {error}") from error


def _fits(virtual_bytes: int, job: Job) -> None:
    if virtual_bytes > job.bytes:
        message = (
            f"the disk has {virtual_bytes} bytes, and claim {job.claim} asks for {job.bytes}; "
            f"delete it, and ask for at least {-(-virtual_bytes // 1024**2)}Mi"
        )
        raise FillError("Error", message, final=True)


def _hand_over(path: Path, content: bytes, user: int) -> None:
    path.write_bytes(content)
    path.chmod(0o400)
    if os.geteuid() != user:
        os.chown(path, user, user)


def _copy_in(blob: int, path: Path, user: int) -> None:
    with path.open("wb") as target, os.fdopen(os.dup(blob), "rb") as content:
        content.seek(0)
        shutil.copyfileobj(content, target, 1 << 20)
    if os.geteuid() != user:
        os.chown(path, user, user)
