"""Calls that concern no object: which version answers, and whether it is well."""

import platform
from typing import Any, Final

import msgspec

from anyvisor import __version__
from anyvisor.api.meta import Json
from anyvisor.gateway.answers import Decision, Refused, entity, failure
from anyvisor.gateway.call import Call
from anyvisor.kube import errors
from anyvisor.kube.client import Client

SERVED_API: Final = "v1.9.0+anyvisor"
"""The release of the API that we serve: its clients compare it with their own."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


async def answer(call: Call, client: Client, config_version: str) -> Decision:
    """Answer a call on the group; raises Refused."""
    if call.method != "GET":
        raise Refused(failure(405, "MethodNotAllowed", f"{call.verb} is called with GET, not with {call.method}"))
    match (call.namespace, call.verb):
        case ("", "version"):
            return entity(version())
        case ("", "healthz"):
            return await _health(client, config_version)
        case ("", "guestfs"):
            why = "no image with guest file system tools is offered here; run the tools beside your client"
            raise Refused(failure(404, "NotFound", why))
        case _:
            raise Refused(failure(404, "NotFound", "the server could not find the requested resource"))


def version() -> Json:
    """Return the version document."""
    return {
        "gitVersion": SERVED_API,
        "gitCommit": __version__,
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": f"linux/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
    }


async def _health(client: Client, config_version: str) -> Decision:
    try:
        served: Any = msgspec.json.decode(await client.call("GET", "/version"))
    except (errors.ApiError, msgspec.DecodeError) as error:
        return entity({"apiserver": {"connectivity": "failed", "error": str(error)}}, 500)
    return entity({"apiserver": {"connectivity": "ok", "version": served}, "config-resource-version": config_version})
