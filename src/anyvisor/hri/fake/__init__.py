"""The fake driver: boots nothing, keeps true books, and has faults to order.

For the tests of the core (agent, controller, scale, kills), which then need no VMM, and for the tests of the
conformance suite, which must find each fault.
"""

from pathlib import Path

from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.fake.faults import Faults

__all__ = ["FakeDriver", "Faults", "create_driver", "is_present"]


def create_driver(state: Path | None = None) -> FakeDriver:
    """The driver without faults; it keeps nothing in the directory `state` that drivers are given."""
    del state
    return FakeDriver()


def is_present() -> bool:
    """It needs nothing of the machine."""
    return True
