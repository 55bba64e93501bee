"""The words of `spec.hypervisor`: a class, or `auto` with what counts for the choice."""

from typing import Final

AUTO: Final = "auto"
PREFERENCES: Final = ("features", "isolation", "memory", "start")
"""What may count: how much the class can do, how the guest is held, the memory that it costs, how soon it runs."""


def automatic(named: str) -> bool:
    """Whether the planner chooses: `auto`, or `auto/` and preferences, the most important first."""
    return named.partition("/")[0] == AUTO


def preferences(named: str) -> tuple[str, ...]:
    """What counts for the choice; none of `auto` alone."""
    return tuple(word for word in named.partition("/")[2].split(",") if word)


def unknown_preferences(named: str) -> tuple[str, ...]:
    """Words after `auto/` that mean nothing."""
    return tuple(word for word in preferences(named) if word not in PREFERENCES)
