"""The life of a machine on one node, all of it real but the guest."""

from pathlib import Path

import pytest
from world import World, eventually

from anyvisor.hri.fake.driver import NAME as FAKE
from anyvisor.kube.errors import NotFound
from anyvisor.kube.resources import EVENTS, HYPERVISOR_NODES, NODES, PODS, VMIS


def cgroup_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


async def delete(world: World, name: str) -> None:
    """Delete a VMI and keep its object to be read."""
    await world.client.patch(VMIS, name, "default", {"metadata": {"finalizers": ["test/hold"]}})
    await world.client.delete(VMIS, name, "default")


async def test_a_machine_runs_and_stops_on_request(world: World):
    vmi = await world.make("a")
    running = await world.phase("a", "Running")
    status = running["status"]
    pod = await world.client.get(PODS, "virt-launcher-a", "default")
    assert status["activePods"] == {pod["metadata"]["uid"]: "node-1"}
    assert status["hypervisor"]["driver"] == "test.anyvisor.io"
    assert status["hypervisor"]["accelerator"] == "emulation"
    assert status["machine"] == {"type": "test-1"}
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions == {"SoftwareEmulation": "True"}
    machine_id = vmi["metadata"]["uid"]
    assert len(world.starts(machine_id)) == 1

    await delete(world, "a")
    await world.pod("a", "Succeeded")
    ended = await world.get("a")
    assert ended is not None
    assert ended["status"]["phase"] == "Succeeded", "the VMI tells it before its pod"
    assert [t["phase"] for t in ended["status"]["phaseTransitionTimestamps"]] == ["Running", "Succeeded"]
    await world.client.delete(PODS, "virt-launcher-a", "default")
    await world.gone("a")
    assert not world.record(machine_id).exists()
    assert not set(world.left()) & set(world.starts(machine_id))

    async def events() -> set[str]:
        found = {event["reason"] for event in (await world.client.list(EVENTS, "default"))["items"]}
        return found if {"Created", "Started", "ShuttingDown", "Stopped"} <= found else set()

    await eventually("all events are told", events)


async def test_the_node_says_what_it_can_run(world: World):
    async def look() -> dict[str, object] | None:
        try:
            node = await world.client.get(HYPERVISOR_NODES, "node-1")
        except NotFound:
            return None
        drivers = {d["driver"]: d for d in node.get("status", {}).get("drivers", [])}
        return node if drivers.get("test.anyvisor.io", {}).get("healthy") else None

    node = await eventually("the driver is healthy", look)
    drivers = {d["driver"]: d for d in node["status"]["drivers"]}
    assert drivers["test.anyvisor.io"]["accelerators"] == ["emulation"]
    assert node["status"]["agent"]["endpoint"] == f"unix:{world.root}/run/agent.sock"
    assert not drivers[FAKE]["healthy"]
    assert "cannot be reached" in drivers[FAKE]["conditions"][0]["message"]

    async def labelled() -> bool:
        labels = (await world.client.get(NODES, "node-1"))["metadata"]["labels"]
        return labels.get("test.anyvisor.io/driver") == "true" and f"{FAKE}/driver" not in labels

    await eventually("the node has the label that plans ask for", labelled)

    async def belongs() -> bool:
        owner = (await world.client.get(NODES, "node-1"))["metadata"]["uid"]
        found = (await world.client.get(HYPERVISOR_NODES, "node-1"))["metadata"].get("ownerReferences", [])
        return [one["uid"] for one in found] == [owner]

    await eventually("what is told of the node goes with it", belongs)


async def test_a_driver_without_processes(world: World):
    world.start_fake()
    await world.make("f", FAKE)
    running = await world.phase("f", "Running")
    assert running["status"]["hypervisor"]["accelerator"] == "none"
    await delete(world, "f")
    await world.phase("f", "Succeeded")
    await world.pod("f", "Succeeded")


@pytest.mark.parametrize(
    ("word", "phase", "sentence"),
    [
        (b"poweroff", "Succeeded", ""),
        (b"exit", "Failed", "exit code 3, saying: vmm: the guest's BIOS caught fire"),
        (b"crash", "Failed", "ended by signal 6 (SIGABRT)"),
    ],
)
async def test_how_a_run_ended_is_told_on_the_vmi(world: World, word: bytes, phase: str, sentence: str):
    await world.make("e")
    await world.phase("e", "Running")
    await world.type("e", word)
    ended = await world.phase("e", "Succeeded", "Failed")
    assert ended["status"]["phase"] == phase
    said = [c["message"] for c in ended["status"]["conditions"] if c["type"] == "Synchronized"]
    assert sentence in "".join(said)
    await world.pod("e", "Succeeded" if phase == "Succeeded" else "Failed")


