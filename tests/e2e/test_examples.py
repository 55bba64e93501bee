"""Every manifest in `examples/` runs, with real guests."""

import re
from pathlib import Path
from typing import Final

import pytest

from anyvisor.drivers.qemu import facts, firmware
from tests.e2e.conftest import Instance, eventually
from tests.guests import disk_archive, installer_archive, linux_archive, uefi_archive

HERE: Final = Path(__file__).parents[2] / "examples"
ELSEWHERE: Final = {"linux-server", "service", "two-nics"}
"""Run by tests of their own: test_debian.py, test_services.py, test_lan.py."""
OWN: Final = {"hugepages", "uefi-secure-boot-tpm", "windows-like"}
"""Run by tests below."""
EXAMPLES: Final = sorted(path for path in HERE.glob("*.yaml") if path.stem not in ELSEWHERE | OWN)
SEEN: Final = {
    "cd-installer": ("cat /proc/cmdline; ls /sys/block", r"BOOT_IMAGE=/vmlinuz[\s\S]*\bvda\b"),
    "kernel-boot": ("cat /proc/cmdline; ls /sys/class/net", r"who=kernel-boot[\s\S]*\blo\s"),
    "several-disks": (
        "cat /sys/block/vd[ab]/serial; ls /sys/block/vda/mq; cat /sys/block/sda/queue/logical_block_size",
        r"FAST\s*THREAD\s*0 +1\s*4096",
    ),
}
"""What to ask a guest, and what it then says."""
EFIVARS: Final = "/sys/firmware/efi/efivars"
VARIABLE: Final = f"{EFIVARS}/Anyvisor-5d7d1a52-2b8f-4b52-8a5e-3b8f4b3f1c11"
MOUNT: Final = f"mount -t efivarfs none {EFIVARS}"


@pytest.fixture(scope="module", autouse=True)
def images(shared: Instance) -> None:
    for name, archive in (("linux", linux_archive), ("installer", installer_archive), ("disk", disk_archive)):
        shared.cli("image", "import", str(archive()), "--name", f"demo/{name}")


def boots(instance: Instance, name: str) -> str:
    instance.wait_phase(name)
    seen: list[str] = []

    def ready() -> bool:
        seen.append(instance.console(name, 10, until="ANYVISOR t="))
        return "ANYVISOR t=" in seen[-1]

    eventually(ready, 300, lambda: instance.story(name))
    return seen[-1]


def asked(instance: Instance, name: str, command: str, answer: str) -> None:
    """Ask the guest's shell until it answers so."""
    heard: list[str] = []

    def answered() -> bool:
        heard.append(instance.typed(name, command).replace("\r", ""))
        return re.search(answer, heard[-1]) is not None

    eventually(answered, 60, lambda: heard[-1][-2000:])


@pytest.mark.parametrize("manifest", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_it_runs(shared: Instance, manifest: Path) -> None:
    shared.kubectl("apply", "-f", str(manifest))
    assert "ANYVISOR t=" in boots(shared, manifest.stem)
    if manifest.stem in SEEN:
        asked(shared, manifest.stem, *SEEN[manifest.stem])
    shared.kubectl("delete", "-f", str(manifest))
    assert shared.get("vmi", manifest.stem) is None


def test_a_claim_keeps_its_data_over_vms(shared: Instance) -> None:
    manifest = str(HERE / "persistent.yaml")
    shared.kubectl("apply", "-f", manifest)
    boots(shared, "persistent")
    write = "echo remember-me | dd of=/dev/vda conv=fsync 2>/dev/null; echo written\n"
    assert "written" in shared.typed("persistent", write)
    shared.kubectl("delete", "vm", "persistent")
    shared.kubectl("apply", "-f", manifest)
    boots(shared, "persistent")
    read = "dd if=/dev/vda count=1 2>/dev/null | head -c 11; echo\n"
    assert "remember-me" in shared.typed("persistent", read)
    shared.kubectl("delete", "-f", manifest)
    eventually(lambda: shared.items("pv") == [], 20)


needs_uefi = pytest.mark.skipif(
    firmware.find()[1] is None or not Path(facts.TPM).exists(), reason="needs: apt-get install ovmf swtpm"
)


@needs_uefi
def test_uefi_keeps_its_variables_and_its_tpm(shared: Instance) -> None:
    name = "uefi-secure-boot-tpm"
    shared.cli("image", "import", str(uefi_archive()), "--name", "demo/uefi")
    shared.kubectl("apply", "-f", str(HERE / f"{name}.yaml"))
    boots(shared, name)
    asked(shared, name, "dmesg | grep secureboot; cat /sys/class/tpm/tpm0/tpm_version_major", r"boot enabled\s*2\b")
    asked(shared, name, f"{MOUNT}; printf '\\7\\0\\0\\0remember' >{VARIABLE}; cat {VARIABLE}", r"\0remember")
    first = shared.get("vmi", name)
    assert first is not None
    [kept] = [each for each in first["status"]["volumeStatus"] if each["name"].startswith("persistent-state")]
    claim = kept["persistentVolumeClaimInfo"]["claimName"]
    shared.kill("agent-node-1")
    shared.cli("restart", name)
    eventually(lambda: (shared.get("vmi", name) or first)["metadata"]["uid"] != first["metadata"]["uid"], 60)
    boots(shared, name)
    asked(shared, name, f"{MOUNT}; cat {VARIABLE}", r"remember")
    shared.kubectl("delete", "vm", name)
    eventually(lambda: shared.get("pvc", claim) is None, 30)


@needs_uefi
def test_a_pc_for_windows_comes_up_to_its_firmware(shared: Instance) -> None:
    shared.kubectl("apply", "-f", str(HERE / "windows-like.yaml"))
    shared.wait_phase("windows-like")
    eventually(lambda: "BdsDxe" in shared.console("windows-like", 3), 120, lambda: shared.story("windows-like"))
    told = shared.kubectl("get", "events", "--field-selector", "reason=Adjusted", "-o", "jsonpath={.items[*].message}")
    assert "enlightenments of Hyper-V" in told
    shared.kubectl("delete", "-f", str(HERE / "windows-like.yaml"))


def test_huge_pages_or_the_reason_why_not(shared: Instance) -> None:
    manifest = str(HERE / "hugepages.yaml")
    if facts.huge_pages():
        shared.kubectl("apply", "-f", manifest)
        boots(shared, "hugepages")
        shared.kubectl("delete", "-f", manifest)
        return
    refused = shared.kubectl("apply", "-f", manifest, check=False)
    assert "sysctl vm.nr_hugepages" in refused
    assert shared.get("vm", "hugepages") is None
    pytest.skip("this host has no huge pages; the VM was refused with what to do")
