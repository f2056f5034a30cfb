"""`licet schema`: the schema for editors accepts and refuses the same files as the loader."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from licet.cli.app import licet

KINDS = ("workspace", "manifest", "personality", "organisation", "tests")


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, ["schema", *words])


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        ("workspace", {"bundles": {"b": {"tools": ["t"]}}}, {"bundles": {"b": {"tool": ["t"]}}}),
        ("manifest", {"agent": "a", "capabilities": {"env": ["PATH"]}}, {"agent": "a", "verison": "1.0"}),
        ("personality", {"id": "p", "toolset": ["t"]}, {"toolset": ["t"]}),
        ("tests", {"cases": [{"tool": "t", "verdict": "ask"}]}, {"cases": [{"tool": "t", "verdict": "no"}]}),
    ],
)
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["", "json"])
def test_each_kind_has_a_schema_that_editors_can_use(kind: str, accepted: Any, refused: Any, words: list[str]) -> None:
    result = run(kind, *words)
    assert result.exit_code == 0
    validator = jsonschema_rs.validator_for(json.loads(result.stdout))
    assert validator.is_valid(accepted)
    assert not validator.is_valid(refused)


def test_without_a_kind_the_kinds_are_listed() -> None:
    lines = run().stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(KINDS)
    assert list(json.loads(run("--json").stdout)) == list(KINDS)


def test_all_kinds_can_be_written_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    result = run("--output", str(folder))
    written = [folder / f"{kind}.schema.json" for kind in KINDS]
    assert result.stdout.splitlines() == [f"wrote {path}" for path in written]
    assert sorted(folder.iterdir()) == sorted(written)
    for kind, path in zip(KINDS, written, strict=True):
        assert json.loads(path.read_text()) == json.loads(run(kind).stdout)
    again = run("--output", str(folder), "--json")
    assert json.loads(again.stdout) == {"written": [str(path) for path in written]}


def test_a_place_that_cannot_be_written_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("--output", str(tmp_path / "file"))
    assert result.exit_code == 1
    assert message("schema.cannot_make_directory") in result.stderr


def test_a_file_that_licet_did_not_write_stays_and_so_do_the_others(tmp_path: Path) -> None:
    (tmp_path / "personality.schema.json").write_text("{}")
    result = run("--output", str(tmp_path))
    assert result.exit_code == 1
    assert message("schema.personality_schema_json_file_licet") in result.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"personality.schema.json": "{}"}
