"""Metrics in Prometheus' text form (version 0.0.4), made for many objects: a label set is rendered once per object.

All samples of a metric stand together in that form, so they are collected by metric and joined at the end.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that we export. `labels` are told to people; samples bring their own."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Exposition:
    """Samples of known metrics; a metric without samples leaves nothing."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._lines: dict[str, list[str]] = {name: [] for name in self._metrics}

    def add(self, name: str, labels: str, value: float | None) -> None:
        """One sample; `labels` as `label_text` renders them, None for a value that nobody knows."""
        if value is not None:
            self._lines[name].append(f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}")

    def text(self) -> bytes:
        """Everything."""
        parts: list[str] = []
        for name, lines in self._lines.items():
            if lines:
                metric = self._metrics[name]
                parts.append(f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n")
                parts.append("\n".join(lines))
                parts.append("\n")
        return "".join(parts).encode()


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as they stand between the braces, in the order given."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def escaped(value: str) -> str:
    """A label's value: backslash, quote and line end are escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def object_labels(prefix: str, labels: Mapping[str, str]) -> dict[str, str]:
    """An object's labels under names that metrics can have, such as `kubernetes_vmi_label_app`."""
    return {prefix + _NO_LABEL.sub("_", name): value for name, value in labels.items()}
