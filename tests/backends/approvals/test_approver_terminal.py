"""The approver at a terminal: only a line typed in time and after the question counts, one question at a time."""

import asyncio
import os
import pty
import threading
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from descriptors import left_open, open_files
from guard.questions import question
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.approvals.terminal import TerminalApprover
from licet.guard.ports import Answered, Question

PROMPT = b"[N]o "


class Terminal:
    """Both ends of a terminal: the one that the approver opens, and the one of the person."""

    def __init__(self) -> None:
        self.person, self._other = pty.openpty()
        tty.setraw(self._other)
        self.shown = b""

    def open(self) -> int:
        return os.dup(self._other)

    def wait_for(self, text: bytes, times: int = 1) -> None:
        while self.shown.count(text) < times:
            self.shown += os.read(self.person, 65536)

    def type(self, *lines: bytes) -> threading.Thread:
        """Answer one question after the other."""

        def work() -> None:
            for number, line in enumerate(lines, 1):
                self.wait_for(PROMPT, number)
                os.write(self.person, line)

        thread = threading.Thread(target=work, daemon=True)  # a missing question must not block the test
        thread.start()
        return thread

    def hang_up(self) -> None:
        os.close(self._other)
        os.close(self.person)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.hang_up()


def asked(approver: TerminalApprover, *questions: Question) -> list[Answered]:
    async def run() -> list[Any]:
        return list(await asyncio.gather(*map(approver.ask, questions)))

    return [one if isinstance(one, Answered) else Answered(one) for one in asyncio.run(run())]


YES, ONCE, NO = ("approved", False), ("approved", True), ("denied", False)
TYPED: list[tuple[bytes, str, tuple[str, bool]]] = [
    (b"y\n", "session", YES),
    (b" YES \n", "session", YES),
    (b"o\n", "session", ONCE),
    (b"n\n", "session", NO),
    (b"\n", "session", NO),
    (b"yy\n", "session", NO),
    (b"yes please\n", "session", NO),
    (b"\xff\xfe\n", "session", NO),
    (b"y\x1b[D\n", "session", NO),
    (b"y\n", "call", YES),
    (b"o\n", "call", NO),
    (b"\n", "use", NO),
]


@pytest.mark.parametrize(("typed", "scope", "expected"), TYPED)
def test_only_a_plain_yes_is_one(terminal: Terminal, typed: bytes, scope: str, expected: tuple[str, bool]) -> None:
    person = terminal.type(typed)
    [answered] = asked(TerminalApprover(terminal=terminal.open), question(scope))
    person.join(60)
    assert (answered.answer, answered.asks_again) == expected
    assert answered.by == ("terminal",)


def test_input_typed_before_the_question_does_not_answer_it(terminal: Terminal) -> None:
    os.write(terminal.person, b"y\ny\ny\n")
    person = terminal.type(b"n\n")
    [answered] = asked(TerminalApprover(terminal=terminal.open), question())
    person.join(60)
    assert answered.answer == "denied"


def test_an_answer_may_come_in_pieces(terminal: Terminal) -> None:
    def work() -> None:
        terminal.wait_for(PROMPT)
        for piece in (b"y", b"e", b"s", b"\n"):
            os.write(terminal.person, piece)

    person = threading.Thread(target=work, daemon=True)
    person.start()
    [answered] = asked(TerminalApprover(terminal=terminal.open), question())
    person.join(60)
    assert answered.answer == "approved"


def test_questions_come_one_after_the_other(terminal: Terminal) -> None:
    person = terminal.type(b"y\n", b"n\n", b"y\n")
    several = [question(arguments={"number": number}) for number in range(3)]
    answers = asked(TerminalApprover(terminal=terminal.open), *several)
    person.join(60)
    assert [one.answer for one in answers] == ["approved", "denied", "approved"]


def test_no_answer_in_time_is_expired_and_leaves_nothing_open(terminal: Terminal) -> None:
    before = open_files() if os.path.isdir("/proc/self/fd") else None
    approver = TerminalApprover(terminal=terminal.open)
    [answered] = asked(approver, question(expires_seconds=0))
    assert answered.answer == "expired"
    person = terminal.type(b"", b"y\n")  # the first was not answered
    assert asked(approver, question())[0].answer == "approved"  # in another loop
    person.join(60)
    if before is not None:
        assert left_open(before) == set()


