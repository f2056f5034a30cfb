"""Serves one client over the standard input and output of this process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from licet.surfaces.gateway.connection import Connection
from licet.surfaces.gateway.governed import GovernedBackend
from licet.surfaces.gateway.jsonrpc import BadMessage, Failure, Message, read_message, write_message
from licet.surfaces.gateway.link import Flood, Gone, StdioLink
from licet.surfaces.gateway.names import Naming

_MOST_WAITING = 8 << 20  # bytes that wait for the client; progress and log messages are left out beyond this


async def serve_stdio(backend: GovernedBackend, names: Naming, report: Callable[[str], None]) -> None:
    """Serve until the client closes its end."""
    link = StdioLink()
    outbox: asyncio.Queue[Message | None] = asyncio.Queue()
    waiting = 0

    def send(message: Message) -> None:
        if waiting or not outbox.empty() or not link.send_now(write_message(message)):
            outbox.put_nowait(message)

    async def write() -> None:
        nonlocal waiting
        while (message := await outbox.get()) is not None:
            line = write_message(message)
            waiting += len(line)
            await link.send(line)
            waiting -= len(line)

    connection = Connection(
        backend, send, names=names, crowded=lambda: waiting > _MOST_WAITING or outbox.qsize() > 10_000
    )
    backend.front = connection
    writer = asyncio.create_task(write())
    try:
        while line := await link.receive():
            try:
                message = read_message(line)
            except BadMessage as bad:
                report(f"client: {bad}")
                if bad.id is None:
                    continue
                if not bad.is_answer:
                    send(Failure(bad.id, bad.code, str(bad)))
                    continue
                message = Failure(bad.id, bad.code, "a malformed answer")  # so that nothing waits for it
            await connection.receive(message)
            if writer.done():
                break
    except (Gone, Flood) as ended:
        report(f"client: {ended}")
    finally:
        await connection.close()
        outbox.put_nowait(None)
        with suppress(TimeoutError, Gone):
            await asyncio.wait_for(writer, 2.0)
        await link.close()
