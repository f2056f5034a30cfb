"""The decision about a call: what the design says, the same every time, and a denial when anything goes wrong."""

import copy
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core import oracle
from core.liars import Broken, Liar
from core.manifests import HERE, NAMES, admission, layer, manifest, manifests, tool
from core.naive import DOMAINS
from core.strategies import PlainSet, domains, rules_of, sets_of
from core.tables import grouped
from effort import LONG
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decide import decide
from licet.core.decision.decision import (
    Allow,
    Ask,
    CapabilityDenied,
    CapabilityGranted,
    Decision,
    Deny,
    events,
    explain,
)
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Approval, Request, Usage
from licet.core.policy.connector import ConnectorRef
from licet.core.policy.layer import CLASSES, LEVELS, Layer, Rule
from licet.core.policy.manifest import Manifest, document
from licet.core.policy.terms import WRITE_APPROVALS, Admission, Approvals, Budget, MaxEffect, Roster, StandingApproval
from licet.core.values import Origin
from licet.errors import Refused

EVERY_USE = tuple(use for domain in DOMAINS for use in oracle.all_uses(domain))
uses = st.integers(0, len(EVERY_USE) - 1).map(EVERY_USE.__getitem__)  # a list so long would be printed whole
names = st.sampled_from(NAMES)
STEP = 7 if LONG else 29  # between the uses of one domain, where the rules of a decision are looked at
UNSHRUNK = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))  # random manifests take minutes to shrink


def layer_of(found: PlainSet, kind: str, *, by_fs_reach: bool = False) -> Layer:
    """A layer with the rules and denies of a small set."""
    allows, denies = [rule.text for rule in found.allow], [rule.text for rule in found.deny]
    return layer(allows, denies, kind, by_fs_reach=by_fs_reach)


@st.composite
def _callable(draw: st.DrawFn, personality: bool = True) -> tuple[Manifest, tuple[Use, ...]]:
    """A manifest with rules of one domain whose tool `one` can usually be called, and every use of that domain."""
    domain = draw(domains)
    layers = [layer_of(draw(sets_of(domain)), "manifest", by_fs_reach=draw(st.booleans()))]
    if personality and draw(st.booleans()):
        layers.append(layer_of(draw(sets_of(domain)), "personality", by_fs_reach=draw(st.booleans())))
    needs = draw(st.one_of(st.just([f"{domain}:*:*"]), st.lists(rules_of(domain).map(lambda rule: rule.text))))
    spec = tool("one", *needs, effect=draw(st.sampled_from(CLASSES)), sandbox=draw(st.sampled_from(LEVELS[:2])))
    policy = manifest(
        spec,
        layers=tuple(layers),
        max_effect=draw(st.sampled_from(("destructive", "destructive", *CLASSES))),
        approvals=Approvals(draw(st.sampled_from(WRITE_APPROVALS)), delete=draw(st.sampled_from(WRITE_APPROVALS))),
        pinned=draw(st.sampled_from(("licet.lock", ""))),
        standing=draw(st.sampled_from((GIVEN, None))),
        budget=draw(st.sampled_from((Budget(5), Budget(5), Budget(0), Budget()))),
    )
    return policy, oracle.all_uses(domain)


GIVEN = StandingApproval("a-1", "", ("terminal",), ("fs:delete:*",), 0)
Questions = tuple[Manifest, tuple[Use, ...]]
VERDICTS = ("deny", "ask", "allow")


def as_values(decision: Decision) -> Any:
    """The parts of a decision as plain values that can be compared."""
    reason = decision.reason if isinstance(decision, Deny) else ""
    return decision.verdict, reason, decision.request, decision.rules


# Against the oracle ---------------------------------------------------------------------------------------------------


@given(_callable())
def test_a_call_comes_to_what_the_design_says(questions: Questions) -> None:
    policy, several = questions
    for use, expected in oracle.verdicts(policy, "one", several).items():
        assert decide(Request("one", (use,)), policy).verdict == expected, use


@st.composite
def _deleting(draw: st.DrawFn) -> Manifest:
    """A manifest whose tool `one` may delete files, by `fs_reach.write` and by `grants`, each with denies."""
    path = st.sampled_from(("/a", "/a/b", "/a/b/a", "/b"))
    ceilings = ("manifest", "personality")[: draw(st.integers(1, 2))]
    layers = []
    for kind in ceilings:
        written, granted = draw(st.lists(path, max_size=2)), draw(st.lists(path, min_size=1, max_size=2))
        denied = draw(st.lists(path, max_size=1))
        own = layer([f"fs:delete:{path}" for path in written], kind=kind, by_fs_reach=True)
        other = layer([f"fs:*:{path}" for path in granted], [f"fs:delete:{path}" for path in denied])
        layers.append(replace(own, allows=(*own.allows, *other.allows), denies=other.denies))
    return manifest(
        tool("one", "fs:*:*", effect=draw(st.sampled_from(("full", "full", "full", *CLASSES))), sandbox="isolated"),
        layers=tuple(layers),
        max_effect="destructive",
        approvals=Approvals("manifest", delete=draw(st.sampled_from(("manifest", *WRITE_APPROVALS)))),
        pinned=draw(st.sampled_from(("licet.lock", "licet.lock", "licet.lock", ""))),
        standing=draw(st.sampled_from((GIVEN, GIVEN, GIVEN, None))),
        budget=Budget(5),
    )


