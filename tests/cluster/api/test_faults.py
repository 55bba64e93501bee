"""What goes wrong around the components: each ends in a clear sentence, and converges without a second machine."""

import base64
import datetime
import json
import signal
import time
from collections.abc import Iterator

import pytest

from anyvisor.cluster import certificates
from anyvisor.cluster.certificates import Names
from tests.cluster.api.objects import audited, create, launchers, once, run, story, vm, wait_running
from tests.cluster.installation import GATEWAY, NAMESPACE, Installation
from tests.cluster.kit.control_plane import ControlPlane
from tests.cluster.simulation import SimulatedNodes

LEASE = "anyvisor-controller"
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:anyvisor-controller"
SILENT_SECONDS = 12.0
"""Longer than a leader may go without a renewal."""


@pytest.fixture(scope="module")
def peopled(nodes: SimulatedNodes) -> Iterator[ControlPlane]:
    """A cluster with nodes; what a test made of it is taken away."""
    yield nodes.plane
    nodes.plane.kubectl("delete", "vm", "--all", "--wait=false")


def holder(plane: ControlPlane) -> str:
    return plane.get("lease", LEASE, NAMESPACE)["spec"].get("holderIdentity", "")


def test_a_frozen_leader_that_wakes_beside_another_one_does_no_harm(
    peopled: ControlPlane, installed: Installation
) -> None:
    plane, names = peopled, [f"frozen-{number}" for number in range(4)]
    leader = holder(plane)
    # Only the holder's own clock counts: a renewal that seems to be of long ago is no reason to take over.
    stale = json.dumps({"spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}})
    installed.start_controller(name="controller-2")
    plane.kubectl("patch", "lease", LEASE, "-n", NAMESPACE, "--type=merge", "-p", stale)
    for name in names:
        assert "created" in create(plane, vm(name, hypervisor="fake", run="Always"))
    assert holder(plane) == leader
    # It is in the midst of its work on them.
    plane.processes.send("controller", signal.SIGSTOP)
    try:
        plane.wait("controller-2", lambda: holder(plane) not in ("", leader))
        wait_running(plane, *names)
    finally:
        plane.processes.send("controller", signal.SIGCONT)
    assert "created" in create(plane, vm("after-waking", hypervisor="fake", run="Always"))
    wait_running(plane, "after-waking", *names)
    once(plane, "after-waking", *names)
    plane.processes.stop("controller-2")
    plane.wait("controller", lambda: holder(plane) == leader)


def test_a_restart_of_the_api_server_in_the_midst_of_starts(peopled: ControlPlane) -> None:
    plane, names = peopled, [f"restarted-{number}" for number in range(4)]
    for name in names:
        assert "created" in create(plane, vm(name, hypervisor="fake", run="Always"))
    plane.processes.kill("apiserver")
    plane.start_apiserver(controllers=True)
    wait_running(plane, *names)
    once(plane, *names)
    assert all(plane.processes.alive(part) for part in ("controller", "gateway", "agents"))


def test_an_api_server_that_does_not_answer_for_a_while(peopled: ControlPlane) -> None:
    plane = peopled
    run(plane, "silent")
    plane.processes.send("apiserver", signal.SIGSTOP)
    try:
        time.sleep(SILENT_SECONDS)  # what passes is what is tested
    finally:
        plane.processes.send("apiserver", signal.SIGCONT)
    plane.wait("apiserver", plane.ready)
    assert "created" in create(plane, vm("after-silence", hypervisor="fake", run="Always"))
    wait_running(plane, "silent", "after-silence")
    once(plane, "silent", "after-silence")


def test_an_api_server_that_refuses_as_too_busy(peopled: ControlPlane) -> None:
    # A level without shares still lets one request in at a time: several machines at once are what it refuses.
    plane, names = peopled, [f"throttled-{number}" for number in range(6)]
    level = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "nothing-at-all"},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    rule = {
        "subjects": [{"kind": "User", "user": {"name": CONTROLLER}}],
        "resourceRules": [
            {
                "verbs": ["create", "patch", "update"],
                "apiGroups": ["", "kubevirt.io"],
                "resources": ["*"],
                "namespaces": ["*"],
                "clusterScope": True,
            }
        ],
    }
    schema = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": "busy"},
        "spec": {
            "matchingPrecedence": 10,
            "priorityLevelConfiguration": {"name": "nothing-at-all"},
            "rules": [rule],
        },
    }

    def refused() -> bool:
        return any(
            entry.get("responseStatus", {}).get("code") == 429 and entry["user"]["username"] == CONTROLLER
            for entry in audited(plane)
        )

    plane.apply(level, schema)
    try:
        # The server takes a flow schema up some time after it has stored it, and tells so by this condition.
        plane.kubectl("wait", "flowschema/busy", "--for=condition=Dangling=False", "--timeout=60s")
        for name in names:
            assert "created" in create(plane, vm(name, hypervisor="fake", run="Always"))
        plane.wait("controller", refused)
    finally:
        plane.kubectl("delete", "flowschema/busy", "prioritylevelconfiguration/nothing-at-all")
    wait_running(plane, *names)
    once(plane, *names)