async def test_a_vmm_that_uses_more_memory_than_its_plan_counts_is_told_so(world: World):
    vmi = await world.make("m")
    await world.phase("m", "Running")
    (pid,) = world.starts(vmi["metadata"]["uid"])
    if f"/anyvisor/{world.root.name}/" not in cgroup_of(pid):
        pytest.skip("no memory cgroup can be made here")
    await world.type("m", b"eat")
    failed = await world.phase("m", "Failed")
    assert "raise the memory overhead" in str(failed["status"]["conditions"])
    pod = await world.pod("m", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"


async def test_a_guest_that_ignores_the_button_is_ended_when_its_grace_ends(world: World):
    await world.make("d", terminationGracePeriodSeconds=2)
    await world.phase("d", "Running")
    await world.type("d", b"deaf")
    await delete(world, "d")
    ended = await world.phase("d", "Succeeded", "Failed", seconds=15)
    assert ended["status"]["phase"] == "Failed"
    assert "without a shutdown of its own" in str(ended["status"]["conditions"])


async def test_grace_zero_is_a_power_cut_that_was_wanted(world: World):
    await world.make("z", terminationGracePeriodSeconds=0)
    await world.phase("z", "Running")
    await delete(world, "z")
    await world.phase("z", "Succeeded")


async def test_deleting_the_pod_shuts_the_guest_down(world: World):
    vmi = await world.make("p")
    await world.phase("p", "Running")
    await world.client.delete(PODS, "virt-launcher-p", "default")
    await world.phase("p", "Succeeded")
    await world.gone("p")
    assert not set(world.left()) & set(world.starts(vmi["metadata"]["uid"]))


async def test_a_vmi_deleted_by_force_leaves_nothing(world: World):
    vmi = await world.make("g")
    await world.phase("g", "Running")
    await world.client.delete(VMIS, "g", "default")
    await world.client.delete(PODS, "virt-launcher-g", "default", grace=0)
    machine_id = vmi["metadata"]["uid"]

    async def clean() -> bool:
        return not world.record(machine_id).exists() and not set(world.left()) & set(world.starts(machine_id))

    await eventually("nothing is left", clean)


async def test_what_the_driver_refuses_is_told_with_its_field(world: World):
    world.faults(prepare="refuse")
    await world.make("r")
    failed = await world.phase("r", "Failed")
    (said,) = [c for c in failed["status"]["conditions"] if c["type"] == "Synchronized"]
    assert said["reason"] == "DriverRefused"
    assert said["message"] == "this machine cannot be: disks[0].bus: the bus is not one of ours"


async def test_a_field_that_is_not_served_is_told_with_its_path(world: World):
    await world.make("u", domain={"memory": {"guest": "64Mi"}, "devices": {}, "launchSecurity": {"sev": {}}})
    failed = await world.phase("u", "Failed")
    assert "spec.domain.launchSecurity" in str(failed["status"]["conditions"])


async def test_a_driver_that_is_not_installed(world: World):
    await world.make("n", "nobody.example.com")
    said = await world.condition("n", "Synchronized", "DriverNotInstalled")
    assert said["message"] == "driver nobody.example.com is not installed on node node-1"


async def test_a_start_that_the_driver_fails_ends_the_machine(world: World):
    world.faults(start="fail")
    vmi = await world.make("s")
    failed = await world.phase("s", "Failed")
    assert "the VMM said no" in str(failed["status"]["conditions"])
    await world.pod("s", "Failed", "Succeeded")
    assert len(world.starts(vmi["metadata"]["uid"])) == 1


async def test_a_machine_that_another_pod_may_run_is_not_started(world: World):
    await world.make_pod("o")
    await world.pod("o", "Running")
    patch = {"status": {"activePods": {"another": "node-2"}}}
    await world.client.patch(VMIS, "o", "default", patch)
    vmi = await world.hand_over("o")
    await world.condition("o", "Synchronized", "AnotherPodActive")
    assert world.starts(vmi["metadata"]["uid"]) == []


async def test_no_other_pod_runs_on_this_node(world: World):
    pod = {"metadata": {"name": "nginx"}, "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}}
    await world.client.create(PODS, pod, "default")

    async def refused() -> str:
        return (await world.client.get(PODS, "nginx", "default"))["status"].get("message", "")

    assert "launcher pods only" in await eventually("the pod is refused", refused)
