"""The organisation of a machine on the command line: what shows it, what refuses, and what it is no part of."""

import json
import re
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from licet.cli.app import COMMANDS, licet
from organisations import can_place, put, run_at_its_place

SCRIPT = str(Path(sysconfig.get_path("scripts")) / "licet")
NARROW = "max_side_effect_class: read_only\ndestinations:\n  allow: [api.example.com]\n"
POLICY = """agent: research
tools:
  fetch: {needs: ["network:https:*"], effect: read_only, sandbox: restricted}
  save: {needs: ["fs:write:/srv/out"], effect: write_limited, sandbox: restricted}
capabilities:
  tools: [fetch, save]
  max_side_effect_class: write_limited
  destinations: {allow: [api.example.com, files.example.com]}
  fs_reach: {write: [/srv/out]}
  process: {allowed_binaries: [sh]}
examples:
  match: [{tool: fetch, use: "network:https:get@files.example.com"}]
"""
REPAIRING = {"check", "doctor", "schema", "receipts", "completion"}  # they find out why, or read what is recorded
USE = "https://files.example.com/"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a policy, as the current one."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "licet.yaml").write_text(POLICY, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def ran(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


def document(*words: str) -> dict[str, object]:
    found = ran(*words, "--json")
    read: dict[str, object] = json.loads(found.stdout)
    return read


