"""Ends a call: makes its `Result`, redacted and cut to its limit, and writes the receipt."""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from decimal import Decimal
from time import monotonic
from typing import Any, NoReturn, get_args

from msgspec.structs import replace

from licet.core.algebra.rules import Use
from licet.core.algebra.scope import visible
from licet.core.decision.decision import Ask, Deny, ToolPrinted, all_events
from licet.core.decision.request import Ground, Reason, Request
from licet.core.values import Origin
from licet.declare.plain_json import check_bounded, data_again, is_heavy, json_core, plain_json, with_typed_bytes
from licet.errors import Refused
from licet.guard.approvals_and_budgets import settle
from licet.guard.deadlines import finish
from licet.guard.execution import LIMIT_KEYS, FailedText, JsonText, Raised, class_name, limit_name, raised
from licet.guard.facts import Call
from licet.guard.grant import Grant, held_paths
from licet.guard.handles.secrets_and_kv import redacted_refusal
from licet.guard.limits import (
    CLOSING_SECONDS,
    LONG_RESULT,
    MOST_DIRECTORIES,
    MOST_OF_AN_ERROR,
    MOST_OF_LOGS,
    PARSED_BEYOND,
)
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.guard.receipt import keep_receipt
from licet.guard.redaction.redact import Redactor, encoded, in_turn, shown
from licet.guard.registration import Registered
from licet.guard.result import NOTHING, REPORTED, Result, ResultParts, code_of
from licet.guard.session_end import caller_cancelled

_REASONS = frozenset(get_args(Reason))
_NO_WORDS = ("note: ", "thread '")  # how lines begin that the runtime of Rust adds to an error
_NEW_NAMES = "new names directly in {}, next to names that are closed, can be made with `ctx.fs` alone"
_USE_HANDLES = (
    "if a wall stopped this: declare what it touches, and use its handle (`ctx.fs`, `ctx.fetch`, `ctx.process`)"
)

_LOADED_AGAIN = (
    "the module of a tool is loaded a second time, behind the walls, where no files, network, arguments or variables "
    'of your program are: put what starts the program under `if __name__ == "__main__":`, and what the tool needs '
    "into the tool (`ctx.fs`, `ctx.env`, arguments)"
)


async def succeeded(call: Call, value: object) -> ResultParts:
    """The result of a tool that returned: a copy of its data, redacted, and cut to its limit."""
    if value is None or value is True or value is False:
        return ResultParts(call.tool, value)
    text = value if isinstance(value, JsonText) else result_text(value)
    limit, redactor = call.registered.output_bytes if call.registered else 0, call.redactor
    call.long_result = len(text) > LONG_RESULT
    if len(text) > limit:  # before anything is parsed
        return _as_reported(call, value, await _cut(call, text, limit, redactor))
    text, data = _parsed(call, text)
    if call.long_result:  # parsing took a while, and so does redaction
        await asyncio.sleep(0)
    if redactor is not None:  # the text as one: it may hold very many strings
        clean = await _redacted(call, redactor.work(text, as_json=True))
        text, data = clean, data_again(clean)
    parts = await _cut(call, text, limit) if len(text) > limit else ResultParts(call.tool, data)
    return _as_reported(call, value, parts)


def _as_reported(call: Call, value: object, parts: ResultParts) -> ResultParts:
    """The result as a failure if the tool says that it is one. It keeps what the tool returned."""
    if type(value) is FailedText:
        data = parts.value
        parts.refuse("execution_failed", Refused(Deny(call.request, (Ground("TOOL_FAILED", REPORTED),))))
        parts.value = data
    return parts


async def _cut(call: Call, text: bytes, limit: int, redactor: Redactor | None = None) -> ResultParts:
    """The result of a tool that returned too much: the beginning of its text, or of its JSON if it is no text."""
    cut = text
    if text[:1] == b'"':  # a text: parse as far as a secret that begins within the limit can reach
        cut = encoded(_partly(call, text[: 2 * limit + PARSED_BEYOND]))
    clean = cut[:limit] if redactor is None else await _redacted(call, redactor.work_on_beginning(cut, limit))
    parts = ResultParts(call.tool, shown(clean))
    parts.truncated = True
    return parts


