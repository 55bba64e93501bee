"""The life of a machine on one node, all of it real but the guest."""

import asyncio

from world import World

from anyvisor.kube.resources import PODS, VMIS


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
    assert conditions["Ready"] == "True"
    assert "Synchronized" not in conditions
    machine_id = vmi["metadata"]["uid"]
    assert len(world.starts(machine_id)) == 1

    await world.client.patch(VMIS, "a", "default", {"metadata": {"finalizers": ["test/hold"]}})
    await world.client.delete(VMIS, "a", "default")
    ended = await world.phase("a", "Succeeded")
    assert [t["phase"] for t in ended["status"]["phaseTransitionTimestamps"]] == ["Running", "Succeeded"]
    await world.pod("a", "Succeeded")
    await world.client.delete(PODS, "virt-launcher-a", "default")
    await world.gone("a")
    assert not world.record(machine_id).exists()
    assert not [p for p in world.left() if p in world.starts(machine_id)]
    await asyncio.sleep(0)
