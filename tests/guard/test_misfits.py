"""Tools that do not fit their manifest: refused at build, narrowed, or denied call by call; and what reloads change."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from licet import (
    Backends,
    CapabilitySet,
    Context,
    Gate,
    Malformed,
    Manifest,
    Refused,
    RegistrationRefused,
    Result,
    Tool,
    tool,
    validate_registration,
)
from licet.backends.memory import MemoryLedger
from licet.cli.receipts_text import explanation
from licet.core.decision.decision import CapabilityDenied
from licet.guard.ports import Answer, Question
from licet.guard.registration import OnMisfit

from .gates import call, gate, policy

RAN: list[str] = []


def declared(needs: list[str] | None, **stated: Any) -> Tool:
    """A tool `t` that notes when it runs."""

    @tool(**{"needs": needs, "effect": "read_only", "sandbox": "native", "name": "t", **stated})
    async def t(ctx: Context, path: str = "") -> str:
        """Note that it ran."""
        RAN.append("t")
        return "ran"

    return t


# What the tool is, what the manifest says more: the category, the capability, the code of a denial, part of the fix.
MISFITS: dict[str, tuple[Tool, dict[str, Any], tuple[str, str, str, str]]] = {
    "network": (
        declared(["network:*:api.stripe.com"]),
        {},
        ("network", "network:*:api.stripe.com", "HOST_NOT_ALLOWED", "`capabilities.destinations.allow`"),
    ),
    "a deny": (
        declared(["network:*:api.stripe.com"]),
        {"destinations": {"allow": ["*.stripe.com"], "deny": ["api.stripe.com"]}},
        ("network", "network:*:api.stripe.com", "HOST_NOT_ALLOWED", "remove `api.stripe.com`"),
    ),
    "secrets": (
        declared(["secret:read:KEY"]),
        {"secrets": ["OTHER"]},
        ("secrets", "secret:read:KEY", "SECRET_NOT_DECLARED", "`capabilities.secrets`"),
    ),
    "storage": (
        declared(["storage:*:personality"]),
        {},
        ("storage", "storage:*:personality", "STORAGE_NOT_DECLARED", "`capabilities.grants`"),
    ),
    "fs_reach": (
        declared(["fs:read:/srv/data"]),
        {"fs_reach": {"read": ["/srv/data/open"]}},
        ("fs_reach", "fs:read:/srv/data", "PATH_NOT_REACHABLE", "`capabilities.fs_reach.read`"),
    ),
    "process": (
        declared(["process:exec:git"]),
        {},
        ("process", "process:exec:git", "BINARY_NOT_ALLOWED", "`capabilities.process.allowed_binaries`"),
    ),
    "env": (declared(["env:read:A"]), {}, ("env", "env:read:A", "ENV_NOT_ALLOWED", "`capabilities.env`")),
    "connector": (
        declared([], connector="github"),
        {},
        ("connector", "connector:use:github", "CONNECTOR_NOT_ALLOWED", "connectors"),
    ),
    "side_effect_class": (
        declared([], effect="write_limited"),
        {"max_side_effect_class": "read_only"},
        ("side_effect_class", "side_effect_class write_limited", "SIDE_EFFECT_EXCEEDED", "max_side_effect_class"),
    ),
    "sandbox": (
        declared([]),
        {"native": []},
        ("sandbox", "sandbox native", "NATIVE_NOT_ALLOWED", "`capabilities.native`"),
    ),
    "arguments": (
        declared([]),
        {"tools": {"t": {"args": {"pth": {"enum": ["a"]}}}}},
        ("arguments", "args.pth", "ARGUMENT_NOT_ALLOWED", "`path`"),
    ),
}
NEEDS = [case for case in MISFITS if MISFITS[case][0].needs and case != "connector"]


@pytest.mark.parametrize("case", MISFITS)
def test_a_misfit_names_its_reason_its_capability_and_the_fix(tmp_path: Path, case: str) -> None:
    t, given, (category, capability, _, fix) = MISFITS[case]
    with pytest.raises(RegistrationRefused) as refusal:
        gate(tmp_path, t, **given)
    (misfit,) = refusal.value.misfits
    assert (misfit.tool, misfit.category, misfit.capability) == ("t", category, capability)
    assert fix in misfit.fix
    assert misfit.message
    if case != "arguments":  # which only a function tells
        assert validate_registration(t, policy(tmp_path, t, **given)) == (misfit,)


class Spied:
    """Memory backends that count questions and reservations."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.backends = Backends.memory(approver=self._answer)

    async def _answer(self, question: Question) -> Answer:
        self.asked.append(question)
        return "approved"

    def calls(self, agent: str = "tester") -> int:
        """How many calls the budgets of a session have seen."""
        budgets = self.backends.budgets
        assert budgets is not None
        usage = asyncio.run(budgets.usage(agent, "s", "2000-01-01"))
        return usage.calls


