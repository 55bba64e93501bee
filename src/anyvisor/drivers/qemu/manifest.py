"""The driver's manifest: the file beside this module, read once."""

import hashlib
import json
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

DRIVER: Final = "qemu.anyvisor.io"


@cache
def load() -> dict[str, Any]:
    """The manifest as data."""
    text = resources.files("anyvisor.drivers.qemu").joinpath("manifest.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@cache
def digest() -> str:
    """Its digest: `sha256:` and the hash of its canonical JSON, as the core computes it."""
    text = json.dumps(load(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@cache
def stated_capabilities() -> frozenset[str]:
    """The capability ids that the driver states as yes."""
    capabilities: dict[str, dict[str, Any]] = load()["capabilities"]
    return frozenset(name for name, statement in capabilities.items() if statement["state"] in (True, "yes"))
