"""The grant of one running call. It checks every use, and records every check.

A grant ends with its call: a handle that is used later is refused. The record is limited, so that a tool that loops
cannot fill memory or its receipt. Grants, refusals and approval questions have separate quotas, so that none hides
another; checks beyond a quota are only counted.

`HeldPaths`: the paths that a grant holds, as files backends and kernel rules need them.

The rules that the kernel enforced around a process, as a receipt keeps them.

The kernel reports no event for what it lets through, so a receipt keeps the rules instead. Of a long list it keeps the
beginning, the length, and a digest of everything.
"""

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain, islice, repeat
from typing import Any, NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.rules import InvalidUse, Use, use_of_path
from licet.core.algebra.scope import visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decide import unapproved_deletes_ground
from licet.core.decision.decision import (
    ApprovalAsked,
    Ask,
    CallEvent,
    CapabilityDenied,
    CapabilityGranted,
    Deny,
    Event,
    Happened,
    reason_of,
    with_reasons,
)
from licet.core.decision.reach import Reach
from licet.core.decision.request import REASON_OF_DOMAIN, Approval, Ground, Reason, Request
from licet.core.ledger.entry import Entry
from licet.core.ledger.recorded_checks import UNLISTED
from licet.core.limits import MOST_OF_A_GROUND
from licet.core.policy.layer import delete_asks
from licet.core.values import Origin, digest
from licet.errors import Refused
from licet.guard.execution import Layers
from licet.guard.limits import (
    ASKED,
    GRANTED,
    KEYS_SENT_AWAY,
    LEAST_OF_A_GRANT,
    LEAST_OF_A_REFUSAL,
    MANY_EVENTS,
    MOST_CHARACTERS,
    MOST_PROGRAMS,
    MOST_TEXTS,
    REFUSED,
)
from licet.guard.meter import DEFAULTS, Exceeded, Meter
from licet.guard.ports import Clock, Ledger, LedgerUnavailable, Unavailable, free_after_fork
from licet.guard.progress import CallOver, NotWritten, Progress
from licet.guard.redaction.redact import Redactor

LISTS = ("granted", "closed", "rules", "runtime")


class Access(Struct, frozen=True):
    """The rules around one process: the capabilities, and the kernel rules that were made from them."""

    granted: tuple[str, ...]  # capabilities; none if the process has no access of its own
    closed: tuple[str, ...]  # denied capabilities inside of these
    rules: tuple[str, ...]  # kernel rules made from them
    runtime: tuple[str, ...]  # kernel rules for every such process: interpreter, libraries, devices, scratch
    counts: tuple[int, ...]  # the lengths of the four complete lists
    digest: str  # of the four complete lists

    @property
    def direct(self) -> bool:
        """Whether anything was granted to the process itself, rather than to its handles."""
        return self.counts[0] > 0

    def document(self) -> dict[str, Any]:
        """The same as plain data, as receipts have it."""
        return {
            **{name: list(getattr(self, name)) for name in LISTS},
            "counts": dict(zip(LISTS, self.counts, strict=True)),
            "digest": self.digest,
            "direct": self.direct,
        }


def access(granted: Iterable[str], closed: Iterable[str], rules: Iterable[str], runtime: Iterable[str]) -> Access:
    """Make an `Access` from complete lists: cut them, and compute their lengths and digest."""
    lists = [[visible(text) for text in texts] for texts in (granted, closed, rules, runtime)]
    complete = digest(dict(zip(LISTS, lists, strict=True)))
    first, second, third, fourth = map(_beginning, lists)
    return Access(first, second, third, fourth, tuple(map(len, lists)), complete)


def _beginning(texts: list[str]) -> tuple[str, ...]:
    kept, size = [], 0
    for text in islice(texts, MOST_TEXTS):
        size += len(text)
        if size > MOST_CHARACTERS:
            break
        kept.append(text)
    return tuple(kept)


class ProgramAccess(Struct, frozen=True):
    """The rules around the programs of a call: each different set once, up to a limit, and a digest of the others."""

    sets: tuple[Access, ...] = ()
    more: int = 0  # programs whose rules are not in `sets`
    digest: str = ""  # a chain over the digests of their rules

    def with_program(self, one: Access) -> "ProgramAccess":
        """The same with one more program."""
        if one in self.sets:
            return self
        if len(self.sets) < MOST_PROGRAMS:
            return replace(self, sets=(*self.sets, one))
        digest = sha256(f"{self.digest}{one.digest}".encode()).hexdigest()
        return replace(self, more=self.more + 1, digest=f"sha256:{digest}")

    def document(self) -> dict[str, Any]:
        """The same as plain data, as receipts have it."""
        return {"digest": self.digest or None, "more": self.more, "sets": [one.document() for one in self.sets]}


