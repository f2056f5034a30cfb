"""Approvals in every order of asking, answering, waiting and restarting, compared with a model of a few lines."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import LONG
from guard.questions import question
from licet.backends.approvals.requests import ApprovalStore, CannotAnswer, StoredRequest
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_approvals import PostgresApprovals
from licet.backends.secrets import SigningKey, make_key
from licet.guard.ports import Answered, Question
from postgres_server import fresh, server

SECONDS = 300
SCOPES = st.sampled_from(["call", "session", "use"])
SESSIONS = st.sampled_from(["s-1", "s-2"])
TEXTS = st.sampled_from(["a", "b"])
QUORUMS = st.sampled_from([0, 1, 2])  # none signs, one of two keys, both of them


@contextmanager
def keys() -> Iterator[list[SigningKey]]:
    with tempfile.TemporaryDirectory() as folder:
        yield [make_key(Path(folder) / str(number)) for number in range(3)]


with keys() as made:
    KEYS = made  # the third is in no manifest


@dataclass
class Modelled:
    """The state of a request in the model."""

    subject: tuple[Any, ...]
    text: str
    quorum: int
    expires: int
    given: dict[str, bool] = field(default_factory=dict)  # who agreed, and whether only to these arguments
    denied: bool = False
    used: int = 0
    told: bool = False

    def holds_for(self, text: str) -> bool:
        counted = [by for by, narrow in self.given.items() if not narrow or text == self.text]
        return not self.denied and len(counted) >= max(self.quorum, 1)

    @property
    def over(self) -> bool:
        return self.denied or bool(self.used and self.subject[0] != "session")


class Approvals(RuleBasedStateMachine):
    """Two processes that use one file, some people with and without keys, and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.time = 1_000_000
        self.stores = [self.opened(), self.opened()]
        self.known: dict[str, Modelled] = {}

    def opened(self) -> ApprovalStore:
        return SqliteApprovals(Path(self.folder.name) / "approvals.sqlite", lambda: float(self.time))

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()

    def question(self, scope: str, session: str, text: str, quorum: int) -> Question:
        listed = tuple(key.public for key in KEYS[:2]) if quorum else None
        asked = {"quorum": max(quorum, 1), "keys": listed, "expires_seconds": SECONDS}
        # As if the digest of a manifest had changed.
        return question(scope, {"text": text}, session=session, manifest=f"sha256:{quorum}", **asked)

    @rule(store=st.integers(0, 1), scope=SCOPES, session=SESSIONS, text=TEXTS, quorum=QUORUMS)
    def ask(self, store: int, scope: str, session: str, text: str, quorum: int) -> None:
        answered = asyncio.run(self.stores[store].ask(self.question(scope, session, text, quorum)))
        subject = (scope, session, quorum) if scope == "session" else (scope, session, quorum, text)
        same = {name: one for name, one in self.known.items() if one.subject == subject}
        live = {name: one for name, one in same.items() if self.time < one.expires}
        usable = [name for name, one in live.items() if not one.over and one.holds_for(text)]
        if usable:
            assert (answered.answer, answered.request) == ("approved", usable[0])
            self.known[usable[0]].used += 1
            return
        denied = [name for name, one in live.items() if one.denied]
        if denied:
            assert (answered.answer, answered.request) == ("denied", denied[0])
            return
        waiting = [name for name, one in live.items() if not one.over and not one.holds_for(one.text)]
        if waiting:
            assert (answered.answer, answered.request) == ("absent", waiting[0])
            return
        late = [one for name, one in same.items() if name not in live and not one.told]
        assert answered.answer == ("expired" if any(not (one.used or one.denied) for one in late) else "absent")
        for one in late:
            one.told = True
        self.opened_anew(answered, subject, text, quorum)

    def opened_anew(self, answered: Answered, subject: tuple[Any, ...], text: str, quorum: int) -> None:
        assert answered.request not in self.known
        self.known[answered.request] = Modelled(subject, text, quorum, self.time + SECONDS)

    def shown(self, name: str) -> StoredRequest:
        return asyncio.run(self.stores[0].find(name))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), store=st.integers(0, 1), who=st.sampled_from([None, 0, 1, 2]), narrow=st.booleans())
    def approve(self, data: st.DataObject, store: int, who: int | None, narrow: bool) -> None:
        name = data.draw(st.sampled_from(list(self.known)))
        one = self.known[name]
        allowed = not one.over and self.time < one.expires and (not one.quorum or who in (0, 1))
        key = None if who is None else KEYS[who]
        try:
            asyncio.run(self.stores[store].approve(self.shown(name), key, only_these_arguments=narrow))
        except CannotAnswer:
            assert not allowed
        else:
            assert allowed
            one.given["command" if key is None else key.public] = narrow and one.subject[0] == "session"

    @precondition(lambda self: self.known)
    @rule(data=st.data(), store=st.integers(0, 1))
    def deny(self, data: st.DataObject, store: int) -> None:
        name = data.draw(st.sampled_from(list(self.known)))
        one = self.known[name]
        allowed = not one.over and self.time < one.expires
        try:
            asyncio.run(self.stores[store].deny(self.shown(name)))
        except CannotAnswer:
            assert not allowed
        else:
            assert allowed
            one.denied = True

    @rule(seconds=st.sampled_from([1, SECONDS - 1, SECONDS]))
    def wait(self, seconds: int) -> None:
        self.time += seconds

    @rule(store=st.integers(0, 1))
    def restart(self, store: int) -> None:
        self.stores[store].close()
        self.stores[store] = self.opened()

    @invariant()
    def the_file_says_what_happened(self) -> None:
        kept = {one.request.id: (one.used, bool(one.denied)) for one in asyncio.run(self.stores[0].list())}
        assert kept == {name: (one.used, one.denied) for name, one in self.known.items()}

    @invariant()
    def a_yes_to_one_call_serves_at_most_one(self) -> None:
        assert all(one.used <= 1 for one in self.known.values() if one.subject[0] != "session")


Approvals.TestCase.settings = settings(
    max_examples=settings().max_examples // (2 if LONG else 4), stateful_step_count=40
)
TestApprovals = Approvals.TestCase


class ApprovalsOfNodes(Approvals):
    """The same for two nodes that use one database."""

    url = ""

    def __init__(self) -> None:
        if not self.url:
            type(self).url = fresh()
        asyncio.run(server().sql(_EMPTY, database=urlsplit(self.url).path.removeprefix("/")))
        self.database, self.nodes = Database(self.url), [Node(key) for key in KEYS[:2]]
        super().__init__()

    def opened(self) -> ApprovalStore:
        return PostgresApprovals(self.database, self.nodes.pop(0), self.enrolled, lambda: float(self.time))

    async def enrolled(self, name: str) -> bool:
        return name in {key.public for key in KEYS[:2]}

    def teardown(self) -> None:
        super().teardown()
        self.database.close()

    @rule(store=st.integers(0, 1))
    def restart(self, store: int) -> None:
        self.database.close()


_EMPTY = "TRUNCATE licet.approval_requests, licet.approval_shown, licet.approval_answers, licet.approval_uses"
ApprovalsOfNodes.TestCase.settings = settings(
    max_examples=settings().max_examples // (10 if LONG else 5), stateful_step_count=30
)
TestApprovalsOfNodes = ApprovalsOfNodes.TestCase
