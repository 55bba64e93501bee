"""Probes of a real guest: by its agent, and over the pod network (needs root)."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Instance, end, eventually, make_instance, tiny_vm
from tests.guests import linux_with_agent_archive

FAST = {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 3}


@pytest.fixture(scope="module")
def probed() -> Iterator[Instance]:
    if os.geteuid() != 0:
        pytest.skip("only root can make the pods' networks")
    instance = make_instance()
    try:
        instance.cli("image", "import", str(linux_with_agent_archive()), "--name", "agent-linux")
        instance.up()
        yield instance
    finally:
        end(instance)


def condition(instance: Instance, kind: str, name: str, wanted: str) -> str:
    found = instance.get(kind, name) or {}
    states = [c["status"] for c in found.get("status", {}).get("conditions", []) if c["type"] == wanted]
    return states[0] if states else ""


def type_into(instance: Instance, line: str) -> None:
    instance.cli("console", "probed", "--seconds", "3", stdin=f"touch /run/quiet\n{line}\n", check=False)


def test_the_guests_answers_decide_what_is_ready(probed: Instance) -> None:
    vm = tiny_vm("probed", strategy="Once")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["memory"]["guest"] = "256Mi"
    spec["domain"]["firmware"]["kernelBoot"] = {
        "kernelArgs": "console=ttyS0 quiet panic=-1",
        "container": {"image": "agent-linux", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"},
    }
    # On a busy machine the guest may take minutes to boot: until then its port refuses, and it must not be ended.
    spec["livenessProbe"] = {"tcpSocket": {"port": 80}, **FAST, "failureThreshold": 200}
    spec["readinessProbe"] = {"exec": {"command": ["/bin/sh", "-c", "test -e /run/up"]}, **FAST}
    probed.apply(vm)
    probed.wait_phase("probed")
    eventually(lambda: "AgentConnected" in str(probed.get("vmi", "probed")), 240, lambda: probed.story("probed"))
    assert condition(probed, "vmi", "probed", "Ready") == "False"
    eventually(lambda: "Readiness probe failed" in probed.kubectl("get", "events"), 60)
    eventually(
        lambda: (type_into(probed, "touch /run/up"), condition(probed, "vmi", "probed", "Ready"))[1] == "True",
        90,
        lambda: probed.story("probed"),
    )
    eventually(lambda: condition(probed, "vm", "probed", "Ready") == "True", 30)
    type_into(probed, "rm /run/up")
    eventually(lambda: condition(probed, "vmi", "probed", "Ready") == "False", 60, lambda: probed.story("probed"))
    assert probed.phase("probed") == "Running"
    probed.kubectl("delete", "vm", "probed")


def test_a_guest_that_does_not_answer_is_ended(probed: Instance) -> None:
    vm = tiny_vm("deaf", strategy="Once")
    # Nothing listens on any port of the tiny guest.
    vm["spec"]["template"]["spec"]["livenessProbe"] = {"tcpSocket": {"port": 80}, **FAST}
    probed.apply(vm)
    eventually(lambda: probed.phase("deaf") in {"Succeeded", "Failed"}, 180, lambda: probed.story("deaf"))
    events = probed.kubectl("get", "events")
    assert "Liveness probe failed" in events
    assert "failed liveness probe" in events
