"""Requests for approval and their answers in PostgreSQL, for all nodes of a state.

The rules are those of every store of approvals. Rows of requests and answers are added and never changed, and each is
signed by the node that wrote it. A row without the signature of an enrolled node counts as absent: the
administrator of the database can delete an answer, which stops a call, and cannot give one.

Answers arrive by notification, so a call that waits goes on at once; asking notifies nobody.

`PostgresStanding` has the standing approvals of deletes.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from licet.backends.approvals.requests import (
    AT_TERMINAL,
    SESSION_ENDED,
    ApprovalStore,
    CannotAnswer,
    StoredRequest,
    for_question,
    found_one,
    keys_text,
    request_of,
    shown_arguments,
    stored_keys,
    too_long,
    too_many,
    unchanged,
)
from licet.backends.approvals.standing import Facts, StoredStanding, milliseconds_of, this_machine
from licet.backends.limits import (
    FINISHED_MS,
    LOOK_AGAIN_SECONDS,
    MOST_EXPIRED,
    MOST_TURNS,
    MOST_UNANSWERED,
    POLL_SECONDS,
    SIGNATURES_KEPT,
    STANDING_SECONDS,
)
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import IsEnrolled, Node, is_signed
from licet.backends.secrets import SigningKey
from licet.core.decision.approval import UNSIGNED, ApprovalRequest, Yes
from licet.core.ledger.entry import STANDING_SESSION, Entry, Unsound, read_entry
from licet.core.policy.terms import Approvals
from licet.core.values import canonical_json, digest
from licet.declare.plain_json import plain_json
from licet.guard.deadlines import CURRENT
from licet.guard.limits import STORE_SECONDS
from licet.guard.ports import Answered, LedgerUnavailable, Question, Unavailable, free_after_fork

ANSWERS = "licet_answers"  # the channel on which nodes hear of answers
_PURPOSE = "approval"  # what nodes sign these rows for
# Casts: a column that was made into another type is read as what it should be, or not at all.
_ROWS = """SELECT r.place::bigint, r.id::text, r.body::bytea, r.node::text, r.signature::bytea, s.body::bytea AS shown,
    (SELECT count(*) FROM licet.approval_uses WHERE request = r.id) AS used,
    array(SELECT a.body::bytea FROM licet.approval_answers AS a WHERE a.request = r.id ORDER BY a.place) AS answers,
    array(SELECT a.node::text FROM licet.approval_answers AS a WHERE a.request = r.id ORDER BY a.place) AS nodes,
    array(SELECT a.signature::bytea FROM licet.approval_answers AS a WHERE a.request = r.id ORDER BY a.place)
        AS signatures