FILES = tuple(use for use in oracle.all_uses("fs") if use.action != "read")


@given(_deleting())
def test_a_delete_comes_to_what_the_design_says(policy: Manifest) -> None:
    for use, expected in oracle.verdicts(policy, "one", FILES).items():
        assert decide(Request("one", (use,)), policy).verdict == expected, use


@given(_deleting())
def test_free_deletes_are_held_and_asked_about_at_most_once(policy: Manifest) -> None:
    reach = reach_of(policy, "one")
    assert reach is not None
    assert reach.free_deletes <= reach.grant
    assert not reach.free_deletes or reach.delete_approval in ("session", "manifest")
    assert reach.delete_approval != "manifest" or policy.standing is not None
    approved = Approval(policy.digest, "one", "s-1", deletes=reach.asks_deletes)
    for use in filter(reach.free_deletes.has, FILES):
        answer = decide(Request("one", (use,), "s-1"), policy, Usage(approved=frozenset({approved})))
        assert answer.verdict == ("ask" if reach.effect == "destructive" else "allow")


@given(manifests)
@UNSHRUNK
def test_any_call_comes_to_what_the_design_says(policy: Manifest) -> None:
    for name in NAMES:
        reach = reach_of(policy, name)
        admitted = name in policy.tools and name in policy.admissions
        assert (reach is not None) == (admitted and not oracle.denied(policy, name))
        assert (reach is not None and not reach.grounds) == oracle.callable_at_all(policy, name)
        if reach is not None and not reach.grounds:
            for use, expected in oracle.verdicts(policy, name, EVERY_USE).items():
                assert decide(Request(name, (use,)), policy).verdict == expected, use


@given(_callable(), st.randoms(use_true_random=False))
def test_several_uses_are_refused_if_one_of_them_is(questions: Questions, random: Random) -> None:
    policy, several = questions
    alone = {use: decide(Request("one", (use,)), policy).verdict for use in several}
    for _ in range(20):
        chosen = tuple(random.choices(several, k=3))
        worst = min((alone[use] for use in chosen), key=VERDICTS.index)
        assert decide(Request("one", chosen), policy).verdict == worst


@given(_callable())
def test_what_is_allowed_is_inside_the_needs_and_every_layer(questions: Questions) -> None:
    policy, several = questions
    reach = reach_of(policy, "one")
    for use in several:
        if decide(Request("one", (use,)), policy).verdict != "deny":
            assert reach is not None
            assert reach.spec.needs.has(use)
            assert reach.grant.has(use)
            assert reach.permitted.has(use)
            assert all(one.allowed.has(use) for one in policy.layers)


@given(_callable(personality=False), st.data())
def test_a_personality_only_ever_narrows(questions: Questions, data: st.DataObject) -> None:
    policy, several = questions
    second = layer_of(data.draw(sets_of(several[0].domain)), "personality")
    personality = replace(
        policy,
        layers=(second,),
        max_effects=(MaxEffect(data.draw(st.sampled_from(CLASSES)), HERE, stated=True),),
        admissions={"one": (admission(approval=data.draw(st.sampled_from(WRITE_APPROVALS))),)},
        personality="p",
    )
    both = policy.meet(personality)
    for use in several:
        request = Request("one", (use,), "s", "sha256:x")
        together = decide(request, both)
        for alone in (decide(request, policy), decide(request, personality)):
            # Where less is held, less may have to be asked about; nothing more may be had.
            assert together.verdict == "deny" or alone.verdict != "deny"
            if isinstance(together, Ask) and isinstance(alone, Ask) and not together.use and not alone.use:
                assert bool(together.approval.arguments) >= bool(alone.approval.arguments)


# The same every time --------------------------------------------------------------------------------------------------


@given(manifests, names, uses)
@UNSHRUNK
def test_deciding_again_changes_nothing(policy: Manifest, name: str, use: Use) -> None:
    before = document(policy)
    request = Request(name, (use,))
    first = as_values(decide(request, policy))
    for other in (*NAMES, f"{name}*", "", "*"):
        decide(Request(other, (use,)), policy)
    assert as_values(decide(request, policy)) == first
    assert document(policy) == before


@given(_callable())
def test_an_equal_manifest_decides_alike(questions: Questions) -> None:
    policy, several = questions
    again = replace(policy, layers=tuple(replace(one) for one in policy.layers))
    assert again == policy
    for use in several[::STEP]:
        assert as_values(decide(Request("one", (use,)), again)) == as_values(decide(Request("one", (use,)), policy))


def test_a_name_that_resembles_a_tool_is_not_that_tool() -> None:
    policy = manifest(tool("t", effect="write_limited"), max_effect="write_limited")
    narrowed = policy.declare([], narrow=True)
    assert decide(Request("t"), narrowed).verdict == "allow"
    for name in ("t*", "T", "t ", " t", "t\0", "", "*", "tool:call:t"):
        for one in (policy, narrowed):
            decision = decide(Request(name), one)
            assert isinstance(decision, Deny)
            assert decision.reason == "UNKNOWN_TOOL"


