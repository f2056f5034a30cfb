"""Misfits in receipts, a reload that fails, and optional needs. The rest is in cases/misfits.yaml."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate, policy
from guard.tools import quiet
from licet import Backends, CapabilitySet, Gate, Malformed, Manifest, tool
from licet.backends.memory import MemoryLedger
from licet.cli.receipts_text import explanation


def test_every_misfit_of_a_call_is_an_event_in_its_receipt(tmp_path: Path) -> None:
    needs = ["network:*:api.stripe.com", "env:read:A"]
    t = tool(needs=needs, effect="write_limited", sandbox="native", name="t")(quiet.fn)
    ledger = MemoryLedger()
    manifest = policy(tmp_path, t, max_side_effect_class="read_only")
    at = Gate(manifest, [t], Backends.memory(ledger=ledger), workdir=tmp_path, on_misfit="deny")
    result = call(at, "t", {"path": "a"})
    (entry,) = [json.loads(row.body) for row in ledger.rows]
    assert (entry["verdict"], entry["reason"]) == ("deny", "SIDE_EFFECT_EXCEEDED")
    assert entry["arguments"].startswith("sha256:")
    assert (entry["budget"], entry["sandbox"]["layers"]) == (None, [])
    told = [(one["capability"], one["reason"]) for one in entry["events"] if one["kind"] == "CapabilityDenied"]
    assert told == [
        ("tool:call:t", "SIDE_EFFECT_EXCEEDED"),
        ("env:read:A", "ENV_NOT_ALLOWED"),
        ("network:*:api.stripe.com", "HOST_NOT_ALLOWED"),
    ]
    said = list(explanation(entry))
    assert said[0] == "denied: `t` may not be called"
    assert "  to allow it   see `licet explain MANIFEST t`" in said
    assert result.explain().count("to allow it") == 3


def test_a_reload_with_an_unusable_manifest_denies_every_call_and_those_of_delegates(tmp_path: Path) -> None:
    t = tool(needs=["env:read:A"], effect="read_only", sandbox="native", name="t")(quiet.fn)
    at = gate(tmp_path, t, env=["A"])
    protect = at.protect

    def broken(manifest: Manifest, tools: Any) -> Any:
        raise OSError("a disk is gone")

    async def run() -> list[str]:
        async with at.session("s") as session:
            before = session.delegate(agent="helper", allow=["env:read:A"])
            at.protect = broken
            with pytest.raises(OSError, match="a disk is gone"):
                at.reload(policy(tmp_path, t, env=["A"]))
            after = session.delegate(agent="helper", allow=["env:read:A"])
            return [(await one.call("t")).reason for one in (session, before, after)]

    assert asyncio.run(run()) == ["MANIFEST_CHANGED"] * 3
    assert at.not_admitted == ("t",)
    at.protect = protect
    at.reload(policy(tmp_path, t, env=["A"]))
    assert call(at, "t").ok


def test_optional_needs_are_part_of_the_definition() -> None:
    def fn() -> None:
        """Do nothing."""

    plain, more = tool(needs=["env:read:A"])(fn), tool(needs=["env:read:A"], optional=["env:read:B"])(fn)
    moved, by_keys = tool(needs=["env:read:A", "env:read:B"])(fn), tool(capabilities={}, optional=["env:read:B"])(fn)
    assert len({one.digest for one in (plain, more, moved, by_keys)}) == 4
    assert plain.digest == tool(needs=["env:read:A"], optional=[])(fn).digest
    assert (str(more.needs), str(more.optional), str(by_keys.optional)) == ("env:read:A", "env:read:B", "env:read:B")
    assert "env:read:B (optional)" in repr(more)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"optional": ["env:read:A"]}, "does not say what it touches"),
        ({"needs": [], "optional": "env:read:A"}, "a list of rules such as `fs:read:/srv/data` as `optional`"),
        ({"needs": [], "optional": [1]}, "in `optional`"),
        ({"needs": [], "optional": {"env": ["A"]}}, "as `optional`"),
        ({"needs": [], "optional": CapabilitySet([], ["env:read:A"])}, "optional without denies"),
        ({"needs": [], "optional": ["env:write:A"]}, "read"),
    ],
)
def test_optional_needs_are_rules(given: dict[str, Any], said: str) -> None:
    def fn() -> None: ...

    with pytest.raises((TypeError, Malformed), match=said):
        tool(**given)(fn)
