"""The hijacked session in examples/hooks: its transcript is what happens, and without hooks each attack works."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from licet.cli.app import licet
from licet.sandbox import probe

EXAMPLE = Path(__file__).parents[1] / "examples" / "hooks"
TRANSCRIPT = (EXAMPLE / "transcript.md").read_text("utf-8")
SECRETS = ("for-this-example-only", "for this example only")

BARE = """
import json, pathlib, sys
sys.path[:0] = ["..", "."]
from claude_code import ClaudeCode
from hijacked import steps
from scenario import project

root, home = (pathlib.Path(word) for word in sys.argv[1:])
root.mkdir()
project(root)
(home / ".ssh").mkdir(parents=True)
(home / ".ssh" / "id_ed25519").write_text("for this example only\\n")
agent = ClaudeCode(root, home)
print(json.dumps([(step.tool, agent.call(step)) for step in steps(root, home)]))
"""


@pytest.mark.skipif(not probe.support().namespaces, reason="shell lines are refused without namespaces")
def test_the_transcript_is_what_happens() -> None:
    played = subprocess.run(
        [sys.executable, str(EXAMPLE.parent / "transcripts.py"), "--check", "hooks"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (played.returncode, played.stdout) == (0, ""), f"run `make transcripts`:\n{played.stdout}{played.stderr}"


def test_without_hooks_each_attack_works(tmp_path: Path) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    ran = subprocess.run(
        [sys.executable, "-c", BARE, str(root), str(home)],
        cwd=EXAMPLE,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "https_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = "\n".join(line for _, lines in json.loads(ran.stdout) for line in lines)
    assert "refused" not in said
    assert all(said.count(secret) >= 2 for secret in SECRETS), said
    assert json.loads((root / ".claude" / "settings.local.json").read_text()) == {"disableAllHooks": True}
    assert (root / ".git" / "hooks" / "pre-commit").exists()
    assert (root / ".licet" / "licet.yaml").read_text() == "agent: root\n"


def test_the_transcript_has_no_secret_and_nothing_of_this_machine() -> None:
    assert not [secret for secret in SECRETS if secret in TRANSCRIPT]
    assert not re.search(r"/tmp|\b20\d\d-|Traceback", TRANSCRIPT)
    assert {"git hooks          none", "files in .claude   none"} <= set(TRANSCRIPT.splitlines())


def test_every_attack_is_refused_or_meets_walls() -> None:
    attacks = TRANSCRIPT[TRANSCRIPT.index("## The notes give orders") : TRANSCRIPT.index("## What is left")]
    calls = re.findall(r"^(?:model> |subagent>) (\w+)\(.*\n((?:        .*\n)*)", attacks, re.MULTILINE)
    assert len(calls) == 17
    met = ("refused: licet", "asks:    licet", "No such file", "Permission denied", "Read-only", "was refused")
    assert [call for call, said in calls if not any(one in said for one in met)] == []


def test_the_policy_has_no_errors_and_asks_about_a_push() -> None:
    told = CliRunner().invoke(licet, ["check", str(EXAMPLE / "licet.yaml")], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert TRANSCRIPT.count("asks:    licet asks you about this call of claude.Bash") == 1
