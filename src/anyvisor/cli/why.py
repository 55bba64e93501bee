"""`anyvisor why vm/NAME`: the one sentence that tells why a VM does not run, looked for from the object to the VMM."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from anyvisor.api.paths import condition, list_at, object_at, text_at
from anyvisor.cli.api import Api, ApiRefusalError, connect, split_name
from anyvisor.cli.naming import absent

Json = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM and its namespace."""
    parser.add_argument("vm", metavar="VM", help="name of the VM (NAME or vm/NAME)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("--defaults", action="store_true", help="list the values that nobody wrote, with their source")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")


class Chain(NamedTuple):
    """Everything from the object to the VMM that can hold a VM up. Absent objects are None or empty."""

    name: str
    vm: Json | None = None
    vmi: Json | None = None
    pods: Sequence[Json] = ()
    events: Sequence[Json] = ()
    nodes: Sequence[Json] = ()
    disks: Sequence[Json] = ()
    """DataVolumes that fill its disks."""


class Reason(NamedTuple):
    """Where it is held up (`kind/name` of the object, or `nothing`), and the sentence."""

    at: str
    sentence: str


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 when it runs, 1 when not."""
    api = connect()
    chain = _collect(api, arguments.namespace, split_name(arguments.vm))
    if arguments.defaults:
        return _print_defaults(api, chain)
    reason = explain(chain)
    if arguments.output == "json":
        import json

        print(json.dumps({"vm": chain.name, "at": reason.at, "message": reason.sentence}))
    else:
        print(reason.sentence)
    return 0 if reason.at == "nothing" else 1


def _print_defaults(api: Api, chain: Chain) -> int:
    import platform

    from anyvisor.cli.defaults import defaults
    from anyvisor.cli.tables import show

    template = object_at(chain.vm, "spec", "template") if chain.vm is not None else chain.vmi or {}
    settings = api.call("GET", "/apis/kubevirt.io/v1/kubevirts")["items"]
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    show(("FIELD", "VALUE", "SOURCE"), defaults(template, settings[0] if settings else {}, architecture))
    return 0


def _collect(api: Api, namespace: str, name: str) -> Chain:
    found = Chain(
        name, _get(api, api.vm(namespace, name)), _get(api, api.vm(namespace, name, "virtualmachineinstances"))
    )
    if found.vm is None and found.vmi is None:
        raise absent(api, namespace, name)
    core, pods = f"/api/v1/namespaces/{quote(namespace)}", []
    if found.vmi is not None:
        selector = f"kubevirt.io/created-by={found.vmi['metadata']['uid']}"
        pods = api.call("GET", f"{core}/pods", query={"labelSelector": selector})["items"]
    return found._replace(
        pods=pods,
        events=api.call("GET", f"{core}/events", query={"fieldSelector": f"involvedObject.name={name}"})["items"],
        nodes=api.call("GET", "/apis/anyvisor.io/v1alpha1/hypervisornodes")["items"],
        disks=_disks(api, namespace, found) if _phase(found) != "Running" else (),
    )


def _disks(api: Api, namespace: str, chain: Chain) -> list[Json]:
    from anyvisor.cli.filling import path

    template = object_at(chain.vm or {}, "spec", "template", "spec") or object_at(chain.vmi or {}, "spec")
    names = [
        text_at(volume, "dataVolume", "name") or text_at(volume, "persistentVolumeClaim", "claimName")
        for volume in list_at(template, "volumes")
    ]
    found = [_get(api, path(namespace, name)) for name in names if name]
    return [each for each in found if each is not None]


def _get(api: Api, path: str) -> Json | None:
    try:
        return api.call("GET", path)
    except ApiRefusalError as refusal:
        if refusal.status == 404:
            return None
        raise


def explain(chain: Chain) -> Reason:
    """The first thing on the way from the object to the VMM that is not as it should be."""
    for step in (_deleting, _halted, _running, _filling, _conditions, _pod, _final, _failures):
        reason = step(chain)
        if reason is not None:
            return reason
    return Reason(f"vmi/{chain.name}", f"VM {chain.name} is starting: {_phase(chain) or 'no instance yet'}.")


def _phase(chain: Chain) -> str:
    return text_at(chain.vmi or {}, "status", "phase")


def _sentence(subject: str, text: str) -> str:
    return f"{subject}: {text.strip().rstrip('.')}."


def _deleting(chain: Chain) -> Reason | None:
    obj, kind = (chain.vm, "vm") if chain.vm is not None else (chain.vmi, "vmi")
    if obj is not None and "deletionTimestamp" in obj["metadata"]:
        waits = ", ".join(obj["metadata"].get("finalizers") or []) or "nothing"
        return Reason(f"{kind}/{chain.name}", f"VM {chain.name} is being deleted, and waits for: {waits}.")
    return None


def _halted(chain: Chain) -> Reason | None:
    if chain.vm is None or chain.vmi is not None:
        return None
    strategy = chain.vm.get("spec", {}).get("runStrategy") or (
        "Always" if chain.vm.get("spec", {}).get("running") else "Halted"
    )
    if strategy in ("Halted", "Manual") and not chain.vm.get("status", {}).get("stateChangeRequests"):
        return Reason(
            f"vm/{chain.name}",
            f"VM {chain.name} is stopped by its own run strategy {strategy}: `anyvisor start {chain.name}` starts it.",
        )
    return None


def _running(chain: Chain) -> Reason | None:
    if _phase(chain) != "Running":
        return None
    paused = condition(chain.vmi or {}, "Paused")
    if paused is not None and paused.get("status") == "True":
        text = paused.get("message") or paused.get("reason") or "paused"
        return Reason(f"vmi/{chain.name}", _sentence(f"VM {chain.name} is paused", text))
    status = object_at(chain.vmi or {}, "status")
    chosen, accelerator = text_at(status, "hypervisor", "class"), text_at(status, "hypervisor", "accelerator")
    how = f", class {chosen} ({accelerator})" if chosen and accelerator else ""
    return Reason("nothing", f"VM {chain.name} runs on node {status.get('nodeName', '?')}{how}.")


def _filling(chain: Chain) -> Reason | None:
    """A disk that is not filled yet."""
    from anyvisor.cli.filling import told

    for volume in chain.disks:
        name, phase = volume["metadata"]["name"], text_at(volume, "status", "phase")
        if phase == "Failed":
            return Reason(f"datavolume/{name}", _sentence(f"VM {chain.name} has no disk {name}", told(volume)))
        if phase != "Succeeded":
            return Reason(f"datavolume/{name}", _sentence(f"VM {chain.name} waits for its disk {name}", told(volume)))
    return None


def _conditions(chain: Chain) -> Reason | None:
    """A condition that speaks of a failure, on the instance before the VM."""
    for obj, kind in ((chain.vmi, "vmi"), (chain.vm, "vm")):
        for name, bad in (("Synchronized", "False"), ("Failure", "True"), ("PodScheduled", "False")):
            found = condition(obj or {}, name)
            if found is not None and found.get("status") == bad:
                text = found.get("message") or found.get("reason") or name
                return Reason(f"{kind}/{chain.name}", _sentence(f"VM {chain.name} does not run", text))
    return None


def _pod(chain: Chain) -> Reason | None:
    for pod in chain.pods:
        name, status = pod["metadata"]["name"], pod.get("status", {})
        scheduled = condition(pod, "PodScheduled")
        if scheduled is not None and scheduled.get("status") == "False":
            text = scheduled.get("message") or "no node fits"
            return Reason(f"pod/{name}", _sentence(f"VM {chain.name} waits for a node", text))
        if status.get("phase") == "Failed" and status.get("message"):
            return Reason(f"pod/{name}", _sentence(f"The launcher of VM {chain.name} failed", status["message"]))
        for container in cast("list[Json]", list_at(pod, "status", "containerStatuses")):
            waiting = text_at(container, "state", "waiting", "message")
            if waiting:
                return Reason(f"pod/{name}", _sentence(f"The launcher of VM {chain.name} waits", waiting))
    return None


def _final(chain: Chain) -> Reason | None:
    phase = _phase(chain)
    if phase not in ("Succeeded", "Failed"):
        return None
    text = _last_warning(chain) or (chain.vmi or {})["status"].get("reason") or f"the last run ended as {phase}"
    return Reason(f"vmi/{chain.name}", _sentence(f"VM {chain.name} does not run", text))


def _failures(chain: Chain) -> Reason | None:
    failure = object_at(chain.vm or {}, "status", "startFailure")
    if chain.vmi is None and failure.get("consecutiveFailCount"):
        after = failure.get("retryAfterTimestamp", "soon")
        text = _last_warning(chain) or "its runs ended before the guest started"
        return Reason(
            f"vm/{chain.name}",
            _sentence(f"VM {chain.name} failed {failure['consecutiveFailCount']} times, tried again at {after}", text),
        )
    if chain.vmi is None or not _phase(chain):
        warning = _last_warning(chain)
        if warning:
            return Reason(f"vm/{chain.name}", _sentence(f"VM {chain.name} does not run", warning))
    unhealthy = [
        f"{node['metadata']['name']}: {driver.get('driver')}: {driver.get('message') or 'not healthy'}"
        for node in chain.nodes
        for driver in cast("list[Json]", list_at(node, "status", "drivers"))
        if not driver.get("healthy")
    ]
    if unhealthy:
        return Reason("hypervisornode", _sentence(f"VM {chain.name} waits for a driver", "; ".join(unhealthy[:3])))
    return None


def _last_warning(chain: Chain) -> str:
    warnings = [event for event in chain.events if event.get("type") == "Warning" and event.get("message")]
    warnings.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return str(warnings[-1]["message"]) if warnings else ""
