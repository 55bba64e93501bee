"""Agent and pod runner of one node in a process of their own, as an embedded instance has them.

usage: node_process.py CONFIG   (JSON: see world.py)
"""

import asyncio
import json
import logging
import sys
from pathlib import Path

import uvloop

from anyvisor.agent.driver import DriverAddress
from anyvisor.agent.main import AgentConfig, run_agent
from anyvisor.agent.network import MachineNetwork
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim, OpenedDisk
from anyvisor.api.meta import Json
from anyvisor.embedded.podrunner.launch import by_zygote
from anyvisor.embedded.podrunner.runner import PodRunner, RunnerConfig
from anyvisor.hri.client import Deadlines
from anyvisor.hri.fake.driver import NAME as FAKE
from anyvisor.hri.manifests import packaged
from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.http import HttpTransport

NODE = "node-1"
FIRST_USER = 1_900_000_000


class NoClaims:
    """There are no claims here."""

    async def open(self, namespace: str, claim: str, *, read_only: bool) -> OpenedClaim:
        raise ClaimError("FailedPvcNotFound", f"there is no claim {namespace}/{claim} to open ({read_only=})")

    async def open_state(self, namespace: str, claim: str, file: str) -> int:
        raise ClaimError("FailedPvcNotFound", f"there is no claim {namespace}/{claim} for {file}")

    async def open_directory(self, namespace: str, claim: str) -> int:
        """None."""
        raise ClaimError("FailedPvcNotFound", f"there is no claim {claim}")


class NoImages:
    """These machines have no disks."""

    def open_disk(self, reference: str, path: str) -> OpenedDisk:
        raise FileNotFoundError(reference)

    def digest(self, reference: str) -> str:
        raise FileNotFoundError(reference)

    def open_file(self, reference: str, path: str) -> int:
        raise FileNotFoundError(reference)


async def no_network(vmi: Json, *, pod: Json, netns: int | None, adopted: bool, only: str = "") -> MachineNetwork:
    """These machines have no interfaces."""
    return MachineNetwork()


def client(api: str, token: str) -> Client:
    return Client(HttpTransport(ClientConfig(server=api, token=token)))


async def run(config: Json) -> None:
    from testdriver import CAPABILITIES, NAME

    run_dir, state = Path(config["run"]), Path(config["state"])
    drivers = Path(config["driver"])
    runner = PodRunner(
        RunnerConfig(
            node=NODE,
            client=client(config["api"], "node"),
            state_dir=state,
            run_dir=run_dir,
            volume_dir=state,
            launch=by_zygote(Path(config["zygote"])),
            instance=config["instance"],
            first_user=FIRST_USER,
            users=100,
            separate=config["separate"] == "yes",
        )
    )
    async with runner.running():
        await run_agent(
            AgentConfig(
                node=NODE,
                client=client(config["api"], "agent"),
                state_dir=state,
                socket=run_dir / "agent.sock",
                drivers=[
                    DriverAddress(NAME, str(drivers / "hri.sock"), str(drivers / "fd.sock"), CAPABILITIES),
                    DriverAddress(
                        FAKE,
                        str(drivers / "fake-hri.sock"),
                        str(drivers / "fake-fd.sock"),
                        manifest_digest=packaged("anyvisor.hri.fake").digest,
                    ),
                ],
                deadlines=Deadlines(**config["deadlines"]),
                workers=config["workers"],
                core_minor=config["minor"],
                launchers=runner,
                images=NoImages(),
                claims=NoClaims(),
                attach_network=no_network,
            )
        )


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("anyvisor").setLevel(logging.DEBUG)
    sys.path.insert(0, str(Path(__file__).parent))
    config = json.loads(Path(sys.argv[1]).read_text())
    if config["audit"]:
        import audit

        audit.watch(Path(config["audit"]))
    uvloop.run(run(config)) if config["uvloop"] == "yes" else asyncio.run(run(config))


if __name__ == "__main__":
    main()
