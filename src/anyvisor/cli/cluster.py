"""`anyvisor install`, `upgrade` and `uninstall`: the system on a Kubernetes cluster, for people without Helm."""

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from anyvisor.cli.main import CommandError
from anyvisor.cli.tables import show

if TYPE_CHECKING:
    from anyvisor.cluster.checks import Check
    from anyvisor.kube.client import Client

T = TypeVar("T")


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of all three."""
    from anyvisor.cluster.installer import REGISTRY

    parser.add_argument("--kubeconfig", type=Path, help="the cluster (default: as kubectl finds it)")
    if parser.get_default("command") == "uninstall":
        return
    parser.add_argument("--registry", default=REGISTRY, help=f"where the images are (default: {REGISTRY})")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until all components are ready")


def run(arguments: argparse.Namespace) -> int:
    """Do it, and tell each step."""
    from anyvisor.cluster import installer, removal

    async def work(client: "Client") -> None:
        if arguments.command == "uninstall":
            await removal.uninstall(client, print)
            return
        await installer.install(client, arguments.registry, print, wait=not arguments.no_wait)
        if not arguments.no_wait:
            await installer.wait_ready(client, print)

    with_client(arguments.kubeconfig, work)
    return 0


def with_client(kubeconfig: Path | None, work: "Callable[[Client], Awaitable[T]]") -> T:
    """Run `work` as the user of a kubeconfig; its errors are told as sentences."""
    import asyncio

    from anyvisor.cluster.installer import InstallError
    from anyvisor.cluster.process import client
    from anyvisor.kube.config import ConfigError
    from anyvisor.kube.errors import ApiError

    async def connected() -> T:
        async with client(kubeconfig, "anyvisor") as made:
            return await work(made)

    try:
        return asyncio.run(connected())
    except (ConfigError, InstallError) as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        raise CommandError(f"the cluster answers: {error}") from error


def print_status(kubeconfig: Path | None, output: str) -> int:
    """`status --cluster`: exit code 0 when every component is ready."""
    from anyvisor.cluster import installer

    rows = with_client(kubeconfig, installer.status)
    if output == "json":
        import dataclasses
        import json

        print(json.dumps({"components": [dataclasses.asdict(row) for row in rows]}))
    elif not rows:
        print("Anyvisor is not installed on this cluster: `anyvisor install`")
    else:
        show(("KIND", "NAME", "READY"), [(row.kind, row.name, f"{row.ready}/{row.wanted}") for row in rows])
    return 0 if rows and all(row.ready >= row.wanted for row in rows) else 1


def cluster_checks(kubeconfig: Path | None) -> "list[Check]":
    """`doctor --cluster`: what was looked at."""
    from anyvisor.cluster.checks import checks

    async def look(client: "Client") -> "list[Check]":
        return [check async for check in checks(client)]

    return with_client(kubeconfig, look)
