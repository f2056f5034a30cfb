"""How much a call keeps of its own checks: a tool that asks without end fills neither memory nor its receipt.

What was granted, what was refused and what people were asked have a room each, so that none hides another. What finds
no room is counted.

What one call holds while it runs: every use is asked about here, and every answer is kept.

A grant belongs to one call and ends with it; a handle that outlives its call is refused.
"""

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Use
from licet.core.decision.decision import ApprovalAsked, Ask, CapabilityDenied, CapabilityGranted, Deny, Event, Happened
from licet.core.decision.decision import Ask as Asked
from licet.core.decision.reach import Reach
from licet.core.decision.request import REASON_OF_DOMAIN, Approval, Ground, Reason, Request
from licet.core.ledger.denials import UNLISTED
from licet.core.policy.effects import delete_asks
from licet.errors import Refused
from licet.guard.access import NO_PROGRAMS, Access
from licet.guard.execution import Layers
from licet.guard.meter import DEFAULTS, Exceeded, Meter
from licet.guard.redaction.redact import Redactor

# In bytes, about. What one check takes at least makes it some 4000 that are granted and 1000 that are refused.
GRANTED, REFUSED, ASKED = 8 << 20, 4 << 20, 2 << 20
_A_GRANT, _A_REFUSAL = 2 << 10, 4 << 10


class Room:
    """What is left for the checks of one call, and how many have found none."""

    __slots__ = ("_asked", "_granted", "_refused", "more_asked", "more_granted", "more_refused")

    def __init__(self) -> None:
        self._granted, self._refused, self._asked = GRANTED, REFUSED, ASKED
        self.more_granted = self.more_refused = self.more_asked = 0

    def take(self, use: Use | None, refusal: Deny | Ask | None) -> bool:
        """Whether there is room for a check, which is taken then."""
        size = _size(use) if use is not None else 0
        if refusal is None:
            size = max(size, _A_GRANT)
            if size > self._granted:
                self.more_granted += 1
                return False
            self._granted -= size
            return True
        size = max(size + sum(len(rule.text) + len(rule.fix) for rule in refusal.rules), _A_REFUSAL)
        if size > self._refused:
            self.more_refused += 1
            return False
        self._refused -= size
        return True

    def take_asked(self, use: Use) -> bool:
        """Whether there is room for what a person is asked about a use, or for what they answer."""
        size = max(_size(use), _A_GRANT)
        if size > self._asked:
            self.more_asked += 1
            return False
        self._asked -= size
        return True


def _size(use: Use) -> int:
    return len(use.keys) * len(use.target) // 2  # of a path, all that is above it


Observer = Callable[[Event], None]
AskPerson = Callable[[Approval, Use], Awaitable[None]]  # returns if a person agrees, raises `Refused` if not

# The part that stands behind each domain of capabilities, and what it is called in a refusal.
PART_OF_DOMAIN = {
    "network": ("http", "network"),
    "fs": ("files", "files"),
    "secret": ("secrets", "secrets"),
    "storage": ("kv", "storage"),
    "process": ("processes", "processes"),
    "env": ("environ", "environment"),
}

# What is recorded where no use could be made of what a tool asked for: a search for a domain finds it too.
_MALFORMED: dict[str, str] = {REASON_OF_DOMAIN[domain]: f"{domain}:*:<malformed>" for domain in PART_OF_DOMAIN}

Check = Use | Happened | Deny | Asked | None
MOST_OF_A_GROUND = 1000  # characters of one ground
_MANY = 200  # events
_MAKING = threading.Lock()

_Part = TypeVar("_Part")


