"""Whole agents inside `licet run`: their tools work in the project as they do bare, and nowhere else."""

import pytest

from attacks.walled_programs import needs_namespaces
from peers.agents.conftest import Place
from peers.agents.real_agents import VARIANTS, Agent
from peers.agents.shell_lines import LINES, check_first_calls, check_lines, first_calls
from peers.agents.walled_agents import run_walled

pytestmark = needs_namespaces

every_agent = pytest.mark.parametrize("agent", VARIANTS.values(), ids=VARIANTS)


@every_agent
def test_a_session_inside(agent: Agent, place: Place, licet: str) -> None:
    key = place.home / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    key.write_text("the key")
    key.chmod(0o644)
    session = run_walled(
        licet,
        agent,
        place.project,
        place.home,
        [
            *first_calls(agent, place.project),
            agent.shell(f"cat {key} 2>/dev/null || echo no key"),
            agent.shell("echo '{\"disableAllHooks\": true}' > .claude/settings.local.json || echo closed"),
            agent.shell("(sleep 0.2; echo late) & wait; mkdir made && touch made/file && rm -r made && echo gone"),
            agent.write(str(place.project / ".git" / "hooks" / "pre-commit"), "#!/bin/sh\n"),
        ],
    )
    check_first_calls(agent, place.project, session)
    assert len(session.results) == 8, session.texts
    shown = [agent.shown(text).output for text in session.texts[4:7]]
    assert shown[0] == "no key"
    assert "closed" in shown[1].splitlines()
    assert shown[2] == "late\ngone"
    assert not (place.project / ".git" / "hooks" / "pre-commit").exists()
    assert list((place.project / ".claude").iterdir()) == []


@every_agent
def test_ordinary_shell_lines_inside(agent: Agent, place: Place, licet: str) -> None:
    session = run_walled(licet, agent, place.project, place.home, [agent.shell(one.line) for one in LINES])
    check_lines(agent, session)