async def _redacted(call: Call, work: Generator[None, None, bytes]) -> bytes:
    """Remove secrets from a result within the time of its call; nothing leaves that was not searched completely."""
    left = call.deadline.when - monotonic() if call.deadline is not None else 0.0
    try:
        return await in_turn(work, max(left, CLOSING_SECONDS))
    except TimeoutError:
        fix = f"return less, or raise {limit_name('LIMIT_TIME')}"
        call.refuse(
            "LIMIT_TIME", f"the time of {call.tool} was up before all secrets were removed from its result", fix
        )


def _partly(call: Call, text: bytes) -> str:
    try:
        found: str = json_core().from_json(text, allow_partial="trailing-strings")
    except ValueError:
        _no_json(call)
    return found


def _parsed(call: Call, text: bytes) -> tuple[bytes, Any]:
    """The canonical JSON of a result and its data; refuse one whose parsing would delay other calls."""
    if is_heavy(text):
        fix = "return fewer values, or one text"
        call.refuse("LIMIT_OUTPUT", "the result holds more values than can be parsed without delay for others", fix)
    try:
        data = data_again(text)
        if not isinstance(text, JsonText) or (canonical := plain_json(data)) == text:
            return text, data
        return canonical, data_again(canonical)  # another process may write the same data differently
    except (ValueError, RecursionError):
        _no_json(call)


def _no_json(call: Call) -> NoReturn:
    call.refuse("TOOL_CRASHED", "the tool's process returned a result that is not JSON")


def result_text(value: object) -> bytes:
    """The JSON of what a tool returned, at every level the same; `TypeError` if it has none."""
    kind = type(value)
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        raise TypeError("it returned a generator: return a list")
    try:
        has_bytes = check_bounded(value)
    except ValueError as error:
        raise TypeError(f"it returned what JSON cannot carry: {error}") from None
    value = with_typed_bytes(value) if has_bytes else value
    try:
        return plain_json(value)
    except ValueError as error:  # its text may show the value
        raise TypeError(f"it returned what JSON cannot carry: {class_name(kind)}") from error


def refused(call: Call, refusal: Refused) -> ResultParts:
    """The result of a call that was refused, before its tool ran or by a handle inside it."""
    code, decision = code_of(refusal.code), refusal.decision
    if call.running and refusal.code != "TOOL_NOT_AVAILABLE":  # a server that is gone: whatever it did is not known
        code = "timed_out" if call.deadline and call.deadline.expired and not call.was_cut else "execution_failed"
        if decision.use is None and refusal.code in LIMIT_KEYS:
            decision = _with_advice(call, decision)
    told = Refused(decision)
    if call.redactor is not None:
        told = redacted_refusal(call.redactor, told)
    return ResultParts(call.tool).refuse(code, told)


def _with_advice(call: Call, decision: Deny | Ask) -> Deny | Ask:
    """The refusal of a tool that ran into a limit, with a fix: which limit to raise, and where it is stated."""
    ground, manifest = decision.rules[0], call.policy.manifest
    if (
        isinstance(decision, Ask) or ground.fix or ground.reason == "LIMIT_OUTPUT"
    ):  # a fixed size of licet, in no manifest
        return decision
    name = limit_name(ground.reason)
    fix, place = f"set a higher {name} under `capabilities` ({manifest.origin.file})", ground.origin
    if found := _limit_place(call, LIMIT_KEYS[ground.reason]):
        whose, place = found
        fix = f"raise {name}{whose} ({place})"
    return Deny(decision.request, (replace(ground, fix=fix, origin=place),), None)


def _limit_place(call: Call, key: str) -> tuple[str, Origin] | None:
    """Which part of the policy states the limit of this call, and where; None if none does."""
    manifest, registered = call.policy.manifest, call.registered
    limit = registered.limits.get(key) if registered is not None else None
    if limit is None:
        return None
    if manifest.limits.get(key) == limit:
        place = manifest.places.get(f"limits.{key}", manifest.origin)
        # A personality has the keys of `capabilities` at its top level.
        return " under `capabilities`" if place.file == manifest.origin.file else "", place
    for admission in manifest.admissions.get(call.tool, ()):
        if admission.limits.get(key) == limit:
            return (
                f" of the bundle `{admission.bundle}`" if admission.bundle else f" of `{call.tool}`",
                admission.origin,
            )
    return None


