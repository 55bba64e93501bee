"""`anyvisor conform --class`: the machines of a run have the class's parameters, accelerator and overhead."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from anyvisor.cli import conform_class
from anyvisor.cli.main import CommandError
from anyvisor.hri import manifests
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_UNSPECIFIED

QEMU = manifests.read(files("anyvisor.drivers.qemu").joinpath("manifest.yaml").read_text())


def written(tmp_path: Path, **spec: Any) -> str:
    obj = {
        "apiVersion": "anyvisor.io/v1alpha1",
        "kind": "HypervisorClass",
        "metadata": {"name": "slow"},
        "spec": {"driver": QEMU["driver"], **spec},
    }
    file = tmp_path / "class.yaml"
    file.write_text(json.dumps(obj))
    return str(file)


def test_what_the_class_sets_is_tried(tmp_path: Path):
    parameters = {"kernelFirmware": "seabios", "accelerator": "emulation"}
    offered = conform_class.find(written(tmp_path, parameters=parameters, overhead={"fixed": "1Gi"}), QEMU)
    machine = offered.applied(None)
    assert offered.name == "slow"
    assert machine.parameters["kernelFirmware"] == "seabios"
    assert machine.accelerator == ACCELERATOR_EMULATION
    assert machine.boot.kernel.kernel_handle == "kernel"
    assert offered.manifest.overhead.fixed == "1Gi"


def test_a_class_that_sets_nothing_leaves_the_choice_to_the_driver(tmp_path: Path):
    offered = conform_class.find(written(tmp_path), QEMU)
    assert offered.applied(None).accelerator == ACCELERATOR_UNSPECIFIED
    assert not offered.plan.parameters.get("kernelFirmware")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"parameters": {"warp": "9"}}, "does not know"),
        ({"parameters": {"kernelFirmware": "lilo"}}, "kernelFirmware"),
        ({"parameters": {"accelerator": "mshv"}}, "asks for accelerator 'mshv'"),
        ({"driver": "other.example.org"}, "and the manifest is of qemu.anyvisor.io"),
    ],
)
def test_a_class_that_the_driver_cannot_serve_is_refused(tmp_path: Path, spec: dict[str, Any], said: str):
    with pytest.raises(CommandError, match=said):
        conform_class.find(written(tmp_path, **spec), QEMU)


@pytest.mark.parametrize(("text", "said"), [("kind: Pod\n", "holds 0 objects"), ("a: [", "class.yaml")])
def test_a_file_that_holds_no_class(tmp_path: Path, text: str, said: str):
    file = tmp_path / "class.yaml"
    file.write_text(text)
    with pytest.raises(CommandError, match=said):
        conform_class.find(str(file), QEMU)
