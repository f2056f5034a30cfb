"""The surface says exactly what `decide` lets through, and everything else a reviewer asks about an agent."""

import json
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from core.manifests import HERE, admission, layer, manifest, manifests, specs, tool
from core.naive import DOMAINS, PlainUse, universe
from core.strategies import PlainSet, domains, sets
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny
from licet.core.decision.request import Request
from licet.core.policy.addresses import beyond, common_ranges
from licet.core.policy.connector import ConnectorRef, ConnectorRule, Connectors
from licet.core.policy.layer import EVERY_DOMAIN
from licet.core.policy.manifest import COMMANDS, Manifest, with_commands
from licet.core.policy.terms import Approvals, Budget, Natives
from licet.core.policy.tool import ToolSpec
from licet.core.review.surface import ToolSurface, surface
from licet.core.review.surface_entries import entries_of, target_of, ways_of


@cache
def _use(plain: PlainUse) -> Use:
    return Use(plain.text)


def only_tool(found: Manifest) -> ToolSurface:
    (shown,) = surface(found).tools
    return shown


def texts(shown: ToolSurface) -> list[str]:
    return [str(entry) for entry in shown.entries]


# What the surface promises -------------------------------------------------------------------------------------------


@given(manifests, domains)
def test_a_use_is_on_the_surface_exactly_when_a_call_with_it_is_not_denied(found: Manifest, domain: str) -> None:
    for shown in surface(found).tools:
        if shown.standing == "undeclared":
            continue
        for plain in universe(domain):
            use = _use(plain)
            denied = isinstance(decide(Request(shown.name, (use,)), found), Deny)
            assert any(entry.covers(use) for entry in shown.entries) is not denied, str(use)


@given(manifests, specs, domains)
def test_no_declaration_gives_an_undeclared_tool_more_than_its_surface(
    found: Manifest, spec: ToolSpec, domain: str
) -> None:
    found = replace(found, tools={})
    for shown in surface(found).tools:
        declared = found.declare([replace(spec, name=shown.name)])
        for plain in universe(domain):
            answer = decide(Request(shown.name, (_use(plain),)), declared)
            assert isinstance(answer, Deny) or any(entry.covers(_use(plain)) for entry in shown.entries), plain.text


@given(sets)
def test_the_entries_of_a_set_cover_exactly_its_uses(plain: PlainSet) -> None:
    entries = entries_of(plain.real)
    for domain in DOMAINS:
        for use in map(_use, universe(domain)):
            assert any(entry.covers(use) for entry in entries) is plain.real.has(use)


@given(sets, sets)
def test_sets_with_the_same_reach_have_the_same_entries(one: PlainSet, other: PlainSet) -> None:
    a, b = one.real, one.real & other.real
    assert (entries_of(a) == entries_of(b)) is (a <= b and b <= a)


@given(manifests)
def test_a_surface_is_plain_json(found: Manifest) -> None:
    document = surface(found).document()
    assert json.loads(json.dumps(document)) == document


# One tool ------------------------------------------------------------------------------------------------------------

ENTRY_CASES = {
    "a path that a deny cuts into": (["fs:*:/proj"], ["fs:write:/proj/licet.yaml", "fs:delete:/proj/licet.yaml"],
        ["fs:read:/proj", "fs:write:/proj except /proj/licet.yaml; fs:delete:/proj except /proj/licet.yaml"]),
    "a deny beside what is allowed is no exception": (["fs:read:/a"], ["fs:read:/b"], ["fs:read:/a"]),
    "what is denied whole is not there": (["fs:read:/a/b", "env:read:PATH"], ["fs:*:/a"], ["env:read:PATH"]),
    "a host without one port": (["network:https:*.x.test"], ["network:*:db.x.test:443"],
        ["network:https:*.x.test except db.x.test:443"]),
    "kinds in one order": (["connector:use:github", "tool:call:b", "storage:*:session", "env:read:A",
        "process:exec:git", "secret:read:k/*"] + ["fs:read:/a", "network:read:x.test"], [],
        ["network:read:x.test", "fs:read:/a", "secret:read:k/*", "process:exec:git", "env:read:A",
        "storage:*:session"] + ["tool:call:b", "connector:use:github"]),
}  # fmt: skip


