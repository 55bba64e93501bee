"""A plan's time: one machine on one class, as planned at first, and counter-offers over all classes."""

import time
from importlib.resources import files
from typing import Any

import pytest

from anyvisor.hri import manifests
from anyvisor.planning.manifest import digest, parse
from anyvisor.planning.planner import Driver, plan
from anyvisor.planning.registry import registry
from anyvisor.planning.review import Option, Question, counter_offers
from tests.bench.measure import report, row

Json = dict[str, Any]
AIM_MS = 1.0
"""Of a typical machine on one class."""
ROUNDS = 300
PACKAGES = ("anyvisor.drivers.qemu", "anyvisor.drivers.cloud_hypervisor", "anyvisor.drivers.libvirt")


def option(package: str) -> Option:
    raw = manifests.read(files(package).joinpath("manifest.yaml").read_text())
    name = package.rpartition(".")[2]
    return Option(
        {"metadata": {"name": name}, "spec": {"driver": raw["driver"]}}, Driver(parse(raw, registry()), digest(raw))
    )


def machine(disks: int, nics: int, number: int = 0) -> Json:
    """A server; `number` makes each different, so that nothing is remembered."""
    devices: Json = {
        "disks": [{"name": f"d{i}", "disk": {"bus": "virtio"}, "serial": f"s{number}-{i}"} for i in range(disks)],
        "interfaces": [{"name": f"n{i}", "model": "virtio", "masquerade": {}} for i in range(nics)],
        "rng": {},
    }
    domain: Json = {
        "cpu": {"sockets": 2, "cores": 2, "threads": 1, "model": "host-passthrough"},
        "memory": {"guest": "4Gi"},
        "firmware": {"bootloader": {"efi": {"secureBoot": False}}, "serial": str(number)},
        "devices": devices,
    }
    volumes: list[Json] = [{"name": f"d{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(disks)]
    networks: list[Json] = [{"name": f"n{i}", "pod": {}} for i in range(nics)]
    return {"architecture": "amd64", "domain": domain, "volumes": volumes, "networks": networks}


@pytest.mark.parametrize(("size", "disks", "nics"), [("typical", 2, 1), ("large", 24, 8)])
def test_one_plan(size: str, disks: int, nics: int) -> None:
    offered = option(PACKAGES[0])
    plan(machine(disks, nics), offered.hypervisor_class, offered.driver)
    series: list[float] = []
    for number in range(ROUNDS):
        spec = machine(disks, nics, number + 1)
        begin = time.perf_counter()
        made = plan(spec, offered.hypervisor_class, offered.driver)
        series.append((time.perf_counter() - begin) * 1000)
        assert made.resources.guest_memory_bytes == 4 << 30
    report(f"a plan of a {size} machine", [row(f"on one class (aim {AIM_MS} ms for a typical one)", series)])
    assert sorted(series)[ROUNDS // 2] < 20 * AIM_MS * max(disks / 2, 1)


def test_counter_offers() -> None:
    options = [option(package) for package in PACKAGES]
    series: list[float] = []
    for number in range(20):
        spec = machine(2, 1, number)
        spec["domain"]["devices"]["tpm"] = {}
        spec["domain"]["devices"]["disks"][0]["disk"]["bus"] = "sata"
        begin = time.perf_counter()
        offers = counter_offers(Question(spec, {}), options, "cloud_hypervisor")
        series.append((time.perf_counter() - begin) * 1000)
        assert offers
    report("counter-offers of a refused machine", [row(f"over {len(options)} classes, each planned anew", series)])