@pytest.mark.parametrize("case", MISFITS)
def test_a_call_that_does_not_fit_is_denied_before_anything_happens(tmp_path: Path, case: str) -> None:
    t, given, (_, capability, reason, fix) = MISFITS[case]
    spied = Spied()
    more = {"approvals": {"write": "call"}, "budget": {"max_calls_per_session": 5}, **given}
    at = Gate(policy(tmp_path, t, **more), [t], spied.backends, workdir=tmp_path, on_misfit="deny")
    assert [misfit.capability for misfit in at.misfits] == [capability]
    RAN.clear()
    result = call(at, "t", {"path": "a"})
    assert (result.reason, result.code) == (reason, "denied")
    assert (RAN, spied.asked, spied.calls()) == ([], [], 0)
    assert result.receipt
    assert fix in result.explain()
    assert "agent.yaml" in result.explain()
    assert "agent.yaml" not in result.error
    (event,) = [one for one in result.events if isinstance(one, CapabilityDenied)]
    assert event.reason == reason
    if ":" in capability:
        assert capability in result.error
        assert event.capability == capability


def test_every_misfit_of_a_call_is_an_event_in_its_receipt(tmp_path: Path) -> None:
    t = declared(["network:*:api.stripe.com", "env:read:A"], effect="write_limited")
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


@pytest.mark.parametrize("arguments", [{"path": 1}, {"other": "x"}, "text"])
def test_invalid_arguments_do_not_hide_misfits(tmp_path: Path, arguments: Any) -> None:
    t = declared(["env:read:A"])
    at = Gate(policy(tmp_path, t), [t], Backends.memory(), workdir=tmp_path, on_misfit="deny")
    assert call(at, "t", arguments).reason == "ENV_NOT_ALLOWED"


def test_a_gate_that_denies_misfits_still_runs_the_tools_that_fit(tmp_path: Path) -> None:
    t, fine = declared(["env:read:A"]), declared(["env:read:B"], name="fine")
    at = Gate(policy(tmp_path, t, fine, env=["B"]), [t, fine], Backends.memory(), workdir=tmp_path, on_misfit="deny")
    assert call(at, "fine").ok
    assert asyncio.run(at.session("s").available()) == ["fine"]


def test_one_name_twice_is_refused_in_every_mode(tmp_path: Path) -> None:
    t = declared([])
    modes: tuple[OnMisfit, ...] = ("refuse", "narrow", "deny")
    for mode in modes:
        with pytest.raises(RegistrationRefused, match="declared twice"):
            Gate(policy(tmp_path, t), [t, t], workdir=tmp_path, on_misfit=mode)


def test_each_difference_between_a_tool_and_its_declaration_is_a_misfit(tmp_path: Path) -> None:
    t = declared(["env:read:A"], effect="write_limited", cost_usd="2", connector="github")
    said = {"t": {"needs": [], "effect": "read_only", "sandbox": "restricted", "cost_usd": 1}}
    (tmp_path / "licet.yaml").write_text(f"tools: {said}\nconnectors: {{tenant_allowlist: [github]}}\n")
    manifest = policy(tmp_path, t, env=["A"], connectors=["github"])
    at = Gate(manifest, [t], Backends.memory(), workdir=tmp_path, on_misfit="deny")
    assert {(one.category, one.capability) for one in at.misfits} == {
        ("connector", "connector:use:github"),
        ("env", "env:read:A"),
        ("side_effect_class", "side_effect_class write_limited"),
        ("sandbox", "sandbox native"),
        ("tool", "tool:call:t"),
    }
    assert not call(at, "t").ok


