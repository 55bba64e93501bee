"""The pod runner's parts that need no cluster: status, records, cgroups, sandbox."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anyvisor.embedded.podnetwork.attachments import network_status
from anyvisor.embedded.podrunner import cgroups, node, status
from anyvisor.embedded.podrunner.records import ExitRecord, PodBooks, PodRecord
from anyvisor.embedded.podrunner.sandbox import Sandbox
from anyvisor.launcher import shim
from anyvisor.planning.plan import Resources

NOW = "2026-01-02T03:04:05Z"
RECORD = PodRecord(uid="u", namespace="ns", name="p", user=1000, group=1000)
RUNNING = msgspec.structs.replace(RECORD, pid=7, started_at=NOW, pod_ip="10.0.0.2")
GATE = "kubevirt.io/virtual-machine-unpaused"


def pod(**changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "compute", "image": "i"}], "readinessGates": [{"conditionType": GATE}]},
        "status": {},
        **changes,
    }


def reported(record: PodRecord, obj: dict[str, Any]) -> dict[str, Any]:
    made = status.patch(obj, record, "127.0.0.1", NOW)
    assert made is not None
    return {**obj["status"], **made["status"]}


def ready(state: dict[str, Any]) -> str:
    return next(c["status"] for c in state["conditions"] if c["type"] == "Ready")


def test_a_running_pod():
    state = reported(RUNNING, pod())
    assert (state["phase"], state["podIP"], state["startTime"]) == ("Running", "10.0.0.2", NOW)
    (container,) = state["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": NOW}}
    assert container["ready"] is True
    assert ready(state) == "True", "its guest was not started yet, so it is not paused either"


@pytest.mark.parametrize("held", ["True", "False"])
def test_the_readiness_gate_is_the_controllers_once_there_is_one(held: str):
    gate = {"type": GATE, "status": held, "reason": "Said"}
    state = reported(RUNNING, pod(status={"conditions": [gate]}))
    assert ready(state) == held
    assert gate in state["conditions"]


def test_a_gate_that_somebody_else_keeps_is_waited_for():
    spec = {"containers": [{"name": "compute", "image": "i"}], "readinessGates": [{"conditionType": "other"}]}
    assert ready(reported(RUNNING, pod(spec=spec))) == "False"


def test_a_pod_on_our_own_network_is_told_of_it_with_the_first_report():
    made = status.patch(pod(), RUNNING, "127.0.0.1", NOW, networked=True)
    assert made is not None
    (text,) = made["metadata"]["annotations"].values()
    assert text == network_status("10.0.0.2"), "as the agent would write it"
    assert set(made["metadata"]["annotations"]) == {"k8s.v1.cni.cncf.io/network-status"}


@pytest.mark.parametrize("annotation", ["k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks"])
def test_the_agent_tells_of_further_networks(annotation: str):
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": {annotation: "[]"}}
    made = status.patch(pod(metadata=metadata), RUNNING, "127.0.0.1", NOW, networked=True)
    assert made is not None
    assert "metadata" not in made


def test_the_same_status_is_not_written_again():
    state = reported(RUNNING, pod())
    assert status.patch(pod(status=state), RUNNING, "127.0.0.1", "later") is None


@pytest.mark.parametrize(
    ("ended", "phase", "code", "reason"),
    [
        (ExitRecord(code=0, at=NOW), "Succeeded", 0, "Completed"),
        (ExitRecord(code=3, at=NOW), "Failed", 3, "Error"),
        (ExitRecord(signal=9, at=NOW), "Failed", 137, "Error"),
        (ExitRecord(signal=9, out_of_memory=True, at=NOW), "Failed", 137, "OOMKilled"),
        (ExitRecord(at=NOW), "Failed", 137, "ContainerStatusUnknown"),
    ],
)
def test_how_a_pod_ended(ended: ExitRecord, phase: str, code: int, reason: str):
    state = reported(msgspec.structs.replace(RUNNING, exit=ended), pod())
    assert state["phase"] == phase
    terminated = state["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (code, reason)
    assert ready(state) == "False"


def test_why_a_pod_waits_is_told_in_its_containers():
    made = status.waiting(pod(), "no user id is free")
    (container,) = made["status"]["containerStatuses"]
    assert container["state"]["waiting"]["message"] == "no user id is free"


@pytest.mark.parametrize(
    ("resources", "memory"),
    [
        (Resources(guest_memory_bytes=64, overhead_bytes=16, memory_bytes=80), 80),
        (Resources(guest_memory_bytes=64, overhead_bytes=16, memory_bytes=32), 80),
        (Resources(guest_memory_bytes=64, overhead_bytes=16, memory_limit_bytes=100), 100),
    ],
)
def test_the_memory_limit_never_cuts_into_what_the_plan_counted(resources: Resources, memory: int):
    assert cgroups.limits(resources).memory_bytes == memory


async def test_books_are_read_again(tmp_path: Path):
    books = PodBooks(tmp_path / "pods")
    books.load()
    await books.write(RUNNING)
    again = PodBooks(tmp_path / "pods")
    again.load()
    assert again.pods == {"u": RUNNING}
    await again.forget("u")
    assert os.listdir(tmp_path / "pods") == []


async def test_a_broken_record_is_told_and_kept_and_an_empty_place_is_removed(tmp_path: Path):
    for name, content in (("bad", "{"), ("empty", None)):
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "pod.json").write_text(content)
    books = PodBooks(tmp_path)
    books.load()
    assert list(books.broken) == ["bad"]
    assert os.listdir(tmp_path) == ["bad"]


async def test_no_two_pods_have_one_user(tmp_path: Path):
    books = PodBooks(tmp_path)
    users = {uid: books.reserve_user(uid, 5000, 3) for uid in ("a", "b")}
    assert users == {"a": 5000, "b": 5001}, "also before a record is written"
    await books.write(msgspec.structs.replace(RECORD, uid="a", user=users["a"]))
    assert books.reserve_user("b", 5000, 3) == 5001
    assert books.reserve_user("c", 5000, 3) == 5002
    with pytest.raises(OSError, match="taken"):
        books.reserve_user("d", 5000, 3)
    await books.forget("a")
    assert books.reserve_user("d", 5000, 3) == 5000


@pytest.mark.parametrize("version", [1, 2])
def test_cgroups_of_either_version(tmp_path: Path, version: int):
    if os.geteuid() != 0:
        pytest.skip("cgroups are made as root only")
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    else:
        for controller in ("memory", "pids", "cpu"):
            (tmp_path / controller).mkdir()
            (tmp_path / controller / "cgroup.procs").write_text("")
    limit = cgroups.Limits(memory_bytes=1 << 20, cpu_millis=1500, cpu_request_millis=500)
    made = cgroups.create("i", "u", limit, root=tmp_path)
    node = (os.cpu_count() or 1) * 1024
    texts = {path.name: path.read_text() for directory in made for path in Path(directory).iterdir()}
    if version == 2:
        assert made == (str(tmp_path / "anyvisor" / "i" / "u"),)
        assert (texts["memory.max"], texts["cpu.max"]) == ("1048576", "150000 100000")
        assert (texts["cpu.weight"], (tmp_path / "anyvisor" / "cpu.weight").read_text()) == (
            "50",
            str(node * 100 // 1024),
        )
    else:
        assert len(made) == 3
        assert (texts["memory.limit_in_bytes"], texts["cpu.cfs_quota_us"]) == ("1048576", "150000")
        assert (texts["cpu.shares"], (tmp_path / "cpu" / "anyvisor" / "cpu.shares").read_text()) == ("512", str(node))
    assert texts["pids.max"] == str(cgroups.HELPER_PIDS)


LIMITS = ("memory.max", "memory.limit_in_bytes")


def test_real_cgroups_hold_and_let_go(tmp_path: Path):
    made = cgroups.create(tmp_path.name, "u", cgroups.Limits(memory_bytes=64 << 20))
    if not made:
        pytest.skip("no cgroups can be made here")
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        for file in cgroups.procs(made):
            Path(file).write_text(str(process.pid))
        assert cgroups.find(tmp_path.name, "u") == made
        for limit in (128 << 20, 96 << 20):
            cgroups.set_memory(made, limit)
            told = [path.read_text() for one in made for path in Path(one).glob("memory.*") if path.name in LIMITS]
            assert told == [f"{limit}\n"]
        assert cgroups.members(made) == {process.pid}
        assert not cgroups.remove(made)
        cgroups.kill_all(made)
        assert process.wait() == -9
        assert cgroups.remove(made)
    finally:
        process.kill()
        process.wait()
        for directory in made:
            Path(directory).parent.rmdir()


def test_a_sandbox_is_made_anew_and_leaves_nothing(rundir: Path):
    separate = os.geteuid() == 0
    sandbox = Sandbox(rundir / "pods" / "u", separate)
    for _ in range(2):
        sandbox.create(os.geteuid(), os.getegid())
        assert sandbox.launcher_dir.stat().st_mode & 0o777 == 0o700
        os.close(sandbox.open_log())
        (sandbox.launcher_dir / "leftover").touch()
    assert os.listdir(sandbox.launcher_dir) == ["leftover"]
    sandbox.remove()
    sandbox.remove()
    assert not sandbox.root.exists()


def test_a_shim_that_waits_is_found(rundir: Path):
    sandbox = Sandbox(rundir / "u", separate=False)
    sandbox.create(os.geteuid(), os.getegid())
    assert sandbox.waiting_shim() == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(sandbox.launcher_dir / shim.SOCKET_NAME))
        listener.listen(1)
        assert sandbox.waiting_shim() == os.getpid()
    assert sandbox.waiting_shim() == 0


def test_a_node_reports_the_whole_host_and_keeps_the_times_of_its_conditions():
    first = node.status({}, NOW)
    assert int(first["capacity"]["memory"].removesuffix("Ki")) > 0
    assert {c["type"]: c["status"] for c in first["conditions"]}["Ready"] == "True"
    assert node.status(first, "later")["conditions"] == first["conditions"]


def test_a_pod_whose_probe_does_not_hold_runs_and_is_not_ready() -> None:
    made = status.patch(pod(), RUNNING, "127.0.0.1", NOW, answering=False)
    assert made is not None
    found = {each["type"]: (each["status"], each.get("reason")) for each in made["status"]["conditions"]}
    assert found["Ready"] == found["ContainersReady"] == ("False", "ContainersNotReady")
    assert found["PodReadyToStartContainers"] == ("True", None)
    [container] = made["status"]["containerStatuses"]
    assert (container["ready"], container["started"]) == (False, True)
