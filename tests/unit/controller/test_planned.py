"""Planning an instance: what its pod gets to know, or the sentence why there is none."""

from typing import Any

import pytest

from anyvisor.controller.launch import Launch, Refusal
from anyvisor.controller.planned import Fleet, chosen_by, launch_of, plan_instance
from anyvisor.planning.plan import DeviceCount, Plan, PodShape, Resources, Substitution, decode, digest
from tests.unit.planning.builders import manifest, small

Json = dict[str, Any]


def fleet(**options: Any) -> Fleet:
    driver = {"metadata": {"name": "test.example.org"}, "spec": {"manifest": manifest(**options.pop("manifest", {}))}}
    classes = [
        {"metadata": {"name": "std"}, "spec": {"driver": "test.example.org", "default": True}},
        {"metadata": {"name": "absent"}, "spec": {"driver": "absent.example.org"}},
    ]
    return Fleet(classes, [driver], **options)


def instance(hypervisor: str = "", **domain: Any) -> Json:
    spec = small(**domain)
    if hypervisor:
        spec["hypervisor"] = hypervisor
    return {"metadata": {"name": "a", "namespace": "default", "uid": "u"}, "spec": spec}


def test_an_accepted_instance_gets_its_whole_plan() -> None:
    launch = plan_instance(instance(), fleet())
    assert isinstance(launch, Launch)
    plan = decode(launch.plan)
    assert launch.image == "example.org/test:1"
    assert launch.overhead_bytes == plan.resources.overhead_bytes > 50 << 20
    assert launch.hypervisor["class"] == "std"
    assert launch.hypervisor["planDigest"] == digest(plan)
    assert launch.node_selector["test.example.org/driver"] == "true"


@pytest.mark.parametrize(
    ("hypervisor", "domain", "reason", "says"),
    [
        ("nonesuch", {}, "ClassNotFound", "the classes are: absent, std"),
        ("absent", {}, "DriverAbsent", "absent.example.org, which is not installed"),
        ("std", {"cpu": {"sockets": 99, "cores": 1, "threads": 1}}, "HypervisorRefused", "99"),
    ],
)
def test_a_refusal_says_what_stands_against_it(hypervisor: str, domain: Json, reason: str, says: str) -> None:
    refusal = plan_instance(instance(hypervisor, **domain), fleet())
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert says in refusal.message
    assert refusal.message.endswith(".")


def test_a_class_without_any_driver_is_refused() -> None:
    refusal = plan_instance(instance(), Fleet())
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "NoDefaultClass"


def test_an_endless_list_of_reasons_is_cut() -> None:
    disks = [{"name": f"d{number}", "disk": {"bus": "sata"}} for number in range(200)]
    volumes = [{"name": disk["name"], "emptyDisk": {"capacity": "1Gi"}} for disk in disks]
    asked = instance("std", devices={"disks": disks})
    asked["spec"]["volumes"] = volumes
    refusal = plan_instance(asked, fleet())
    assert isinstance(refusal, Refusal)
    assert len(refusal.message) <= 1024


def plan(**more: Any) -> Plan:
    settled: Json = {
        "hypervisor_class": "std",
        "driver": "test.example.org",
        "driver_version": "1",
        "hri_minor": 1,
        "manifest_digest": "sha256:0",
        "verdict": "SATISFIED",
        "accelerator": "kvm",
        "launch_mode": "exec",
        "resources": Resources(guest_memory_bytes=1 << 30, devices=(DeviceCount(resource="example.org/x", count=2),)),
        "pod": PodShape(image="i", run_as_user=1000, seccomp_profile="strict.json", shared_memory_bytes=1 << 30),
    }
    return Plan(**{**settled, **more})


def test_the_pod_s_shape_is_the_plan_s() -> None:
    launch = launch_of(plan())
    assert (launch.run_as_user, launch.shared_memory_bytes, launch.devices) == (1000, 1 << 30, {"example.org/x": 2})
    assert launch.seccomp == {"type": "Localhost", "localhostProfile": "strict.json"}
    assert launch_of(plan(pod=PodShape(image="i"))).seccomp is None


def test_a_choice_is_told_with_its_reason_and_the_runner_up() -> None:
    drivers = fleet().drivers
    classes = [
        {"metadata": {"name": name}, "spec": {"driver": "test.example.org", "weight": weight}}
        for name, weight in (("first", 2), ("second", 1))
    ]
    launch = plan_instance(instance("auto/memory"), Fleet(classes, drivers))
    assert isinstance(launch, Launch)
    assert launch.hypervisor["class"] == "first"
    assert launch.hypervisor["runnerUp"] == "second"
    assert launch.hypervisor["reason"] == "equal by what was preferred, and before second by the classes' weight"
    assert launch.hypervisor["planDigest"] == digest(decode(launch.plan))


@pytest.mark.parametrize(("accelerator", "emulated"), [("kvm", False), ("mshv", False), ("emulation", True)])
def test_emulation(accelerator: str, *, emulated: bool) -> None:
    assert launch_of(plan(accelerator=accelerator)).emulation is emulated


def test_substitutions_reach_what_runs() -> None:
    launch = launch_of(plan(substitutions=(Substitution(field="domain.cpu.model", to="host-model", reason="r"),)))
    assert launch.substitute({"domain": {"cpu": {}}})["domain"]["cpu"]["model"] == "host-model"


def test_what_was_chosen_is_read_from_the_pod_s_plan() -> None:
    launch = launch_of(plan())
    assert chosen_by({"metadata": {"annotations": {"anyvisor.io/plan": launch.plan}}}) == launch.hypervisor
    assert chosen_by({"metadata": {"annotations": {"anyvisor.io/plan": "{"}}}) is None
    assert chosen_by({"metadata": {}}) is None
