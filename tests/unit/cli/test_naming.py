"""What is said of a VM that is not there, or does not run."""

from typing import Any

import pytest

from anyvisor.cli.api import Api, ApiRefusalError
from anyvisor.cli.main import CommandError
from anyvisor.cli.naming import absent, named


class Known(Api):
    """Answers with a list of VMs, without a server."""

    def __init__(self, *vms: tuple[str, str]) -> None:
        self._vms = vms

    def call(self, method: str, path: str, body: Any = None, **_options: Any) -> Any:
        return {"items": [{"metadata": {"namespace": space, "name": name}} for space, name in self._vms]}


@pytest.mark.parametrize(
    ("vms", "sentence"),
    [
        ([("default", "web")], "VM web does not run: `anyvisor why vm/web` tells why"),
        ([("shop", "web")], "there is no VM web in namespace default, but one in shop: add `-n shop`"),
        ([("default", "wbe")], "there is no VM web in namespace default; did you mean wbe?"),
        ([("shop", "wbe")], "there is no VM web in namespace default; `anyvisor list -A` shows all"),
        ([], "there is no VM web in namespace default; `anyvisor list -A` shows all"),
    ],
)
def test_the_sentence_has_the_next_step(vms: list[tuple[str, str]], sentence: str) -> None:
    assert str(absent(Known(*vms), "default", "web")) == sentence


def test_only_what_was_not_found_is_told_so() -> None:
    with pytest.raises(CommandError, match="did you mean wbe"), named(Known(("default", "wbe")), "default", "web"):
        raise ApiRefusalError(404, "not found")
    with pytest.raises(ApiRefusalError, match="busy"), named(Known(), "default", "web"):
        raise ApiRefusalError(409, "busy")
