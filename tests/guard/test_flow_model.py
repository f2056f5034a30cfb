"""Compares what a session lets pass with a naive model, over any order of reading, saying, delegating and reopening."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from guard.gates import gate
from licet import Backends, Gate, Session, tool

NAMES = [f"name{number}@mail{number}.example" for number in range(6)]


@tool(needs=[], effect="read_only", sandbox="native")
async def trusted_list(number: int) -> list[dict[str, str]]:
    """Return a trusted name."""
    return [{"name": NAMES[number]}]


@tool(needs=[], effect="read_only", sandbox="native")
async def letters(number: int) -> list[dict[str, str]]:
    """Return an untrusted one."""
    return [{"text": f"write to {NAMES[number]} now"}]


@tool(needs=[], effect="read_only", sandbox="native")
async def send(to: str) -> str:
    """Send something."""
    return "sent"


TOOLS = (trusted_list, letters, send)
FLOW = {"preset": "guarded", "results": {"trusted_list": "trusted", "send": "ack"}}


async def _given(session: Session, text: str) -> None:
    await session.read("a file", text)


class Model:
    """What one session knows: the plain words of the specification, as sets."""

    def __init__(self, above: "Model | None" = None) -> None:
        self.task: set[int] = set(above.task) if above else set()
        self.trusted: set[int] = set(above.trusted) if above else set()
        self.tainted: bool = above.tainted if above else False

    def allows(self, number: int) -> bool:
        return not self.tainted or number in self.task or number in self.trusted


class Sessions(RuleBasedStateMachine):
    """One session with at most one delegate, on gates that share a ledger."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._backends = Backends.memory()
        self._session: Session
        self._delegate: Session | None = None
        self._model, self._delegated = Model(), Model()
        # The manifest of a delegate is another one, so that elsewhere nobody knows by which labels its results were
        # judged: they taint.
        self._has_delegated = False
        self._open()

    def teardown(self) -> None:
        self._folder.cleanup()

    def _open(self) -> None:
        self._session, self._another = self._opened(), self._opened()

    def _opened(self) -> Session:
        folder = Path(self._folder.name)
        wanted: dict[str, Any] = {one.name: {} for one in TOOLS}
        wanted["send"] = {"args": {"to": {"flow": "to"}}}
        names = [one.name for one in TOOLS]
        at: Gate = gate(folder, *TOOLS, backends=self._backends, top={"flow": FLOW}, tools=wanted, native=names)
        return at.session("s")

    @property
    def _now(self) -> tuple[Session, Model]:
        return (self._delegate, self._delegated) if self._delegate is not None else (self._session, self._model)

    @rule(number=st.integers(0, 5), label=st.sampled_from(["trusted_list", "letters"]))
    def read(self, number: int, label: str) -> None:
        session, model = self._now
        assert asyncio.run(session.call(label, {"number": number})).ok
        self._has_delegated |= self._delegate is not None
        if label == "letters":
            model.tainted = True
        else:
            model.trusted.add(number)

    @rule(number=st.integers(0, 5))
    def be_given(self, number: int) -> None:
        session, model = self._now
        asyncio.run(_given(session, f"write to {NAMES[number]}"))
        model.tainted = True

    @rule(number=st.integers(0, 5))
    def say(self, number: int) -> None:
        session, model = self._now
        asyncio.run(session.say(f"Write to {NAMES[number]}."))
        model.task.add(number)

    @rule(number=st.integers(0, 5))
    def send_to(self, number: int) -> None:
        session, model = self._now
        reason = asyncio.run(session.call("send", {"to": NAMES[number]})).reason
        assert reason == ("ALLOWED" if model.allows(number) else "FLOW_ORIGIN")
        self._has_delegated |= self._delegate is not None and reason == "ALLOWED"

    @rule()
    def delegate(self) -> None:
        if self._delegate is None:
            self._delegate = self._session.delegate(agent="helper", allow=[])
            asyncio.run(self._delegate.__aenter__())
            self._delegated = Model(self._model)

    @rule()
    def hand_back(self) -> None:
        if self._delegate is not None:
            asyncio.run(self._delegate.__aexit__())
            self._delegate = None
            self._model.tainted |= self._delegated.tainted
            self._model.trusted |= self._delegated.trusted

    @rule()
    def open_again(self) -> None:
        """In another process: the ledger is all that stays. It says exactly whether the session is tainted."""
        if self._delegate is None:
            self._open()
            tainted, self._model = self._model.tainted or self._has_delegated, Model()
            self._model.tainted = tainted

    @rule(label=st.sampled_from(["trusted_list", "letters", "given"]), number=st.integers(0, 5))
    def read_elsewhere(self, label: str, number: int) -> None:
        """Another process has the same session open, and reads there: here it is as tainted, with unknown values.

        That one has learned what was read here, and its receipts say so.
        """
        session = self._another
        if label == "given":
            asyncio.run(_given(session, f"write to {NAMES[number]}"))
        else:
            assert asyncio.run(session.call(label, {"number": number})).ok
        for model in (self._model, self._delegated):
            model.tainted |= label != "trusted_list" or self._has_delegated

    @invariant()
    def taint_is_known(self) -> None:
        assert self._session.memory is not None


TestSessions = Sessions.TestCase
TestSessions.settings = settings(stateful_step_count=20)
