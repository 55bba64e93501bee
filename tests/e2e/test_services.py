"""Services reach real guests: from the host, from another guest by name, by node port; needs root."""

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import URLError

import pytest

from tests.e2e.conftest import Instance, end, eventually, example, make_instance
from tests.guests import linux_archive


@pytest.fixture(scope="module")
def served() -> Iterator[Instance]:
    """An instance with the example's two machines, each of which serves a page with its name."""
    if os.geteuid() != 0:
        pytest.skip("only root can make the pods' networks")
    instance = make_instance()
    try:
        instance.cli("image", "import", str(linux_archive()), "--name", "demo/linux")
        instance.up()
        text = example("service").replace("30080", "30977")  # another instance may have the example's port
        instance.kubectl("apply", "-f", "-", stdin=text)
        for name in ("service", "service-2"):
            instance.wait_phase(name)
        yield instance
    finally:
        end(instance)


def fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return answer.read().decode().strip()
    except (URLError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def cluster_ip(instance: Instance, name: str = "service") -> str:
    found = instance.get("service", name)
    assert found is not None
    return found["spec"]["clusterIP"]


def pages(url: str, story: Instance) -> set[str]:
    """The pages that are answered until both machines were seen."""
    seen: set[str] = set()
    wanted = {"hello from service", "hello from service-2"}

    def both() -> bool:
        seen.add(fetch(url))
        return wanted <= seen

    eventually(both, 90, lambda: f"{seen}\n{story.story('service')}")
    return seen & wanted


def fetched_in_guest(instance: Instance, name: str) -> str:
    """What the guest's console shows of a page by that name. (The static busybox resolves names only by `nslookup`.)"""
    script = (
        "touch /run/quiet\n"
        f"at=$(nslookup {name} | sed -n 's/^Address: //p' | head -n 1)\n"
        "echo; echo \"at $at\"; printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 $at 80\n"
    )
    return instance.typed("service-2", script)


def test_the_host_reaches_both_by_the_cluster_ip_and_the_node_port(served: Instance) -> None:
    pages(f"http://{cluster_ip(served)}/", served)
    pages("http://127.0.0.1:30977/", served)
    address = subprocess.check_output(["hostname", "-I"], text=True).split()[0]
    pages(f"http://{address}:30977/", served)


def test_a_guest_reaches_it_by_its_names(served: Instance) -> None:
    address = cluster_ip(served)
    pages(f"http://{address}/", served)
    for name in ("service", "service.default.svc.cluster.local"):
        shown: list[str] = []

        def answered(name: str = name, shown: list[str] = shown) -> bool:
            shown.append(fetched_in_guest(served, name))
            return f"at {address}" in shown[-1] and "hello from service" in shown[-1].rpartition("at 10.")[2]

        eventually(answered, 90, lambda shown=shown: "\n".join(shown[-2:]))


def test_its_slices_follow_the_machines(served: Instance) -> None:
    def ready() -> list[str]:
        slices = [each for each in served.items("endpointslices") if each["metadata"]["name"].startswith("service-")]
        found: list[dict[str, Any]] = []
        for each in slices:
            found += each["endpoints"] or []
        return sorted(endpoint["targetRef"]["name"] for endpoint in found if endpoint["conditions"]["ready"])

    eventually(lambda: len(ready()) == 2, 120, lambda: served.story("service"))
    served.cli("stop", "service")
    eventually(lambda: len(ready()) == 1, 120, lambda: served.story("service"))
    url = f"http://{cluster_ip(served)}/"
    eventually(lambda: fetch(url) == "hello from service-2", 60, lambda: fetch(url))
    assert {fetch(url) for _ in range(10)} == {"hello from service-2"}
    served.wait_gone("vmi", "service")  # a machine that is still going down cannot be started
    served.cli("start", "service")
    eventually(lambda: len(ready()) == 2, 120, lambda: served.story("service"))


def test_one_machine_as_virtctl_exposes_it_and_a_service_that_selects_nothing(served: Instance) -> None:
    selector = {"vm.kubevirt.io/name": "service-2"}
    ports = [{"port": 8000, "targetPort": "http", "protocol": "TCP"}]
    metadata = {"name": "exposed", "namespace": "default"}
    served.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": selector, "ports": ports}}
    )
    eventually(lambda: fetch(f"http://{cluster_ip(served, 'exposed')}:8000/") == "hello from service-2", 60)
    served.kubectl("create", "service", "clusterip", "nobody", "--tcp=80")
    eventually(lambda: "refused" in fetch(f"http://{cluster_ip(served, 'nobody')}/"), 10)
    shown = served.kubectl("get", "service", "exposed", "nobody")
    assert re.search(r"exposed\s+ClusterIP\s+10\.[0-9.]+\s+<none>\s+8000/TCP", shown)


def test_the_rules_are_there_again_after_a_crash(served: Instance) -> None:
    url = f"http://{cluster_ip(served)}/"
    subprocess.run(["nft", "delete", "table", "ip", f"anyvisor_{served.identity[:8]}_services"], check=True, timeout=20)
    assert not fetch(url).startswith("hello")
    served.kill("agent-node-1")
    pages(url, served)
    served.kill("zygote")
    served.up()
    pages(url, served)
