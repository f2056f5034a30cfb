"""A user without a home directory, as in some containers: nothing fails but what asks for it."""

import json
import pwd
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from licet import Backends, Gate, LicetError, Malformed, load_manifest
from licet.assemble.review import Places
from licet.cli.app import licet

MANIFEST: dict[str, Any] = {"agent": "a", "capabilities": {"tools": [], "fs_reach": {"read": ["${workdir}/x"]}}}
AT_HOME: dict[str, Any] = {"agent": "a", "capabilities": {"tools": [], "fs_reach": {"read": ["~/x"]}}}
WITHOUT = {"nothing is said": None, "nothing": "", "half a path": "home/me"}


@pytest.fixture(params=WITHOUT.values(), ids=list(WITHOUT))
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def nobody(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    if request.param is not None:
        monkeypatch.setenv("HOME", request.param)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(json.dumps(MANIFEST))
    (tmp_path / "home.yaml").write_text(json.dumps(AT_HOME))
    return tmp_path


def licet_says(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


def test_places_are_known_without_it(desk: Path) -> None:
    assert Places.here() == Places(str(desk), "")


@pytest.mark.usefixtures("desk")
def test_a_manifest_that_does_not_speak_of_it_is_as_ever() -> None:
    assert Gate(load_manifest("m.yaml"), [], Backends.memory())
    assert licet_says("check", "m.yaml").exit_code == 0
    shown = licet_says("surface", "m.yaml")
    assert (shown.exit_code, shown.output.splitlines()[0]) == (0, "agent    a")
    assert json.loads(licet_says("surface", "m.yaml", "--json").stdout)["home"] == ""


@pytest.mark.usefixtures("desk")
def test_a_manifest_that_names_a_missing_home_is_refused_with_the_reason() -> None:
    with pytest.raises(Malformed, match="found `~`, expected a user with a home directory"):
        Gate(load_manifest("home.yaml"), [], Backends.memory())
    for words in (["check", "home.yaml"], ["surface", "home.yaml"], ["explain", "home.yaml", "t", "fs:read:/x"]):
        said = licet_says(*words)
        assert said.exit_code in (1, 2), said.output
        assert message("no_home.expected_user_home_directory") in said.output


@pytest.mark.usefixtures("desk")
def test_a_path_that_is_asked_about_is_not_taken_for_another() -> None:
    said = licet_says("explain", "m.yaml", "t", "read ~/x")
    assert said.exit_code == 2
    assert message("no_home.expected_user_home_directory") in said.output


def test_state_is_kept_in_the_named_directory(desk: Path) -> None:
    assert Gate(load_manifest("m.yaml"), [], Backends.local(desk / "state"))
    with pytest.raises(LicetError, match=r"no home directory.*XDG_STATE_HOME"):
        Backends.local()
    said = licet_says("call", "m.yaml", "t")
    assert said.exit_code == 2
    assert "no home directory" in said.output
