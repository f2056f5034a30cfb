"""Connections that nobody mediates: made and checked here, and handed to whoever is behind walls.

Such a connection is `network:tcp:host:port` and nothing less, whatever will be said over it.
"""

import asyncio
import socket

from licet.core.algebra.scope import is_address
from licet.core.algebra.use import InvalidUse, Use
from licet.guard.grant import Holding
from licet.guard.handles.fetch import checked_addresses
from licet.guard.ports import Http

CONNECT_SECONDS = 10.0  # for one address: a silent one may not use up the time of those after it


async def dial(holding: Holding, http: Http | None, host: str, port: int) -> socket.socket:
    """A connection to a host that the call holds, or `Refused`; the socket does not block."""
    try:
        bare = host.strip("[]")
        use = Use(f"network:tcp:{f'[{bare}]' if ':' in bare else host}:{port}")
    except InvalidUse as wrong:
        holding.invalid("HOST_NOT_ALLOWED", wrong)
    holding.check(use)
    there = holding.backend(http, use)
    text = "no connection"
    for address in await checked_addresses(holding, there, use):
        if not is_address(address) and not is_address(f"[{address}]"):
            continue  # a backend that gives names for addresses would have them resolved unchecked
        try:
            return await connected(address, port)
        except TimeoutError:
            text = "no connection in time"
        except ConnectionRefusedError:
            text = "connection refused"
        except OSError:
            text = "no connection"
    holding.refuse("CONNECT_FAILED", text, use)


async def connected(address: str, port: int) -> socket.socket:
    """A connection to an address that was checked, or `OSError`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            made.connect((address, port))  # of this machine, the other side answers at once
        except BlockingIOError:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(made, (address, port))  # goes on with what has begun
    except BaseException:
        made.close()
        raise
    return made
