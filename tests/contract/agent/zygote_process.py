"""A zygote that keeps no components and forks launchers. usage: zygote_process.py SOCKET"""

import sys
from pathlib import Path

from anyvisor.embedded import zygote


def main() -> None:
    zygote.serve([], Path(sys.argv[1]), lambda: None)


if __name__ == "__main__":
    main()
