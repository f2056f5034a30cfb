"""From a call to the stem of its entry: which facts a ledger that can be verified writes down, and how.

Nothing here is secret: arguments and results are digests, and texts are those that the end of the call has redacted.
With `record: full` the redacted bodies come along.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from licet.core.budget import plus, spent_of
from licet.core.canonical import data_digest, data_text, money_text, quoted
from licet.core.decision import Ask, CapabilityGranted
from licet.core.happened import BudgetSettled, Event, Happened, SandboxEntered, all_events
from licet.core.receipt import Frame, Stem, frame, listed, time_text
from licet.core.scope import visible
from licet.declare.arguments import data_again, plain_json
from licet.guard.asking import told_agreements
from licet.guard.holding import Check
from licet.guard.ports import Entry
from licet.guard.registration import Registered
from licet.guard.result import INTERRUPTED, ResultParts

if TYPE_CHECKING:
    from licet.guard.call import Call

_LONGEST_NAME = 200  # characters of a tool's name: one that nobody knows is whatever a model has written
_MOST_PLACES = 1000
# What went wrong without anybody saying no.
_FAILURES = frozenset({"TOOL_FAILED", "TOOL_CRASHED", "CONNECT_FAILED", "RESOLVE_FAILED"})
_NOTHING = Decimal(0)
_new = tuple.__new__  # for what is a named tuple: making it so costs a third of calling its class
_SINGLE = {value: f'"{data_digest(value)}"' for value in (None, True, False)}


class _Known(NamedTuple):
    """What every entry about one tool of one session repeats, and the two that most calls leave behind."""

    registered: Registered | None
    common: dict[str, Any]
    rules: str  # that admit the tool
    sandbox: str  # around the tool, once it runs
    idle: str  # where it does not run
    decision: Frame  # of a call that nobody was asked about
    full: bool  # whether bodies come along
    receipt: Frame  # of a call that gave something back, and did nothing else
    begun: list[Check]  # what has happened in such a call when its decision is kept
    whole: list[Check]  # … and when it has ended


class _Notes(NamedTuple):
    """What the decision of a call says, and its receipt most often repeats."""

    known: _Known
    moment: datetime
    time: str
    digest: str
    cost: Decimal
    budget: str


class Stems:
    """Makes stems of entries; what is the same for a tool and a session is worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, str], _Known] = {}

    def of(self, entry: Entry) -> Stem:
        """The stem of an entry, with what its call knows."""
        call = entry[-1]
        if call is None:
            raise TypeError("this ledger writes down what a call knows: its entry must come with the call")
        if call.notes is not None and entry[0] == "receipt":
            return _receipt(entry, call, None)
        key = entry[2:6]  # agent, session, tool and manifest
        known = self._known.get(key)
        if known is None or known.registered is not call.registered:
            if len(self._known) >= _MOST_PLACES:
                self._known.clear()
            known = self._known[key] = _learn(entry, call)
        return _decision(entry, call, known) if entry[0] == "decision" else _receipt(entry, call, known)


def _learn(entry: Entry, call: "Call") -> _Known:
    registered, parent = call.registered, call.session.parent
    tool = visible(entry.tool[:_LONGEST_NAME]) + "…" * (len(entry.tool) > _LONGEST_NAME)
    reach = registered.reach if registered is not None else None
    common: dict[str, Any] = {
        "agent": entry.agent,
        "session": entry.session,
        "tool": tool,
        "manifest": entry.manifest,
        "tool_digest": registered.tool.spec.digest if registered is not None else None,
        "parent": (parent.agent, parent.id) if parent is not None else None,
    }
    rules = listed([f"`{tool}` is admitted ({seat.origin})" for seat in reach.seats] if reach is not None else [])
    level = quoted(reach.level) if reach is not None and reach.level else "null"
    layers = listed(registered.layers) if registered is not None else "[]"
    sandbox = f'{{"layers":{layers},"level":{level},"programs":null}}'
    idle = f'{{"layers":[],"level":{level},"programs":null}}'
    begun, whole = ([*registered.usual.begun], registered.usual.whole) if registered is not None else ([], [])
    usual: dict[str, Any] = {**common, "rules": rules, "sandbox": sandbox}
    decision = frame("decision", **usual, events=_checks(begun, tool))
    receipt = frame("receipt", **usual, events=_checks(whole, tool), code="ok")
    full = call.policy.manifest.record == "full"
    return _Known(registered, common, rules, sandbox, idle, decision, full, receipt, begun, whole)


