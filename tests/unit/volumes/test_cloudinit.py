"""The media that cloud-init reads."""

import base64
import json

import pytest

from anyvisor.agent.volumes import cloudinit
from anyvisor.agent.volumes.cloudinit import CloudInitError, Instance

WEB = Instance("uid-1", "web", uuid="b7a3")


def test_inline_data_becomes_files() -> None:
    source = {"userData": "#cloud-config\n", "networkDataBase64": base64.b64encode(b"version: 2\n").decode()}
    files = cloudinit.medium("cloudInitNoCloud", source, {}, WEB)
    assert files["user-data"] == b"#cloud-config\n"
    assert files["network-config"] == b"version: 2\n"
    assert json.loads(files["meta-data"]) == {"instance-id": "uid-1", "local-hostname": "web"}


def test_without_network_data_there_is_no_such_file() -> None:
    assert set(cloudinit.medium("cloudInitNoCloud", {}, {}, WEB)) == {"meta-data", "user-data"}


def test_a_config_drive_has_the_layout_of_openstack() -> None:
    source = {"userData": "#!/bin/sh\n", "networkData": "{}"}
    files = cloudinit.medium("cloudInitConfigDrive", source, {}, WEB)
    place = "openstack/latest"
    assert set(files) == {f"{place}/meta_data.json", f"{place}/user_data", f"{place}/network_data.json"}
    meta = json.loads(files[f"{place}/meta_data.json"])
    assert (meta["instance_id"], meta["hostname"], meta["uuid"]) == ("uid-1", "web", "b7a3")


@pytest.mark.parametrize("key", ["userdata", "userData"])
def test_data_of_a_secret_is_found_by_either_key(key: str) -> None:
    source = {"secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "n"}}
    secrets = {"secretRef": {key: b"#cloud-config\n"}, "networkDataSecretRef": {"networkdata": b"version: 2\n"}}
    files = cloudinit.medium("cloudInitNoCloud", source, secrets, WEB)
    assert files["user-data"] == b"#cloud-config\n"
    assert files["network-config"] == b"version: 2\n"


def test_a_secret_without_the_data_is_named_with_the_keys_to_add() -> None:
    source = {"secretRef": {"name": "init"}}
    with pytest.raises(CloudInitError, match="'init' has neither a key userdata nor userData") as caught:
        cloudinit.medium("cloudInitNoCloud", source, {"secretRef": {"password": b"x"}}, WEB)
    assert (caught.value.field, caught.value.retry) == ("secretRef", True)


@pytest.mark.parametrize(
    ("kind", "file", "key"),
    [
        ("cloudInitNoCloud", "meta-data", "public-keys"),
        ("cloudInitConfigDrive", "openstack/latest/meta_data.json", "public_keys"),
    ],
)
def test_public_keys_stand_in_the_metadata(kind: str, file: str, key: str) -> None:
    files = cloudinit.medium(kind, {}, {}, Instance("i", "h", public_keys=("ssh-ed25519 A a", "ssh-rsa B")))
    assert json.loads(files[file])[key] == {"0": "ssh-ed25519 A a", "1": "ssh-rsa B"}


def test_keys_of_a_secret_are_its_lines_each_once() -> None:
    files = {"two": b"# mine\nssh-rsa B\n\nssh-ed25519 A a\n", "one": b"ssh-rsa B\n"}
    assert cloudinit.public_keys(files) == ["ssh-rsa B", "ssh-ed25519 A a"]


def test_what_is_no_base64_names_its_field() -> None:
    with pytest.raises(CloudInitError) as caught:
        cloudinit.medium("cloudInitNoCloud", {"userDataBase64": "%%%"}, {}, WEB)
    assert caught.value.field == "userDataBase64"


def test_data_is_capped() -> None:
    with pytest.raises(CloudInitError, match="at most"):
        cloudinit.medium("cloudInitNoCloud", {"userData": "x" * (1 << 21)}, {}, WEB)
