"""Label selectors of untrusted objects."""

from typing import Any

from anyvisor.admission.values import items, mapping, strings, text
from anyvisor.api.selectors import Selector, selector_of


def selector(written: Any) -> Selector:
    """The selector that a LabelSelector object stands for; members of a wrong kind read as empty.

    Raises:
        SelectorError: it is no selector.
    """
    fields = mapping(written)
    return selector_of(
        {
            "matchLabels": labels(fields.get("matchLabels")),
            "matchExpressions": [
                {
                    "key": text(one.get("key")),
                    "operator": text(one.get("operator")),
                    "values": strings(one.get("values")),
                }
                for one in items(fields.get("matchExpressions"))
            ],
        }
    )


def labels(written: Any) -> dict[str, str]:
    """Labels as texts."""
    return {key: text(value) for key, value in mapping(written).items()}
