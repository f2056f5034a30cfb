"""A variable or a later file on the PATH makes a permitted name mean another program."""

import os
import subprocess
from pathlib import Path

import pytest

from attacks.granted import refused
from attacks.programs import programs, spawned


def planted(folder: Path, name: str) -> Path:
    program = folder / name
    program.write_text("#!/bin/sh\necho STOLEN\n")
    program.chmod(0o755)
    return program


def test_a_variable_of_the_caller_does_not_choose_the_program(tmp_path: Path) -> None:
    planted(tmp_path, "cat")
    evil = {"PATH": str(tmp_path)}
    attack = subprocess.run(
        ["env", "cat"], env=evil | {"PATH": f"{tmp_path}:/usr/bin"}, capture_output=True, check=True
    )
    assert attack.stdout == b"STOLEN\n"

    assert refused(programs("process:exec:cat").spawn("cat", env=evil)) == "ENV_NOT_ALLOWED"

    # Even where the variable may be set, it is the child's alone: the program was found before.
    handle = programs("process:exec:cat", "env:read:PATH")
    assert spawned(handle, "cat", stdin=b"input", env=evil).stdout_bytes == b"input"


def test_a_program_that_appears_on_the_path_later_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    handle = programs("process:exec:cat", path=path)
    planted(tmp_path, "cat")
    assert subprocess.run(["cat"], input=b"", capture_output=True, check=True).stdout == b"STOLEN\n"

    assert spawned(handle, "cat", stdin=b"input").stdout_bytes == b"input"


def test_a_program_in_the_working_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path, "own-tool")
    monkeypatch.chdir(tmp_path)
    for path in (".", "", ":/usr/bin"):
        monkeypatch.setenv("PATH", path)
        if path == ".":
            assert subprocess.run(["own-tool"], capture_output=True, check=True).stdout == b"STOLEN\n"
        handle = programs("process:exec:own-tool", path=os.environ["PATH"])
        assert refused(handle.spawn("own-tool")) == "BACKEND_MISSING"
