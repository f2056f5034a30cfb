"""A file of the organisation that cannot be used, and the real file of a machine."""

from pathlib import Path

import pytest

import warm
from command_line import enter_project, run
from licet.cli.app import COMMANDS
from organisations import can_place, put, run_at_its_place

POLICY = """agent: research
tools: {fetch: {needs: ["network:https:*"], effect: read_only, sandbox: restricted}}
capabilities: {tools: [fetch], destinations: {allow: [files.example.com]}, process: {allowed_binaries: [sh]}}
"""
REPAIRING = {"check", "doctor", "schema", "receipts", "completion"}  # they find out why, or read what is recorded
STOPPING = {"freeze", "thaw"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = enter_project(tmp_path, monkeypatch)
    (folder / "licet.yaml").write_text(POLICY)
    return folder


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in REPAIRING | STOPPING | {"hook"}])
@pytest.mark.sampled(9)
def test_a_file_that_cannot_be_used_refuses_every_command(
    command: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(monkeypatch, tmp_path, "grants: [fs:read:/]\n")
    words = ["--", "sh", "-c", "echo ran"] if command in ("run", "observe") else ["licet.yaml"]
    found = run(command, *words, code=125 if command == "run" else 1)
    assert f"{file}:1:1: error: found the key `grants`" in found.output
    assert "ran\n" not in found.output
    run(command, "--help")


@pytest.mark.skipif(not can_place(), reason="only root can put a file of root at its place")
def test_the_real_file_is_read_by_a_real_process(here: Path, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LICET_ORGANISATION": "", "XDG_CONFIG_HOME": "/"}
    narrow = "max_side_effect_class: read_only\ndestinations:\n  allow: [api.example.com]\n"
    words = [warm.SCRIPT, "explain", "fetch", "https://files.example.com/"]
    checked = run_at_its_place(tmp_path, narrow, words, cwd=here, env=environment)
    assert checked.returncode == 1, checked.stderr
    assert "(/etc/licet/organisation.yaml:2)" in checked.stdout
    broken = run_at_its_place(tmp_path, "grants: []\n", [warm.SCRIPT, "surface"], cwd=here, env=environment)
    assert (broken.returncode, "/etc/licet/organisation.yaml:1:1: error" in broken.stderr) == (1, True)
