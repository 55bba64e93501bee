"""Processes of pods: told by control groups in the forms of both drivers, and by pid 1."""

import os
from pathlib import Path
from typing import Any

import pytest

from anyvisor.cluster.pods import ContainerProcess, in_container, is_first, running_container

UID = "0b7e8d1c-3f2a-4a55-9a43-7f3a7e1b2c3d"
CID = "ab" * 32
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
OTHER = "cd" * 32


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"5:memory:/k8s-node1/kubepods/burstable/pod{UID}/{CID}\n", True),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{CID}.scope\n", True),
        (f"0::/../../kubepods-pod{UID.replace('-', '_')}.slice/crio-{CID}.scope\n", True),
        (f"5:memory:/kubepods/pod{UID}/{OTHER}\n", False),
        (f"5:memory:/kubepods/pod{UID[:-1]}e/{CID}\n", False),
        (f"5:memory:/user/{CID}\n", False),
        ("", False),
    ],
)  # fmt: skip
def test_the_control_group_names_pod_and_container(text: str, found: bool) -> None:
    assert in_container(text, UID, CID) is found


def test_the_first_process_of_its_namespace() -> None:
    assert is_first("Name:\tq\nNSpid:\t4711\t1\n")
    assert not is_first("Name:\tq\nNSpid:\t4711\t9\n")
    assert not is_first("Name:\tq\n")


def test_only_a_running_container_has_an_id() -> None:
    statuses: list[dict[str, Any]] = [
        {"name": "compute", "containerID": f"containerd://{CID}", "state": {"running": {}}},
        {"name": "ended", "containerID": f"containerd://{OTHER}", "state": {"terminated": {}}},
        {"name": "odd", "containerID": "containerd://../../etc", "state": {"running": {}}},
    ]
    pod: dict[str, Any] = {"status": {"containerStatuses": statuses}}
    assert [running_container(pod, name) for name in ("compute", "ended", "odd", "none")] == [CID, "", "", ""]


def test_files_are_opened_below_the_containers_root_following_no_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    process = ContainerProcess(os.getpid(), os.pidfd_open(os.getpid()))
    try:
        os.close(process.open_directory(str(tmp_path / "real")))
        with pytest.raises(OSError, match="symbolic links"):
            process.open_directory(str(tmp_path / "link"))
        with pytest.raises(FileNotFoundError):
            process.open_inode(str(tmp_path / "nothing"))
    finally:
        process.close()
