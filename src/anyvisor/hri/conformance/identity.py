"""Level 0: who the driver is, and what it says of the host."""

import re
from contextlib import aclosing

from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, fail
from anyvisor.hri.errors import Refused
from anyvisor.hri.v1.node_pb2 import NodeFacts

CHECKS = CheckList()

_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@CHECKS.add("identity.info", "GetInfo answers in form, and there is a minor in common")
async def info(session: Session) -> None:
    try:
        session.info = await session.client.connect()
    except Refused as error:
        fail(error.message)
    found = session.info
    expect(_SUBDOMAIN.fullmatch(found.driver), f"driver {found.driver!r} is no DNS subdomain with a dot")
    expect(found.version, "version is empty")
    expect(found.vmm_name, "vmm_name is empty")
    expect(found.boot_id, "boot_id is empty: nobody can tell a restart")
    expect(
        _DIGEST.fullmatch(found.manifest_digest), f"manifest_digest {found.manifest_digest!r} is not sha256:<64 hex>"
    )


@CHECKS.add("identity.stable", "GetInfo answers the same while the process lives")
async def stable(session: Session) -> None:
    again = await session.client.get_info()
    expect(again == session.info, f"two answers differ: {session.info} and {again}".replace("\n", " "))


@CHECKS.add("identity.manifest", "The driver's digest is that of its manifest file")
async def manifest(session: Session) -> None:
    if not session.manifest_digest:
        raise CheckSkippedError("no manifest file was given (--manifest)")
    expect(
        session.info.manifest_digest == session.manifest_digest,
        f"GetInfo says {session.info.manifest_digest}, the file has {session.manifest_digest}",
    )


@CHECKS.add("identity.probe", "Probe answers, and says why when it is not ready")
async def probe(session: Session) -> None:
    found = await session.client.probe()
    bad = [condition for condition in found.conditions if not condition.status]
    expect(found.ready == (not bad), f"ready is {found.ready}, with {len(bad)} conditions that do not hold")
    for condition in found.conditions:
        expect(condition.type and condition.reason, "a condition has no type or no reason")
    expect(all(condition.message for condition in bad), "a condition that does not hold has no message")
    session.not_ready = "; ".join(condition.message for condition in bad)


@CHECKS.add("node.facts", "WatchNode begins with the whole")
async def facts(session: Session) -> None:
    async with aclosing(session.client.watch_node()) as stream:
        async for found in stream:
            session.facts = found
            expect(found.health != NodeFacts.HEALTH_UNSPECIFIED, "health is not stated")
            if found.health == NodeFacts.HEALTH_HEALTHY:
                expect(found.accelerators, "a healthy driver names no accelerator")
                session.not_ready = ""
            else:
                expect(any(c.message for c in found.conditions), "an unhealthy driver does not say why")
            return
    fail("the stream ended before its first message")
