"""Images come from a registry when a VM needs them, and the pod, the VMI and the VM say what goes wrong."""

import json
from collections.abc import Iterator

import pytest

from tests import registry as served
from tests.e2e.conftest import Instance, eventually, tiny_vm
from tests.guests import tiny_archive


@pytest.fixture(scope="module")
def remote(shared: Instance) -> Iterator[served.Registry]:
    with served.serving() as registry:
        served.allow_plain_http(shared.data_dir, registry)
        yield registry


def from_registry(name: str, reference: str) -> dict[str, object]:
    vm = tiny_vm(name)
    container = vm["spec"]["template"]["spec"]["domain"]["firmware"]["kernelBoot"]["container"]
    container |= {"image": reference, "imagePullPolicy": "Always", "imagePullSecret": "login"}
    return vm


def events(instance: Instance, kind: str) -> set[str]:
    return {one["reason"] for one in instance.items("events") if one["involvedObject"]["kind"] == kind}


def status(instance: Instance, name: str) -> str:
    return (instance.get("vm", name) or {}).get("status", {}).get("printableStatus", "")


def pushed(remote: served.Registry) -> str:
    from guests.build import tiny

    return remote.push("team/tiny", {"boot/vmlinuz": tiny().read_bytes()})


def test_an_image_comes_when_it_can_and_is_kept_while_it_is_used(shared: Instance, remote: served.Registry) -> None:
    assert tiny_archive().exists()
    remote.login = "ada:secret"
    digest = pushed(remote)
    reference = f"{remote.host}/team/tiny:latest"
    shared.apply(from_registry("pulled", reference))
    eventually(lambda: status(shared, "pulled") == "ErrImagePull", 60, lambda: shared.story("pulled"))
    eventually(lambda: status(shared, "pulled") == "ImagePullBackOff", 60, lambda: shared.story("pulled"))
    vmi = shared.get("vmi", "pulled") or {}
    said = next(one for one in vmi["status"]["conditions"] if one["type"] == "Synchronized")
    assert reference in said["message"]

    auths = {"auths": {remote.host: {"username": "ada", "password": "secret"}}}
    shared.kubectl(
        *("create", "secret", "generic", "login", "--type=kubernetes.io/dockerconfigjson"),
        f"--from-literal=.dockerconfigjson={json.dumps(auths)}",
    )
    vmi = shared.wait_phase("pulled", seconds=90)
    assert vmi["status"]["hypervisor"]["images"] == {reference: digest}
    assert {"Pulling", "Failed", "BackOff", "Pulled"} <= events(shared, "Pod")

    listed = json.loads(shared.cli("image", "list", "-o", "json"))["items"]
    kept = next(one for one in listed if one["reference"] == reference)
    assert kept["origin"] == "registry"
    assert [user.startswith("default/virt-launcher-pulled-") for user in kept["used_by"]] == [True]
    assert reference not in shared.cli("image", "gc", "--unused")
    shared.kubectl("delete", "vm", "pulled")
    shared.wait_gone("vmi", "pulled")
    assert f"image {reference} removed" in shared.cli("image", "gc", "--unused")


def test_an_image_that_no_registry_is_to_be_asked_for(shared: Instance, remote: served.Registry) -> None:
    vm = from_registry("never", f"{remote.host}/team/none:1")
    vm["spec"]["template"]["spec"]["domain"]["firmware"]["kernelBoot"]["container"]["imagePullPolicy"] = "Never"  # type: ignore[index]
    shared.apply(vm)
    eventually(lambda: "ErrImageNeverPull" in events(shared, "Pod"), 60, lambda: shared.story("never"))
    assert "pull policy is Never" in shared.cli("why", "vm/never", check=False)
    shared.kubectl("delete", "vm", "never")


def test_pull_shows_what_came_and_what_stands_in_the_way(shared: Instance, remote: served.Registry) -> None:
    remote.login = ""
    pushed(remote)
    assert "pulled" in shared.cli("image", "pull", f"{remote.host}/team/tiny")
    assert "is here already" in shared.cli("image", "pull", f"{remote.host}/team/tiny")
    assert "manifest unknown" in shared.cli("image", "pull", f"{remote.host}/team/other", check=False)