def test_reviews_show_it_and_refusals_name_its_line(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (("surface",), ("check",), ("explain", "fetch", USE), ("diff", "licet.yaml", "licet.yaml")):
        assert "organisation" not in ran(*words).output.partition("not in it")[0], words
    assert ran("explain", "fetch", USE).exit_code == 0
    file = put(monkeypatch, tmp_path, NARROW)
    shown = ran("surface", "licet.yaml")
    assert str(file) in re.sub(r"\s", "", shown.stdout.partition("\nunder ")[2])
    assert re.search("at most +read_only", shown.stdout)
    explained = ran("explain", "fetch", USE)
    assert (explained.exit_code, f"({file}:2)" in explained.stdout) == (1, True)
    assert f"under         {file} (sha256:" in explained.stdout
    checked = ran("check")
    assert (checked.exit_code, f"{file}:1" in checked.output) == (1, True)  # `save` does not fit any more
    compared = ran("diff", "licet.yaml", "licet.yaml")
    assert (compared.exit_code, f"not in it: {file} (sha256:" in compared.output) == (0, True)
    tested = ran("test")
    assert (tested.exit_code, f"{file}:2" in tested.output) == (1, True)
    assert f"organisation  {file} (sha256:" in ran("doctor").output


def test_json_has_its_digest(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = document("surface", "licet.yaml")
    assert "organisations" not in before
    file = put(monkeypatch, tmp_path, NARROW)
    after = document("surface", "licet.yaml")
    listed = after["organisations"]
    assert isinstance(listed, list)
    assert [one["file"] for one in listed] == [str(file)]
    assert after["digest"] == before["digest"]
    assert document("explain", "fetch", USE)["organisations"] == listed
    assert document("diff", "licet.yaml", "licet.yaml")["organisations"] == listed
    assert document("doctor")["organisation"] == {**listed[0], "problems": []}


def test_a_difference_is_of_the_policy_and_not_of_the_machine(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reviewed stays reviewed when the organisation allows more one day."""
    put(monkeypatch, tmp_path, NARROW)
    (here / "new.yaml").write_text(POLICY.replace("files.example.com]", "files.example.com, evil.example]"))
    grown = ran("diff", "licet.yaml", "new.yaml")
    assert (grown.exit_code, "evil.example" in grown.stdout) == (1, True)


def test_a_second_file_is_for_trying(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = tmp_path / "tried.yaml"
    tried.write_text(NARROW, encoding="utf-8")
    tried.chmod(0o666)
    for words in (("explain", "fetch", USE), ("test",), ("check",)):
        assert ran(*words).exit_code == 0
        found = ran(*words, "--organisation", str(tried))
        assert (found.exit_code, "tried.yaml:" in found.output) == (1, True)
    put(monkeypatch, tmp_path, "destinations: {deny: [api.example.com]}\n")
    listed = document("surface", "licet.yaml", "--organisation", str(tried))["organisations"]
    assert isinstance(listed, list)
    assert [Path(one["file"]).name for one in listed] == ["organisation.yaml", "tried.yaml"]
    tried.write_text("tools: {}\n", encoding="utf-8")
    assert ran("explain", "fetch", USE, "--organisation", str(tried)).exit_code == 1


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("check", "doctor", "schema", "receipts")]
)
def test_a_file_that_cannot_be_used_refuses_every_command(
    command: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(monkeypatch, tmp_path, "grants: [fs:read:/]\n")
    if command == "completion":
        return  # it prints a script for a shell
    words = {"run": ["--", "sh", "-c", "echo ran"], "observe": ["--", "sh", "-c", "echo ran"]}.get(
        command, ["licet.yaml"]
    )
    found = ran(command, *words)
    assert found.exit_code == (125 if command == "run" else 1)
    assert f"{file}:1:1: error: found the key `grants`" in found.output
    assert "ran\n" not in found.output
    assert ran(command, "--help").exit_code == 0


def test_what_finds_the_reason_still_works(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(monkeypatch, tmp_path, "destinations: {allow: [api.example.com]}\n")
    assert ran("check", str(file)).exit_code == 0
    assert ran("schema", "organisation").exit_code == 0
    file.chmod(0o666)
    for words in (("check", str(file)), ("check",), ("doctor",)):
        found = ran(*words)
        assert (found.exit_code, "may write (mode 666)" in found.output) == (1, True), words
    file.chmod(0o644)
    file.write_text("destinations: {allow: ['*.github.io']}\n", encoding="utf-8")
    warned = ran("check", str(file))
    assert (warned.exit_code, "warning" in warned.output) == (0, True)


def test_a_lock_and_an_acceptance_outlive_an_edit_of_it(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, tmp_path, NARROW)
    assert ran("lock", "licet.yaml").exit_code == 0
    assert ran("trust", "--yes").exit_code == 0
    before = (here / "licet.lock").read_bytes()
    put(monkeypatch, tmp_path, "destinations: {allow: []}\n")
    assert "licet.lock" not in ran("check", "--locked").output
    assert "has changed" not in ran("call", "fetch").output
    assert ran("lock", "licet.yaml").exit_code == 0
    assert (here / "licet.lock").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("max_side_effect_class: full", (), "`max_side_effect_class` holds here"),
        ("approvals: {write: call}", (), "`approvals` holds here"),
        ("connectors: {deny: [slack]}", (), "`connectors` holds here"),
        ("destinations: {allow: []}", ("--open",), "`destinations` hold here"),
    ],
)
def test_a_gateway_that_only_observes_does_not_skip_it(
    text: str, words: tuple[str, ...], expected: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "agent.yaml").write_text("agent: a\nservers: {s: {command: [sh]}}\ncapabilities: {}\n", encoding="utf-8")
    (here / "licet.yaml").unlink()
    file = put(monkeypatch, tmp_path, text)
    found = ran("gateway", "agent.yaml", "--observe", "--for", "1m", *words)
    assert (found.exit_code, f"{file}:1" in found.output, expected in found.output) == (1, True, True)


# At its real place ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not can_place(), reason="only root can put a file of root at its place")
def test_the_real_file_is_read_by_a_real_process(here: Path, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LICET_ORGANISATION": "", "XDG_CONFIG_HOME": "/"}
    checked = run_at_its_place(tmp_path, NARROW, [SCRIPT, "explain", "fetch", USE], cwd=here, env=environment)
    assert checked.returncode == 1, checked.stderr
    assert "(/etc/licet/organisation.yaml:2)" in checked.stdout
    broken = run_at_its_place(tmp_path, "grants: []\n", [SCRIPT, "surface"], cwd=here, env=environment)
    assert (broken.returncode, "/etc/licet/organisation.yaml:1:1: error" in broken.stderr) == (1, True)
