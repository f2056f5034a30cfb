"""What commands show at a terminal, what they ask there, and that no text of others acts on it."""

import os
import re
from pathlib import Path

import pytest

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
