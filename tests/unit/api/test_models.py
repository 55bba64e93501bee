"""Every field of the API survives decoding and encoding, and absent fields stay absent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anyvisor.api.kinds import KINDS, Kind
from anyvisor.api.kubevirt import backup, v1
from anyvisor.api.meta import ListMeta, ObjectMeta, Status

from .table import TABLE, filled, required

BODIES: dict[str, type[Any]] = {**vars(backup), **vars(v1)}
BY_NAME: dict[str, Kind] = {f"{kind.group}/{kind.name}": kind for kind in KINDS}


def _model(table_name: str) -> type[Any]:
    group, _, kind = table_name.split("/")
    return BY_NAME[f"{group}/{kind}"].model


def _round_trip(model: type[Any], obj: Any) -> Any:
    return json.loads(msgspec.json.encode(msgspec.json.decode(json.dumps(obj), type=model)))


@pytest.mark.parametrize("name", TABLE["kinds"])
def test_every_field_of_a_kind_survives(name: str):
    obj = filled(TABLE["kinds"][name]["fields"])
    assert _round_trip(_model(name), obj) == obj


@pytest.mark.parametrize("name", TABLE["kinds"])
def test_an_object_with_the_required_fields_alone_gains_none(name: str):
    obj = filled(required(TABLE["kinds"][name]["fields"]))
    assert _round_trip(_model(name), obj) == obj


@pytest.mark.parametrize("name", [name for name in TABLE["subresourceBodies"] if name != "v1.ObjectGraphNode"])
def test_every_field_of_a_subresource_body_survives(name: str):
    obj = filled(TABLE["subresourceBodies"][name])
    assert _round_trip(BODIES[name.split(".")[-1]], obj) == obj


def test_an_object_graph_holds_graphs():
    leaf = {"objectReference": {"kind": "Pod", "name": "a"}, "labels": {"k": "v"}, "optional": False}
    obj = {"objectReference": {"kind": "VirtualMachine", "name": "a", "apiGroup": "kubevirt.io"}, "children": [leaf]}
    assert _round_trip(v1.ObjectGraphNode, obj) == obj


@pytest.mark.parametrize(("shape", "model"), [("ObjectMeta", ObjectMeta), ("Status", Status), ("ListMeta", ListMeta)])
def test_every_field_of_metadata_survives(shape: str, model: type[Any]):
    obj = filled(TABLE["shapes"][shape])
    assert _round_trip(model, obj) == obj


@pytest.mark.parametrize(
    "domain",
    [
        {"devices": {}},
        {"devices": {"disks": []}},
        {"devices": {"disks": [], "autoattachGraphicsDevice": False, "rng": {}}},
        {"devices": {}, "memory": {"guest": 0}},
        {"devices": {}, "memory": {"guest": "0"}},
        {"devices": {}, "cpu": {"cores": 0, "model": "", "features": [{"name": "x", "policy": ""}]}},
        {"devices": {}, "resources": {"requests": {}}},
    ],
)
def test_absent_false_zero_and_empty_are_told_apart(domain: dict[str, Any]):
    obj = {"spec": {"domain": domain, "hypervisor": ""}}
    assert _round_trip(v1.VirtualMachineInstance, obj) == obj


def test_null_reads_as_absent():
    obj: dict[str, Any] = {"metadata": {"creationTimestamp": None}, "spec": {"domain": {"devices": {}}}, "status": None}
    assert _round_trip(v1.VirtualMachineInstance, obj) == {"metadata": {}, "spec": {"domain": {"devices": {}}}}


def test_a_field_of_the_wrong_type_is_named_by_its_path():
    obj = {"spec": {"domain": {"devices": {"disks": [{"name": 3}]}}}}
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.domain\.devices\.disks\[0\]\.name"):
        msgspec.convert(obj, v1.VirtualMachineInstance)


def test_the_project_adds_the_hypervisor_to_the_machine():
    vmi = msgspec.convert(
        {
            "spec": {"domain": {"devices": {}}, "hypervisor": "auto"},
            "status": {"hypervisor": {"class": "qemu", "hriMinor": 1}},
        },
        v1.VirtualMachineInstance,
    )
    assert vmi.spec.hypervisor == "auto"
    assert vmi.status is not None
    assert vmi.status.hypervisor == v1.HypervisorStatus(class_="qemu", hri_minor=1)


def test_the_models_are_rendered_from_the_table():
    tool = Path(__file__).parents[3] / "tools/genmodels.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python tools/genmodels.py: {done.stdout}{done.stderr}"
