"""The official Python client and kr8s against the server: typed, dynamic, watch, leader election."""
# The official client is generated code without types.
# pyright: basic

import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import kr8s.asyncio
import pytest
from kr8s.asyncio.objects import ConfigMap, Namespace, new_class
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes.utils import create_from_yaml

from tests.contract.apiserver.conftest import Kubectl

Machine = new_class("Machine", "test.anyvisor.io/v1", namespaced=True, scalable=True, scalable_spec="replicas")


@pytest.fixture(autouse=True)
def connection(kubectl: Kubectl) -> None:
    config.load_kube_config(str(kubectl.kubeconfig))


@pytest.fixture
def core(connection: None) -> Any:
    return client.CoreV1Api()


def machine(name: str, cores: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": "test.anyvisor.io/v1",
        "kind": "Machine",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"cores": cores},
    }


def test_typed_objects(core: Any, namespace: str):
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="c", labels={"a": "b"}), data={"k": "v"})
    made = core.create_namespaced_config_map(namespace, body)
    assert made.metadata.uid
    made.data["k"] = "w"
    replaced = core.replace_namespaced_config_map("c", namespace, made)
    assert replaced.metadata.creation_timestamp == made.metadata.creation_timestamp
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_config_map("c", namespace, made)
    assert stale.value.status == 409
    core.patch_namespaced_config_map("c", namespace, {"data": {"x": "y"}})
    listed = core.list_namespaced_config_map(namespace, label_selector="a=b", limit=1)
    assert [item.data for item in listed.items] == [{"k": "w", "x": "y"}]
    assert core.delete_namespaced_config_map("c", namespace)["status"] == "Success"
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("c", namespace)
    assert gone.value.status == 404
    assert client.VersionApi().get_code().major == "1"


def test_every_typed_list_is_readable(core: Any):
    core.list_node()
    core.list_pod_for_all_namespaces()
    core.list_event_for_all_namespaces()
    client.StorageV1Api().list_storage_class()
    client.RbacAuthorizationV1Api().list_cluster_role()
    client.CoordinationV1Api().list_lease_for_all_namespaces()
    definitions: Any = client.ApiextensionsV1Api().list_custom_resource_definition()
    assert "machines.test.anyvisor.io" in {item.metadata.name for item in definitions.items}


def test_custom_objects_and_their_subresources(namespace: str):
    custom = client.CustomObjectsApi()
    where = ("test.anyvisor.io", "v1", namespace, "machines")
    custom.create_namespaced_custom_object(*where, machine("m"))
    custom.patch_namespaced_custom_object_status(*where, "m", {"status": {"phase": "Up", "replicas": 1}})
    custom.patch_namespaced_custom_object_scale(*where, "m", {"spec": {"replicas": 4}})
    found: Any = custom.get_namespaced_custom_object(*where, "m")
    assert (found["status"]["phase"], found["spec"]["replicas"]) == ("Up", 4)
    with pytest.raises(ApiException) as invalid:
        custom.create_namespaced_custom_object(*where, machine("big", 100))
    assert invalid.value.status == 422


def test_watch_ends_by_its_timeout_and_goes_on_from_a_version(core: Any, namespace: str):
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    for name in ("a", "b"):
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name)))
    core.delete_namespaced_config_map("a", namespace)
    stream: Any = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=1
    )
    assert [(event["type"], event["object"].metadata.name) for event in stream] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]


def test_dynamic_client(namespace: str):
    dynamic = DynamicClient(client.ApiClient())
    machines = dynamic.resources.get(api_version="test.anyvisor.io/v1", kind="Machine")
    assert machines.namespaced
    machines.create(body=machine("m"), namespace=namespace)
    applied = machines.server_side_apply(
        body=machine("m", 3), namespace=namespace, field_manager="judge", force_conflicts=True
    )
    assert applied.spec.cores == 3
    with pytest.raises(ConflictError):
        machines.server_side_apply(body=machine("m", 4), namespace=namespace, field_manager="other")
    events = machines.watch(namespace=namespace, timeout=1)
    assert [(event["type"], event["object"].metadata.name) for event in events] == [("ADDED", "m")]
    machines.patch(
        body={"spec": {"cores": 5}}, name="m", namespace=namespace, content_type="application/merge-patch+json"
    )
    assert machines.get(name="m", namespace=namespace).spec.cores == 5
    machines.delete(name="m", namespace=namespace)
    with pytest.raises(NotFoundError):
        machines.get(name="m", namespace=namespace)


def test_create_from_yaml(namespace: str, tmp_path: Path):
    path = tmp_path / "both.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n---\n"
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: None, ports: [{port: 80}]}\n"
    )
    create_from_yaml(client.ApiClient(), str(path), namespace=namespace)
    assert client.CoreV1Api().read_namespaced_secret("s", namespace).data == {"a": "Yg=="}


def test_leader_election_passes_on(namespace: str):
    led: list[str] = []
    second_leads, first_may_end = threading.Event(), threading.Event()

    def lead(name: str) -> None:
        led.append(name)
        if name == "two":
            second_leads.set()
        else:
            first_may_end.wait(20)
        raise InterruptedError("enough")

    def run(name: str) -> None:
        lock = LeaseLock("leader", namespace, name)
        settings = electionconfig.Config(lock, 4, 3, 1, lambda: lead(name), lambda: None)
        leaderelection.LeaderElection(settings).run()

    one = threading.Thread(target=run, args=("one",))
    one.start()
    while not led:
        one.join(0.05)
    two = threading.Thread(target=run, args=("two",))
    two.start()
    assert not second_leads.wait(1.5), "two leaders at once"
    first_may_end.set()
    assert second_leads.wait(20)
    for thread in (one, two):
        thread.join(20)
    assert led == ["one", "two"]


@pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported")  # kr8s asks which one it talks to
async def test_kr8s(kubectl: Kubectl, namespace: str):
    api = await kr8s.asyncio.api(kubeconfig=str(kubectl.kubeconfig))
    try:
        await use(api, namespace)
    finally:
        assert api._session is not None
        await api._session.aclose()


async def use(api: kr8s.asyncio.Api, namespace: str) -> None:
    assert (await api.version())["major"] == "1"
    assert any(item["kind"] == "Machine" for item in await api.api_resources())
    assert await (await Namespace.get(namespace, api=api)).exists()
    made = await Machine({**machine("m"), "metadata": {"name": "m", "namespace": namespace}}, api=api)
    await made.create()
    await made.label({"tier": "front"})
    await made.patch(
        {"status": {"phase": "Up", "conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status"
    )
    await made.wait("condition=Ready", timeout=10)
    await made.scale(3)
    await made.refresh()
    assert (made.raw["spec"]["replicas"], made.labels["tier"], made.status.phase) == (3, "front", "Up")
    found: Any = api.get("machines.test.anyvisor.io", namespace=namespace, label_selector={"tier": "front"})
    assert [item.name async for item in found] == ["m"]
    cm = await ConfigMap({"metadata": {"name": "c", "namespace": namespace}, "data": {"a": "b"}}, api=api)
    await cm.create()
    await cm.set_owner(made)
    changes: Any = api.watch("configmaps", namespace=namespace, field_selector="metadata.name=c")
    async with aclosing(changes):
        event, item = await anext(changes)
    assert (event, item.name) == ("ADDED", "c")
    await made.delete(propagation_policy="Foreground")
    await cm.wait("delete", timeout=10)
