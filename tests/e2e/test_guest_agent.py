"""The guest's own agent, through kubectl: what it tells, freezing, and the reboot by it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Instance, eventually, tiny_vm
from tests.guests import linux_with_agent_archive

SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/talks"


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ alice"


USERS = (
    "mkdir -p /root; echo root:x:0:0::/root:/bin/sh >/etc/passwd; echo root:x:0: >/etc/group; "
    "for p in passwd chpasswd; do printf '#!/bin/sh\\ncat >/run/given\\n' >/bin/$p; chmod +x /bin/$p; done\n"
)
"""Gives the guest a user, and a program in the place of the one that sets passwords, which busybox lacks."""


def secret(name: str) -> dict[str, Any]:
    return {"secret": {"secretName": name}}


def credentials_set(instance: Instance) -> str:
    """Status and message of the condition that tells of keys and passwords."""
    conditions: list[dict[str, Any]] = status(instance).get("conditions") or []
    found = [each for each in conditions if each["type"] == "AccessCredentialsSynchronized"]
    return f"{found[0]['status']} {found[0].get('message', '')}" if found else ""


@pytest.fixture
def talks(shared: Instance) -> Iterator[str]:
    """A VM whose guest runs an agent."""
    shared.cli("image", "import", str(linux_with_agent_archive()), "--name", "agent")
    vm = tiny_vm("talks")
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["memory"]["guest"] = "256Mi"
    container = {"image": "agent", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}
    domain["firmware"] = {"kernelBoot": {"container": container, "kernelArgs": "console=ttyS0 quiet panic=-1"}}
    domain["devices"]["autoattachGraphicsDevice"] = False
    vm["spec"]["template"]["spec"]["accessCredentials"] = [
        {"sshPublicKey": {"source": secret("keys"), "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}},
        {"userPassword": {"source": secret("passwords"), "propagationMethod": {"qemuGuestAgent": {}}}},
    ]
    for name, data in (("keys", {"alice": KEY}), ("passwords", {"root": "a password"})):
        shared.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
    shared.apply(vm)
    shared.kubectl("wait", "vmi/talks", "--for=condition=AgentConnected", "--timeout=120s", seconds=150)
    yield "talks"
    shared.kubectl("delete", "vm", "talks")


def status(instance: Instance) -> dict[str, Any]:
    return (instance.get("vmi", "talks") or {}).get("status", {})


def told_again(instance: Instance) -> str:
    return instance.kubectl("get", "--raw", f"{SUBRESOURCES}/guestosinfo", check=False)


def answer_and_story(instance: Instance) -> str:
    return told_again(instance) + instance.story("talks")


def port_of_the_agent(command: str) -> str:
    """A command of the guest with the agent's port as $port."""
    return f"for p in /sys/class/virtio-ports/*; do port=/dev/${{p##*/}}; {command}; break; done\n"


def babbles(instance: Instance, name: str) -> None:
    """In the place of its agent the guest sends 100 MB of nonsense: told as an error, and harmless."""
    endless = "killall qemu-ga; yes '{\"return\": [[[[' | head -c 100000000 >$port & touch /run/babbles"
    instance.cli("console", name, "--seconds", "2", stdin=port_of_the_agent(endless), check=False)
    eventually(lambda: "Anyvisor test guest 1" not in told_again(instance), 60, lambda: instance.story(name))
    assert instance.phase(name) == "Running"
    agent = next(pid for own, pid in instance.processes().items() if own.startswith("agent-"))
    resident = int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{agent}/status").read_text())[0])
    assert resident < 200 << 10, "the node's agent keeps what the guest says"
    instance.cli("console", name, "--seconds", "1", stdin="killall yes head\n", check=False)
    eventually(lambda: "ANYVISOR" in instance.console(name), 60, lambda: instance.story(name))


def test_a_guest_with_an_agent(shared: Instance, talks: str) -> None:
    told = json.loads(shared.kubectl("get", "--raw", f"{SUBRESOURCES}/guestosinfo"))
    assert told["os"]["prettyName"] == "Anyvisor test guest 1"
    assert json.loads(shared.kubectl("get", "--raw", f"{SUBRESOURCES}/userlist"))["items"] == []
    assert "items" in json.loads(shared.kubectl("get", "--raw", f"{SUBRESOURCES}/filesystemlist"))
    eventually(lambda: status(shared).get("guestOSInfo", {}).get("id") == "anyvisor-test", 30)
    eventually(lambda: status(shared)["interfaces"][0].get("interfaceName") == "eth0", 30)
    assert status(shared)["interfaces"][0]["infoSource"] == "domain, guest-agent"
    for verb in ("freeze", "unfreeze"):
        body = json.dumps({"unfreezeTimeout": "1m0s"}) if verb == "freeze" else "{}"
        shared.kubectl("replace", "--raw", f"{SUBRESOURCES}/{verb}", "-f", "-", stdin=body)

    # The guest has no users at first; once it has, keys and passwords of the Secrets are set.
    eventually(lambda: credentials_set(shared).startswith("False"), 30, lambda: shared.story(talks))
    shared.cli("console", talks, "--seconds", "2", stdin=USERS, check=False)
    eventually(lambda: credentials_set(shared).startswith("True"), 90, lambda: shared.story(talks))
    shown = shared.cli("console", talks, "--seconds", "3", stdin="cat /root/.ssh/* /run/given\n", check=False)
    assert KEY in shown
    assert "root:a password" in shown

    # Whoever follows the node's agent and the drivers finds the guest's agent again.
    shared.kill(*(name for name in shared.processes() if name.startswith(("agent-", "driver-"))))
    eventually(lambda: "Anyvisor test guest 1" in told_again(shared), 60, lambda: answer_and_story(shared))

    shared.cli("soft-reboot", talks)
    eventually(lambda: shared.console(talks).count("ANYVISOR ready") >= 2, 60, lambda: shared.story(talks))
    assert shared.phase(talks) == "Running"
    eventually(lambda: "Anyvisor test guest 1" in told_again(shared), 120, lambda: shared.story(talks))
    babbles(shared, talks)