def _decision(entry: Entry, call: "Call", known: _Known) -> Stem:
    within, cost, holding, moment = known.decision, _NOTHING, call.holding, entry[6]
    if call.reservation is not None:
        cost = call.reservation[1].cost_usd
    if call.approvals or cost or holding is None or not holding.is_usual(known.begun):
        within = frame(
            "decision",
            **known.common,
            cost_usd=money_text(cost),
            approvals=_agreements(call),
            events=_events(holding.events if holding is not None else ()),
            rules=known.rules,
            sandbox=known.sandbox,
        )
    time, digest, budget = time_text(moment), f'"{call.digest}"', _budget(call, cost, True)
    call.notes = _new(_Notes, (known, moment, time, digest, cost, budget))
    made: Stem = _new(Stem, (within, entry[1], time, digest, "null", "null", budget, ""))
    return made


def _receipt(entry: Entry, call: "Call", known: _Known | None) -> Stem:
    """The stem of a receipt; where no decision was kept, with what is known of its tool."""
    parts, holding, moment = entry[7], call.holding, entry[6]
    refusal, cost, foreseen = parts._refusal, parts.cost_usd, False
    if known is None:
        known, decided, time, digest, reserved, budget = call.notes
        foreseen = call.running and decided is moment and reserved == cost
    full = known.full
    usual = refusal is None and not (cost or call.approvals or parts.programs or parts.truncated)
    if usual and holding is not None and holding.is_usual(known.whole):
        within = known.receipt
    else:
        within = _told(call, known, parts, full)
    result = "null"
    if refusal is None:
        value = parts.value
        result = _SINGLE[value] if value is None or value is True or value is False else f'"{data_digest(value)}"'
    elif parts.reason == "TOOL_FAILED" and not full:  # what a tool says is a result: by default only its digest is kept
        result = f'"{data_digest(parts.error)}"'
    if not foreseen:
        digest = f'"{call.digest}"' if call.digest else "null"
        time, budget = time_text(moment), _budget(call, cost, call.running)
    bodies = _bodies(call, parts) if full else ""
    made: Stem = _new(Stem, (within, entry[1], time, digest, result, f'"{parts.duration_ms:.3f}"', budget, bodies))
    return made


def _told(call: "Call", known: _Known, parts: ResultParts, full: bool) -> Frame:
    """How a call came out, where it was anything but usual."""
    refusal, holding, programs = parts._refusal, call.holding, parts.programs
    rules, error, verdict = known.rules, None, "allow"
    if refusal is not None:
        if parts.reason not in _FAILURES:
            verdict = "ask" if isinstance(refusal, Ask) else "deny"
        if parts.reason == "TOOL_FAILED" and not full and refusal.rules[0].text != INTERRUPTED:
            origin = refusal.rules[0].origin
            rules = listed(
                [f"the tool raised an error ({visible(str(origin))})" if origin else "the tool raised an error"]
            )
        else:
            rules, error = listed([visible(str(ground)) for ground in refusal.rules]), parts.error
    sandbox = known.sandbox if call.running else known.idle
    if programs is not None:
        codes = ",".join(map(str, holding.ended)) if holding is not None else ""
        layers = f'"layers":{listed(programs.in_force)},"missing":{listed(programs.missing)}'
        around = f'{{"ended":[{codes}],{layers}}}'
        sandbox = sandbox.removesuffix("null}") + around + "}"
    checks = holding.events if holding is not None else all_events(refusal) if refusal is not None else ()
    return frame(
        "receipt",
        **known.common,
        verdict=verdict,
        reason=parts.reason,
        code=parts.code,
        cost_usd=money_text(parts.cost_usd),
        error=error,
        truncated=parts.truncated,
        approvals=_agreements(call),
        events=_events(checks),
        rules=rules,
        sandbox=sandbox,
    )


