"""From a call to the stem of its entry: which facts a ledger that can be verified writes down, and how.

Nothing here is secret: arguments and results are digests, and texts are those that the end of the call has redacted.
With `record: full` the redacted bodies come along.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.canonical import data_digest, data_json, money_text
from licet.core.decision.budget import Spent, plus, spent_of
from licet.core.decision.decision import (
    UNUSED,
    Ask,
    BudgetSettled,
    CapabilityGranted,
    Event,
    Happened,
    SandboxEntered,
    all_events,
)
from licet.core.ledger.entry import Frame, Stem, frame, given, listed, quoted, time_text
from licet.declare.plain_json import data_again, plain_json
from licet.guard.access import Access, access_text
from licet.guard.approvals import told_agreements
from licet.guard.grant import Check
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
_SINGLE = {value: f'"{data_digest(value)}"' for value in (None, True, False)}


class _Known:
    """What every entry about one tool of one session repeats, and the two that most calls leave behind."""

    __slots__ = (
        *("begun", "common", "decision", "full", "layers", "level", "receipt", "registered", "rules"),
        *("sandbox", "usual", "whole"),
    )

    def __init__(self, entry: Entry, call: "Call") -> None:
        registered, parent = call.registered, call.session.parent
        self.registered: Registered | None = registered
        tool = visible(entry.tool[:_LONGEST_NAME]) + "…" * (len(entry.tool) > _LONGEST_NAME)
        reach = registered.reach if registered is not None else None
        self.common: dict[str, Any] = {
            "agent": entry.agent,
            "session": entry.session,
            "tool": tool,
            "manifest": entry.manifest,
            "tool_digest": registered.tool.spec.digest if registered is not None else None,
            "parent": (parent.agent, parent.id) if parent is not None else None,
        }
        # The rules that admit the tool, and how its writes are approved.
        admitted = [f"`{tool}` is admitted ({seat.origin})" for seat in reach.seats] if reach is not None else []
        self.rules = listed([*admitted, *filter(None, (reach.consent if reach is not None else "",))])
        level = quoted(reach.level) if reach is not None and reach.level else "null"
        layers = listed(registered.layers) if registered is not None else "[]"
        self.level, self.layers = level, layers
        self.sandbox = self.around(True)  # before it runs, nobody knows the rules that will hold then
        # What has happened in a call that does nothing else, when its decision is kept and when it has ended.
        self.begun: list[Check] = [*registered.usual.begun] if registered is not None else []
        self.whole: list[Check] = registered.usual.whole if registered is not None else []
        self.usual: dict[str, Any] = {**self.common, "rules": self.rules, "sandbox": self.sandbox}
        self.decision = frame("decision", **self.usual, events=_checks(self.begun, tool))  # where nobody was asked
        self.receipt: tuple[Access | None, Frame] = None, self._usual_receipt(None)
        self.full = call.policy.manifest.record == "full"  # whether bodies come along

    def around(self, ran: bool, access: Access | None = None, programs: str = "null") -> str:
        """What a receipt says of the walls around a tool, and around its programs."""
        layers = self.layers if ran else "[]"
        return f'{{"access":{access_text(access)},"layers":{layers},"level":{self.level},"programs":{programs}}}'

    def receipt_with(self, access: Access | None) -> Frame:
        """The receipt of a call that does nothing else, in a process with these rules: mostly those of the last."""
        last, found = self.receipt  # read and replaced as one: other threads do so too
        if access is not last:
            found = self._usual_receipt(access)
            self.receipt = access, found
        return found

    def _usual_receipt(self, access: Access | None) -> Frame:
        usual = {**self.usual, "sandbox": self.around(True, access)}
        return frame("receipt", **usual, events=_checks(self.whole, self.common["tool"]), code="ok")


# What the decision of a call says, and its receipt most often repeats: of what tool, when, as text, what was set aside,
# and what it was given.
_Notes = tuple[_Known, datetime, str, Decimal, str]


class Stems:
    """Makes stems of entries; what is the same for a tool and a session is worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, str], _Known] = {}

    def of(self, entry: Entry) -> Stem:
        """The stem of an entry, with what its call knows."""
        kind, name, agent, session, tool, manifest, moment, parts, call = entry[:]  # a bare tuple, quick to take apart
        if call is None:
            raise TypeError("this ledger writes down what a call knows: its entry must come with the call")
        notes = call.notes
        if notes is not None and kind == "receipt":
            return _receipt(name, moment, parts, call, notes[0], notes)
        key = agent, session, tool, manifest
        known = self._known.get(key)
        if known is None or known.registered is not call.registered:
            if len(self._known) >= _MOST_PLACES:
                self._known.clear()
            known = self._known[key] = _Known(entry, call)
        if kind == "decision":
            return _decision(name, moment, call, known)
        return _receipt(name, moment, parts, call, known, None)


