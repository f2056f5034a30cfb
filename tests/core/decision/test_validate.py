"""Registration and calls agree: a tool without misfits gets everything it needs."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core import oracle
from core.manifests import HERE, admission, layer, manifest, manifests, tool
from core.naive import DOMAINS, EFFECT_OF
from core.strategies import rules_of, sets_of
from licet.core.algebra.rules import Capability, Use
from licet.core.decision.decide import decide
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Request
from licet.core.decision.validate import Misfit, validate_registration, validate_tools
from licet.core.policy.layer import Layer
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Budget, Natives
from licet.core.policy.tool import ToolSpec
from licet.errors import RegistrationRefused

LAYERED = tuple(domain for domain in DOMAINS if domain != "connector")


@st.composite
def _fittings(draw: st.DrawFn) -> tuple[str, Manifest]:
    """A tool with needs of one domain, under one or two layers of that domain."""
    domain = draw(st.sampled_from(("network", "network", "fs", *LAYERED)))
    kinds = ("manifest", "workspace")
    found = draw(st.lists(sets_of(domain), min_size=1, max_size=2))
    layers = [
        layer([rule.text for rule in one.allow], [rule.text for rule in one.deny], kind)
        for one, kind in zip(found, kinds, strict=False)
    ]
    needs = [rule.text for rule in draw(st.lists(rules_of(domain), min_size=1, max_size=4))]
    spec = tool("t", *needs, effect=draw(st.sampled_from(("full", "write_limited", "read_only"))))
    return domain, manifest(spec, layers=tuple(layers), max_effect="full", budget=Budget(9))


def fits(need: Capability, domain: str, layers: tuple[Layer, ...]) -> bool:
    """The definition of a misfit, evaluated on every use of a small universe."""
    if need.scope == "*" or (need.domain == "network" and need.scope in EFFECT_OF):
        return True
    held = [use for use in oracle.all_uses(domain) if oracle.covers(need, use)]
    covered = all(oracle.layer_allows(one, use) for one in layers for use in held)
    denied = all(any(oracle.layer_denies(one, use) for one in layers) for use in held)
    return covered and not denied


@given(_fittings())
@settings(max_examples=settings().max_examples * 2)
def test_a_misfit_is_a_need_that_allows_do_not_cover_or_a_deny_covers_completely(fitting: tuple[str, Manifest]) -> None:
    domain, policy = fitting
    spec = policy.tools["t"]
    found = {misfit.capability for misfit in validate_registration(spec, policy)}
    if oracle.denied(policy, "t"):
        assert found == {"tool:call:t"}
        return
    expected = {str(need) for need in spec.needs.allow if not fits(need, domain, policy.layers)}
    assert found == expected


@given(_fittings())
def test_a_tool_without_misfits_is_refused_only_by_its_class_by_denies_and_where_it_defers(
    fitting: tuple[str, Manifest],
) -> None:
    domain, policy = fitting
    spec = policy.tools["t"]
    fitting_needs = [need for need in spec.needs.allow if not need.defers and fits(need, domain, policy.layers)]
    reach = reach_of(policy, "t")
    if oracle.denied(policy, "t"):
        assert reach is None
        return
    assert reach is not None
    assert reach.effect is not None
    for use in oracle.all_uses(domain):
        if not any(oracle.covers(need, use) for need in fitting_needs):
            continue
        permitted = oracle.class_permits(reach.effect, use, oracle.names_tcp(policy, use))
        denied = any(oracle.layer_denies(one, use) for one in policy.layers)
        verdict = decide(Request("t", (use,)), policy).verdict
        assert (verdict == "deny") == (denied or not permitted), use


@given(manifests)
@settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))  # random manifests take minutes to shrink
def test_a_tool_that_fits_can_be_called(policy: Manifest) -> None:
    for name, spec in policy.tools.items():
        misfits = validate_registration(spec, policy)
        reach = reach_of(policy, name)
        callable_ = reach is not None and not reach.grounds
        assert callable_ or misfits
        assert {misfit.tool for misfit in misfits} <= {name}
        assert all(misfit.capability and misfit.message for misfit in misfits)


# By hand --------------------------------------------------------------------------------------------------------------


def test_misfits_are_data() -> None:
    policy = manifest(tool("t"), allows=["network:*:*.github.com"])
    (misfit,) = validate_registration(tool("t", "network:*:api.github.com", "network:*:api.stripe.com"), policy)
    assert misfit == Misfit(
        "t",
        "network",
        "network:*:api.stripe.com",
        "needs network:*:api.stripe.com, which the manifest does not allow (agent.yaml:1)",
    )
    assert misfit.fix == "add `api.stripe.com` under `capabilities.destinations.allow` in agent.yaml"
    assert str(misfit) == f"t: {misfit.message}; to allow it: {misfit.fix}"


def test_all_misfits_of_all_tools_come_together() -> None:
    policy = manifest(tool("a"), tool("b"), allows=["env:read:A"])
    found = validate_tools([tool("a", "env:read:B", "env:read:C"), tool("b", "env:read:A"), tool("c")], policy)
    assert [(misfit.tool, misfit.capability) for misfit in found] == [
        ("a", "env:read:B"),
        ("a", "env:read:C"),
        ("c", "tool:call:c"),
    ]


def test_a_name_that_is_taken_twice_is_refused() -> None:
    policy = manifest(tool("a"))
    (misfit,) = validate_tools([tool("a"), tool("a")], policy)
    assert misfit == Misfit("a", "tool", "tool:call:a", "`a` is declared twice")


def test_no_tools_are_no_misfits() -> None:
    assert validate_tools([], manifest()) == ()


def test_a_decorated_tool_is_judged_by_its_declaration() -> None:
    import licet

    @licet.tool(capabilities={"network": {"allowedHosts": ["api.github.com", "api.stripe.com"]}}, effect="read_only")
    def fetch() -> None:
        """Fetch."""

    decorated: Any = fetch
    policy = manifest(tool("fetch"), allows=["network:*:*.github.com"])
    assert [misfit.capability for misfit in validate_registration(decorated, policy)] == [
        "sandbox",
        "network:*:api.stripe.com",
    ]
    assert validate_tools([decorated], policy) == validate_registration(decorated, policy)


def test_from_personality_is_never_a_misfit() -> None:
    import licet

    @licet.tool(capabilities={"fs_reach": {"read": "from-personality"}}, effect="read_only", sandbox="restricted")
    def read_file() -> None:
        """Read."""

    decorated: Any = read_file
    for allows in ([], ["fs:read:/srv"], ["fs:read:*"]):
        assert validate_registration(decorated, manifest(tool("read_file"), allows=allows)) == ()


def test_validating_does_not_change_the_manifest() -> None:
    policy = manifest(tool("t", "env:read:A"), allows=["env:read:A"])
    before = dict(policy.tools)
    validate_registration(tool("t", "env:read:B"), policy)
    validate_registration(tool("u"), policy)
    assert dict(policy.tools) == before
    assert decide(Request("t", (Use("env:read:A"),)), policy).verdict == "allow"


def test_a_refused_registration_has_every_misfit() -> None:
    policy = manifest(tool("t"))
    misfits = validate_registration(tool("t", "env:read:B", "env:read:C", effect="full"), policy)
    with pytest.raises(RegistrationRefused) as refusal:
        raise RegistrationRefused(misfits)
    assert refusal.value.misfits == misfits
    assert str(refusal.value).splitlines() == [str(misfit) for misfit in misfits]
    assert len(misfits) == 4


NAMED = (Natives(frozenset({"t"}), HERE),)
STANDING: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    # the tool, the manifest, the capabilities of the misfits
    ({"effect": None}, {}, ["side_effect_class"]),
    ({"sandbox": None}, {}, ["sandbox"]),
    ({"effect": "write_limited"}, {}, ["side_effect_class write_limited"]),
    ({"effect": "full"}, {"max_effect": "full"}, ["side_effect_class"]),
    ({"effect": "full"}, {"max_effect": "full", "budget": Budget(1)}, []),
    ({"sandbox": "native"}, {}, ["sandbox native"]),
    ({"sandbox": "native"}, {"natives": NAMED}, []),
    ({"sandbox": "native", "effect": "full"}, {"max_effect": "full", "natives": NAMED, "budget": Budget(1)},
        ["sandbox native"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "policy", "expected"), STANDING)
def test_a_wrong_class_or_level_of_the_tool_is_a_misfit(
    spec: dict[str, Any], policy: dict[str, Any], expected: list[str]
) -> None:
    one: ToolSpec = replace(tool("t"), **spec)
    found = validate_registration(one, manifest(tool("t"), **policy))
    assert [misfit.capability for misfit in found] == expected


def test_a_bundle_narrows_what_fits() -> None:
    narrowing = layer(["network:*:a.example"], kind="bundle", silent=frozenset(DOMAINS) - {"network"})
    policy = manifest(
        tool("t"),
        allows=["network:*:*.example", "env:read:A"],
        admissions={"t": (admission(bundle="b", layer=narrowing),)},
    )
    spec = tool("t", "network:*:a.example", "network:*:b.example", "env:read:A")
    assert [misfit.capability for misfit in validate_registration(spec, policy)] == ["network:*:b.example"]


APART = "keep the two apart, as with `--state`: no rule opens what licet protects"
KEPT: list[tuple[list[str], list[str], str, str]] = [
    # denied in a file, protected by licet, the expected message, and the expected fix
    ([], ["fs:*:/a"], "needs fs:read:/a/b, but kept", APART),
    ([], ["fs:*:/a", "fs:read:/a/b"], "needs fs:read:/a/b, but kept", APART),
    (["fs:read:/a"], ["fs:*:/a/b/c"], "needs fs:read:/a/b, denied by fs:read:/a (agent.yaml:50)",
        "remove `fs:read:/a` from `deny` in agent.yaml"),
    (["fs:read:/a"], ["fs:*:/a"], "needs fs:read:/a/b, but kept", APART),
]  # fmt: skip


@pytest.mark.parametrize(("denied", "kept", "expected", "fix"), KEPT)
def test_paths_that_licet_protects_are_reported_without_a_rule_of_a_file(
    denied: list[str], kept: list[str], expected: str, fix: str
) -> None:
    own = layer([], kept, "protected paths", silent=frozenset(DOMAINS))
    own = replace(own, denies=tuple(replace(rule, key="kept") for rule in own.denies))
    policy = manifest(tool("t"), layers=(layer(["fs:read:/a"], denied), own))
    (misfit,) = validate_registration(tool("t", "fs:read:/a/b"), policy)
    assert (misfit.message, misfit.fix) == (expected, fix)
