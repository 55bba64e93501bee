"""The chart and the plain manifest are the same, and what they ask for is the least that works."""

from typing import Any

import pytest
import yaml

from anyvisor.embedded.roles import roles
from tools import installmanifest

Json = dict[str, Any]
DOCUMENTS: list[Json] = [one for one in yaml.safe_load_all(installmanifest.MANIFEST.read_text()) if one]
POD_KINDS = ("DaemonSet", "Deployment")


def pods() -> list[Json]:
    return [one["spec"]["template"]["spec"] for one in DOCUMENTS if one["kind"] in POD_KINDS]


def named(kind: str, name: str) -> Json:
    return next(one for one in DOCUMENTS if one["kind"] == kind and one["metadata"]["name"] == name)


@pytest.fixture(scope="module")
def helm() -> str:
    found = installmanifest.find_helm()
    if found is None:
        pytest.skip("helm is neither on the PATH nor in the cache")
    return found


def test_the_manifest_is_what_the_chart_makes(helm: str) -> None:
    current = installmanifest.render(helm) == installmanifest.MANIFEST.read_text()
    assert current, "deploy/anyvisor-install.yaml is stale: run `make generated`"


def test_the_manifest_has_the_definitions_as_they_are() -> None:
    """Also where helm is not there to render it."""
    made = {one["metadata"]["name"]: one for one in DOCUMENTS if one["kind"] == "CustomResourceDefinition"}
    wanted: dict[str, Json] = {
        path.stem: yaml.load(path.read_text(), yaml.CSafeLoader)
        for path in (installmanifest.ROOT / "deploy" / "crds").glob("*.yaml")
    }
    stale = sorted(name for name in made.keys() | wanted.keys() if made.get(name) != wanted.get(name))
    assert stale == [], "deploy/anyvisor-install.yaml is stale: run `make generated`"


def test_optional_parts_can_be_switched(helm: str) -> None:
    text = installmanifest.render(
        helm, "monitoring.enabled=true", "networkPolicies=false", "priorityClass.create=false"
    )
    kinds = {one["kind"] for one in yaml.safe_load_all(text) if one}
    assert {"ServiceMonitor", "PrometheusRule"} <= kinds
    assert kinds.isdisjoint({"NetworkPolicy", "PriorityClass"})
    assert {one["kind"] for one in DOCUMENTS}.isdisjoint({"ServiceMonitor", "PrometheusRule"})


def test_a_certificate_that_somebody_else_makes_is_read_by_the_gateway_and_by_nobody_else(helm: str) -> None:
    text = installmanifest.render(helm, "certificates.gatewaySecret=theirs")
    listed: list[Json] = [one for one in yaml.safe_load_all(text) if one]
    (gateway,) = (
        one for one in listed if one["kind"] == "Deployment" and one["metadata"]["name"] == "anyvisor-gateway"
    )
    assert "--certificate-secret=theirs" in gateway["spec"]["template"]["spec"]["containers"][0]["args"]
    readers = {
        one["metadata"]["name"]: rule["verbs"]
        for one in listed
        if one["kind"] in ("ClusterRole", "Role")
        for rule in one.get("rules") or ()
        if "theirs" in rule.get("resourceNames", ())
    }
    assert readers == {"anyvisor-gateway": ["get", "list", "watch"]}


def test_helm_leaves_a_driver_that_machines_may_run_on() -> None:
    drivers = [one for one in DOCUMENTS if one["metadata"]["name"].startswith("anyvisor-driver-")]
    assert drivers
    assert all(one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for one in drivers)


def test_prometheus_gets_the_alerts_as_they_are_written(helm: str) -> None:
    text = installmanifest.render(helm, "monitoring.enabled=true")
    (rules,) = (one for one in yaml.safe_load_all(text) if one and one["kind"] == "PrometheusRule")
    made: list[Json] = rules["spec"]["groups"][0]["rules"]
    shared: list[Json] = yaml.safe_load((installmanifest.ROOT / "deploy" / "alerts.yaml").read_text())["groups"][0][
        "rules"
    ]
    own: list[Json] = yaml.safe_load((installmanifest.CHART / "alerts.yaml").read_text())
    wanted = [rule for rule in (*shared, *own) if rule["alert"] != "AnyvisorRefusesRequests"]
    assert made == wanted


def test_only_scrapers_and_the_gateway_reach_what_is_not_for_the_api_server(helm: str) -> None:
    assert named("NetworkPolicy", "anyvisor-controller")["spec"]["ingress"] is None
    text = installmanifest.render(helm, "monitoring.enabled=true")
    policies = {
        one["metadata"]["name"]: one for one in yaml.safe_load_all(text) if one and one["kind"] == "NetworkPolicy"
    }
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    (rule,) = policies["anyvisor-controller"]["spec"]["ingress"]
    assert rule == {"from": [monitoring], "ports": [{"port": "metrics"}]}
    assert policies["anyvisor-agent"]["spec"]["ingress"][1] == {"from": [monitoring], "ports": [{"port": "https"}]}