def test_a_question_that_waits_for_its_turn_expires_as_well(terminal: Terminal) -> None:
    person = terminal.type(b"y\n")
    patient, hasty = question(), question(arguments={"to": "bob"}, expires_seconds=0)
    answers = asked(TerminalApprover(terminal=terminal.open), patient, hasty)
    person.join(60)
    assert [one.answer for one in answers] == ["approved", "expired"]
    assert b"bob" not in terminal.shown


def test_the_terminal_says_when_the_answer_is_no_longer_needed(terminal: Terminal) -> None:
    async def run() -> None:
        task = asyncio.create_task(TerminalApprover(terminal=terminal.open).ask(question()))
        await asyncio.to_thread(terminal.wait_for, PROMPT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    os.write(terminal._other, b"(that is all)")
    terminal.wait_for(b"(that is all)")
    assert b"the call was refused" in terminal.shown


def test_a_terminal_that_is_gone_answers_nothing(terminal: Terminal) -> None:
    ours, theirs = pty.openpty()
    os.close(ours)
    [answered] = asked(TerminalApprover(terminal=lambda: theirs), question())
    assert answered.answer == "absent"


def no_terminal() -> int:
    raise OSError("there is none")


def test_without_a_terminal_the_approver_behind_gets_the_question(tmp_path: Path) -> None:
    store = SqliteApprovals(tmp_path / "approvals.sqlite")
    [answered] = asked(TerminalApprover(store, no_terminal), question())
    assert asyncio.run(store.find(answered.request)).request.tool == "pay"
    assert asked(TerminalApprover(None, no_terminal), question()) == [Answered("absent")]


def test_questions_that_need_signatures_go_to_the_approver_behind(terminal: Terminal, tmp_path: Path) -> None:
    store = SqliteApprovals(tmp_path / "approvals.sqlite")
    signed = question(quorum=2, keys=("ed25519:" + "B" * 43,))
    approver = TerminalApprover(store, terminal.open)
    assert approver.verifies
    [answered] = asked(approver, signed)
    assert (answered.answer, bool(answered.request)) == ("absent", True)
    alone = TerminalApprover(terminal=terminal.open)
    assert not alone.verifies
    assert asked(alone, signed) == [Answered("absent")]
    assert terminal.shown == b""


def test_a_yes_for_the_session_is_asked_once_in_all_processes_of_it(terminal: Terminal, tmp_path: Path) -> None:
    """Each approver here is that of another process: what one of them remembers is in the store."""

    def of_a_process() -> TerminalApprover:
        return TerminalApprover(SqliteApprovals(tmp_path / "approvals.sqlite"), terminal.open)

    person = terminal.type(b"o\n", b"y\n", b"n\n")
    for expected in (ONCE, YES):  # one call alone is not remembered
        [answered] = asked(of_a_process(), question("session"))
        assert (answered.answer, answered.asks_again) == expected
    [remembered] = asked(of_a_process(), question("session", {"other": 1}))
    assert (remembered.answer, remembered.by) == ("approved", ("command",))
    [other] = asked(of_a_process(), question("session", session="other"))
    assert other.answer == "denied"
    person.join(60)


def test_the_question_stands_below_what_it_is_about(terminal: Terminal) -> None:
    person = terminal.type(b"n\n")
    asked(TerminalApprover(terminal=terminal.open), question(arguments={str(n): n for n in range(40)}))
    person.join(60)
    lines = [line for line in terminal.shown.decode().splitlines() if line.strip()]
    assert " asks: " in lines[-2]
    assert "agree?" in lines[-1]


@pytest.mark.parametrize(
    ("is_stored", "scope", "ends"),
    [(False, "session", True), (True, "session", False), (False, "call", False), (True, "call", False)],
)
def test_a_question_says_until_when_a_yes_holds(
    terminal: Terminal, tmp_path: Path, is_stored: bool, scope: str, ends: bool
) -> None:
    store = SqliteApprovals(tmp_path / "approvals.sqlite") if is_stored else None
    person = terminal.type(b"n\n")
    asked(TerminalApprover(store, terminal.open), question(scope))
    person.join(60)
    assert (b"until this command ends" in terminal.shown) == ends
    assert b"until   " in terminal.shown
