"""Running `ip` and `nft`, played by other programs."""

import pytest

from anyvisor.agent.network import namespace
from anyvisor.agent.network.namespace import CommandError, run_tools


def test_outputs_come_in_the_order_of_the_jobs() -> None:
    assert run_tools((("sh", "-c", "sleep 0.05; cat"), "one"), (("cat",), "two")) == ["one", "two"]


def test_the_first_failure_is_told_in_its_own_words() -> None:
    with pytest.raises(CommandError, match="sh: no such link"):
        run_tools((("cat",), ""), (("sh", "-c", "echo no such link >&2; exit 1"), ""))


def test_a_missing_tool_is_told_with_the_remedy() -> None:
    with pytest.raises(CommandError, match="apt-get install iproute2 nftables"):
        run_tools((("sleep", "60"), ""), (("/nonexistent/nft",), ""))


def test_a_tool_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "COMMAND_SECONDS", 0.05)
    with pytest.raises(CommandError, match="did not end"):
        run_tools((("sleep", "60"), ""))
