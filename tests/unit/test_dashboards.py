"""Every metric that a dashboard or an alert names is one that we export, and every alert says what to do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family

from anyvisor.agent import machine_metrics as of_agent
from anyvisor.agent.metrics import NAMES
from anyvisor.cluster.metrics import GatewayMetrics
from anyvisor.controller import machine_metrics as of_controller
from anyvisor.controller.metrics import ControllerMetrics
from anyvisor.embedded.apiserver.front import Metrics
from anyvisor.kube.metrics import QueueMetrics

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RUNBOOK = (ROOT / "docs" / "user" / "metrics.md").read_text() + (ROOT / "docs" / "operations.md").read_text()
BY_PROMETHEUS = {"up"}
_LABELS = re.compile(r"\{[^}]*\}|\b(?:by|on|without)\s*\([^)]*\)")
_WORDS = {"and", "or", "vector", "time", "le", "unless"}


def exported() -> set[str]:
    names = {metric.name for metric in (*of_agent.METRICS, *of_controller.METRICS)} | set(NAMES)
    queues = CollectorRegistry()
    QueueMetrics(queues)
    for registry in (queues, Metrics().registry, ControllerMetrics().registry, GatewayMetrics().registry):
        for family in registry.collect():
            names |= of_family(family)
    return names


def of_family(family: Family) -> set[str]:
    match family.type:
        case "counter":
            return {f"{family.name}_total"}
        case "histogram":
            return {f"{family.name}_{suffix}" for suffix in ("bucket", "sum", "count")}
        case _:
            return {family.name}


def names_in(query: str) -> set[str]:
    bare = _LABELS.sub(" ", re.sub(r"^label_values\((.*), \w+\)$", r"\1", query))
    bare = re.sub(r"\[[^\]]*\]|\"[^\"]*\"|\b\d\S*", " ", bare)
    return {name for name in re.findall(r"\b[a-z_]\w*\b(?!\s*\()", bare) if name not in _WORDS}


def queries() -> Iterator[Any]:
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield pytest.param(variable["query"], id=f"{path.stem}: ${variable['name']}")
    for rule in rules():
        yield pytest.param(rule["expr"], id=rule["alert"])


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"]
    cluster = yaml.safe_load((ROOT / "deploy" / "chart" / "alerts.yaml").read_text())
    return [*(rule for group in groups for rule in group["rules"]), *cluster]


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_names_what_is_exported(query: str) -> None:
    named = names_in(query)
    assert named, query
    assert named <= exported() | BY_PROMETHEUS


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].endswith(".")
    assert f"* **{rule['alert']}**: " in RUNBOOK


def test_the_check_would_find_a_wrong_name() -> None:
    query = 'sum by (name) (rate(kubevirt_vmi_nonsense_total{name=~"x"}[5m])) / time() > 0.5 and up == 0'
    assert names_in(query) == {"kubevirt_vmi_nonsense_total", "up"}
