"""The part of the agent's HTTP interface that asks the guest's own agent."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from anyvisor.agent.guest.protocol import GuestAgentError, GuestAgentSilent
from anyvisor.agent.guest.watch import Guest
from anyvisor.api.duration import duration_seconds
from anyvisor.api.meta import Json

BODY_BYTES: Final = 64 * 1024
THAW_SECONDS: Final = 300.0
"""After which a frozen guest is thawed when nobody says; as the API has it."""

QUESTIONS: Final[dict[str, Callable[[Guest], Awaitable[Json]]]] = {
    "guestosinfo": Guest.information,
    "userlist": Guest.users,
    "filesystemlist": Guest.file_systems,
}
VERBS: Final = ("freeze", "unfreeze")


async def question(request: web.Request, guest: Guest) -> web.Response:
    """Answer with what the guest's agent tells."""
    ask = QUESTIONS[request.path.rpartition("/")[2]]
    try:
        return web.json_response(await ask(guest))
    except GuestAgentError as error:
        return _failed(error)


async def verb(request: web.Request, guest: Guest) -> web.Response:
    """Freeze or thaw the guest's file systems."""
    try:
        if request.path.endswith("/unfreeze"):
            await guest.thaw()
        else:
            await guest.freeze(await _thaw_after(request))
    except GuestAgentError as error:
        return _failed(error)
    return web.json_response({})


async def _thaw_after(request: web.Request) -> float:
    body = await request.content.read(BODY_BYTES)
    try:
        options: Any = msgspec.json.decode(body, type=Json) if body else {}
        given = options.get("unfreezeTimeout")
        return THAW_SECONDS if given is None else duration_seconds(str(given))
    except (msgspec.DecodeError, ValueError) as error:
        raise web.HTTPBadRequest(text=f"unfreezeTimeout is no duration such as 5m0s: {error}\n") from error


def _failed(error: GuestAgentError) -> web.Response:
    silent = isinstance(error, GuestAgentSilent)
    reason = "GuestAgentSilent" if silent else "GuestAgentRefused"
    return web.json_response({"reason": reason, "message": str(error)}, status=503 if silent else 500)
