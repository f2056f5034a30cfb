"""From a call to the stem of its entry: which facts a ledger that can be verified writes down, and how.

Nothing here is secret: arguments and results are digests, and texts are those that the end of the call has redacted.
With `record: full` the redacted bodies come along.
"""

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from licet.core.canonical import data_digest, data_text, money_text, quoted
from licet.core.decision import Ask, Usage, events
from licet.core.receipt import Place, Stem, listed, place, stem, time_text
from licet.core.scope import visible
from licet.declare.arguments import plain_data, plain_json
from licet.guard.holding import Event
from licet.guard.people import Agreement
from licet.guard.ports import Entry
from licet.guard.registration import Registered
from licet.guard.result import ResultParts

if TYPE_CHECKING:
    from licet.guard.call import Call

_LONGEST_NAME = 200  # characters of a tool's name: one that nobody knows is whatever a model has written
_MOST_PLACES = 1000
# What went wrong without anybody saying no.
_FAILURES = frozenset({"TOOL_FAILED", "TOOL_CRASHED", "CONNECT_FAILED", "RESOLVE_FAILED"})
_NOTHING = Decimal(0)
_SINGLE = {value: f'"{data_digest(value)}"' for value in (None, True, False)}


class _Known(NamedTuple):
    """What every entry about one tool of one session repeats."""

    registered: Registered | None
    place: Place
    searched: tuple[str, str, str]
    rules: str  # that admit the tool
    sandbox: str  # around the tool, once it runs
    idle: str  # where it does not run
    granted: str  # the event that every call begins with


