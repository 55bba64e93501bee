"""A claim's own directory on this machine: only of a claim whose mode has one."""

import os
from pathlib import Path
from typing import Any

import pytest

from anyvisor.agent.volumes.source import ClaimError
from anyvisor.embedded.volumes.claims import LocalClaims
from anyvisor.embedded.volumes.disks import Disks
from anyvisor.embedded.volumes.names import PROVISIONER

Json = dict[str, Any]


class Client:
    """A bound claim and its volume."""

    def __init__(self, mode: str) -> None:
        self._claim = {"spec": {"volumeName": "pvc-1", "volumeMode": mode}, "status": {"phase": "Bound"}}

    async def get(self, _resource: Any, name: str, namespace: str = "") -> Json:
        if namespace:
            return self._claim
        return {"spec": {"capacity": {"storage": "1Mi"}, "csi": {"driver": PROVISIONER}, "name": name}}


def claims(mode: str, place: Path) -> LocalClaims:
    return LocalClaims(Client(mode), Disks(place))  # type: ignore[arg-type]


async def test_the_directory_is_the_volumes_own(tmp_path: Path) -> None:
    opened = await claims("Filesystem", tmp_path).open_directory("ns", "files")
    try:
        assert os.path.samestat(os.fstat(opened), os.stat(tmp_path / "pvc-1"))
    finally:
        os.close(opened)


async def test_a_block_device_has_none(tmp_path: Path) -> None:
    with pytest.raises(ClaimError, match="attach it as a disk") as caught:
        await claims("Block", tmp_path).open_directory("ns", "files")
    assert not caught.value.retry
