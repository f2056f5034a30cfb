"""Connects to a server that has a `url`: policy first, then secrets, then the link. The gateway and the lock use it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from licet.assemble.servers import ServerError, header_secrets, server_grant
from licet.core.decision.reach import Reach
from licet.core.decision.request import Ground
from licet.core.decision.server_process import remote_misfits
from licet.core.policy.servers import Server
from licet.guard.ports import Ports
from licet.surfaces.gateway.endpoint import Endpoint
from licet.surfaces.gateway.http_link import HttpLink


@asynccontextmanager
async def remote_link(
    server: Server,
    reach: Reach,
    ports: Ports,
    *,
    report: Callable[[str], None],
    schema_of: Callable[[str], Mapping[str, Any]] = lambda _: {},
) -> AsyncIterator[HttpLink]:
    """A link to a remote server. `reach` is what `process_reach` says. Raises `ServerError`.

    `schema_of` has the locked argument schema of each tool; it is needed for calls alone.
    """
    if missing := remote_misfits(server, reach):
        raise ServerError(f"the server `{server.name}` is not connected to: {'; '.join(map(_text, missing))}")
    if ports.http is None:
        raise ServerError("remote servers need a backend for the network: use `Backends.local()`")
    headers, redactor = await header_secrets(server, reach, ports)
    endpoint = Endpoint(
        server.url, server_grant(server, reach), ports.http, headers=headers, redactor=redactor, report=report
    )
    link = HttpLink(server.name, endpoint, schema_of)
    try:
        yield link
    finally:
        await link.close()


def _text(ground: Ground) -> str:
    return f"{ground}; to allow it: {ground.fix}" if ground.fix else str(ground)