@pytest.mark.parametrize(("allows", "denies", "expected"), ENTRY_CASES.values(), ids=list(ENTRY_CASES))
def test_what_a_tool_reaches_is_shown_with_its_exceptions(
    allows: list[str], denies: list[str], expected: list[str]
) -> None:
    everything = [f"{domain}:*:*" for domain in sorted(EVERY_DOMAIN)]
    clerk = tool("clerk", *everything, effect="full")
    budget = Budget(max_calls_per_session=9)
    lists = (ConnectorRule("github", "", HERE),)
    connectors = Connectors(lists, profiles=(lists if "connector:use:github" in allows else (),))
    found = manifest(clerk, allows=allows, denies=denies, max_effect="full", budget=budget, connectors=connectors)
    assert texts(only_tool(found)) == expected


@pytest.mark.parametrize(
    ("rule", "target", "ways"),
    [
        ("fs:*:/srv", "/srv", ("read", "write", "delete")),
        ("fs:delete:*", "*", ("delete",)),
        ("network:*:x.test", "x.test", ("any protocol",)),
        ("network:https:*.x.test:8443", "*.x.test:8443", ("https",)),
        ("network:read:https://x.test", "x.test", ("https read",)),
        ("network:http:get@x.test", "x.test", ("http get",)),
        ("network:*:delete", "*", ("delete",)),
        ("network:tcp:db.test:5432", "db.test:5432", ("tcp",)),
        ("storage:*:session", "session", ("read", "write")),
        ("process:exec:/usr/bin/git", "/usr/bin/git", ("exec",)),
        ("secret:read:github/*", "github/*", ("read",)),
    ],
)
def test_a_rule_is_split_into_a_target_and_actions(rule: str, target: str, ways: tuple[str, ...]) -> None:
    assert (target_of(Capability(rule)), ways_of(Capability(rule))) == (target, ways)


@pytest.mark.parametrize(
    ("use", "covered"),
    [
        ("fs:read:/srv/a", True),
        ("fs:write:/srv/a", True),
        ("fs:delete:/srv/a", False),
        ("fs:read:/srv/key", False),
        ("fs:read:/srv/b/old", False),
        ("fs:read:/etc", False),
        ("env:read:srv", False),
    ],
)
def test_an_entry_covers_its_actions_on_its_target_except_the_denied_parts(use: str, covered: bool) -> None:
    (entry,) = entries_of(CapabilitySet(["fs:read:/srv", "fs:write:/srv"], ["fs:*:/srv/key", "fs:*:/srv/b"]))
    assert (entry.target, entry.ways, entry.excepts) == ("/srv", ("read", "write"), ("/srv/b", "/srv/key"))
    assert entry.covers(Use(use)) is covered


def test_entries_of_one_kind_are_in_order_of_their_targets() -> None:
    rules = CapabilitySet(["fs:read:/c", "fs:read:/a", "fs:write:/b", "env:read:A"], ["fs:write:/b/x"])
    assert [str(entry) for entry in entries_of(rules)] == [
        "fs:read:/a",
        "fs:write:/b except /b/x",
        "fs:read:/c",
        "env:read:A",
    ]
    assert entries_of(rules)[0].origin is None


def test_the_document_of_a_tool() -> None:
    lines = (ConnectorRule("github", "", HERE),)
    clerk = tool(
        "clerk",
        "fs:*:/srv",
        "connector:use:github",
        effect="write_limited",
        connector=ConnectorRef("github", "2.1"),
        cost_usd=Decimal("0.50"),
    )
    found = manifest(
        clerk,
        allows=["fs:read:/srv", "fs:write:/srv"],
        denies=["fs:*:/srv/key"],
        admissions={
            "clerk": (
                admission(
                    bundle="desk", approval="call", max_calls=3, max_cost_usd=Decimal("1.50"), args={"a": {"enum": [1]}}
                ),
            )
        },
        max_effect="write_limited",
        connectors=Connectors(lines, profiles=(lines,)),
        limits={"wall_seconds": 9},
    )
    assert only_tool(found).document() == {
        "name": "clerk",
        "standing": "callable",
        "risk": {"level": "medium", "kind": "file_write", "text": "writes files"},
        "note": "",
        "grounds": [],
        "bundles": ["desk"],
        "side_effect_class": "write_limited",
        "sandbox": "restricted",
        "connector": "github@2.1",
        "cost_usd": "0.5",
        "asks": "call",
        "deletes_ask": False,
        "max_calls": 3,
        "max_cost_usd": "1.5",
        "limits": {"wall_seconds": 9},
        "args": {"a": [{"enum": [1]}]},
        "reach": {
            "paths": [
                {
                    "target": "/srv",
                    "ways": ["read", "write"],
                    "except": ["/srv/key"],
                    "rules": ["fs:read:/srv", "fs:write:/srv"],
                    "origin": "agent.yaml:10:3",
                }
            ],
            "connectors": [
                {
                    "target": "github",
                    "ways": ["use"],
                    "except": [],
                    "rules": ["connector:use:github"],
                    "origin": "agent.yaml:1:1",
                }
            ],
        },
        "description": None,
        "takes": None,
        "reuse": False,
        "origin": "licet.yaml:7:3",
    }


