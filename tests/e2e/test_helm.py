"""Helm against a whole instance: the life of a release of our own chart."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Instance, eventually
from tests.e2e.gobuild import BUILD_SECONDS, built

CHART = str(Path(__file__).parent / "chart")
Helm = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.timeout(BUILD_SECONDS + 120)


@pytest.fixture(scope="module")
def program() -> Path:
    return built("helm", "build", "helm.sh/helm/v4/cmd/helm")


@pytest.fixture(scope="module")
def helm(program: Path, shared: Instance) -> Iterator[Helm]:
    shared.kubectl("apply", "-f", f"{CHART}/crds")
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "KUBECONFIG": str(shared.data_dir / "kubeconfig")}

        def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
            done = subprocess.run(
                [str(program), *words], env=environment, capture_output=True, text=True, timeout=120, check=False
            )
            if check and done.returncode:
                raise AssertionError(f"helm {' '.join(words)}: {done.stdout}{done.stderr}")
            return done

        yield run


def setting(instance: Instance, release: str, name: str) -> str:
    found = instance.get("configmap", f"{release}-settings", "fleet")
    assert found is not None
    return found["data"][name]


def machines(instance: Instance, release: str) -> list[str]:
    selector = f"app.kubernetes.io/instance={release}"
    return instance.kubectl("get", "vm", "-n", "fleet", "-l", selector, "-o", "name").split()


def revisions(helm: Helm, release: str) -> list[tuple[int, str]]:
    history: list[dict[str, Any]] = json.loads(helm("history", release, "-n", "fleet", "-o", "json").stdout)
    return [(item["revision"], item["status"]) for item in history]


def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(helm: Helm, shared: Instance) -> None:
    helm("uninstall", "web", "-n", "fleet", "--ignore-not-found")
    installed = helm("install", "web", CHART, "-n", "fleet", "--create-namespace", "--wait", "--timeout", "60s")
    assert "The fleet web has 1 machines." in installed.stdout
    assert machines(shared, "web") == ["virtualmachine.kubevirt.io/web-0"]
    assert setting(shared, "web", "machinesAreServed") == "true"
    assert setting(shared, "web", "lookedUp") == "kube-system"
    rack = shared.get("rack", "web", "fleet")
    assert rack is not None
    assert rack["spec"]["units"] == 42

    upgrade = ("upgrade", "web", CHART, "-n", "fleet", "--set", "machines=2,greeting=hi", "--wait")
    helm(*upgrade, "--timeout", "60s")
    assert len(machines(shared, "web")) == 2
    assert setting(shared, "web", "greeting") == "hi"
    second = shared.get("vm", "web-1", "fleet")
    assert second is not None
    assert second["status"]["ready"], "helm waits until what it made is ready"

    helm("rollback", "web", "1", "-n", "fleet", "--wait", "--timeout", "60s")
    assert machines(shared, "web") == ["virtualmachine.kubevirt.io/web-0"]
    assert setting(shared, "web", "greeting") == "hello"
    assert revisions(helm, "web") == [(1, "superseded"), (2, "superseded"), (3, "deployed")]
    assert json.loads(helm("list", "-n", "fleet", "-o", "json").stdout)[0]["status"] == "deployed"
    assert "kind: VirtualMachine" in helm("get", "manifest", "web", "-n", "fleet").stdout

    helm("uninstall", "web", "-n", "fleet", "--wait", "--timeout", "60s")
    assert machines(shared, "web") == []
    assert shared.get("service", "web", "fleet") is None
    assert json.loads(helm("list", "-n", "fleet", "-o", "json").stdout) == []


def test_an_upgrade_that_the_server_refuses_is_rolled_back(helm: Helm, shared: Instance) -> None:
    helm("upgrade", "--install", "db", CHART, "-n", "fleet", "--create-namespace", "--wait", "--timeout", "60s")
    upgrade = ("upgrade", "db", CHART, "-n", "fleet", "--set", "units=0,greeting=bad")
    refused = helm(*upgrade, "--rollback-on-failure", "--timeout", "60s", check=False)
    assert refused.returncode != 0
    assert "spec.units" in refused.stderr
    assert setting(shared, "db", "greeting") == "hello"
    assert revisions(helm, "db")[-1] == (3, "deployed")
    helm("uninstall", "db", "-n", "fleet")


def test_a_dry_run_and_a_template_change_nothing(helm: Helm, shared: Instance) -> None:
    shown = helm("install", "dry", CHART, "-n", "fleet", "--create-namespace", "--dry-run=server")
    assert 'machinesAreServed: "true"' in shown.stdout
    assert "name: dry-0" in helm("template", "dry", CHART).stdout
    assert shared.get("configmap", "dry-settings", "fleet") is None
    refused = helm("install", "dry", CHART, "-n", "fleet", "--set", "machines=-1", check=False)
    assert "machines" in refused.stderr


def test_every_namespace_has_what_charts_expect(shared: Instance) -> None:
    shared.kubectl("create", "namespace", "furnished")
    for kind, name in (("serviceaccount", "default"), ("configmap", "kube-root-ca.crt")):
        eventually(lambda kind=kind, name=name: shared.get(kind, name, "furnished") is not None, 10)
    authority = shared.get("configmap", "kube-root-ca.crt", "furnished")
    assert authority is not None
    assert authority["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
    shared.kubectl("delete", "sa", "default", "-n", "furnished")
    eventually(lambda: shared.get("serviceaccount", "default", "furnished") is not None, 10)
    assert shared.get("serviceaccount", "default", "default") is not None
    shared.kubectl("delete", "namespace", "furnished", "--timeout=20s")
