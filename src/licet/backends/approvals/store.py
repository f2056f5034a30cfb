"""Stores requests for approval and their answers in one SQLite file, so that both survive the process that asked.

`SqliteApprovals` is the approver of a gate. It does not ask a person and wait: it stores a request, and the repeated
call finds the answer. Approvers answer with `licet approvals`, which uses the second half of the same class. Finding an
approval and using it is one transaction, so an approval for one call serves one call, in any number of processes.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from licet.backends.approvals.requests import (
    AT_TERMINAL,
    SESSION_ENDED,
    ApprovalStore,
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
from licet.backends.limits import FINISHED_MS, MOST_EXPIRED, MOST_UNANSWERED
from licet.backends.secrets import SigningKey
from licet.backends.sqlite import Format, SqliteFile
from licet.core.decision.approval import UNSIGNED, ApprovalRequest, Yes, request_from
from licet.core.policy.terms import Approvals
from licet.declare.plain_json import plain_json
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


class SqliteApprovals(ApprovalStore):
    """A durable approver. `options` are the options that `licet approvals` needs to find this file."""

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time, *, options: str = ""
    ) -> None:
        super().__init__(clock, options=options)
        self._file = SqliteFile(path, _FORMAT, "FULL")

    # For gates -------------------------------------------------------------------------------------------------------

    async def ask(self, question: Question) -> Answered:
        """Return the answer to an earlier request for the same call, or store a new request."""
        shown = plain_json(question.arguments)
        if (refused := too_long(shown)) is not None:
            return refused
        # The clock is read inside the transaction: the wait for another writer may have been long.
        return await self._file.write(lambda db: self._settle(db, request_of(question, self.now()), question, shown))

    def _settle(self, db: sqlite3.Connection, asked: ApprovalRequest, question: Question, shown: bytes) -> Answered:
        subject, now = asked.subject, asked.asked
        rows = _rows(db, _SAME, subject, now)
        same = [kept for row in rows if (kept := for_question(_sound(db, row, now), asked, question)) is not None]
        judged = self.judge(same, asked, question)
        if judged.step == "use":
            db.execute(_USE, (judged.answered.request,))
        if judged.step != "open":
            return judged.answered
        db.execute(_TELL, (subject, now))
        db.execute(_FORGET_ANSWERS, (now - FINISHED_MS,))
        db.execute(_FORGET, (now - FINISHED_MS,))
        db.execute(_DROP, (now,))
        db.execute(_FORGET_MORE, (asked.agent, asked.session, now))
        if _number(db, _WAITING, asked.agent, asked.session, now) >= MOST_UNANSWERED:
            return too_many(judged)
        keys = keys_text(question.keys, question.names)
        place = asked.id, subject, asked.agent, asked.session, asked.tool
        db.execute(_KEEP, (*place, asked.text(), shown.decode(), question.quorum, keys, now, asked.expires))
        return self.opened(judged, asked, question)

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
        keys = keys_text(terms.keys, terms.names)

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
        yes = self.agreement(shown, key, only_these_arguments=only_these_arguments)

        def agree(db: sqlite3.Connection) -> StoredRequest:
            self.check_open(_unchanged(db, request, self.now()))
            db.execute(_AGREE, (request.id, yes.by, yes.only_these_arguments, yes.signature, self.now()))
            return _unchanged(db, request, self.now())

        return await self._file.write(agree)

    async def deny(self, shown: StoredRequest) -> StoredRequest:
        """Deny a request, also an approved one that can still be used. One denial is enough."""
        request = shown.request

        def refuse(db: sqlite3.Connection) -> StoredRequest:
            self.check_open(_unchanged(db, request, self.now()))
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


def _found(db: sqlite3.Connection, id: str, now: int) -> StoredRequest:  # noqa: A002
    return found_one(id, [_sound(db, row, now) for row in _rows(db, _FIND, id)])


def _unchanged(db: sqlite3.Connection, shown: ApprovalRequest, now: int) -> StoredRequest:
    return unchanged(_found(db, shown.id, now), shown)


def _sound(db: sqlite3.Connection, row: sqlite3.Row, now: int) -> StoredRequest | None:
    """Return a stored request with its answers; None if it was changed after it was asked."""
    try:
        request = request_from(json.loads(row["body"]))
        arguments = shown_arguments(request, row["arguments"], now)
        keys, names = stored_keys(row["keys"])
    except (ValueError, TypeError, AttributeError):
        return None
    if request.id != row["id"]:
        return None
    given = [Yes(signer, bool(narrow), signature) for signer, narrow, signature in _rows(db, _ANSWERS, request.id)]
    return StoredRequest(request, arguments, row["quorum"], keys, tuple(given), row["denied"], row["used"], names)


def _rows(db: sqlite3.Connection, query: str, *values: object) -> list[Any]:
    cursor = db.execute(query, values)
    cursor.row_factory = sqlite3.Row
    return cursor.fetchall()


def _number(db: sqlite3.Connection, query: str, *values: object) -> int:
    number: int = db.execute(query, values).fetchone()[0]
    return number
