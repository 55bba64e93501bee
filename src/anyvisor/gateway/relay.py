"""What the node agent's answer makes of a decision; pure."""

from dataclasses import replace
from http import HTTPStatus
from typing import Final

import msgspec

from anyvisor.api.meta import Json, text_at
from anyvisor.gateway.answers import JSON, VMI, Decision, bad_request, conflict, failure, internal, text

MESSAGE_LIMIT: Final = 1024
"""Characters of a foreign message that are passed on."""


def relay(decision: Decision, status: int, body: bytes, name: str = "") -> Decision:
    """Answer with what the agent said: its object for a question, its failure for either; `name` is the VMI's."""
    assert decision.agent is not None
    question = decision.agent.method == "GET"
    if 200 <= status < 300:
        return _passed_on(decision, body) if question else decision
    message = _message(body)
    why = f"unexpected return code {status} ({status} {_phrase(status)}), message: {message}"
    if question:
        return text(500, why)
    match status:
        case 501:
            return bad_request(message or "the hypervisor of this machine cannot do that").decision
        case 409:
            return conflict(VMI, name, message or "the machine is not in a state for that").decision
        case 503 | 504:
            return failure(503, "ServiceUnavailable", message or "the driver does not answer; try again")
        case _:
            return internal(why).decision


def unreachable(decision: Decision, why: str) -> Decision:
    """Answer that the agent could not be asked."""
    assert decision.agent is not None
    return text(500, why) if decision.agent.method == "GET" else internal(why).decision


def _passed_on(decision: Decision, body: bytes) -> Decision:
    try:
        return replace(decision, body=msgspec.json.decode(body, type=Json), content_type=JSON)
    except msgspec.DecodeError:
        return text(500, "the node agent's answer is no JSON object")


def _message(body: bytes) -> str:
    try:
        found = text_at(msgspec.json.decode(body, type=Json), "message")
    except msgspec.DecodeError:
        found = ""
    return (found or body.decode(errors="replace"))[:MESSAGE_LIMIT].strip()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
