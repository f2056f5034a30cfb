"""Sends a request to an address that was checked: the name is resolved once, and every address must be allowed.

The connection goes to one of these addresses. The name is not resolved again, because a second answer could be
different.
"""

from contextlib import AsyncExitStack

from msgspec import Struct

from licet.core.algebra.use import Destination, Use
from licet.core.decision.decision import Deny
from licet.core.decision.obstacles import address_grounds
from licet.guard.grant import Grant
from licet.guard.handles.messages import Outgoing
from licet.guard.ports import LOOKED_UP_FOR, Exchange, Http, Reply, Unconnected, Unreached, Unresolved

_MOST_ADDRESSES = 4  # that are tried, one after the other


async def checked_addresses(grant: Grant, http: Http, use: Use) -> tuple[str, ...]:
    """Resolve the host of a use, and return the addresses to try; `Refused` if any address is not allowed."""
    before = LOOKED_UP_FOR.set(f"{grant.request.session}@{grant.reach.manifest.agent}")
    try:
        addresses = tuple(map(str, await http.resolve(use.target, use.port or 0)))
    except Unresolved as unknown:
        grant.refuse("RESOLVE_FAILED", str(unknown), use)
    except Exception as error:
        grant.refuse("RESOLVE_FAILED", f"the backend failed: {type(error).__name__}", use)
    finally:
        LOOKED_UP_FOR.reset(before)
    if not addresses:
        grant.refuse("RESOLVE_FAILED", "the name has no address", use)
    grounds = address_grounds(use, addresses, grant.reach)
    if grounds:
        grant.deny(Deny(grant.request, grounds, use))
    return addresses[:_MOST_ADDRESSES]


class FetchLimits(Struct, frozen=True):
    """The limits of one request. A caller may set `seconds`, and `body_bytes` up to `most_body_bytes`."""

    seconds: float = 30.0  # in total, with redirects and body
    body_bytes: int = 10 * 1024 * 1024  # after decoding
    header_bytes: int = 64 * 1024
    header_lines: int = 256
    redirects: int = 5
    most_body_bytes: int = 256 * 1024 * 1024


async def first_reply(
    stack: AsyncExitStack,
    grant: Grant,
    http: Http,
    there: Destination,
    message: Outgoing,
    seconds: float,
    limits: FetchLimits,
) -> Reply:
    """Send a request to the first checked address that can be connected to, and return the head of the answer.

    `seconds` is for each wait. The use in `there` decides which addresses are allowed; whether it is granted was
    checked before. The connection is released with `stack`.
    """
    use, text = there.use, ""
    for address in await checked_addresses(grant, http, use):
        exchange = Exchange(
            there.method, there.url, use.target, use.port or 0, address, message.lines, message.body, seconds
        )
        try:
            reply = await stack.enter_async_context(http.send(exchange))
        except Unreached as failed:
            text = str(failed)
        except Unconnected as broken:
            grant.refuse("CONNECT_FAILED", str(broken), use)
        except Exception as error:  # its text may contain anything, so only the type is shown
            grant.refuse("CONNECT_FAILED", f"the backend failed: {type(error).__name__}", use)
        else:
            _measure(grant, reply, use, limits)
            return reply
    grant.refuse("CONNECT_FAILED", text, use)


def _measure(grant: Grant, reply: Reply, use: Use, limits: FetchLimits) -> None:
    """Refuse an answer with too many or too long headers."""
    if len(reply.headers) > limits.header_lines:
        grant.refuse("LIMIT_SIZE", f"the answer has more than {limits.header_lines} headers", use)
    if sum(len(name) + len(value) for name, value in reply.headers) > limits.header_bytes:
        grant.refuse("LIMIT_SIZE", f"the answer has more than {limits.header_bytes} bytes of headers", use)
