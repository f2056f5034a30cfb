"""The end of a call: whatever happened becomes one `Result`, redacted and capped, and leaves a receipt."""

import asyncio
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.algebra.use import Use
from licet.core.decision.decision import Ask, Deny, all_events
from licet.core.decision.request import Ground, Reason, Request
from licet.core.origin import Origin
from licet.declare.plain_json import check_bounded, data_again, is_heavy, json_core, plain_json
from licet.errors import Refused
from licet.guard.approvals import told_agreements
from licet.guard.deadline import in_time, was_cancelled
from licet.guard.execution import LIMIT_KEYS, JsonText, Raised, class_name, limit_name, raised
from licet.guard.handles.files import held_paths
from licet.guard.handles.secrets import redacted_refusal
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.guard.receipt import keep_receipt
from licet.guard.redaction.redact import Redactor, in_turn
from licet.guard.registration import Registered
from licet.guard.result import NOTHING, Result, ResultParts, code_of
from licet.guard.spending import settle

if TYPE_CHECKING:
    from licet.guard.call import Call

MOST_OF_AN_ERROR = 1000  # characters
CLOSING_SECONDS = 2.0  # that the stores have after a tool has ended, even if the time of its call is up
_REASONS = frozenset(get_args(Reason))
_LONG = 64 << 10  # bytes of a result that takes a while to be written down
_BEHIND = 1 << 20  # bytes of a long text that are looked at behind twice its limit
_MOST_DIRECTORIES = 3  # that one message names
_NEW_NAMES = "new names directly in {}, next to names that are closed, can be made with `ctx.fs` alone"
_USE_HANDLES = (
    "if a wall stopped this: declare what it touches, and use its handle (`ctx.fs`, `ctx.fetch`, `ctx.process`)"
)


async def succeeded(call: "Call", value: Any) -> ResultParts:
    """The result of a tool that returned: plain data, frozen here, and no longer than its limit."""
    if value is None or value is True or value is False:
        return ResultParts(call.tool, value)
    text = value if type(value) is JsonText else result_text(value)
    limit, redactor = call.registered.output_bytes if call.registered else 0, call.redactor
    call.long_result = len(text) > _LONG
    if len(text) > limit:  # compared before anything is parsed
        return await _cut(call, text, limit, redactor)
    text, data = _parsed(call, text)
    if call.long_result:  # that took a while, and so does what follows
        await asyncio.sleep(0)
    if redactor is not None:  # once over the whole text: it may hold very many strings
        clean = await in_turn(redactor.work(text, as_json=True))
        text, data = clean, data_again(clean)
    if len(text) > limit:
        return await _cut(call, text, limit)
    return ResultParts(call.tool, data)


async def _cut(call: "Call", text: bytes, limit: int, redactor: Redactor | None = None) -> ResultParts:
    """The result of a tool that returned too much: a text is cut as a text, and anything else as its JSON."""
    whole = text
    if text[:1] == b'"':  # no further than a secret could reach that begins within the limit
        whole = _partly(call, text[: 2 * limit + _BEHIND]).encode(errors="surrogatepass")
    shown = whole[:limit] if redactor is None else await in_turn(redactor.work_on_beginning(whole, limit))
    parts = ResultParts(call.tool, shown.decode(errors="ignore"))
    parts.truncated = True
    return parts


def _partly(call: "Call", text: bytes) -> str:
    try:
        found: str = json_core().from_json(text, allow_partial="trailing-strings")
    except ValueError:
        _no_json(call)
    return found


def _parsed(call: "Call", text: bytes) -> tuple[bytes, Any]:
    """The data that a result says, if that is told without delay for other calls, and its usual text."""
    if is_heavy(text):
        fix = "return fewer values, or one text"
        call.refuse("LIMIT_OUTPUT", "the result holds more values than can be parsed without delay for others", fix)
    try:
        data = data_again(text)
        if type(text) is not JsonText or (usual := plain_json(data)) == text:
            return text, data
        return usual, data_again(usual)  # another process may spell numbers that JSON has no word for
    except (ValueError, RecursionError):
        _no_json(call)


def _no_json(call: "Call") -> NoReturn:
    call.refuse("TOOL_CRASHED", "the tool's process gave back what is no JSON")


