"""Pickled results and refusals: they have the same text in another process."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate
from licet import Backends, Context, Result, tool
from licet.errors import Refused


@tool(needs=["fs:read:*", "network:https:*"], effect="read_only", sandbox="native")
async def look(ctx: Context, path: str) -> str:
    """Read a file."""
    return await ctx.fs.read(path)


@tool(needs=["network:https:*"], effect="read_only", sandbox="native")
async def get(ctx: Context, url: str) -> str:
    """Fetch a page."""
    return (await ctx.fetch(url)).text


@tool(needs=[], effect="read_only", sandbox="native")
async def fail() -> None:
    """Fail."""
    raise ValueError("no")


@tool(needs=["fs:write:/srv/notes"], effect="write_limited", sandbox="native")
async def change(ctx: Context) -> None:
    """Write a file."""
    await ctx.fs.write("/srv/notes/a", "Sun")


CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a value": ("look", {"path": "/srv/notes/a"}, "ALLOWED"),
    "a path that is refused": ("look", {"path": "/etc/passwd"}, "PATH_NOT_REACHABLE"),
    "a host that is refused": ("get", {"url": "https://api.stripe.com/"}, "HOST_NOT_ALLOWED"),
    "a port that is refused": ("get", {"url": "https://api.weather.gov:444/"}, "HOST_NOT_ALLOWED"),
    "an error of the tool": ("fail", {}, "TOOL_FAILED"),
    "wrong arguments": ("look", {"path": 7}, "INPUT_INVALID"),
    "a tool that nobody knows": ("nobody", {}, "UNKNOWN_TOOL"),
    "what a person must agree to": ("change", {}, "APPROVAL_REQUIRED"),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda one: pickle.loads(pickle.dumps(one)),
    "pickled as before": lambda one: pickle.loads(pickle.dumps(one, 2)),
    "twice": lambda one: pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(one)))),
    "a copy": copy.deepcopy,
}


def outcome(folder: Path, name: str) -> Result:
    backends = Backends.memory(files={"/srv/notes/a": b"Rain"})
    allowed = {
        "fs_reach": {"read": ["/srv/notes"], "write": ["/srv/notes"]},
        "destinations": {"allow": ["api.weather.gov:443"]},
        "approvals": {"write": "session"},
    }
    tool_name, arguments, reason = CALLS[name]
    result = call(gate(folder, look, get, fail, change, backends=backends, **allowed), tool_name, arguments)
    assert result.reason == reason
    return result


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.sampled(12)
def test_a_carried_result_explains_like_the_original(
    tmp_path: Path, name: str, copied: Callable[[Result], Result]
) -> None:
    result = outcome(tmp_path, name)
    again = copied(result)
    assert again.explain() == result.explain()
    assert again.events == result.events
    for part in ("ok", "tool", "value", "code", "reason", "error", "receipt", "cost_usd", "layers", "duration_ms"):
        assert getattr(again, part) == getattr(result, part)
    if result.ok:
        assert again.unwrap() == result.unwrap()
        return
    with pytest.raises(Refused) as here:
        result.unwrap()
    with pytest.raises(Refused) as there:
        again.unwrap()
    assert str(there.value) == str(here.value)
    assert there.value.explain() == here.value.explain()
    assert (there.value.code, there.value.use) == (here.value.code, here.value.use)
