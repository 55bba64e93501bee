"""Lists, usage and completion as they are printed."""

import argparse
import shutil
import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest

from anyvisor.cli import completion, machines, top
from anyvisor.cli.main import COMMANDS

Json = dict[str, Any]
ROW: Json = {
    "namespace": "default",
    "name": "web",
    "cpuSeconds": 10.0,
    "memoryBytes": 100 << 20,
    "guestMemoryBytes": 64 << 20,
    "diskReadBytes": 0,
    "diskWriteBytes": 0,
    "networkReceivedBytes": 0,
    "networkSentBytes": 0,
}


def test_usage_is_the_difference_of_two_looks() -> None:
    later = {**ROW, "cpuSeconds": 11.0, "diskReadBytes": 4096, "networkSentBytes": 2 << 20}
    other = {**ROW, "namespace": "other", "cpuSeconds": 99}
    (found,) = top.usages({"n": [ROW, other]}, {"n": [later, other, {**ROW, "name": "new"}]}, 2.0, "default")
    assert (found.cpu, found.disk_read, found.network_out) == (0.5, 2048, 1 << 20)
    assert (found.memory, found.guest_memory, found.node) == (100 << 20, 64 << 20, "n")


def test_a_counter_that_began_anew_is_no_negative_rate() -> None:
    assert top.usages({"n": [ROW]}, {"n": [{**ROW, "cpuSeconds": 0.5}]}, 1.0, "")[0].cpu == 0


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1 << 20, "1.0 MiB"),
        (15 << 20, "15 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert top.size(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200000, "2d")])
def test_ages(seconds: int, text: str) -> None:
    now = datetime(2026, 1, 3, 12, tzinfo=UTC)
    created = datetime.fromtimestamp(now.timestamp() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert machines.age(created, now) == text


def test_rows_join_a_vm_with_its_run() -> None:
    meta = {"namespace": "ns", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}
    vm = {"metadata": meta, "status": {"printableStatus": "Running", "ready": True}}
    status = {"nodeName": "n1", "interfaces": [{"ipAddress": "10.0.0.9"}], "hypervisor": {"class": "qemu"}}
    header, (row, bare) = machines.table(
        [vm, {"metadata": {**meta, "name": "off"}}], [{"metadata": meta, "status": status}], wide=True, spaces=True
    )
    assert dict(zip(header, row, strict=True)) | {"AGE": ""} == {
        "NAMESPACE": "ns",
        "NAME": "web",
        "STATUS": "Running",
        "READY": "yes",
        "NODE": "n1",
        "AGE": "",
        "IP": "10.0.0.9",
        "CLASS": "qemu",
        "ACCELERATOR": "-",
    }
    assert bare[1:5] == ["off", "-", "no", "-"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [(["anyvisor", "port"], "port-forward"), (["anyvisor", "--data-dir", "logs", "--ta"], "--tail")],
)
def test_bash_completes(line: list[str], offered: str, capsys: pytest.CaptureFixture[str]) -> None:
    completion.run(argparse.Namespace(shell="bash"))
    words = " ".join(f"'{word}'" for word in line)
    script = f"COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _anyvisor; echo ${{COMPREPLY[@]}}"
    told = subprocess.run(
        ["bash", "-c", f"{capsys.readouterr().out}\n{script}"], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [offered]


def test_every_command_and_shell_has_a_completion(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in completion.SHELLS:
        completion.run(argparse.Namespace(shell=shell))
        script = capsys.readouterr().out
        assert all(command in script for command in COMMANDS)
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=script, text=True, check=True)
