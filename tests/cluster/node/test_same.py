"""The embedded tests of a machine's life, word for word, with a cluster as their target."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.node.machines import on_cluster, tell
from tests.cluster.streams import console
from tests.e2e import test_lifecycle as lifecycle
from tests.e2e.conftest import Instance

Json = dict[str, Any]


@dataclass
class Target(Instance):
    """A cluster in the place of an instance: what the command line does there, the API's subresources do here."""

    cluster: Cluster | None = None

    @property
    def made(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster

    def cli(self, *words: str, check: bool = True, seconds: float = 120, stdin: str | None = None) -> str:
        match words:
            case ("kubectl", *rest):
                return self.made.kubectl(*rest, check=check, stdin=stdin, seconds=seconds)
            case ("console", name, "--seconds", wanted, *rest):
                until = rest[1] if rest else ""
                return console(self.made.plane, name, float(wanted) + 1, (stdin or "").encode(), until)
            case (("start" | "stop" | "restart") as verb, name, *_):
                return self._tell(verb, name)
            case _:
                raise NotImplementedError(f"anyvisor {' '.join(words)} is for one machine")

    def _tell(self, verb: str, name: str) -> str:
        before = self.made.uid(name)
        tell(self.made, name, verb)
        gone = {"start": lambda: bool(self.made.uid(name)), "stop": lambda: not self.made.uid(name)}
        done = gone.get(verb, lambda: self.made.uid(name) not in ("", before))
        self.made.eventually(f"{name}: {verb}", done, 120, name)
        return ""

    def get(self, kind: str, name: str, namespace: str = "default") -> Json | None:
        return self.made.plane.get(kind, name, namespace) or None

    def items(self, kind: str) -> list[Json]:
        return json.loads(self.made.kubectl("get", kind, "-A", "-o", "json"))["items"]

    def apply(self, obj: Json) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(on_cluster(obj)))

    def wait_phase(self, name: str, phase: str = "Running", seconds: float = 180) -> Json:
        return super().wait_phase(name, phase, max(seconds, 180))

    def story(self, name: str) -> str:
        return self.made.story(name)


@pytest.fixture
def shared(cluster: Cluster) -> Instance:
    return Target(Path("/nonexistent"), cluster=cluster)


@pytest.mark.parametrize(
    "test",
    [
        lifecycle.test_a_restart_makes_a_new_run_with_the_same_identity,
        lifecycle.test_a_disk_boots_by_firmware_and_keeps_the_image_clean,
        lifecycle.test_a_guest_that_powers_off_succeeds,
        lifecycle.test_an_instance_type_gives_the_size_and_must_be_the_only_one,
        lifecycle.test_the_console_takes_input,
        lifecycle.test_logs_and_tables_are_what_kubectl_users_expect,
        lifecycle.test_run_strategies_manual_and_rerun,
    ],
    ids=lambda test: test.__name__.removeprefix("test_"),
)
def test_it_is_so_on_a_cluster_too(shared: Instance, test: Any) -> None:
    test(shared)