def _decision(name: str, moment: datetime, call: "Call", known: _Known) -> Stem:
    within, cost, reservation, holding = known.decision, _NOTHING, call.reservation, call.holding
    if reservation is not None:
        cost = reservation.claim.cost_usd
    if cost or call.approvals or holding is None or not holding.is_usual(known.begun):
        within = frame(
            "decision",
            **known.common,
            cost_usd=money_text(cost),
            approvals=_agreements(call),
            events=_events(holding.events if holding is not None else ()),
            rules=known.rules,
            sandbox=known.sandbox,
        )
    time, said = time_text(moment), f'"{call.digest}","budget":{_budget(call, cost, True)}'
    call.notes = known, moment, time, cost, said
    return within, name, time, said, "null", "null"


def _receipt(
    name: str, moment: datetime, parts: ResultParts, call: "Call", known: _Known, notes: _Notes | None
) -> Stem:
    """The stem of a receipt, with what its decision says where one was kept."""
    refusal, cost, holding, full, result = parts._refusal, parts.cost_usd, call.holding, known.full, "null"
    if refusal is None:
        value = parts.value
        result = _SINGLE[value] if value is None or value is True or value is False else f'"{data_digest(value)}"'
    elif parts.reason == "TOOL_FAILED" and not full:  # what a tool says is a result: by default only its digest is kept
        result = f'"{data_digest(parts.error)}"'
    usual = refusal is None and not (cost or call.approvals or parts.programs or parts.truncated)
    if usual and holding is not None and holding.is_usual(known.whole):
        within = known.receipt_with(parts.access)
    else:
        within = _told(call, known, parts, full)
    if notes is not None and call.running and not full:
        _, decided, time, reserved, said = notes
        if decided is moment and (reserved is cost or reserved == cost):
            return within, name, time, said, result, f'"{parts.duration_ms:.3f}"'
    digest, bodies = f'"{call.digest}"' if call.digest else "null", _bodies(call, parts) if full else ""
    said = given(digest, bodies, _budget(call, cost, call.running))
    return within, name, time_text(moment), said, result, f'"{parts.duration_ms:.3f}"'


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
    around = "null"
    if programs is not None:
        codes = ",".join(map(str, holding.ended)) if holding is not None else ""
        layers = f'"layers":{listed(programs.in_force)},"missing":{listed(programs.missing)}'
        around = f'{{"access":{access_text(parts.program_access)},"ended":[{codes}],{layers}}}'
    sandbox = known.around(call.running, parts.access, around)
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
    return data_json(
        [
            {
                "arguments": agreed.approval.arguments or None,
                "by": list(agreed.by),
                "request": agreed.request or None,
                "use": agreed.approval.use or None,
            }
            for agreed in told_agreements(call)
        ]
    ).decode()


def _budget(call: "Call", cost: Decimal, spent: bool) -> str:
    """What this call found spent, and what it left: its own part is all that it adds."""
    usage, reservation = call.usage, call.reservation
    if reservation is not None:
        before = reservation.before
    elif usage is UNUSED:
        return "null"
    elif usage.calls or usage.calls_today or usage.cost_usd_today:  # it was refused, and what was spent was looked up
        before = spent_of(usage, call.tool)
    else:
        return "null"
    calls, of_tool, calls_today = before.calls, before.calls_of_tool, before.calls_today
    total, today, total_of_tool = before.cost_usd, before.cost_usd_today, before.cost_usd_of_tool
    more = int(spent)
    money = after = ""  # where nothing has ever cost anything, nobody asks for sums
    if cost or total or today:
        money = after = _sums(total, total_of_tool, today)
        if spent and cost:
            after = _sums(plus(total, cost), plus(total_of_tool, cost), plus(today, cost))
    return (
        f'{{"after":{{"calls":{calls + more},"calls_of_tool":{of_tool + more},"calls_today":{calls_today + more}{after}'
        f'}},"before":{{"calls":{calls},"calls_of_tool":{of_tool},"calls_today":{calls_today}{money}}}'
        f"{_bundle_budgets(call, cost, spent)}}}"
    )


def _bundle_budgets(call: "Call", cost: Decimal, spent: bool) -> str:
    """The same of each bundle that has a budget; nothing where none has."""
    before = {name: spent_of(usage, "") for name, usage in call.usage.bundles.items()}
    before |= {name: reservation.before for name, reservation in call.of_bundles.items()}
    if not before:
        return ""
    told = []
    for name, found in sorted(before.items()):
        after = found
        if spent:
            after = replace(
                found,
                calls=found.calls + 1,
                calls_today=found.calls_today + 1,
                cost_usd=plus(found.cost_usd, cost),
                cost_usd_today=plus(found.cost_usd_today, cost),
            )
        told.append(f'{quoted(name)}:{{"after":{_bundle_spent(after)},"before":{_bundle_spent(found)}}}')
    return f',"bundles":{{{",".join(told)}}}'


def _bundle_spent(spent: Spent) -> str:
    money = f',"cost_usd":"{_money(spent.cost_usd)}","cost_usd_today":"{_money(spent.cost_usd_today)}"'
    return f'{{"calls":{spent.calls},"calls_today":{spent.calls_today}{money}}}'


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
        text = plain_json(call.arguments)
        arguments = data_again(text if call.redactor is None else call.redactor.json(text))
    given = quoted(data_json(arguments).decode()) if call.digest else "null"
    value = quoted(data_json(parts.value).decode()) if parts._refusal is None else "null"
    return f'"bodies":{{"arguments":{given},"result":{value}}},'