@pytest.mark.parametrize("name", ["controller", "gateway"])
def test_what_may_run_twice_is_spread_and_kept_while_nodes_are_drained(name: str) -> None:
    deployment = named("Deployment", f"anyvisor-{name}")["spec"]
    assert deployment["replicas"] == 2
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert named("PodDisruptionBudget", f"anyvisor-{name}")["spec"]["maxUnavailable"] == 1
    (container,) = deployment["template"]["spec"]["containers"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    assert (
        deployment["template"]["spec"]["priorityClassName"]
        == named("PriorityClass", "anyvisor-components")["metadata"]["name"]
    )


def test_no_container_is_privileged_and_only_the_agent_has_capabilities() -> None:
    for pod in pods():
        agent = pod["serviceAccountName"] == "anyvisor-agent"
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.get("hostPID", False) is agent
        assert not pod.get("hostNetwork")
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"]["drop"] == ["ALL"]
            assert not context.get("privileged")
            assert bool(context["capabilities"].get("add")) is agent


def test_users_have_the_same_rights_as_on_one_machine() -> None:
    for role in roles():
        made = named(role["kind"], role["metadata"]["name"])
        for field in ("rules", "roleRef", "subjects"):
            assert made.get(field) == role.get(field), role["metadata"]["name"]


def test_a_driver_has_neither_rights_nor_a_token_nor_a_network() -> None:
    bound = {subject["name"] for one in DOCUMENTS if one["kind"].endswith("RoleBinding") for subject in one["subjects"]}
    assert "anyvisor-driver" not in bound
    drivers = [pod for pod in pods() if pod["serviceAccountName"] == "anyvisor-driver"]
    assert drivers
    assert all(pod["automountServiceAccountToken"] is False for pod in drivers)
    assert not any("hostPath" in volume for pod in drivers for volume in pod["volumes"])
    assert named("NetworkPolicy", "anyvisor-driver")["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_the_agent_may_not_read_secrets_and_nobody_has_all_rights() -> None:
    for one in DOCUMENTS:
        if one["kind"] not in ("ClusterRole", "Role"):
            continue
        for rule in one.get("rules") or ():
            assert "*" not in rule["verbs"], one["metadata"]["name"]
            assert "*" not in rule["apiGroups"], one["metadata"]["name"]
            if "secrets" in rule["resources"]:
                assert (one["kind"], one["metadata"]["name"]) == ("Role", "anyvisor-gateway")


def test_no_webhook_stands_in_the_way_of_our_own_start() -> None:
    hooks = [hook for one in DOCUMENTS if one["kind"].endswith("WebhookConfiguration") for hook in one["webhooks"]]
    failing = [hook for hook in hooks if hook["failurePolicy"] == "Fail"]
    groups = {group for hook in failing for rule in hook["rules"] for group in rule["apiGroups"]}
    assert groups == {"kubevirt.io", "instancetype.kubevirt.io"}
    assert all(hook["sideEffects"] in ("None", "NoneOnDryRun") for hook in hooks)


def test_what_components_change_themselves_needs_no_gateway() -> None:
    hooks = [hook for one in DOCUMENTS if one["kind"].endswith("WebhookConfiguration") for hook in one["webhooks"]]
    for hook in hooks:
        if hook["failurePolicy"] == "Fail":
            (condition,) = hook["matchConditions"]
            assert "request.operation == 'UPDATE'" in condition["expression"]
            for account in ("anyvisor:anyvisor-controller", "anyvisor:anyvisor-agent"):
                assert f"'system:serviceaccount:{account}'" in condition["expression"]


def test_agents_are_held_to_their_node_by_the_api_server_itself() -> None:
    policy = named("ValidatingAdmissionPolicy", "anyvisor-agent-node")["spec"]
    assert policy["failurePolicy"] == "Fail"
    held = {resource for rule in policy["matchConstraints"]["resourceRules"] for resource in rule["resources"]}
    assert held == {
        *("nodes", "nodes/status", "pods", "pods/status"),
        *("hypervisornodes", "hypervisornodes/status", "virtualmachineinstances"),
    }
    agent = named("ClusterRole", "anyvisor-agent")["rules"]
    writes = {"create", "delete", "patch", "update", "deletecollection"}
    written = {resource for rule in agent if writes & set(rule["verbs"]) for resource in rule["resources"]}
    assert written - held == {"virtualmachineinstancemigrations", "events"}
