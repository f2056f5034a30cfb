"""Whole agents inside `licet run`: their tools work in the project as they do bare, and nowhere else."""

import pytest

from attacks.walled_programs import needs_namespaces
from peers.agents.conftest import Place
from peers.agents.real_agents import VARIANTS, Agent
from peers.agents.shell_lines import LINES, check_line
from peers.agents.walled_agents import run_walled

pytestmark = needs_namespaces

every_agent = pytest.mark.parametrize("agent", VARIANTS.values(), ids=VARIANTS)


@every_agent
def test_a_session_inside(agent: Agent, place: Place, licet: str) -> None:
    file, new, key = place.project / "a.txt", place.project / "new.txt", place.home / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    key.write_text("the key")
    key.chmod(0o644)
    session = run_walled(
        licet,
        agent,
        place.project,
        place.home,
        [
            agent.shell("echo hello; exit 3"),
            agent.read(str(file)),
            agent.edit(str(file), "two", "three"),
            agent.write(str(new), "first\n"),
            agent.shell(f"cat {key} 2>/dev/null || echo no key"),
            agent.shell("echo '{\"disableAllHooks\": true}' > .claude/settings.local.json || echo closed"),
            agent.shell("(sleep 0.2; echo late) & wait; mkdir made && touch made/file && rm -r made && echo gone"),
            agent.write(str(place.project / ".git" / "hooks" / "pre-commit"), "#!/bin/sh\n"),
        ],
    )
    assert session.exit_code == 0, session.stderr
    assert len(session.results) == 8, session.texts
    shown = [agent.shown(session.texts[number]) for number in (0, 4, 5, 6)]
    assert shown[0].output == "hello"
    assert shown[0].code in (3, None)
    assert "two" in session.texts[1]
    assert (file.read_text(), new.read_text()) == ("one\nthree\n", "first\n")
    assert shown[1].output == "no key"
    assert "closed" in shown[2].output.splitlines()
    assert shown[3].output == "late\ngone"
    assert not (place.project / ".git" / "hooks" / "pre-commit").exists()
    assert list((place.project / ".claude").iterdir()) == []


@every_agent
def test_ordinary_shell_lines_inside(agent: Agent, place: Place, licet: str) -> None:
    session = run_walled(licet, agent, place.project, place.home, [agent.shell(one.line) for one in LINES])
    assert session.exit_code == 0, session.stderr
    for one, text in zip(LINES, session.texts, strict=True):
        check_line(one, agent.shown(text))