def test_the_document_of_a_tool_with_few_terms() -> None:
    document = only_tool(manifest(ToolSpec("clerk", CapabilitySet()))).document()
    assert document["standing"] == "blocked"
    assert {
        document[key] for key in ("side_effect_class", "sandbox", "connector", "cost_usd", "asks", "max_calls")
    } == {None}
    assert document["origin"] == "agent.yaml:5:5", "where it is admitted, if its declaration has no place"
    ground = document["grounds"][0]
    assert ground.pop("fix").startswith('add `effect="read_only"` to the tool')
    assert ground == {
        "reason": "SIDE_EFFECT_EXCEEDED",
        "text": "no class is stated for `clerk`",
        "origin": None,
    }


def test_an_entry_has_the_origin_of_the_ceiling_rule() -> None:
    reader = tool("reader", "fs:read:/srv/data", "network:*:*")
    allows = ["fs:read:/", "fs:read:/srv", "network:https:x.test"]
    shown = only_tool(manifest(reader, allows=allows))
    assert [(entry.target, str(entry.origin)) for entry in shown.entries] == [
        ("x.test", "agent.yaml:12"),
        ("/srv/data", "agent.yaml:11"),
    ]


def test_one_target_reached_in_several_ways_is_one_entry() -> None:
    writer = tool("writer", "fs:*:/srv", effect="write_limited")
    shown = only_tool(manifest(writer, allows=["fs:*:/srv"], max_effect="write_limited"))
    assert [(entry.target, entry.ways) for entry in shown.entries] == [("/srv", ("read", "write"))]


BLOCKED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a class above the manifest's": ({"effect": "write_limited"}, {}, "SIDE_EFFECT_EXCEEDED"),
    "no level": ({"sandbox": None}, {}, "SANDBOX_NOT_DECLARED"),
    "a connector nobody lists": ({"connector": ConnectorRef("github")}, {}, "CONNECTOR_NOT_ALLOWED"),
    "native without being named": ({"sandbox": "native"}, {}, "NATIVE_NOT_ALLOWED"),
    "a call that costs more than the budget": ({"cost_usd": Decimal(6)}, {"budget": Budget(max_cost_usd=Decimal(5))},
        "BUDGET_EXCEEDED"),
    "no call at all": ({}, {"budget": Budget(max_calls_per_session=0)}, "BUDGET_EXCEEDED"),
}  # fmt: skip


@pytest.mark.parametrize(("about", "around", "reason"), BLOCKED.values(), ids=list(BLOCKED))
def test_a_tool_that_can_never_be_called_reaches_nothing_and_says_why(
    about: dict[str, Any], around: dict[str, Any], reason: str
) -> None:
    needs = ["fs:read:/srv", *(["connector:use:github"] if "connector" in about else [])]
    shown = only_tool(manifest(tool("clerk", *needs, **about), allows=["fs:read:/srv"], **around))
    assert (shown.standing, shown.reachable, shown.entries, bool(shown.grant)) == ("blocked", False, (), False)
    assert [ground.reason for ground in shown.grounds] == [reason]
    assert shown.note == f"cannot be called: {shown.grounds[0]}"
    assert shown.document()["grounds"][0]["reason"] == reason


def test_a_callable_tool_has_no_note() -> None:
    shown = only_tool(manifest(tool("clerk", "fs:read:/srv"), allows=["fs:read:/srv"]))
    assert (shown.standing, shown.note, shown.grounds) == ("callable", "", ())


def test_an_undeclared_tool_is_shown_with_the_ceiling_at_the_strongest_class_it_could_have() -> None:
    bundled = admission(
        bundle="desk", approval="session", effects=(("write_limited", HERE),), levels=(("isolated", HERE),)
    )
    found = manifest(allows=["fs:*:/srv", "network:*:x.test"], admissions={"guess": (bundled,)}, max_effect="full")
    shown = only_tool(found)
    assert (shown.standing, shown.effect, shown.level, shown.asks) == (
        "undeclared",
        "write_limited",
        "isolated",
        "session",
    )
    assert texts(shown) == ["network:read:x.test; network:write:x.test", "fs:read:/srv; fs:write:/srv"]
    assert shown.note == "`guess` is admitted, but nothing declares it (agent.yaml:5); shown is the most it could get"