def result_text(value: Any) -> bytes:
    """What a tool returned, as JSON; `TypeError` if that cannot be. The same wherever the tool ran."""
    kind = type(value)
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        raise TypeError("it returned a generator: return a list")
    try:
        check_bounded(value)
    except ValueError as error:
        raise TypeError(f"it returned what JSON cannot carry: {error}") from None
    try:
        return plain_json(value)
    except ValueError as error:  # its text may show the value
        raise TypeError(f"it returned what JSON cannot carry: {class_name(kind)}") from error


def refused(call: "Call", refusal: Refused) -> ResultParts:
    """The result of a call that was refused, before its tool ran or by a handle inside it."""
    code, decision = code_of(refusal.code), refusal.decision
    if call.running:
        code = "timed_out" if call.deadline and call.deadline.expired else "execution_failed"
        if decision.use is None and refusal.code in LIMIT_KEYS:
            decision = _with_advice(call, decision)
    told = Refused(decision)
    return ResultParts(call.tool).refuse(code, told if call.redactor is None else redacted_refusal(call.redactor, told))


def _with_advice(call: "Call", decision: Deny | Ask) -> Deny | Ask:
    """A tool that was ended at a limit of its own, with what would let it go on."""
    ground, manifest = decision.rules[0], call.policy.manifest
    if isinstance(decision, Ask) or ground.fix or ground.reason == "LIMIT_OUTPUT":  # that one of answers is ours
        return decision
    name = limit_name(ground.reason)
    fix, place = f"set a higher {name} under `capabilities` ({manifest.origin.file})", ground.origin
    if found := _limit_place(call, LIMIT_KEYS[ground.reason]):
        whose, place = found
        fix = f"raise {name}{whose} ({place})"
    return Deny(decision.request, (replace(ground, fix=fix, origin=place),), None)


def _limit_place(call: "Call", key: str) -> tuple[str, Origin] | None:
    """Who states the limit that holds for this call, and where; None if nobody does."""
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


def failed(call: "Call", error: BaseException) -> ResultParts:
    """The result of a call that something went wrong in: the tool's own error, or one of ours before it ran."""
    reason: Reason = "TOOL_FAILED" if call.running else "DECISION_FAILED"
    told = error if type(error) is Raised else raised(error)
    said = told.kind
    if call.running and (text := str(told)):
        said = f"{said}: {text}"
    said = said.strip()
    if call.redactor is not None:  # with the lines after the first: a secret may have several
        raw = said.encode(errors="surrogatepass")
        said = call.redactor.beginning(raw, 4 * MOST_OF_AN_ERROR).decode(errors="ignore")
    said = visible(said.partition("\n")[0][:MOST_OF_AN_ERROR])[:MOST_OF_AN_ERROR]
    at = told.origin or _raised_behind_walls(call, told)
    fix = _ways_around_walls(call) if told.forbidden else ""
    refusal = Refused(Deny(call.request, (Ground(reason, said, at, fix),)))
    return ResultParts(call.tool).refuse("execution_failed" if call.running else "denied", refusal)


def outcome(call: "Call", error: BaseException) -> ResultParts:
    """The result of a call that ended with an error, whatever that is: a tool can raise anything, our classes too."""
    with suppress(Exception):
        if type(error) is Refused and _is_whole(error):
            return refused(call, error)
    with suppress(Exception):
        return failed(call, error)
    ground = Ground("TOOL_FAILED" if call.running else "DECISION_FAILED", class_name(type(error)))
    refusal = Refused(Deny(call.request, (ground,)))
    return ResultParts(call.tool).refuse("execution_failed" if call.running else "denied", refusal)


def _is_whole(refusal: Refused) -> bool:
    """Whether a refusal holds what ours hold: one that a tool has made by hand may hold anything, or nothing."""
    decision = refusal.decision
    if type(decision) is not Deny and type(decision) is not Ask:
        return False
    asked, rules = decision.request, decision.rules
    told = [type(rule) is Ground and _is_told(rule) for rule in rules]
    known = isinstance(asked, Request) and type(asked.tool) is str and type(decision.use) in (Use, type(None))
    return known and bool(told) and all(told) and refusal.code in _REASONS


def _is_told(ground: Ground) -> bool:
    origin = ground.origin is None or type(ground.origin) is Origin
    return origin and ground.reason in _REASONS and type(ground.text) is str and type(ground.fix) is str


