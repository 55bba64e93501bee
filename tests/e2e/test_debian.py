"""A full Debian server: built, set up by cloud-init, reached by ssh, rebooted by its agent, shut down in peace.

One boot and one reboot of a real distribution; under emulation that takes minutes, so one VM serves all assertions, and
the test runs where it is asked for: `make debian`.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import BIN, Instance, eventually
from tests.guests import debian_disk

EXAMPLE = Path(__file__).parents[2] / "examples" / "linux-server.yaml"
NAME = "linux-server"
pytestmark = pytest.mark.skipif(
    not os.environ.get("ANYVISOR_DEBIAN"), reason="takes many minutes under emulation: run it by `make debian`"
)
BOOT_SECONDS = 900
"""Far more than an idle machine needs (90): the guest is emulated, and others may load the machine."""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ssh") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def server(shared: Instance, key: Path) -> Iterator[Instance]:
    shared.cli("image", "import", str(debian_disk()), "--name", "debian", seconds=300)
    placeholder = next(line for line in EXAMPLE.read_text().splitlines() if "ssh-ed25519" in line).split("- ", 1)[1]
    manifest = EXAMPLE.read_text().replace(placeholder, key.with_suffix(".pub").read_text().strip())
    shared.kubectl("apply", "-f", "-", stdin=manifest)
    yield shared
    shared.kubectl("delete", "vm", NAME, "--ignore-not-found", seconds=300)


def conditions(instance: Instance) -> dict[str, str]:
    vmi = instance.get("vmi", NAME) or {}
    return {one["type"]: one["status"] for one in vmi.get("status", {}).get("conditions", [])}


def interface(instance: Instance) -> dict[str, str]:
    (only,) = (instance.get("vmi", NAME) or {})["status"]["interfaces"]
    return only


def story(instance: Instance) -> str:
    return f"{instance.story(NAME)}\n--- console\n{instance.console(NAME)[-6000:]}"


def ssh(instance: Instance, key: Path, command: str) -> str:
    """What a command prints in the guest; empty while the guest cannot be reached."""
    options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=60")
    words = ["ssh", "-i", str(key), "-c", command, f"debian@{NAME}", *options, "-o", "BatchMode=yes"]
    program = [str(BIN / "anyvisor"), "--data-dir", str(instance.data_dir), *words]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@pytest.mark.timeout(2 * BOOT_SECONDS)
def test_a_server_from_its_first_boot_to_its_shutdown(server: Instance, key: Path) -> None:
    server.wait_phase(NAME)
    eventually(lambda: conditions(server).get("AgentConnected") == "True", BOOT_SECONDS, lambda: story(server))
    eventually(lambda: "guestOSInfo" in (server.get("vmi", NAME) or {})["status"], 60, lambda: story(server))
    status = (server.get("vmi", NAME) or {})["status"]
    assert status["guestOSInfo"]["id"] == "debian"
    eventually(lambda: "guest-agent" in interface(server)["infoSource"], 60, lambda: story(server))
    assert interface(server)["ipAddress"]

    eventually(lambda: ssh(server, key, "true; echo here") == "here", BOOT_SECONDS, lambda: story(server))
    eventually(lambda: ssh(server, key, "cloud-init status --wait >/dev/null; cloud-id") == "nocloud", BOOT_SECONDS)
    assert ssh(server, key, "hostname; sudo id -u") == f"{NAME}\n0"
    assert "DHCP4 via 10.0.2.1" in ssh(server, key, "networkctl status --all --no-pager")

    before = ssh(server, key, "cat /proc/sys/kernel/random/boot_id")
    uid = (server.get("vmi", NAME) or {})["metadata"]["uid"]
    server.cli("soft-reboot", NAME)
    eventually(
        lambda: ssh(server, key, "cat /proc/sys/kernel/random/boot_id") not in ("", before),
        BOOT_SECONDS,
        lambda: story(server),
    )
    assert (server.get("vmi", NAME) or {})["metadata"]["uid"] == uid

    server.cli("stop", NAME, seconds=300)
    server.wait_gone("vmi", NAME, 200)
    reasons = {one["reason"]: one["message"] for one in server.items("events") if one["involvedObject"]["name"] == NAME}
    assert "the guest shut down as it was asked to" in str(reasons)
