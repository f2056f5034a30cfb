"""Where a host really is: every address of a name, asked for once and all of them checked.

Whoever connects uses one of exactly these: the name is not asked about a second time, when the answer may be another.
"""

from licet.core.address import address_grounds
from licet.core.decision import Deny
from licet.core.use import Use
from licet.guard.holding import Holding
from licet.guard.ports import LOOKED_UP_FOR, Http, Unresolved

_MOST_ADDRESSES = 4  # of one answer, tried one after the other until a connection is made


async def checked_addresses(holding: Holding, http: Http, use: Use) -> tuple[str, ...]:
    """The addresses that a connection for a use may go to, or `Refused`."""
    before = LOOKED_UP_FOR.set(f"{holding.request.session}@{holding.reach.manifest.agent}")
    try:
        addresses = tuple(map(str, await http.resolve(use.target, use.port or 0)))
    except Unresolved as unknown:
        holding.refuse("RESOLVE_FAILED", str(unknown), use)
    except Exception as error:
        holding.refuse("RESOLVE_FAILED", f"the backend failed: {type(error).__name__}", use)
    finally:
        LOOKED_UP_FOR.reset(before)
    if not addresses:
        holding.refuse("RESOLVE_FAILED", "the name has no address", use)
    grounds = address_grounds(use, addresses, holding.reach)
    if grounds:
        holding.deny(Deny(holding.request, grounds, use))
    return addresses[:_MOST_ADDRESSES]
