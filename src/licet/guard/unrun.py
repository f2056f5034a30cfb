"""Receipts about calls that run no tool: one that a surface does not pass on, and a question of a server on its own.

The client of a gateway is told of a hidden tool only that there is none. The receipt has its name, and why.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from licet.core.canonical import data_digest
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground
from licet.declare.arguments import InvalidArguments
from licet.declare.patience import patiently
from licet.declare.plain_json import plain_data, plain_json
from licet.errors import Refused
from licet.guard.argument_check import arguments_digest
from licet.guard.call import Call, declare, deny_misfit, make_grant, resolve
from licet.guard.close import close, outcome
from licet.guard.ending import check_session
from licet.guard.observing import Observed
from licet.guard.result import Result, ResultParts

if TYPE_CHECKING:
    from licet.guard.session import Session


async def refuse_call(session: "Session", tool: str, arguments: Mapping[str, Any], ground: Ground) -> Result:
    """Refuse and record a call: for the reason of the policy if it has one, otherwise for `ground`. Nothing runs."""
    call = Call(session, tool)
    try:
        check_session(call)
        registered = call.registered = declare(call)
        if registered.misfits:
            await deny_misfit(call, registered, arguments)
        with suppress(InvalidArguments):  # the receipt then has no digest of them
            call.arguments = await patiently(registered.validate, arguments)
            call.digest = arguments_digest(call.arguments)
        denied = resolve(call)
        make_grant(call, registered).deny(denied if isinstance(denied, Deny) else Deny(call.request, (ground,)))
    except Exception as error:
        return await _closed(call, outcome(call, error))


async def record_question(
    session: "Session", name: str, params: Mapping[str, Any] | None, ground: Ground | None
) -> Result:
    """Record a question that a server asks while none of its calls runs, as a call of `name`.

    With `ground` it is refused. It is recorded before the client is asked: if that fails, the result is a refusal too.
    """
    call = Call(session, name, "asked by the server itself, outside of a call")
    parts = ResultParts(name)
    try:
        check_session(call)
        if params is not None:
            call.digest = data_digest(plain_data(plain_json(params)))
        if ground is not None:
            parts = outcome(call, Refused(Deny(call.request, (ground,))))
    except Exception as error:
        parts = outcome(call, error)
    return await _closed(call, parts)


async def _closed(call: Call, parts: ResultParts) -> Result:
    """Write the receipt. While a gateway only observes, it says so, like all its receipts."""
    if (observing := call.session.observing) is not None:
        observing.calls += 1
        call.observed = Observed(observing, call.tool)
        if parts._refusal is not None:
            call.observed.note(parts.reason, *map(str, parts._refusal.rules))
    return await close(call, parts)
