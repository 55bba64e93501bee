"""docs/hri/translation.md is true: the drivers make of its machine what it says."""

import json
import re
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from anyvisor.drivers.cloud_hypervisor.translate import translate as cloud_hypervisor
from anyvisor.drivers.cloud_hypervisor.translate.host import Host as CloudHypervisorHost
from anyvisor.drivers.qemu.translate import Host as QemuHost
from anyvisor.drivers.qemu.translate import translate as qemu
from anyvisor.hri.conformance.launch import problems
from anyvisor.hri.v1.machine_pb2 import LaunchPlan, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import Endpoint

PAGE = (Path(__file__).parents[3] / "docs" / "hri" / "translation.md").read_text()


@pytest.fixture
def machine() -> Machine:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    return ParseDict(json.loads(block), Machine())


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def stated_slots(title: str) -> dict[int, str]:
    (row,) = re.findall(r"\| `launch.descriptors` \| (.*) \|", section(title))
    return {int(number): handle for number, handle in re.findall(r"(\d+) `([^`]+)`", row)}


def stated_argv(title: str) -> list[str]:
    (row,) = re.findall(r"\| `launch.argv` \| `(.*)` \|", section(title))
    return [part.strip() for part in row.split("...") if part.strip()]


def made_slots(launch: LaunchPlan) -> dict[int, str]:
    return {slot.number: slot.handle for slot in launch.descriptors}


def made_endpoints(endpoints: list[Endpoint]) -> set[str]:
    return {endpoint.id for endpoint in endpoints}


def stated_endpoints(title: str) -> set[str]:
    (row,) = re.findall(r"\| `endpoints` \| (.*) \|", section(title))
    return set(re.findall(r"(?:^|, )`([^`]+)` \(", row))


def test_qemu(machine: Machine):
    host = QemuHost(profiles=frozenset({"pc-q35-7.2"}), default_profile="pc-q35-7.2")
    made = qemu(machine, host)
    assert made_slots(made.launch) == stated_slots("QEMU")
    line = " ".join(made.launch.argv)
    assert all(part in line for part in stated_argv("QEMU"))
    assert made_endpoints(list(made.endpoints)) == stated_endpoints("QEMU")
    answer = PrepareResponse(launch=made.launch, endpoints=made.endpoints, driver_handles=["control"])
    assert problems(machine, answer) == []


def test_cloud_hypervisor(machine: Machine):
    made = cloud_hypervisor(machine, CloudHypervisorHost())
    assert made_slots(made.launch) == stated_slots("Cloud Hypervisor")
    assert [" ".join(made.launch.argv)] == stated_argv("Cloud Hypervisor")
    assert made_endpoints(list(made.endpoints)) == stated_endpoints("Cloud Hypervisor")
    (row,) = re.findall(r"\| `driver_handles` \| (.*) \|", section("Cloud Hypervisor"))
    assert made.driver_handles == re.findall(r"`([^`]+)`", row)
    answer = PrepareResponse(launch=made.launch, endpoints=made.endpoints, driver_handles=made.driver_handles)
    assert problems(machine, answer) == []


def test_the_translation_on_paper_is_a_launch_plan_in_form(machine: Machine):
    title = "User-mode Linux (on paper)"
    machine.boot.kernel.kernel_handle = ""
    (argv,) = stated_argv(title)
    launch = LaunchPlan(mode=LaunchPlan.MODE_EXEC, argv=argv.split(), env=["TMPDIR=/dev/shm"], working_directory=True)
    for number, handle in stated_slots(title).items():
        launch.descriptors.add(number=number, handle=handle)
    endpoints = [
        Endpoint(
            id="control",
            purpose=Endpoint.PURPOSE_CONTROL,
            protocol="mconsole",
            socket=Endpoint.SOCKET_DGRAM,
            vmm_path="uml/mconsole",
        ),
        Endpoint(
            id="console/serial0",
            purpose=Endpoint.PURPOSE_CONSOLE,
            protocol="raw",
            exclusive=True,
            pair_descriptor=6,
            reader_logs=True,
        ),
    ]
    assert stated_endpoints(title) == {endpoint.id for endpoint in endpoints}
    answer = PrepareResponse(launch=launch, endpoints=endpoints, driver_handles=["control"])
    assert problems(machine, answer) == []
    assert all(f"/proc/self/fd/{n}" in argv or f"fd={n}" in argv or f"fd:{n}" in argv for n in stated_slots(title))
