"""Work in a process of its own: what it imports and uses is given back with it."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn


class Child:
    """A forked process that does `work`, beside the one that made it; both have one thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            do_and_exit(work)

    def done(self) -> bool:
        """Wait for its end; whether it did its work. Why it did not is on stderr. To be asked once."""
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status) == 0


def do_and_exit(work: Callable[[], None]) -> NoReturn:
    """Be the process that does `work`, and nothing after it: its end is 0, or 1 with the reason on stderr."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - the root of a process: everything is logged, nothing escapes the fork
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
