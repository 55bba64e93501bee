"""`anyvisor review -f vm.yaml`: which hypervisor classes would run a machine, and what would work instead."""

import argparse
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from anyvisor.api.meta import list_at, text_at
from anyvisor.cli import changed, fleet, moving
from anyvisor.cli.api import Api, connect
from anyvisor.cli.main import CommandError
from anyvisor.cli.tables import show

Json = dict[str, Any]
_KINDS = ("VirtualMachine", "VirtualMachineInstance")


def configure(parser: argparse.ArgumentParser) -> None:
    """A manifest, a VM, or every VM that there is."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-f", "--filename", metavar="FILE", help="manifest with a VM or VMI; - is standard input")
    what.add_argument("--vm", metavar="NAME", help="a VM of the instance, as it is and as it runs")
    what.add_argument(
        "--all",
        action="store_true",
        help="every VM of the instance; with --class, which of them could move there, and what each would need",
    )
    parser.add_argument(
        "--changes",
        action="store_true",
        help="with -f: what it changes of a VM that runs, and when that counts",
    )
    parser.add_argument(
        "--move-to",
        metavar="NODE|CLASS",
        help="whether the machine can move there, live or by a stop, and if not, why; node/NAME or class/NAME where "
        "both have the name",
    )
    parser.add_argument("--class", dest="hypervisor", metavar="CLASS", help="this class alone (default: all)")
    parser.add_argument("-n", "--namespace", default="default", help="namespace of the machine (default: default)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 when every machine could run as it is, else 1."""
    api = connect()
    if arguments.all and arguments.hypervisor:
        return _fleet(api, arguments)
    if arguments.changes:
        return _changes(api, arguments)
    if arguments.move_to:
        return _move(api, arguments)
    machines = _machines(api, arguments)
    answers = [(_name(machine), _ask(api, machine, arguments)) for machine in machines]
    if arguments.output == "json":
        import json

        print(json.dumps([{"vm": name, **status} for name, status in answers]))
    else:
        for name, status in answers:
            _print(name, status)
    return 0 if all(status["verdict"] in ("SATISFIED", "DEGRADED") for _, status in answers) else 1


def _changes(api: Api, arguments: argparse.Namespace) -> int:
    """Exit code 0 when all takes effect while the guest runs, else 1."""
    if not arguments.filename:
        raise CommandError("--changes compares a manifest with the VM that there is: name it by -f")
    wanted = [each for each in _manifests(arguments.filename) if each.get("kind") == "VirtualMachine"]
    found = [change for each in wanted for change in changed.changes(api, each, arguments.namespace)]
    if arguments.output == "json":
        import json

        print(json.dumps(changed.as_json(found)))
    elif found:
        show(changed.HEADER, [changed.row(change) for change in found])
    else:
        print("nothing changes")
    return 0 if all(change.effect == "LIVE" for change in found) else 1


def _machines(api: Api, arguments: argparse.Namespace) -> list[Json]:
    if arguments.vm:
        return [moving.existing(api, arguments.namespace, arguments.vm)]
    return _existing(api) if arguments.all else _manifests(arguments.filename)


def _move(api: Api, arguments: argparse.Namespace) -> int:
    """Exit code 0 when each machine can move there in some way, else 1."""
    to = moving.target(api, arguments.move_to)
    machines = [moving.as_it_runs(api, each, arguments.namespace) for each in _machines(api, arguments)]
    answers = [(_name(each), _ask(api, each, arguments, moveTo=to)["move"]) for each in machines]
    if arguments.output == "json":
        import json

        print(json.dumps([{"vm": name, **answer} for name, answer in answers]))
    else:
        show(moving.HEADER, [moving.row(name, answer) for name, answer in answers])
        for name, answer in answers:
            print("".join(f"  {name}: {line}\n" for line in moving.reasons(answer)), end="")
    return 0 if all(answer["how"] != "no" for _, answer in answers) else 1


def _fleet(api: Api, arguments: argparse.Namespace) -> int:
    """Which VMs could move to the class, and what each would need."""
    target: str = arguments.hypervisor
    api.call("GET", f"/apis/anyvisor.io/v1alpha1/hypervisorclasses/{quote(target)}")
    moves = [fleet.move(machine, _ask(api, machine, arguments), target) for machine in _existing(api)]
    if arguments.output == "json":
        import json

        print(json.dumps(fleet.as_json(moves)))
    else:
        show(fleet.HEADER, [each.row for each in moves])
        print(fleet.summary(moves, target))
    return 0 if all(each.verdict in ("already", "as it is") for each in moves) else 1


def _existing(api: Api) -> list[Json]:
    items: list[Json] = api.call("GET", "/apis/kubevirt.io/v1/virtualmachines")["items"]
    return [{**item, "kind": "VirtualMachine"} for item in items]


def _manifests(path: str) -> list[Json]:
    from anyvisor.cli.documents import from_yaml

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        documents = from_yaml(text)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from error
    found = [document for document in documents if document.get("kind") in _KINDS]
    if not found:
        raise CommandError(f"{path} holds neither a VirtualMachine nor a VirtualMachineInstance")
    return found


def _name(machine: Json) -> str:
    return text_at(machine, "metadata", "name") or text_at(machine, "metadata", "generateName") or "machine"


def _ask(api: Api, machine: Json, arguments: argparse.Namespace, **more: Any) -> Json:
    review: Json = {
        "apiVersion": "reviews.anyvisor.io/v1alpha1",
        "kind": "MachineReview",
        "spec": {
            "machine": machine,
            **({"classes": [arguments.hypervisor]} if arguments.hypervisor else {}),
            **more,
        },
    }
    namespace = text_at(machine, "metadata", "namespace") or arguments.namespace
    path = f"/apis/reviews.anyvisor.io/v1alpha1/namespaces/{quote(namespace)}/machinereviews"
    return api.call("POST", path, review)["status"]


def _print(name: str, status: Json) -> None:
    chosen = status.get("class") or "the default class"
    print(f"{name}: {status['verdict']} by {chosen}")
    verdicts = cast("list[Json]", list_at(status, "classes"))
    show(
        ("CLASS", "DRIVER", "VERDICT", "ACCELERATOR", "OVERHEAD", "PROVEN"),
        [
            (
                v["class"],
                v.get("driver", ""),
                v["verdict"],
                v.get("accelerator", ""),
                _size(v.get("overheadBytes", 0)),
                _proven(v),
            )
            for v in verdicts
        ],
    )
    for verdict in verdicts:
        for finding in cast("list[Json]", list_at(verdict, "findings")):
            if finding["severity"] != "info":
                print(f"  {verdict['class']}: {finding['severity']}: {finding['message']}")
    for number, offer in enumerate(cast("list[Json]", list_at(status, "offers")), 1):
        print(f"  offer {number} ({offer['cost']}): {offer['message']}")


def _proven(verdict: Json) -> str:
    """Of what the machine needs, how much a conformance result proves."""
    needed, claimed = len(list_at(verdict, "confirmed")), len(list_at(verdict, "claimed"))
    return f"{needed - claimed} of {needed}" if needed else "-"


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count else "-"