# Reload ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["refuse", "deny"])
@pytest.mark.parametrize("case", NEEDS)
@pytest.mark.sampled(6)
def test_a_reload_that_takes_something_away_denies_calls_from_then_on(tmp_path: Path, case: str, mode: Any) -> None:
    t, given, (_, capability, reason, _) = MISFITS[case]
    wide: dict[str, Any] = {"grants": [str(rule) for rule in t.needs]}
    at = Gate(policy(tmp_path, t, **wide), [t], Backends.memory(), workdir=tmp_path, on_misfit=mode)
    assert call(at, "t").ok
    narrower = policy(tmp_path, t, **given)
    with pytest.raises(RegistrationRefused) as refusal:
        at.reload(narrower)
    assert [one.capability for one in refusal.value.misfits] == [capability]
    assert at.manifest is narrower
    assert call(at, "t").reason == reason


@pytest.mark.parametrize("mode", ["refuse", "narrow", "deny"])
def test_a_reload_that_drops_a_tool_refuses_its_calls(tmp_path: Path, mode: Any) -> None:
    t, kept = declared(["env:read:A"]), declared([], name="kept")
    at = Gate(policy(tmp_path, t, kept, env=["A"]), [t, kept], Backends.memory(), workdir=tmp_path, on_misfit=mode)
    assert not at.not_admitted
    at.reload(policy(tmp_path, kept))
    assert at.not_admitted == ("t",)
    assert call(at, "t").reason == "TOOL_NOT_IN_BUNDLE"
    assert call(at, "kept").ok


def test_a_reload_narrows_where_the_gate_does(tmp_path: Path) -> None:
    t = declared(["env:read:A"])
    manifest = policy(tmp_path, t, env=["A"])
    at = Gate(manifest, [t], Backends.memory(), workdir=tmp_path, on_misfit="narrow")
    at.reload(policy(tmp_path, t))
    assert call(at, "t").ok  # it holds nothing, and asks for nothing
    with pytest.raises(RegistrationRefused, match="pth"):  # a rule that would stop nothing cannot be narrowed
        at.reload(policy(tmp_path, t, tools={"t": {"args": {"pth": {"enum": ["a"]}}}}))
    assert call(at, "t").reason == "ARGUMENT_NOT_ALLOWED"
    at.reload(manifest)
    assert call(at, "t").ok


def test_all_misfits_are_reported_after_a_reload(tmp_path: Path) -> None:
    t, u = declared(["env:read:A", "env:read:B"]), declared(["secret:read:K"], name="u")
    at = gate(tmp_path, t, u, env=["A", "B"], secrets=["K"])
    with pytest.raises(RegistrationRefused) as refusal:
        at.reload(policy(tmp_path, t, u))
    told = [(one.tool, one.capability) for one in refusal.value.misfits]
    assert told == [("t", "env:read:A"), ("t", "env:read:B"), ("u", "secret:read:K")]
    assert refusal.value.misfits == at.misfits


def test_a_reload_with_an_unusable_manifest_denies_every_call(tmp_path: Path) -> None:
    t = declared([])
    at = gate(tmp_path, t)
    protect = at.protect

    def broken(manifest: Manifest, tools: Any) -> Any:
        raise OSError("a disk is gone")

    at.protect = broken
    with pytest.raises(OSError, match="a disk is gone"):
        at.reload(policy(tmp_path, t))
    assert call(at, "t").reason == "MANIFEST_CHANGED"
    assert at.not_admitted == ("t",)
    at.protect = protect
    at.reload(policy(tmp_path, t))
    assert call(at, "t").ok


def test_one_list_of_tools_serves_several_agents(tmp_path: Path) -> None:
    t, u = declared(["env:read:A"]), declared(["network:*:a.example"], name="u")
    for own, other in ((t, u), (u, t)):
        place = tmp_path / own.name
        place.mkdir()
        manifest = policy(place, own, env=["A"], destinations={"allow": ["a.example"]})
        at = Gate(manifest, [t, u], Backends.memory(), workdir=place)
        assert at.not_admitted == (other.name,)
        assert call(at, own.name).ok
        assert call(at, other.name).reason == "TOOL_NOT_IN_BUNDLE"
        (misfit,) = validate_registration(other, manifest)
        assert (misfit.category, misfit.capability) == ("tool", f"tool:call:{other.name}")


