"""The riskiest thing comes first: one order for rules, tools, agents and changes."""

from typing import Any

import pytest
from msgspec.structs import replace

from core.manifests import HERE, manifest, tool
from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.terms import Budget, Natives
from licet.core.review.diff import diff
from licet.core.review.risk import NOTHING, RISK_LEVELS, RISKS, at_least, grant_risks, riskiest, rule_risk
from licet.core.review.surface import surface

RULES = {
    "network:*:*": "everything",
    "network:read:*": "everything",
    "network:*:*:443": "delete",
    "network:*:*.example": "delete",
    "network:delete:a.example": "delete",
    "network:write:a.example": "network_write",
    "network:tcp:a.example:22": "network_write",
    "network:*:other@a.example": "network_write",
    "network:read:a.example": "network_read",
    "network:https:head@a.example": "network_read",
    "fs:read:/": "everything",
    "fs:*:/srv": "delete",
    "fs:delete:/srv/a": "delete",
    "fs:write:/srv": "file_write",
    "fs:read:/srv": "file_read",
    "fs:read:~/.ssh": "key_file",
    "fs:read:/home/me/.ssh/id_rsa": "key_file",
    "fs:read:${workdir}/.env": "key_file",
    "fs:read:/etc/shadow": "key_file",
    "fs:read:${workdir}/.env.example": "file_read",
    "fs:read:~/notes": "file_read",
    "fs:write:~/.ssh": "file_write",
    "process:exec:*": "everything",
    "process:exec:git": "program",
    "secret:read:*": "everything",
    "secret:read:a/*": "secret",
    "env:read:*": "everything",
    "env:read:HOME": "other",
    "storage:*:*": "other",
    "tool:call:*": "other",
    "connector:use:*": "other",
}


@pytest.mark.parametrize(("rule", "kind"), RULES.items(), ids=list(RULES))
def test_the_risk_of_a_rule(rule: str, kind: str) -> None:
    assert rule_risk(Capability(rule)).kind == kind


@pytest.mark.parametrize(
    ("rules", "native", "kinds"),
    [
        ((), False, ["nothing"]),
        ((), True, ["native"]),
        (("fs:read:/a", "secret:read:K"), False, ["secret", "file_read"]),
        (("secret:read:K", "network:read:a.example"), False, ["secret_network", "secret", "network_read"]),
        (("fs:read:~/.ssh", "network:read:a.example"), False, ["secret_network", "key_file", "network_read"]),
        (("fs:write:~/.ssh", "network:read:a.example"), False, ["file_write", "network_read"]),
        (("env:read:K", "network:read:a.example"), False, ["network_read", "other"]),
        (("fs:read:/", "fs:delete:/a"), True, ["native", "everything", "delete"]),
    ],
)
def test_a_grant_has_all_its_risks_riskiest_first(rules: tuple[str, ...], native: bool, kinds: list[str]) -> None:
    assert [risk.kind for risk in grant_risks(CapabilitySet(rules), native=native)] == kinds


def test_the_levels_follow_the_order() -> None:
    places = [RISK_LEVELS.index(risk.level) for risk in RISKS]
    assert places == sorted(places)
    assert set(places) == set(range(len(RISK_LEVELS)))
    assert [risk.rank for risk in RISKS] == list(range(len(RISKS)))
    assert riskiest(()) is NOTHING
    assert riskiest(RISKS[::-1]) is RISKS[0]


@pytest.mark.parametrize(
    ("kind", "level", "expected"),
    [("native", "critical", True), ("delete", "critical", False), ("delete", "high", True), ("nothing", "low", False)],
)
def test_a_level_includes_the_levels_above_it(kind: str, level: str, expected: bool) -> None:
    assert at_least(next(risk for risk in RISKS if risk.kind == kind), level) is expected


def test_an_agent_is_as_risky_as_its_riskiest_tool_and_that_tool_is_shown_first() -> None:
    tools = tool("a", "fs:read:/a"), tool("b", "fs:write:/a", effect="write_limited"), tool("c", "env:read:K")
    shown = surface(manifest(*tools, allows=["fs:*:/a", "env:read:K"], max_effect="write_limited"))
    assert shown.risk.kind == "file_write"
    assert [one.name for one in shown.riskiest_first] == ["b", "a", "c"]
    assert [one.name for one in shown.tools] == ["a", "b", "c"]


NATIVE: dict[str, Any] = {"natives": (Natives(frozenset({"t"}), HERE),)}


def test_native_code_is_the_riskiest_unless_it_comes_with_licet() -> None:
    own = manifest(tool("t", sandbox="native"), **NATIVE)
    ready_made = replace(own, sources={"t": ("licet.tools:t", HERE)})
    assert surface(own).risk.kind == "native"
    assert surface(ready_made).risk.kind == "nothing"
    assert surface(own).document()["tools"][0]["risk"]["level"] == "critical"


def test_a_server_without_walls_counts_if_the_agent_has_a_tool_of_it() -> None:
    servers = {"files": {"command": ["serve"], "sandbox": "native"}}
    used = manifest(tool("files.read", "fs:read:/a"), allows=["fs:read:/a"], servers=servers)
    unused = manifest(tool("read", "fs:read:/a"), allows=["fs:read:/a"], servers=servers)
    assert surface(used).risk.kind == "native"
    assert surface(unused).risk.kind == "file_read"


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = {
    "a tool counts as all that it does": ({"needs": [], "admitted": False},
        {"needs": ["secret:read:K", "network:read:a.example"]},
        [("`t` can be called", "secret_network"), ("network:read:a.example", "secret_network"),
        ("secret:read:K", "secret_network")]),
    "a host for a tool that holds a secret": ({"needs": ["secret:read:K"]},
        {"needs": ["secret:read:K", "network:read:a.example"]}, [("network:read:a.example", "secret_network")]),
    "a file for a tool that holds a secret": ({"needs": ["secret:read:K"]}, {"needs": ["secret:read:K", "fs:read:/a"]},
        [("fs:read:/a", "file_read")]),
    "fewer checks": ({"needs": ["fs:read:/a"], "budget": Budget(1)}, {"needs": ["fs:read:/a"], "budget": Budget(2)},
        [("max_calls_per_session: 1 → 2", "checks")]),
    "a server without walls": ({"needs": []},
        {"needs": [], "servers": {"s": {"command": ["serve"], "sandbox": "native"}}}, [("server `s`", "native")]),
    "a server loses its walls, and gets a path": ({"needs": [], "servers": {"s": {"command": ["serve"]}}},
        {"needs": [], "servers": {"s": {"command": ["serve"], "sandbox": "native", "grants": ["fs:read:/b"]}}},
        [("sandbox of server `s`: null → native", "native"), ("server `s` holds fs:read:/b", "file_read")]),
    "native code": ({"needs": []}, {"needs": [], **NATIVE}, [("`t` may run in this process", "native")]),
}  # fmt: skip


def version(needs: list[str], admitted: bool = True, **given: Any) -> Any:
    held = ["secret:read:K", "network:*:a.example", "fs:*:/a"]
    tools = (tool("t", *needs),) if admitted else ()
    return manifest(*tools, allows=held, **given)


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES.values(), ids=list(CHANGES))
def test_each_change_has_its_risk_and_the_riskiest_comes_first(
    old: dict[str, Any], new: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = diff(version(**old), version(**new)).grown
    assert [(change.text, change.risk.kind) for change in found] == expected
    lost = diff(version(**new), version(**old)).shrunk
    assert {change.risk.kind for change in lost} <= {kind for _, kind in expected}
