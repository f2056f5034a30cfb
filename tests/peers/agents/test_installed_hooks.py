"""The hooks that `licet hooks install` writes, in the real agents: they refuse, and their shell lines run."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from peers.agents.licet_for_user import licet_for_user
from peers.agents.real_agents import AGENTS, bare_environment, give, program, run_agent, settled

WORDS = {"codex": ("--full-auto",)}


@pytest.fixture(scope="module")
def licet() -> Iterator[str]:
    with licet_for_user() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for above in (tmp_path, tmp_path.parent, tmp_path.parent.parent):  # not the directory that all users share
        above.chmod(0o755)
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    give(tmp_path)
    return tmp_path


def at_terminal(words: Sequence[str], place: Path) -> tuple[int, str, str]:
    """Run a command at a terminal whose person says yes to everything."""
    line = f"printf 'y\\ny\\ny\\ny\\ny\\n' | script -qec {shlex.quote(shlex.join(words))} /dev/null"
    return settled(["/bin/sh", "-c", line], place / "project", bare_environment(place / "home"))


@pytest.mark.parametrize("name", AGENTS)
def test_an_installed_hook_refuses_and_runs_lines_behind_walls(name: str, licet: str, place: Path) -> None:
    agent, project = AGENTS[name], place / "project"
    program(agent)
    code, out, err = at_terminal([licet, "hooks", "install", "--agent", name], place)
    assert code == 0, (out[-1500:], err)
    secret = place / "home" / "secret.txt"
    secret.write_text("not for agents\n")
    give(place)
    calls = [
        agent.write(f"{project}/.claude/settings.local.json", "{}\n"),
        agent.shell(f"echo one; cat {secret}; echo two"),
        agent.write(f"{project}/inside.txt", "x\n"),
    ]
    found = run_agent(agent, project, place / "home", calls)
    assert not (project / ".claude" / "settings.local.json").exists()
    assert "licet" in found.texts[0]
    assert "one" in found.texts[1]
    assert "two" in found.texts[1]
    assert "not for agents" not in found.texts[1]
    assert (project / "inside.txt").read_text() == "x\n"


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_in_a_subfolder_cannot_switch_its_hook_off(name: str, licet: str, place: Path) -> None:
    agent, project = AGENTS[name], place / "project"
    program(agent)
    start, other = project / "sub", project / "other"
    start.mkdir()
    secret = place / "home" / "secret.txt"
    secret.write_text("not for agents\n")
    give(place)
    code, out, err = at_terminal([licet, "hooks", "install", "--agent", name], place)
    assert code == 0, (out[-1500:], err)
    off = "'{\"disableAllHooks\": true}'"
    calls = [
        agent.shell(
            f"mkdir -p .claude; echo {off} > .claude/settings.local.json; echo '{{}}' > opencode.json; echo one"
        ),
        agent.shell(f"mkdir -p {other}/.claude/skills/evil; echo evil > {other}/.claude/skills/evil/SKILL.md"),
        agent.shell(f"echo two; cat {secret}"),
    ]
    found = run_agent(agent, start, place / "home", calls)
    assert len(found.texts) == len(calls), found
    assert "one" in found.texts[0]
    assert "is new, and would configure a coding agent" in found.texts[1]
    assert "two" in found.texts[2]
    assert "not for agents" not in found.texts[2]
    there = [start / ".claude" / "settings.local.json", start / "opencode.json", other / ".claude"]
    assert [path for path in there if path.exists()] == []
