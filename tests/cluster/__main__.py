"""`python -m tests.cluster DIR [NODES]`: run a cluster with the product installed, in DIR, until Ctrl-C.

Tests use it by `ANYVISOR_CLUSTER_AT=DIR`: what takes longest, the start, is then done once for many runs of them.
"""

import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.cluster.cluster import cluster, product_archives
from tests.cluster.kit.build import TARGETS, CannotBuildError, build
from tools.images.rootfs import CannotBuildError as CannotMakeImageError


def main(arguments: Sequence[str]) -> int:
    """Serve until told to stop."""
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    place = Path(arguments[0]).resolve()
    place.mkdir(parents=True, exist_ok=True)
    try:
        programs, archives = build(list(TARGETS)), product_archives()
    except (CannotBuildError, CannotMakeImageError) as error:
        print(error, file=sys.stderr)
        return 1
    with cluster(programs, archives, int(arguments[1]) if len(arguments) > 1 else 1, place) as made:
        print(made.plane.admin, flush=True)
        # A handler, not a mask: pods would inherit a mask, and never see a SIGTERM.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
