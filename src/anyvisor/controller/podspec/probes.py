"""Probes of the guest, run against the launcher pod."""

from typing import Final

from anyvisor.api.meta import Json, list_at, name, namespace, object_at
from anyvisor.controller.duplicate import duplicate

STARTUP_DELAY: Final = 10
"""Seconds added before the first probe, for the machine to come up."""
DEFAULTS: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
TIMINGS: Final = ("initialDelaySeconds", *DEFAULTS)


def probe(vmi: Json, kind: str) -> Json | None:
    """The compute container's probe; `kind` is `readinessProbe` or `livenessProbe`."""
    wanted = object_at(vmi, "spec", kind)
    if not wanted:
        return None
    found: Json = {key: wanted.get(key) or DEFAULTS.get(key, 0) for key in TIMINGS}
    found["initialDelaySeconds"] += STARTUP_DELAY
    for handler in ("exec", "httpGet", "tcpSocket"):
        if handler in wanted:
            found[handler] = duplicate(wanted[handler])
    if "guestAgentPing" in wanted:
        _through_agent(vmi, found, ["--guestAgentPing"])
    elif "exec" in wanted:
        command = list_at(wanted, "exec", "command")
        if command and command[0] != "virt-probe":
            _through_agent(vmi, found, ["--command", command[0], "--", *command[1:]])
    return found


def _through_agent(vmi: Json, found: Json, arguments: list[str]) -> None:
    """Have the guest's agent answer; one second more pays for the way there."""
    seconds = str(found["timeoutSeconds"])
    domain = f"{namespace(vmi)}_{name(vmi)}"
    command = ["virt-probe", "--domainName", domain, "--timeoutSeconds", seconds, *arguments]
    found["exec"] = {"command": command}
    found["timeoutSeconds"] += 1
