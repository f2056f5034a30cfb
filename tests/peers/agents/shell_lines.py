"""The lines of `lines.yaml`, and how what an agent tells of one is compared with what it does without an agent."""

from pathlib import Path

import yaml
from msgspec import Struct, convert

from peers.agents.played_model import Call
from peers.agents.real_agents import Agent, Session, Shown


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """One line, what it prints, and its exit code."""

    line: str
    says: str = ""
    also: str = ""
    code: int = 0


LINES = convert(yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text("utf-8")), list[Line])


def check_lines(agent: Agent, session: Session) -> None:
    """Compare all lines with what an agent has told of them, one after the other."""
    assert session.exit_code == 0, session.stderr
    assert len(session.results) == len(LINES)
    for one, text in zip(LINES, session.texts, strict=True):
        check_line(one, agent.shown(text))


def first_calls(agent: Agent, project: Path) -> list[Call]:
    """A line, a read, an edit and a new file in a project whose `a.txt` has the lines `one` and `two`."""
    file = str(project / "a.txt")
    return [
        agent.shell("echo hello; exit 3"),
        agent.read(file),
        agent.edit(file, "two", "three"),
        agent.write(str(project / "new.txt"), "first\n"),
    ]


def check_first_calls(agent: Agent, project: Path, session: Session) -> None:
    """Check what came of these calls, and what the agent told of them."""
    assert session.exit_code == 0, session.stderr
    shown = agent.shown(session.texts[0])
    assert (shown.output, shown.code) in (("hello", 3), ("hello", None))
    assert "one" in session.texts[1]
    assert "two" in session.texts[1]
    assert [(project / name).read_text() for name in ("a.txt", "new.txt")] == ["one\nthree\n", "first\n"]


def check_line(line: Line, shown: Shown) -> None:
    """Compare one line with what an agent has told of it."""
    lines = shown.output.splitlines()
    if line.also:
        assert line.also in lines, (line, shown)
        lines.remove(line.also)
    assert [one.strip() for one in lines] == [one.strip() for one in line.says.splitlines()], (line, shown)
    assert shown.code in (line.code, None), (line, shown)
