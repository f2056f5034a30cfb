"""`licet doctor`: a table of what holds, JSON of the same, and an exit code."""

import json

import pytest
from click.testing import CliRunner, Result

from licet.sandbox.probe import Attempted, Support
from licet.surfaces.cli import doctor
from licet.surfaces.cli.app import licet
from surfaces.messages import message


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


HOLDING = tuple(Attempted(wall, f"break {wall}", "holds") for wall in ("landlock", "seccomp", "hardening"))
OPEN = (
    Attempted("namespaces", "reach the network", "cannot be built: unshare: denied"),
    Attempted("private root", "look", "no"),
)
WHOLE = Support(7, (*HOLDING, Attempted("namespaces", "reach", "holds"), Attempted("private root", "look", "holds")))
WITHOUT_NAMESPACES = Support(3, (*HOLDING, *OPEN))
NOTHING = Support(0, (), "this system is not Linux")


@pytest.mark.parametrize(
    ("found", "code", "lines"),
    [
        (WHOLE, 0, ["restricted   yes", "isolated     yes", "programs     yes", "landlock (version 7)   yes"]),
        (
            WITHOUT_NAMESPACES,
            0,
            ["restricted   yes", "programs     degraded", "allow_degraded", "no network", "unshare: denied"],
        ),
        (NOTHING, 1, ["restricted   no", "programs     no", "this system is not Linux", "native       yes"]),
    ],
)
def test_the_table_says_what_holds(
    monkeypatch: pytest.MonkeyPatch, found: Support, code: int, lines: list[str]
) -> None:
    monkeypatch.setattr(doctor, "look", lambda: found)
    ended = run("doctor")
    assert ended.exit_code == code
    assert [line for line in lines if line not in ended.output] == []


def test_json_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "look", lambda: NOTHING)
    ended = run("doctor", "--json")
    said = json.loads(ended.output)
    assert ended.exit_code == 1
    assert {level: told["kept"] for level, told in said["levels"].items()} == {
        "restricted": False, "isolated": False, "native": True,
    }  # fmt: skip
    assert said["levels"]["restricted"]["missing"]
    assert said["trouble"] == message("doctor.system_not_linux")


def test_attempts_are_listed_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "look", lambda: WHOLE)
    assert "tried to" not in run("doctor").output
    assert "tried to" in run("doctor", "--attempts").output


def test_here_it_really_tries() -> None:
    said = json.loads(run("doctor", "--json").output)
    assert said["trouble"] or len(said["attempts"]) > 10
