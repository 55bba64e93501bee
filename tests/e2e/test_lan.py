"""Machines on a bridge of the host beside the pod network; needs root."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Instance, end, eventually, example, make_instance
from tests.guests import linux_archive

BRIDGE = "avtestlan"


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, timeout=20)


def manifests() -> tuple[str, str]:
    """The definition and the machine of the example, on the test's bridge."""
    definition, machine = example("two-nics").replace("br-lan", BRIDGE).split("\n---\n")
    return definition, machine


@pytest.fixture(scope="module")
def lan() -> Iterator[Instance]:
    if os.geteuid() != 0:
        pytest.skip("only root can make the pods' networks")
    instance = make_instance()
    try:
        instance.cli("image", "import", str(linux_archive()), "--name", "demo/linux")
        instance.up()
        yield instance
    finally:
        end(instance)
        ip("link", "delete", BRIDGE, check=False)


def synchronized(instance: Instance, name: str = "two-nics") -> str:
    """What the VMI says of why it does not run."""
    vmi = instance.get("vmi", name) or {}
    found = [c for c in vmi.get("status", {}).get("conditions", []) if c["type"] == "Synchronized"]
    return str(found[0].get("message", "")) if found and found[0]["status"] == "False" else ""


def says(instance: Instance, text: str) -> None:
    eventually(lambda: text in synchronized(instance), 60, lambda: instance.story("two-nics"))


def interfaces(instance: Instance, name: str) -> dict[str, dict[str, Any]]:
    vmi = instance.get("vmi", name) or {}
    return {each["name"]: each for each in vmi.get("status", {}).get("interfaces", [])}


def plug(instance: Instance, vm: str, name: str, mac: str) -> None:
    """One more card, beside those that the VM has."""
    template = "/spec/template/spec"
    card: dict[str, Any] = {"name": name, "bridge": {}, "macAddress": mac}
    network = {"name": name, "multus": {"networkName": "lan"}}
    change = [
        {"op": "add", "path": f"{template}/domain/devices/interfaces/-", "value": card},
        {"op": "add", "path": f"{template}/networks/-", "value": network},
    ]
    instance.kubectl("patch", "vm", vm, "--type=json", "-p", json.dumps(change))
    eventually(
        lambda: interfaces(instance, vm).get(name, {}).get("infoSource") == "domain, multus-status",
        60,
        lambda: instance.story(vm),
    )


def in_guest(instance: Instance, name: str, script: str, wanted: str, seconds: float = 90) -> None:
    """Type into the guest's shell until its console shows what is wanted."""
    shown: list[str] = []

    def seen() -> bool:
        shown.append(instance.typed(name, f"touch /run/quiet\n{script}"))
        return wanted in shown[-1]

    eventually(seen, seconds, lambda: "\n".join(shown[-2:]) + instance.story(name))


def test_what_is_missing_is_a_sentence_until_it_is_there(lan: Instance) -> None:
    definition, machine = manifests()
    lan.kubectl("apply", "-f", "-", stdin=machine)
    says(lan, "NetworkAttachmentDefinition default/lan does not exist")
    lan.kubectl("apply", "-f", "-", stdin=definition)
    says(lan, f"bridge {BRIDGE} does not exist on this host")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "set", BRIDGE, "up")
    lan.wait_phase("two-nics", seconds=120)


