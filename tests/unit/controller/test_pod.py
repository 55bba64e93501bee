"""The parts of a launcher pod that are ours; what clusters rely on is compared with recorded pods."""

from typing import Any

import pytest

from anyvisor.controller.launch import Launch
from anyvisor.controller.podspec.render import PodContext, RenderError, render
from anyvisor.controller.settings import Settings

Json = dict[str, Any]
LAUNCH = Launch(
    image="launcher:1", overhead_bytes=100 << 20, plan='{"planVersion":1}', node_selector={"x/driver": "true"}
)


def vmi(**spec: Any) -> Json:
    domain = {"memory": {"guest": "1Gi"}, "devices": {}, **spec.pop("domain", {})}
    metadata = {"name": "a", "namespace": "default", "uid": "5b0c9d9e-9d3c-4b0b-8a55-0f5a3a0c0001"}
    return {"metadata": metadata, "spec": {"domain": domain, **spec}}


def compute(pod: Json) -> Json:
    return pod["spec"]["containers"][0]


def test_the_pod_runs_the_launcher_as_nobody_special() -> None:
    pod = render(vmi(), LAUNCH, PodContext())
    assert compute(pod)["command"][-3:] == ["/opt/shim.pyc", "run", "/run/l"]
    assert compute(pod)["lifecycle"]["preStop"]["exec"]["command"][-2:] == ["stop", "/run/l"]
    assert compute(pod)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])


def test_the_plan_goes_with_the_pod() -> None:
    pod = render(vmi(), LAUNCH, PodContext())
    assert pod["metadata"]["annotations"]["anyvisor.io/plan"] == LAUNCH.plan
    assert pod["spec"]["nodeSelector"]["x/driver"] == "true"
    assert compute(pod)["image"] == "launcher:1"


def test_the_name_is_the_same_at_each_try_and_another_for_another_pod() -> None:
    first, again = (render(vmi(), LAUNCH, PodContext())["metadata"]["name"] for _ in range(2))
    other = render(vmi(), LAUNCH, PodContext(attempt=1))["metadata"]["name"]
    assert first == again != other


@pytest.mark.parametrize("bytes_", [0, 1 << 30])
def test_shared_memory(bytes_: int) -> None:
    pod = render(vmi(), Launch(image="i", overhead_bytes=0, shared_memory_bytes=bytes_), PodContext())
    mounted = [mount["name"] for mount in compute(pod)["volumeMounts"] if mount["mountPath"] == "/dev/shm"]
    sizes = [one["emptyDir"]["sizeLimit"] for one in pod["spec"]["volumes"] if one["name"] in mounted]
    assert sizes == (["1Gi"] if bytes_ else [])


def test_substitutions_decide_what_nodes_must_offer() -> None:
    def cheaper(spec: Json) -> Json:
        return {**spec, "domain": {**spec["domain"], "cpu": {"model": "other"}}}

    asked = vmi(domain={"cpu": {"model": "fancy"}})
    plain = render(asked, LAUNCH, PodContext())["spec"]["nodeSelector"]
    changed = render(asked, Launch(image="i", overhead_bytes=0, substitute=cheaper), PodContext())
    assert "cpu-model.node.kubevirt.io/fancy" in plain
    assert "cpu-model.node.kubevirt.io/other" in changed["spec"]["nodeSelector"]
    assert asked["spec"]["domain"]["cpu"] == {"model": "fancy"}


@pytest.mark.parametrize(
    ("config", "launch", "profile"),
    [
        ({}, {"type": "Localhost", "localhostProfile": "d.json"}, "d.json"),
        (
            {
                "seccompConfiguration": {
                    "virtualMachineInstanceProfile": {"customProfile": {"localhostProfile": "admin.json"}}
                }
            },
            {"type": "Localhost", "localhostProfile": "d.json"},
            "admin.json",
        ),
    ],
)
def test_an_admin_s_seccomp_profile_goes_before_the_driver_s(config: Json, launch: Json, profile: str) -> None:
    pod = render(vmi(), Launch(image="i", overhead_bytes=0, seccomp=launch), PodContext(settings=Settings(config)))
    assert pod["spec"]["securityContext"]["seccompProfile"]["localhostProfile"] == profile