def _agreements(call: "Call") -> str:
    """What people have agreed to for this call, and who."""
    return data_text(
        [
            {
                "arguments": agreed.approval.arguments or None,
                "by": list(agreed.by),
                "request": agreed.request or None,
                "use": agreed.approval.use or None,
            }
            for agreed in told_agreements(call)
        ]
    )


def _budget(call: "Call", cost: Decimal, spent: bool) -> str:
    """What this call found spent, and what it left: its own part is all that it adds."""
    usage = call.usage
    if call.reservation is not None:
        before = call.reservation.before
    elif usage.calls or usage.calls_today or usage.cost_usd_today:  # it was refused, and what was spent was looked up
        before = spent_of(usage, call.tool)
    else:
        return "null"
    calls, of_tool, total, today, total_of_tool, calls_today = before
    more = int(spent)
    money = after = ""  # where nothing has ever cost anything, nobody asks for sums
    if cost or total or today:
        money = after = _sums(total, total_of_tool, today)
        if spent and cost:
            after = _sums(plus(total, cost), plus(total_of_tool, cost), plus(today, cost))
    return (
        f'{{"after":{{"calls":{calls + more},"calls_of_tool":{of_tool + more},"calls_today":{calls_today + more}{after}'
        f'}},"before":{{"calls":{calls},"calls_of_tool":{of_tool},"calls_today":{calls_today}{money}}}}}'
    )


def _sums(total: Decimal, of_tool: Decimal, today: Decimal) -> str:
    return f',"cost_usd":"{_money(total)}","cost_usd_of_tool":"{_money(of_tool)}","cost_usd_today":"{_money(today)}"'


def _money(amount: Decimal) -> str:
    return money_text(amount) if amount else "0"


def _events(happened: Iterable[Event]) -> str:
    return "[" + ",".join(map(_event, happened)) + "]"


def _event(event: Event) -> str:
    """One event; of what is no check, only what the entry does not say elsewhere."""
    capability, kind = event.capability, f'"kind":"{type(event).__name__}"'
    if not isinstance(event, Happened):
        return (
            f'{{"capability":{quoted(visible(capability))},{kind},'
            f'"reason":{quoted(event.reason)},"rule":{quoted(visible(event.rule))}}}'
        )
    about = "" if capability == f"tool:call:{event.tool_name}" else f'"capability":{quoted(visible(capability))},'
    reason = f',"reason":{quoted(event.reason)}' if event.reason else ""
    # The cost of a call and its walls have keys of their own.
    said = event.rule if not isinstance(event, BudgetSettled | SandboxEntered) else ""
    rule = f',"rule":{quoted(visible(said))}' if said else ""
    return f"{{{about}{kind}{reason}{rule}}}"


def _checks(checks: Sequence[Check], tool: str) -> str:
    """What happens in every call, as it is known beforehand: only the call itself is checked."""
    granted = CapabilityGranted(f"tool:call:{tool}", tool, "", "")
    return _events(check if isinstance(check, Happened) else granted for check in checks[::2])


def _bodies(call: "Call", parts: ResultParts) -> str:
    """Arguments and result as canonical text: with fractions, which an entry itself has none of."""
    arguments = None
    if call.digest:
        arguments = data_again(plain_json(call.arguments))
        if call.redactor is not None:
            arguments = call.redactor.data(arguments)
    given = quoted(data_text(arguments)) if call.digest else "null"
    value = quoted(data_text(parts.value)) if parts._refusal is None else "null"
    return f'"bodies":{{"arguments":{given},"result":{value}}},'
