"""What goes wrong around the components: each ends in a clear sentence, and converges without a second machine."""

import base64
import datetime
import json
import signal
import ssl
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection

import pytest

from anyvisor.cluster import certificates
from anyvisor.cluster.certificates import Names
from tests.cluster.api.objects import audited, create, fresh, launchers, make, once, run, vm, wait_running
from tests.cluster.installation import GATEWAY, NAMESPACE, Installation
from tests.cluster.kit.authority import Authority
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


def running(plane: ControlPlane, *names: str) -> None:
    """Have machines that are to run."""
    for name in names:
        make(plane, vm(name, hypervisor="fake", run="Always"))


def test_a_frozen_leader_that_wakes_beside_another_one_does_no_harm(
    peopled: ControlPlane, installed: Installation
) -> None:
    plane, names, later = peopled, [fresh("frozen") for _ in range(4)], fresh("after-waking")
    plane.wait("controller", lambda: holder(plane) != "")
    leader = holder(plane)
    # Only the holder's own clock counts: a renewal that seems to be of long ago is no reason to take over.
    stale = json.dumps({"spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}})
    installed.start_controller(name="controller-2")
    try:
        plane.kubectl("patch", "lease", LEASE, "-n", NAMESPACE, "--type=merge", "-p", stale)
        running(plane, *names)
        assert holder(plane) == leader
        # It is in the midst of its work on them.
        plane.processes.send("controller", signal.SIGSTOP)
        try:
            plane.wait("controller-2", lambda: holder(plane) not in ("", leader))
            wait_running(plane, *names)
        finally:
            plane.processes.send("controller", signal.SIGCONT)
        running(plane, later)
        wait_running(plane, later, *names)
        once(plane, later, *names)
    finally:
        plane.processes.stop("controller-2")
    plane.wait("controller", lambda: holder(plane) == leader)


def test_a_restart_of_the_api_server_in_the_midst_of_starts(peopled: ControlPlane) -> None:
    plane, names = peopled, [fresh("restarted") for _ in range(4)]
    running(plane, *names)
    plane.processes.kill("apiserver")
    plane.start_apiserver(controllers=True)
    wait_running(plane, *names)
    once(plane, *names)
    assert all(plane.processes.alive(part) for part in ("controller", "gateway", "agents"))


def test_an_api_server_that_does_not_answer_for_a_while(peopled: ControlPlane) -> None:
    plane, before, after = peopled, fresh("silent"), fresh("after-silence")
    run(plane, before)
    plane.processes.send("apiserver", signal.SIGSTOP)
    try:
        time.sleep(SILENT_SECONDS)  # what passes is what is tested
    finally:
        plane.processes.send("apiserver", signal.SIGCONT)
    plane.wait("apiserver", plane.ready)
    running(plane, after)
    wait_running(plane, before, after)
    once(plane, before, after)


@contextmanager
def seat_taken(plane: ControlPlane, user: str) -> Generator[None]:
    """A request of a user is under way: its body never comes, so that it holds the one seat that its level has."""
    context = ssl.create_default_context(cafile=str(plane.pki / "ca.crt"))
    context.load_cert_chain(plane.pki / "admin.crt", plane.pki / "admin.key")
    connection = HTTPSConnection("127.0.0.1", plane.api_port, context=context, timeout=60)
    try:
        connection.putrequest("POST", "/api/v1/namespaces/default/configmaps")
        for header, value in (
            ("Content-Type", "application/json"),
            ("Content-Length", "100"),
            ("Impersonate-User", user),
            *(("Impersonate-Group", group) for group in ("system:serviceaccounts", "system:authenticated")),
        ):
            connection.putheader(header, value)
        connection.endheaders()
        yield
    finally:
        connection.close()


def test_an_api_server_that_refuses_as_too_busy(peopled: ControlPlane) -> None:
    plane, name = peopled, fresh("throttled")
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
            for entry in audited(plane, '"code":429')
        )

    plane.apply(level, schema)
    try:
        # The server takes a flow schema up some time after it has stored it, and tells so by this condition.
        plane.kubectl("wait", "flowschema/busy", "--for=condition=Dangling=False", "--timeout=180s", seconds=240)
        # A level without shares still lets one request in.
        with seat_taken(plane, CONTROLLER):
            running(plane, name)
            plane.wait("controller", refused)
    finally:
        plane.kubectl("delete", "flowschema/busy", "prioritylevelconfiguration/nothing-at-all")
    wait_running(plane, name)
    once(plane, name)


def test_without_a_gateway_nothing_new_is_taken_and_what_runs_can_be_ended(
    peopled: ControlPlane, installed: Installation
) -> None:
    plane, name = peopled, fresh("unguarded")
    run(plane, name)
    plane.processes.kill("gateway")
    try:
        said = create(plane, vm(fresh("unchecked"), hypervisor="fake"))
        assert "failed calling webhook" in said
        assert "anyvisor.io" in said
        plane.kubectl("delete", "vm", name, "--timeout=240s", seconds=300)
        plane.wait("controller", lambda: launchers(plane, name) == [])
    finally:
        installed.start_gateway()
    plane.wait("gateway", lambda: admits(plane))


def admits(plane: ControlPlane) -> bool:
    """Whether the webhooks are asked and answer."""
    return "created" in create(plane, vm("checked"), "--dry-run=server")


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
    plane.wait("gateway", lambda: admits(plane))
    trusted = base64.b64decode(plane.get("secret", "anyvisor-agent-tls", NAMESPACE)["data"]["ca.crt"])
    assert trusted
    plane.wait("gateway", lambda: "anyvisor" in plane.kubectl("get", "--raw", VERSION, check=False))


VERSION = "/apis/subresources.kubevirt.io/v1/version"


def test_trust_that_somebody_replaced_is_put_right(peopled: ControlPlane) -> None:
    plane = peopled
    other = certificates.renewed({}, Names("other", "other"), datetime.datetime.now(datetime.UTC))[certificates.BUNDLE]
    wrong = json.dumps([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other}])
    kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    for kind in kinds:
        plane.kubectl("patch", kind, "anyvisor", "--type=json", "-p", wrong)
    service = json.dumps({"spec": {"caBundle": other}})
    plane.kubectl("patch", "apiservice", "v1.subresources.kubevirt.io", "--type=merge", "-p", service)

    def right() -> bool:
        found = [plane.get(kind, "anyvisor") for kind in kinds]
        return all(hook["clientConfig"]["caBundle"] != other for one in found for hook in one["webhooks"])

    plane.wait("gateway", right)
    plane.wait("gateway", lambda: admits(plane))
    plane.wait("gateway", lambda: "anyvisor" in plane.kubectl("get", "--raw", VERSION, check=False))


