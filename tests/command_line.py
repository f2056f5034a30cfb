"""Commands of licet in this process, and an empty project to run them in."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.servers import SCRIPTED
from licet.cli.app import licet
from licet.mcp import server_definitions


def run(*words: str, code: int | None = 0, stdin: str | None = None) -> Result:
    """What a command says, once it has ended with this code; None for any."""
    said = CliRunner().invoke(licet, words, input=stdin, catch_exceptions=False)
    assert code is None or said.exit_code == code, said.output
    return said


def enter_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to an empty directory, with stores of its own."""
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return folder


def enter_project_of_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str = "server.py") -> Path:
    """The same with a scripted MCP server, which a lock starts once."""
    folder = enter_project(tmp_path, monkeypatch)
    monkeypatch.setattr(server_definitions, "LOCK_STARTS", 1)
    (folder / script).parent.mkdir(exist_ok=True)
    shutil.copy(SCRIPTED, folder / script)
    return folder
