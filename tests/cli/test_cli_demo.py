"""`licet demo` plays its whole story, and says so if a step ends in another way."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from effort import LONG
from licet.cli import demo
from licet.cli.app import licet
from sandbox.levels import needs_walls


def test_the_whole_story_is_played_and_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report_sample: Callable[[int, int], None]
) -> None:
    needs_walls()
    monkeypatch.chdir(tmp_path)
    every = (*demo.STORY, *demo.RECORDS)
    report_sample(len(every) if LONG else 2, len(every))
    if not LONG:
        monkeypatch.setattr(demo, "STORY", (demo.STORY[1], demo.STORY[4]))  # a refused call, and an escape
        monkeypatch.setattr(demo, "RECORDS", ())
    played = CliRunner().invoke(licet, ["demo", "--keep", "here"])
    assert played.exit_code == 0, played.output
    assert "Everything went as it should." in played.output
    assert (tmp_path / "here" / "reports" / "oslo.md").read_text() == "Take an umbrella."
    again = CliRunner().invoke(licet, ["demo", "--keep", "here"])
    assert (again.exit_code, "here exists already" in again.output) == (2, True)


def test_a_step_that_ends_in_another_way_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORY", "RECORDS"):
        monkeypatch.setattr(demo, name, ())
    for name in ("LOOK", "ASKS", "AGREES", "WRITES", "FLIPPED"):
        monkeypatch.setattr(demo, name, demo.Step("a step", ("python", "-c", "print('no')"), "yes"))
    played = CliRunner().invoke(licet, ["demo"])
    assert played.exit_code == 1
    assert json.loads(CliRunner().invoke(licet, ["demo", "--json"]).stdout)["as_expected"] is False
    assert "5 commands did not end as expected; `licet doctor` says what this machine lacks" in played.output


def test_each_command_that_surprised_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORY", "RECORDS"):
        monkeypatch.setattr(demo, name, ())
    for name in ("LOOK", "ASKS", "AGREES", "WRITES", "FLIPPED"):
        monkeypatch.setattr(demo, name, demo.Step("a step", ("python", "-c", "print('no')"), "yes"))
    assert CliRunner().invoke(licet, ["demo"]).stderr.splitlines()[1:] == ["  python -c 'print('\"'\"'no'\"'\"')'"] * 5
