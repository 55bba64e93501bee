"""Runs a file of recorded cases against the product: `python -m tools.replay FILE`, or `make replay FILE=FILE`.

Prints each difference as `id: difference`, then `N of M equal`. What a case is about stands in its id; one module of
`replaying` knows each kind. The exit code is 1 when a case differs.
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Case = dict[str, Any]

KINDS = {
    "subresource-": "subresource",
    "vm-reconcile-": "vm_reconcile",
    "vmi-reconcile-": "vmi_reconcile",
    "podspec-": "podspec",
}
OTHERWISE = "admission"


def kind_of(case_id: str) -> str:
    """The name of the module that replays cases with this id."""
    return next((module for prefix, module in KINDS.items() if case_id.startswith(prefix)), OTHERWISE)


def differences(case: Case) -> list[str]:
    """The differences between the recorded outcome of a case and ours; a crash of ours is one."""
    replay: Callable[[Case], list[str]] = importlib.import_module(f"replaying.{kind_of(case['id'])}").replay
    try:
        return replay(case)
    except Exception as error:  # noqa: BLE001 -- one broken case must not hide the others
        return [f"{type(error).__name__}: {error}"]


def cases(path: Path) -> Iterator[Case]:
    """The cases of a file, one JSON object a line."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def main(arguments: list[str]) -> int:
    """Replay the file that is named."""
    if len(arguments) != 1 or not arguments[0]:
        print("usage: make replay FILE=F, where F holds recorded cases as JSON lines", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    if not path.is_file():
        print(f"{path}: there is no such file", file=sys.stderr)
        return 2
    sys.path.insert(0, str(Path(__file__).parent))
    equal = total = 0
    for case in cases(path):
        if "id" not in case:
            print(
                f"{path}: its cases have no id, which tells what they are about; they cannot be replayed",
                file=sys.stderr,
            )
            return 2
        total += 1
        found = differences(case)
        equal += not found
        for difference in found:
            print(f"{case['id']}: {difference}")
    print(f"{equal} of {total} equal")
    return 0 if equal == total else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
