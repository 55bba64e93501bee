"""`review --move-to`: what a person reads, and which of a node and a class is meant."""

from typing import Any, cast

import pytest

from anyvisor.cli import moving
from anyvisor.cli.api import Api, ApiRefusalError
from anyvisor.cli.main import CommandError

Json = dict[str, Any]
GROUP = "/apis/anyvisor.io/v1alpha1"
RUNS = "/apis/kubevirt.io/v1/namespaces/default"


class Served:
    """An API that has these objects, by path."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def call(self, _method: str, path: str, _body: Any = None) -> Json:
        if path not in self._paths:
            raise ApiRefusalError(404, f"{path} is not there")
        return {"metadata": {"name": path.rpartition("/")[2]}}


def api(*paths: str) -> Api:
    return cast("Api", Served(*paths))


NODE, CLASS = f"{GROUP}/hypervisornodes/n1", f"{GROUP}/hypervisorclasses/qemu"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("n1", {"node": "n1"}),
        ("qemu", {"class": "qemu"}),
        ("class/n1", {"class": "n1"}),
        ("node/other", {"node": "other"}),
    ],
)
def test_a_target_by_its_name(named: str, expected: Json) -> None:
    assert moving.target(api(NODE, CLASS), named) == expected


def test_a_target_that_is_two_things_or_none() -> None:
    both = api(NODE, f"{GROUP}/hypervisorclasses/n1")
    with pytest.raises(CommandError, match="node/n1 or class/n1"):
        moving.target(both, "n1")
    with pytest.raises(CommandError, match="neither a node nor a class 'x'"):
        moving.target(both, "x")


def test_what_runs_is_what_moves() -> None:
    vm: Json = {"kind": "VirtualMachine", "metadata": {"name": "vm"}}
    assert moving.as_it_runs(api(f"{RUNS}/virtualmachineinstances/vm"), vm, "default")["kind"] == (
        "VirtualMachineInstance"
    )
    assert moving.as_it_runs(api(), vm, "default") == vm
    assert moving.existing(api(f"{RUNS}/virtualmachines/vm"), "default", "vm")["kind"] == "VirtualMachine"
    with pytest.raises(CommandError, match="no VM 'vm' in default"):
        moving.existing(api(), "default", "vm")


FINDINGS = [
    {"bars": "cold", "message": "no room"},
    {"bars": "live", "message": "not shared"},
    {"bars": "nothing", "message": "another address"},
]


@pytest.mark.parametrize(
    ("how", "shown", "lines"),
    [
        ("live", "while it runs", 3),
        ("cold", "by a stop and a start", 3),
        ("no", "no", 2),
    ],
)
def test_an_answer_in_words(how: str, shown: str, lines: int) -> None:
    answer = {"class": "qemu", "node": "", "how": how, "findings": FINDINGS}
    assert moving.row("vm", answer) == ("vm", "qemu", "any", shown)
    said = list(moving.reasons(answer))
    assert len(said) == lines
    assert said[0] == "cannot move: no room"
