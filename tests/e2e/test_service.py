"""The machine goes down and comes up: guests are shut down cleanly, and those that should run start anew, in order."""

from tests.e2e.conftest import Instance, eventually, tiny_vm


def uid(instance: Instance, name: str) -> str:
    return (instance.get("vmi", name) or {}).get("metadata", {}).get("uid", "")


def test_guests_go_down_with_the_machine_and_come_up_with_it(instance: Instance) -> None:
    running = tiny_vm("web")
    instance.apply(running)
    instance.apply(tiny_vm("rerun", strategy="RerunOnFailure"))
    instance.apply(tiny_vm("off", strategy="Halted"))
    for name in ("web", "rerun"):
        instance.wait_phase(name)
        instance.counter(name)
    assert "would start the VMs anew" in instance.cli("service", "shutdown", check=False)

    before = {name: uid(instance, name) for name in ("web", "rerun")}
    instance.cli("down")
    assert len(instance.vmm_pids()) == 2
    said = instance.cli("service", "shutdown", "--timeout", "60")
    assert said.count("shut down") == 2
    assert said.endswith("2 guests are down\n")
    eventually(lambda: instance.vmm_pids() == [], 20)

    instance.up()
    eventually(lambda: instance.phase("web") == "Running" and uid(instance, "web") != before["web"], 90)
    eventually(lambda: instance.phase("rerun") == "Running" and uid(instance, "rerun") != before["rerun"], 90)
    assert instance.get("vmi", "off") is None
