"""Stores requests for approval and their answers in one SQLite file, so that both survive the process that asked.

`SqliteApprovals` is the approver of a gate. It does not ask a person and wait: it stores a request, and the repeated
call finds the answer. Approvers answer with `licet approvals`, which uses the second half of the same class. Finding an
approval and using it is one transaction, so an approval for one call serves one call, in any number of processes.

Approver that stores a request and lets the call wait until it is answered.

The tool is not run again for each answer. Approvers use `licet approvals`, in another terminal or process.
"""

import asyncio
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from licet.backends.limits import FINISHED_MS, LOOK_SECONDS, MOST_EXPIRED, MOST_SHOWN_BYTES, MOST_UNANSWERED
from licet.backends.secrets import SigningKey, load_code, verifies
from licet.backends.sqlite import Format, SqliteFile
from licet.core.decision.approval import (
    UNSIGNED,
    ApprovalRequest,
    Scope,
    Yes,
    agreeing,
    enough,
    request_from,
    time_text,
)
from licet.core.policy.terms import Approvals
from licet.core.values import data_digest, key_bytes
from licet.declare.plain_json import plain_data, plain_json
from licet.guard.deadlines import CURRENT
from licet.guard.limits import STORE_SECONDS
from licet.guard.ports import Answered, Question

