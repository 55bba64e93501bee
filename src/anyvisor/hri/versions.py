"""HRI minors: additive integers inside major 1, and which of them two sides speak with each other."""

from typing import Final

MAJOR: Final = 1
MINOR: Final = 1
"""The newest minor that this code speaks."""
MIN_MINOR: Final = 1
"""The oldest one that a driver made with this kit speaks."""
SKEW: Final = 3
"""A core at minor N works with drivers whose newest minor is N-3 to N+3."""


class VersionSkewError(ValueError):
    """No minor in common. The message says which side is too old."""


def negotiate(driver_min: int, driver_max: int, core_minor: int = MINOR, core_min: int = MIN_MINOR) -> int:
    """The minor to speak: the newest that both know.

    A driver's newest minor must be within `SKEW` of the core's, and the ranges must overlap.
    """
    if driver_min < 1 or driver_max < driver_min:
        raise VersionSkewError(
            f"the driver states HRI minors {driver_min} to {driver_max}, which is no range; "
            "it must state min_minor >= 1 and max_minor >= min_minor"
        )
    if driver_max < core_minor - SKEW:
        raise VersionSkewError(
            f"the driver speaks HRI minors up to {driver_max}, and this core (minor {core_minor}) works with "
            f"{max(core_minor - SKEW, 1)} and newer: upgrade the driver"
        )
    if driver_max > core_minor + SKEW:
        raise VersionSkewError(
            f"the driver's newest HRI minor is {driver_max}, and this core (minor {core_minor}) works with "
            f"drivers up to {core_minor + SKEW}: upgrade the core"
        )
    chosen = min(driver_max, core_minor)
    if chosen < max(driver_min, core_min):
        raise VersionSkewError(
            f"the driver speaks HRI minors {driver_min} to {driver_max}, this core {core_min} to {core_minor}: "
            "none in common; upgrade the older side"
        )
    return chosen