def test_two_machines_meet_on_the_bridge(lan: Instance) -> None:
    definition, machine = manifests()
    if BRIDGE not in os.listdir("/sys/class/net"):
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
    lan.kubectl("apply", "-f", "-", stdin=definition)
    for name in ("two-nics", "neighbour"):
        lan.kubectl("apply", "-f", "-", stdin=machine.replace("two-nics", name))
    for name in ("two-nics", "neighbour"):
        lan.wait_phase(name)
        eventually(lambda name=name: "multus-status" in interfaces(lan, name)["lan"]["infoSource"], 30)
    macs = {name: interfaces(lan, name)["lan"]["mac"] for name in ("two-nics", "neighbour")}
    assert len(set(macs.values())) == 2
    in_guest(lan, "neighbour", "ip addr replace 192.168.88.12/24 dev eth1; ip addr show eth1", macs["neighbour"])
    address = "ip addr replace 192.168.88.11/24 dev eth1"
    in_guest(lan, "two-nics", f"{address}; ping -c 1 -W 5 192.168.88.12", "1 packets received")
    entry = interfaces(lan, "two-nics")["lan"]
    assert entry["infoSource"] == "domain, multus-status"
    assert entry["podInterfaceName"].startswith("pod")
    [pod] = [each for each in lan.items("pods") if each["metadata"]["labels"].get("app") == "two-nics"]
    report = json.loads(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"])
    assert [each["name"] for each in report] == ["anyvisor", "default/lan"]
    assert report[1]["interface"] == entry["podInterfaceName"]


def test_a_link_goes_down_and_up_while_the_guest_runs(lan: Instance) -> None:
    lan.wait_phase("two-nics")
    for state, carrier in (("down", 0), ("up", 1)):
        path = "/spec/template/spec/domain/devices/interfaces/1/state"
        change = json.dumps([{"op": "add", "path": path, "value": state}])
        lan.kubectl("patch", "vm", "two-nics", "--type=json", "-p", change)
        eventually(
            lambda state=state: interfaces(lan, "two-nics")["lan"]["linkState"] == state,
            30,
            lambda: lan.story("two-nics"),
        )
        in_guest(lan, "two-nics", "echo carrier=$(cat /sys/class/net/eth1/carrier)", f"carrier={carrier}")


def test_a_card_comes_and_goes_while_the_guest_runs(lan: Instance) -> None:
    lan.wait_phase("two-nics")
    uid = (lan.get("vmi", "two-nics") or {})["metadata"]["uid"]
    devices = "/spec/template/spec/domain/devices/interfaces"
    plug(lan, "two-nics", "more", "02:00:00:00:be:ef")
    in_guest(lan, "two-nics", "cat /sys/class/net/*/address", "02:00:00:00:be:ef")

    # Who follows the node's agent finds the card in the guest, and can take it away.
    lan.kill(*(name for name in lan.processes() if name.startswith("agent-")))
    gone = [{"op": "add", "path": f"{devices}/2/state", "value": "absent"}]
    lan.kubectl("patch", "vm", "two-nics", "--type=json", "-p", json.dumps(gone))
    eventually(lambda: "more" not in interfaces(lan, "two-nics"), 120, lambda: lan.story("two-nics"))
    in_guest(lan, "two-nics", "echo cards=$(cat /sys/class/net/eth*/address | grep -c be:ef)", "cards=0")
    assert (lan.get("vmi", "two-nics") or {})["metadata"]["uid"] == uid
    [pod] = [each for each in lan.items("pods") if each["metadata"]["labels"].get("app") == "two-nics"]
    report = json.loads(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"])
    assert [each["name"] for each in report] == ["anyvisor", "default/lan"]


CARDS = "for n in /sys/class/net/eth*; do echo card=$(cat $n/address) at=$(readlink -f $n/device); done | sort"
EXTRA = "02:00:00:00:ca:fe"


def cards(instance: Instance, name: str) -> list[str]:
    """Each card of the guest with its place."""
    found: list[str] = []

    def told() -> bool:
        shown = instance.typed(name, f"touch /run/quiet\n{CARDS}\necho CARDS''-END").replace("\r", "")
        found[:] = re.findall(r"^card=(\S+ at=\S+)$", shown.partition("CARDS-END")[0], re.MULTILINE)
        return "CARDS-END" in shown and len(found) > 0

    eventually(told, 90, lambda: instance.story(name))
    return found


def test_all_cards_are_the_same_after_a_restart(lan: Instance) -> None:
    """Also one that came while the guest ran, in the place of one that went."""
    lan.wait_phase("two-nics")
    plug(lan, "two-nics", "extra", EXTRA)
    in_guest(lan, "two-nics", "cat /sys/class/net/*/address", EXTRA)
    there = cards(lan, "two-nics")
    before = interfaces(lan, "two-nics")["lan"]["mac"]
    old = lan.get("vmi", "two-nics")
    assert old is not None
    lan.cli("restart", "two-nics")
    eventually(lambda: (lan.get("vmi", "two-nics") or old)["metadata"]["uid"] != old["metadata"]["uid"], 90)
    lan.wait_phase("two-nics")
    assert interfaces(lan, "two-nics")["lan"]["mac"] == before
    in_guest(lan, "two-nics", "cat /sys/class/net/eth1/address", before)
    assert len(there) == 3
    assert cards(lan, "two-nics") == there


def test_another_kind_of_network_is_refused_in_words(lan: Instance) -> None:
    definition, machine = manifests()
    other = definition.replace('"type": "bridge"', '"type": "macvlan"').replace("name: lan", "name: other")
    lan.kubectl("apply", "-f", "-", stdin=other)
    changed = machine.replace("networkName: lan", "networkName: other").replace("name: two-nics", "name: third")
    lan.kubectl("apply", "-f", "-", stdin=changed)
    eventually(lambda: "this machine serves type bridge" in synchronized(lan, "third"), 60, lambda: lan.story("third"))
    lan.kubectl("delete", "vm", "third")
