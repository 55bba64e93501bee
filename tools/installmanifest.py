"""Render deploy/anyvisor-install.yaml from the chart: `python -m tools.installmanifest [--check]`. Needs helm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy" / "chart"
MANIFEST = ROOT / "deploy" / "anyvisor-install.yaml"
NAMESPACE = "anyvisor"
_HEADER = "# Made from deploy/chart by `make manifest`; do not edit.\n"


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
        print("helm is neither on the PATH nor in the cache: `make test` builds it where Go is", file=sys.stderr)
        return 1
    text = render(helm)
    if "--check" not in sys.argv:
        MANIFEST.write_text(text)
        return 0
    if MANIFEST.exists() and MANIFEST.read_text() == text:
        return 0
    print(f"{MANIFEST.relative_to(ROOT)} is not what the chart makes: run `make manifest`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