def test_the_pod_of_a_first_consumer_starts_no_guest() -> None:
    pod = render(vmi(), LAUNCH, PodContext(temporary=True))
    assert compute(pod)["command"] == ["/bin/true"]
    assert "lifecycle" not in compute(pod)
    assert pod["metadata"]["annotations"]["kubevirt.io/ephemeral-provisioning"] == "true"


def labelled(verbosity: str) -> Json:
    obj = vmi()
    obj["metadata"]["labels"] = {"logVerbosity": verbosity}
    return obj


def hooked() -> Json:
    obj = vmi()
    obj["metadata"]["annotations"] = {"hooks.kubevirt.io/hookSidecars": '[{"image": "x"}]'}
    return obj


MISSING_CLAIM = vmi(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "none"}}])
UNKNOWN_BINDING = vmi(
    domain={"devices": {"interfaces": [{"name": "n", "binding": {"name": "nonesuch"}}]}},
    networks=[{"name": "n", "pod": {}}],
)
FOREIGN_DEVICE = vmi(domain={"devices": {"gpus": [{"name": "g", "deviceName": "vendor/gpu"}]}})


@pytest.mark.parametrize(
    ("obj", "config", "says"),
    [
        (labelled("loud"), {}, "logVerbosity"),
        (hooked(), {}, "hookSidecars"),
        (MISSING_CLAIM, {}, "none"),
        (UNKNOWN_BINDING, {}, "nonesuch"),
        (FOREIGN_DEVICE, {"permittedHostDevices": {}}, "vendor/gpu"),
    ],
)
def test_what_makes_no_pod_says_why(obj: Json, config: Json, says: str) -> None:
    with pytest.raises(RenderError, match=says):
        render(obj, LAUNCH, PodContext(settings=Settings(config)))


def test_overhead_is_on_top_of_the_guest_s_memory() -> None:
    requests = compute(render(vmi(), LAUNCH, PodContext()))["resources"]["requests"]
    assert requests["memory"] == f"{1024 + 100}Mi"


def reserved(disk: Json, volume: Json, claims: dict[str, Json]) -> Json:
    wanted = vmi(domain={"devices": {"disks": [{"name": "d", **disk}]}}, volumes=[{"name": "d", **volume}])
    return render(wanted, LAUNCH, PodContext(claims=claims))


def claim(name: str) -> dict[str, Json]:
    return {name: {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": {"volumeMode": "Block"}}}


@pytest.mark.parametrize("volume", [{"persistentVolumeClaim": {"claimName": "c"}}, {"dataVolume": {"name": "c"}}])
def test_machines_that_reserve_the_same_disk_keep_away_from_each_other(volume: Json) -> None:
    pod = reserved({"lun": {"bus": "scsi", "reservation": True}}, volume, claim("c"))
    assert pod["metadata"]["labels"]["pr.kubevirt.io/uid-of-c"] == ""
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchExpressions"] == [{"key": "pr.kubevirt.io/uid-of-c", "operator": "Exists"}]
    assert compute(pod)["resources"]["limits"]["devices.kubevirt.io/pr-helper"] == "1"


def test_a_lun_without_reservation_shares_its_node() -> None:
    pod = reserved({"lun": {"reservation": False}}, {"persistentVolumeClaim": {"claimName": "c"}}, claim("c"))
    assert not [label for label in pod["metadata"]["labels"] if label.startswith("pr.kubevirt.io/")]
    assert "podAntiAffinity" not in pod["spec"]["affinity"]
    assert "devices.kubevirt.io/pr-helper" not in compute(pod)["resources"].get("limits", {})
