"""What becomes of sessions and calls of coding agents that are not ended, and of gates whose policy has changed."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from attacks.programs import until
from hooks.coding_agents import POLICY, Claude, Project, verdict
from hooks.installation import Installation
from hooks.residents import stopped
from licet.hooks import agent_sessions
from licet.hooks.agent_sessions import AgentSession, AgentSessions
from licet.hooks.answering import service_alone
from licet.hooks.limits import RECENT_SECONDS, SESSION_DAYS, UNKNOWN_AFTER_SECONDS

DAY = 86400


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return Project(tmp_path)


def read(project: Project, session: str) -> None:
    """A call whose end nobody reports."""
    asyncio.run(Claude(project, session).before("Read", file_path=f"{project.root}/a.txt"))


def directory(session: str) -> Path:
    sessions = AgentSessions()
    return sessions.directory / AgentSession("claude", session, "", None).place


def idle(session: str, seconds: float) -> None:
    """Let the last event of a session be so long ago."""
    when = time.time() - seconds
    os.utime(directory(session), (when, when))


def aged(session: str, seconds: float) -> None:
    """Let the open calls of a session be so old."""
    for call in (directory(session) / "calls").iterdir():
        when, _, tail = call.name.partition("-")
        call.rename(call.with_name(f"{int(when) - int(seconds * 1e6):020d}-{tail}"))


# Sessions -------------------------------------------------------------------------------------------------------------


def test_a_session_is_not_forgotten_while_it_has_events(project: Project) -> None:
    read(project, "long")
    idle("long", (SESSION_DAYS - 1) * DAY)
    read(project, "long")
    assert time.time() - directory("long").stat().st_mtime < DAY


def test_a_session_without_events_is_forgotten_and_its_calls_are_closed_first(project: Project) -> None:
    read(project, "gone")
    idle("gone", (SESSION_DAYS + 1) * DAY)
    read(project, "new")
    assert not directory("gone").exists()
    (receipt,) = project.receipts()
    assert (receipt["session"], receipt["coding_agent"]["end"]) == ("claude/gone", "unknown")


def test_of_too_many_sessions_none_is_forgotten_that_had_an_event_lately(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sessions, "MOST_SESSIONS", 1)
    for name in ("old", "recent"):
        read(project, name)
    idle("old", RECENT_SECONDS + 60)
    read(project, "new")
    assert [directory(name).exists() for name in ("old", "recent", "new")] == [False, True, True]


# Calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["SessionStart", "PreToolUse"])
def test_the_start_of_a_session_closes_the_old_calls_of_all(project: Project, event: str) -> None:
    read(project, "crashed")
    aged("crashed", UNKNOWN_AFTER_SECONDS + 60)
    read(project, "young")
    if event == "SessionStart":
        asyncio.run(Claude(project, "young").tell("SessionStart", source="resume"))
    ended = [(one["session"], one["coding_agent"]["end"]) for one in project.receipts()]
    assert ended == [("claude/crashed", "unknown")]


def test_a_call_whose_policy_cannot_be_used_stays_open_until_it_can(project: Project) -> None:
    read(project, "crashed")
    aged("crashed", UNKNOWN_AFTER_SECONDS + 60)
    project.write_policy(POLICY.replace("1000", "2000"), accept=False)
    asyncio.run(Claude(project, "next").tell("SessionStart", source="startup"))
    assert project.receipts() == []
    project.write_policy(POLICY)
    asyncio.run(Claude(project, "next").tell("SessionStart", source="startup"))
    assert [one["session"] for one in project.receipts()] == ["claude/crashed"]


def test_a_resident_tidies_from_time_to_time(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"LOOK_SECONDS": 0.01, "UPKEEP_EVERY_SECONDS": 0.02}
    installed = Installation(tmp_path / "it", START_SECONDS=60, HOOK_SECONDS=100, **limits)
    installed.hook()
    until(lambda: (installed.home / "tidied").exists() and len((installed.home / "tidied").read_bytes()) > 5)
    stopped(installed)


# Gates ----------------------------------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_gate_that_was_replaced_is_closed(project: Project) -> None:
    async def session() -> tuple[int, int]:
        answering = service_alone()
        claude, found = Claude(project, answering=answering), []
        for number in range(12):
            project.write_policy(POLICY.replace("1000", str(1000 + number % 2)))
            printed = await claude.before("Read", file_path=f"{project.root}/a.txt")
            assert verdict(printed)[0] == "silent"
            found.append(descriptors())
        await answering.close()
        return found[1], found[-1]

    first, last = asyncio.run(session())
    assert last <= first


def test_a_gate_is_not_closed_while_something_uses_it(project: Project) -> None:
    from licet.hooks.agent_gate import AgentGates
    from licet.hooks.agents import agent_named
    from licet.hooks.policy_choice import choose, read_policies

    gates, choice = AgentGates(), choose(str(project.root), read_policies())
    closed: list[str] = []
    with gates.held():
        used = gates.find(choice, agent_named("claude"), str(project.root))
        used.backends = Closing(used.backends, closed)  # type: ignore[assignment]
        project.write_policy(POLICY.replace("1000", "1001"))
        assert gates.find(choice, agent_named("claude"), str(project.root)) is not used
        assert closed == []
    assert closed == ["closed"]
    gates.close()


class Closing:
    """Says when it is closed."""

    def __init__(self, backends: Any, said: list[str]) -> None:
        self._backends, self._said = backends, said

    def close(self) -> None:
        self._said.append("closed")
        self._backends.close()
