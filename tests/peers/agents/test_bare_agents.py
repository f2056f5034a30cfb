"""The real coding agents do what a played model asks of them, and tell it what came of it.

Here licet takes no part: what is shown is that these sessions can be compared with those behind hooks and walls.
"""

import pytest

from peers.agents.conftest import Place
from peers.agents.played_model import Call, Script
from peers.agents.real_agents import (
    AGENTS,
    VARIANTS,
    Agent,
    bare_environment,
    program,
    run_agent,
    settled,
    version,
)
from peers.agents.shell_lines import LINES, check_first_calls, check_lines, first_calls

NOWHERE = "http://127.0.0.1:9/page"  # nobody listens there
SUBAGENT = "SUBAGENT: one line."
SUBAGENTS = {
    "claude": Call(
        "Agent",
        {"description": "one", "prompt": SUBAGENT, "subagent_type": "general-purpose", "run_in_background": False},
    ),
    "gemini": Call("invoke_agent", {"agent_name": "generalist", "prompt": SUBAGENT}),
    "copilot": Call(
        "task",
        {"agent_type": "general-purpose", "description": "one", "name": "one", "prompt": SUBAGENT, "mode": "sync"},
    ),
    "opencode": Call("task", {"description": "one", "prompt": SUBAGENT, "subagent_type": "general"}),
}

every_agent = pytest.mark.parametrize("agent", VARIANTS.values(), ids=VARIANTS)


@every_agent
def test_a_session_of_lines_reads_and_edits(agent: Agent, place: Place) -> None:
    calls = [*first_calls(agent, place.project), agent.fetch(NOWHERE)]
    session = run_agent(agent, place.project, place.home, calls)
    check_first_calls(agent, place.project, session)
    assert "All done." in session.stdout
    assert len(session.results) == 5, session.texts
    assert "All done" not in session.texts[4]
    assert session.model.tools()


@every_agent
def test_ordinary_shell_lines(agent: Agent, place: Place) -> None:
    session = run_agent(agent, place.project, place.home, [agent.shell(one.line) for one in LINES])
    check_lines(agent, session)


@pytest.mark.parametrize("name", SUBAGENTS)
def test_a_subagent_has_a_script_of_its_own(name: str, place: Place) -> None:
    agent = AGENTS[name]
    script = Script(SUBAGENT, [agent.shell("echo from the subagent > below.txt")])
    session = run_agent(
        agent, place.project, place.home, [SUBAGENTS[name], agent.shell("cat below.txt")], scripts=[script]
    )
    assert agent.shown(session.texts[1]).output == "from the subagent"
    assert len(session.model.results(1)) == 1


def test_calls_that_are_made_at_the_same_time(place: Place) -> None:
    agent = AGENTS["claude"]
    session = run_agent(agent, place.project, place.home, [[agent.shell("echo 1"), agent.shell("echo 2")]])
    assert session.texts == ["1", "2"]


@every_agent
def test_the_program_is_that_of_the_package(agent: Agent, place: Place) -> None:
    code, out, err = settled([program(agent), "--version"], place.project, bare_environment(place.home))
    assert code == 0, err
    assert version(agent) in out