class Grant:
    """The grant of one running call, and the record of what was asked of it."""

    __slots__ = (
        *("_ask", "_checks", "_observers", "ended", "manifest_digest", "over", "programs", "reach", "redactor"),
        *("_limits", "_meter", "_room", "access", "program_access", "request"),
    )

    def __init__(
        self,
        request: Request,
        reach: Reach,
        manifest_digest: str,
        observers: Sequence[Observer],
        ask: AskPerson,
        limits: Mapping[str, int] = DEFAULTS,
    ) -> None:
        self.request = request
        self.reach = reach
        self.manifest_digest = manifest_digest
        self.over = False
        self.programs: Layers | None = None  # what was around the programs that this call has started, if any
        self.access: Access | None = None  # the rules of the kernel around the tool, where it runs behind walls
        self.program_access = NO_PROGRAMS  # those around the programs that it has started
        self.ended: tuple[int, ...] = ()  # the codes that they ended with, the first ones
        self.redactor: Redactor | None = None  # knows the secrets that this call has seen, once it has seen any
        self._observers = observers
        self._ask: AskPerson | None = ask
        # Use and refusal in turn, or what else happened and None: a flat list is one thing for the garbage collector,
        # not one for each check.
        self._checks: list[Check] = []
        self._limits = limits
        self._meter: Meter | None = None
        self._room: Room | None = None  # for more checks than that of the call itself

    @property
    def capabilities(self) -> CapabilitySet:
        """What the call may use."""
        return self.reach.grant

    def begin(self) -> None:
        """Record that the call itself is granted."""
        self._checks += (None, None)  # no use, no refusal
        if self._observers:
            self._tell(None, None)

    def note(self, happened: Happened, *, kept: bool = True) -> None:
        """Record what happens beside the checks, if there is room for it, and let observers know."""
        if kept:
            self._checks += (happened, None)
        if self._observers:
            self._tell(happened, None, kept=kept)

    def note_of(self, kind: type[Happened], use: Use | None = None, reason: str = "", rule: str = "") -> None:
        """Record what happens to the call, or what a person is asked about one use inside it."""
        happened = kind(self._name(use), self.request.tool, reason, self._beginning(rule))
        self.note(happened, kept=use is None or self._rooms.take_asked(use))

    def end(self) -> None:
        """Take everything back; what was asked stays to be read."""
        self.over = True
        self._ask = None

    def check(self, use: Use) -> None:
        """Let a use pass, or raise `Refused`; either way it is recorded."""
        self.require(use)
        self._record(use, None)

    def require(self, use: Use) -> None:
        """Raise and record a refusal unless a use is granted; a grant is recorded by the `check` that follows."""
        if self.over:
            self.refuse("SESSION_ENDED", "the call has ended, and what it held with it", use)
        if not self.reach.grant.has(use):
            self.deny(Deny(self.request, self.reach, use))

    def backend(self, part: _Part | None, use: Use) -> _Part:
        """The backend for a use that is granted; refuse if none is configured.

        Ask the grant first: whoever may not do something is told that, whatever backends there are.
        """
        if part is None:
            port, title = PART_OF_DOMAIN[use.domain]
            text = f"Tool {self.request.tool} needs a backend that is not configured: {title}"
            self.refuse("BACKEND_MISSING", text, use, f"pass `Backends.local()`, or `Backends({port}=…)`, to the gate")
        return part

    async def permit(self, use: Use) -> None:
        """As `check`, and ask a person first where the class says that each delete asks."""
        effect = self.reach.effect
        asks = use.effect == "delete" and effect and delete_asks(use, effect) and self.reach.grant.has(use)
        if asks and self._ask is not None:
            request = self.request
            await self._ask(
                Approval(self.manifest_digest, request.tool, request.session, request.arguments, str(use)), use
            )
        self.check(use)  # after the answer: the record has no grant that nobody gave

    def refuse(self, reason: Reason, text: str, use: Use | None = None, fix: str = "") -> NoReturn:
        """Refuse for a reason that is in no rule: a limit, an address, a name that does not resolve."""
        if len(text) > MOST_OF_A_GROUND:  # it repeats what was sent, of any length
            text = f"{self._beginning(text)}…"
        self.deny(Deny(self.request, (Ground(reason, text, fix=fix),), use))

    @property
    def meter(self) -> Meter:
        """What the host holds for this call, against its limits."""
        with _MAKING:  # a tool may have threads: two meters would each count a part
            if self._meter is None:
                self._meter = Meter(self._limits)
        return self._meter

    def exceeded(self, over: Exceeded, use: Use | None = None) -> NoReturn:
        """Refuse what would cost the host more than the limits of this call allow."""
        self.refuse(over.reason, str(over), use, over.fix)

    def limited(self, reason: Reason, text: str, use: Use | None, fix: str) -> None:
        """Record that a limit ended something that had been granted; the call itself goes on."""
        decision = Deny(self.request, (Ground(reason, text, fix=fix),), use)
        self._record(use, decision)

    def invalid(self, reason: Reason, wrong: InvalidUse) -> NoReturn:
        """Refuse what is no concrete use at all; the event names the domain that was asked for."""
        self.refuse(reason, str(wrong))

    def deny(self, decision: Deny | Asked) -> NoReturn:
        """Record a refusal and raise it."""
        # It is kept with its rules: whoever is refused often must not make the end of the call long by looking them up.
        told = Deny(decision.request, decision.rules, decision.use) if isinstance(decision, Deny) else decision
        self._record(decision.use, told)
        raise Refused(decision)

    def deny_for_each(self, decision: Deny) -> NoReturn:
        """Record a refusal of the whole call as one event for each ground, and raise it."""
        for ground in decision.rules:
            self._record(None, Deny(decision.request, (ground,)))
        raise Refused(decision)

    def _record(self, use: Use | None, refusal: Deny | Asked | None) -> None:
        """Keep a check, if there is room for it, and let observers know."""
        kept = self._rooms.take(use, refusal)
        if kept:
            self._checks += (use, refusal)
        if self._observers:
            self._tell(use, refusal, kept=kept)

    @property
    def _rooms(self) -> Room:
        if self._room is None:
            self._room = Room()
        return self._room

    def _tell(self, use: Check, refusal: Deny | Asked | None, *, kept: bool = True) -> None:
        (event,) = self._redacted_events([self._event(use, refusal)])
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:
                text = f"an observer failed: {type(error).__name__}"
                decision = Deny(self.request, (Ground("DECISION_FAILED", text),), use if type(use) is Use else None)
                if kept:
                    self._checks[-2:] = (decision.use, decision)  # what was granted until now is not
                raise Refused(decision) from error

    @property
    def is_long(self) -> bool:
        """Whether there are so many events that to tell them takes more than a moment."""
        return len(self._checks) > 2 * _MANY

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened so far, in order, checks with the rules that decided; at the end, how many more there were."""
        checks: Any = iter(self._checks)
        told = self._redacted_events([self._event(use, refusal) for use, refusal in zip(checks, checks, strict=True)])
        tool, room = self.request.tool, self._room
        if room is not None and room.more_granted:
            text = f"{room.more_granted} more checks were granted, {UNLISTED}"
            told.append(CapabilityGranted(f"tool:call:{tool}", tool, "", text))
        if room is not None and room.more_refused:
            text = f"{room.more_refused} more checks were refused, {UNLISTED}"
            told.append(CapabilityDenied(f"tool:call:{tool}", tool, "LIMIT_SIZE", text))
        if room is not None and room.more_asked:
            text = f"{room.more_asked} more questions to people and answers, {UNLISTED}"
            told.append(ApprovalAsked(f"tool:call:{tool}", tool, rule=text))
        return tuple(told)

    def _event(self, use: Check, refusal: Deny | Asked | None) -> Event:
        if isinstance(use, Happened):
            return use
        assert use is None or isinstance(use, Use)  # noqa: S101 - of each pair, the second is the refusal
        asked = self._name(use)
        if refusal is None:
            rules = self.reach.grounds_of(use) if use is not None else ()
            return CapabilityGranted(asked, self.request.tool, "", "; ".join(map(str, rules)))
        reason = refusal.reason if isinstance(refusal, Deny) else "APPROVAL_REQUIRED"
        if isinstance(refusal, Deny):
            asked = refusal.lacking or (_MALFORMED.get(reason, asked) if use is None else asked)
        return CapabilityDenied(asked, self.request.tool, reason, "; ".join(map(str, refusal.rules)))

    def _redacted_events(self, events: list[Event]) -> list[Event]:
        """Events without the secrets that the call has seen. All at once, because there may be thousands."""
        if not self.redactor:
            return events
        said = [text for event in events for text in (event.capability, event.rule)]
        clean = self.redactor.texts(said)
        if clean == said:
            return events
        pairs = zip(events, clean[::2], clean[1::2], strict=True)
        return [type(event)(asked, event.tool_name, event.reason, rule) for event, asked, rule in pairs]

    def _name(self, use: Use | None) -> str:
        return str(use) if use is not None else f"tool:call:{self.request.tool}"

    def _beginning(self, text: str) -> str:
        """As much of a text as is kept, without half a secret at its end."""
        if self.redactor is None:
            return text[:MOST_OF_A_GROUND]
        raw = text.encode(errors="surrogatepass")
        return self.redactor.beginning(raw, MOST_OF_A_GROUND).decode(errors="ignore")

    def redacted(self, text: str) -> str:
        """A text about this call, without the secrets that it has seen."""
        return self.redactor.text(text) if self.redactor is not None else text