def test_without_a_gateway_nothing_new_is_taken_and_what_runs_can_be_ended(
    peopled: ControlPlane, installed: Installation
) -> None:
    plane = peopled
    run(plane, "unguarded")
    plane.processes.kill("gateway")
    try:
        said = create(plane, vm("unchecked", hypervisor="fake"))
        assert "failed calling webhook" in said
        assert "anyvisor.io" in said
        plane.kubectl("delete", "vm", "unguarded", "--timeout=120s", seconds=150)
        assert launchers(plane, "unguarded") == []
    finally:
        installed.start_gateway()
    plane.wait("gateway", lambda: "created" in create(plane, vm("checked"), "--dry-run=server"))


def test_an_authority_that_has_ended_is_replaced(peopled: ControlPlane) -> None:
    plane = peopled
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=certificates.AUTHORITY_DAYS + 1)
    ended = certificates.renewed({}, Names(GATEWAY, NAMESPACE), long_ago)
    patch = json.dumps({"data": ended})
    plane.kubectl("patch", "secret", "anyvisor-certificates", "-n", NAMESPACE, "--type=merge", "-p", patch)

    def renewed() -> bool:
        data = plane.get("secret", "anyvisor-certificates", NAMESPACE)["data"]
        return data["authority.crt"] != ended["authority.crt"] and data["gateway.crt"] != ended["gateway.crt"]

    plane.wait("gateway", renewed)
    plane.wait("gateway", lambda: "created" in create(plane, vm("renewed"), "--dry-run=server"))
    trusted = base64.b64decode(plane.get("secret", "anyvisor-agent-tls", NAMESPACE)["data"]["ca.crt"])
    assert trusted
    plane.wait("gateway", lambda: "anyvisor" in plane.kubectl("get", "--raw", VERSION, check=False))


VERSION = "/apis/subresources.kubevirt.io/v1/version"


def test_trust_that_somebody_replaced_is_put_right(peopled: ControlPlane) -> None:
    plane = peopled
    other = certificates.renewed({}, Names("other", "other"), datetime.datetime.now(datetime.UTC))[certificates.BUNDLE]
    wrong = json.dumps([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other}])
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        plane.kubectl("patch", kind, "anyvisor", "--type=json", "-p", wrong)
    service = json.dumps({"spec": {"caBundle": other}})
    plane.kubectl("patch", "apiservice", "v1.subresources.kubevirt.io", "--type=merge", "-p", service)
    plane.wait("gateway", lambda: "created" in create(plane, vm("trusted"), "--dry-run=server"))
    plane.wait("gateway", lambda: "anyvisor" in plane.kubectl("get", "--raw", VERSION, check=False))


def test_a_namespace_that_takes_restricted_pods_only(peopled: ControlPlane) -> None:
    plane = peopled
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
    )
    machine = vm("strict", hypervisor="fake", run="Always")
    machine["metadata"]["namespace"] = "strict"

    def taken() -> bool:
        # A namespace's service account is made a moment after it.
        return plane.has("serviceaccount", "default", "strict")

    plane.wait("controller-manager", taken)
    assert "created" in create(plane, machine)
    plane.wait(
        "controller", lambda: plane.get("vmi", "strict", "strict").get("status", {}).get("phase") == "Running", 180
    )
    plane.kubectl("delete", "vm", "strict", "-n", "strict", "--timeout=120s", seconds=150)


def test_a_claim_without_a_storage_class_is_told_on_the_machine(peopled: ControlPlane) -> None:
    plane = peopled
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "unprovided", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.apply(claim)
    devices = {"disks": [{"name": "data", "disk": {"bus": "virtio"}}]}
    for name, source in (("unprovided", "unprovided"), ("bereft-of-claim", "nowhere")):
        machine = vm(name, hypervisor="fake", run="Always", devices=devices)
        machine["spec"]["template"]["spec"]["volumes"] = [
            {"name": "data", "persistentVolumeClaim": {"claimName": source}}
        ]
        assert "created" in create(plane, machine), story(plane)

    def told(name: str) -> str:
        status = plane.get("vm", name).get("status", {})
        said = [one.get("message", "") for one in status.get("conditions", [])]
        return f"{status.get('printableStatus')}: {' '.join(filter(None, said))}"

    plane.wait("controller", lambda: "nowhere" in told("bereft-of-claim"))
    plane.wait(
        "controller", lambda: any(word in told("unprovided") for word in ("unbound", "unprovided", "WaitingFor"))
    )
    plane.kubectl("delete", "vm", "unprovided", "bereft-of-claim", "--timeout=120s", seconds=150)
