"""From the images of the commit before to those of this one, while machines run."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from anyvisor import __version__
from tests.cluster.cluster import NAMESPACE, REGISTRY, Cluster
from tests.cluster.node.machines import apply, counted, remove, tell
from tests.e2e.conftest import tiny_vm
from tools.images import __main__ as images

ROOT = Path(__file__).parents[3]
BEFORE = "HEAD~1"
OLDER = "0.0.9"
"""What its version is called here, so that there are two of the driver."""
VERSIONED = ("__init__.py", "drivers/qemu/manifest.yaml")


@pytest.fixture
def before(cluster: Cluster, tmp_path: Path) -> None:
    """The images of the commit before are on the nodes."""
    done = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this checkout has no commit before its newest")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as tar:
        tar.extractall(tmp_path, filter="data")
    source = tmp_path / "src" / "anyvisor"
    for file in VERSIONED:
        (source / file).write_text((source / file).read_text().replace(__version__, OLDER))
    for name in images.offered():
        archive = images.build(name, tmp_path, REGISTRY, tag=OLDER, source=source)
        for node in cluster.nodes:
            node.load(archive)
        archive.unlink()


@pytest.mark.usefixtures("before")
def test_machines_do_not_notice_that_everything_else_is_upgraded(cluster: Cluster) -> None:
    cluster.apply_product(OLDER)
    cluster.eventually("only the older version is there", lambda: drivers(cluster) == {OLDER}, 120)
    cluster.eventually("the older version works", cluster.installed, 240)
    apply(cluster, tiny_vm("old"))
    cluster.wait_phase("old", seconds=180)
    vmi, pod, count = cluster.uid("old"), cluster.launcher("old"), counted(cluster, "old")
    assert pod["spec"]["containers"][0]["image"].endswith(f":{OLDER}")
    assert count > 0

    cluster.apply_product()
    cluster.eventually("this version works", cluster.installed, 240)
    cluster.eventually("the console is back", lambda: counted(cluster, "old") > count, 120, "old")
    after = cluster.launcher("old")
    assert (cluster.uid("old"), after["metadata"]["uid"]) == (vmi, pod["metadata"]["uid"])
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert drivers(cluster) == {OLDER, __version__}
    apply(cluster, tiny_vm("new"))
    cluster.wait_phase("new", seconds=180)
    assert not cluster.launcher("new")["spec"]["containers"][0]["image"].endswith(f":{OLDER}")
    tell(cluster, "old", "stop")
    cluster.eventually("stopped", lambda: not cluster.get("vmi", "old"), 60, "old")
    cluster.eventually("the older driver is gone", lambda: drivers(cluster) == {__version__}, 120)
    for name in ("old", "new"):
        remove(cluster, name)


def drivers(cluster: Cluster) -> set[str]:
    """The versions of the driver that have a DaemonSet."""
    found = cluster.plane.get("daemonsets", namespace=NAMESPACE)["items"]
    labels = [one["spec"]["selector"]["matchLabels"] for one in found]
    return {one["anyvisor.io/driver-version"] for one in labels if "anyvisor.io/driver" in one}