# Delegates ------------------------------------------------------------------------------------------------------------


def delegated(at: Gate, tool: str, *allow: str, before: Callable[[], None] = lambda: None) -> Result:
    """One call by a delegate."""

    async def run() -> Result:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=allow)
            before()
            return await child.call(tool)

    return asyncio.run(run())


HELD: dict[str, tuple[list[str], list[str], str]] = {
    "all of it": (["env:read:A"], ["env:read:A"], "ALLOWED"),
    "nothing": (["env:read:A"], [], "ENV_NOT_ALLOWED"),
    "something else": (["env:read:A"], ["env:read:B", "fs:*:*"], "ENV_NOT_ALLOWED"),
    "one of two": (["env:read:A", "secret:read:K"], ["env:read:A"], "SECRET_NOT_DECLARED"),
    "a part": (["fs:read:/srv"], ["fs:read:/srv/data"], "ALLOWED"),
    "the other action": (["fs:read:/srv"], ["fs:write:/srv"], "PATH_NOT_REACHABLE"),
    "one method": (["network:*:a.example"], ["network:https:get@a.example"], "ALLOWED"),
    "another host": (["network:*:a.example"], ["network:*:b.example"], "HOST_NOT_ALLOWED"),
    "a need that defers": (["env:read:*"], [], "ALLOWED"),
    "its own storage": (["storage:*:session"], [], "ALLOWED"),
    "the storage of the personality": (["storage:*:personality"], [], "STORAGE_NOT_DECLARED"),
}
WHOLE: dict[str, Any] = {
    "env": ["A", "B"],
    "secrets": ["K"],
    "fs_reach": {"read": ["/srv"], "write": ["/srv"]},
    "destinations": {"allow": ["a.example", "b.example"]},
    "storage": ["personality"],
}


@pytest.mark.parametrize("mode", ["refuse", "narrow", "deny"])
@pytest.mark.parametrize("case", HELD)
@pytest.mark.sampled(5)
def test_a_tool_is_denied_to_a_delegate_that_holds_nothing_of_what_it_needs(
    tmp_path: Path, case: str, mode: Any
) -> None:
    needs, allow, reason = HELD[case]
    t = declared(needs)
    at = Gate(policy(tmp_path, t, **WHOLE), [t], Backends.memory(), workdir=tmp_path, on_misfit=mode)
    RAN.clear()
    result = delegated(at, "t", *allow)
    assert result.reason == reason
    assert (len(RAN) == 1) == result.ok
    if not result.ok:  # the advice works
        need = needs[-1]
        assert need in result.error
        assert f"add `{need}` to `allow` where the parent delegates" in result.explain()
        assert delegated(at, "t", *allow, need).ok


def test_writing_a_directory_is_one_need_although_it_takes_two_rules(tmp_path: Path) -> None:
    reach: dict[str, Any] = {"fs_reach": {"write": ["/srv"]}}
    t = declared(None, capabilities=reach, effect="write_limited")
    at = gate(tmp_path, t, **reach)
    assert delegated(at, "t", "fs:write:/srv/out").ok
    assert delegated(at, "t", "fs:read:/srv").reason == "PATH_NOT_REACHABLE"


def test_what_is_denied_to_a_parent_is_denied_to_its_delegates(tmp_path: Path) -> None:
    t = declared(["fs:read:/srv"])
    manifest = policy(tmp_path, t, fs_reach={"read": ["/srv/data"]})
    at = Gate(manifest, [t], Backends.memory(), workdir=tmp_path, on_misfit="deny")
    assert call(at, "t").reason == "PATH_NOT_REACHABLE"
    assert delegated(at, "t", "fs:read:/srv/data").reason == "PATH_NOT_REACHABLE"
    assert delegated(at, "t", "fs:read:/srv").reason == "PATH_NOT_REACHABLE"


