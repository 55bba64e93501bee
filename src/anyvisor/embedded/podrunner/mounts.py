"""The volumes of a pod on this host: filled as a kubelet fills them, and opened for the agent.

Below a directory of the pod lie the files at the paths where its container has them, so that they are looked up as in
the mount namespace of a real pod.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent import linux
from anyvisor.api.meta import Json, list_at, name, namespace, object_at, text_at, uid
from anyvisor.embedded.podrunner import hostpath, projection
from anyvisor.embedded.podrunner.projection import CONFIG_MAP, SECRET, ProjectionError
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, NotFound
from anyvisor.kube.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS

TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
TOKEN_SECONDS: Final = 365 * 24 * 3600
"""As Kubernetes extends the tokens of containers: a disk is not written anew while its guest runs."""
MEMORY_MARGIN: Final = 1 << 20
FILE_MARGIN: Final = 4096
"""Bytes of memory that one small file takes beyond its own, at most."""
DATA: Final = "..data"

Content = dict[str, dict[str, bytes]]
"""Files by mount path."""


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Fills volumes by what the API server has, as the node's user."""

    client: Client
    certificate: bytes = b""
    """The CA of the API server, for pods that get a token."""

    async def content(self, pod: Json) -> Content:
        """All that the pod's containers find in volumes of Secrets, ConfigMaps, fields and tokens.

        Raises:
            ProjectionError: something is missing; try again later.
        """
        found: Content = {}
        places = mount_paths(pod)
        for volume in list_at(pod, "spec", "volumes"):
            files = await self._files(pod, volume)
            if files is not None and text_at(volume, "name") in places:
                found[places[text_at(volume, "name")]] = files
        if object_at(pod, "spec").get("automountServiceAccountToken") is True:
            found[TOKEN_PATH] = await self._service_account(pod)
        projection.check_size(found)
        return found

    async def _files(self, pod: Json, volume: Json) -> dict[str, bytes] | None:
        own = text_at(volume, "name")
        if "secret" in volume:
            source = object_at(volume, "secret")
            found = await self._get(pod, SECRET, text_at(source, "secretName"))
            return projection.of_object(own, SECRET, found, source)
        if "configMap" in volume:
            source = object_at(volume, "configMap")
            found = await self._get(pod, CONFIG_MAP, text_at(source, "name"))
            return projection.of_object(own, CONFIG_MAP, found, source)
        if "downwardAPI" in volume:
            return projection.of_pod(own, pod, object_at(volume, "downwardAPI"))
        return None

    async def _get(self, pod: Json, kind: str, wanted: str) -> Json | None:
        try:
            return await self.client.get(SECRETS if kind == SECRET else CONFIG_MAPS, wanted, namespace(pod))
        except NotFound:
            return None
        except ApiError as error:
            raise ProjectionError(f"{kind} {wanted!r} cannot be read: {error}") from error

    async def _service_account(self, pod: Json) -> dict[str, bytes]:
        account = text_at(pod, "spec", "serviceAccountName") or "default"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": name(pod), "uid": uid(pod)}
        request: Json = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound},
        }
        try:
            answer = await self.client.create(
                SERVICE_ACCOUNTS, request, namespace(pod), name=account, subresource="token"
            )
        except NotFound as error:
            message = f"the pod waits for ServiceAccount {account!r}, which does not exist; create it"
            raise ProjectionError(message) from error
        except ApiError as error:
            raise ProjectionError(f"no token for ServiceAccount {account!r}: {error}") from error
        token = text_at(answer, "status", "token")
        return projection.service_account(token, self.certificate, namespace(pod))


def mount_paths(pod: Json) -> dict[str, str]:
    """Where the pod's containers have its volumes, by their name."""
    return {
        text_at(mount, "name"): text_at(mount, "mountPath")
        for container in list_at(pod, "spec", "containers")
        for mount in list_at(container, "volumeMounts")
    }


def memory(content: Mapping[str, Mapping[str, bytes]]) -> tuple[int, int]:
    """Bytes and inodes of a memory file system that holds it twice, as it is replaced whole."""
    files = sum(len(each) for each in content.values())
    return 2 * (projection.check_size(content) + FILE_MARGIN * files) + MEMORY_MARGIN, 8 * (files + len(content)) + 256


def write(root: Path, content: Mapping[str, Mapping[str, bytes]]) -> None:
    """Put every mount's files below `root`, each mount whole or as it was; as Kubernetes' AtomicWriter lays them out.

    Names are links to `..data/NAME`, and `..data` a link to the directory of this version.
    """
    for path, files in content.items():
        place = root / path.lstrip("/")
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        version = f"..{secrets.token_hex(8)}"
        for relative, data in files.items():
            target = place / version / relative
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
        (place / version).mkdir(mode=0o700, exist_ok=True)
        _swap(place, version, {relative.split("/")[0] for relative in files})


def _swap(place: Path, version: str, names: set[str]) -> None:
    old = os.readlink(place / DATA) if (place / DATA).is_symlink() else ""
    fresh = place / "..data_tmp"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(version)
    fresh.rename(place / DATA)
    for each in os.listdir(place):
        if not each.startswith("..") and each not in names:
            (place / each).unlink()
    for each in names:
        with contextlib.suppress(FileExistsError):
            (place / each).symlink_to(f"{DATA}/{each}")
    if old:
        shutil.rmtree(place / old, ignore_errors=True)


async def open_mount(root: Path, pod: Json, path: str, forbidden: tuple[Path, ...]) -> int:
    """The directory that the pod has at `path`, the caller's to close; raises OSError."""
    places = {place: volume for volume, place in mount_paths(pod).items()}
    volume = next((one for one in list_at(pod, "spec", "volumes") if one.get("name") == places.get(path)), None)
    if volume is not None and "hostPath" in volume:
        source = object_at(volume, "hostPath")
        create = text_at(source, "type") == "DirectoryOrCreate"
        return await asyncio.to_thread(hostpath.open_directory, text_at(source, "path"), create, forbidden)
    return await asyncio.to_thread(_open_below, root, path)


def _open_below(root: Path, path: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    base = os.open(root, flags | os.O_NOFOLLOW)
    try:
        return linux.openat2(base, path.lstrip("/"), flags)
    finally:
        os.close(base)
