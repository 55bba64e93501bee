"""Which EndpointSlices a Service gets from which pods."""

from typing import Any

from anyvisor.embedded.services.endpoints import SERVICE_LABEL, selects, slices

Json = dict[str, Any]


def service(**spec: Any) -> Json:
    return {
        "metadata": {"name": "web", "namespace": "lab", "uid": "s-1", "labels": {"team": "a"}},
        "spec": {"clusterIP": "10.96.0.5", "selector": {"app": "web"}, "ports": [port(80, 8080)], **spec},
    }


def port(number: int, target: int | str, name: str = "") -> Json:
    return {"name": name, "port": number, "targetPort": target, "protocol": "TCP"}


def pod(name: str, ip: str, ready: bool = True, ports: list[Json] | None = None, **more: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "lab", "uid": name, **more.pop("metadata", {})},
        "spec": {"nodeName": "node-1", "containers": [{"name": "compute", "ports": ports or []}], **more},
        "status": {
            "podIP": ip,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def test_a_selector_selects_by_all_its_labels_and_an_empty_one_nothing() -> None:
    assert selects({"a": "1"}, {"a": "1", "b": "2"})
    assert not selects({"a": "1", "b": "3"}, {"a": "1", "b": "2"})
    assert not selects({}, {"a": "1"})


def test_the_pods_addresses_with_the_services_ports() -> None:
    [found] = slices(service(), [pod("b", "10.64.0.3"), pod("a", "10.64.0.2", ready=False)])
    assert found["metadata"]["labels"][SERVICE_LABEL] == "web"
    assert found["metadata"]["labels"]["team"] == "a"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "s-1"
    assert found["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert [(e["addresses"], e["conditions"]["ready"], e["targetRef"]["name"]) for e in found["endpoints"]] == [
        (["10.64.0.2"], False, "a"),
        (["10.64.0.3"], True, "b"),
    ]


def test_a_pod_that_ends_still_serves_but_is_not_ready() -> None:
    [found] = slices(service(), [pod("a", "10.64.0.2", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})])
    assert found["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}


def test_who_publishes_those_that_are_not_ready() -> None:
    [found] = slices(service(publishNotReadyAddresses=True), [pod("a", "10.64.0.2", ready=False)])
    assert found["endpoints"][0]["conditions"]["ready"] is True


def test_finished_pods_and_those_without_an_address_are_left_out() -> None:
    done = pod("a", "10.64.0.2")
    done["status"]["phase"] = "Succeeded"
    assert slices(service(), [done, pod("b", "")]) == []


def test_a_port_by_name_is_each_pods_own() -> None:
    named = service(ports=[port(80, "http", "web")])
    ports = [{"name": "http", "containerPort": number, "protocol": "TCP"} for number in (8080, 9090)]
    first, second = pod("a", "10.64.0.2", ports=[ports[0]]), pod("b", "10.64.0.3", ports=[ports[1]])
    found = slices(named, [first, second])
    assert sorted((s["ports"][0]["port"], s["endpoints"][0]["targetRef"]["name"]) for s in found) == [
        (8080, "a"),
        (9090, "b"),
    ]
    assert len({s["metadata"]["name"] for s in found}) == 2
    [without] = slices(named, [pod("c", "10.64.0.4")])
    assert without["ports"] == []


def test_hostnames_belong_to_the_service_of_the_subdomains_name() -> None:
    [found] = slices(
        service(clusterIP="None"),
        [
            pod("a", "10.64.0.2", hostname="one", subdomain="web"),
            pod("b", "10.64.0.3", hostname="two", subdomain="other"),
        ],
    )
    assert [e.get("hostname") for e in found["endpoints"]] == ["one", None]
    assert found["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


def test_many_pods_need_more_slices() -> None:
    found = slices(service(), [pod(f"p{number:03}", f"10.64.0.{number}") for number in range(2, 152)])
    assert [len(each["endpoints"]) for each in found] == [100, 50]
    assert len({each["metadata"]["name"] for each in found}) == 2
