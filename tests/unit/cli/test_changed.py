"""`anyvisor review -f vm.yaml --changes`: what a manifest changes of a VM that runs, and when it counts."""

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from anyvisor.cli import review
from anyvisor.cli.api import ApiRefusalError
from anyvisor.hri import manifests

Json = dict[str, Any]
QEMU = manifests.read(files("anyvisor.drivers.qemu").joinpath("manifest.yaml").read_text())
SPEC: Json = {
    "domain": {
        "cpu": {"sockets": 1, "maxSockets": 4},
        "memory": {"guest": "1Gi"},
        "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}], "rng": {}},
    },
    "volumes": [
        {"name": "root", "persistentVolumeClaim": {"claimName": "root"}},
        {"name": "more", "persistentVolumeClaim": {"claimName": "more", "hotpluggable": True}},
    ],
}


def vm(spec: Json) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": spec}},
    }


class FakeApi:
    """A server with one VM, which runs or not."""

    runs = True

    def call(self, method: str, path: str) -> Json:
        if path.endswith("/virtualmachines/web"):
            return vm(SPEC)
        if path.endswith("/virtualmachineinstances/web") and self.runs:
            return {"status": {"hypervisor": {"driver": QEMU["driver"]}}}
        if path.endswith(f"/hypervisordrivers/{QEMU['driver']}"):
            return {"spec": {"manifest": QEMU}}
        raise ApiRefusalError(404, f"{path} not found")


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Json, *words: str, api: type = FakeApi) -> int:
    from anyvisor.cli.main import main

    file = tmp_path / "vm.yaml"
    file.write_text(json.dumps(vm(spec)))
    monkeypatch.setattr(review, "connect", api)
    return main(["review", "-f", str(file), "--changes", *words])


def test_each_field_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    spec = copy.deepcopy(SPEC)
    spec["domain"]["cpu"]["sockets"] = 2
    spec["domain"]["devices"]["disks"].append({"name": "more", "disk": {"bus": "scsi"}})
    spec["domain"]["devices"].pop("rng")
    spec["nodeSelector"] = {"zone": "b"}
    assert asked(tmp_path, monkeypatch, spec, "-o", "json") == 1
    found = {each["field"]: each["effect"] for each in json.loads(capsys.readouterr().out)}
    assert found == {
        "domain.cpu.sockets": "LIVE",
        "domain.devices.disks[more]": "LIVE",
        "domain.devices.rng": "NEXT_START",
        "nodeSelector": "MOVE",
    }
    assert asked(tmp_path, monkeypatch, spec) == 1
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["FIELD", "EFFECT", "NOW", "THEN", "WHY"]
    assert any("domain.cpu.sockets" in line and "LIVE" in line for line in table)


def test_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert asked(tmp_path, monkeypatch, SPEC) == 0
    assert capsys.readouterr().out == "nothing changes\n"


def test_a_vm_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    class Stopped(FakeApi):
        runs = False

    assert asked(tmp_path, monkeypatch, SPEC, api=Stopped) == 1
    assert "does not run, so every change takes effect with its next start" in capsys.readouterr().err