def test_without_a_budget_an_undeclared_tool_cannot_be_stronger_than_write_limited() -> None:
    found = manifest(allows=["fs:*:/srv"], admissions={"guess": (admission(),)}, max_effect="destructive")
    assert only_tool(found).effect == "write_limited"
    budgeted = only_tool(replace(found, budget=Budget(max_calls_per_session=1)))
    assert (budgeted.effect, budgeted.deletes_ask) == ("destructive", True)
    assert budgeted.asks == "session", "it could declare itself `full`, and would not be asked about each call"


def test_an_undeclared_tool_could_be_native_only_where_the_manifest_names_it() -> None:
    found = manifest(admissions={"guess": (admission(),)})
    assert only_tool(found).level == "isolated"
    assert only_tool(replace(found, natives=(Natives(frozenset({"guess"}), HERE),))).level == "native"


def test_an_undeclared_tool_could_use_any_connector_with_an_allowed_version() -> None:
    lines = (ConnectorRule("github", ">=2.0", HERE),)
    found = manifest(admissions={"guess": (admission(),)}, connectors=Connectors(lines, profiles=(lines,)))
    assert texts(only_tool(found)) == ["connector:use:github"]
    denied = replace(found, layers=(layer(denies=["connector:use:github"]),))
    assert texts(only_tool(denied)) == []
    narrowed = replace(found, connectors=Connectors(lines, (ConnectorRule("slack", "", HERE),), profiles=(lines,)))
    assert texts(only_tool(narrowed)) == []


def test_an_undeclared_tool_that_would_be_denied_with_any_declaration_is_blocked() -> None:
    shown = only_tool(manifest(allows=["fs:read:/srv"], admissions={"guess": (admission(max_calls=0),)}))
    assert (shown.standing, shown.effect, shown.level, shown.entries) == ("blocked", None, None, ())


def test_tools_are_sorted_and_unadmitted_tools_are_listed_separately() -> None:
    specs = [tool(name) for name in ("b", "a", "c", "other", "another")]
    shown = surface(manifest(*specs, admissions={name: (admission(),) for name in ("b", "c", "a")}))
    assert [one.name for one in shown.tools] == ["a", "b", "c"]
    assert shown.unadmitted == ("another", "other")


@pytest.mark.parametrize(
    ("effect", "write", "asks", "deletes_ask"),
    [
        ("read_only", "call", None, False),
        ("write_limited", "call", "call", False),
        ("write_limited", "session", "session", False),
        ("write_limited", "manifest", None, False),
        ("full", "session", "session", True),
        ("full", "manifest", None, True),
        ("destructive", "manifest", "call", True),
    ],
)
def test_the_surface_shows_when_an_approval_is_needed(
    effect: Any, write: Any, asks: str | None, deletes_ask: bool
) -> None:
    found = manifest(
        tool("clerk", "fs:*:/srv", effect=effect),
        allows=["fs:*:/srv"],
        max_effect="destructive",
        budget=Budget(max_calls_per_session=1),
        approvals=Approvals(write),
    )
    shown = only_tool(found)
    assert (shown.asks, shown.deletes_ask) == (asks, deletes_ask)


def test_limits_and_argument_rules_of_all_admissions_apply() -> None:
    places = (
        admission(bundle="desk", limits={"wall_seconds": 20, "memory_mb": 64}, args={"path": {"scope": "fs:read"}}),
        admission(args={"path": {"maxLength": 9}}, max_calls=3, max_cost_usd=Decimal(2), limits={"wall_seconds": 50}),
    )
    found = manifest(tool("clerk"), admissions={"clerk": places}, limits={"wall_seconds": 30, "memory_mb": 256})
    shown = only_tool(found)
    assert shown.limits == (("memory_mb", 64), ("wall_seconds", 20))
    assert shown.args == (("path", ('{"maxLength":9}', '{"scope":"fs:read"}')),)
    assert (shown.max_calls, shown.max_cost_usd, shown.bundles) == (3, Decimal(2), ("desk",))
    assert shown.document()["args"] == {"path": [{"maxLength": 9}, {"scope": "fs:read"}]}


