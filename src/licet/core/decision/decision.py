"""The result of a decision: Allow, Deny or Ask, with the rules behind it, and the events that a log records.

There are events for checks, approvals, budgets, the sandbox and the session. All have the same fields. The events of a
receipt do not repeat what the receipt has in other fields.

Refusals in words: why a connection may not go to an address, and the explanation of a decision for the operator.

`explain` lists what was requested, the rules that decided with their places, and the edits that would allow it. Which
addresses are open is decided in `policy/addresses.py`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, NoReturn

from msgspec import Struct

from licet.core.algebra.domains import PROTOCOL_ATOMS
from licet.core.algebra.rules import Use
from licet.core.algebra.scope import is_address, visible
from licet.core.decision.folding import CEILINGS
from licet.core.decision.reach import Reach, not_admitted_grounds
from licet.core.decision.request import FLOW_REASONS, REASON_OF_DOMAIN, Approval, Ground, Reason, Request
from licet.core.policy.addresses import PUBLIC, Address, address_kind, in_list, refused_addresses
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Bundle, private_lists
from licet.core.values import Compared, data_json

# A Deny would be true like most objects, and `if decide(…)` would allow everything. So `bool` raises.
_NO_TRUTH = "a decision has no truth value: match on Allow, Deny and Ask, or compare `.verdict`"


class Allow(Struct, frozen=True):
    """The call may run with its grant."""

    request: Request
    reach: Reach

    @property
    def verdict(self) -> str:
        """The decision in one word."""
        return "allow"

    @property
    def rules(self) -> tuple[Ground, ...]:
        """The rules that allow each use of the request."""
        return tuple(ground for use in self.request.uses for ground in self.reach.grounds_of(use))

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Allow({self.request.tool!r})"


class Deny(Struct, frozen=True):
    """The call may not run; `rules` are the reasons."""

    request: Request
    _source: tuple[Ground, ...] | Reach | Manifest  # the reasons, or what they are computed from
    use: Use | None = None
    _under: Reach | None = None  # what the reasons were computed from

    @property
    def verdict(self) -> str:
        """The decision in one word."""
        return "deny"

    @property
    def rules(self) -> tuple[Ground, ...]:
        """Every reason for the refusal, each with the change that would remove it."""
        if isinstance(self._source, tuple):
            return self._source
        if isinstance(self._source, Reach):
            return self._source.obstacles_of(self.use) if self.use is not None else self._source.grounds
        return not_admitted_grounds(self._source, self.request.tool, self.request.uses)

    @property
    def reason(self) -> Reason:
        """The code of the first reason."""
        return self.rules[0].reason

    @property
    def lacking(self) -> str:
        """The capability that the tool needs and does not get, so that every call is refused; else empty."""
        first = self.rules[0].capability if self.use is None else ""
        known = first.partition(":")[0] in REASON_OF_DOMAIN
        return first if known and first != f"tool:call:{self.request.tool}" else ""

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Deny({self.request.tool!r}, {self.reason}, {'; '.join(map(str, self.rules))})"


def reach_behind(denied: Deny) -> Reach | None:
    """What the tool may do, if that refused a use. A function, so that no public name of a refusal leads to policy."""
    source = denied._source  # noqa: SLF001 - a private field of the class above
    return source if isinstance(source, Reach) else denied._under  # noqa: SLF001 - the same


def with_reasons(denied: Deny) -> Deny:
    """The same with its reasons computed, once, before it is raised, recorded and told."""
    if isinstance(denied._source, tuple):  # noqa: SLF001 - a private field of the class above
        return denied
    return Deny(denied.request, denied.rules, denied.use, reach_behind(denied))


class Ask(Struct, frozen=True):
    """A person must approve the call first; `rules` are the reasons."""

    request: Request
    approval: Approval
    rules: tuple[Ground, ...]
    use: Use | None = None
    also: tuple[Approval, ...] = ()  # further approvals that this call is known to need
    verdict = "ask"

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Ask({self.request.tool!r}, {'; '.join(map(str, self.rules))})"


Decision = Allow | Deny | Ask


def reason_of(stopped: Deny | Ask) -> Reason:
    """The code of a decision that stops a call: of a question, a rule of flow or that a person must approve."""
    if isinstance(stopped, Deny):
        return stopped.reason
    first = stopped.rules[0].reason if stopped.rules else "APPROVAL_REQUIRED"
    return first if first in FLOW_REASONS else "APPROVAL_REQUIRED"


class CallEvent(Compared, frozen=True):
    """Base of all events: what happened in which call, and when. Two events are equal if the same happened."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"time", "agent", "session", "receipt", "duration_ms", "count"})

    capability: str  # the call, as `tool:call:NAME`, or one use inside it
    tool_name: str
    reason: str = ""  # the reason code of a refusal, or of what ended the call
    rule: str = ""  # the deciding rules, or details in words
    time: datetime | None = None
    agent: str = ""
    session: str = ""
    receipt: str = ""  # the id of the call
    duration_ms: float = 0.0  # since the call began
    count: int = 0  # the number of a question in its call; of an event that stands for others, how many they are