FROM licet.approval_requests AS r LEFT JOIN licet.approval_shown AS s ON s.request = r.id"""
_FIND = f"{_ROWS} WHERE r.id = $1"
_LIST = f"{_ROWS} ORDER BY r.place"
_STANDING = f"{_ROWS} WHERE r.scope = 'standing' AND ($1::text IS NULL OR r.id = $1) ORDER BY r.place"
_OF_SESSION = f"{_ROWS} WHERE r.agent = $1 AND r.session = $2 AND r.expires > $3 ORDER BY r.place"
# Those that can still be used, and those that expired since the last time that this was asked: they are reported once.
_SAME = f"""{_ROWS} WHERE r.subject = $1 AND (r.expires > $2 OR r.expires > (
    SELECT coalesce(max(asked), 0) FROM licet.approval_requests WHERE subject = $1 AND id <> $3
)) ORDER BY r.place"""  # noqa: S608
_OPEN = "SELECT licet.open_approval($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
_ANSWER = "SELECT licet.answer_approval($1, $2, $3, $4, $5, $6)"
_ANSWER_MANY = """SELECT licet.answer_approval(id, request, denies, body, node, signature)
FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bytea[], $5::text[], $6::bytea[])
    AS a (id, request, denies, body, node, signature)"""
_USE = "SELECT licet.use_approval($1, $2)"
_USE_ACTS = "SELECT licet.take_turn($1, 'acts', $2)"
_CLAIM = "SELECT licet.take_turn($1, 'claim', $2)"
_GIVE_BACK = "SELECT licet.give_back_claim($1)"
_ALL = (1 << 63) - 1  # after the last row
_OLD = (1 << 31) - 1  # more requests than there are


class _RequestRow(Struct, frozen=True, forbid_unknown_fields=True, tag_field="row", tag="request"):
    """What a node signs of a request. What results said of it (`unmet`) is shown and dropped with its arguments."""

    request: str  # canonical, without `unmet`
    shown: str  # the digest of what a person reads
    quorum: int
    keys: str | None


class _AnswerRow(Struct, frozen=True, forbid_unknown_fields=True, tag_field="row", tag="answer"):
    """What a node signs of an answer: that it came to this node, about exactly this request."""

    id: str
    request: str  # the digest of its statement
    denies: bool
    by: str
    only_these_arguments: bool
    signature: str  # of a person, in hexadecimal
    time: int


_READ = msgspec.json.Decoder(ApprovalRequest)
_READ_REQUEST = msgspec.json.Decoder(_RequestRow)
_READ_ANSWER = msgspec.json.Decoder(_AnswerRow)
_is_signed = lru_cache(SIGNATURES_KEPT)(is_signed)  # the same rows are read again at each call of a session


class PostgresApprovals(ApprovalStore):
    """A durable approver for many nodes. Requests expire by the clock of the node that asks.

    With `leaves_use`, an approval is found and left to the transaction that also keeps the decision of the call.
    """

    def __init__(
        self,
        database: Database,
        node: Node,
        enrolled: IsEnrolled,
        clock: Callable[[], float] = time.time,
        *,
        options: str = "",
        leaves_use: bool = False,
        check_node: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Take the database and the node. `check_node` raises an error if the answers of this node do not count."""
        super().__init__(clock, options=options)
        self._check_node = check_node
        self._database, self._node, self._enrolled, self._leaves_use = database, node, enrolled, leaves_use
        self._lock = free_after_fork(threading.Lock())
        self._watched: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._end_listening: Callable[[], None] | None = None

    # For gates -------------------------------------------------------------------------------------------------------

    async def ask(self, question: Question) -> Answered:
        """Return the answer to an earlier request for the same call, or store a new request."""
        shown = plain_json(question.arguments)
        if (refused := too_long(shown)) is not None:
            return refused
        first, call = request_of(question, self.now()), _new_id("c")
        for _ in range(MOST_TURNS):
            now = self.now()
            asked = replace(first, asked=now, expires=now + question.expires_seconds * 1000)
            rows = await self._rows(_SAME, asked.subject, now, asked.id)
            found = [for_question(kept, asked, question) for kept in await self._sound(rows, now)]
            judged = self.judge([kept for kept in found if kept is not None], asked, question)
            if judged.step == "use":
                # Deletes are approved once, also where the approval itself is for all calls of a session.
                acts = asked.scope == "session" and asked.acts and not judged.answered.first_only
                if self._leaves_use and not acts:
                    return replace(judged.answered, to_use=True)
                if await self._take(_USE_ACTS if acts else _USE, judged.answered.request, call):
                    return judged.answered
                continue
            if judged.step == "none":
                return judged.answered
            keys, seen = keys_text(question.keys, question.names), max((row["place"] for row in rows), default=0)
            match await self._open(asked, shown.decode(), question.quorum, keys, seen):
                case "opened":
                    return self.opened(judged, asked, question)
                case "full":
                    return too_many(judged)
        raise Unavailable(
            f"the requests for this call in {self._database.address.shown} change all the time, or have rows that no"
            " node has written"
        )

    async def _take(self, query: str, request: str, call: str) -> bool:
        taken: bool = await self._database.once(lambda connection: connection.fetchval(query, request, call))
        return taken

    async def _open(
        self,
        asked: ApprovalRequest,
        arguments: str,
        quorum: int,
        keys: str | None,
        seen: int,
        most: int = MOST_UNANSWERED,
    ) -> str:
        shown = canonical_json([arguments, list(asked.unmet)])
        row = _RequestRow(replace(asked, unmet=()).text(), digest(shown.decode()), quorum, keys)
        body = canonical_json(row)
        place = asked.id, asked.subject, asked.agent, asked.session, asked.scope, asked.asked, asked.expires
        signed = body, self._node.public, self._node.sign(_PURPOSE, body), shown
        sent = *place, *signed, seen, most, MOST_EXPIRED, FINISHED_MS
        state: str = await self._database.once(lambda connection: connection.fetchval(_OPEN, *sent))
        return state

    @contextmanager
    def watch(self, request: str) -> Iterator[Callable[[float, float], Awaitable[object]]]:
        """Gives a function that waits until the request may have been answered, as it is notified or polls."""
        mine = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._watched.setdefault(request, []).append(mine)
            if self._end_listening is None:
                self._end_listening = self._database.listen(ANSWERS, self._heard)

        async def changed(interval: float, left: float) -> bool:
            # Notified or not, it looks again from time to time: a connection may be dead without anybody knowing.
            longest = interval if self._database.is_deaf else LOOK_AGAIN_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(min(longest, max(left, 0.0))):
                    await mine[1].wait()
            was_told = mine[1].is_set() and not self._database.is_deaf
            mine[1].clear()
            return was_told

        try:
            yield changed
        finally:
            with self._lock:
                self._watched[request].remove(mine)
                if not self._watched[request]:
                    del self._watched[request]

    def _heard(self, request: str) -> None:
        """In the thread of the database: wake those who wait for this request, or all of them."""
        with self._lock:
            woken = [one for name, waiting in self._watched.items() if request in ("", name) for one in waiting]
        for loop, event in woken:
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(event.set)

    def standing(self, id: str | None = None) -> Sequence[StoredRequest]:  # noqa: A002
        """Return the requests for standing approvals, or the one with this id. Blocks until the database answers."""
        return self._database.do(self.standing_now(id), STORE_SECONDS)

    async def standing_now(self, id: str | None = None) -> Sequence[StoredRequest]:  # noqa: A002
        """As `standing`, for callers that can await."""
        found = await self._sound(await self._rows(_STANDING, id), self.now())
        return [kept for kept in found if kept is not None and kept.request.scope == "standing"]

    # For people ------------------------------------------------------------------------------------------------------

    async def list(self) -> Sequence[StoredRequest]:
        """Return every stored request, the oldest first."""
        return [kept for kept in await self._sound(await self._rows(_LIST), self.now()) if kept is not None]

    async def unbelieved(self) -> Sequence[str]:
        """The ids of requests with rows that no node of this state has signed, or that were changed since."""
        rows = await self._rows(_LIST)
        trusted = await self._trusted(rows)
        return [_text_of(row["id"]) for row in rows if not _is_whole(row, trusted, self.now())]

    async def find(self, id: str) -> StoredRequest:  # noqa: A002
        """Return one request; raises `CannotAnswer` if there is none."""
        return found_one(id, await self._sound(await self._rows(_FIND, id), self.now()))

    async def approve(
        self, shown: StoredRequest, key: SigningKey | None = None, *, only_these_arguments: bool = False
    ) -> StoredRequest:
        """Approve a request as it was shown, or less of it; raises `CannotAnswer` if it was changed since."""
        yes = self.agreement(shown, key, only_these_arguments=only_these_arguments)
        return await self._answered(shown.request, yes, denies=False)

    async def deny(self, shown: StoredRequest) -> StoredRequest:
        """Deny a request, also an approved one that can still be used. One denial is enough."""
        return await self._answered(shown.request, Yes(UNSIGNED), denies=True)

    async def _answered(self, shown: ApprovalRequest, yes: Yes, *, denies: bool) -> StoredRequest:
        self.check_open(unchanged(await self.find(shown.id), shown))
        if self._check_node is not None:
            await self._check_node()
        sent = self._answer(shown, yes, denies=denies)
        state: str = await self._database.once(lambda connection: connection.fetchval(_ANSWER, *sent))
        kept = unchanged(await self.find(shown.id), shown)
        if state != "answered":  # somebody else was first
            self.check_open(kept)
            raise CannotAnswer(
                f"{shown.id} is {state}, says a row that no node has written: the call has to be made again"
            )
        return kept

    def _answer(self, request: ApprovalRequest, yes: Yes, *, denies: bool) -> tuple[str, str, bool, bytes, str, bytes]:
        about, name = digest_of(request), _new_id("y")
        row = _AnswerRow(name, about, denies, yes.by, yes.only_these_arguments, yes.signature.hex(), self.now())
        body = canonical_json(row)
        return name, request.id, denies, body, self._node.public, self._node.sign(_PURPOSE, body)

    async def offer_standing(self, request: ApprovalRequest, terms: Approvals) -> StoredRequest:
        """Store a request for a standing approval; unless signatures are needed, the person at the terminal agrees."""
        keys = keys_text(terms.keys, terms.names)
        await self._open(request, "{}", terms.quorum, keys, _ALL, _OLD)
        if keys is None:
            sent = self._answer(request, Yes(AT_TERMINAL), denies=False)
            await self._database.once(lambda connection: connection.fetchval(_ANSWER, *sent))
        return await self.find(request.id)

    async def claim_standing(self, id: str, *, back: bool = False) -> bool:  # noqa: A002
        """Whether the caller is the one who writes the entry of a standing approval into the ledger."""
        if back:
            await self._database.once(lambda connection: connection.fetchval(_GIVE_BACK, id))
            return True
        return await self._take(_CLAIM, id, _new_id("c"))

    async def end_session(self, agent: str, session: str) -> None:
        """Close the requests of a session that has ended: no call can use an answer to them."""
        now = self.now()
        found = await self._sound(await self._rows(_OF_SESSION, agent, session, now), now)
        still_open = [kept for kept in found if kept is not None and kept.state(now) in ("waiting", "approved")]
        answers = [self._answer(kept.request, Yes(SESSION_ENDED), denies=True) for kept in still_open]
        if answers:
            answers.sort(key=lambda one: one[1])  # in one order everywhere, since each request is locked
            columns = [[*column] for column in zip(*answers, strict=True)]
            await self._database.once(lambda connection: connection.fetch(_ANSWER_MANY, *columns))

    def close(self) -> None:
        """Stop listening; the database belongs to others too."""
        with self._lock:
            end, self._end_listening = self._end_listening, None
        if end is not None:
            end()

    # Rows ------------------------------------------------------------------------------------------------------------

    async def _rows(self, query: str, *values: object) -> Sequence[Mapping[str, Any]]:
        async def fetch(connection: Connection) -> Sequence[Mapping[str, Any]]:
            return await connection.fetch(query, *values)

        return await self._database.once(fetch)

    async def _sound(self, rows: Sequence[Mapping[str, Any]], now: int) -> Sequence[StoredRequest | None]:
        trusted = await self._trusted(rows)
        return [_stored(row, trusted, now) for row in rows]

    async def _trusted(self, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """The nodes that wrote these rows and belong to this state. No connection is held meanwhile."""
        named = {name for row in rows for name in (row["node"], *row["nodes"])}
        return frozenset([name for name in named if name and (name == self._node.public or await self._enrolled(name))])


def digest_of(request: ApprovalRequest) -> str:
    """The digest that an answer is bound to: of the request without what may be dropped later."""
    return digest(replace(request, unmet=()).text())


def _new_id(kind: Literal["c", "y"]) -> str:
    return f"{kind}-{os.urandom(12).hex()}"


def _text_of(name: str) -> str:
    return ascii(name)[1:-1]


def _stored(row: Mapping[str, Any], trusted: frozenset[str], now: int) -> StoredRequest | None:
    """A stored request with its answers; None if no node of this state has signed it as it is."""
    if not _is_ours(row["node"], row["body"], row["signature"], trusted):
        return None
    try:
        written = _READ_REQUEST.decode(row["body"])
        arguments, unmet = "", ()
        if row["shown"] is not None:
            if digest(row["shown"].decode()) != written.shown:
                return None
            arguments, listed = json.loads(row["shown"])
            unmet = tuple(listed)
        request = replace(_READ.decode(written.request), unmet=unmet)
        found = shown_arguments(request, arguments, now)
        keys, names = stored_keys(written.keys)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    if request.id != row["id"] or replace(request, unmet=()).text() != written.request:
        return None
    answers = _answers(row, request, trusted)
    denied = next((one.by for one, _ in answers if one.denies), "")
    given: dict[str, Yes] = {}
    for one, is_ours in answers:
        if not one.denies and (is_ours or denied):  # after a denial they are listed, and count no more
            signature = b"" if denied else bytes.fromhex(one.signature)
            given[one.by] = Yes(one.by, one.only_these_arguments, signature)
    agreed = tuple(given[by] for by in sorted(given))
    return StoredRequest(request, found, written.quorum, keys, agreed, denied, row["used"], names)


def _answers(
    row: Mapping[str, Any], request: ApprovalRequest, trusted: frozenset[str]
) -> list[tuple[_AnswerRow, bool]]:
    """The answers to a request, in order: signed by a node of this state, or taken back."""
    about, found = digest_of(request), []
    for body, node, signature in zip(row["answers"], row["nodes"], row["signatures"], strict=True):
        is_ours = _is_ours(node, body, signature, trusted)
        if not is_ours and signature != b"":
            continue
        try:
            one = _READ_ANSWER.decode(body)
            bytes.fromhex(one.signature)
        except (ValueError, TypeError):
            continue
        if one.request == about and (is_ours or not one.denies):
            found.append((one, is_ours))
    return found


def _is_whole(row: Mapping[str, Any], trusted: frozenset[str], now: int) -> bool:
    """Whether a request and all its answers are as nodes of this state wrote them."""
    kept = _stored(row, trusted, now)
    return kept is not None and len(_answers(row, kept.request, trusted)) == len(row["answers"])


def _is_ours(node: str | None, body: bytes | None, signature: bytes | None, trusted: frozenset[str]) -> bool:
    """Whether a node of this state has written this. A column may be null, if somebody has changed the table."""
    return node in trusted and _is_signed(node, _PURPOSE, body, signature)


# Standing approvals --------------------------------------------------------------------------------------------------

# The places of the chains of standing approvals, whether a number is missing after the first of them, and the newest
# entry of all.
_PLACES = """WITH mine AS (
    SELECT agent::text, max(sequence)::bigint AS last, min(number)::bigint AS first FROM licet.places
    WHERE session = $1 AND agent = ANY ($2::text[]) GROUP BY 1
), since AS (SELECT greatest($3::bigint, (SELECT min(first) FROM mine)) AS number)
SELECT (SELECT number FROM since) AS since, array(SELECT agent FROM mine ORDER BY 1) AS agents,
    array(SELECT last FROM mine ORDER BY agent) AS ends,
    (SELECT count(*) FROM licet.places WHERE number >= (SELECT number FROM since))::bigint AS found,
    (SELECT coalesce(max(number), 0) FROM licet.places)::bigint AS last,
    (SELECT coalesce(max(size), 0) FROM licet.heads)::bigint AS size,
    (SELECT e.body::bytea FROM licet.places AS p JOIN licet.entries AS e USING (agent, session, sequence)
        ORDER BY p.number DESC LIMIT 1) AS newest"""


class StandingLedger(Protocol):
    """The ledger of a state, as standing approvals need it."""

    async def record(self, entry: Entry) -> None:
        """Keep an entry; when this returns it is committed."""

    async def entries_of(self, agent: str, session: str) -> Sequence[Entry]:
        """The entries of a session and of its delegates, signed by nodes of this state and without a gap."""


class PostgresStanding(StoredStanding):
    """The standing approvals of one node. What was given on another node counts there alone.

    Paths are those of a machine, and machines that were made from one image call themselves the same, so the key of the
    node belongs to the machine here. What the stores say is kept for a moment, and read again when it was withdrawn.
    """

    def __init__(
        self,
        store: PostgresApprovals,
        ledger: StandingLedger,
        database: Database,
        node: Node,
        machine: Callable[[], str] = this_machine,
    ) -> None:
        super().__init__(store, lambda: digest(["licet standing approval", machine(), node.public]))
        self._requests, self._ledger, self._database = store, ledger, database
        self._read_facts: tuple[Facts, float] | None = None  # and when that was, by `time.monotonic`
        self._used = 0.0
        self._failed: tuple[str, float] = "", 0.0
        self._is_reading = False
        self._end_listening: Callable[[], None] | None = None
        self._counted = 0  # the number of the entry in the ledger up to which none was missing
        self._seen: dict[str, int] = {}  # how many entries the chain of an agent had

    def close(self) -> None:
        """Stop listening; the database belongs to others too."""
        end, self._end_listening = self._end_listening, None
        if end is not None:
            end()

    def _facts(self, id: str | None) -> Facts:  # noqa: A002
        facts = self._current()
        return facts if id is None else replace(facts, known=[one for one in facts.known if one.request.id == id])

    def _known(self, id: str) -> Sequence[StoredRequest]:  # noqa: A002
        return self._facts(id).known

    def _look_again(self) -> None:
        self._read_facts = None

    async def _record(self, entry: Entry) -> None:
        await self._ledger.record(entry)
        self._look_again()

    def _current(self) -> Facts:
        """What the stores say, or said a moment ago. Blocks only where that is too long ago."""
        now = self._used = time.monotonic()
        if self._end_listening is None:
            self._end_listening = self._database.listen(ANSWERS, self._heard)
        if self._read_facts is not None:
            facts, read = self._read_facts
            if now - read <= STANDING_SECONDS:
                if now - read > STANDING_SECONDS / 2:
                    self._read_soon()
                return facts
        failed, when = self._failed
        if failed and now - when < POLL_SECONDS:  # each delete would wait for a database that does not answer
            raise Unavailable(failed)
        try:
            return self._database.do(self._read(), STORE_SECONDS)
        except (Unavailable, LedgerUnavailable) as wrong:
            self._failed = str(wrong), time.monotonic()
            raise

    def _heard(self, request: str) -> None:
        """In the thread of the database: look at once where a standing approval may have been withdrawn."""
        if self._read_facts is None or request not in ("", *(one.request.id for one in self._read_facts[0].known)):
            return
        if time.monotonic() - self._used > STANDING_SECONDS:
            self._look_again()  # no call has used a standing approval lately
        else:
            self._read_soon()

    def _read_soon(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._database.start(self._read_quietly())

    async def _read_quietly(self) -> None:
        CURRENT.set(None)  # the time of the call that happened to notice is no limit here
        try:
            await self._read()
        except (Unavailable, LedgerUnavailable):
            self._look_again()  # the next call reads again, and gets the error
        finally:
            self._is_reading = False

    async def _read(self) -> Facts:
        """In the thread of the database."""
        began = time.monotonic()
        known = await self._requests.standing_now()
        agents = sorted({kept.request.agent for kept in known})
        # The places first: an entry that gets its place meanwhile is then no entry that is missing.
        row = await self._places(agents) if agents else None
        entries: dict[str, Sequence[Entry]] = {}
        for agent in agents:
            found = await self._ledger.entries_of(agent, STANDING_SESSION)
            entries[agent] = [one for one in found if one.agent == agent]
        latest = 0 if row is None else self._checked(row, entries)
        facts = Facts(known, [one for some in entries.values() for one in some], latest)
        self._read_facts = facts, began
        return facts

    async def _places(self, agents: Sequence[str]) -> Mapping[str, Any]:
        async def look(connection: Connection) -> Mapping[str, Any]:
            row: Mapping[str, Any] = await connection.fetchrow(_PLACES, STANDING_SESSION, agents, self._counted + 1)
            return row

        return await self._database.once(look)

    def _checked(self, row: Mapping[str, Any], entries: Mapping[str, Sequence[Entry]]) -> int:
        """When the newest entry was made; `LedgerUnavailable` if one may be missing: it could be a withdrawal."""
        where = self._database.address.shown
        ends = dict(zip(row["agents"], row["ends"], strict=True))
        for agent, some in entries.items():
            if len(some) < max(ends.get(agent, 0), self._seen.get(agent, 0)):
                raise LedgerUnavailable(f"the ledger in {where} was changed: entries are missing")
        since, last = row["since"], row["last"]
        if last < row["size"] or (ends and row["found"] != max(last - since + 1, 0)):
            raise LedgerUnavailable(f"the ledger in {where} was changed: entries are missing")
        self._seen = {agent: len(some) for agent, some in entries.items()}
        self._counted = last if ends else 0
        if row["newest"] is None:
            return 0
        try:
            return milliseconds_of(read_entry(row["newest"]).recorded)
        except Unsound as wrong:
            raise LedgerUnavailable(f"the ledger in {where} was changed: {wrong}") from None