# Any command ---------------------------------------------------------------------------------------------------------

_NARROW = layer(["fs:read:/srv/a"], kind="bundle", silent=EVERY_DOMAIN - {"fs"})


@pytest.mark.parametrize(("found", "expected"), [
    pytest.param(manifest(allows=["fs:read:/srv"]), None, id="no binary, no command"),
    pytest.param(manifest(allows=["process:exec:wc", "fs:*:/srv", "secret:read:KEY", "storage:*:session",
        "tool:call:a"]), ["fs:read:/srv", "process:exec:wc"],
        id="what the ceiling holds at the strongest class, and a program can use"),
    pytest.param(manifest(tool("run", "fs:read:/srv"), allows=["process:exec:wc", "fs:read:/srv"],
        admissions={"run": (admission(layer=_NARROW),)}), ["fs:read:/srv", "process:exec:wc"],
        id="a tool that is called run does not narrow it"),
    pytest.param(manifest(allows=["process:exec:wc", "fs:read:/srv"], denies=["fs:read:/srv/key"]),
        ["fs:read:/srv except /srv/key", "process:exec:wc"], id="denies hold for it too"),
    pytest.param(manifest(allows=["process:exec:wc"], max_effect="full"), [], id="refused without a budget"),
    pytest.param(manifest(tool("count", "process:exec:wc"), allows=["process:exec:wc"],
        admissions={"count": (admission(),)}), None, id="a tool needs every binary"),
    pytest.param(manifest(tool("count", "process:exec:wc"), allows=["process:exec:wc", "process:exec:git"],
        admissions={"count": (admission(),)}), ["process:exec:git", "process:exec:wc"],
        id="no tool needs one of the binaries"),
])  # fmt: skip
def test_the_surface_has_commands_exactly_if_a_binary_is_allowed_that_no_tool_needs(
    found: Manifest, expected: list[str] | None
) -> None:
    shown = surface(found)
    assert (None if shown.commands is None else texts(shown.commands)) == expected
    assert [one.name for one in shown.tools] == sorted(found.admissions)
    assert shown.unadmitted == ()
    said = shown.document()["commands"]
    assert (said is None) is (expected is None)
    assert said is None or (said["name"], said["sandbox"]) == ("licet run", "isolated")


@given(manifests, domains)
def test_the_reach_of_commands_is_what_the_gate_of_a_program_allows(found: Manifest, domain: str) -> None:
    admitted = with_commands(found)
    shown = surface(found).commands
    if shown is None:
        return
    for use in map(_use, universe(domain)):
        denied = isinstance(decide(Request(COMMANDS, (use,)), admitted), Deny)
        assert any(entry.covers(use) for entry in shown.entries) is not denied, str(use)


# The agent ------------------------------------------------------------------------------------------------------------


def test_the_document_has_all_agent_wide_settings() -> None:
    found = manifest(
        tool("a"),
        tool("b"),
        denies=["fs:*:${workdir}/.env"],
        version="1.0",
        app="desk",
        personality="kind",
        files=("agent.yaml",),
        max_effect="write_limited",
        private=(("10.0.0.0/8",), ("10.1.0.0/16", "fd00::/8")),
        natives=(Natives(frozenset({"b", "a", "gone"}), HERE),),
        connectors=Connectors(
            tenant=(ConnectorRule("github", ">=2.0", HERE),),
            app=None,
            profiles=((ConnectorRule("github", "", HERE), ConnectorRule("slack", "", HERE)),),
        ),
        approvals=Approvals("call", 60, 2, ("k2", "k1", "k1")),
        budget=Budget(100, Decimal("5.00"), None, 500),
        limits={"wall_seconds": 30},
        allow_degraded=True,
        record="full",
        servers={"files": {"command": ["serve"], "grants": ["fs:write:/b", "fs:read:/b", "fs:delete:/b"]}},
    )
    said = surface(found).document()
    assert [shown["name"] for shown in said.pop("tools")] == ["a", "b"]
    assert said == {
        "agent": "clerk",
        "version": "1.0",
        "app": "desk",
        "personality": "kind",
        "digest": found.digest,
        "pinned": "licet.lock",
        "files": ["agent.yaml"],
        "risk": {"level": "none", "kind": "nothing", "text": "reaches nothing"},
        "commands": None,
        "unadmitted": [],
        "max_side_effect_class": "write_limited",
        "native": ["a", "b"],
        "private": ["10.1.0.0/16"],
        "connectors": {"github": [">=2.0"]},
        "approvals": {
            "write": "call",
            "expires_seconds": 60,
            "quorum": 2,
            "keys": ["k1", "k2"],
            "delete": "call",
            "through_client": False,
            "names": {},
        },
        "budget": {
            "max_calls_per_session": 100,
            "max_calls_per_day": 500,
            "max_cost_usd": "5",
            "max_cost_usd_per_day": None,
        },
        "bundles": {},
        "limits": {"wall_seconds": 30},
        "sandbox": {"allow_degraded": True},
        "record": "full",
        "denies": [{"rule": "fs:*:${workdir}/.env", "origin": "agent.yaml:50:3"}],
        "ceiling": [],
        "unused": [],
        "servers": {
            "files": {
                "kind": "isolated",
                "command": ["serve"],
                "grants": ["fs:*:/b"],
                "holds": [],
                "env": [],
                "secrets": {},
                "tools": {},
            },
        },
    }