NO_PROGRAMS = ProgramAccess()


class CheckQuotas(Struct, eq=False):
    """What is left of the quotas of one call, and how many checks were beyond them."""

    _granted: int = GRANTED
    _refused: int = REFUSED + KEYS_SENT_AWAY  # the last part is for these alone: other refusals never hide them
    _asked: int = ASKED
    more_granted: int = 0
    more_refused: int = 0
    more_asked: int = 0
    happened: dict[type[Happened], int] = {}  # events that a server can cause any number of

    @property
    def left(self) -> tuple[int, int, int]:
        """What is left of each quota."""
        return self._granted, self._refused, self._asked

    def take(self, use: Use | None, refusal: Deny | Ask | None) -> bool:
        """Use up quota for a check; False, and count it, if there is not enough left."""
        size = _size(use) if use is not None else 0
        if refusal is None:
            size = max(size, LEAST_OF_A_GRANT)
            if size > self._granted:
                self.more_granted += 1
                return False
            self._granted -= size
            return True
        size = max(size + sum(len(rule.text) + len(rule.fix) for rule in refusal.rules), LEAST_OF_A_REFUSAL)
        if size > self._refused - (0 if _is_key_sent_away(use, refusal) else KEYS_SENT_AWAY):
            self.more_refused += 1
            return False
        self._refused -= size
        return True

    def take_asked(self, use: Use) -> bool:
        """The same for a question to an approver, or its answer."""
        size = max(_size(use), LEAST_OF_A_GRANT)
        if size > self._asked:
            self.more_asked += 1
            return False
        self._asked -= size
        return True

    def take_happened(self, kind: type[Happened]) -> bool:
        """The same for one more event of a kind that is listed only so many times."""
        if kind.most is None:
            return True
        self.happened[kind] = number = self.happened.get(kind, 0) + 1
        return number <= kind.most

    def more_happened(self) -> Iterator[tuple[type[Happened], int]]:
        """The kinds of events that were not all listed, with how many were not."""
        for kind, number in self.happened.items():
            if kind.most is not None and number > kind.most:
                yield kind, number - kind.most


def _is_key_sent_away(use: Use | None, refusal: Deny | Ask) -> bool:
    sent = use is not None and use.domain == "network" and isinstance(refusal, Deny)
    return sent and refusal.rules[0].reason == "SECRET_NOT_DECLARED"


def _size(use: Use) -> int:
    return len(use.keys) * len(use.target) // 2  # the keys of a path are all of its ancestors


class CallIdentity(Struct, frozen=True):
    """Which call something belongs to."""

    agent: str
    session: str
    receipt: str
    time: datetime  # when it began
    started: float  # the same, on the monotonic clock
    clock: Clock

    def stamped(self, event: Event, moment: float) -> Event:
        """The event with the call that it belongs to, and when it happened."""
        since = moment - self.started
        return replace(
            event,
            time=self.time + timedelta(seconds=since),
            agent=self.agent,
            session=self.session,
            receipt=self.receipt,
            duration_ms=since * 1000,
        )


Observer = Callable[[Event], None]
ProgressEntry = Callable[[Sequence[Event]], Entry]
AskPerson = Callable[[Approval, Use], Awaitable[None]]  # returns if a person agrees, raises `Refused` if not

# By domain of capabilities: the field of `Ports`, and what a refusal calls it.
PART_OF_DOMAIN = {
    "network": ("http", "network"),
    "fs": ("files", "files"),
    "secret": ("secrets", "secrets"),
    "storage": ("kv", "storage"),
    "process": ("processes", "processes"),
    "env": ("environ", "environment"),
}

# The recorded capability of a malformed request, by reason, so that a search for the domain finds it.
_MALFORMED: dict[str, str] = {REASON_OF_DOMAIN[domain]: f"{domain}:*:<malformed>" for domain in PART_OF_DOMAIN}

Check = Use | Event | Deny | Ask | None
_MAKING = free_after_fork(threading.Lock())

_Part = TypeVar("_Part")