def _ways_around_walls(call: "Call") -> str:
    """What helps a tool that a wall may have stopped, with the directories in which only a handle makes new names."""
    reach = call.registered.reach if call.registered is not None else None
    if reach is None or reach.level != "isolated":
        return _USE_HANDLES
    closed = held_paths(reach.grant).directories_with_closed_names()
    if not closed:
        return _USE_HANDLES
    named = ", ".join(visible(path) for path in closed[:_MOST_DIRECTORIES])
    more = f" and {len(closed) - _MOST_DIRECTORIES} more" if len(closed) > _MOST_DIRECTORIES else ""
    return f"{_USE_HANDLES}; {_NEW_NAMES.format(f'{named}{more}')}"


def _raised_behind_walls(call: "Call", error: Raised) -> Origin | None:
    """The line that the tool's process names, in the file that we know: it can lie about no more than a number."""
    code = getattr(call.registered.tool.fn, "__code__", None) if call.registered is not None else None
    return Origin(code.co_filename, error.line, 1) if code is not None and error.line else None


async def close(call: "Call", parts: ResultParts) -> Result:
    """Settle, redact and record: every exit leaves a receipt, refusals too."""
    grant, ledger = call.grant, call.ports.ledger
    call.stores.at_least(CLOSING_SECONDS)
    if grant is not None:
        grant.end()  # before anything is added up or waited for: from here on its handles refuse
    if call.running and call.registered is not None:
        parts.layers = call.registered.layers
        parts.cost_usd = _cost(call, call.registered)
    else:
        parts.layers, parts.cost_usd = (), NOTHING
    cancelled = None
    if (call.reservation is not None or call.of_bundles) and grant is not None:
        try:
            settled = await settle(call, parts.cost_usd)
            if settled is not None:
                grant.note(settled)
        except Refused as refusal:  # an observer has failed
            parts.refuse("execution_failed" if call.running else "denied", refusal)
        except asyncio.CancelledError as error:  # whoever called has gone; there is still a receipt to leave
            cancelled = error if was_cancelled() else None
    if grant is not None:
        parts.programs, parts.program_access = grant.programs, grant.program_access
        parts.access = grant.access if call.running else None
    else:
        parts.programs = None
        _tell(call, parts)
    if call.approvals:
        parts.approvals = told_agreements(call)
    parts.receipt = call.receipt
    parts.duration_ms = (call.clock.monotonic() - call.started) * 1000
    if ledger is not None:
        try:
            await in_time(call.stores, keep_receipt(call, ledger, parts), "the ledger")
        except asyncio.CancelledError as error:
            if was_cancelled():
                raise
            _unrecorded(call, parts, error)  # a ledger of the operator's own has raised it
        except Exception as error:
            _unrecorded(call, parts, error)
    if cancelled is not None:
        raise cancelled
    return parts.sealed(grant)


def _unrecorded(call: "Call", parts: ResultParts, error: BaseException) -> None:
    """Make a result say that its receipt could not be kept, and whether the tool has run all the same."""
    known = isinstance(error, LedgerUnavailable | Unavailable)
    text = "the ledger could not keep the receipt" + ("" if known else f": {type(error).__name__}")
    if call.running:
        text = f"{call.tool} ran, and {text}: what it did is done"
    else:  # then not even the decision was kept, and nobody would find anything under that name
        parts.receipt = ""
    unkept = Refused(Deny(call.request, (Ground("LEDGER_UNAVAILABLE", text, fix=str(error) if known else ""),)))
    parts.refuse("execution_failed" if call.running else "not_available", unkept)


def _cost(call: "Call", registered: Registered) -> Decimal:
    """What a call that ran has cost: what the tool reported, or what it declares."""
    charged = call.context.settled() if call.context is not None else None
    return charged if charged is not None else registered.cost_usd


def _tell(call: "Call", parts: ResultParts) -> None:
    """Let observers know of a refusal that came before anything was held."""
    if parts._refusal is None:
        return
    for observer in call.session.gate.observers:
        try:
            for event in all_events(parts._refusal):
                observer(event)
        except Exception as error:
            text = f"an observer failed: {type(error).__name__}"
            parts.refuse("denied", Refused(Deny(call.request, (Ground("DECISION_FAILED", text),))))