def failed(call: Call, error: BaseException) -> ResultParts:
    """The result of a call that raised an error: the tool's own, or one of licet before the tool ran."""
    reason: Reason = "TOOL_FAILED" if call.running else "DECISION_FAILED"
    known = error if type(error) is Raised else raised(error)
    told = known.kind
    if call.running and (text := str(known)):
        told = f"{told}: {text}"
    told = told.strip()
    if known.loading:
        told = f"its module could not be loaded behind the walls: {told}"
    printed = known.printed
    if call.redactor is not None:  # all lines: a secret may have several
        told = call.redactor.beginning_of(told, 4 * MOST_OF_AN_ERROR)
        printed = call.redactor.text(printed)
    said = [line for line in map(str.strip, printed.splitlines()) if line and not line.startswith(_NO_WORDS)]
    told = ": ".join((told.partition("\n")[0][:MOST_OF_AN_ERROR], *said[-1:]))
    told = visible(told[:MOST_OF_AN_ERROR])[:MOST_OF_AN_ERROR]
    at = known.origin or _raised_behind_walls(call, known)
    fix = _LOADED_AGAIN if known.loading else _wall_advice(call) if known.forbidden else ""
    refusal = Refused(Deny(call.request, (Ground(reason, told, at, fix),)))
    return ResultParts(call.tool).refuse("execution_failed" if call.running else "denied", refusal)


def outcome(call: Call, error: BaseException) -> ResultParts:
    """The result of a call that raised. A tool can raise anything, also a `Refused` of its own making."""
    with suppress(Exception):
        if type(error) is Refused and _is_complete(error):
            return refused(call, error)
    with suppress(Exception):
        return failed(call, error)
    ground = Ground("TOOL_FAILED" if call.running else "DECISION_FAILED", class_name(type(error)))
    refusal = Refused(Deny(call.request, (ground,)))
    return ResultParts(call.tool).refuse("execution_failed" if call.running else "denied", refusal)


def _is_complete(refusal: Refused) -> bool:
    """Whether a refusal has all fields of the right types: one that a tool made itself may hold anything."""
    decision = refusal.decision
    if type(decision) is not Deny and type(decision) is not Ask:
        return False
    asked, rules = decision.request, decision.rules
    grounds = [type(rule) is Ground and _is_valid(rule) for rule in rules]
    known = isinstance(asked, Request) and type(asked.tool) is str and type(decision.use) in (Use, type(None))
    return known and bool(grounds) and all(grounds) and refusal.code in _REASONS


def _is_valid(ground: Ground) -> bool:
    origin = ground.origin is None or type(ground.origin) is Origin
    return origin and ground.reason in _REASONS and type(ground.text) is str and type(ground.fix) is str


def _wall_advice(call: Call) -> str:
    """The fix for an error that a wall may have caused. It lists directories where only `ctx.fs` can create files."""
    reach = call.registered.reach if call.registered is not None else None
    if reach is None or reach.level != "isolated":
        return _USE_HANDLES
    closed = held_paths(reach.grant).directories_with_closed_names()
    if not closed:
        return _USE_HANDLES
    named = ", ".join(visible(path) for path in closed[:MOST_DIRECTORIES])
    more = f" and {len(closed) - MOST_DIRECTORIES} more" if len(closed) > MOST_DIRECTORIES else ""
    return f"{_USE_HANDLES}; {_NEW_NAMES.format(f'{named}{more}')}"


def _raised_behind_walls(call: Call, error: Raised) -> Origin | None:
    """Where a tool in a worker raised. The worker reports only the line: it could lie about a file."""
    code = getattr(call.registered.tool.fn, "__code__", None) if call.registered is not None else None
    return Origin(code.co_filename, error.line, 1) if code is not None and error.line else None


