"""Calls as tables, beyond the recorded ones; and hostile input, which must end in an answer."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.admission.config import ClusterConfig
from anyvisor.gateway.answers import Decision, PortForward, Refused, Stream, message_of
from anyvisor.gateway.call import BODY_LIMIT, parse_call
from anyvisor.gateway.decide import VERBS, decide
from anyvisor.gateway.world import World

Json = dict[str, Any]
ROOT = "/apis/subresources.kubevirt.io/v1/namespaces/default"
VM = {"metadata": {"name": "a", "uid": "vm"}, "spec": {"runStrategy": "Always"}, "status": {"created": True}}


def vmi(phase: str = "Running", spec: Json | None = None, **status: Any) -> Json:
    return {"metadata": {"name": "a", "uid": "vmi"}, "spec": spec or {}, "status": {"phase": phase, **status}}


def ask(
    method: str, path: str, world: World, body: object = None, *, upgrade: bool = False, query: str = ""
) -> Decision:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    try:
        call = parse_call(method, f"{ROOT}/{path}", query, raw, upgrade=upgrade)
    except Refused as refused:
        return refused.decision
    return decide(call, world)


@pytest.mark.parametrize(
    ("path", "query", "stream"),
    [
        ("console", "", Stream("console")),
        ("vnc", "preserveSession=true", Stream("vnc", {"preserveSession": "true"})),
        ("vnc", "preserveSession=false", Stream("vnc")),
        ("usbredir", "", Stream("usbredir")),
        ("vsock", "port=22", Stream("vsock", {"port": "22", "tls": "true"})),
        ("vsock", "port=22&tls=false", Stream("vsock", {"port": "22", "tls": "false"})),
        ("portforward/22", "", PortForward(22, "tcp")),
        ("portforward/53/udp", "", PortForward(53, "udp")),
    ],
)
def test_streams(path: str, query: str, stream: Stream | PortForward) -> None:
    spec: Json = {"domain": {"devices": {"clientPassthrough": {}}}}
    run = vmi(spec=spec, VSOCKCID=3, interfaces=[{"ipAddress": "10.0.0.9"}])
    world = World(VM, run, agent=True)
    found = ask("GET", f"virtualmachineinstances/a/{path}", world, upgrade=True, query=query)
    assert (found.status, found.stream) == (101, stream)


@pytest.mark.parametrize(
    ("path", "world", "status", "says"),
    [
        ("console", World(None, vmi()), 400, "no agent"),
        ("console", World(None, vmi(spec={"domain": {"devices": {"autoattachSerialConsole": False}}})), 400, "serial"),
        ("vnc", World(None, vmi(spec={"domain": {"devices": {"autoattachGraphicsDevice": False}}})), 400, "graphics"),
        ("usbredir", World(None, vmi(), agent=True), 409, "USB Redirection"),
        ("vsock", World(None, vmi(), agent=True), 400, "port '' is none"),
        ("portforward/0", World(None, vmi(), agent=True), 400, "from 1 to 65535"),
        ("portforward/70000", World(None, vmi(), agent=True), 400, "from 1 to 65535"),
        ("portforward/22/sctp", World(None, vmi(), agent=True), 400, "tcp or udp"),
        ("portforward/22/tcp/x", World(None, vmi(), agent=True), 400, "must end in"),
        ("portforward/22", World(None, vmi(conditions=[{"type": "Paused", "status": "True"}])), 409, "paused"),
    ],
)
def test_streams_that_are_refused(path: str, world: World, status: int, says: str) -> None:
    found = ask("GET", f"virtualmachineinstances/a/{path}", world, upgrade=True)
    assert found.status == status
    assert says in message_of(found)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("virtualmachines/a/stop", {"gracePeriod": "soon"}, "gracePeriod must be a whole number"),
        ("virtualmachines/a/stop", {"gracePeriod": 2**64}, "gracePeriod must be a whole number"),
        ("virtualmachines/a/start", {"paused": "yes"}, "paused must be true or false"),
        ("virtualmachines/a/start", {"dryRun": "All"}, "dryRun must be"),
        ("virtualmachines/a/start", [1], "the body must be an object"),
        ("virtualmachines/a/start", b"a: &x [1]\nb: *x\n", "anchors and aliases"),
        ("virtualmachines/a/start", b"[" * 100_000, "nested too deeply"),
        ("virtualmachines/a/start", b"{" * 200, "neither JSON nor YAML"),
        ("virtualmachines/a/start", b"\xff\xfe\x00", "neither JSON nor YAML"),
        ("virtualmachines/a/start", b"- a: [" * 100, "neither JSON nor YAML"),
        ("virtualmachines/a/start", b"a:\n- [" + b"[" * 100, "nested too deeply"),
        ("virtualmachines/a/start", b"- a\n" * 100_001, "too large"),
        ("virtualmachines/a/start", b"!!python/object:os.system {}", "neither JSON nor YAML"),
        ("virtualmachines/a/start", b"x" * (BODY_LIMIT + 1), "bytes"),
        ("virtualmachines/a/addvolume", None, "needs a body"),
        ("virtualmachines/a/addvolume", {"name": "v", "disk": []}, "disk must be an object"),
    ],
)
def test_bodies_that_are_wrong_say_what_is(path: str, body: object, says: str) -> None:
    found = ask("PUT", path, World(VM, vmi()), body)
    assert found.status == 400
    assert says in message_of(found)


def test_a_query_with_too_many_parameters_is_refused() -> None:
    assert ask("GET", "virtualmachines/a/start", World(), query="a=1&" * 100).status == 400


@pytest.mark.parametrize("path", ["virtualmachines/../start", "virtualmachines/a%2Fb/start", "virtualmachines/./start"])
def test_a_name_that_is_more_than_one_step_of_a_path_is_no_name(path: str) -> None:
    assert ask("PUT", path, World(VM)).status == 404


def test_a_posted_vm_gets_the_namespace_it_is_expanded_in() -> None:
    vm: Json = {"metadata": {"name": "a"}, "spec": {"template": {"spec": {"domain": {"devices": {}}}}}}
    found = ask("PUT", "expand-vm-spec", World(), vm)
    assert found.status == 200
    assert isinstance(found.body, dict)
    assert found.body["metadata"] == {"name": "a", "namespace": "default"}
    missing = {**vm, "spec": {**vm["spec"], "instancetype": {"name": "none"}}}
    assert ask("PUT", "expand-vm-spec", World(), missing).status == 400
    assert ask("GET", "virtualmachines/a/expand-spec", World({**VM, **missing})).status == 500


def test_yaml_is_taken_like_json() -> None:
    found = ask("PUT", "virtualmachines/a/stop", World(VM, None), b"dryRun: [All]\n")
    assert [write.dry_run for write in found.writes] == [True]


@pytest.mark.parametrize(
    ("spec", "status"),
    [({"running": True, "runStrategy": "Always"}, 500), ({}, 202), ({"runStrategy": "Unheard"}, 202)],
)
def test_strange_run_strategies(spec: Json, status: int) -> None:
    assert ask("PUT", "virtualmachines/a/start", World({**VM, "spec": spec})).status == status


def test_an_empty_list_is_tested_as_the_empty_list_that_it_is() -> None:
    manual: Json = {**VM, "spec": {"runStrategy": "Manual"}, "status": {"stateChangeRequests": []}}
    found = ask("PUT", "virtualmachines/a/start", World(manual))
    path = "/status/stateChangeRequests"
    assert found.writes[0].body == [
        {"op": "test", "path": path, "value": []},
        {"op": "replace", "path": path, "value": [{"action": "Start"}]},
    ]


def test_a_stop_takes_back_the_start_of_a_restart() -> None:
    pending = [{"action": "Stop", "uid": "vmi"}, {"action": "Start"}]
    found = ask("PUT", "virtualmachines/a/stop", World({**VM, "status": {"stateChangeRequests": pending}}, vmi()))
    path = "/status/stateChangeRequests"
    assert [write.body for write in found.writes] == [
        [{"op": "test", "path": path, "value": pending}, {"op": "remove", "path": path}],
        [
            {"op": "test", "path": "/spec/runStrategy", "value": "Always"},
            {"op": "replace", "path": "/spec/runStrategy", "value": "Halted"},
        ],
    ]


@pytest.mark.parametrize(
    ("gates", "status", "says"),
    [((), 400, "needs the feature gate IncrementalBackup"), (("IncrementalBackup",), 400, "not served here yet")],
)
def test_what_is_off_says_how_to_turn_it_on(gates: tuple[str, ...], status: int, says: str) -> None:
    config = ClusterConfig.of({"developerConfiguration": {"featureGates": list(gates)}})
    found = ask("PUT", "virtualmachineinstances/a/backup", World(VM, config=config))
    assert found.status == status
    assert says in message_of(found)


def test_a_drained_node_keeps_its_evacuation() -> None:
    run = vmi(nodeName="n", evacuationNodeName="n")
    node = {"spec": {"taints": [{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]}}
    world = World(VM, run, others={("nodes", "", "n"): node})
    found = ask("PUT", "virtualmachineinstances/a/evacuate/cancel", world)
    assert found.status == 400
    assert "kubevirt.io/drain:NoSchedule" in message_of(found)
    assert ask("PUT", "virtualmachineinstances/a/evacuate/cancel", World(VM, run)).status == 500


def test_volumes_of_a_vms_run_are_changed_at_the_vm() -> None:
    run = vmi()
    run["metadata"]["ownerReferences"] = [{"kind": "VirtualMachine", "name": "a", "controller": True}]
    found = ask("PUT", "virtualmachineinstances/a/removevolume", World(None, run), {"name": "v"})
    assert found.status == 400
    assert "belongs to the VirtualMachine 'a'" in message_of(found)


def test_one_volume_request_at_a_time() -> None:
    config = {"developerConfiguration": {"disabledFeatureGates": ["DeclarativeHotplugVolumes"]}}
    config["developerConfiguration"]["featureGates"] = ["HotplugVolumes"]
    waiting = {"status": {"volumeRequests": [{"addVolumeOptions": {"name": "v"}}]}}
    body = {"name": "v", "disk": {}, "volumeSource": {"dataVolume": {"name": "d"}}}
    world = World({**VM, **waiting}, config=ClusterConfig.of(config))
    found = ask("PUT", "virtualmachines/a/addvolume", world, body)
    assert found.status == 409
    assert "is waiting already" in message_of(found)
    more = ask("PUT", "virtualmachines/a/addvolume", world, {**body, "name": "w"})
    assert [one["op"] for one in more.writes[0].body if isinstance(one, dict)] == ["test", "replace"]


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ({"volumeMode": "Block"}, "filesystem"),
        ({"accessModes": ["ReadOnlyMany"]}, "read only"),
        ({"resources": {"requests": {"storage": "200Mi"}}}, "should be bigger"),
    ],
)
def test_claims_that_cannot_hold_a_dump(claim: Json, says: str) -> None:
    run = vmi(spec={"domain": {"memory": {"guest": "128Mi"}}})
    world = World(VM, run, others={("persistentvolumeclaims", "default", "c"): {"spec": claim}})
    found = ask("PUT", "virtualmachines/a/memorydump", world, {"claimName": "c"})
    assert found.status == 409
    assert says in message_of(found)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
NAMES = st.sampled_from(["metadata", "spec", "status", "name", "dryRun", "phase", "volumes", "disk", "volumeSource"])


@given(
    st.sampled_from(sorted(VERBS)),
    st.dictionaries(NAMES, JSON_VALUES, max_size=4),
    st.dictionaries(NAMES, JSON_VALUES, max_size=4) | st.none(),
    st.dictionaries(NAMES, JSON_VALUES, max_size=4) | st.none(),
    st.booleans(),
)
def test_every_call_ends_in_an_answer(
    verb: tuple[str, str], body: Json, vm: Json | None, run: Json | None, upgrade: bool
) -> None:
    resource, name = verb
    path = f"{resource}/a/{name}".lstrip("/") if resource else name
    found = ask(VERBS[verb].method, path, World(vm, run, agent=True), body, upgrade=upgrade)
    assert 101 <= found.status < 600
    assert found.status < 300 or message_of(found)


def test_a_body_of_garbage_is_told_before_the_state_of_the_machine() -> None:
    for verb in ("pause", "unpause"):
        assert ask("PUT", f"virtualmachineinstances/a/{verb}", World(None, None), b"[1]").status == 400
    assert ask("PUT", "virtualmachines/a/memorydump", World(VM, vmi()), b"[1]").status == 400


def test_a_memory_dump_without_a_body_needs_a_vm_first() -> None:
    assert ask("PUT", "virtualmachines/a/memorydump", World(None, None)).status == 404


def test_a_snapshot_keeps_a_guest_paused_whatever_its_state() -> None:
    vm = {**VM, "status": {"snapshotInProgress": "s"}}
    found = ask("PUT", "virtualmachineinstances/a/unpause", World(vm, vmi("Pending")))
    assert isinstance(found.body, dict)
    assert (found.status, found.body["details"]["kind"]) == (409, "virtualmachine")


def test_a_machine_that_was_handed_over_can_be_reset() -> None:
    found = ask("PUT", "virtualmachineinstances/a/reset", World(None, vmi("Scheduled"), agent=True))
    assert found.agent is not None
    assert ask("PUT", "virtualmachineinstances/a/reset", World(None, vmi("Scheduling"), agent=True)).status == 400


@pytest.mark.parametrize(("body", "tested"), [(None, "n"), ({"evacuationNodeName": "other"}, "other")])
def test_the_evacuation_that_is_cancelled_is_the_one_that_is_named(body: Json | None, tested: str) -> None:
    run = vmi(nodeName="n", evacuationNodeName="n")
    world = World(None, run, others={("nodes", "", "n"): {"metadata": {"name": "n"}}})
    (write,) = ask("PUT", "virtualmachineinstances/a/evacuate/cancel", world, body).writes
    path = "/status/evacuationNodeName"
    assert write.body == [{"op": "test", "path": path, "value": tested}, {"op": "remove", "path": path}]


def test_an_instance_of_somebody_else_is_not_the_vms_to_keep() -> None:
    run = {**vmi(nodeName="n"), "metadata": {"name": "a", "ownerReferences": [{"uid": "another"}]}}
    world = World(VM, run, others={("nodes", "", "n"): {"metadata": {"name": "n"}}})
    assert ask("PUT", "virtualmachines/a/evacuate/cancel", world).status == 500


def test_the_older_way_of_hotplug_goes_first_where_it_is_asked_for() -> None:
    config = ClusterConfig.of({"developerConfiguration": {"featureGates": ["HotplugVolumes"]}})
    body: Json = {"name": "d", "disk": {"disk": {}}, "volumeSource": {"dataVolume": {"name": "v"}}, "dryRun": ["All"]}
    (write,) = ask("PUT", "virtualmachines/a/addvolume", World(VM, None, config=config), body).writes
    assert (write.subresource, write.dry_run) == ("status", True)
    assert isinstance(write.body, list)
    assert write.body[-1]["value"][0]["addVolumeOptions"]["dryRun"] == ["All"]
