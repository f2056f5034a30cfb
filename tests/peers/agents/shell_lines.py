"""The lines of `lines.yaml`, and how what an agent tells of one is compared with what it does without an agent."""

from pathlib import Path

import yaml
from msgspec import Struct, convert

from peers.agents.real_agents import Shown


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """One line, what it prints, and its exit code."""

    line: str
    says: str = ""
    also: str = ""
    code: int = 0


LINES = convert(yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text("utf-8")), list[Line])


def check_line(line: Line, shown: Shown) -> None:
    """Compare one line with what an agent has told of it."""
    lines = shown.output.splitlines()
    if line.also:
        assert line.also in lines, (line, shown)
        lines.remove(line.also)
    assert [one.strip() for one in lines] == [one.strip() for one in line.says.splitlines()], (line, shown)
    assert shown.code in (line.code, None), (line, shown)