class CapabilityGranted(CallEvent, frozen=True):
    """Event: a check allowed a use."""


class CapabilityDenied(CallEvent, frozen=True):
    """Event: a check refused a use."""


def events(decision: Decision) -> tuple[CapabilityGranted | CapabilityDenied, ...]:
    """One event per check of a decision, granted or denied, with the deciding rules."""
    request = decision.request
    stopped = None if isinstance(decision, Allow) else decision
    passed = request.uses
    if stopped is not None:
        passed = passed[: passed.index(stopped.use)] if stopped.use in passed else ()
    granted = tuple(CapabilityGranted(str(use), request.tool, "", _rules_text(decision, use)) for use in passed)
    if stopped is None:
        return granted or (CapabilityGranted(f"tool:call:{request.tool}", request.tool, "", ""),)
    lacking = stopped.lacking if isinstance(stopped, Deny) else ""
    asked = str(stopped.use) if stopped.use else lacking or f"tool:call:{request.tool}"
    reason = reason_of(stopped)
    return (*granted, CapabilityDenied(asked, request.tool, reason, "; ".join(map(str, stopped.rules))))


def _rules_text(decision: Decision, use: Use) -> str:
    return "; ".join(map(str, decision.reach.grounds_of(use))) if isinstance(decision, Allow) else ""


class Happened(CallEvent, frozen=True):
    """Base of the events that are not checks."""

    # How many of a kind a receipt lists, where a tool or a server can cause any number. The others are counted.
    most: ClassVar[int | None] = None


class ApprovalAsked(Happened, frozen=True):
    """Event: an approval was requested."""


class ApprovalAnswered(Happened, frozen=True):
    """Event: the approver answered, or the request expired."""


class ApprovalRemembered(Happened, frozen=True):
    """Event: an earlier approval for the session covers this call."""


class BudgetReserved(Happened, frozen=True):
    """Event: one call and its cost were reserved."""


class BudgetSettled(Happened, frozen=True):
    """Event: the reserved cost was replaced by the real cost."""


class BudgetRefunded(Happened, frozen=True):
    """Event: the reservation was cancelled, because the call never ran."""


class BudgetUnsettled(Happened, frozen=True):
    """Event: the store could not record the real cost, so the reserved cost counts as spent."""


class SandboxEntered(Happened, frozen=True):
    """Event: the tool is about to run; `rule` names the walls."""


class SandboxStopped(Happened, frozen=True):
    """Event: the tool was stopped by a limit, or because it did not respond."""


class ToolPrinted(Happened, frozen=True):
    """Event: a tool in a worker printed something, or raised an error; `rule` is the text. No receipt has it."""


class ResultNoted(Happened, frozen=True):
    """Event: something in the result of a server was changed, or is worth a look; `rule` says what."""

    most = 50


class ServerAsked(Happened, frozen=True):
    """Event: a server asked the client for sampling, elicitation or roots; `count` is its number in the call."""


class ServerAnswered(Happened, frozen=True):
    """Event: a server got the client's answer to that question, or a refusal, which has a `reason`."""


class ServerAskRefused(Happened, frozen=True):
    """Event: a server asked what it may not ask, or more often than it may; the client was not asked."""

    most = 50


class RequestMade(Happened, frozen=True):
    """Event: a program made a request that the proxy looked into; `rule` has method, path, status and bytes."""

    most = 1000


class KeyPlaced(Happened, frozen=True):
    """Event: a key was put in place of its stand-in for the first time; `rule` is the host that got it."""


