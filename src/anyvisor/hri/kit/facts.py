"""Facts of a VMM on this node: found once for one boot and one binary, kept in a file, and looked at again.

Finding them runs the VMM, which costs seconds; a driver that starts anew reads the file instead. A driver subclasses
`VmmFacts` by what it wants to know, writes the function that finds them, and holds a `Finder`.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from anyvisor.hri.errors import VmmFailed
from anyvisor.hri.kit import kvm
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.node_pb2 import AcceleratorFact, NodeFacts
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
RECHECK_SECONDS: Final = 60.0
"""Nothing tells when a VMM is installed or upgraded, or /dev/kvm appears."""


class VmmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What every driver knows of its VMM on this node; `problem` says why it cannot be used."""

    version: str = ""
    installed: bool = False
    problem: str = ""
    kvm_opens: bool = False
    kvm_runs: bool = False
    """Whether a guest that does what kernels do ran to its end."""
    kvm_message: str = ""
    """What is wrong with KVM, and the remedy."""

    @property
    def health(self) -> NodeFacts.Health:
        """The health that `NodeFacts` tells."""
        if not self.problem:
            return NodeFacts.HEALTH_HEALTHY
        return NodeFacts.HEALTH_UNHEALTHY if self.installed else NodeFacts.HEALTH_UNDETECTED

    @property
    def kvm(self) -> AcceleratorFact:
        """KVM as `NodeFacts` tells of it."""
        return AcceleratorFact(
            accelerator=ACCELERATOR_KVM, opens=self.kvm_opens, runs_guest=self.kvm_runs, message=self.kvm_message
        )

    def condition(self, vmm_name: str) -> Condition:
        """The condition that `Probe` and `NodeFacts` tell: whether the VMM can be used."""
        return Condition(
            type="VmmAvailable",
            status=not self.problem,
            reason="Found" if not self.problem else ("NotUsable" if self.installed else "NotInstalled"),
            message=self.problem or f"{vmm_name} {self.version}",
        )


F = TypeVar("F", bound=VmmFacts)


class _Stored(msgspec.Struct):
    key: str
    facts: msgspec.Raw


def key(form: int, program: str, *more: str) -> str:
    """What facts stand and fall with: the boot, the binary, the right to use KVM, and what else the driver names.

    `form` is raised by a driver whenever its facts, or its ways to find them, change.
    """
    try:
        status = os.stat(program)
        identity = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
    except OSError:
        identity = "none"
    boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
    return "/".join((str(form), boot, program, identity, *more, str(kvm.permitted())))


async def kept(kind: type[F], cache: Path | None, wanted: str, find: Callable[[], Awaitable[F]]) -> F:
    """The facts under the key `wanted`: from the file, else by `find`, and then kept unless they tell of a problem."""
    known = _load(kind, cache, wanted) if cache is not None else None
    if known is not None:
        return known
    facts = await find()
    if cache is not None and not facts.problem:
        store(cache, wanted, facts)
    return facts


def store(cache: Path, wanted: str, facts: VmmFacts) -> None:
    """Keep the facts under their key; a file that cannot be written only costs the next start its time."""
    with contextlib.suppress(OSError):
        unfinished = cache.with_name(f".{cache.name}.{os.getpid()}")
        unfinished.write_bytes(msgspec.json.encode(_Stored(wanted, msgspec.Raw(msgspec.json.encode(facts)))))
        unfinished.replace(cache)


def _load(kind: type[F], cache: Path, wanted: str) -> F | None:
    try:
        stored = msgspec.json.decode(cache.read_bytes(), type=_Stored)
        return msgspec.json.decode(stored.facts, type=kind) if stored.key == wanted else None
    except (OSError, msgspec.DecodeError):
        return None


class Finder(Generic[F]):
    """The facts in one driver process: looked for at the first question, and again whenever their key has changed."""

    def __init__(self, key: Callable[[], str], find: Callable[[], Awaitable[F]]) -> None:
        self._key = key
        self._find = find
        self._facts: F | None = None
        self._facts_key = ""
        self._finding = asyncio.Lock()

    @property
    def version(self) -> str:
        """The VMM's version, as far as it has been asked for."""
        return self._facts.version if self._facts else ""

    async def now(self) -> F:
        """The facts as of now."""
        async with self._finding:
            wanted = self._key()
            if self._facts is None or self._facts_key != wanted:
                self._facts = await self._find()
                self._facts_key = wanted
            return self._facts

    async def usable(self) -> F:
        """The facts of a VMM that can be used; raises VmmFailed with the problem of one that cannot."""
        found = await self.now()
        if found.problem:
            raise VmmFailed(found.problem, retry="after_change")
        return found

    async def node_facts(self, tell: Callable[[F], NodeFacts]) -> AsyncGenerator[NodeFacts]:
        """What `Driver.node_facts` yields: the facts in the words of `tell`, and again whenever they change."""
        last: F | None = None
        while True:
            found = await self.now()
            if found != last:
                last = found
                yield tell(found)
            await asyncio.sleep(RECHECK_SECONDS)
