"""Standing approvals of deletes: who may give one, what it is bound to, and whether it still counts.

- A person gives it in `licet trust`, at a terminal; where the policy lists keys, a quorum of them signs it.
- Two stores must agree: the request with its answers in the store of approvals, and an entry in the ledger next to it.
  A withdrawal is an entry too, so removing it from one of the two files restores nothing.
- It is bound to the digest of the policy, to the paths that were shown, and to this machine, and ends after 30 days at
  most. A clock that was turned back does not lengthen it: the time of the newest entry in the ledger counts too.

`MemoryStanding` is the memory twin, for tests.
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from os import uname
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from licet.backends.approvals.requests import AT_TERMINAL, ApprovalStore, CannotAnswer, StoredRequest
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.memory import MemoryLedger
from licet.core.decision.approval import ApprovalRequest, Yes, enough, standing_problem, time_text
from licet.core.ledger.entry import (
    STANDING_SESSION,
    ApprovalFact,
    Entry,
    LinkedEntry,
    StandingFact,
    Unsound,
    check_row,
    read_entry,
)
from licet.core.ledger.entry import time_text as entry_time
from licet.core.limits import MOST_STANDING_DAYS
from licet.core.policy.terms import Approvals, StandingApproval
from licet.core.values import data_digest, digest
from licet.guard.ports import LedgerUnavailable, NotStanding, Unavailable

_TOOL = "licet trust"  # in the ledger; no tool has a space in its name
_DAY = 86_400_000  # milliseconds
_NONE = "nobody has given a standing approval of them"


def this_machine() -> str:
    """A digest that differs between machines. The id itself is not kept, since it should stay on its machine."""
    name = ""
    for file in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            name = name or Path(file).read_text("utf-8").strip()
        except (OSError, ValueError):
            continue
    return digest(["licet standing approval", name or uname().nodename])


def standing_request(
    manifest: str, agent: str, directory: str, deletes: Sequence[str], now: int, days: int, machine: str
) -> ApprovalRequest:
    """A new request for a standing approval of these deletes."""
    if not 1 <= days <= MOST_STANDING_DAYS:
        raise ValueError(f"expected 1 to {MOST_STANDING_DAYS} days, found {days}")
    return ApprovalRequest(
        id=f"a-{secrets.token_hex(6)}",
        nonce=secrets.token_hex(16),
        agent=agent,
        session=STANDING_SESSION,
        tool=_TOOL,
        tool_digest="",
        manifest=manifest,
        scope="standing",
        arguments=data_digest({}),
        use="",
        effect="",
        directory=directory,
        stakes=(),
        asked=now,
        expires=now + days * _DAY,
        deletes=tuple(sorted(deletes)),
        machine=machine,
    )


class Facts(Struct, frozen=True):
    """What the stores say about standing approvals."""

    known: Sequence[StoredRequest]
    entries: Sequence[Entry]  # of the ledger about these, and maybe about others
    latest: int  # when the newest entry of all was recorded, in milliseconds


class StoredStanding(ABC):
    """The standing approvals of a state: those in its store of approvals that its ledger confirms."""

    def __init__(self, store: ApprovalStore, machine: Callable[[], str] = this_machine) -> None:
        self._store, self._machine = store, machine

    @abstractmethod
    def _facts(self, id: str | None) -> Facts:  # noqa: A002
        """What is known of one standing approval, or of all: `Unavailable` or `LedgerUnavailable` if nobody can say."""

    @abstractmethod
    async def _record(self, entry: Entry) -> None:
        """Write an entry into the ledger of the state."""

    # For gates -------------------------------------------------------------------------------------------------------

    def find(self, id: str | None, manifest: str, approvals: Approvals) -> StandingApproval:  # noqa: A002
        """The approval with this id, or the one that lasts longest, for a policy. Raises `NotStanding`."""
        try:
            facts = self._facts(id)
        except (Unavailable, LedgerUnavailable) as broken:
            raise NotStanding(f"the standing approvals cannot be read: {broken}") from None
        if id is not None and not facts.known:
            raise NotStanding(f"there is no standing approval `{id}` here")
        machine, now = self._machine(), self._store.now()

        def problem(kept: StoredRequest) -> str:
            by_clock, by_ledger = (_problem(kept, manifest, machine, one) for one in (now, max(now, facts.latest)))
            return by_clock or by_ledger or _unconfirmed(kept.request, facts.entries)

        return _longest(facts.known, manifest, approvals, problem)

    def stands(self, approval: StandingApproval) -> bool:
        """Whether an approval that was found has neither ended nor been withdrawn."""
        try:
            (kept,) = self._known(approval.id)
        except (Unavailable, LedgerUnavailable, ValueError):
            return False
        return not kept.denied and kept.request.asked <= self._store.now() < approval.expires

    def _look_again(self) -> None:  # noqa: B027 - most have nothing to forget
        """Read from the stores what is looked at next."""

    def _known(self, id: str) -> Sequence[StoredRequest]:  # noqa: A002
        """The request for a standing approval. Called for each delete."""
        return self._store.standing(id)

    # For people ------------------------------------------------------------------------------------------------------

    async def give(
        self, manifest: str, agent: str, directory: str, deletes: Sequence[str], terms: Approvals, days: int
    ) -> StoredRequest:
        """Store a request as the person at the terminal was shown it. It counts at once, unless keys must sign it."""
        now = self._store.now()
        request = standing_request(manifest, agent, directory, deletes, now, days, self._machine())
        kept = await self._store.offer_standing(request, terms)
        await self.confirm(kept)
        return kept

    async def bind_anew(self, id: str, manifest: str, terms: Approvals) -> StoredRequest:  # noqa: A002
        """Give an approval for a policy that took the place of its own: of the same deletes, and until the same time.

        Only where a person was shown the change, and it writes and deletes no more. Raises `CannotAnswer`.
        """
        self._look_again()
        old = await self._store.find(id)
        if old.request.scope != "standing" or old.state(self._store.now()) != "approved" or terms.keys is not None:
            raise CannotAnswer(f"{id} is no standing approval that a person gave at a terminal, and that counts")
        fresh = {"id": f"a-{secrets.token_hex(6)}", "nonce": secrets.token_hex(16), "asked": self._store.now()}
        kept = await self._store.offer_standing(replace(old.request, **fresh, manifest=manifest), terms)
        await self.confirm(kept)
        return kept

    async def confirm(self, kept: StoredRequest) -> None:
        """Write the entry of an approval that has all its signatures. Without the entry it does not count."""
        by = kept.agreeing(kept.request.arguments)
        if kept.denied or not enough(by, kept.quorum, kept.keys):
            return
        if await self._store.claim_standing(kept.request.id):
            try:
                await self._record(entry_of("approval", kept.request, by))
            except BaseException:
                await self._store.claim_standing(kept.request.id, back=True)
                raise

    async def withdraw(self, kept: StoredRequest) -> StoredRequest:
        """Withdraw an approval: first in the ledger, which nobody can take back, then in the store."""
        if kept.request.scope != "standing":
            raise CannotAnswer(f"{kept.request.id} is no standing approval: `licet approvals deny` takes a yes back")
        if kept.denied:
            raise CannotAnswer(f"{kept.request.id} was withdrawn already")
        self._look_again()
        # Otherwise it never counted.
        if any(
            entry.kind == "approval" and entry.id == kept.request.id for entry in self._facts(kept.request.id).entries
        ):
            await self._record(entry_of("withdrawal", kept.request, kept.agreeing(kept.request.arguments)))
        return await self._store.deny(kept)

    async def withdraw_all(self) -> list[str]:
        """Withdraw every approval that has not ended; returns their ids."""
        found = [kept for kept in self._store.standing() if kept.state(self._store.now()) in ("waiting", "approved")]
        for kept in found:
            await self.withdraw(kept)
        return [kept.request.id for kept in found]


class LocalStanding(StoredStanding):
    """The standing approvals in a state directory."""

    def __init__(self, store: SqliteApprovals, ledger: Path, machine: Callable[[], str] = this_machine) -> None:
        super().__init__(store, machine)
        self._ledger = ledger

    async def _record(self, entry: Entry) -> None:
        ledger = SqliteLedger(self._ledger, lambda: datetime.fromtimestamp(self._store.now() / 1000, UTC))
        try:
            await ledger.record(entry)
        finally:
            ledger.close()

    def _facts(self, id: str | None) -> Facts:  # noqa: A002
        known = self._store.standing(id)
        return Facts(known, *self._entries([kept.request.id for kept in known]))

    def _entries(self, ids: Sequence[str]) -> tuple[list[LinkedEntry], int]:
        """The entries about these approvals, and when the newest entry of all was recorded, in milliseconds."""
        if not ids or not self._ledger.exists():  # then nothing is confirmed
            return [], 0
        with LedgerReader(self._ledger) as reader:
            try:
                newest = [read_entry(row.body).recorded for row in reader.list(kind=None, limit=1)]
                rows = [row for id in ids for row in reader.show(id)]  # noqa: A001
                for row in rows:
                    check_row(row)
                is_complete = not rows or reader.is_complete(min(row.number for row in rows))
                facts = [read_entry(row.body) for row in rows], max(map(milliseconds_of, newest), default=0)
            except Unsound as wrong:
                raise LedgerUnavailable(f"{self._ledger} was changed: {wrong}") from None
        if not is_complete:  # one of them may be a withdrawal
            raise LedgerUnavailable(f"{self._ledger} was changed: entries are missing")
        return facts


def entry_of(kind: str, request: ApprovalRequest, by: tuple[str, ...]) -> Entry:
    """The entry of a standing approval, or of its withdrawal."""
    is_given = kind == "approval"
    fact = ApprovalFact(by=by, arguments=None, request=request.id, use=None, deletes=True, standing=True)
    return Entry(
        kind="approval" if is_given else "withdrawal",
        id=request.id,
        agent=request.agent,
        session=STANDING_SESSION,
        tool=_TOOL,
        # The same in both entries, which are about one thing; `recorded` says when each was written.
        time=entry_time(datetime.fromtimestamp(request.asked / 1000, UTC)),
        manifest=request.manifest,
        verdict="allow" if is_given else "deny",
        reason="ALLOWED" if is_given else "APPROVAL_DENIED",
        approvals=(fact,),
        standing=StandingFact(
            directory=request.directory,
            deletes=request.deletes,
            expires=time_text(request.expires),
            request=digest_of(request),
        ),
    )


def digest_of(request: ApprovalRequest) -> str:
    """The digest of a request that its entry in the ledger has."""
    return digest(request.text())


def _longest(
    known: Sequence[StoredRequest], manifest: str, approvals: Approvals, problem: Callable[[StoredRequest], str]
) -> StandingApproval:
    """The approval without a problem that lasts longest. Raises `NotStanding` with the problem of the newest one."""
    problems = {}
    for one in sorted(known, key=lambda one: one.request.expires, reverse=True):
        kept = replace(one, quorum=approvals.quorum, keys=approvals.keys)  # the policy, not the file, says who agrees
        request, wrong = kept.request, problem(kept)
        if not wrong:
            by = kept.agreeing(request.arguments)
            return StandingApproval(request.id, manifest, by, request.deletes, request.expires)
        problems[request.asked] = wrong
    raise NotStanding(problems[max(problems)] if problems else _NONE)


def _problem(kept: StoredRequest, manifest: str, machine: str, now: int) -> str:
    """Why a stored approval does not count, apart from the ledger; empty if it does."""
    request = kept.request
    if wrong := standing_problem(request, manifest, machine, now):
        return wrong
    about = f"the standing approval {request.id}"
    if kept.denied:
        return f"{about} was withdrawn"
    by = kept.agreeing(request.arguments)
    if not enough(by, kept.quorum, kept.keys):
        return f"{about} has {len(by)} of {kept.quorum} signatures"
    return ""


def _unconfirmed(request: ApprovalRequest, entries: Sequence[Entry]) -> str:
    """Why the ledger does not confirm an approval; empty if it does."""
    mine = [entry for entry in entries if entry.id == request.id]
    if any(entry.kind == "withdrawal" for entry in mine):
        return f"the standing approval {request.id} was withdrawn"
    facts = [entry.standing for entry in mine if entry.kind == "approval"]
    if any(isinstance(fact, StandingFact) and fact.request == digest_of(request) for fact in facts):
        return ""
    return f"the ledger has no entry about the standing approval {request.id}"


def milliseconds_of(moment: str) -> int:
    """A time of an entry, in milliseconds; 0 if it is none."""
    try:
        return int(datetime.fromisoformat(moment).timestamp() * 1000)
    except ValueError:
        return 0


class MemoryStanding:
    """Standing approvals in memory, for tests. Code that holds the object can give and withdraw them."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        ledger: MemoryLedger | None = None,
        machine: Callable[[], str] = lambda: "a test",
    ) -> None:
        self._clock, self._ledger, self._machine = clock, ledger, machine
        self._kept: dict[str, StoredRequest] = {}

    def find(self, id: str | None, manifest: str, approvals: Approvals) -> StandingApproval:  # noqa: A002
        """As `LocalStanding.find`."""
        known = [kept for name, kept in self._kept.items() if id in (None, name)]
        if id is not None and not known:
            raise NotStanding(f"there is no standing approval `{id}` here")
        return _longest(known, manifest, approvals, lambda kept: _problem(kept, manifest, self._machine(), self._now()))

    def stands(self, approval: StandingApproval) -> bool:
        """As `LocalStanding.stands`."""
        kept = self._kept.get(approval.id)
        return kept is not None and not kept.denied and kept.request.asked <= self._now() < approval.expires

    async def give(
        self, manifest: str, agent: str, directory: str, deletes: Sequence[str], terms: Approvals, days: int
    ) -> StoredRequest:
        """As `LocalStanding.give`."""
        request = standing_request(manifest, agent, directory, deletes, self._now(), days, self._machine())
        given = () if terms.keys is not None else (Yes(AT_TERMINAL),)
        kept = self._kept[request.id] = StoredRequest(request, {}, terms.quorum, terms.keys, given, "", 0, terms.names)
        if given and self._ledger is not None:
            await self._ledger.record(entry_of("approval", request, (AT_TERMINAL,)))
        return kept

    async def withdraw(self, kept: StoredRequest) -> StoredRequest:
        """As `LocalStanding.withdraw`."""
        if kept.denied or self._kept[kept.request.id].denied:
            raise CannotAnswer(f"{kept.request.id} was withdrawn already")
        self._kept[kept.request.id] = gone = replace(kept, denied=AT_TERMINAL)
        if self._ledger is not None:
            await self._ledger.record(entry_of("withdrawal", kept.request, kept.agreeing(kept.request.arguments)))
        return gone

    def _now(self) -> int:
        return int(self._clock() * 1000)
