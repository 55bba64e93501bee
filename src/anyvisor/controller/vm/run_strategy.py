"""The run strategy that a VM names, directly or by the older `running`."""

from anyvisor.api.meta import Json, object_at


def strategy_of(vm: Json) -> str:
    """The effective run strategy; `Halted` when the VM names none."""
    spec = object_at(vm, "spec")
    strategy = spec.get("runStrategy")
    if isinstance(strategy, str) and strategy:
        return strategy
    return "Always" if spec.get("running") is True else "Halted"