class Grant:
    """The grant of one running call, and the record of what was asked of it."""

    __slots__ = (
        *("_ask", "_checks", "_observers", "ended", "manifest_digest", "over", "programs", "reach", "redactor"),
        *("outlives_calls", "printed"),
        *("_identity", "_limits", "_meter", "_moments", "_quotas", "_stands", "access", "program_access", "request"),
        *("_frozen", "_keeping", "_over", "_progress"),
    )

    def __init__(
        self,
        request: Request,
        reach: Reach,
        manifest_digest: str,
        observers: Sequence[Observer],
        ask: AskPerson,
        limits: Mapping[str, int] = DEFAULTS,
        identity: CallIdentity | None = None,
        stands: Callable[[], bool] | None = None,
        frozen: Callable[[], str] | None = None,
    ) -> None:
        self.request = request
        self._frozen = frozen  # why it is stopped by people now; None where no call runs
        self._over: tuple[Reason, str] = ("SESSION_ENDED", "the call has ended, and what it held with it")
        self._stands = stands  # whether the standing approval of its deletes has not ended; None: it has none
        self._identity = identity  # None where no call runs, such as for the walls of a process
        self._moments: list[float] = []  # when each check was made
        self.reach = reach
        self.manifest_digest = manifest_digest
        self.over = False
        self.programs: Layers | None = None  # the walls around programs that this call started; None if it started none
        self.access: Access | None = None  # the kernel rules around the tool, if it runs behind walls
        self.program_access = NO_PROGRAMS  # the kernel rules around its programs
        self.printed = b""  # by a tool in a worker
        self.outlives_calls = False  # of a process that serves many calls: no limit of one call is for it
        self.ended: tuple[int, ...] = ()  # the exit codes of the first of its programs
        self.redactor: Redactor | None = None  # of the secrets that this call has seen; None until it asks for one
        self._observers = observers
        self._ask: AskPerson | None = ask
        # Pairs in one flat list: a use and its refusal or None, or an event and None.
        self._checks: list[Check] = []
        self._limits = limits
        self._meter: Meter | None = None
        self._quotas = CheckQuotas()
        # The ledger, what makes an entry of it, and the events that it has; None where nothing outlives the grant.
        self._keeping: tuple[Ledger, ProgressEntry, int] | None = None
        self._progress: Progress | None = None

    @property
    def capabilities(self) -> CapabilitySet:
        """The rules that the call holds."""
        return self.reach.grant

    def begin(self) -> None:
        """Record that the call itself is granted."""
        begun = CapabilityGranted(self._name(None), self.request.tool, "", "")
        self._keep(begun, None)
        if self._observers:
            self._notify_observers(begun, None)

    @property
    def record(self) -> tuple[Sequence[Event], Sequence[float], CheckQuotas]:
        """The listed events, when each was recorded, and the quotas: what another process needs to continue this."""
        return self._listed(), self._moments, self._quotas

    @property
    def granted_uses(self) -> tuple[str, ...] | None:
        """The uses that were checked and granted so far, each once; None if there were more than are listed."""
        if self._quotas.more_granted:
            return None
        checks = iter(self._checks)
        found: dict[str, None] = {}
        for use, refusal in zip(checks, checks, strict=True):
            if type(use) is Use and refusal is None:
                found[str(use)] = None
            elif type(use) is CapabilityGranted:  # by another process, or the call itself
                found[use.capability] = None
        return tuple(found)

    def resume(self, events: Iterable[Event], moments: Iterable[float], quotas: CheckQuotas) -> None:
        """Continue such a record. Observers have seen its events."""
        self._checks = [one for event in events for one in (event, None)]
        self._moments, self._quotas = [*moments], quotas

    def note(self, happened: Happened, *, kept: bool = True) -> None:
        """Pass an event that is no check to the observers, and record it if `kept`."""
        if kept:
            self._keep(happened, None)
        if self._observers:
            self._notify_observers(happened, None, kept=kept)

    def note_of(self, kind: type[Happened], use: Use | None = None, reason: str = "", rule: str = "") -> None:
        """Record an event about the call, or about one use that an approver is asked about."""
        happened = kind(self._name(use), self.request.tool, reason, self._beginning(rule))
        self.note(happened, kept=use is None or self._quotas.take_asked(use))

    def note_about(
        self, kind: type[Happened], about: str = "", reason: str = "", rule: str = "", count: int = 0
    ) -> None:
        """Record something that a server did during the call; `about` is what, if it is not the call itself.

        Beyond the quota of its kind it is only counted.
        """
        happened = kind(about or self._name(None), self.request.tool, reason, self._beginning(rule), count=count)
        self.note(happened, kept=not self.over and self._quotas.take_happened(kind))

    @property
    def recorded(self) -> int:
        """How many events are listed so far."""
        return len(self._checks) // 2

    def keep_in(self, ledger: Ledger, entry: ProgressEntry, written: int) -> None:
        """Let `settle` write to this ledger, which has the first `written` events."""
        self._keeping, self._progress = (ledger, entry, written), None

    async def settle(self) -> None:
        """Return once all that is recorded so far is on disk: a crash does not lose it. Refuse if it cannot be kept.

        For what happens during a run of hours, such as a refused request of a program. Events beyond a quota are
        only counted, in the receipt. A grant of no call and of no recorded process has no ledger: it returns at once.
        """
        if self._keeping is None:
            return
        if self._progress is None:
            ledger, entry, written = self._keeping
            self._progress = Progress(
                written,
                lambda: self.recorded,
                lambda after, until: entry(self._listed(after, until)),
                ledger.record,
            )
            if self.over:
                self._progress.end()
        try:
            await self._progress.settle()
        except CallOver:
            self.refuse_over()
        except NotWritten as failed:
            wrong = failed.__cause__
            text = f"the ledger could not keep what happened: {type(wrong).__name__}"
            self.refuse(
                "LEDGER_UNAVAILABLE", text, fix=str(wrong) if isinstance(wrong, LedgerUnavailable | Unavailable) else ""
            )

    async def note_durably(self, kind: type[Happened], about: str = "", reason: str = "", rule: str = "") -> None:
        """As `note_about`, and return once it is on disk. Refuse if it cannot be, or if the call has ended."""
        if self.over:
            self.refuse_over()
        self.note_about(kind, about, reason, rule)
        await self.settle()

    def refuse_key(self, key: str, use: Use, *, plain: bool = False) -> NoReturn:
        """Refuse a request with the stand-in of a key for another host: an attempt to send the key away.

        `plain`: it is for a host that may have the key, but without TLS.
        """
        fix = "a key is placed over TLS alone: ask by https" if plain else ""  # who tries this chose the host
        how = " without TLS" if plain else ""
        self.refuse("SECRET_NOT_DECLARED", f"tried to send the key {key} to {use.target}{how}", use, fix)

    def end(self, frozen: str = "") -> None:
        """Refuse every later use; `frozen` is why, if a freeze ends it. The record can still be read."""
        if frozen and not self.over:
            self._over = "FROZEN", frozen
        self.over = True
        self._ask = None
        if self._progress is not None:
            self._progress.end()

    def check(self, use: Use) -> None:
        """Record a use; raise `Refused` if it is not granted."""
        self.require(use)
        self._record(use, None)

    def require(self, use: Use) -> None:
        """Record and raise a refusal if a use is not granted. If it is, nothing is recorded: a `check` must follow."""
        if self.over:
            self.refuse_over(use)
        self.check_frozen(use)
        if not self.reach.grant.has(use):
            self.deny(Deny(self.request, self.reach, use))

    def refuse_over(self, use: Use | None = None) -> NoReturn:
        """Refuse what comes after the end of this grant."""
        reason, text = self._over
        self.refuse(reason, text, use)

    def check_frozen(self, use: Use | None = None) -> None:
        """Refuse if people have stopped this call meanwhile."""
        if self._frozen is None:
            return
        try:
            why = self._frozen()
        except Unavailable as broken:  # it may be frozen
            self.refuse("BACKEND_MISSING", "whether this was frozen cannot be read", use, str(broken))
        if why:
            self.refuse("FROZEN", why, use)

    def backend(self, part: _Part | None, use: Use) -> _Part:
        """The backend for a use that is granted; refuse if none is configured.

        Call `check` or `require` first, so that a refusal does not depend on which backends there are.
        """
        if part is None:
            port, title = PART_OF_DOMAIN[use.domain]
            text = f"Tool {self.request.tool} needs a backend that is not configured: {title}"
            self.refuse(
                "BACKEND_MISSING", text, use, f"pass `backends=Backends.local()`, or `backends=Backends({port}=…)`"
            )
        return part

    async def permit(self, use: Use) -> None:
        """As `check`, but ask an approver first if the use is a delete that asks on its own."""
        if use.effect == "delete":
            self.check_standing()
        reach = self.reach
        asks = reach.effect and delete_asks(use, reach.effect, reach.free_deletes) and reach.grant.has(use)
        if asks and self._ask is not None:
            request = self.request
            await self._ask(
                Approval(self.manifest_digest, request.tool, request.session, request.arguments, str(use)), use
            )
        self.check(use)  # after the answer, so that a denied delete is not recorded as granted

    def note_unapproved(self, paths: Sequence[str], count: int) -> None:
        """Record deletes of a program that were refused because nobody has approved them: some paths, and how many."""
        if self.over:
            return
        deletes, ground = self.reach.judged_deletes, unapproved_deletes_ground(self.reach)
        for path in paths:
            with suppress(InvalidUse):  # no rule can name it
                use = use_of_path("delete", path)
                if deletes.has(use):  # otherwise an approval would not help
                    self._record(use, Deny(self.request, (ground,), use))
        self._quotas.more_refused += max(0, count - len(paths))

    def check_standing(self) -> None:
        """Let deletes ask from now on, if the standing approval that covered them has ended or was withdrawn.

        Before each delete, and before walls are made of this grant. The kernel keeps the walls of what runs already.
        """
        if self._stands is not None and not self._stands():
            self._stands = None
            self.reach = replace(self.reach, delete_approval="call", free_deletes=CapabilitySet())

    def refuse(
        self, reason: Reason, text: str, use: Use | None = None, fix: str = "", place: Origin | None = None
    ) -> NoReturn:
        """Refuse for a reason that no rule states: a limit, an address, a name that does not resolve."""
        if len(text) > MOST_OF_A_GROUND:  # the tool may have sent a text of any length
            text = f"{self._beginning(text)}…"
        self.deny(Deny(self.request, (Ground(reason, text, place, fix),), use))

    @property
    def meter(self) -> Meter:
        """The meter of what the host holds for this call."""
        with _MAKING:  # a tool may have threads: two meters would each count a part
            if self._meter is None:
                self._meter = Meter(self._limits)
        return self._meter

    def exceeded(self, over: Exceeded, use: Use | None = None) -> NoReturn:
        """Refuse what would cost the host more than the limits of this call allow."""
        self.refuse(over.reason, str(over), use, over.fix)

    def limited(self, reason: Reason, text: str, use: Use | None, fix: str) -> None:
        """Record that a limit ended something that had been granted; the call itself continues."""
        decision = Deny(self.request, (Ground(reason, text, fix=fix),), use)
        self._record(use, decision)

    def invalid(self, reason: Reason, wrong: InvalidUse) -> NoReturn:
        """Refuse a malformed request. Its event names the domain, by the reason."""
        self.refuse(reason, str(wrong))

    def deny(self, decision: Deny | Ask) -> NoReturn:
        """Record a refusal and raise it."""
        # With its rules: looking up those of many refusals would delay the end of the call.
        known = with_reasons(decision) if isinstance(decision, Deny) else decision
        self._record(decision.use, known)
        # In no variable: its traceback would have a frame that has it, and keep what the call held until a collection.
        raise Refused(known)

    def deny_for_each(self, decision: Deny) -> NoReturn:
        """Record a refusal of the whole call as one event for each ground, and raise it."""
        for ground in decision.rules:
            self._record(None, Deny(decision.request, (ground,)))
        raise Refused(decision)

    def _record(self, use: Use | None, refusal: Deny | Ask | None) -> None:
        """Record a check within the quota, and pass its event to the observers."""
        kept = self._quotas.take(use, refusal)
        if kept:
            self._keep(use, refusal)
        if self._observers:
            self._notify_observers(use, refusal, kept=kept)

    def _keep(self, use: Check, refusal: Deny | Ask | None) -> None:
        self._checks += (use, refusal)
        if self._identity is not None:
            self._moments.append(self._identity.clock.monotonic())

    def _notify_observers(self, use: Check, refusal: Deny | Ask | None, *, kept: bool = True) -> None:
        (event,) = self._redacted_events([self._event(use, refusal, {})])
        if self._identity is not None:
            event = self._identity.stamped(event, self._identity.clock.monotonic())
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:
                text = f"an observer failed: {type(error).__name__}"
                decision = Deny(self.request, (Ground("DECISION_FAILED", text),), use if type(use) is Use else None)
                if kept:
                    self._checks[-2:] = (decision.use, decision)  # the grant becomes a refusal
                raise Refused(decision) from error

    @property
    def is_long(self) -> bool:
        """Whether building the events would block the event loop for too long."""
        return len(self._checks) > 2 * MANY_EVENTS

    @property
    def stamped_events(self) -> tuple[Event, ...]:
        """The events so far, each with its call and its time."""
        if self._identity is None:
            return self.events
        identity, last = self._identity, self._moments[-1:]
        moments = chain(self._moments, repeat(last[0] if last else self._identity.started))
        return tuple(identity.stamped(event, moment) for event, moment in zip(self.events, moments, strict=False))

    @property
    def lists_all(self) -> bool:
        """Whether all events so far are listed: then `events` only grows at its end."""
        quotas = self._quotas
        beyond = quotas.more_granted or quotas.more_refused or quotas.more_asked
        return not (beyond or (quotas.happened and any(quotas.more_happened())))

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far, in order; a check has the rules that decided it. The last count what exceeded a quota."""
        return self.events_after(0)

    def events_after(self, number: int) -> tuple[Event, ...]:
        """The same without the first ones, if all of those are listed."""
        events, tool, quotas = self._listed(number), self.request.tool, self._quotas
        if quotas.more_granted:
            text = f"{quotas.more_granted} more checks were granted, {UNLISTED}"
            events.append(CapabilityGranted(f"tool:call:{tool}", tool, "", text))
        if quotas.more_refused:
            text = f"{quotas.more_refused} more checks were refused, {UNLISTED}"
            events.append(CapabilityDenied(f"tool:call:{tool}", tool, "LIMIT_SIZE", text))
        if quotas.more_asked:
            text = f"{quotas.more_asked} more questions to people and answers, {UNLISTED}"
            events.append(ApprovalAsked(f"tool:call:{tool}", tool, rule=text))
        for kind, more in quotas.more_happened() if quotas.happened else ():
            events.append(kind(f"tool:call:{tool}", tool, rule=f"{more} more of these, {UNLISTED}", count=more))
        return tuple(events)

    def _listed(self, after: int = 0, until: int | None = None) -> list[Event]:
        checks: Any = iter(self._checks[2 * after : None if until is None else 2 * until])
        granted: dict[Use, CapabilityGranted] = {}  # a tool often does the same many times
        pairs = zip(checks, checks, strict=True)
        return self._redacted_events([self._event(use, refusal, granted) for use, refusal in pairs])

    def _event(self, use: Check, refusal: Deny | Ask | None, granted: dict[Use, CapabilityGranted]) -> Event:
        if isinstance(use, CallEvent):
            return use
        assert use is None or isinstance(use, Use)  # noqa: S101 - the second of a pair is the refusal
        asked = self._name(use)
        if refusal is None:
            assert use is not None  # noqa: S101 - what is granted is a use, or an event already
            if use not in granted:
                rules = "; ".join(map(str, self.reach.grounds_of(use)))
                granted[use] = CapabilityGranted(asked, self.request.tool, "", rules)
            return granted[use]
        reason = reason_of(refusal)
        if isinstance(refusal, Deny):
            asked = refusal.lacking or (_MALFORMED.get(reason, asked) if use is None else asked)
        return CapabilityDenied(asked, self.request.tool, reason, "; ".join(map(str, refusal.rules)))

    def _redacted_events(self, events: list[Event]) -> list[Event]:
        """Events without the secrets that the call has seen. All at once, because there may be thousands."""
        if not self.redactor:
            return events
        texts = [text for event in events for text in (event.capability, event.rule)]
        clean = self.redactor.texts(texts)
        if clean == texts:
            return events
        pairs = zip(events, clean[::2], clean[1::2], strict=True)
        return [replace(event, capability=asked, rule=rule) for event, asked, rule in pairs]

    def _name(self, use: Use | None) -> str:
        return str(use) if use is not None else f"tool:call:{self.request.tool}"

    def _beginning(self, text: str) -> str:
        """The part of a text that is recorded, without half a secret at its end."""
        if self.redactor is None:
            return text[:MOST_OF_A_GROUND]
        return self.redactor.beginning_of(text, MOST_OF_A_GROUND)

    def redacted(self, text: str) -> str:
        """A text about this call, without the secrets that it has seen."""
        return self.redactor.text(text) if self.redactor is not None else text
