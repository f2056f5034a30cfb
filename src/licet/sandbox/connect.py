"""Connections that carry anything: a tunnel of a program, or a socket of a tool.

Such a connection needs `network:tcp:host:port`, whatever is sent over it. The name is resolved once, every address is
checked, and the connection goes to one of them.
"""

import asyncio
import socket

from licet.core.algebra.scope import is_address
from licet.core.algebra.use import InvalidUse, Use
from licet.guard.grant import Grant
from licet.guard.handles.dial import checked_addresses
from licet.guard.ports import Http

CONNECT_SECONDS = 10.0  # for one address: a silent one must not use up the time of the others


async def connect(grant: Grant, http: Http | None, host: str, port: int) -> socket.socket:
    """A non-blocking socket that is connected to a host which the call holds. Raises `Refused`."""
    try:
        bare = host.strip("[]")
        use = Use(f"network:tcp:{f'[{bare}]' if ':' in bare else host}:{port}")
    except InvalidUse as wrong:
        grant.invalid("HOST_NOT_ALLOWED", wrong)
    grant.check(use)
    resolver = grant.backend(http, use)
    text = "no connection"
    for address in await checked_addresses(grant, resolver, use):
        if not is_address(address) and not is_address(f"[{address}]"):
            continue  # a backend that returns a name would have it resolved again, unchecked
        try:
            return await _connected(address, port)
        except TimeoutError:
            text = "no connection in time"
        except ConnectionRefusedError:
            text = "connection refused"
        except OSError:
            text = "no connection"
    grant.refuse("CONNECT_FAILED", text, use)


async def _connected(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made
