"""Events say which call they belong to and when they happened; a result says its verdict in one word."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate, policy
from licet import Backends, Context, Gate, tool
from licet.backends.memory import MemoryClock
from licet.events import CallEvent, Event

START = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = MemoryClock(START)


@tool(needs=["fs:read:/srv"], effect="read_only", sandbox="native")
async def read(ctx: Context, path: str) -> str:
    """Read a file, after a while."""
    CLOCK.advance(2)
    return await ctx.fs.read(path)


@tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="native")
def write() -> None:
    """Write something."""


def watched(folder: Path, **capabilities: Any) -> tuple[Gate, list[Event]]:
    seen: list[Event] = []
    backends = Backends.memory(files={"/srv/a": b"hello"}, clock=CLOCK)
    allowed = {"fs_reach": {"read": ["/srv"], "write": ["/srv"]}, **capabilities}
    return Gate(
        policy(folder, read, write, **allowed), [read, write], backends, workdir=folder, observers=[seen.append]
    ), seen


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "allowed": ("read", {"path": "/srv/a"}),
    "refused inside": ("read", {"path": "/etc/x"}),
    "refused before": ("read", {"path": 7}),
    "unknown": ("nothing", {}),
}


@pytest.mark.parametrize("case", CALLS)
def test_each_event_names_its_call_and_its_time(tmp_path: Path, case: str) -> None:
    at, seen = watched(tmp_path)
    result = call(at, *CALLS[case], session="s-9")
    assert seen
    assert list(result.events) == seen
    for event in (*seen, *result.events):
        assert isinstance(event, CallEvent)
        assert (event.agent, event.session, event.receipt) == ("tester", "s-9", result.receipt)
        assert event.time is not None
        assert event.time >= START
        assert 0 <= event.duration_ms <= result.duration_ms


def test_the_time_of_an_event_is_when_it_happened(tmp_path: Path) -> None:
    at, seen = watched(tmp_path)
    before = CLOCK.now()
    call(at, "read", {"path": "/srv/a"})
    (checked,) = [event for event in seen if event.capability == "fs:read:/srv/a"]
    assert checked.time == before + timedelta(seconds=2)
    assert checked.duration_ms == 2000


VERDICTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "allow": ("read", {"path": "/srv/a"}, {}),
    "deny": ("read", {"path": "/srv/a"}, {"budget": {"max_calls_per_session": 0}}),
    "ask": ("write", {}, {"approvals": {"write": "session"}}),
    "failed": ("read", {"path": "/srv/nothing"}, {}),
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_verdict_of_a_result(tmp_path: Path, verdict: str) -> None:
    name, arguments, more = VERDICTS[verdict]
    at, _ = watched(tmp_path, **more)
    assert call(at, name, arguments).verdict == verdict


def test_an_argument_that_does_not_fit_is_no_verdict_of_the_policy(tmp_path: Path) -> None:
    assert call(gate(tmp_path, read, fs_reach={"read": ["/srv"]}), "read", {"path": 7}).verdict == "failed"
