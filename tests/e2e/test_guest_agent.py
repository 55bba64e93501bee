"""The guest's own agent, through kubectl: what it tells, freezing, and the reboot by it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Instance, eventually, tiny_vm
from tests.guests import linux_with_agent_archive

SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/talks"


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
    shared.apply(vm)
    shared.kubectl("wait", "vmi/talks", "--for=condition=AgentConnected", "--timeout=120s", seconds=150)
    yield "talks"
    shared.kubectl("delete", "vm", "talks")


def status(instance: Instance) -> dict[str, Any]:
    return (instance.get("vmi", "talks") or {}).get("status", {})


def told_again(instance: Instance) -> str:
    return instance.kubectl("get", "--raw", f"{SUBRESOURCES}/guestosinfo", check=False)


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

    # Whoever follows the node's agent and the drivers finds the guest's agent again.
    shared.kill(*(name for name in shared.processes() if name.startswith(("agent-", "driver-"))))
    eventually(lambda: "Anyvisor test guest 1" in told_again(shared), 60, lambda: shared.story(talks))

    shared.cli("soft-reboot", talks)
    eventually(lambda: shared.console(talks).count("ANYVISOR ready") >= 2, 60, lambda: shared.story(talks))
    assert shared.phase(talks) == "Running"
