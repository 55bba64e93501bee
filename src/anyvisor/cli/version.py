"""`anyvisor version`."""

import argparse

from anyvisor import __version__


def configure(parser: argparse.ArgumentParser) -> None:
    """`-o json` for machines."""
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    if arguments.output == "json":
        import json

        print(json.dumps({"version": __version__}))
    else:
        print(f"anyvisor {__version__}")
    return 0
