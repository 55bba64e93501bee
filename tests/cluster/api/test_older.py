"""The product on the API servers of the minor versions before, where `python -m tests.cluster.kit.build
apiserver-VERSION` built them. Without controllers, so that what is seen is the API server's own answer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.api.objects import create, fresh, launchers, make, phase, vm
from tests.cluster.conftest import programs
from tests.cluster.installation import Installation
from tests.cluster.kit.build import OLDER
from tests.cluster.kit.control_plane import ControlPlane, control_plane

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=OLDER)
def older(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The product on a control plane of one older version."""
    own = programs(f"apiserver-{request.param}")
    with control_plane(programs("apiserver"), apiserver=own) as plane:
        version = json.loads(plane.kubectl("get", "--raw", "/version"))["gitVersion"]
        assert version == f"v{request.param}"
        Installation(plane).install()
        yield plane


def test_definitions_and_examples_are_taken_strictly(older: ControlPlane) -> None:
    said = older.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"), check=False)
    assert "Warning" not in said
    for example in sorted(ROOT.glob("examples/*.yaml")):
        for document in yaml.safe_load_all(example.read_text()):
            if document["kind"] != "NetworkAttachmentDefinition":
                told = create(older, document, "--dry-run=server", "--validate=strict")
                assert "created" in told, f"{example.name}: {told}"


def test_a_machine_gets_its_launcher_and_its_subresources(older: ControlPlane) -> None:
    name = fresh("old")
    make(older, vm(name, hypervisor="fake", run="Always"))
    older.wait("controller", lambda: phase(older, name) == "Scheduling")
    older.wait("controller", lambda: len(launchers(older, name)) == 1)
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{name}/stop"
    older.kubectl("replace", "--raw", path, "-f", "-", stdin="{}")
    older.wait("controller", lambda: older.get("vm", name)["spec"]["runStrategy"] == "Halted")
