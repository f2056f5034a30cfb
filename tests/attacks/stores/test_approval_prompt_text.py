"""Arguments that lie at the prompt: they clear the screen, turn text around, hide, or imitate what licet writes."""

import asyncio
import os
import pty
import re
import threading
import tty
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard.questions import question
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.approvals.terminal import TerminalApprover
from licet.cli.app import licet

LIES: dict[str, str] = {
    "clears the screen": "\x1b[2J\x1b[Halice",
    "goes back to the beginning of the line": "mallory\rargument  alice",
    "erases what was written": "mallory\x08\x08\x08\x08\x08\x08\x08alice",
    "turns text around": "\u202eecila\u202c",
    "isolates a direction": "\u2066ecila\u2069",
    "is invisible": "ali\u200bce\u2060\ufeff\u00ad",
    "is a tag": "alice\U000e0041\U000e0042",
    "is ignored by default": "ali\u034f\u115f\u17b4\u180b\u3164\ufe0f\uffa0\U000e0100ce",
    "is a blank": "ali\u2800\U0001d159ce",
    "fills or joins": "ali\u2d7f\U00016fe4\U0001107fce",
    "is read from the right": "pay \u05d0 1 \u05d1 2",
    "is Arabic": "\u0627 1 \u0628 \u0661\u0662",
    "is an old script that is read from the right": "\U00010a00\U0001e900",
    "begins a new line": 'alice"\n  tool          harmless\nagree? ',
    "begins a new line of Unicode": "alice\u2028  tool          harmless\u0085x",
    "sets the title of the window": "\x1b]0;alice\x07\x9b2J",
    "is no text at all": "alice\x00\x7f",
}
# What acts on a terminal, is not seen on one, or moves what is beside it; a line feed is licet's own.
ACTING = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff"
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u2d7f\u3164\ufe00-\ufe0f\uffa0\U0001107f\U00016fe4\U0001d159"
    r"\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]"
)


def lying(text: str) -> dict[str, Any]:
    return {"to": text, text: [{"deep": text}]}


@pytest.mark.parametrize("text", LIES.values(), ids=LIES)
def test_printed_as_they_are_they_would_act(text: str) -> None:
    assert ACTING.search(text) or "\n" in text


def prompted(asked: dict[str, Any], typed: bytes) -> tuple[str, str]:
    """What is shown at a terminal, and the answer to it."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # nothing is added to what is written
    shown = b""

    def person() -> None:
        nonlocal shown
        while not re.search(rb"\nagree\? \[y\]es, .*\[N\]o $", shown):
            shown += os.read(ours, 65536)
        os.write(ours, typed)

    async def scene() -> str:
        approver = TerminalApprover(terminal=lambda: os.dup(theirs))
        answered = await approver.ask(question("session", asked))
        return answered if isinstance(answered, str) else answered.answer

    thread = threading.Thread(target=person, daemon=True)  # a question that never comes is no reason to hang
    thread.start()
    try:
        answer = asyncio.run(scene())
        thread.join(60)
        return answer, shown.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def check(shown: str, text: str) -> None:
    """Nothing acts, nothing is left out, and no line is the argument's own."""
    assert ACTING.search(shown) is None
    lines = [line for line in shown.splitlines() if line.startswith("  argument ")]
    assert len(lines) == 2
    assert not any(line.startswith("  tool          harmless") for line in shown.splitlines())
    for char in text:
        spelled = char if char.isascii() and char.isprintable() else f"{ord(char):04x}"
        short = {"\n": "\\n", "\r": "\\r", "\b": "\\b"}.get(char, spelled)
        assert all(short in line or spelled in line for line in lines)


@pytest.mark.parametrize("text", LIES.values(), ids=LIES)
def test_at_the_terminal_they_are_spelled_out(text: str) -> None:
    answer, shown = prompted(lying(text), b"n\n")
    assert answer == "denied"
    check(shown, text)


@pytest.mark.parametrize("text", LIES.values(), ids=LIES)
@pytest.mark.parametrize("words", [["show"], ["approve", "--yes"]], ids=str)
def test_in_a_command_they_are_spelled_out(tmp_path: Path, text: str, words: list[str]) -> None:
    store = SqliteApprovals(tmp_path / "approvals.sqlite")
    request = asyncio.run(store.ask(question("session", lying(text)))).request
    store.close()
    result = CliRunner().invoke(licet, ["approvals", *words, request, "--state", str(tmp_path)])
    assert result.exit_code == 0
    check(result.stdout, text)


def test_what_decides_stands_below_the_arguments_and_names_tool_effect_hosts_and_time(tmp_path: Path) -> None:
    _, shown = prompted({"to": "x " * 20_000}, b"y\n")
    below = shown[shown.rindex("x x") :]
    for line in ("hosts         network:https:post@bank.example", "class         write_limited", "tool          pay"):
        assert f"\n  {line}\n" in below
    assert "agent         clerk, session s-1" in below
    assert "holds         for every call of it in this session, with any arguments" in below


def test_arguments_that_nobody_could_read_are_not_asked_about(tmp_path: Path) -> None:
    asked = question("session", {"to": "x" * 70_000})
    ours, theirs = pty.openpty()
    store = SqliteApprovals(tmp_path / "approvals.sqlite")
    try:
        for approver in (TerminalApprover(terminal=lambda: os.dup(theirs)), store):
            answered = asyncio.run(approver.ask(asked))
            assert not isinstance(answered, str)
            assert answered.answer == "absent"
            assert "nobody could read them" in answered.note
    finally:
        os.close(ours)
        os.close(theirs)
    assert asyncio.run(store.list()) == []
