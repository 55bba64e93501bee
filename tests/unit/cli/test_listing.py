"""`anyvisor nodes`: where a driver works, and where it runs by another manifest than the installed one."""

import argparse
from typing import Any

import pytest

from anyvisor.cli import listing
from anyvisor.planning.manifest import digest
from tests.unit.planning.builders import manifest

Json = dict[str, Any]
DRIVER = manifest()


class Served:
    """An API with one driver on four nodes."""

    def call(self, _method: str, path: str) -> Json:
        if path.endswith("/hypervisordrivers"):
            return {"items": [{"metadata": {"name": DRIVER["driver"]}, "spec": {"manifest": DRIVER}}]}
        told: tuple[Json, ...] = (
            {"manifestDigest": digest(DRIVER)},
            {"manifestDigest": "sha256:other"},
            {},
            {"healthy": False},
        )
        return {
            "items": [
                {
                    "metadata": {"name": f"node-{number}"},
                    "status": {"drivers": [{"driver": DRIVER["driver"], "healthy": True, **each}]},
                }
                for number, each in enumerate(told)
            ]
        }


def test_the_health_of_drivers_by_node(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(listing, "connect", Served)
    assert listing.run(argparse.Namespace(command="nodes", output="table")) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NODE", "DRIVER", "VERSION", "HEALTHY", "ACCELERATORS"]
    assert [" ".join(row.split()[2:-1]) for row in rows] == ["yes", "no: another manifest", "yes", "no"]
