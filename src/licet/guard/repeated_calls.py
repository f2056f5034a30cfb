"""Calls with an id: the first one runs, and one that comes again gets its result.

`find_first` is a step of the call, after it was decided and before anybody is asked: the decision is made again each
time, and nothing is spent or run again. `end_first` keeps the result of the first one. One that was refused before it
ran frees its id. One that ended without a word, such as that of a process that was killed, is never run again.
"""

import asyncio
from contextlib import suppress
from time import monotonic
from typing import NoReturn

from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground
from licet.core.late_pattern import late_pattern
from licet.guard.deadlines import finish, in_time
from licet.guard.facts import Call
from licet.guard.flow_steps import Handed, policy_name
from licet.guard.kept_result import KeptResult, Repeated, read_result, result_bytes, value_text
from licet.guard.limits import FIRST_LOOK, LONGEST_CALL_ID, LONGEST_LOOK
from licet.guard.ports import Begun, CallKey, Kept, KeptCalls, LedgerUnavailable, Lost, Reused, Unavailable, UnderWay
from licet.guard.result_parts import ResultParts
from licet.guard.session_end import check_session, look_up_end

_STORE = "the store of calls with an id"
_ID = late_pattern(rf"[!-~]{{1,{LONGEST_CALL_ID}}}")
ID_FORM = f"1 to {LONGEST_CALL_ID} visible ASCII characters"


def is_call_id(id: object) -> bool:  # noqa: A002
    """Whether this can be the id of a call."""
    return type(id) is str and _ID.fullmatch(id) is not None


async def find_first(call: Call) -> None:
    """Begin a call under its id, or find what it repeats. While the first one runs, wait until its own time is up."""
    store = call.ports.kept_calls
    if store is None:
        text = "this call has an id, and no backend keeps what became of such calls"
        call.refuse("BACKEND_MISSING", text, "pass `backends=Backends.local()`, or `backends=Backends(kept_calls=…)`")
    key = CallKey(call.session.agent, call.session.id, call.tool, call.id)
    began, pause = monotonic(), FIRST_LOOK
    while True:
        match await _begun(call, store, key):
            case Begun() as first:
                call.first = first
                return
            case Kept(receipt, data):
                found = read_result(data)
                if found is None:
                    _unknown(call, receipt)
                call.repeated, call.approvals = Repeated(receipt, found), ()
                return
            case Reused(receipt):
                text = f"the id `{call.id}` was used for a call with other arguments{_receipt(receipt)}"
                call.refuse("CALL_ID_REUSED", text, "another call needs another id")
            case Lost(receipt):
                _unknown(call, receipt)
            case UnderWay(receipt):
                if call.stores.left <= pause:
                    waited = f"waited {monotonic() - began:.1f} seconds for it"
                    call.refuse("LIMIT_TIME", f"the first call with this id still runs{_receipt(receipt)}: {waited}")
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_LOOK)
        await look_up_end(call.session, call.stores)
        check_session(call)
        if call.session.gate.policy is not call.policy:
            call.refuse("MANIFEST_CHANGED", "another manifest was loaded while the first call with this id ran")


async def _begun(call: Call, store: KeptCalls, key: CallKey) -> Begun | UnderWay | Kept | Reused | Lost:
    try:
        return await in_time(call.stores, store.begin(key, call.digest, call.receipt), _STORE)
    except (Unavailable, LedgerUnavailable) as broken:
        call.refuse("BACKEND_MISSING", f"{_STORE} cannot be used", str(broken))


def _unknown(call: Call, receipt: str) -> NoReturn:
    text = f"how the first call with this id ended is not known{_receipt(receipt)}: it is not run again"
    fix = f"see what it did with `licet receipts show {receipt}`; then call with another id" if receipt else ""
    call.refuse("CALL_UNKNOWN", text, fix)


def _receipt(receipt: str) -> str:
    return f" (receipt {receipt})" if receipt else ""


def result_again(call: Call, repeated: Repeated) -> ResultParts:
    """The result of the first call of an id, for one that comes again."""
    kept = repeated.result
    call.result_bytes = kept.size
    parts = ResultParts(call.tool, kept.data, repeats=repeated.receipt, truncated=kept.truncated)
    if kept.code != "ok":
        told = kept.error.partition(": ")[2]
        parts.ok, parts.code, parts.reason, parts.error = False, kept.code, kept.reason, kept.error
        parts.refusal = Deny(call.request, (Ground(kept.reason, told),))
    return parts


async def end_first(call: Call, parts: ResultParts, handed: Handed | None) -> None:
    """Keep the result of the first call of an id, or free the id if it did not run.

    Where neither can be written, the end of this call is unknown to others, and they do not run it.
    """
    first, store = call.first, call.ports.kept_calls
    if first is None or store is None:
        return
    with suppress(asyncio.CancelledError, Exception):
        if call.running:
            await finish(call.stores, _keep(call, store, first, parts, handed), _STORE)
        else:
            await finish(call.stores, store.drop(first), _STORE)
    call.first = None


async def _keep(call: Call, store: KeptCalls, first: Begun, parts: ResultParts, handed: Handed | None) -> None:
    made = await asyncio.to_thread(_kept, call, parts, handed) if call.is_long else _kept(call, parts, handed)
    await store.finish(first, made)


def _kept(call: Call, parts: ResultParts, handed: Handed | None) -> bytes:
    return result_bytes(
        KeptResult(
            policy=policy_name(call),
            code=parts.code,
            reason=parts.reason,
            error=parts.error,
            value=value_text(parts.value),
            truncated=parts.truncated,
            size=call.result_bytes,
            brought=handed.brought if handed is not None else None,
        )
    )
