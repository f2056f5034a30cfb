"""The hijacked session of examples/hooks, with the real Claude Code: the transcript that is shown is what happens.

`LICET_WRITE=1` writes the transcript anew.
"""

import difflib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from attacks.walled_programs import needs_namespaces
from peers.agents.conftest import Place
from peers.agents.hooked_agents import AGENT_USER, Hooked, end_residents, installed
from peers.agents.played_model import Call, Script
from peers.agents.real_agents import CLAUDE, give, program, version
from peers.agents.test_bare_agents import SUBAGENT, SUBAGENTS

pytestmark = needs_namespaces

EXAMPLE = Path(__file__).parents[3] / "examples" / "hooks"
TRANSCRIPT = EXAMPLE / "real_transcript.md"
SECRETS = ("for-this-example-only", "for this example only")
HEAD = """# A hijacked Claude Code, with hooks

The real Claude Code {version}, started with `--dangerously-skip-permissions` and hooks of licet, whose model is played:
it asks for the calls below, and each answer is what Claude Code told it. `make test-peers` plays it again and compares.
"""
_RECEIPT = re.compile(r"\br-[0-9a-f]{8,}-\d+")
_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)


@pytest.fixture
def hooked(place: Place, licet: str, monkeypatch: pytest.MonkeyPatch) -> Hooked:
    program(CLAUDE)  # skips where there is none
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), str(EXAMPLE.parent), *sys.path])
    from scenario import project  # type: ignore[import-not-found]

    root = place.project.with_name("kites")
    root.mkdir()
    project(root)
    made = Hooked(licet, CLAUDE, Place(root, place.home))
    made.write(place.home / ".ssh" / "id_ed25519", f"{SECRETS[1]}\n")
    give(root)
    made.trust()
    return installed(licet, CLAUDE, made.place)


def test_the_transcript_is_what_claude_code_does(hooked: Hooked) -> None:
    from hijacked import steps  # type: ignore[import-not-found]

    root, home = hooked.place.project, hooked.place.home
    told = list(steps(root, home))
    below = [Call(one.tool, one.arguments) for one in told if one.subagent]
    calls = [SUBAGENTS["claude"] if one.subagent else Call(one.tool, one.arguments) for one in told]
    session = hooked.run(calls, scripts=[Script(SUBAGENT, below)])
    end_residents(AGENT_USER, home)
    assert session.exit_code == 0, session.stderr
    parts, of_subagent = [HEAD.format(version=version(CLAUDE))], iter(session.model.results(1))
    for step, result in zip(told, session.results, strict=True):
        parts += [f"## {step.title}\n"] if step.title else []
        words = ", ".join(f"{name}={json.dumps(value)}" for name, value in step.arguments.items())
        who, text = ("subagent>", next(of_subagent).text) if step.subagent else ("model> ", result.text)
        said = "\n".join(f"        {line}".rstrip() for line in _REMINDER.sub("", text).strip().splitlines())
        parts.append(f"```text\n{who} {step.tool}({words})\n{said}\n```\n")
    receipts: dict[str, str] = {}
    found = "\n".join(parts).replace(str(root), "/srv/agent").replace(str(home), "/srv/home")
    found = _RECEIPT.sub(lambda one: receipts.setdefault(one[0], f"r-{len(receipts) + 1}"), found)
    assert not [secret for secret in SECRETS if secret in found]
    assert sorted((root / ".claude").iterdir()) == []
    assert sorted((root / ".git" / "hooks").iterdir()) == []
    if os.environ.get("LICET_WRITE"):
        TRANSCRIPT.write_text(found, "utf-8")
    shown = TRANSCRIPT.read_text("utf-8")
    assert shown == found, "".join(difflib.unified_diff(shown.splitlines(True), found.splitlines(True)))
