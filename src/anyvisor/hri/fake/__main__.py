"""`python -m anyvisor.hri.fake --hri SOCK --fd SOCK [--faults slow=start:2,leak,...] [--manifest FILE]`."""

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

from anyvisor.hri import manifests
from anyvisor.hri.fake import faults
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.fake.faulty import FaultyCore
from anyvisor.hri.kit.server import DriverServer


async def _serve(options: argparse.Namespace) -> None:
    manifest = manifests.of_text(options.manifest.read_text(encoding="utf-8")) if options.manifest else None
    driver = FakeDriver(faults.parse(options.faults), manifest=manifest)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with DriverServer(driver, options.hri, options.fd, core=FaultyCore(driver)):
        print("ready", flush=True)
        await stop.wait()


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="anyvisor.hri.fake", description="A driver that boots nothing.")
    parser.add_argument("--hri", required=True, help="path of the HRI socket")
    parser.add_argument("--fd", required=True, help="path of the descriptor socket")
    parser.add_argument("--faults", default="", help="faults to order, e.g. slow=start:2,flaky=prepare:3,leak")
    parser.add_argument("--manifest", type=Path, help="another manifest: another name, version or set of claims")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
