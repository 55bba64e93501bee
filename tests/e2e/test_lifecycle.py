"""One VM through kubectl and the command line."""

import json
import re

import yaml

from tests.e2e.conftest import Instance, disk_vm, eventually, tiny_vm


def test_a_vm_boots_counts_answers_and_stops(shared: Instance) -> None:
    shared.apply(tiny_vm("web"))
    vmi = shared.wait_phase("web")
    assert shared.counter("web") > 0
    assert vmi["status"]["nodeName"] == "node-1"
    assert vmi["status"]["hypervisor"]["class"]
    shared.kubectl("wait", "vm/web", "--for=condition=Ready", "--timeout=30s")
    assert "runs on node node-1" in shared.cli("why", "vm/web")

    shared.cli("stop", "web", "--wait")
    vm = shared.get("vm", "web")
    assert vm is not None
    assert vm["spec"]["runStrategy"] == "Halted"
    eventually(lambda: (shared.get("vm", "web") or {})["status"]["printableStatus"] == "Stopped", 20)
    assert "anyvisor start web" in shared.cli("why", "web", check=False)

    shared.cli("start", "web", "--wait")
    again = shared.wait_phase("web")
    assert again["metadata"]["uid"] != vmi["metadata"]["uid"]
    shared.kubectl("delete", "vm", "web")
    assert shared.get("vmi", "web") is None


def test_a_restart_makes_a_new_run_with_the_same_identity(shared: Instance) -> None:
    shared.apply(tiny_vm("again"))
    before = shared.wait_phase("again")
    shared.cli("restart", "again", "--wait")
    after = shared.wait_phase("again")
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert before["spec"]["domain"]["firmware"]["uuid"] == after["spec"]["domain"]["firmware"]["uuid"]
    shared.kubectl("delete", "vm", "again")


def test_a_disk_boots_by_firmware_and_keeps_the_image_clean(shared: Instance) -> None:
    for name in ("one", "two"):
        shared.apply(disk_vm(name))
    for name in ("one", "two"):
        shared.wait_phase(name)
        assert shared.counter(name) > 0
    shared.kubectl("delete", "vm", "one", "two")


def test_a_guest_that_powers_off_succeeds(shared: Instance) -> None:
    shared.apply(tiny_vm("once", "Once"))
    shared.wait_phase("once")
    shared.counter("once")
    shared.cli("console", "once", "--seconds", "2", stdin="off\n", check=False)
    shared.wait_phase("once", "Succeeded", 30)
    vm = shared.get("vm", "once")
    assert vm is not None
    assert vm["status"]["printableStatus"] == "Stopped"
    shared.kubectl("delete", "vm", "once")


def test_an_instance_type_gives_the_size_and_must_be_the_only_one(shared: Instance) -> None:
    shared.apply(
        {
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClusterInstancetype",
            "metadata": {"name": "tiny"},
            "spec": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}},
        }
    )
    vm = tiny_vm("sized")
    vm["spec"]["instancetype"] = {"name": "tiny"}
    refused = shared.kubectl("create", "-f", "-", stdin=json.dumps(vm), check=False)
    assert "spec.template.spec.domain.memory.guest conflicts with selected instance type" in refused
    del vm["spec"]["template"]["spec"]["domain"]["memory"]
    shared.apply(vm)
    vmi = shared.wait_phase("sized")
    assert vmi["spec"]["domain"]["memory"]["guest"] == "64Mi"
    assert shared.counter("sized") > 0
    status = (shared.get("vm", "sized") or {})["status"]
    assert status["instancetypeRef"]["controllerRevisionRef"]["name"].startswith("sized-tiny-v1beta1-")
    assert "RestartRequired" not in str(status["conditions"])
    shared.kubectl("delete", "vm", "sized")
    shared.kubectl("delete", "vmclusterinstancetype", "tiny")


def test_a_node_that_is_deleted_comes_back_and_its_guests_do_not_notice(shared: Instance) -> None:
    shared.apply(tiny_vm("stays"))
    shared.wait_phase("stays")
    counted, before = shared.counter("stays"), shared.get("node", "node-1")
    assert before is not None
    shared.kubectl("delete", "node", "node-1", "--wait=false")
    shared.kubectl("delete", "hypervisornode", "node-1", "--wait=false", "--ignore-not-found")

    def is_back() -> bool:
        node, facts = shared.get("node", "node-1"), shared.get("hypervisornode", "node-1")
        if node is None or facts is None or node["metadata"]["uid"] == before["metadata"]["uid"]:
            return False
        return node["metadata"]["labels"] == before["metadata"]["labels"] and bool(facts["status"].get("drivers"))

    eventually(is_back, 30, lambda: shared.kubectl("get", "nodes,hypervisornodes", "-o", "yaml"))
    assert shared.counter("stays") > counted
    assert shared.phase("stays") == "Running"
    shared.kubectl("delete", "vm", "stays")


def test_the_console_takes_input(shared: Instance) -> None:
    shared.apply(tiny_vm("talk"))
    shared.wait_phase("talk")
    shared.counter("talk")
    answer = shared.cli("console", "talk", "--seconds", "20", "--until", "pong", stdin="ping\n", check=False)
    assert "pong" in answer
    shared.kubectl("delete", "vm", "talk")


def test_logs_and_tables_are_what_kubectl_users_expect(shared: Instance) -> None:
    shared.apply(tiny_vm("seen"))
    shared.wait_phase("seen")
    assert re.search(r"NAME\s+AGE\s+STATUS\s+READY", shared.kubectl("get", "vm", "seen"))
    assert re.search(r"NAME\s+AGE\s+PHASE\s+IP\s+NODENAME\s+READY", shared.kubectl("get", "vmi", "seen"))
    events = shared.kubectl("get", "events", "--field-selector", "involvedObject.name=seen", "-o", "json")
    reasons = {event["reason"] for event in json.loads(events)["items"]}
    assert {"SuccessfulCreate", "Created", "Started"} <= reasons
    pods = shared.kubectl("get", "pods", "-l", "vm.kubevirt.io/name=seen", "-o", "name").split()
    assert len(pods) == 1
    shared.kubectl("logs", pods[0])
    shared.kubectl("delete", "vm", "seen")


def test_run_makes_a_plain_manifest(shared: Instance) -> None:
    manifest = yaml.safe_load(shared.cli("run", "tiny", "--name", "quick", "--memory", "64Mi", "--dry-run"))
    assert manifest["kind"] == "VirtualMachine"
    shared.cli("run", "tiny", "--name", "quick", "--memory", "64Mi", "--wait")
    assert shared.counter("quick") > 0
    shared.kubectl("delete", "vm", "quick")


def test_run_strategies_manual_and_rerun(shared: Instance) -> None:
    shared.apply(tiny_vm("hand", "Manual"))
    eventually(lambda: (shared.get("vm", "hand") or {}).get("status", {}).get("printableStatus") == "Stopped", 20)
    assert shared.get("vmi", "hand") is None
    shared.cli("start", "hand", "--wait")
    shared.wait_phase("hand")
    shared.kubectl("delete", "vm", "hand")

    shared.apply(tiny_vm("rerun", "RerunOnFailure"))
    first = shared.wait_phase("rerun")
    shared.kubectl("delete", "pod", "-l", "vm.kubevirt.io/name=rerun", "--grace-period=0", "--force")
    eventually(
        lambda: (
            ((shared.get("vmi", "rerun") or first)["metadata"]["uid"] != first["metadata"]["uid"])
            and shared.phase("rerun") == "Running"
        ),
        90,
        lambda: shared.story("rerun"),
    )
    shared.kubectl("delete", "vm", "rerun")