async def close(call: Call, parts: ResultParts) -> Result:
    """Settle the budget, write the receipt, and return the result. Every call gets here, refused or not.

    A cancel of the caller is raised when all of it is done.
    """
    grant, ledger = call.grant, call.ports.ledger
    call.stores.at_least(CLOSING_SECONDS)
    if grant is not None:
        grant.end()  # first: its handles refuse from here on
    if call.running and call.registered is not None:
        parts.layers = () if call.is_elsewhere else call.registered.layers
        parts.cost_usd = _cost(call, call.registered)
    else:
        parts.layers, parts.cost_usd = (), NOTHING
    if (call.reservation is not None or call.bundle_reservations) and grant is not None:
        try:
            settled = await settle(call, parts.cost_usd)
            if settled is not None:
                grant.note(settled)
        except Refused as refusal:  # an observer failed
            parts.refuse("execution_failed" if call.running else "denied", refusal)
    if grant is not None:
        parts.programs, parts.program_access = grant.programs, grant.program_access
        parts.access = grant.access if call.running else None
        if grant.printed:
            with suppress(asyncio.CancelledError, Exception):  # what was not searched for secrets is not kept
                parts.logs = await finish(call.stores, _logs(call, grant), "the search for secrets")
    else:
        parts.programs = None
        _notify_observers(call, parts)
    if call.approvals:
        parts.approvals = call.shown_approvals
    parts.receipt = call.receipt
    parts.duration_ms = (call.clock.monotonic() - call.started) * 1000
    if ledger is not None:
        try:
            await finish(call.stores, keep_receipt(call, ledger, parts), "the ledger")
        except (asyncio.CancelledError, Exception) as error:  # a ledger, which may be a user's, can cancel itself
            _unrecorded(call, parts, error)
    if call.stores.cancelled is not None and caller_cancelled(call):
        raise call.stores.cancelled
    return parts.sealed(grant, None if grant is not None else call.identity)


async def _logs(call: Call, grant: Grant) -> str:
    """What the tool printed, as text without secrets. Observers get it as an event; the ledger does not keep it."""
    text = grant.printed.decode("utf-8", "replace")
    cut = len(grant.printed) > MOST_OF_LOGS
    if call.redactor is not None:
        try:
            work = call.redactor.work_on_beginning(encoded(text), MOST_OF_LOGS)
            text = shown(await in_turn(work, CLOSING_SECONDS))
        except TimeoutError:
            text = "… (what the tool printed could not be searched for secrets in time, and was not kept)\n"
    text = "\n".join(visible(line.expandtabs(4)) for line in text[:MOST_OF_LOGS].split("\n"))
    if cut:
        text = f"{text}\n… (the tool printed more, which was not kept)\n"
    with suppress(Refused):  # an observer failed; the call has ended, and its result stays
        grant.note(ToolPrinted(f"tool:call:{call.tool}", call.tool, "", text), kept=False)
    return text


def _unrecorded(call: Call, parts: ResultParts, error: BaseException) -> None:
    """Turn a result into a refusal: its receipt could not be written. It says whether the tool ran."""
    known = isinstance(error, LedgerUnavailable | Unavailable)
    text = "the ledger could not keep the receipt" + ("" if known else f": {type(error).__name__}")
    if call.running:
        text = f"{call.tool} ran, and {text}: what it did is done"
    else:  # the ledger has not even the decision: there is nothing under this id
        parts.receipt = ""
    refusal = Refused(Deny(call.request, (Ground("LEDGER_UNAVAILABLE", text, fix=str(error) if known else ""),)))
    parts.refuse("execution_failed" if call.running else "not_available", refusal)


def _cost(call: Call, registered: Registered) -> Decimal:
    """The cost of a call that ran: what the tool charged, or else what it declares."""
    charged = call.charged() if call.charged is not None else None
    return charged if charged is not None else registered.cost_usd


def _notify_observers(call: Call, parts: ResultParts) -> None:
    """Pass the events of a call that was refused before it had a grant."""
    if parts.refusal is None:
        return
    for observer in call.session.gate.observers:
        try:
            for event in all_events(parts.refusal):
                observer(call.identity.stamped(event, call.clock.monotonic()))
        except Exception as error:
            text = f"an observer failed: {type(error).__name__}"
            parts.refuse("denied", Refused(Deny(call.request, (Ground("DECISION_FAILED", text),))))
