"""Which DaemonSets of older driver versions may go."""

from pathlib import Path
from typing import Any

from anyvisor.cluster.retired import retired, unused
from anyvisor.hri.kit.driver import Driver
from anyvisor.hri.packages import DriverPackage

Json = dict[str, Any]


def no_driver(_place: Path) -> Driver:
    raise NotImplementedError


PACKAGES = [DriverPackage("some", {"driver": "some.test", "version": "2.0.0"}, no_driver)]


def daemon_set(called: str, day: int = 1, **labels: str) -> Json:
    metadata = {"name": called, "creationTimestamp": f"2026-01-{day:02}T00:00:00Z"}
    return {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}}


def of_driver(driver: str, version: str, day: int = 1) -> Json:
    labels = {"app": "anyvisor-driver", "anyvisor.io/driver": driver, "anyvisor.io/driver-version": version}
    return daemon_set(f"{driver}-{version}", day, **labels)


def vmi(version: str, phase: str) -> Json:
    return {"status": {"phase": phase, "hypervisor": {"driver": "some.test", "driverVersion": version}}}


SETS = [
    daemon_set("anyvisor-agent", app="anyvisor-agent"),
    of_driver("some", "0.9.0", 2),
    of_driver("some", "1.0.0", 3),
    of_driver("some", "2.0.0", 9),
    of_driver("a vendor's", "0.1.0"),
]


def names(sets: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in sets]


def test_only_versions_of_our_own_drivers_are_retired() -> None:
    assert names(retired(SETS, PACKAGES)) == ["some-0.9.0", "some-1.0.0"]


def test_what_came_after_ours_is_not_retired() -> None:
    newer = of_driver("some", "3.0.0", 10)
    assert names(retired([*SETS, newer], PACKAGES)) == ["some-0.9.0", "some-1.0.0"]
    assert retired([newer, of_driver("some", "1.0.0", 3)], PACKAGES) == []


def test_a_version_that_holds_a_machine_stays() -> None:
    older = retired(SETS, PACKAGES)
    machines: list[Json] = [vmi("1.0.0", "Running"), vmi("0.9.0", "Succeeded"), vmi("2.0.0", "Running"), {"status": {}}]
    assert names(unused(older, machines, PACKAGES)) == ["some-0.9.0"]
    assert unused(older, [vmi("1.0.0", "Scheduled"), vmi("0.9.0", "Running")], PACKAGES) == []