def test_joined_denies_have_the_origin_of_one_of_them() -> None:
    found = surface(manifest(denies=["fs:read:/a", "fs:write:/a", "fs:delete:/a"]))
    assert [(str(deny.rule), str(deny.origin)) for deny in found.denies] == [("fs:*:/a", "agent.yaml:50")]


def test_surfaces_with_other_origins_are_equal() -> None:
    reader = tool("reader", "fs:read:*", "network:*:*")
    one = manifest(reader, allows=["fs:read:/a", "network:*:x.test"], files=("a.yaml",))
    other = manifest(reader, layers=(layer(["network:*:x.test", "fs:read:/a/b", "fs:read:/a"]),))
    assert surface(one) == surface(other)
    assert surface(one) != surface(manifest(reader, allows=["fs:read:/a"]))


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([], ()),
        ([[]], ()),
        ([["10.0.0.0/9", "10.128.0.0/9"]], ("10.0.0.0/8",)),
        ([["10.0.0.0/8"], []], ()),
        ([["10.0.0.0/8"], ["10.2.0.0/16", "192.168.0.0/16"]], ("10.2.0.0/16",)),
        ([["10.2.0.0/16"], ["10.0.0.0/8"]], ("10.2.0.0/16",)),
        ([["fd00::/8", "10.0.0.0/8"], ["fd00:1::/32", "10.0.0.0/8"]], ("10.0.0.0/8", "fd00:1::/32")),
    ],
)
def test_private_addresses_must_be_in_every_list(lists: list[list[str]], expected: tuple[str, ...]) -> None:
    assert common_ranges(lists) == expected


@pytest.mark.parametrize(
    ("ranges", "others", "expected"),
    [
        (["10.1.0.0/16"], ["10.0.0.0/8", "192.168.0.0/16"], ()),
        (["10.0.0.0/8"], ["10.0.0.0/9", "10.128.0.0/9"], ()),
        (["10.0.0.0/8"], ["10.1.0.0/16", "10.2.0.0/16"], ("10.0.0.0/8 except 10.1.0.0/16, 10.2.0.0/16",)),
        (["10.0.0.0/8", "fd00::/8"], ["192.168.0.0/16"], ("10.0.0.0/8", "fd00::/8")),
        (["::/0"], ["0.0.0.0/0"], ("::/0",)),
    ],
)
def test_the_difference_of_address_ranges_is_shown_as_ranges_with_exceptions(
    ranges: list[str], others: list[str], expected: tuple[str, ...]
) -> None:
    assert beyond(ranges, others) == expected


def test_an_empty_set_has_no_entries() -> None:
    assert entries_of(CapabilitySet()) == ()


def test_an_address_that_is_never_connected_to_is_left_out() -> None:
    hosts = [
        "network:*:169.254.169.254",
        "network:https:get@[fd00:ec2::254]",
        "network:*:10.0.0.5",
        "network:*:a.example",
    ]
    (shown,) = surface(manifest(tool("t", "network:*:*"), allows=hosts)).tools
    assert [entry.target for entry in shown.entries] == ["10.0.0.5", "a.example"]


def test_what_no_tool_of_today_can_reach_is_listed() -> None:
    reader = tool("reader", "fs:read:/srv/data", effect="read_only")
    shown = surface(manifest(reader, allows=["fs:read:/srv", "network:*:x.test"]))
    assert list(map(str, shown.ceiling.allow)) == ["fs:read:/srv", "network:*:x.test"]
    assert shown.unused == ("fs:read:/srv except /srv/data", "network:*:x.test")
