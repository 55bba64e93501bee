"""`python -m tests.cluster.kit api|control-plane`: run the official API server until Ctrl-C; prints its kubeconfig."""

import signal
import sys

from tests.cluster.kit.build import API, CannotBuildError, build
from tests.cluster.kit.control_plane import control_plane


def main(arguments: list[str]) -> int:
    """Serve until told to stop."""
    if arguments not in (["api"], ["control-plane"]):
        print(__doc__, file=sys.stderr)
        return 2
    full = arguments == ["control-plane"]
    try:
        programs = build(API if full else ["apiserver"])
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    with control_plane(programs, controllers=full, scheduler=full) as plane:
        print(plane.admin, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main(sys.argv[1:]))
