"""Evidence: the results of `anyvisor conform --json` that lie beside a driver's manifest, hostile until read."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

FILE: Final = "evidence.json"
MAX_BYTES: Final = 1 << 20


class EvidenceError(ValueError):
    """The text holds no results; the message says why."""


def read(text: str) -> tuple[Mapping[str, Any], ...]:
    """One result or a list of them. Raises EvidenceError; what they are worth is `planning.evidence`'s to judge."""
    if len(text) > MAX_BYTES:
        raise EvidenceError(f"it has more than {MAX_BYTES} bytes")
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"it is no JSON: {error}") from error
    results = cast("list[Any]", data if isinstance(data, list) else [data])
    if not all(isinstance(result, dict) for result in results):
        raise EvidenceError("it holds no results of `anyvisor conform --json`")
    return tuple(results)


def brief(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a HypervisorDriver object keeps of results, which every plan reads: no titles, sentences and figures."""
    return [
        {name: _outcomes(value) if name == "results" else value for name, value in result.items() if name != "figures"}
        for result in results
    ]


def _outcomes(checks: Any) -> list[dict[str, Any]]:
    entries = cast("list[Any]", checks if isinstance(checks, list) else [])
    found = [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]
    return [{name: entry.get(name) for name in ("id", "outcome")} for entry in found]
