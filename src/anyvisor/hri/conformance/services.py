"""Optional services: claimed both ways. Levels 0 (snapshot, guest, stats) and 5 (move).

This minor of the HRI has counters alone (docs/hri, section 3): whoever claims another promises what nobody can call.
"""

from dataclasses import dataclass
from typing import Final

from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, fail
from anyvisor.hri.versions import MINOR
from anyvisor.planning.registry import registry

CHECKS = CheckList()


@dataclass(frozen=True, slots=True)
class Service:
    """An optional service: its profile in GetInfo and manifest, a method, and the area of its capabilities."""

    profile: str
    method: str
    area: str
    served: bool = False
    """Whether this minor of the HRI has it."""


SNAPSHOT: Final = Service("snapshot", "/anyvisor.hri.v1.Snapshot/Create", "snapshot.")
GUEST: Final = Service("guest", "/anyvisor.hri.v1.Guest/GetInfo", "")
STATS: Final = Service("stats", "/anyvisor.hri.v1.Stats/Get", "stats.", served=True)
MOVE: Final = Service("move", "/anyvisor.hri.v1.Move/PrepareTarget", "move.")


async def _both_ways(session: Session, service: Service) -> None:
    if session.manifest is None:
        raise CheckSkippedError("no manifest file was given (--manifest): nobody knows what the driver claims")
    said, written = service.profile in session.info.profiles, service.profile in session.manifest.profiles
    expect(said == written, f"profile {service.profile}: GetInfo says {said}, the manifest {written}")
    capabilities = [c.id for c in registry() if service.area and c.id.startswith(service.area)]
    claimed = [name for name in capabilities if session.manifest.states(name)]
    expect(not claimed or written, f"{', '.join(claimed)} claimed without the profile {service.profile}")
    if written and not service.served:
        fail(f"profile {service.profile} is claimed, and HRI v1.{MINOR} has no such service")
    status, _ = await session.raw(service.method, b"")
    if written:
        expect(status == "OK", f"{service.method}, which is claimed, was answered with {status}")
        return
    expect(status == "UNIMPLEMENTED", f"{service.method}, which is not claimed, was answered with {status}")


@CHECKS.add("services.snapshot", "Snapshots are served as claimed, or UNIMPLEMENTED")
async def snapshot(session: Session) -> None:
    await _both_ways(session, SNAPSHOT)


@CHECKS.add("services.guest", "Calls to the guest are served as claimed, or UNIMPLEMENTED")
async def guest(session: Session) -> None:
    await _both_ways(session, GUEST)


@CHECKS.add("services.stats", "Counters are served as claimed, or UNIMPLEMENTED")
async def stats(session: Session) -> None:
    await _both_ways(session, STATS)


@CHECKS.add("move.claim", "Moves are served as claimed, or UNIMPLEMENTED", level=5)
async def move(session: Session) -> None:
    await _both_ways(session, MOVE)
