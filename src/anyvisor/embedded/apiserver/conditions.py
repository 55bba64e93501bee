"""Match conditions of admission webhooks: expressions over the request."""

from functools import lru_cache
from typing import Any

from anyvisor.embedded.apiserver.cel import CelSyntaxError, Program, compile_rule
from anyvisor.embedded.apiserver.status import Cause, invalid_value
from anyvisor.embedded.apiserver.values import objects_at

Json = dict[str, Any]

CONDITION_VARIABLES = frozenset({"object", "oldObject", "request"})


@lru_cache(maxsize=512)
def condition(text: str) -> Program:
    """Compile a match condition. Raises CelSyntaxError."""
    return compile_rule(text, CONDITION_VARIABLES)


def check_webhooks(obj: Json, _old: Json | None) -> list[Cause]:
    """Return the match conditions of a configuration that cannot be compiled."""
    causes: list[Cause] = []
    for at, hook in enumerate(objects_at(obj, "webhooks")):
        for index, item in enumerate(objects_at(hook, "matchConditions")):
            try:
                condition(str(item.get("expression")))
            except CelSyntaxError as error:
                where = f"webhooks[{at}].matchConditions[{index}].expression"
                causes.append(invalid_value(where, str(item.get("expression")), f"compilation failed: {error}"))
    return causes
