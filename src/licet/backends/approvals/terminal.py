"""Approver at the terminal of this process: shows the exact call and what it could reach, and waits for one line.

A yes for the session is stored, if a store is behind this one: other processes of the session then need not ask.

Input that was typed before the question is discarded. Signatures are not given here: a question that needs them goes to
the approver behind this one, and so does every question if there is no terminal.

`MemoryApprover` is the memory twin, for tests.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from weakref import WeakKeyDictionary

from licet.backends.approvals.requests import ApprovalStore, CannotAnswer, request_of
from licet.backends.limits import LONGEST_ANSWER, MOST_ASKED, MOST_SHOWN_BYTES
from licet.core.algebra.scope import visible
from licet.core.decision.approval import approval_lines
from licet.declare.plain_json import plain_data, plain_json
from licet.guard.ports import Answer, Answered, Approver, Question, Unavailable

_BY = ("terminal",)


def open_terminal() -> int:
    """Open the terminal of this process; raises `OSError` if there is none."""
    return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)


class TerminalApprover:
    """Asks at the terminal, one question at a time."""

    def __init__(
        self,
        behind: Approver | None = None,
        terminal: Callable[[], int] = open_terminal,
        held: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._behind = behind
        self._terminal, self._held = terminal, held
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @property
    def verifies(self) -> bool:
        """Whether the approver behind this one checks signatures."""
        return getattr(self._behind, "verifies", False)

    def load_code(self) -> None:
        load = getattr(self._behind, "load_code", None)
        if load is not None:
            load()

    async def ask(self, question: Question) -> Answer | Answered:
        """Return the answer that was typed; `expired` if none is typed in time."""
        if question.signed or await self._is_answered(question):
            return await self._pass_on(question)
        try:
            terminal = self._terminal()
        except OSError:
            return await self._pass_on(question)
        try:
            if len(plain_json(question.arguments)) > MOST_SHOWN_BYTES:
                return Answered(
                    "absent", note=f"its arguments are longer than {MOST_SHOWN_BYTES} bytes: nobody could read them"
                )
            turn = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
            async with asyncio.timeout(question.expires_seconds), turn:  # waiting for another question counts too
                with self._held():
                    answered = await _ask(terminal, question, is_kept=self._keeps(question))
        except TimeoutError:
            return Answered("expired")
        except OSError:  # the terminal is gone, so there is no answer
            return Answered("absent")
        finally:
            os.close(terminal)
        await self._keep(question, answered)
        return answered

    async def _is_answered(self, question: Question) -> bool:
        """Whether somebody has agreed for the whole session before, perhaps in another process."""
        store = self._behind
        return isinstance(store, ApprovalStore) and _is_lasting(question) and await store.has_answer(question)

    def _keeps(self, question: Question) -> bool:
        """Whether a yes is stored, and so holds for other processes of the session until it expires."""
        return isinstance(self._behind, ApprovalStore) and _is_lasting(question)

    async def _keep(self, question: Question, answered: Answered) -> None:
        """Store a yes for the whole session. If that fails, the yes still counts here, and is asked for again."""
        store = self._behind
        if answered.answer != "approved" or answered.asks_again or not _is_lasting(question):
            return
        if isinstance(store, ApprovalStore):
            with suppress(Unavailable, CannotAnswer):
                opened = await store.ask(question)
                if opened.answer != "approved" and opened.request:
                    await store.approve(await store.find(opened.request))

    async def _pass_on(self, question: Question) -> Answer | Answered:
        return await self._behind.ask(question) if self._behind is not None else "absent"


def _is_lasting(question: Question) -> bool:
    return not (question.approval.use or question.approval.arguments)


async def _ask(terminal: int, question: Question, *, is_kept: bool) -> Answered:
    import termios

    request = request_of(question, int(time.time() * 1000))
    lines = ["", *approval_lines(request, plain_data(plain_json(question.arguments)), is_kept=is_kept)]
    lines.append(f"`{visible(request.tool)}` asks: {visible(question.why)}")  # last: the lines above may be many
    lasting = request.scope == "session"
    choice = "[y]es, [o]nly this call, [N]o" if lasting else "[y]es, [N]o"
    _write(terminal, "\n".join([*lines, ""]))
    with suppress(termios.error):
        termios.tcflush(terminal, termios.TCIFLUSH)  # discard what was typed before the question was shown
    _write(terminal, f"agree? {choice} ")
    try:
        typed = await _line(terminal)
    except asyncio.CancelledError:  # the time is up, or the call was cancelled
        with suppress(OSError):
            _write(terminal, "\nnobody answered in time: the call was refused\n")
        raise
    match typed.strip().lower() if typed is not None else None:
        case None:
            return Answered("absent")
        case "y" | "yes":
            return Answered("approved", _BY)
        case "o" | "only" if lasting:
            return Answered("approved", _BY, asks_again=True)
        case _:
            return Answered("denied", _BY)


async def _line(terminal: int) -> str | None:
    """Read the next line; None if the terminal is gone."""
    loop, typed = asyncio.get_running_loop(), b""
    while b"\n" not in typed and len(typed) < LONGEST_ANSWER:
        ready = loop.create_future()
        loop.add_reader(terminal, lambda ready=ready: ready.done() or ready.set_result(None))  # type: ignore[misc]
        try:
            await ready
        finally:
            loop.remove_reader(terminal)
        piece = os.read(terminal, LONGEST_ANSWER)
        if not piece:
            return None
        typed += piece
    return typed.partition(b"\n")[0].decode(errors="replace")


def _write(terminal: int, text: str) -> None:
    data = text.encode(errors="backslashreplace")
    while data:
        data = data[os.write(terminal, data) :]


class MemoryApprover:
    """Answers with a function, and keeps the last questions. Without a function the answer is `absent`."""

    def __init__(self, answer: Callable[[Question], Answer] | None = None) -> None:
        self.asked: list[Question] = []
        self._answer = answer

    async def ask(self, question: Question) -> Answer:
        """Return the answer of the function."""
        self.asked.append(question)
        del self.asked[:-MOST_ASKED]
        return self._answer(question) if self._answer else "absent"