def test_decisions_do_not_change() -> None:
    policy = manifest(tool("t", "env:read:A"), allows=["env:read:A"])
    allow, deny = decide(Request("t"), policy), decide(Request("t", (Use("env:read:B"),)), policy)
    ask = decide(Request("w"), manifest(tool("w", "fs:write:*"), allows=["fs:write:/a"], max_effect="full"))
    for decision in (allow, deny, ask):
        changed: Any = decision
        with pytest.raises((AttributeError, TypeError)):
            changed.request = Request("other")
        with pytest.raises((AttributeError, TypeError)):
            changed.verdict = "allow"
        assert copy.copy(decision).verdict == copy.deepcopy(decision).verdict == decision.verdict


# An error is a denial -------------------------------------------------------------------------------------------------


class Failing:
    """An object whose attributes raise, except for those that Python itself needs."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError("no")


GOOD = manifest(
    tool("t", "env:read:A", cost_usd=Decimal(1)), allows=["env:read:A"], budget=Budget(5, Decimal(5), Decimal(5), 5)
)


def good_but(**parts: Any) -> Any:
    """The good manifest with fields of wrong types."""
    return replace(GOOD, **parts)


def good_tool_but(**parts: Any) -> Any:
    """The good tool with fields of wrong types."""
    return replace(GOOD.tools["t"], **parts)


def asked(*parts: Any) -> Any:
    """A request with fields of any type."""
    return Request(*parts)


def spent(**parts: Any) -> Any:
    """Usage with fields of any type."""
    return Usage(**parts)


BROKEN_REQUESTS: list[Any] = [
    None, Failing(), "t", asked(None), asked(["t"]), asked(Broken()), asked(5), asked("t", None), asked("t", 5),
    asked("t", ("env:read:B",)), asked("t", ("env:read:*",)), asked("t", (None,)), asked("t", (Failing(),)),
    asked("t", (Use("env:read:A"), None)),
]  # fmt: skip
BROKEN_MANIFESTS: list[Any] = [
    None, Failing(), good_but(tools={"t": None}), good_but(tools={"t": Failing()}), good_but(admissions={"t": (None,)}),
    good_but(admissions={"t": None}), good_but(admissions=None), good_but(layers=None), good_but(layers=(None,)),
    good_but(budget=Failing()), good_but(connectors=None), good_but(max_effects=(None,)),
    good_but(tools={"t": good_tool_but(effect="mighty")}), good_but(tools={"t": good_tool_but(sandbox="none")}),
]  # fmt: skip
BROKEN_USAGES: list[Any] = [
    None, Failing(), spent(calls="many"), spent(calls=None), spent(calls_of_tool=None), spent(cost_usd=None),
    spent(cost_usd=Decimal("NaN")), spent(cost_usd_today=Decimal("sNaN")), spent(cost_usd_of_tool=None),
    spent(calls_today="many"),
]  # fmt: skip


def assert_denial_can_be_explained(decision: Decision) -> None:
    assert isinstance(decision, Deny)
    assert isinstance(decision.reason, str)
    assert decision.rules
    repr(decision)
    explain(decision)
    assert "\n" not in str(Refused(decision))
    assert isinstance(events(decision)[-1], CapabilityDenied)


@pytest.mark.parametrize("request_", BROKEN_REQUESTS, ids=lambda one: type(one).__name__)
def test_a_broken_request_is_denied(request_: Any) -> None:
    assert_denial_can_be_explained(decide(request_, GOOD))


@pytest.mark.parametrize("policy", BROKEN_MANIFESTS, ids=lambda one: type(one).__name__)
def test_a_broken_manifest_denies(policy: Any) -> None:
    assert_denial_can_be_explained(decide(Request("t", (Use("env:read:A"),)), policy))


@pytest.mark.parametrize("usage", BROKEN_USAGES, ids=lambda one: type(one).__name__)
def test_broken_usage_denies(usage: Any) -> None:
    assert_denial_can_be_explained(decide(Request("t", (Use("env:read:A"),)), GOOD, usage))


def test_a_failed_decision_names_the_error_class_but_not_its_message() -> None:
    class Told(Exception):
        """An error whose message is a secret."""

    class Telling(dict[str, Any]):
        def __contains__(self, _: object) -> bool:
            raise Told("the password is swordfish")

    decision = decide(Request("t"), replace(manifest(tool("t")), admissions=Telling()))
    assert as_values(decision)[:2] == ("deny", "DECISION_FAILED")
    assert [rule.text for rule in decision.rules] == ["deciding failed: Told"]
    assert decision.request == Request("t")  # the name of the tool stays for the records
    assert "swordfish" not in repr(decision) + explain(decision) + str(Refused(decision))  # type: ignore[arg-type]


def test_a_failed_decision_keeps_the_tool_name_if_it_is_text() -> None:
    assert decide(Request("t", None), GOOD).request == Request("t")  # type: ignore[arg-type]
    assert decide(asked(5), GOOD).request == decide(asked(["t"]), GOOD).request == Request("")
    assert decide(None, GOOD).request == Request("")  # type: ignore[arg-type]


def test_a_tool_name_of_a_lying_class_never_gets_another_tools_grant() -> None:
    policy = manifest(tool("t"), tool("admin", effect="full"))
    lying = decide(Request(Liar("nobody", "t")), policy)
    assert lying.verdict in ("deny", "allow")
    assert decide(Request(Liar("t", "admin")), policy).verdict != "allow"


@given(_callable())
def test_every_denial_can_be_explained(questions: Questions) -> None:
    policy, several = questions
    for use in several[::STEP]:
        decision = decide(Request("one", (use,)), policy)
        if isinstance(decision, Deny):
            assert_denial_can_be_explained(decision)


# Manifests that are made by hand --------------------------------------------------------------------------------------


def test_an_empty_manifest_reaches_nothing() -> None:
    nothing = Manifest(agent="a", origin=HERE)
    assert nothing.ceiling == CapabilitySet()
    assert decide(Request("t"), nothing).verdict == "deny"
    known = nothing.declare([tool("t", "env:read:*")])
    assert as_values(decide(Request("t"), known))[:2] == ("deny", "TOOL_NOT_IN_BUNDLE")


def test_without_a_layer_a_tool_touches_nothing() -> None:
    policy = manifest(tool("t", "env:read:*"), layers=())
    assert decide(Request("t"), policy).verdict == "allow"
    assert decide(Request("t", (Use("env:read:A"),)), policy).verdict == "deny"


def test_without_a_stated_class_a_manifest_is_read_only() -> None:
    strong = tool("t", effect="write_limited")
    policy = replace(manifest(strong), max_effects=())
    assert policy.max_effect == "read_only"
    assert as_values(decide(Request("t"), policy))[:2] == ("deny", "SIDE_EFFECT_EXCEEDED")


def test_an_admission_without_an_approval_asks_as_the_manifest_does() -> None:
    writer = tool("t", "fs:write:/a", effect="write_limited")
    given: Any = {"allows": ["fs:write:/a"], "max_effect": "write_limited", "admissions": {"t": (admission(),)}}
    for write, verdict in (("call", "ask"), ("session", "ask"), ("manifest", "allow")):
        policy = manifest(writer, approvals=Approvals(write), **given)  # type: ignore[arg-type]
        decision = decide(Request("t", (Use("fs:write:/a"),), "s", "sha256:1"), policy)
        assert decision.verdict == verdict
        if isinstance(decision, Ask):
            assert decision.approval.arguments == ("sha256:1" if write == "call" else "")


def test_narrowing_runs_a_tool_at_the_tighter_class() -> None:
    strong = tool("t", "fs:*:/a", effect="destructive", sandbox="native")
    stated = (Admission(HERE, effects=(("full", HERE),), levels=(("isolated", HERE),)),)
    policy = manifest(strong, allows=["fs:*:/a"], admissions={"t": stated}, max_effect="write_limited")
    assert decide(Request("t"), policy).verdict == "deny"
    narrowed = policy.declare([strong], narrow=True)
    reach = reach_of(narrowed, "t")
    assert reach is not None
    assert (reach.effect, reach.level, reach.grounds) == ("write_limited", "isolated", ())
    assert decide(Request("t", (Use("fs:write:/a/b"),)), narrowed).verdict == "ask"
    assert decide(Request("t", (Use("fs:delete:/a/b"),)), narrowed).verdict == "deny"
    assert decide(Request("t"), policy).verdict == "deny"  # the wider manifest did not change


def test_a_connector_is_checked_whatever_the_needs_are() -> None:
    for needs in ((), ("connector:use:*",), ("connector:use:slack",)):
        policy = manifest(tool("t", *needs, connector=ConnectorRef("slack", "1.0")))
        assert as_values(decide(Request("t"), policy))[:2] == ("deny", "CONNECTOR_NOT_ALLOWED")


# Asking ---------------------------------------------------------------------------------------------------------------

ASKING = manifest(
    tool("w", "fs:*:/a", effect="full"),
    allows=["fs:*:/a"],
    max_effect="full",
    budget=Budget(max_calls_per_session=9),
    approvals=Approvals("call"),
)


def test_an_approval_is_for_one_tool_in_one_session_under_one_manifest() -> None:
    decision = decide(Request("w", (Use("fs:write:/a/b"),), "s-1", "sha256:args"), ASKING)
    assert isinstance(decision, Ask)
    assert decision.approval == Approval(ASKING.digest, "w", "s-1", "sha256:args")


@pytest.mark.parametrize("part", ["manifest", "tool", "session", "arguments"])
def test_an_approval_that_differs_in_any_part_does_not_count(part: str) -> None:
    request = Request("w", (Use("fs:write:/a/b"),), "s-1", "sha256:args")
    exact = Approval(ASKING.digest, "w", "s-1", "sha256:args")
    assert decide(request, ASKING, Usage(approved=frozenset({exact}))).verdict == "allow"
    off = replace(exact, **{part: "other"})
    assert decide(request, ASKING, Usage(approved=frozenset({off}))).verdict == "ask"


def test_each_delete_of_a_call_needs_its_own_approval() -> None:
    one, two = Use("fs:delete:/a/1"), Use("fs:delete:/a/2")
    request = Request("w", (one, two), "s-1", "x")
    call = Approval(ASKING.digest, "w", "s-1", "x")
    agreed: frozenset[Approval] = frozenset()
    asked = []
    while isinstance(decision := decide(request, ASKING, Usage(approved=agreed)), Ask):
        asked.append(decision.approval)
        agreed |= {decision.approval}
        assert len(asked) < 5
    assert asked == [call, replace(call, use=str(one)), replace(call, use=str(two))]
    assert decision.verdict == "allow"


def test_an_approval_of_one_call_names_its_arguments() -> None:
    whole = Approval(ASKING.digest, "w", "s-1")  # of every call, if it counted
    request = Request("w", (Use("fs:write:/a/b"),), "s-1")
    assert decide(request, ASKING, Usage(approved=frozenset({whole}))).verdict == "ask"
    by_session = replace(ASKING, admissions={"w": (admission(approval="session"),)})
    agreed = Usage(approved=frozenset({Approval(by_session.digest, "w", "s-1")}))
    assert decide(request, by_session, agreed).verdict == "allow"
    assert decide(replace(request, arguments="sha256:x"), by_session, agreed).verdict == "allow"


def test_a_missing_approval_names_the_line_that_requires_it() -> None:
    loose = admission(approval="session", approval_origin=Origin("one.yaml", 2, 3))
    strict = admission(approval="call", approval_origin=Origin("two.yaml", 4, 5))
    for admissions, place in (
        ((loose, strict), "two.yaml:4"),
        ((strict, loose), "two.yaml:4"),
        ((loose,), "one.yaml:2"),
        ((admission(approval="call"),), "agent.yaml:9"),
    ):
        policy = replace(
            ASKING,
            admissions={"w": admissions},
            places={"approvals": Origin("agent.yaml", 9, 1)},
        )
        (rule,) = decide(Request("w"), policy).rules
        assert str(rule.origin) == place


# Spending -------------------------------------------------------------------------------------------------------------

PRICED = manifest(
    tool("t", cost_usd=Decimal("0.5")),
    admissions={"t": (admission(max_calls=4, max_cost_usd=Decimal(1)),)},
    budget=Budget(10, Decimal(2), Decimal(3), 20),
)
SPENT: list[tuple[Usage, str]] = grouped({
    # what was spent, and what one more call would exceed
    "": [Usage(), Usage(calls=9), Usage(calls_of_tool={"t": 3}), Usage(calls_of_tool={"u": 400}),
        Usage(cost_usd=Decimal("1.5")), Usage(cost_usd_today=Decimal("2.5")), Usage(calls_today=19),
        Usage(cost_usd_of_tool={"t": Decimal("0.5")}), Usage(cost_usd_of_tool={"u": Decimal(400)})],
    "11 would exceed max_calls_per_session 10": [Usage(calls=10)],
    "5 would exceed max_calls 4 of `t`": [Usage(calls_of_tool={"t": 4})],
    "2.01 would exceed max_cost_usd 2": [Usage(cost_usd=Decimal("1.51"))],
    "3.1 would exceed max_cost_usd_per_day 3": [Usage(cost_usd_today=Decimal("2.6"))],
    "21 would exceed max_calls_per_day 20": [Usage(calls_today=20)],
    "1.01 would exceed max_cost_usd 1 of `t`": [Usage(cost_usd_of_tool={"t": Decimal("0.51")})],
})  # fmt: skip


@pytest.mark.parametrize(("usage", "expected"), SPENT)
def test_a_call_may_spend_all_of_a_budget_and_no_more(usage: Usage, expected: str) -> None:
    decision = decide(Request("t"), PRICED, usage)
    if not expected:
        assert decision.verdict == "allow"
        return
    assert as_values(decision)[:2] == ("deny", "BUDGET_EXCEEDED")
    (rule,) = decision.rules
    assert (rule.text, rule.reason) == (expected, "BUDGET_EXCEEDED")
    whose = " of `t`" if expected.endswith(" of `t`") else ""
    assert rule.fix == f"raise `{expected.split()[3]}`{whose} in agent.yaml"


FROM_THE_START: list[tuple[Budget, int | Decimal | None, str]] = [
    # a budget, the calls of the tool or its money, and what its very first call at 0.5 would exceed
    (Budget(1, Decimal("0.5"), Decimal("0.5"), 1), 1, ""),
    (Budget(0), None, "1 would exceed max_calls_per_session 0"),
    (Budget(max_calls_per_day=0), None, "1 would exceed max_calls_per_day 0"),
    (Budget(), 0, "1 would exceed max_calls 0 of `t`"),
    (Budget(), Decimal("0.5"), ""),
    (Budget(), Decimal("0.4"), "0.5 would exceed max_cost_usd 0.4 of `t`"),
    (Budget(None, Decimal("0.4")), None, "0.5 would exceed max_cost_usd 0.4"),
    (Budget(None, None, Decimal("0.4")), None, "0.5 would exceed max_cost_usd_per_day 0.4"),
]


@pytest.mark.parametrize(("budget", "own", "expected"), FROM_THE_START)
def test_a_limit_can_refuse_the_first_call(budget: Budget, own: int | Decimal | None, expected: str) -> None:
    held = admission(max_cost_usd=own) if isinstance(own, Decimal) else admission(max_calls=own)
    policy = manifest(PRICED.tools["t"], admissions={"t": (held,)}, budget=budget)
    decisions = [decide(Request("t"), policy), decide(Request("t"), policy, Usage())]
    assert [decision.verdict for decision in decisions] == ["deny" if expected else "allow"] * 2
    if expected:
        assert [decision.rules[0].text for decision in decisions] == [expected] * 2


def test_an_exceeded_limit_names_its_line() -> None:
    places = {
        key: Origin("agent.yaml", line, 1) for line, key in enumerate(("max_calls_per_session", "max_cost_usd"), 20)
    }
    tight = Admission(Origin("two.yaml", 8, 1), max_calls=2)
    dear = Admission(Origin("three.yaml", 9, 1), max_calls=4, max_cost_usd=Decimal(2))
    admissions = (admission(max_calls=4), tight, admission(max_calls=2, max_cost_usd=Decimal(3)), dear, admission())
    policy = replace(PRICED, places=places, admissions={"t": admissions})
    for usage, place in (
        (Usage(calls=10), "agent.yaml:20"),
        (Usage(cost_usd=Decimal(2)), "agent.yaml:21"),
        (Usage(cost_usd_today=Decimal(3)), "agent.yaml:1"),
        (Usage(calls_of_tool={"t": 2}), "two.yaml:8"),  # the first that says so
        (Usage(cost_usd_of_tool={"t": Decimal(2)}), "three.yaml:9"),
    ):
        (rule,) = decide(Request("t"), policy, usage).rules
        assert str(rule.origin) == place
        assert rule.fix.endswith(f"in {place.partition(':')[0]}")


def test_the_lower_limit_of_two_files_is_named_with_its_line() -> None:
    def placed(file: str, budget: Budget, **limits: int) -> Manifest:
        keys = ("max_calls_per_session", "max_calls_per_day", "max_cost_usd", *(f"limits.{key}" for key in limits))
        places = {key: Origin(file, line, 1) for line, key in enumerate(keys, 1)}
        return manifest(budget=budget, limits=limits, places=places)

    one = placed("one.yaml", Budget(5, None, None, 9), wall_seconds=5, cpu_seconds=2, memory_mb=64)
    two = placed("two.yaml", Budget(4, Decimal(1), None, 9), wall_seconds=4, cpu_seconds=3, open_files=16, memory_mb=64)
    for met, first in ((one.meet(two), "one.yaml"), (two.meet(one), "two.yaml")):
        assert {key: place.file for key, place in met.places.items()} == {
            "max_calls_per_session": "two.yaml",
            "max_calls_per_day": first,  # both say the same
            "max_cost_usd": "two.yaml",
            "limits.wall_seconds": "two.yaml",
            "limits.cpu_seconds": "one.yaml",
            "limits.memory_mb": first,
            "limits.open_files": "two.yaml",
        }


DELEGATED: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    # what a delegation allows and denies, and what would let `t` through
    "another tool": (("tool:call:u",), (), "add `tool:call:t` to `allow` where the parent delegates"),
    "all but this one": (("tool:call:*",), ("tool:call:t",),
        "remove `tool:call:t` from `deny` where the parent delegates"),
    "another one denied": (("tool:call:u", "tool:call:v"), ("tool:call:v",),
        "add `tool:call:t` to `allow` where the parent delegates"),
}  # fmt: skip


@pytest.mark.parametrize("case", DELEGATED)
def test_a_tool_that_a_delegation_leaves_out_is_refused_with_that_reason(case: str) -> None:
    allows, denies, fix = DELEGATED[case]
    here = Origin("delegate", 0, 0)
    rules = tuple(Rule(Capability(rule), here, "allow") for rule in allows)
    denied = tuple(Rule(Capability(rule), here, "delegation.deny") for rule in denies)
    narrower = Layer("delegation", "the delegation", here, rules, denied)
    silent = Layer("delegation", "the first one", here, (Rule(Capability("env:read:A"), here, "allow"),))
    whole = manifest(tool("t"), allows=["tool:call:t"])
    policy = replace(whole, admissions={}, layers=(*whole.layers, silent, narrower))
    decision = decide(Request("t"), policy)
    assert as_values(decision)[:2] == ("deny", "TOOL_NOT_IN_BUNDLE")
    blamed = [rule for rule in decision.rules if rule.reason == "TOOL_NOT_IN_BUNDLE"]
    assert [(rule.text, rule.origin, rule.fix) for rule in blamed] == [("the delegation leaves `t` out", here, fix)]


def test_the_first_call_is_counted_as_one() -> None:
    for most, verdict in ((0, "deny"), (1, "allow")):
        assert (
            decide(Request("t"), manifest(tool("t"), admissions={"t": (admission(max_calls=most),)})).verdict == verdict
        )


def test_without_a_budget_nothing_is_counted() -> None:
    much = Usage(10**9, {"t": 10**9}, Decimal(10**9), Decimal(10**9), {"t": Decimal(10**9)}, 10**9)
    assert decide(Request("t"), manifest(tool("t", cost_usd=Decimal(9))), much).verdict == "allow"


def test_an_undeclared_cost_is_zero() -> None:
    policy = manifest(tool("t"), budget=Budget(max_cost_usd=Decimal(1)))
    assert decide(Request("t"), policy, Usage(cost_usd=Decimal(1))).verdict == "allow"
    assert decide(Request("t"), policy, Usage(cost_usd=Decimal("1.01"))).verdict == "deny"


ASKED: list[tuple[str, str, str, bool]] = [
    # the class, what the manifest says about writes, the words, and whether the file could settle it
    ("write_limited", "session", "class write_limited asks once a session", True),
    ("write_limited", "call", "class write_limited asks before each call", True),
    ("full", "session", "class full asks once a session", True),
    ("destructive", "manifest", "class destructive asks before each call", False),
    ("destructive", "session", "class destructive asks before each call", False),
]


@pytest.mark.parametrize(("effect", "write", "text", "settled"), ASKED)
def test_a_missing_approval_states_when_it_is_needed_and_the_fix(
    effect: Any, write: Any, text: str, settled: bool
) -> None:
    policy = manifest(
        tool("t", "fs:write:/a", effect=effect),
        allows=["fs:write:/a"],
        max_effect="destructive",
        approvals=Approvals(write),
        budget=Budget(5),
    )
    decision = decide(Request("t"), policy)
    assert isinstance(decision, Ask)
    rule, *more = decision.rules
    assert (rule.text, rule.reason) == (text, "APPROVAL_REQUIRED")
    assert rule.fix.startswith("approve it") if settled else rule.fix == ""
    # The approval covers writes too, so their reason is listed with it.
    both = effect == "destructive" and write != "manifest"
    assert [one.text for one in more] == (["writes ask once a session"] if both else [])
    assert decision.also == ()
    assert decision.use is None


def test_a_class_without_a_place_asks_with_the_place_of_the_manifest() -> None:
    unplaced = replace(tool("t", "fs:write:/a", effect="destructive"), origin=None)
    policy = manifest(unplaced, allows=["fs:write:/a"], max_effect="destructive", budget=Budget(5))
    decision = decide(Request("t"), policy)
    assert isinstance(decision, Ask)
    assert decision.rules[0].origin == HERE


EACH_DELETE = "approve each delete as it comes, or set `capabilities.approvals.delete: session` in agent.yaml"


def test_a_delete_that_needs_approval_is_named() -> None:
    policy = manifest(
        tool("t", "fs:delete:/a", effect="full"),
        allows=["fs:delete:/a"],
        max_effect="full",
        approvals=Approvals("manifest"),
        budget=Budget(5),
    )
    decision = decide(Request("t", (Use("fs:delete:/a/b"),)), policy)
    assert isinstance(decision, Ask)
    assert decision.use == Use("fs:delete:/a/b")
    assert [(rule.text, rule.reason, rule.fix) for rule in decision.rules] == [
        ("each delete asks at class full", "APPROVAL_REQUIRED", EACH_DELETE)
    ]


def test_call_and_delete_approvals_are_explained_together_but_asked_separately() -> None:
    policy = manifest(
        tool("t", "fs:delete:/a", effect="full"), allows=["fs:delete:/a"], max_effect="full", budget=Budget(5)
    )
    one, two = Use("fs:delete:/a/b"), Use("fs:delete:/a/c")
    of_class, of_deletes = "class full asks once a session", "each delete asks at class full"
    asked, approved = [], frozenset[Approval]()
    for _ in range(3):
        decision = decide(Request("t", (one, two)), policy, Usage(approved=approved))
        assert isinstance(decision, Ask)
        asked.append((decision.use, [rule.text for rule in decision.rules]))
        assert decision.rules[-1].fix == EACH_DELETE
        approved |= {decision.approval}
    assert asked == [(None, [of_class, of_deletes]), (one, [of_deletes]), (two, [of_deletes])]
    assert decide(Request("t", (one, two)), policy, Usage(approved=approved)).verdict == "allow"


# Events ---------------------------------------------------------------------------------------------------------------


def test_every_check_is_an_event() -> None:
    policy = manifest(tool("t", "env:read:*"), allows=["env:read:A", "env:read:B"])
    a, b, c = Use("env:read:A"), Use("env:read:B"), Use("env:read:C")
    granted = events(decide(Request("t", (a, b)), policy))
    assert [type(one) for one in granted] == [CapabilityGranted, CapabilityGranted]
    assert [one.capability for one in granted] == ["env:read:A", "env:read:B"]
    assert "env:read:A (agent.yaml:10)" in granted[0].rule

    stopped = events(decide(Request("t", (a, c, b)), policy))
    assert [type(one) for one in stopped] == [CapabilityGranted, CapabilityDenied]
    assert stopped[-1] == CapabilityDenied(
        "env:read:C", "t", "ENV_NOT_ALLOWED", "the manifest does not allow it (agent.yaml:1)"
    )


def test_a_call_without_uses_is_an_event_too() -> None:
    policy = manifest(tool("t"))
    assert [one.capability for one in events(decide(Request("t"), policy))] == ["tool:call:t"]
    (refusal,) = events(decide(Request("u"), policy))
    assert (refusal.capability, refusal.reason) == ("tool:call:u", "UNKNOWN_TOOL")


@given(_callable(), st.randoms(use_true_random=False))
def test_events_have_the_rules_of_the_decision(questions: Questions, random: Random) -> None:
    policy, several = questions
    for count in range(4):
        decision = decide(Request("one", tuple(random.choices(several, k=count))), policy)
        *before, last = events(decision)
        assert all(isinstance(one, CapabilityGranted) for one in before)
        assert isinstance(last, CapabilityGranted) == isinstance(decision, Allow)
        assert {one.tool_name for one in (*before, last)} == {"one"}


# Words ----------------------------------------------------------------------------------------------------------------


def test_a_denial_explains_itself_to_the_operator() -> None:
    policy = manifest(tool("fetch_url", "network:*:*"), allows=["network:*:*.weather.gov"])
    decision = decide(Request("fetch_url", (Use("network:https:get@api.stripe.com"),)), policy)
    assert explain(decision, reach_of(policy, "fetch_url")).splitlines() == [
        "denied: `fetch_url` may not network:https:get@api.stripe.com:443",
        "  because       the manifest does not allow it (agent.yaml:1)",
        "  tool needs    network:*:*",
        "  allowed here  network:*:*.weather.gov (agent.yaml:10)",
        "  to allow it   add `network:https:get@api.stripe.com:443` under `capabilities.grants` in agent.yaml",
    ]


def test_an_allowed_call_explains_itself() -> None:
    policy = manifest(tool("t", "env:read:*"), allows=["env:read:A"])
    assert explain(decide(Request("t", (Use("env:read:A"),)), policy)).splitlines() == [
        "allowed: `t` may env:read:A",
        "  because       `t` needs env:read:* (licet.yaml:7)",
        "  because       env:read:A (agent.yaml:10)",
    ]
    assert explain(decide(Request("t"), policy)) == "allowed: `t` may be called"


def test_a_question_explains_itself() -> None:
    said = explain(decide(Request("w"), ASKING)).splitlines()
    assert said[0] == "asks: `w` may be called once a person agrees"
    assert said[-1].startswith("  to settle it  approve it")


def test_a_long_list_of_what_is_allowed_is_cut_short() -> None:
    policy = manifest(tool("t", "env:read:*"), allows=[f"env:read:A{number}" for number in range(20)])
    decision = decide(Request("t", (Use("env:read:B"),)), policy)
    said = explain(decision, reach_of(policy, "t")).splitlines()
    assert sum("allowed here" in line for line in said) == 8
    assert any(line.endswith("and 12 more") for line in said)


def test_an_explanation_without_rules_of_the_domain_says_so() -> None:
    policy = manifest(tool("t", "fs:read:/a"))
    said = explain(decide(Request("t", (Use("env:read:B"),)), policy), reach_of(policy, "t"))
    assert "tool needs    nothing of this kind" in said
    assert "allowed here  nothing of this kind" in said


def test_names_from_outside_cannot_act_on_a_terminal() -> None:
    policy = manifest(tool("t"))
    said = explain(decide(Request("t\x1b[2J\u202e\n"), policy))
    assert said.isprintable() or all(line.isprintable() for line in said.split("\n"))
    assert len(said.split("\n")) == 3


def test_layers_with_different_rules_are_not_equal() -> None:
    rule = Rule(next(iter(CapabilitySet(["env:read:A"]))), HERE, "env")
    assert str(rule) == "env:read:A (agent.yaml:1)"
    assert Layer("manifest", "the manifest", HERE, (rule,)) == Layer("manifest", "the manifest", HERE, (rule,))
    assert layer(["env:read:A"]) != layer(["env:read:B"])
    assert MaxEffect("full", HERE, stated=True) != MaxEffect("full", HERE, stated=False)


def test_a_tool_declared_in_source_but_not_admitted_gets_the_fix_that_admits_it() -> None:
    sources = {"b": ("mod:b", Origin("licet.yaml", 3, 5))}
    roster = Roster("the manifest", HERE, "capabilities.", frozenset(), {"a": HERE}, "capabilities.tools")
    answer = decide(Request("b"), manifest(tool("a"), sources=sources, rosters=(roster,)))
    assert isinstance(answer, Deny)
    (ground,) = answer.rules
    assert (ground.reason, str(ground)) == (
        "TOOL_NOT_IN_BUNDLE",
        "`b` is in no bundle assigned to the agent `clerk` (agent.yaml:1)",
    )
    assert ground.fix == "add `b` under `capabilities.tools` in agent.yaml"
