"""The table of events in the thin client says the same as the tables of the agents."""

import importlib.util

import pytest

from licet.hooks.agents import AGENTS, NAMES
from licet.hooks.agents.dialect import DECIDING
from licet.hooks.resident_client import TELLING, decides
from licet.hooks.resident_hook import STARTS

WRITTEN = [name for name in NAMES if importlib.util.find_spec(f"licet.hooks.agents.{name}")]


@pytest.mark.parametrize("name", WRITTEN)
def test_the_client_refuses_for_the_events_that_decide(name: str) -> None:
    events = AGENTS[name].events
    expected = {event for event, about in events.items() if about.moment not in DECIDING}
    assert set(TELLING[name].split()) == expected
    assert all(decides(name, event) for event, about in events.items() if about.moment in DECIDING)


def test_the_client_hands_on_where_an_agent_was_started() -> None:
    named = {name: AGENTS[name].start.removeprefix("$") for name in WRITTEN if AGENTS[name].start.startswith("$")}
    assert {name: variable.decode() for name, variable in STARTS.items()} == named


def test_what_is_unknown_decides() -> None:
    assert decides("claude", "AnEventOfTomorrow")
    assert decides("other", "PostToolUse")
    assert TELLING.keys() == set(NAMES)