class KeyKept(Happened, frozen=True):
    """Event: a stand-in went on as it is, because no key is placed there; `rule` says where it was."""

    most = 50


class SessionOpened(Happened, frozen=True):
    """Event: the first call of a session, or the first one after the session was opened again."""


class SessionEnded(Happened, frozen=True):
    """Event: the session has ended and accepts no more calls."""


class PolicyLoaded(Happened, frozen=True):
    """Event: the policy was loaded again while its process runs; `rule` names the one before it. It is of no call."""


class PolicyWithdrawn(Happened, frozen=True):
    """Event: the files of the policy changed, and are not what a start would take: every call is refused."""


Event = CapabilityGranted | CapabilityDenied | Happened


def all_events(decision: Decision) -> tuple[Event, ...]:
    """The events of a decision: its checks, and before them the end of the session if that is the reason."""
    checks, tool = events(decision), decision.request.tool
    if isinstance(decision, Deny) and decision.use is None and decision.reason == "SESSION_ENDED":
        return (SessionEnded(f"tool:call:{tool}", tool), *checks)
    return checks


def is_written(use: Use, reach: Reach) -> bool:
    """Whether every ceiling has a rule for exactly this address. Wildcards and the needs of the tool do not count."""
    ceilings = [layer for layer in reach.layers if layer.kind in CEILINGS]
    return bool(ceilings) and all(
        any(rule.capability.key == use.target for rule in layer.nearest_allows(use)) for layer in ceilings
    )


def address_grounds(use: Use, addresses: Sequence[str], reach: Reach) -> tuple[Ground, ...]:
    """Why a connection may not go to these addresses of a host, with the edits that would allow it; empty if it may.

    The first reason has only facts that the caller knows. The addresses of a private name are for the operator only.
    """
    if addresses and all(address_kind(text) is PUBLIC for text in addresses):
        return ()
    literal = is_address(use.target)
    wrong = refused_addresses(addresses, reach.manifest.private, literal and is_written(use, reach))
    fix, opened = _ceiling_fix(wrong, reach), not wrong
    for bundle in reach.bundles:
        # If a bundle has a `private` list, the list counts even for an address that the ceilings name exactly.
        if bundle.private is not None:
            closed = refused_addresses(addresses, (bundle.private,), literal and _is_written_in(bundle, use))
            wrong = tuple(dict.fromkeys((*wrong, *closed)))
            fix = "; ".join(filter(None, (fix, _bundle_fix(closed, bundle))))
    if any(address_kind(text).metadata for text in wrong):
        fix = ""
    if addresses and not wrong:
        return ()
    found = [f"{visible(text)} is {address_kind(text).title}" for text in wrong]
    texts = found if literal and found else [f"{use.target} leads to an address that is not public", *found]
    needed = [address for text in wrong for address in address_kind(text).closed]
    lists = [
        one for one in private_lists(reach.manifest, reach.bundles) if not opened or one.key.startswith("bundles.")
    ]
    lacking = (one.origin for one in lists if not all(in_list(address, one.ranges) for address in needed))
    origin = next((place for place in lacking if place.line), None) if needed else None
    return tuple(Ground("ADDRESS_NOT_ALLOWED", text, origin, fix) for text in texts)


def _ceiling_fix(wrong: tuple[str, ...], reach: Reach) -> str:
    """The edits of `private`, one for each ceiling, that would open these addresses."""
    manifest = reach.manifest
    if not wrong:
        return ""
    needed = [address for text in wrong for address in address_kind(text).closed]
    steps = []
    for one in private_lists(manifest, ()):
        missing = dict.fromkeys(_exact(address) for address in needed if not in_list(address, one.ranges))
        if missing:
            listed = ", ".join(f'"{text}"' for text in (*one.ranges, *missing))
            steps.append(f"set `{one.key}: [{listed}]` in {one.origin.file}")
    return "; ".join(steps)


def _bundle_fix(wrong: tuple[str, ...], bundle: Bundle) -> str:
    ranges = bundle.private or ()
    needed = [address for text in wrong for address in address_kind(text).closed if not in_list(address, ranges)]
    missing = dict.fromkeys(map(_exact, needed))
    listed = ", ".join(f'"{text}"' for text in (*ranges, *missing))
    return f"set `bundles.{bundle.name}.private: [{listed}]` in {bundle.origin.file}" if missing else ""


