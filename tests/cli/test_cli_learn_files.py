"""Recordings that are no ordinary files are refused at once, and so is a line without an end."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from licet.cli.app import licet


def learned(path: Path) -> str:
    result = CliRunner().invoke(licet, ["learn", str(path)], catch_exceptions=False)
    assert result.exit_code == 1
    return result.output


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a link to a device"])
def test_a_recording_must_be_a_regular_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.jsonl"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path = Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    assert "not a regular file" in learned(path)


def test_a_line_of_a_recording_has_a_length_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b" " * (2 << 20))
    assert "a line of more than 1 MiB" in learned(path)
