"""What a HypervisorNode tells of a driver's manifest: the digest that the driver answered, whatever is installed."""

from typing import Any, cast

import pytest

from anyvisor.agent.driver import DriverAddress, DriverSession
from anyvisor.agent.node import driver_status
from anyvisor.api.wire import Time
from anyvisor.hri.v1.identity_pb2 import GetInfoResponse

NAME = "some.test"
INSTALLED, OTHER = ("sha256:" + letter * 64 for letter in "ab")
NOW = cast("Time", "2026-06-01T12:00:00Z")


def status(answered: str) -> dict[str, Any]:
    """The entry of a driver that said who it is. A session belongs to an event loop, so the tests have one."""
    session = DriverSession(
        DriverAddress(NAME, "/nowhere", "/nowhere", manifest_digest=INSTALLED),
        changed=lambda _: None,
        restarted=lambda: None,
        facts_changed=lambda: None,
    )
    session.info = GetInfoResponse(driver=NAME, version="1.0", manifest_digest=answered)
    return driver_status(session, {}, NOW)


@pytest.mark.parametrize("answered", [INSTALLED, OTHER])
async def test_the_digest_that_the_driver_answered(answered: str) -> None:
    found = status(answered)
    assert (found["version"], found["manifestDigest"]) == ("1.0", answered)


@pytest.mark.parametrize("answered", ["", "sha256:short", "x" * 5000, INSTALLED.upper()])
async def test_a_digest_that_is_none_is_not_told(answered: str) -> None:
    assert "manifestDigest" not in status(answered)
