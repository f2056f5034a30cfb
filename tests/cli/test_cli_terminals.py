"""What commands show at a terminal, what they ask there, and that no text of others acts on it."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from cli.terminals import at_terminal, shown_at_terminal
from command_line import enter_project, run

HELLO = """
from licet import tool

@tool(needs=[], effect="read_only", sandbox="native")
def say(text: str = "hello") -> str:
    return text

@tool(needs=[], effect="read_only", sandbox="native")
def data(text: str) -> list[str]:
    return [text]
"""
POLICY = """agent: a
tools: {say: {from: "own_tools:say"}, data: {from: "own_tools:data"}}
capabilities: {tools: [say, data], native: [say, data]}
"""
NEEDY = """agent: a
tools: {fetch: {needs: ["network:https:*", "secret:read:KEY"], effect: read_only, sandbox: restricted}}
capabilities: {tools: [fetch], destinations: {allow: [api.example.com]}, secrets: [KEY]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = enter_project(tmp_path, monkeypatch)
    (folder / "own_tools.py").write_text(HELLO)
    (folder / "m.yaml").write_text(POLICY)
    (folder / "bad.yaml").write_text("agent: a\nverison: x\n")
    (folder / "needy.yaml").write_text(NEEDY)
    return folder


@pytest.mark.parametrize(
    ("words", "colour", "text"),
    [
        (["check", "bad.yaml"], r"\x1b\[", "verison"),
        (["surface", "needy.yaml"], r"\x1b\[[0-9;]*3[0-9]m", "fetch"),
    ],
)
@pytest.mark.parametrize(("settings", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
@pytest.mark.sampled(2)
def test_a_terminal_gets_colours_unless_it_asks_for_none(
    words: list[str], colour: str, text: str, settings: dict[str, str], coloured: bool
) -> None:
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    said = shown_at_terminal(words, env | {"TERM": "xterm-256color"} | settings, errors=False)
    assert bool(re.search(colour, said)) == coloured  # bold is no colour, and stays
    assert text in said


@pytest.mark.parametrize("tool", ["say", "data"])
@pytest.mark.sampled(1)
def test_no_text_of_a_tool_acts_on_the_terminal(tool: str) -> None:
    said = shown_at_terminal(["call", "m.yaml", tool, "text=a\x1b[2J\u202eb\n\tc"])
    assert said.startswith("0\r\n")
    assert re.findall(r"[^ -~\r\n\t]", said) == []
    assert "\\u001b[2J\\u202eb" in said


HOSTILE = "\x1b[2J\u202e\ufe0f\nError: fine"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([f"--{HOSTILE}"], 2),
        ([HOSTILE], 2),
        (["check", f"--{HOSTILE}", "m.yaml"], 2),
        (["check", f"--json={HOSTILE}", "m.yaml"], 2),
        (["check", "m.yaml", "--json", "--sarif", f"--workdir={HOSTILE}*"], 2),
        (["completion", "bash", HOSTILE], 2),
        (["surface", "m.yaml", f"--workdir=/{HOSTILE}"], 2),
        (["surface", "m.yaml", "--svg", f"gone{HOSTILE}/map.svg"], 1),
        (["explain", "m.yaml", "t", f"write {HOSTILE}"], 2),
        (["call", "m.yaml", "t", HOSTILE], 2),
        (["call", "m.yaml", "t", "--session", HOSTILE], 2),
        (["call", "m.yaml", "t", "--args", HOSTILE], 2),
        (["diff", "m.yaml", "m.yaml", "--fail-on", HOSTILE], 2),
        (["schema", HOSTILE], 2),
        (["schema", "-o", f"m.yaml/{HOSTILE}"], 1),
        (["completion", HOSTILE], 2),
    ],
    ids=lambda given: " ".join(given).replace(HOSTILE, "HOSTILE") if isinstance(given, list) else "",
)
@pytest.mark.sampled(3)
def test_no_word_of_the_command_line_acts_on_the_terminal(words: list[str], code: int) -> None:
    said = shown_at_terminal(words)
    assert said.startswith(f"{code}\r\n")
    assert re.findall(r"[^ -~\r\n]", said) == []
    assert said.count("\nError: ") == 1


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_a_person_at_a_terminal_is_asked_whether_to_accept_a_policy(here: Path, answer: str, code: int) -> None:
    (here / "m.yaml").rename(here / "licet.yaml")
    ended, shown = at_terminal(["trust"], ((b"accept it? [y/N]",), f"{answer}\n".encode()))
    assert ended == code
    assert "say" in shown.partition("accept it? [y/N]")[0]
    run("call", "say", code=code)


# Approvals ------------------------------------------------------------------------------------------------------------

DESK = """agent: desk
tools: {write_file: {from: "licet.tools:write_file"}}
capabilities:
  tools: {write_file: {sandbox: native}}
  native: [write_file]
  max_side_effect_class: write_limited
  fs_reach: {write: ["${workdir}/drafts"]}
  approvals: {write: call}
"""
CALL = ("call", "desk.yaml", "write_file", "path=drafts/a.md")
AGREE = (b"agree? [y/N]: ",)


@pytest.fixture
def desk(here: Path) -> Path:
    (here / "drafts").mkdir()
    (here / "desk.yaml").write_text(DESK)
    return here


def asked(text: str) -> str:
    """Make a call that is refused, and return its request."""
    found = re.search("a-[0-9a-f]{12}", run(*CALL, f"text={text}", code=1).stderr)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
@pytest.mark.sampled(2)
def test_call_asks_at_the_terminal(desk: Path, typed: bytes, code: int) -> None:
    ended, shown = at_terminal([*CALL, "text=Rain.\u202e", "--ask"], ((b"[y]es, [N]o ",), typed))
    assert ended == code
    assert '"text": "Rain.\\u202e"' in shown
    assert (desk / "drafts" / "a.md").exists() is (code == 0)


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_approve_shows_the_request_and_asks_again_at_a_terminal(typed: bytes, code: int) -> None:
    ended, shown = at_terminal(["approvals", "approve", asked("Rain.")], (AGREE, typed))
    assert ended == code
    assert "tool          write_file" in shown
    run(*CALL, "text=Rain.", code=code)


def test_a_request_replaced_while_it_is_shown_is_not_approved(desk: Path) -> None:
    """Somebody who can write the file stores another call under the id of the shown request."""
    shown_one, other = asked("Rain."), asked("Hail.")

    def exchange() -> None:
        [path] = (desk.parent / "state").rglob("approvals.sqlite")
        with sqlite3.connect(path) as db:
            body, *more = db.execute("SELECT body, subject, arguments FROM requests WHERE id = ?", (other,)).fetchone()
            db.execute("DELETE FROM requests WHERE id = ?", (other,))
            change = "UPDATE requests SET body = ?, subject = ?, arguments = ? WHERE id = ?"
            db.execute(change, (body.replace(other, shown_one), *more, shown_one))
        db.close()

    ended, shown = at_terminal(["approvals", "approve", shown_one], (AGREE, b"y\n"), meanwhile=exchange)
    assert ended == 1
    assert f"{shown_one} is no longer what was shown, and was not answered: look at it again" in shown
    for text in ("Rain.", "Hail."):
        run(*CALL, f"text={text}", code=1)


@pytest.mark.usefixtures("desk")
def test_without_a_terminal_call_leaves_a_request_although_it_should_ask() -> None:
    words = [sys.executable, warm.SCRIPT, *CALL, "text=x", "--ask"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, start_new_session=True)
    assert done.returncode == 1
    assert re.search("a-[0-9a-f]{12}", done.stderr)
