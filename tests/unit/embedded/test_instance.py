"""The instance's files, identity and certificates."""

import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from anyvisor.embedded import instance as instances
from anyvisor.embedded import pki, supervisor, tls
from anyvisor.embedded.instance import Instance, InstanceError, create_instance, lock_instance, open_instance


@pytest.fixture
def instance(tmp_path: Path, rundir: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setattr(instances, "_runtime_base", lambda: rundir)
    return create_instance(tmp_path / "data")


def test_creating_it_again_finds_the_same(instance: Instance) -> None:
    assert create_instance(instance.data_dir) == instance == open_instance(instance.data_dir)


def test_where_there_is_none_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="up"):
        open_instance(tmp_path)


def test_a_start_without_room_says_so_before_anything_is_forked(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LEAST_FREE_BYTES", 1 << 62)
    with pytest.raises(InstanceError, match=r"KiB free, and the control plane needs .* free space, or choose another"):
        supervisor.start(instance, 1, [])


@pytest.mark.parametrize("text", ["", "[]", '{"id": "zz", "apiPort": 1}', '{"id": "00000000"}', "\0"])
def test_a_damaged_description_is_told(instance: Instance, text: str) -> None:
    (instance.data_dir / "instance.json").write_text(text)
    with pytest.raises(InstanceError, match="damaged"):
        open_instance(instance.data_dir)


def test_only_one_holds_it(instance: Instance) -> None:
    lock_instance(instance)
    with pytest.raises(InstanceError, match="running already"):
        lock_instance(instance)


def test_runtime_paths_are_short_enough_for_sockets(instance: Instance) -> None:
    longest = instance.node_run_dir("node-64") / "drivers" / "cloud-hypervisor" / "hri.sock"
    assert len(str(longest)) - len(str(instance.run_dir.parent)) + len("/run/anyvisor") < 100


def test_a_client_certificate_names_user_and_groups(instance: Instance) -> None:
    pair = pki.ensure_client(instance, "x", "system:node:a", ["system:nodes"])
    subject = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).subject.rfc4514_string()
    assert subject == "CN=system:node:a,O=system:nodes"
    assert pair.key.stat().st_mode & 0o777 == 0o600


def test_certificates_are_kept_and_renewed_when_they_do_not_fit(instance: Instance) -> None:
    first = pki.ensure_client(instance, "x", "one").certificate.read_bytes()
    assert pki.ensure_client(instance, "x", "one").certificate.read_bytes() == first
    assert pki.ensure_client(instance, "x", "two").certificate.read_bytes() != first
    pki.ensure_client(instance, "x", "two").key.write_text("broken")
    assert b"PRIVATE KEY" in pki.ensure_client(instance, "x", "two").key.read_bytes()


def test_the_kubeconfig_is_for_its_owner_alone(instance: Instance) -> None:
    pki.make_certificates(instance, ["node-1"])
    config = json.loads(instance.kubeconfig.read_text())
    assert config["current-context"] == "anyvisor"
    assert instance.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert tls.server_context(instance).verify_mode is ssl.CERT_OPTIONAL
    assert {path.stem for path in instance.pki_dir.glob("*.crt")} == {
        "admin",
        "agent-node-1",
        "apiserver",
        "ca",
        "kubelet-node-1",
    }
