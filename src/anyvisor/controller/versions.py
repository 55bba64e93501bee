"""Annotations that tell which API version a controller last saw and stored an object in."""

from anyvisor.api.meta import Json, annotations
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate

SEEN = {words.LATEST_VERSION: words.API_VERSION_SEEN, words.STORAGE_VERSION: words.API_VERSION_SEEN}


def version_seen(obj: Json) -> Json | None:
    """The object with the annotations, or None where it has them; admission normally sets them."""
    if annotations(obj).items() >= SEEN.items():
        return None
    after = duplicate(obj)
    after["metadata"]["annotations"] = {**annotations(obj), **SEEN}
    return after