class Stems:
    """Makes stems of entries; what is the same for a tool and a session is worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, str], _Known] = {}

    def of(self, entry: Entry) -> Stem:
        """The stem of an entry, with what its call knows."""
        call: Call = entry.call
        if call is None:
            raise TypeError("this ledger writes down what a call knows: its entry must come with the call")
        key = entry.agent, entry.session, entry.tool, entry.manifest
        known = self._known.get(key)
        if known is None or known.registered is not call.registered:
            if len(self._known) >= _MOST_PLACES:
                self._known.clear()
            known = self._known[key] = _learn(entry, call)
        if entry.kind == "decision":
            return _decision(entry, call, known)
        return _receipt(entry, call, known, entry.content)


def _learn(entry: Entry, call: "Call") -> _Known:
    registered, parent = call.registered, call.session.parent
    tool = visible(entry.tool[:_LONGEST_NAME]) + "…" * (len(entry.tool) > _LONGEST_NAME)
    above = (parent.agent, parent.id) if parent is not None else None
    reach = registered.reach if registered is not None else None
    digest = registered.tool.spec.digest if registered is not None else None
    at = place(entry.agent, entry.session, tool, entry.manifest, digest, above)
    admitted = [f"`{tool}` is admitted ({seat.origin})" for seat in reach.seats] if reach is not None else []
    level = quoted(reach.level) if reach is not None and reach.level else "null"
    layers = listed(registered.layers) if registered is not None else "[]"
    return _Known(
        registered,
        at,
        (entry.agent, entry.session, tool),
        listed(admitted),
        f'{{"layers":{layers},"level":{level},"programs":null}}',
        f'{{"layers":[],"level":{level},"programs":null}}',
        f'[{{"capability":{quoted(f"tool:call:{tool}")},"kind":"CapabilityGranted","reason":"","rule":""}}]',
    )


def _decision(entry: Entry, call: "Call", known: _Known) -> Stem:
    reserved = call.reservation.claim.cost_usd if call.reservation is not None else _NOTHING
    return stem(
        known.place,
        "decision",
        entry.id,
        time_text(entry.time),
        "allow",
        "ALLOWED",
        arguments=f'"{call.digest}"' if call.digest else "null",
        approvals=_agreements(call.approvals) if call.approvals else "[]",
        budget=_budget(call, reserved, True),
        cost_usd=money_text(reserved) if reserved else "0",
        events=known.granted,
        rules=known.rules,
        sandbox=known.sandbox,
        searched=known.searched,
    )


def _receipt(entry: Entry, call: "Call", known: _Known, parts: ResultParts) -> Stem:
    holding, refusal, cost = call.holding, parts._refusal, parts.cost_usd
    full = call.policy.manifest.record == "full"
    result, rules, error, verdict = "null", known.rules, "null", "allow"
    if refusal is None:
        result = _digest(parts.value)
    elif parts.reason == "TOOL_FAILED" and not full:  # what a tool says is a result: by default only its digest is kept
        result = _digest(parts.error)
        origin = refusal.rules[0].origin
        rules = listed([f"the tool raised an error ({visible(str(origin))})" if origin else "the tool raised an error"])
    else:
        rules, error = listed([visible(str(ground)) for ground in refusal.rules]), quoted(parts.error)
    if refusal is not None and parts.reason not in _FAILURES:
        verdict = "ask" if isinstance(refusal, Ask) else "deny"
    if holding is not None:
        happened = known.granted if holding.plain else _events(holding.events)
    else:
        happened = _events(events(refusal)) if refusal is not None else "[]"
    programs, sandbox = parts.programs, known.sandbox if call.running else known.idle
    if programs is not None:
        around = f'{{"layers":{listed(programs.in_force)},"missing":{listed(programs.missing)}}}'
        sandbox = sandbox.removesuffix("null}") + around + "}"
    return stem(
        known.place,
        "receipt",
        entry.id,
        time_text(entry.time),
        verdict,
        parts.reason,
        code=f'"{parts.code}"',
        arguments=f'"{call.digest}"' if call.digest else "null",
        result=result,
        approvals=_agreements(call.approvals) if call.approvals else "[]",
        bodies=_bodies(call, parts) if full else "",
        budget=_budget(call, cost, call.running),
        cost_usd=money_text(cost) if cost else "0",
        duration_ms=f'"{parts.duration_ms:.3f}"',
        error=error,
        events=happened,
        rules=rules,
        sandbox=sandbox,
        truncated=parts.truncated,
        searched=known.searched,
    )


def _digest(value: Any) -> str:
    if value is None or value is True or value is False:
        return _SINGLE[value]
    return f'"{data_digest(value)}"'


def _agreements(approvals: tuple[Agreement, ...]) -> str:
    """What people have agreed to for this call, and who."""
    return data_text(
        [
            {
                "arguments": agreed.approval.arguments or None,
                "by": list(agreed.by),
                "request": agreed.request or None,
                "use": agreed.approval.use or None,
            }
            for agreed in approvals
        ]
    )


def _budget(call: "Call", cost: Decimal, spent: bool) -> str:
    """What this call found spent, and what it left: its own part is all that it adds."""
    registered, usage = call.registered, call.usage
    if registered is None or not registered.budgeted:
        return "null"
    return f'{{"after":{_usage(usage, call.tool, cost, spent)},"before":{_usage(usage, call.tool, _NOTHING, False)}}}'


def _usage(usage: Usage, tool: str, cost: Decimal, one_more: bool) -> str:
    of_tool = usage.calls_of_tool.get(tool, 0)
    spent, today = money_text(usage.cost_usd + cost), money_text(usage.cost_usd_today + cost)
    return (
        f'{{"calls":{usage.calls + one_more},"calls_of_tool":{of_tool + one_more},'
        f'"cost_usd":"{spent}","cost_usd_today":"{today}"}}'
    )


def _events(checks: tuple[Event, ...]) -> str:
    told = [
        f'{{"capability":{quoted(visible(event.capability))},"kind":"{type(event).__name__}",'
        f'"reason":{quoted(event.reason)},"rule":{quoted(visible(event.rule))}}}'
        for event in checks
    ]
    return "[" + ",".join(told) + "]"


def _bodies(call: "Call", parts: ResultParts) -> str:
    """Arguments and result as canonical text: with fractions, which an entry itself has none of."""
    arguments = None
    if call.digest:
        arguments = plain_data(plain_json(call.arguments))
        if call.redactor is not None:
            arguments = call.redactor.data(arguments)
    given = quoted(data_text(arguments)) if call.digest else "null"
    value = quoted(data_text(parts.value)) if parts._refusal is None else "null"
    return f'"bodies":{{"arguments":{given},"result":{value}}},'
