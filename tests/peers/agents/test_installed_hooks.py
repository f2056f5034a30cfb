"""The hooks that a person has written by `licet hooks install`, in the real agents: they refuse, and lines run."""

import shlex
from collections.abc import Sequence

import pytest

from licet.hooks import agents as dialects
from peers.agents.conftest import Place
from peers.agents.hooked_agents import AGENT_USER, end_residents
from peers.agents.real_agents import AGENTS, bare_environment, give, owned, program, run_agent, settled


def at_terminal(words: Sequence[str], place: Place) -> tuple[int, str, str]:
    """Run a command at a terminal whose person takes hooks where they are asked, and says yes to everything."""
    first = "" if dialects.AGENTS[words[-1]].fail_closed else "hooks\\n"
    line = f"printf '{first}y\\ny\\ny\\ny\\ny\\n' | script -qec {shlex.quote(shlex.join(words))} /dev/null"
    return settled(["/bin/sh", "-c", line], place.project, bare_environment(place.home))


@pytest.mark.parametrize("name", AGENTS)
def test_an_installed_hook_refuses_and_runs_lines_behind_walls(name: str, licet: str, place: Place) -> None:
    agent, project = AGENTS[name], place.project
    program(agent)
    code, out, err = at_terminal([licet, "hooks", "install", "--agent", name], place)
    assert code == 0, (out[-1500:], err)
    secret = place.home / "secret.txt"
    owned(place.home, secret, "not for agents\n")
    calls = [
        agent.write(f"{project}/.claude/settings.local.json", "{}\n"),
        agent.shell(f"echo one; cat {secret}; echo two"),
        agent.write(f"{project}/inside.txt", "x\n"),
    ]
    found = run_agent(agent, project, place.home, calls)
    end_residents(AGENT_USER, place.home)
    assert not (project / ".claude" / "settings.local.json").exists()
    assert "licet" in found.texts[0]
    assert "one" in found.texts[1]
    assert "two" in found.texts[1]
    assert "not for agents" not in found.texts[1]
    assert (project / "inside.txt").read_text() == "x\n"


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_in_a_subfolder_cannot_switch_its_hook_off(name: str, licet: str, place: Place) -> None:
    agent, project = AGENTS[name], place.project
    program(agent)
    start, other = project / "sub", project / "other"
    start.mkdir()
    give(start)
    secret = place.home / "secret.txt"
    owned(place.home, secret, "not for agents\n")
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
    found = run_agent(agent, start, place.home, calls)
    end_residents(AGENT_USER, place.home)
    assert len(found.texts) == len(calls), found
    assert "one" in found.texts[0]
    assert "is new, and would configure a coding agent" in found.texts[1]
    assert "two" in found.texts[2]
    assert "not for agents" not in found.texts[2]
    there = [start / ".claude" / "settings.local.json", start / "opencode.json", other / ".claude"]
    assert [path for path in there if path.exists()] == []