def test_a_delegate_follows_a_reload_that_takes_something_away(tmp_path: Path) -> None:
    t = declared(["env:read:A"])
    at = gate(tmp_path, t, env=["A"])

    def narrower() -> None:
        with pytest.raises(RegistrationRefused):
            at.reload(policy(tmp_path, t))

    assert delegated(at, "t", "env:read:A").ok
    assert delegated(at, "t", "env:read:A", before=narrower).reason == "ENV_NOT_ALLOWED"
    at.reload(policy(tmp_path, t, env=["A"]))

    def broken() -> None:
        def fail(manifest: Manifest, tools: Any) -> Any:
            raise OSError("a disk is gone")

        at.protect = fail
        with pytest.raises(OSError, match="a disk"):
            at.reload(policy(tmp_path, t, env=["A"]))

    assert delegated(at, "t", "env:read:A", before=broken).reason == "MANIFEST_CHANGED"
    assert delegated(at, "t", "env:read:A").reason == "MANIFEST_CHANGED"


# Optional needs -------------------------------------------------------------------------------------------------------


@tool(
    needs=["env:read:A"],
    optional=["env:read:B", "secret:read:K", "storage:*:session"],
    effect="read_only",
    sandbox="native",
)
async def either(ctx: Context) -> list[str]:
    """Use what there is."""
    await ctx.kv.set("a", 1)
    found = [name for name in ("A", "B") if _allowed(lambda name=name: ctx.env.get(name))]  # type: ignore[misc]
    try:
        await ctx.secrets.get("K")
        found.append("K")
    except Refused:
        pass
    return found


def _allowed(use: Callable[[], object]) -> bool:
    try:
        use()
    except Refused:
        return False
    return True


USED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing more": ({"env": ["A"]}, ["A"]),
    "one of them": ({"env": ["A", "B"]}, ["A", "B"]),
    "another": ({"env": ["A"], "secrets": ["K"]}, ["A", "K"]),
    "all": ({"env": ["*"], "secrets": ["*"]}, ["A", "B", "K"]),
}


@pytest.mark.parametrize("mode", ["refuse", "narrow", "deny"])
@pytest.mark.parametrize("case", USED)
def test_a_call_holds_the_allowed_part_of_optional_needs(tmp_path: Path, case: str, mode: Any) -> None:
    given, found = USED[case]
    backends = Backends.memory(environ={"A": "1", "B": "2"}, secrets={"K": "v"})
    at = Gate(policy(tmp_path, either, **given), [either], backends, workdir=tmp_path, on_misfit=mode)
    assert not at.misfits
    assert call(at, "either").value == found


def test_a_delegate_may_lack_optional_needs(tmp_path: Path) -> None:
    backends = Backends.memory(environ={"A": "1", "B": "2"}, secrets={"K": "v"})
    at = gate(tmp_path, either, backends=backends, env=["A", "B"], secrets=["K"])
    assert delegated(at, "either", "env:read:A").value == ["A"]
    assert delegated(at, "either", "env:read:A", "secret:read:K").value == ["A", "K"]
    assert delegated(at, "either", "env:read:B", "secret:read:K").reason == "ENV_NOT_ALLOWED"


BEHIND: dict[str, tuple[dict[str, Any], str]] = {
    "nothing is given of it": ({"env": ["A"]}, "ALLOWED"),
    "some is given": ({"env": ["A"], "secrets": ["K"]}, "BACKEND_MISSING"),
}


@pytest.mark.parametrize("case", BEHIND)
def test_a_granted_optional_need_needs_a_backend(tmp_path: Path, case: str) -> None:
    given, reason = BEHIND[case]
    backends = Backends.memory(environ={"A": "1"}, secrets=None)
    assert call(gate(tmp_path, either, backends=backends, **given), "either").reason == reason


def test_a_tool_may_not_touch_more_than_its_declaration_even_optionally(tmp_path: Path) -> None:
    said = {"either": {"needs": ["env:read:A"], "optional": ["env:read:B", "storage:*:session"], "effect": "read_only"}}
    (tmp_path / "licet.yaml").write_text(f"tools: {said}\n")
    manifest = policy(tmp_path, either, env=["A", "B"], secrets=["K"])
    with pytest.raises(RegistrationRefused, match="secret:read:K, which its declaration does not say"):
        Gate(manifest, [either], Backends.memory(), workdir=tmp_path)
    backends = Backends.memory(environ={"A": "1", "B": "2"}, secrets={"K": "v"})
    at = Gate(manifest, [either], backends, workdir=tmp_path, on_misfit="narrow")
    assert call(at, "either").value == ["A", "B"]


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
