"""Drivers come and go while the instance runs: installed, refused, upgraded beside running machines, removed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from anyvisor.hri import manifests
from tests.e2e.conftest import Instance, eventually, tiny_vm

BASE = manifests.packaged("anyvisor.hri.fake").data
NAME = "ghost.example.org"


def folder(place: Path, version: str = "1.0.0", faults: str = "", **changes: Any) -> Path:
    """A driver from outside: the fake under another name, as a shell script that starts it."""
    place.mkdir(parents=True)
    manifest = {**BASE, "driver": NAME, "version": version, **changes}
    (place / "manifest.yaml").write_text(json.dumps(manifest))
    program = place / "driver"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m anyvisor.hri.fake --manifest manifest.yaml --faults "{faults}" "$@"\n'
    )
    program.chmod(0o755)
    return place


def ghost(name: str) -> dict[str, Any]:
    """A VM on the driver's class."""
    vm = tiny_vm(name)
    vm["spec"]["template"]["spec"]["hypervisor"] = "ghost"
    return vm


def driver_row(instance: Instance) -> list[str]:
    rows = instance.cli("driver", "list").splitlines()
    found = next((row for row in rows if row.startswith(NAME)), "")
    return found.split()


def version_of(instance: Instance, name: str) -> str:
    vmi = instance.get("vmi", name) or {}
    return vmi.get("status", {}).get("hypervisor", {}).get("driverVersion", "")


@pytest.mark.timeout(400)
def test_a_driver_from_outside_lives_a_life(instance: Instance, tmp_path: Path):
    said = instance.cli("driver", "install", str(folder(tmp_path / "a")))
    assert f"driver {NAME} 1.0.0 is installed, class ghost offers it" in said
    assert "not healthy" not in said
    assert driver_row(instance)[:4] == [NAME, "1.0.0", "added", "ghost"]
    pid = instance.processes()[f"driver-{NAME}-1.0.0-node-1"]
    owner = Path(f"/proc/{pid}").stat().st_uid
    others = {Path(f"/proc/{p}").stat().st_uid for name, p in instance.processes().items() if name != "zygote"}
    assert owner in others
    assert f"NoNewPrivs:\t{1 if owner else 0}" in Path(f"/proc/{pid}/status").read_text()

    instance.apply(ghost("one"))
    instance.wait_phase("one")
    assert version_of(instance, "one") == "1.0.0"
    again = instance.cli("driver", "install", str(tmp_path / "a"), check=False)
    assert "is installed already" in again
    refused = instance.cli("driver", "remove", NAME, check=False)
    assert "in use by vm/one in default" in refused
    assert "give them another spec.hypervisor" in refused

    said = instance.cli("driver", "upgrade", str(folder(tmp_path / "b", "2.0.0")))
    assert "1 running VMs stay with 1.0.0" in said
    assert f"driver-{NAME}-1.0.0-node-1" in instance.processes()
    instance.apply(ghost("two"))
    instance.wait_phase("two")
    assert instance.phase("one") == "Running"
    assert (version_of(instance, "one"), version_of(instance, "two")) == ("1.0.0", "2.0.0")
    assert instance.processes()[f"driver-{NAME}-1.0.0-node-1"] == pid, "the old version was touched"

    instance.kubectl("delete", "vm", "one")
    instance.wait_gone("vmi", "one")
    eventually(lambda: f"driver-{NAME}-1.0.0-node-1" not in instance.processes(), 30)
    assert instance.phase("two") == "Running"
    eventually(lambda: not (instance.data_dir / "drivers" / NAME / "1.0.0").exists(), 30)

    skew = [{"from": "2.0.0", "to": "3.0.0", "mode": "local"}]
    said = instance.cli("driver", "upgrade", str(folder(tmp_path / "c", "3.0.0", skew=skew)))
    assert "the new version takes them over" in said
    eventually(lambda: f"driver-{NAME}-2.0.0-node-1" not in instance.processes(), 30)
    eventually(lambda: instance.phase("two") == "Running" and driver_row(instance)[1] == "3.0.0", 30)
    without_its_class(instance)
    instance.kubectl("delete", "vm", "two")
    instance.wait_gone("vmi", "two")

    assert "is removed, and the classes ghost" in instance.cli("driver", "remove", NAME)
    assert driver_row(instance) == []
    node = instance.get("node", "node-1") or {}
    eventually(lambda: not any(label.startswith(NAME) for label in labels_of(instance)), 30, lambda: json.dumps(node))
    refused = instance.kubectl("apply", "-f", "-", stdin=json.dumps(ghost("three")), check=False)
    assert "there is no hypervisor class" in refused


def without_its_class(instance: Instance) -> None:
    """A class that goes takes no guest with it; one that names no driver that is here is refused with both names."""
    instance.kubectl("delete", "hypervisorclass", "ghost")
    refused = instance.kubectl("apply", "-f", "-", stdin=json.dumps(ghost("none")), check=False)
    assert "there is no hypervisor class 'ghost'; the classes are:" in refused
    assert instance.phase("two") == "Running"
    instance.cli("restart", "two", check=False)
    eventually(lambda: "there is no hypervisor class 'ghost'" in instance.cli("why", "two", check=False), 60)
    nowhere = {
        "apiVersion": "anyvisor.io/v1alpha1",
        "kind": "HypervisorClass",
        "metadata": {"name": "ghost"},
        "spec": {"driver": "absent.example.org"},
    }
    instance.kubectl("apply", "-f", "-", stdin=json.dumps(nowhere))
    refused = instance.kubectl("apply", "-f", "-", stdin=json.dumps(ghost("none")), check=False)
    assert "names the driver absent.example.org, which is not installed" in refused
    nowhere["spec"] = {"driver": NAME}
    instance.kubectl("apply", "-f", "-", stdin=json.dumps(nowhere))
    instance.wait_phase("two", seconds=90)


def labels_of(instance: Instance) -> dict[str, str]:
    return (instance.get("node", "node-1") or {})["metadata"]["labels"]
