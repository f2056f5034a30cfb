"""Walls inside somebody else's: in a container without namespaces, in another Landlock domain, in licet's own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import PYTHON, Programs, both_kinds, needs_walls
from licet.sandbox.probe import Attempted, Support
from sandbox import nested_host

TESTS = str(Path(__file__).parents[1])
HOST = str(nested_host.__file__)


def nested(how: str, tmp_path: Path) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, HOST, how], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": TESTS, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def holds_for_tools(said: dict[str, Any]) -> None:
    assert said["missing"] == []
    for level in ("restricted", "isolated"):
        assert said[level] == [1, 1, 2]
        assert "PermissionError" in said[f"{level}, forking"]


@needs_walls
@pytest.mark.parametrize("how", ["filter", "landlock", "both"])
@pytest.mark.sampled(1)
def test_where_namespaces_are_refused_a_supervisor_makes_the_calls_of_programs(how: str, tmp_path: Path) -> None:
    said = nested(how, tmp_path)
    holds_for_tools(said)
    assert said["namespaces"] is False
    if how == "filter":  # Landlock around it refuses TCP to the supervisor too
        for sandbox in ("whole", "degraded"):
            value, reason, explained, kept = said[sandbox]
            assert (value, reason) == (0, "ALLOWED"), explained
            assert kept == ["namespaces", "private root"]
        return
    value, reason, explained, kept = said["whole"]
    assert (value, reason, kept) == (None, "SANDBOX_UNAVAILABLE", None)
    assert "namespaces: cannot be built" in explained
    assert "supervised calls: cannot be built" in explained
    assert "allow_degraded" in explained
    value, reason, explained, kept = said["degraded"]
    assert (value, reason) == (0, "ALLOWED"), explained
    assert kept[:3] == ["namespaces", "private root", "supervised calls"]


@both_kinds
@pytest.mark.sampled(1)
def test_inside_walls_of_licet_tools_run_behind_walls_of_their_own(kind: str, tmp_path: Path) -> None:
    places = [TESTS, *(os.path.realpath(place) for place in sys.path if os.path.isdir(place))]
    outer = Programs(kind, [f"fs:read:{place}" for place in places], seconds=300.0)
    code = "import sys, runpy; sys.path[:0] = sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"
    ended = outer.run(PYTHON, "-c", code.replace("sys.argv[1]", repr(HOST)), "licet", *places)
    assert ended.exit_code == 0, ended.stderr_bytes.decode()
    said = json.loads(ended.stdout)
    holds_for_tools(said)
    assert said["namespaces"] is False
    assert said["whole"][1] == "SANDBOX_UNAVAILABLE"
    value, reason, explained, _ = said["degraded"]
    assert (value, reason) == (0, "ALLOWED"), explained


def test_a_wall_that_was_never_needed_was_not_seen_to_hold() -> None:
    held, seen = Attempted("landlock", "connect", "holds already"), Attempted("landlock", "read", "holds")
    open_one = Attempted("landlock", "write", "does not hold")
    assert not Support(7, (held,)).wall_holds("landlock")
    assert Support(7, (held, seen)).wall_holds("landlock")
    assert not Support(7, (held, seen, open_one)).wall_holds("landlock")


def test_trouble_is_told_once() -> None:
    found = Support(0, (), "the attempts could not be made: no room")
    assert found.missing("isolated") == ("the attempts could not be made: no room",)
    assert found.missing("native") == ()