_SCHEMA = """
CREATE TABLE requests (
    id TEXT PRIMARY KEY, subject TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL,
    body TEXT NOT NULL, arguments TEXT NOT NULL, quorum INTEGER NOT NULL, keys TEXT, asked INTEGER NOT NULL,
    expires INTEGER NOT NULL, denied TEXT NOT NULL DEFAULT '', used INTEGER NOT NULL DEFAULT 0,
    told INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX by_subject ON requests (subject);
CREATE INDEX by_session ON requests (agent, session, expires);
CREATE INDEX by_expiry ON requests (expires);
CREATE TABLE answers (
    request TEXT NOT NULL, signer TEXT NOT NULL, narrow INTEGER NOT NULL,
    signature BLOB NOT NULL, time INTEGER NOT NULL, PRIMARY KEY (request, signer)
) WITHOUT ROWID;
"""
_FORMAT = Format(0x6C696361, 1, _SCHEMA)  # `lica`: licet's approvals
_FIND = "SELECT * FROM requests WHERE id = ?"
_LIST = "SELECT * FROM requests ORDER BY rowid"
_SAME = "SELECT * FROM requests WHERE subject = ? AND (expires > ? OR told = 0) ORDER BY rowid"
_WAITING = "SELECT count(*) FROM requests WHERE agent = ? AND session = ? AND expires > ? AND used = 0 AND denied = ''"
_OF_SESSION = "SELECT * FROM requests WHERE agent = ? AND session = ? AND expires > ?"
_ANSWERS = "SELECT signer, narrow, signature FROM answers WHERE request = ? ORDER BY signer"
_KEEP = """INSERT INTO requests (id, subject, agent, session, tool, body, arguments, quorum, keys, asked, expires)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_TELL = "UPDATE requests SET told = 1 WHERE subject = ? AND expires <= ?"
_USE = "UPDATE requests SET used = used + 1 WHERE id = ?"
_CLAIM = "UPDATE requests SET used = ? WHERE id = ? AND used = ?"
_DENY = "UPDATE requests SET denied = ? WHERE id = ?"
_TAKE_BACK = "UPDATE answers SET signature = x'' WHERE request = ?"
_AGREE = "INSERT OR REPLACE INTO answers (request, signer, narrow, signature, time) VALUES (?, ?, ?, ?, ?)"
_UNANSWERED = """expires <= ? AND used = 0 AND denied = ''
AND NOT EXISTS (SELECT 1 FROM answers WHERE request = requests.id)"""
# What a request quotes of results goes together with its arguments.
_DROP = (
    f"UPDATE requests SET arguments = '', body = json_remove(body, '$.unmet') WHERE arguments != '' AND {_UNANSWERED}"  # noqa: S608
)
_FORGET_MORE = f"""DELETE FROM requests WHERE rowid IN (SELECT rowid FROM requests
WHERE agent = ? AND session = ? AND {_UNANSWERED} ORDER BY rowid DESC LIMIT -1 OFFSET {MOST_EXPIRED})"""  # noqa: S608
_FORGET_ANSWERS = "DELETE FROM answers WHERE request IN (SELECT id FROM requests WHERE expires <= ?)"
_FORGET = "DELETE FROM requests WHERE expires <= ?"

_ELSEWHERE = (
    "`licet approvals list` has those that are; requests of another manifest are kept apart: go to its directory, or"
    " name it with `--manifest FILE`, or its state with `--state DIR`"
)

AT_TERMINAL = "terminal"  # recorded as the approver of a standing approval without a signature
SESSION_ENDED = "session ended"  # recorded as who denied the requests of a session that was ended
_LASTING = ("session", "standing")
State = Literal["waiting", "approved", "denied", "used", "expired"]


class CannotAnswer(Exception):
    """A request that cannot be answered this way. The message says why, and what to do."""


class StoredRequest(Struct, frozen=True):
    """A stored request, with the answers so far."""

    request: ApprovalRequest
    arguments: dict[str, Any] | None  # None once the request has expired without an answer
    quorum: int
    keys: tuple[str, ...] | None
    given: tuple[Yes, ...]
    denied: str  # who denied it; empty if nobody did
    used: int
    names: Mapping[str, str] = {}  # the owners of keys, where the policy names them

    def agreeing(self, arguments: str) -> tuple[str, ...]:
        """Return the approvers whose approval covers a call with these arguments."""
        return agreeing(self.request, self.given, arguments, self.keys, verifies)

    def approved(self, arguments: str) -> bool:
        """Whether enough approvers have agreed to a call with these arguments."""
        return enough(self.agreeing(arguments), self.quorum, self.keys)

    def serves(self, arguments: str) -> bool:
        """Whether this approval can be used for a call with these arguments."""
        spent = self.used and self.request.scope not in _LASTING
        return not (self.denied or spent) and self.approved(arguments)

    def includes_acts(self, asked: ApprovalRequest) -> bool:
        """Whether this approval covers the deletes in question. They are approved once, even for a session."""
        return not asked.acts or (self.request.same_acts(asked) and not self.used)

    def state(self, now: int) -> State:
        if self.denied:
            return "denied"
        if self.used and self.request.scope not in _LASTING:
            return "used"
        if now >= self.request.expires:
            return "expired"
        return "approved" if self.approved(self.request.arguments) else "waiting"


class SqliteApprovals:
    """A durable approver. `options` are the options that `licet approvals` needs to find this file."""

    verifies = True

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time, *, options: str = ""
    ) -> None:
        self._file = SqliteFile(path, _FORMAT, "FULL")
        self._clock = clock
        self._options = options

    # For gates -------------------------------------------------------------------------------------------------------

    def load_code(self) -> None:
        """Import what verifies signatures."""
        load_code()

    async def ask(self, question: Question) -> Answered:
        """Return the answer to an earlier request for the same call, or store a new request."""
        shown = plain_json(question.arguments)
        if len(shown) > MOST_SHOWN_BYTES:
            return Answered(
                "absent", note=f"its arguments are longer than {MOST_SHOWN_BYTES} bytes: nobody could read them"
            )
        # The clock is read inside the transaction: the wait for another writer may have been long.
        return await self._file.write(lambda db: self._settle(db, request_of(question, self.now()), question, shown))

    def _settle(self, db: sqlite3.Connection, asked: ApprovalRequest, question: Question, shown: bytes) -> Answered:
        subject, now = asked.subject, asked.asked
        same = [kept for row in _rows(db, _SAME, subject, now) if (kept := _same(db, row, asked, question)) is not None]
        live = [kept for kept in same if kept.request.live(now, question.expires_seconds)]
        usable = [kept for kept in live if kept.serves(asked.arguments)]
        for kept in sorted(usable, key=lambda one: not one.includes_acts(asked)):
            db.execute(_USE, (kept.request.id,))
            by, with_acts = kept.agreeing(asked.arguments), kept.includes_acts(asked)
            return Answered("approved", by, kept.request.id, first_only=not with_acts, asks_again=True)
        live = [kept for kept in live if kept.request.same_acts(asked)]
        for kept in live:
            if kept.denied:
                until = (
                    f"request {kept.request.id} was denied; the answer holds until {time_text(kept.request.expires)}"
                )
                return Answered("denied", (kept.denied,), kept.request.id, until)
        for kept in live:
            if kept.state(now) == "waiting":
                return self._waiting("absent", kept)
        # Approvals that expired unused are reported once, together with the request that replaces them.
        late = any(now >= kept.request.expires and not (kept.used or kept.denied) for kept in same)
        db.execute(_TELL, (subject, now))
        answer: Literal["expired", "absent"] = "expired" if late else "absent"
        db.execute(_FORGET_ANSWERS, (now - FINISHED_MS,))
        db.execute(_FORGET, (now - FINISHED_MS,))
        db.execute(_DROP, (now,))
        db.execute(_FORGET_MORE, (asked.agent, asked.session, now))
        if _number(db, _WAITING, asked.agent, asked.session, now) >= MOST_UNANSWERED:
            told = f"{MOST_UNANSWERED} requests of this session wait already: answer those first"
            return Answered(answer, note=told)
        named = [[key, question.names.get(key, "")] for key in question.keys or ()]
        keys = None if question.keys is None else json.dumps(named)
        place = asked.id, subject, asked.agent, asked.session, asked.tool
        db.execute(_KEEP, (*place, asked.text(), shown.decode(), question.quorum, keys, now, asked.expires))
        kept = StoredRequest(asked, {}, question.quorum, question.keys, (), "", 0, question.names)
        return self._waiting(answer, kept)

    def _waiting(self, answer: Literal["expired", "absent"], kept: StoredRequest) -> Answered:
        request = kept.request
        note = f"request {request.id} waits for an answer until {time_text(request.expires)}"
        fix = f"run `licet approvals approve {request.id}{self._options}`"
        if kept.keys is not None or kept.quorum > 1:
            note += f"; {len(kept.agreeing(request.arguments))} of {kept.quorum} signatures are there"
            fix = f"{fix[:-1]} --key FILE`"
        return Answered(answer, request=request.id, note=note, fix=fix)

    # For people ------------------------------------------------------------------------------------------------------

    async def list(self) -> list[StoredRequest]:
        """Return every stored request, the oldest first. Creates no file."""
        if not os.path.lexists(self._file.path):
            return []
        now = self.now()
        return await self._file.read(lambda db: [kept for row in _rows(db, _LIST) if (kept := _sound(db, row, now))])

    def standing(self, id: str | None = None) -> Sequence[StoredRequest]:  # noqa: A002
        """Return the requests for standing approvals, or the one with this id. Creates no file, and does not wait."""
        if not os.path.lexists(self._file.path):
            return []
        query, values = (_LIST, ()) if id is None else (_FIND, (id,))
        now = self.now()
        found = self._file.read_now(
            lambda db: [_sound(db, row, now) for row in _rows(db, query, *values)], STORE_SECONDS
        )
        return [kept for kept in found if kept is not None and kept.request.scope == "standing"]

    async def offer_standing(self, request: ApprovalRequest, terms: Approvals) -> StoredRequest:
        """Store a request for a standing approval; unless signatures are needed, the person at the terminal agrees."""
        named = [[key, terms.names.get(key, "")] for key in terms.keys or ()]
        keys = None if terms.keys is None else json.dumps(named)

        def offer(db: sqlite3.Connection) -> StoredRequest:
            place = request.id, request.subject, request.agent, request.session, request.tool
            db.execute(_KEEP, (*place, request.text(), "{}", terms.quorum, keys, request.asked, request.expires))
            if keys is None:
                db.execute(_AGREE, (request.id, AT_TERMINAL, False, b"", self.now()))
            return _found(db, request.id, self.now())

        return await self._file.write(offer)

    async def claim_standing(self, id: str, *, back: bool = False) -> bool:  # noqa: A002
        """Whether the caller is the one who writes the entry of a standing approval into the ledger; `back` undoes it.

        Two people may sign at the same time, and an id has one such entry.
        """
        return await self._file.write(lambda db: bool(db.execute(_CLAIM, (not back, id, back)).rowcount))

    async def find(self, id: str) -> StoredRequest:  # noqa: A002
        """Return one request; raises `CannotAnswer` if there is none."""
        return await self._file.read(lambda db: _found(db, id, self.now()))

    async def approve(
        self, shown: StoredRequest, key: SigningKey | None = None, *, only_these_arguments: bool = False
    ) -> StoredRequest:
        """Approve a request as it was shown, or less of it; raises `CannotAnswer` if it was changed since."""
        request = shown.request
        # for other scopes, the request is about these arguments anyway
        narrow = only_these_arguments and request.scope == "session"
        self._check_open(shown)
        if request.scope == "standing" and shown.keys is None:
            raise CannotAnswer(f"{request.id} is a standing approval: a person gives it at a terminal in `licet trust`")
        _check_key(shown, key)
        signature = b"" if key is None else key.sign(request.statement(only_these_arguments=narrow))
        signer = UNSIGNED if key is None else key.public

        def agree(db: sqlite3.Connection) -> StoredRequest:
            self._check_open(_unchanged(db, request, self.now()))
            db.execute(_AGREE, (request.id, signer, narrow, signature, self.now()))
            return _unchanged(db, request, self.now())

        return await self._file.write(agree)

    async def deny(self, shown: StoredRequest) -> StoredRequest:
        """Deny a request, also an approved one that can still be used. One denial is enough."""
        request = shown.request

        def refuse(db: sqlite3.Connection) -> StoredRequest:
            self._check_open(_unchanged(db, request, self.now()))
            db.execute(_DENY, (UNSIGNED, request.id))
            # The approvals stay listed without their signatures. Removing the denial from the file then restores no
            # approval.
            db.execute(_TAKE_BACK, (request.id,))
            return _unchanged(db, request, self.now())

        return await self._file.write(refuse)

    async def end_session(self, agent: str, session: str) -> None:
        """Close the requests of a session that has ended: no call can use an answer to them. Creates no file."""
        if not os.path.lexists(self._file.path):
            return

        def close(db: sqlite3.Connection) -> None:
            now = self.now()
            for row in _rows(db, _OF_SESSION, agent, session, now):
                if (kept := _sound(db, row, now)) is None or kept.state(now) in ("waiting", "approved"):
                    db.execute(_DENY, (SESSION_ENDED, row["id"]))
                    db.execute(_TAKE_BACK, (row["id"],))

        await self._file.write(close)

    def close(self) -> None:
        self._file.close()

    def now(self) -> int:
        """The current time in milliseconds, by which requests expire."""
        return int(self._clock() * 1000)

    def _check_open(self, kept: StoredRequest) -> None:
        state = kept.state(self.now())
        if state in ("denied", "used", "expired"):
            until = time_text(kept.request.expires)
            if kept.denied == SESSION_ENDED:
                text = "cannot be answered any more: its session has ended"
            elif state == "denied" and self.now() < kept.request.expires:
                text = f"is denied, and that holds until {until}: the same call asks again after that"
            else:
                text = f"is {state}{f' since {until}' if state == 'expired' else ''}: the call has to be made again"
            raise CannotAnswer(f"{kept.request.id} {text}")


def request_of(question: Question, now: int) -> ApprovalRequest:
    """Make a new request for a question."""
    approval = question.approval
    scope: Scope = "use" if approval.use else "call" if approval.arguments else "session"
    exact = data_digest(plain_data(plain_json(question.arguments)))
    if approval.arguments not in ("", exact):
        raise ValueError("the arguments that would be shown are not those that are asked about")
    return ApprovalRequest(
        id=f"a-{secrets.token_hex(6)}",
        nonce=secrets.token_hex(16),
        agent=question.agent,
        session=approval.session,
        tool=approval.tool,
        tool_digest=question.spec.digest,
        manifest=approval.manifest,
        scope=scope,
        arguments=exact,
        use=approval.use,
        effect=question.effect,
        directory=question.workdir,
        stakes=tuple(sorted(str(rule) for rule in question.stakes)),
        asked=now,
        expires=now + question.expires_seconds * 1000,
        acts=question.acts,
        why=question.why,
        deletes=question.deletes,
        flow=approval.flow,
        unmet=question.unmet,
    )


def _same(db: sqlite3.Connection, row: sqlite3.Row, asked: ApprovalRequest, question: Question) -> StoredRequest | None:
    """Return a stored request if it is for this question. The manifest, not the file, states who must agree."""
    kept = _sound(db, row, asked.asked)
    if kept is None or kept.request.subject != asked.subject or kept.request.asked < int(question.since * 1000):
        return None
    return replace(kept, quorum=question.quorum, keys=question.keys, names=question.names)


def _found(db: sqlite3.Connection, id: str, now: int) -> StoredRequest:  # noqa: A002
    for row in _rows(db, _FIND, id):
        kept = _sound(db, row, now)
        if kept is None:
            raise CannotAnswer(f"{id} was changed after it was asked, and cannot be answered")
        return kept
    raise CannotAnswer(f"there is no request `{id}` here; {_ELSEWHERE}")


def _unchanged(db: sqlite3.Connection, shown: ApprovalRequest, now: int) -> StoredRequest:
    """Read a request again that a person was shown, because the file may have changed while they thought about it."""
    kept = _found(db, shown.id, now)
    if kept.request.statement() != shown.statement():
        raise CannotAnswer(f"{shown.id} is no longer what was shown, and was not answered: look at it again")
    return kept


def _sound(db: sqlite3.Connection, row: sqlite3.Row, now: int) -> StoredRequest | None:
    """Return a stored request with its answers; None if it was changed after it was asked."""
    try:
        request = request_from(json.loads(row["body"]))
        # while it can be answered, the arguments must be there to be shown
        dropped = row["arguments"] == "" and request.expires <= now
        arguments = None if dropped else plain_data(row["arguments"].encode())
        keys, names = _stored_keys(row["keys"])
    except (ValueError, TypeError, AttributeError):
        return None
    # A person agrees to what is shown, so the arguments must match the digest that the approval is about.
    if request.id != row["id"] or (arguments is not None and data_digest(arguments) != request.arguments):
        return None
    given = [Yes(signer, bool(narrow), signature) for signer, narrow, signature in _rows(db, _ANSWERS, request.id)]
    return StoredRequest(request, arguments, row["quorum"], keys, tuple(given), row["denied"], row["used"], names)


def _stored_keys(text: str | None) -> tuple[tuple[str, ...] | None, dict[str, str]]:
    """The keys that may sign, and the names of their owners. Requests of earlier versions have keys without names."""
    if text is None:
        return None, {}
    pairs = [[one, ""] if isinstance(one, str) else one for one in json.loads(text)]
    return tuple(key for key, _ in pairs), {key: name for key, name in pairs if name}


def _check_key(kept: StoredRequest, key: SigningKey | None) -> None:
    if kept.keys is None:
        if kept.quorum > 1:
            text = f"{kept.quorum} people must agree, but the manifest lists no keys to tell them apart"
            raise CannotAnswer(f"{text}: add them under `approvals.keys`")
        return
    if key is None:
        raise CannotAnswer(
            f"{kept.request.id} wants {kept.quorum} of {len(kept.keys)} signatures: sign with `--key FILE`"
        )
    if key_bytes(key.public) not in {key_bytes(listed) for listed in kept.keys}:
        raise CannotAnswer(f"{key.public} is not among the manifest's `approvals.keys`")


def _rows(db: sqlite3.Connection, query: str, *values: object) -> list[Any]:
    cursor = db.execute(query, values)
    cursor.row_factory = sqlite3.Row
    return cursor.fetchall()


def _number(db: sqlite3.Connection, query: str, *values: object) -> int:
    number: int = db.execute(query, values).fetchone()[0]
    return number


Announce = Callable[[Question, StoredRequest, str], None]  # with the command that approves the request

_T = TypeVar("_T")


class WaitingApprover:
    """Waits until a request is approved, denied or expired. `announce` is called once for each request."""

    verifies = True

    def __init__(
        self, store: SqliteApprovals, announce: Announce | None = None, interval: float = LOOK_SECONDS
    ) -> None:
        self._store = store
        self._announce = announce
        self._interval = interval

    def load_code(self) -> None:
        self._store.load_code()

    def close(self) -> None:
        self._store.close()

    async def ask(self, question: Question) -> Answered:
        """Wait for the answer and return it; `expired` if there is none in time."""
        waited_for = ""
        while True:
            answered = await _with_time(self._store.ask(question))
            if answered.answer in ("approved", "denied") or not answered.request:
                return answered
            if answered.request == waited_for:  # the request was answered, but not for this call
                await asyncio.sleep(self._interval)
            elif self._announce is not None:
                kept = await _with_time(self._store.find(answered.request))
                self._announce(question, kept, answered.fix)
            waited_for = answered.request
            try:
                kept, state = await self._answer(waited_for)
            except CannotAnswer as gone:
                return Answered("absent", (), waited_for, str(gone))
            if state == "expired":
                note = f"request {waited_for} expired at {time_text(kept.request.expires)}"
                return Answered("expired", (), waited_for, note)

    async def _answer(self, request: str) -> tuple[StoredRequest, State]:
        """Wait until a request is no longer waiting, and return it with its state."""
        while True:
            kept = await _with_time(self._store.find(request))
            state = kept.state(self._store.now())
            if state != "waiting":
                return kept, state
            await asyncio.sleep(self._interval)


async def _with_time(work: Awaitable[_T]) -> _T:
    """Use the store with its own time limit: the deadline of the call is paused while a person is asked."""
    before = CURRENT.set(None)
    try:
        return await work
    finally:
        CURRENT.reset(before)
