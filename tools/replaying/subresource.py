"""Replays recorded calls on subresources: the call, its answer, its writes and the questions to the node agent."""

import json
from typing import Any, cast

from replaying import worlds

from anyvisor.admission.config import ClusterConfig
from anyvisor.api.meta import Json, kind, labels, object_at, text_at
from anyvisor.gateway.answers import Decision, Refused, Write
from anyvisor.gateway.call import Call, parse_call
from anyvisor.gateway.decide import decide, verb_of
from anyvisor.gateway.relay import relay
from anyvisor.gateway.world import World

PLURALS = {
    "Node": "nodes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "VirtualMachineInstancetype": "virtualmachineinstancetypes",
    "VirtualMachineClusterInstancetype": "virtualmachineclusterinstancetypes",
    "VirtualMachinePreference": "virtualmachinepreferences",
    "VirtualMachineClusterPreference": "virtualmachineclusterpreferences",
}
CLUSTER_SCOPED = {"Node", "VirtualMachineClusterInstancetype", "VirtualMachineClusterPreference"}


def replay(case: Json) -> list[str]:
    """The differences between the recorded outcome and ours; empty when they are equal."""
    given, want = case["in"], case["expect"]
    path, _, query = given["path"].partition("?")
    try:
        call = parse_call(given["method"], path, query, (given.get("body") or "").encode())
    except Refused as refused:
        return _compare(want, refused.decision, [])
    answer = decide(call, _world(case, call))
    asked: list[list[str]] = []
    if answer.agent is not None:
        asked.append([answer.agent.method, f"…/{answer.agent.verb}"])
        answer = _ask(answer, text_at(given, "handler", answer.agent.verb))
    return _compare(want, answer, asked)


def _world(case: Json, call: Call) -> World:
    objects = case["in"]["world"]
    vms, vmis = worlds.of_kind(case, "VirtualMachine"), worlds.of_kind(case, "VirtualMachineInstance")
    vmi = next(iter(vmis), None)
    node = text_at(vmi or {}, "status", "nodeName")
    agents = [one for one in objects if labels(one).get("kubevirt.io") == "virt-handler"]
    others = {_key(one): one for one in objects if one["kind"] in PLURALS}
    world = World(
        vm=next(iter(vms), None),
        vmi=vmi,
        agent=any(text_at(one, "spec", "nodeName") == node for one in agents),
        config=ClusterConfig.of(case["in"].get("config")),
        others=others,
    )
    needed = verb_of(call).needs(call, world)
    return World(world.vm, world.vmi, world.agent, world.config, {key: others[key] for key in needed if key in others})


def _key(one: Json) -> tuple[str, str, str]:
    namespace = "" if one["kind"] in CLUSTER_SCOPED else text_at(one, "metadata", "namespace")
    return (PLURALS[one["kind"]], namespace, text_at(one, "metadata", "name"))


def _ask(decision: Decision, knob: str) -> Decision:
    if knob.isdecimal():
        return relay(decision, int(knob), b"agent says no")
    return relay(decision, 200, knob.encode())


def _compare(want: Json, answer: Decision, asked: list[list[str]]) -> list[str]:
    pairs: list[tuple[str, Any, Any]] = [
        ("status", want["status"], answer.status),
        ("contentType", want["contentType"], answer.content_type),
        ("body", _recorded(want["body"]), _without_sentences(answer.body)),
        ("writes", want["writes"], [_write(one) for one in answer.writes]),
        ("agentCalls", want["agentCalls"], asked),
    ]
    return [one for path, expected, ours in pairs for one in worlds.differences(expected, ours, path)]


def _recorded(body: Any) -> Any:
    """The recorded body; where a websocket was not asked for, its text is a Status behind a line, and ours is that."""
    if isinstance(body, str) and body.startswith("Bad Request\n{"):
        return _without_sentences(json.loads(body.partition("\n")[2]))
    return cast("object", body)


def _without_sentences(body: Any) -> Any:
    if not isinstance(body, dict) or kind(cast("Json", body)) != "Status":
        return cast("object", body)
    status = cast("Json", body)
    details = dict(object_at(status, "details"))
    if "causes" in details:
        details["causes"] = [{} for _ in details["causes"]]
    return {key: value for key, value in status.items() if key != "message"} | {"details": details}


def _write(one: Write) -> Json:
    path = one.resource.path(one.namespace, one.name, one.subresource) + ("?dryRun=All" if one.dry_run else "")
    if one.name is None:
        return {"body": one.body, "method": "POST", "path": path}
    return {"body": one.body, "method": "PATCH", "path": path, "type": "application/json-patch+json"}