def issued(plane: ControlPlane, secret: str) -> str:
    """Have another authority make the gateway's certificate, as a certificate manager does; its bundle."""
    place = plane.place / fresh("elsewhere")
    place.mkdir()
    authority = Authority(place, "ca")
    authority.create()
    authority.issue("tls", "gateway", hosts=[f"{GATEWAY}.{NAMESPACE}.svc", "localhost"])
    data = {name: base64.b64encode((place / name).read_bytes()).decode() for name in ("ca.crt", "tls.crt", "tls.key")}
    metadata = {"name": secret, "namespace": NAMESPACE}
    plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data})
    return data["ca.crt"]


def trusted(plane: ControlPlane) -> set[str]:
    """The bundles by which the API server knows the gateway."""
    hooks = [
        hook["clientConfig"]["caBundle"]
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
        for hook in plane.get(kind, "anyvisor")["webhooks"]
    ]
    return {*hooks, plane.get("apiservice", "v1.subresources.kubevirt.io")["spec"]["caBundle"]}


def test_a_certificate_that_somebody_else_makes_and_renews(peopled: ControlPlane, installed: Installation) -> None:
    plane, secret = peopled, fresh("theirs")
    # As the chart allows it where its values name the Secret.
    reader = f"{secret}-reader"
    plane.kubectl(
        "create", "role", reader, "-n", NAMESPACE, "--verb=get,list,watch", "--resource=secrets",
        f"--resource-name={secret}",
    )  # fmt: skip
    account = f"--serviceaccount={NAMESPACE}:{GATEWAY}"
    plane.kubectl("create", "rolebinding", reader, "-n", NAMESPACE, f"--role={reader}", account)
    can = (
        "auth",
        "can-i",
        "watch",
        f"secrets/{secret}",
        "-n",
        NAMESPACE,
        f"--as=system:serviceaccount:{NAMESPACE}:{GATEWAY}",
    )
    plane.wait("apiserver", lambda: plane.kubectl(*can, check=False).strip() == "yes")
    plane.processes.kill("gateway")
    try:
        bundle = issued(plane, secret)
        installed.start_gateway(f"--certificate-secret={secret}")
        plane.wait("gateway", lambda: trusted(plane) == {bundle})
        plane.wait("gateway", lambda: admits(plane))
        plane.wait("gateway", lambda: "anyvisor" in plane.kubectl("get", "--raw", VERSION, check=False))
        renewed = issued(plane, secret)
        plane.wait("gateway", lambda: trusted(plane) == {renewed})
        plane.wait("gateway", lambda: admits(plane))
        plane.kubectl("delete", "secret", secret, "-n", NAMESPACE)
        plane.wait("gateway", lambda: f"Secret {NAMESPACE}/{secret}: there is none" in plane.processes.tail("gateway"))
        assert admits(plane), "what was read stays in use"
    finally:
        plane.processes.stop("gateway")
        installed.start_gateway()
    plane.wait("gateway", lambda: renewed not in trusted(plane))
    plane.wait("gateway", lambda: admits(plane))
    plane.wait("gateway", lambda: "anyvisor" in plane.kubectl("get", "--raw", VERSION, check=False))


