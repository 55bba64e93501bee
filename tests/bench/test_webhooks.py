"""What a webhook's answer costs the gateway, from the bytes of the question to those of the answer, plan included."""

import json
import statistics
import time
from collections.abc import Callable

import pytest

from anyvisor.gateway import webhooks
from anyvisor.gateway.webhooks import Answer, Components
from anyvisor.hri.packages import load
from tests.bench.measure import report
from tests.bench.test_admission import vmi
from tests.unit.gateway.test_webhooks import World, review

AIM_MS = 5.0
ROUNDS = 200
BYTES = range(5_500, 6_500)


def offered() -> World:
    """A cluster that offers the driver with the longest manifest."""
    world, manifest = World(), load("qemu").manifest
    world.objects = {
        "HypervisorDriver": [{"metadata": {"name": manifest["driver"]}, "spec": {"manifest": manifest}}],
        "HypervisorClass": [{"metadata": {"name": "q"}, "spec": {"driver": manifest["driver"], "default": True}}],
    }
    return world


@pytest.mark.parametrize("decide", [webhooks.mutate, webhooks.validate])
def test_an_answer_about_a_machine_of_six_kilobytes(
    decide: Callable[[bytes, World, Components], Answer],
) -> None:
    machine, world, costs = vmi(3, 2), offered(), list[float]()
    machine["spec"]["evictionStrategy"] = "None"
    machine["metadata"]["annotations"] = {f"example.com/note-{i}": "words " * 46 for i in range(12)}
    assert len(json.dumps(machine)) in BYTES
    question = review(machine)
    answer = decide(question, world, Components())
    for _ in range(ROUNDS):
        begun = time.process_time()
        answer = decide(question, world, Components())
        costs.append((time.process_time() - begun) * 1000)
    assert json.loads(answer.body)["response"]["allowed"] is True
    median = statistics.median(costs)
    report(decide.__name__, [f"{median:.2f} ms of CPU in the median (aim {AIM_MS:g} ms)"])
    assert median < AIM_MS