def _is_written_in(bundle: Bundle, use: Use) -> bool:
    """Whether the destinations of a bundle name exactly this address."""
    rules = bundle.admission.layer.allows if bundle.admission.layer else ()
    return any(rule.capability.key == use.target and rule.capability.covers_use(use) for rule in rules)


def _exact(address: Address) -> str:
    bare = str(address).partition("%")[0]  # without the interface of a link-local address, which a range cannot have
    return f"{bare}/{address.max_prefixlen}"


_WIDTH = 14


def explain(decision: Decision, reach: Reach | None = None) -> str:
    """Explain a decision to the operator: the verdict, the reasons with their places, and the fixes."""
    tool = visible(decision.request.tool)
    match decision:
        case Allow():
            lines = [f"allowed: `{tool}` may {visible(str(use))}" for use in decision.request.uses] or [
                f"allowed: `{tool}` may be called"
            ]
            lines += [_line("because", ground) for ground in decision.rules]
            lines += [_line("asks about", ground) for ground in asking_grounds(decision.reach)]
        case Ask():
            uses = decision.request.uses
            asked: list[Use | None] = [decision.use] if decision.use else [*uses] or [None]
            lines = [f"asks: `{tool}` may {_what(use)} once a person agrees" for use in asked]
            lines += [_line("because", ground) for ground in decision.rules]
            if reach is not None:
                lines += [_line("allowed by", ground) for use in uses for ground in reach.grounds_of(use)]
            about_flow = [ground for ground in decision.rules if ground.reason in FLOW_REASONS]
            # What settles an approval of writes does not settle where a value comes from.
            lines += [_line("to settle it", ground.fix) for ground in about_flow or decision.rules if ground.fix]
        case Deny():
            lines = [f"denied: `{tool}` may not {_what(decision.use)}"]
            rules = decision.rules
            lines += [_line("because", ground) for ground in rules]
            reach = reach_behind(decision) or reach
            if reach is not None and decision.use is not None:
                lines += _allowed_instead(reach, decision.use)
            lines += [_line("to allow it", fix) for fix in dict.fromkeys(ground.fix for ground in rules) if fix]
    return "\n".join(lines)


def asking_grounds(reach: Reach) -> tuple[Ground, ...]:
    """The rules on arguments that make a call with some values ask, each with its place."""
    return tuple(
        Ground("APPROVAL_REQUIRED", f"a value of `{name}` that fits {data_json(schema).decode()}", one.origin)
        for one in reach.admissions
        for name, schema in one.asking.items()
    )


def missing_at_host(reach: Reach, use: Use) -> str:
    """The port, protocol or method of a request that is not allowed although its host is; empty if the host is not."""
    here, anywhere = reach.grant.atoms_at(use)
    if not here:
        return f"port {use.port}" if anywhere else ""
    if not here & PROTOCOL_ATOMS[use.action]:
        return f"`{use.action}`"
    return "this method" if use.method == "other" else use.method.upper()


def ran_until(cost_usd: str) -> str:
    """A line that warns that the tool had already started when it needed an approval, so a retry starts again."""
    cost = "" if cost_usd == "0" else f" and cost {cost_usd} USD"
    return _line("it ran", f"until there{cost}; called again, it runs from the start{' and costs again' * bool(cost)}")


def _what(use: Use | None) -> str:
    return visible(str(use)) if use else "be called"


def _allowed_instead(reach: Reach, use: Use) -> list[str]:
    """The needs and the rules in the domain of a refused use, so that the operator can spot a typo."""
    needs, optional = (
        [str(rule) for rule in declared.allow if rule.domain == use.domain]
        for declared in (reach.spec.needs, reach.spec.optional)
    )
    rules = [
        Ground("ALLOWED", str(rule.capability), rule.origin)
        for layer in reach.layers
        for rule in layer.allows
        if rule.capability.domain == use.domain
    ]
    shown = [_line("tool needs", ", ".join(needs) or "nothing of this kind")]
    shown += [_line("optional", ", ".join(optional))] if optional else []
    shown += [_line("allowed here", rule) for rule in rules[:8]] or [_line("allowed here", "nothing of this kind")]
    if len(rules) > 8:
        shown.append(_line("", f"and {len(rules) - 8} more"))
    return shown


def _line(title: str, what: Ground | str) -> str:
    return f"  {title:<{_WIDTH}}{visible(str(what))}"