def test_a_namespace_that_takes_restricted_pods_only(peopled: ControlPlane) -> None:
    plane, name = peopled, fresh("strict")
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
    )
    machine = vm(name, hypervisor="fake", run="Always")
    machine["metadata"]["namespace"] = name
    # A namespace's service account is made a moment after it.
    plane.wait("controller-manager", lambda: plane.has("serviceaccount", "default", name))
    make(plane, machine)
    plane.wait("controller", lambda: plane.get("vmi", name, name).get("status", {}).get("phase") == "Running", 300)
    plane.kubectl("delete", "vm", name, "-n", name, "--timeout=180s", seconds=240)


def test_a_claim_without_a_storage_class_is_told_on_the_machine(peopled: ControlPlane) -> None:
    plane, unprovided, nowhere = peopled, fresh("unprovided"), fresh("nowhere")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": unprovided, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.apply(claim)
    devices = {"disks": [{"name": "data", "disk": {"bus": "virtio"}}]}
    for name in (unprovided, nowhere):
        machine = vm(name, hypervisor="fake", run="Always", devices=devices)
        machine["spec"]["template"]["spec"]["volumes"] = [
            {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        ]
        make(plane, machine)

    def told(name: str) -> str:
        status = plane.get("vm", name).get("status", {})
        said = [one.get("message", "") for one in status.get("conditions", [])]
        return f"{status.get('printableStatus')}: {' '.join(filter(None, said))}"

    plane.wait("controller", lambda: nowhere in told(nowhere))
    plane.wait("controller", lambda: any(word in told(unprovided) for word in ("unbound", unprovided, "WaitingFor")))
    plane.kubectl("delete", "vm", unprovided, nowhere, "--timeout=180s", seconds=240)
