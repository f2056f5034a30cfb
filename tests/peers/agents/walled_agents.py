"""Whole agents inside `licet run`, under the preset for coding agents, as an ordinary user."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from peers.agents.played_model import Script, Step, playing
from peers.agents.real_agents import (
    PROMPT,
    Agent,
    Session,
    arguments,
    bare_environment,
    give,
    program,
    session_of,
    settled,
)

HOST = "127.0.0.2"  # 127.0.0.1 is the loopback of the program itself behind walls


def run_walled(
    licet: str, agent: Agent, project: Path, home: Path, calls: Sequence[Step], scripts: Sequence[Script] = ()
) -> Session:
    """Run one session of an agent as `licet run -- NAME` under the preset, which a person has completed.

    They add the address of the model and the variables that the agent needs, and agree to writes and deletes once.
    """
    with playing([Script("", calls), *scripts], HOST) as model:
        program(agent)  # skips where there is none
        variables = agent.variables(model.url)
        environment = {**bare_environment(home), **variables, "XDG_STATE_HOME": str(home.parent / "state")}
        policy = project / ".licet" / "licet.yaml"
        sure([licet, "init", "--preset", "coding", "--yes"], project, environment)
        completed(policy, grants=[f"network:tcp:{model.url.removeprefix('http://')}"], env=list(variables))
        sure([licet, "trust", "--yes"], project, environment)
        command = [licet, "run", "--", agent.name, *arguments(agent, PROMPT, model)]
        ended = settled(command, project, environment)
        if asked := re.search(r"licet approvals approve (a-\w+)", ended[2]):
            sure([licet, "approvals", "approve", asked[1], "--yes"], project, environment)
            ended = settled(command, project, environment)
        return session_of(model, ended)


def completed(policy: Path, **adds: Sequence[str]) -> None:
    """Add entries to lists under `capabilities`."""
    document: dict[str, Any] = yaml.safe_load(policy.read_text("utf-8"))
    held: dict[str, Any] = document["capabilities"]
    for key, values in adds.items():
        held[key] = [*(held.get(key) or ()), *values]
    policy.write_text(json.dumps(document, indent=1), "utf-8")
    give(policy.parent)


def sure(command: Sequence[str], project: Path, environment: Mapping[str, str]) -> None:
    """Run a command that must succeed, and is not the one that is looked at."""
    code, out, err = settled(command, project, environment)
    assert code == 0, (command[1:], out, err)
