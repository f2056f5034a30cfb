"""A deny of `tool:call` wins over every bundle and list, and every surface says so."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from licet import Backends, Gate, Manifest, run, tool, validate_registration
from licet.cli.app import licet
from licet.core.decision.reach import reach_of
from licet.core.policy.manifest import admit_commands
from licet.core.review.diff import diff
from licet.core.review.surface import surface


@tool(needs=[], effect="read_only", sandbox="native")
def hi() -> int:
    """Say hi."""
    return 1


@tool(needs=[], effect="read_only", sandbox="native")
def other() -> int:
    """Say something else."""
    return 2


BOTH = {"tools": ["hi", "other"], "native": ["hi", "other"]}
BUNDLED = {"bundles": ["b"], "native": ["hi", "other"]}
BUNDLES = {"bundles": {"b": {"tools": ["hi", "other"]}}}
PERSONALITY = {"id": "p", "toolset": ["hi", "other"], "native": ["hi", "other"]}
Part = Mapping[str, Any]
# The capabilities, the workspace, the personality; what is denied; the tools that nobody can call.
DENIES: dict[str, tuple[Part, Part | None, Part | None, str, tuple[str, ...]]] = {
    "one tool": ({**BOTH, "deny": ["tool:call:hi"]}, None, None, "tool:call:hi", ("hi",)),
    "every tool": ({**BOTH, "deny": ["tool:call:*"]}, None, None, "tool:call:*", ("hi", "other")),
    "one of a bundle": ({**BUNDLED, "deny": ["tool:call:hi"]}, BUNDLES, None, "tool:call:hi", ("hi",)),
    "by the personality": (BOTH, None, {**PERSONALITY, "deny": ["tool:call:hi"]}, "tool:call:hi", ("hi",)),
    "beside a personality": ({**BOTH, "deny": ["tool:call:hi"]}, None, PERSONALITY, "tool:call:hi", ("hi",)),
    "beside a grant": (
        {**BOTH, "grants": ["tool:call:hi"], "deny": ["tool:call:hi"]},
        None,
        None,
        "tool:call:hi",
        ("hi",),
    ),
}


@pytest.mark.parametrize("case", DENIES)
def test_a_denied_tool_is_not_admitted(case: str) -> None:
    capabilities, workspace, personality, rule, closed = DENIES[case]
    policy = Manifest.from_data({"agent": "a", "capabilities": capabilities}, workspace, personality)
    gate = Gate(policy, [hi, other], Backends.memory())
    assert gate.not_admitted == closed
    assert not gate.misfits
    for one in (hi, other):
        result = run(gate, one.name)
        assert result.ok == (one.name not in closed)
    refused = run(gate, "hi")
    assert refused.reason == "TOOL_NOT_IN_BUNDLE"
    assert f"denied by {rule}" in refused.explain()
    assert f"remove `{rule}` from" in refused.explain()
    assert not run(gate.delegated("helper", ["tool:call:*"]), "hi").ok
    shown = {one.name: one for one in surface(policy.declare([hi.spec, other.spec])).tools}
    assert tuple(name for name, one in shown.items() if one.standing == "blocked") == closed
    undeclared = {one.name: one for one in surface(policy).tools}
    assert tuple(name for name, one in undeclared.items() if one.standing == "blocked") == closed
    assert [misfit.capability for misfit in validate_registration(hi, policy)] == ["tool:call:hi"]


def test_a_denied_tool_without_its_function_is_denied() -> None:
    policy = Manifest.from_data({"agent": "a", "capabilities": {**BOTH, "deny": ["tool:call:hi"]}})
    assert run(Gate(policy, [other], Backends.memory()), "hi").reason == "TOOL_NOT_IN_BUNDLE"


def test_removing_a_deny_of_a_tool_is_a_widening() -> None:
    old, new = (
        Manifest.from_data({"agent": "a", "capabilities": {**BOTH, "deny": deny}}).declare([hi.spec, other.spec])
        for deny in (["tool:call:hi"], [])
    )
    assert diff(old, new).grown
    assert not diff(new, old).grown


def test_commands_are_denied_with_every_tool_and_not_with_a_tool_called_run() -> None:
    spec = replace(hi.spec, name="run")
    for deny, runs in (("tool:call:run", True), ("tool:call:*", False)):
        capabilities = {"process": {"allowed_binaries": ["git"]}, "max_side_effect_class": "full", "deny": [deny]}
        policy = Manifest.from_data({"agent": "a", "capabilities": capabilities})
        assert (surface(policy).commands is not None) == runs
        assert (reach_of(admit_commands(policy, "run").declare([spec]), "run") is not None) == runs


def test_check_and_explain_agree_about_a_denied_tool(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(
        'agent: desk\ntools: {read_file: {from: "licet.tools:read_file"}}\n'
        "bundles: {b: {tools: [read_file], sandbox: restricted, side_effect_class: read_only}}\n"
        'capabilities:\n  bundles: [b]\n  fs_reach: {read: ["${workdir}"]}\n  deny: ["tool:call:read_file"]\n'
    )
    runner = CliRunner()
    assert runner.invoke(licet, ["check", str(file)]).exit_code == 0
    explained = runner.invoke(licet, ["explain", str(file), "read_file"])
    assert explained.exit_code == 1
    assert "denied by tool:call:read_file" in explained.output
    assert "agent.yaml:7" in explained.output
