"""kill -9 at random moments while many VMs come and go: none is harmed, none runs twice, all end as they should.

`ANYVISOR_KILL_VMS` and `ANYVISOR_KILL_ROUNDS` make it as long as wanted (`make kill` runs the full one), and
`ANYVISOR_KILL_SEED` repeats a run: the seed is printed.
"""

import os
import random
import re
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Instance, eventually, tiny_vm

VMS = int(os.environ.get("ANYVISOR_KILL_VMS", "4"))
ROUNDS = int(os.environ.get("ANYVISOR_KILL_ROUNDS", "3"))
SEED = int(os.environ.get("ANYVISOR_KILL_SEED") or time.time_ns() % 1_000_000)
COMPONENTS = ["control", "agent-node-1", "driver-qemu-node-1", "zygote"]
GUEST = re.compile(rb"guest=([0-9a-f-]{36})")


def running(instance: Instance) -> dict[str, int]:
    """The VMM's pid of each machine; fails when one runs twice."""
    found: dict[str, int] = {}
    for pid in instance.vmm_pids():
        try:
            match = GUEST.search(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
        if match:
            machine = match[1].decode()
            assert machine not in found, f"{machine} runs twice: {found[machine]} and {pid} (seed {SEED})"
            found[machine] = pid
    return found


def machines(instance: Instance) -> dict[str, tuple[str, str]]:
    """Uid and phase of each VMI by name."""
    return {
        one["metadata"]["name"]: (one["metadata"]["uid"], one.get("status", {}).get("phase", ""))
        for one in instance.items("vmi")
    }


class Fleet:
    """What the test has asked for."""

    def __init__(self, instance: Instance, chance: random.Random) -> None:
        self.instance, self.chance = instance, chance
        self.wanted: set[str] = set()
        self.number = 0

    def change(self) -> None:
        """Delete some VMs, and fill up with new ones."""
        gone = {name for name in self.wanted if self.chance.random() < 0.3}
        for name in sorted(gone):
            self.instance.kubectl("delete", "vm", name, "--wait=false")
        self.wanted -= gone
        while len(self.wanted) < VMS:
            self.number += 1
            name = f"v{self.number}"
            self.instance.apply(tiny_vm(name))
            self.wanted.add(name)

    def settled(self) -> bool:
        """Every wanted VM runs once, and nothing else does."""
        present = machines(self.instance)
        if set(present) != self.wanted or any(phase != "Running" for _, phase in present.values()):
            return False
        return set(running(self.instance)) == {uid for uid, _ in present.values()}

    def story(self) -> str:
        """What is not as it should be, and the story of the first of these machines."""
        present, alive = machines(self.instance), running(self.instance)
        wrong = sorted(name for name in self.wanted if present.get(name, ("", ""))[1] != "Running")
        wrong += sorted(name for name, (uid, _) in present.items() if name in self.wanted and uid not in alive)
        wrong += sorted(set(present) - self.wanted)
        told = f"seed {SEED}; not as wanted: {wrong or 'none'}; VMMs: {alive}; machines: {present}"
        return f"{told}\n{self.instance.story(wrong[0])}" if wrong else told


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_random_kills(instance: Instance) -> None:
    print(f"ANYVISOR_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    fleet = Fleet(instance, chance)
    for _ in range(ROUNDS):
        before, names = running(instance), {uid: name for name, (uid, _) in machines(instance).items()}
        fleet.change()
        time.sleep(chance.uniform(0, 1.5))
        victims = chance.choice([[], *([name] for name in COMPONENTS)])
        instance.kill(*[name for name in victims if name in instance.processes()] or ["zygote"])
        after = running(instance)
        kept = {uid: pid for uid, pid in before.items() if names.get(uid) in fleet.wanted}
        assert kept.items() <= after.items(), f"a guest was harmed (seed {SEED})"
        instance.up()
        assert kept.items() <= running(instance).items(), f"a guest was harmed by the start after it (seed {SEED})"
    eventually(fleet.settled, 60 + 10 * VMS, fleet.story)
    for name in chance.sample(sorted(fleet.wanted), min(3, VMS)):
        assert instance.counter(name) > 0
    for name in sorted(fleet.wanted):
        instance.kubectl("delete", "vm", name, "--wait=false")
    fleet.wanted.clear()
    eventually(lambda: machines(instance) == {} and running(instance) == {}, 60 + 5 * VMS, fleet.story)
    assert instance.items("pods") == []
