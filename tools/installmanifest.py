"""Render deploy/anyvisor-install.yaml from the chart: `python -m tools.installmanifest [--check]`. Needs helm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from anyvisor.embedded.roles import roles

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy" / "chart"
MANIFEST = ROOT / "deploy" / "anyvisor-install.yaml"
ROLES = CHART / "templates" / "userroles.yaml"
RULES = CHART / "templates" / "rules.yaml"
_OF_ONE_MACHINE = frozenset({"AnyvisorRefusesRequests"})
"""Alerts on our own API server."""
NAMESPACE = "anyvisor"
_HEADER = "# Made from deploy/chart by `make manifest`; do not edit.\n"


def write_user_roles() -> None:
    """Write the chart's template of the roles that users know, which are those of the embedded system."""
    documents: list[str] = []
    for role in roles():
        labels: dict[str, str] = role["metadata"]["labels"]
        own = "".join(
            f'    {key}: "{value}"\n' for key, value in labels.items() if not key.startswith("kubernetes.io/")
        )
        rest = {key: value for key, value in role.items() if key not in ("apiVersion", "kind", "metadata")}
        documents.append(
            f"apiVersion: {role['apiVersion']}\nkind: {role['kind']}\nmetadata:\n  name: {role['metadata']['name']}\n"
            f'  labels:\n    {{{{- include "anyvisor.labels" . | nindent 4 }}}}\n{own}'
            + yaml.safe_dump(rest, sort_keys=False, default_flow_style=None, width=116)
        )
    title = "# Made by `make manifest`: the roles that users of the API know, aggregated to admin, edit and view.\n"
    ROLES.write_text(title + "---\n".join(documents))


def write_rules() -> None:
    """Write the chart's template of the alert rules: those of one machine that hold on a cluster, and its own."""
    shared: list[dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"][0]["rules"]
    own: list[dict[str, Any]] = yaml.safe_load((CHART / "alerts.yaml").read_text())
    rules = [rule for rule in shared if rule["alert"] not in _OF_ONE_MACHINE] + own
    text = yaml.safe_dump({"groups": [{"name": "anyvisor", "rules": rules}]}, sort_keys=False, width=110)
    RULES.write_text(
        "# Made by `make manifest` from deploy/alerts.yaml and deploy/chart/alerts.yaml.\n"
        "{{- if .Values.monitoring.enabled }}\n"
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: anyvisor\n"
        "  namespace: {{ .Release.Namespace }}\n  labels:\n"
        '    {{- include "anyvisor.labels" . | nindent 4 }}\n'
        "    {{- with .Values.monitoring.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n"
        # The rules have templates of their own, which are Prometheus' to fill in.
        "spec:\n{{`" + text + "` | indent 2 }}\n{{- end }}\n"
    )


def find_helm() -> str | None:
    """Helm from PATH, or as the tests build it from its Go module."""
    cache = Path(os.environ.get("ANYVISOR_CACHE") or Path.home() / ".cache" / "anyvisor")
    built = sorted(cache.glob("goclients/*/helm"))
    return shutil.which("helm") or (str(built[-1]) if built else None)


def render(helm: str, *settings: str) -> str:
    """The chart with its default values, or with some of them set, as one stream of documents."""
    command = [helm, "template", "anyvisor", str(CHART), "--namespace", NAMESPACE, "--include-crds"]
    for setting in ("createNamespace=true", *settings):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"helm cannot render {CHART}: {done.stderr}")
    return _HEADER + done.stdout


def main() -> int:
    """Write the manifest, or tell whether it is current."""
    helm = find_helm()
    if helm is None:
        print(
            f"{MANIFEST.relative_to(ROOT)} is not made anew: helm is neither on the PATH nor in the cache. Install it, "
            "or build it where Go is: `make test TIERS=e2e ARGS='-k helm'`",
            file=sys.stderr,
        )
        return 1
    text = render(helm)
    if "--check" not in sys.argv:
        write_user_roles()
        write_rules()
        MANIFEST.write_text(render(helm))
        return 0
    if MANIFEST.exists() and MANIFEST.read_text() == text:
        return 0
    print(f"{MANIFEST.relative_to(ROOT)} is not what the chart makes: run `make generated`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
