"""Level 0: the descriptor socket, and what a driver keeps."""

import asyncio
import os
import socket

from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, operation_id, status_of

CHECKS = CheckList()

CYCLES = 24
SLACK = 8
"""Descriptors that a driver may open once and keep (its log, a pool)."""


@CHECKS.add("descriptors.form", "A message of another form ends that connection, and the driver lives")
async def form(session: Session) -> None:
    if session.fd_socket is None:
        raise CheckSkippedError("no descriptor socket was given (--fd-socket)")
    loop = asyncio.get_running_loop()
    for message, count in ((b"short", 1), (b"x" * 64, 1), (b"0" * 16, 0), (b"0" * 16, 3)):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
        try:
            await loop.sock_connect(connection, session.fd_socket)
            socket.send_fds(connection, [message], fds)
            async with asyncio.timeout(5):
                left = await loop.sock_recv(connection, 1)
            expect(left == b"", f"{len(message)} bytes with {count} descriptors were answered with data")
        except ConnectionResetError:
            pass
        except TimeoutError:
            expect(False, f"{len(message)} bytes with {count} descriptors did not end the connection")
        finally:
            connection.close()
            for fd in fds:
                os.close(fd)
    await session.client.get_info()


@CHECKS.add("descriptors.unused", "A descriptor that no call names is closed within 15 s")
async def unused(session: Session) -> None:
    if session.fd_socket is None:
        raise CheckSkippedError("no descriptor socket was given (--fd-socket)")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours:
        with theirs:
            await session.client.send_descriptor("unused", theirs.fileno())
        try:
            async with asyncio.timeout(15):
                expect(await asyncio.get_running_loop().sock_recv(ours, 1) == b"", "data came from nowhere")
        except TimeoutError:
            expect(False, "the driver still holds a descriptor that no call named")


@CHECKS.add("hygiene.leaks", "Machines that come and go leave no descriptors behind")
async def leaks(session: Session) -> None:
    async def cycle() -> None:
        machine = session.spec()
        async with session.cleanup(machine.id):
            await session.client.prepare(machine, [], generation=1)
            await status_of(session.client.start(machine.id, generation=1, operation_id=operation_id()))

    await cycle()
    before = session.driver_descriptors()
    for _ in range(CYCLES):
        await cycle()
    after = session.driver_descriptors()
    expect(
        after <= before + SLACK, f"{CYCLES} machines came and went, and open descriptors rose from {before} to {after}"
    )
