"""Every manifest in `examples/` runs, with the real Linux guest."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Instance, eventually
from tests.guests import linux_archive

ELSEWHERE = {"linux-server", "service", "two-nics"}
"""Run by tests of their own: test_debian.py, test_services.py, test_lan.py."""
EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").glob("*.yaml") if path.stem not in ELSEWHERE
)


@pytest.fixture(scope="module", autouse=True)
def images(shared: Instance) -> None:
    shared.cli("image", "import", str(linux_archive()), "--name", "demo/linux")


def boots(instance: Instance, name: str) -> str:
    instance.wait_phase(name)
    seen: list[str] = []

    def ready() -> bool:
        seen.append(instance.console(name, 3))
        return "ANYVISOR t=" in seen[-1]

    eventually(ready, 120, lambda: instance.story(name))
    return seen[-1]


@pytest.mark.parametrize("manifest", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_it_runs(shared: Instance, manifest: Path) -> None:
    shared.kubectl("apply", "-f", str(manifest))
    assert "ANYVISOR t=" in boots(shared, manifest.stem)
    shared.kubectl("delete", "-f", str(manifest))
    assert shared.get("vmi", manifest.stem) is None


def test_a_claim_keeps_its_data_over_vms(shared: Instance) -> None:
    manifest = str(Path(__file__).parents[2] / "examples" / "persistent.yaml")
    shared.kubectl("apply", "-f", manifest)
    boots(shared, "persistent")
    write = "echo remember-me | dd of=/dev/vda conv=fsync 2>/dev/null; echo written\n"
    assert "written" in shared.cli("console", "persistent", "--seconds", "3", stdin=write, check=False)
    shared.kubectl("delete", "vm", "persistent")
    shared.kubectl("apply", "-f", manifest)
    boots(shared, "persistent")
    read = "dd if=/dev/vda count=1 2>/dev/null | head -c 11; echo\n"
    assert "remember-me" in shared.cli("console", "persistent", "--seconds", "3", stdin=read, check=False)
    shared.kubectl("delete", "-f", manifest)
    eventually(lambda: shared.items("pv") == [], 20)
