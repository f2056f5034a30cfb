"""A diff finds exactly what grew and what shrank, by meaning: nothing for another spelling, something for the rest."""

import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from core.manifests import HERE, admission, layer, manifest, tool, versions
from core.naive import PlainUse, universe
from core.strategies import domains
from licet.assemble import Places, review
from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.connector import ConnectorRef, ConnectorRule, Connectors
from licet.core.policy.layer import ALL_BUT_NETWORK, EVERY_DOMAIN, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Approvals, Budget, Natives
from licet.core.review.changes import Change, Changes
from licet.core.review.diff import diff
from licet.core.review.surface import surface
from licet.core.values import Origin
from licet.policy_files.load import read_made

Two = tuple[Manifest, Manifest]


@cache
def _use(plain: PlainUse) -> Use:
    return Use(plain.text)


def grants(found: Manifest) -> dict[str, CapabilitySet]:
    shown = surface(found)
    return {one.name: one.grant for one in (*shown.tools, *filter(None, (shown.commands,)))}


def reach(changes: tuple[Change, ...]) -> set[tuple[str | None, str]]:
    return {(change.tool, change.text) for change in changes if change.kind == "reach"}


def change_texts(changes: Changes) -> dict[str, list[str]]:
    """The texts of all changes, by side, with the tool in front; sides without any are left out."""
    sides = {"grown": changes.grown, "shrunk": changes.shrunk, "changed": changes.changed}
    assert bool(changes) is any(sides.values())
    return {
        side: [f"{change.tool}: {change.text}" if change.tool else change.text for change in found]
        for side, found in sides.items()
        if found
    }


# What a diff promises ------------------------------------------------------------------------------------------------


@given(versions)
def test_a_diff_is_empty_for_equal_surfaces_and_mirrored_when_turned_around(two: Two) -> None:
    old, new = two
    assert not diff(old, old)
    there, back = diff(old, new), diff(new, old)
    assert bool(there) is (surface(old) != surface(new))
    assert reach(there.grown) == reach(back.shrunk)
    assert reach(there.shrunk) == reach(back.grown)
    document = there.document()
    assert json.loads(json.dumps(document)) == document


@given(versions, domains)
def test_reach_grows_exactly_when_a_grant_grows(two: Two, domain: str) -> None:
    old, new = (grants(one) for one in two)
    within = all(grant <= old.get(name, CapabilitySet()) for name, grant in new.items())
    grown = {change.tool for change in diff(*two).grown if change.kind == "reach"}
    assert bool(grown) is not within
    for name, grant in new.items():
        gained = any(
            grant.has(use) and not old.get(name, CapabilitySet()).has(use) for use in map(_use, universe(domain))
        )
        assert name in grown or not gained  # a tool for which no reach grew has no new use


# Any command ---------------------------------------------------------------------------------------------------------

_WC = manifest(allows=["process:exec:wc", "fs:read:/srv"])
_FULL: dict[str, Any] = {"max_effect": "full", "budget": Budget(max_calls_per_session=9)}
COMMAND_CASES: dict[str, tuple[Manifest, Manifest, dict[str, list[str]]]] = {
    "every binary and the whole disk, and no tool asks for them": (_WC,
        manifest(allows=["process:exec:*", "fs:read:/"]),
        {"grown": ["licet run: fs:read:* except /srv", "licet run: process:exec:* except wc"]}),
    "a first binary": (manifest(allows=["fs:read:/srv"]), _WC,
        {"grown": ["licet run: any command can be run", "licet run: process:exec:wc", "licet run: fs:read:/srv"]}),
    "no binary any more": (_WC, manifest(allows=["fs:read:/srv"]),
        {"shrunk": ["licet run: any command can no longer be run", "licet run: process:exec:wc",
        "licet run: fs:read:/srv"]}),
    "what no program can use": (_WC, manifest(allows=["process:exec:wc", "fs:read:/srv", "secret:read:KEY"]),
        {"grown": ["the ceiling allows secret:read:KEY"]}),
    "without a binary nothing is reached": (manifest(allows=["fs:read:/srv"]), manifest(allows=["fs:read:/"]),
        {"grown": ["the ceiling allows fs:read:* except /srv"]}),
    "a class is said once, for the agent": (_WC,
        manifest(allows=["process:exec:wc", "fs:read:/srv"], max_effect="write_limited"),
        {"grown": ["max_side_effect_class: read_only → write_limited"]}),
    "a class that cannot be had without a budget": (manifest(allows=["process:exec:wc"], max_effect="full"),
        manifest(allows=["process:exec:wc"], **_FULL),
        {"grown": ["licet run: any command can be run", "licet run: process:exec:wc"],
        "shrunk": ["max_calls_per_session: no limit → 9"]}),
}  # fmt: skip


def test_growth_of_commands_has_the_origin_of_the_ceiling_rule() -> None:
    (grown,) = diff(_WC, manifest(allows=["process:exec:wc", "fs:read:/srv", "fs:read:/etc"])).grown
    assert (grown.tool, grown.text, str(grown.origin)) == ("licet run", "fs:read:/etc", "agent.yaml:12")


# Reach ---------------------------------------------------------------------------------------------------------------

READER = tool("reader", "fs:*:*", "network:*:*", "secret:read:*", effect="read_only")
BASE = manifest(READER, allows=["fs:read:/srv", "network:https:*.x.test"], denies=["fs:read:/srv/key"])

RESPELT: dict[str, Manifest] = {
    "rules in another order, twice and with a smaller one inside": manifest(READER,
        allows=["network:https:*.x.test", "fs:read:/srv/a", "fs:read:/srv", "fs:read:/srv"],
        denies=["fs:read:/srv/key/old", "fs:read:/srv/key"]),
    "a ceiling in two layers": manifest(READER,
        layers=(layer(["fs:read:/srv", "network:*:*"]),
        layer(["fs:read:*", "network:https:*.x.test"], ["fs:read:/srv/key"], "workspace"))),
    "other files": replace(BASE, files=("somewhere/else.yaml",), origin=Origin("else.yaml", 9, 9)),
    "another policy file that it protects": replace(BASE,
        layers=(*BASE.layers,
        layer(denies=["fs:write:/srv/new.yaml", "fs:delete:/srv/new.yaml"], kind="protected paths",
        silent=EVERY_DOMAIN))),
    "a tool for somebody else": BASE.declare([tool("other", "fs:*:*")]),
}  # fmt: skip


def _reader(*allows: str, denies: tuple[str, ...] = (), **given: Any) -> Manifest:
    return manifest(READER, allows=allows, denies=denies, **given)


REACH: dict[str, tuple[Manifest, Manifest, dict[str, list[str]]]] = {
    "a host more": (_reader("network:https:a.test"), _reader("network:https:a.test", "network:https:b.test"),
        {"grown": ["reader: network:read:https://b.test"]}),
    "a wildcard around a host tells the rest": (_reader("network:https:a.x.test"), _reader("network:https:*.x.test"),
        {"grown": ["reader: network:read:https://*.x.test except a.x.test"]}),
    "a path inside an old one is nothing new": (_reader("fs:read:/srv"), _reader("fs:read:/srv", "fs:read:/srv/a"), {}),
    "a narrower path shrinks": (_reader("fs:read:/srv"), _reader("fs:read:/srv/a"),
        {"shrunk": ["reader: fs:read:/srv except /srv/a"]}),
    "a deny that cuts in shrinks": (_reader("fs:read:/srv"), _reader("fs:read:/srv", denies=("fs:*:/srv/key",)),
        {"shrunk": ["reader: fs:read:/srv/key"], "changed": ["denied: none → fs:*:/srv/key"]}),
    "a deny that goes away grows": (_reader("fs:read:/srv", denies=("fs:read:/srv/key", "fs:read:/srv/b")),
        _reader("fs:read:/srv", denies=("fs:read:/srv/b",)),
        {"grown": ["reader: fs:read:/srv/key"], "changed": ["denied: fs:read:/srv/key → none"]}),
    "one place for another": (_reader("fs:read:/a"), _reader("fs:read:/b"),
        {"grown": ["reader: fs:read:/b"], "shrunk": ["reader: fs:read:/a"]}),
    "a secret prefix": (_reader("secret:read:github/token"), _reader("secret:read:github/*"),
        {"grown": ["reader: secret:read:github/* except github/token"]}),
    "a deny from another root may free something on some machine": (_reader("fs:read:~",
        denies=("fs:read:/home/ada/.ssh",)), _reader("fs:read:~"),
        {"grown": ["denied: fs:read:/home/ada/.ssh → none"]}),
    "and the same when it is added": (_reader("fs:read:${workdir}"),
        _reader("fs:read:${workdir}", denies=("fs:read:/srv/key",)), {"shrunk": ["denied: none → fs:read:/srv/key"]}),
    "a deny that touches nothing is neither more nor less": (_reader("fs:read:/srv"),
        _reader("fs:read:/srv", denies=("network:*:y.test",)), {"changed": ["denied: none → network:*:y.test"]}),
}  # fmt: skip


def test_manifests_without_real_directories_are_refused_if_a_decision_needs_them() -> None:
    old, new = (_reader(*allows, denies=("fs:*:${workdir}/.env",)) for allows in (["fs:read:/a"], ["fs:read:*"]))
    with pytest.raises(ValueError, match=r"names no real directory yet .*; call `manifest\.expand"):
        diff(old, new)
    assert change_texts(diff(old.expand("/w", "/h"), new.expand("/w", "/h"))) == {
        "grown": ["reader: fs:read:* except /a, /w/.env"]
    }


def test_growth_has_the_origin_of_the_ceiling_rule() -> None:
    (change,) = diff(_reader("fs:read:/a"), _reader("fs:read:/a", "fs:read:/b")).grown
    assert change == Change("reach", "reader", "fs:read:/b", "", "fs:read:/b", Origin("agent.yaml", 11, 3))


def test_shrinking_has_the_origin_in_the_old_manifest() -> None:
    (change,) = diff(_reader("fs:read:/a", "fs:read:/b"), _reader("fs:read:/a")).shrunk
    assert change == Change("reach", "reader", "fs:read:/b", "fs:read:/b", "", Origin("agent.yaml", 11, 3))


def test_agent_wide_changes_have_the_origin_of_their_key() -> None:
    there, here = Origin("old.yaml", 30, 3), Origin("new.yaml", 31, 3)
    old = manifest(budget=Budget(2), places={"max_calls_per_session": there})
    more, less = (replace(old, budget=Budget(calls), places={"max_calls_per_session": here}) for calls in (3, 1))
    assert [change.origin for change in diff(old, more).grown] == [here]
    assert [change.origin for change in diff(old, less).shrunk] == [there], "what shrank stood in the old file"
    assert [change.origin for change in diff(old, replace(old, version="2", origin=here)).changed] == [here]


SERVERS = """\
licet: 1
agent: a
servers:
  desk:
    command: [desk]
    secrets: {KEY: desk/key}
    tools:
      read: {}
      write: {}
  other:
    command: [other]
capabilities: {tools: [desk.read]}
"""
# What changes in the text, and the lines where it is written: in the new text, and in the old one.
IN_SERVERS = {
    "a command": ("[desk]", "[desk, --all]", [4], []),
    "a grant": ("    tools:\n", "    grants: ['fs:read:/a']\n    tools:\n", [4], []),
    "a secret": ("desk/key", "desk/other", [6], []),
    "a tool": ("      write: {}\n", "      write: {effect: read_only}\n", [9], []),
    "a tool that goes": ("      write: {}\n", "", [], [9]),
    "a server that goes": ("  other:\n    command: [other]\n", "", [], [10]),
}


@pytest.mark.parametrize(("before", "after", "grown", "shrunk"), IN_SERVERS.values(), ids=list(IN_SERVERS))
def test_a_change_of_a_server_has_its_own_place(before: str, after: str, grown: list[int], shrunk: list[int]) -> None:
    old, new = (read_made(text, "agent.yaml", "/work").manifest for text in (SERVERS, SERVERS.replace(before, after)))
    assert old is not None
    assert new is not None
    changes = diff(old, new)
    for lines, side in ((grown, changes.grown), (shrunk, changes.shrunk)):
        assert [one.origin.line for one in side if one.kind == "server" and one.origin is not None] == lines


def test_a_removed_deny_has_its_origin_in_the_old_file() -> None:
    (change,) = diff(
        _reader("fs:read:/a", denies=("fs:read:/c", "fs:read:/b")), _reader("fs:read:/a", denies=("fs:read:/c",))
    ).changed
    assert (change.before, change.after, change.origin) == ("fs:read:/b", "", Origin("agent.yaml", 51, 3))


def test_growth_through_a_bundle_has_the_origin_of_the_bundle_rule() -> None:
    def bundled(*hosts: str) -> Manifest:
        narrowing = replace(layer([f"network:*:{host}" for host in hosts], kind="bundle"), silent=ALL_BUT_NETWORK)
        lines = enumerate(narrowing.allows)
        moved = tuple(Rule(rule.capability, Origin("licet.yaml", line, 9), "destinations") for line, rule in lines)
        held = admission(bundle="desk", layer=replace(narrowing, allows=moved))
        return manifest(READER, allows=["network:*:*.test"], admissions={"reader": (held,)})

    (change,) = diff(bundled("a.test"), bundled("a.test", "b.test")).grown
    assert (change.text, change.origin) == ("network:read:b.test", Origin("licet.yaml", 1, 9))


def test_growth_has_the_origin_in_the_manifest_rather_than_in_the_workspace() -> None:
    def both(*hosts: str) -> Manifest:
        rules = [f"network:*:{host}" for host in hosts]
        shared, own = layer(rules, kind="workspace"), layer(["fs:read:/a", *rules])
        return manifest(READER, layers=(shared, own))

    (change,) = diff(both("a.test"), both("a.test", "b.test")).grown
    assert change.origin == Origin("agent.yaml", 12, 3)


def test_growth_by_a_new_need_has_the_origin_of_the_tool() -> None:
    (change,) = diff(
        manifest(tool("reader", "fs:read:/a"), allows=["fs:read:*"]),
        manifest(tool("reader", "fs:read:/a", "fs:read:/b"), allows=["fs:read:*"]),
    ).grown
    assert (change.text, str(change.origin)) == ("fs:read:/b", "licet.yaml:7")


# Tools ---------------------------------------------------------------------------------------------------------------

SMALL = tool("small", "fs:read:/a")
ALLOWED = ["fs:*:/a"]
BLOCKED = replace(SMALL, effect="full")
HELD = manifest(SMALL, allows=ALLOWED)
NOBODY = manifest(allows=ALLOWED, admissions={})
UNDECLARED = manifest(allows=["fs:read:/a"], admissions={"small": (admission(),)})
IN_BUNDLE = manifest(SMALL, allows=ALLOWED, admissions={"small": (admission(bundle="desk"),)})

TOOLS: dict[str, tuple[Manifest, Manifest, dict[str, list[str]]]] = {
    "a new tool": (NOBODY, HELD, {"grown": ["small: `small` can be called", "small: fs:read:/a"]}),
    "a tool that is gone": (HELD, NOBODY, {"shrunk": ["small: `small` can no longer be called", "small: fs:read:/a"]}),
    "a tool that was blocked": (manifest(BLOCKED, allows=ALLOWED), HELD,
        {"grown": ["small: `small` can be called", "small: fs:read:/a"]}),
    "a tool that is blocked now": (HELD, manifest(BLOCKED, allows=ALLOWED),
        {"shrunk": ["small: `small` can no longer be called", "small: fs:read:/a"]}),
    "a blocked tool is nothing to reach": (NOBODY, manifest(BLOCKED, allows=ALLOWED),
        {"changed": ["small: `small` cannot be called, as before"]}),
    "a tool that is blocked for another reason": (manifest(BLOCKED, allows=ALLOWED),
        manifest(replace(BLOCKED, sandbox=None), allows=ALLOWED),
        {"changed": ["small: `small` cannot be called, as before"]}),
    "a tool that stays blocked": (manifest(BLOCKED, allows=ALLOWED), manifest(BLOCKED, allows=ALLOWED), {}),
    "a blocked tool that is gone": (manifest(BLOCKED, allows=ALLOWED), NOBODY,
        {"changed": ["small: `small` cannot be called, as before"]}),
    "an undeclared tool counts with the ceiling": (manifest(allows=["fs:read:/a"], admissions={}), UNDECLARED,
        {"grown": ["small: `small` is admitted, declared nowhere", "small: fs:read:/a"]}),
    "declaring less than the ceiling shrinks": (manifest(allows=["fs:read:/"], admissions={"small": (admission(),)}),
        manifest(SMALL, allows=["fs:read:/"]),
        {"shrunk": ["small: fs:read:* except /a", "small: level: isolated → restricted"],
        "changed": ["small: declaration: undeclared → callable"]}),
    "a tool in a bundle": (HELD, IN_BUNDLE, {"changed": ["small: bundle: none → desk"]}),
    "another description": (HELD, manifest(replace(SMALL, description="Do as it says."), allows=ALLOWED),
        {"changed": ["small: description: none → Do as it says."]}),
    "other arguments": (manifest(replace(SMALL, signature="path: str"), allows=ALLOWED),
        manifest(replace(SMALL, signature="path: str, mode: str = 'r'"), allows=ALLOWED),
        {"grown": ["small: takes: path: str → path: str, mode: str = 'r'"]}),
    "another schema": (manifest(replace(SMALL, schema={"type": "object"}), allows=ALLOWED),
        manifest(replace(SMALL, schema={"type": "object", "required": ["a"]}), allows=ALLOWED),
        {"grown": ['small: takes: {"type":"object"} → {"required":["a"],"type":"object"}']}),
    "calls that share a worker": (HELD, manifest(replace(SMALL, reuse=True), allows=ALLOWED),
        {"grown": ["small: reuse: false → true"]}),
    "a ceiling beyond what tools need": (HELD,
        manifest(SMALL, allows=[*ALLOWED, "fs:write:/", "network:*:*", "secret:read:*", "env:read:HOME"]),
        {"grown": ["the ceiling allows fs:write:* except /a", "the ceiling allows network:*:*",
        "the ceiling allows secret:read:*", "the ceiling allows env:read:HOME"]}),
    "a ceiling that is cut to what tools need": (manifest(SMALL, allows=[*ALLOWED, "network:*:x.test"]), HELD,
        {"shrunk": ["the ceiling allows network:*:x.test"]}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "standings"),
    [
        (NOBODY, HELD, ("absent", "callable")),
        (HELD, NOBODY, ("callable", "absent")),
        (HELD, manifest(BLOCKED, allows=ALLOWED), ("callable", "blocked")),
        (manifest(BLOCKED, allows=ALLOWED), UNDECLARED, ("blocked", "undeclared")),
        (NOBODY, manifest(BLOCKED, allows=ALLOWED), ("absent", "blocked")),
    ],
)
def test_an_added_or_removed_tool_has_both_standings(old: Manifest, new: Manifest, standings: tuple[str, str]) -> None:
    changes = diff(old, new)
    (change,) = [one for one in (*changes.grown, *changes.shrunk, *changes.changed) if one.kind == "tool"]
    assert (change.before, change.after) == standings
    assert change.origin in (Origin("licet.yaml", 7, 3), Origin("agent.yaml", 5, 5))


def test_changes_are_sorted_by_tool() -> None:
    specs = [tool(name, "fs:read:/a") for name in ("b", "d", "a", "c", "e")]
    grown = diff(NOBODY, manifest(*specs, allows=ALLOWED)).grown
    assert list(dict.fromkeys(change.tool for change in grown)) == ["a", "b", "c", "d", "e"]


def _one(*admissions: Any, **given: Any) -> Manifest:
    spec = given.pop("spec", tool("one", "fs:*:/a", effect="write_limited"))
    given = {"max_effect": "destructive", "budget": Budget(9), **given}
    return manifest(
        spec, allows=["fs:*:/a"], admissions={"one": admissions or (admission(approval="session"),)}, **given
    )


def _effect(effect: Any, **given: Any) -> Manifest:
    return _one(admission(approval="manifest"), spec=tool("one", "fs:read:/a", effect=effect, **given))


ABOUT_A_TOOL: dict[str, tuple[Manifest, Manifest, str]] = {
    "a stronger class": (_effect("read_only"), _effect("full"), "class: read_only → full"),
    "a looser level": (_effect("read_only"), _effect("read_only", sandbox="isolated"), "level: restricted → isolated"),
    "a higher cost": (_effect("read_only"), _effect("read_only", cost_usd=Decimal("0.50")), "cost_usd: 0 → 0.5"),
    "asking once a session": (_one(admission(approval="call")), _one(admission(approval="session")),
        "asks about writes: before each call → once a session"),
    "asking nobody": (_one(admission(approval="session")), _one(admission(approval="manifest")),
        "asks about writes: once a session → never (the file approves them)"),
    "more calls": (_one(admission(max_calls=3)), _one(admission(max_calls=4)), "max_calls: 3 → 4"),
    "any number of calls": (_one(admission(max_calls=3)), _one(admission()), "max_calls: 3 → no limit"),
    "more money of a tool": (_one(admission(max_cost_usd=Decimal("1.50"))), _one(admission(max_cost_usd=Decimal(2))),
        "max_cost_usd: 1.5 → 2"),
    "any money of a tool": (_one(admission(max_cost_usd=Decimal(0))), _one(admission()), "max_cost_usd: 0 → no limit"),
    "a higher limit": (_one(admission(limits={"wall_seconds": 3})), _one(admission(limits={"wall_seconds": 4})),
        "wall_seconds: 3 → 4"),
    "no rule on an argument": (_one(admission(args={"to": {"enum": ["a"]}})), _one(admission()),
        'rules on `to`: {"enum":["a"]} → none'),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "text"), ABOUT_A_TOOL.values(), ids=list(ABOUT_A_TOOL))
def test_a_looser_term_of_a_tool_has_grown_and_shrinks_in_the_other_direction(
    old: Manifest, new: Manifest, text: str
) -> None:
    assert change_texts(diff(old, new)) == {"grown": [f"one: {text}"]}
    back = diff(new, old)
    assert [change.kind for change in back.shrunk] == [change.kind for change in diff(old, new).grown]
    assert (back.grown, back.changed) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "side"),
    [
        ({"to": {"enum": ["a"]}}, {"to": {"enum": ["a", "b"]}}, "grown"),
        ({"to": {"enum": ["a", "b"]}}, {"to": {"enum": ["a"]}}, "grown"),
        ({"to": {"maxLength": 3, "minLength": 1}}, {"to": {"minLength": 1, "maxLength": 3}}, ""),
        ({}, {"to": {"enum": ["a"]}}, "shrunk"),
        ({"to": {"enum": ["a"]}}, {"from": {"enum": ["a"]}}, "grown"),
        ({}, {"to": "free"}, "grown"),
        ({"to": "free"}, {}, "shrunk"),
        ({"to": "free"}, {"to": {"enum": ["a"]}}, "shrunk"),
        ({"to": {"enum": ["a"]}}, {"to": "free"}, "grown"),
    ],
)
def test_any_changed_rule_on_an_argument_counts_as_grown(old: Any, new: Any, side: str) -> None:
    changes = change_texts(diff(_one(admission(args=old)), _one(admission(args=new))))
    assert (side in changes) is bool(side)
    assert side or not changes


def _deleting(delete: Any, *, by_fs_reach: bool = False) -> Manifest:
    return manifest(
        tool("one", "fs:write:/a", "fs:delete:/a", effect="full", sandbox="isolated"),
        layers=(layer(["fs:write:/a", "fs:delete:/a"], by_fs_reach=by_fs_reach),),
        max_effect="full",
        approvals=Approvals("manifest", delete=delete),
        budget=Budget(5),
    )


# The agent ------------------------------------------------------------------------------------------------------------


def _agent(**given: Any) -> Manifest:
    return manifest(**given)


def _listed(*lines: tuple[str, str], app: tuple[tuple[str, str], ...] | None = None) -> Manifest:
    rules = tuple(ConnectorRule(name, versions, HERE) for name, versions in lines)
    narrowed = None if app is None else tuple(ConnectorRule(name, versions, HERE) for name, versions in app)
    everything = tuple(ConnectorRule(name, "", HERE) for name in ("github", "slack"))
    return _agent(connectors=Connectors(rules, narrowed, profiles=(everything,)))


AGENT_WIDE: dict[str, tuple[Manifest, Manifest, str]] = {
    "a stronger class for all": (_agent(max_effect="read_only"), _agent(max_effect="full"),
        "max_side_effect_class: read_only → full"),
    "a native tool": (manifest(tool("a")), manifest(tool("a"), natives=(Natives(frozenset({"a"}), HERE),)),
        "`a` may run in this process"),
    "a private range": (_agent(private=(("10.1.0.0/16",),)), _agent(private=(("10.0.0.0/8", "10.1.0.0/16"),)),
        "private addresses 10.0.0.0/8 except 10.1.0.0/16"),
    "writes that ask less": (_agent(approvals=Approvals("session")), _agent(approvals=Approvals("manifest")),
        "asks about writes: once a session → never (the file approves them)"),
    "deletes that ask once": (_agent(approvals=Approvals(delete="call")), _agent(approvals=Approvals(delete="session")),
        "asks about deletes of files: about each → once a session"),
    "deletes that ask nobody": (_agent(approvals=Approvals(delete="session")),
        _agent(approvals=Approvals(delete="manifest")),
        "asks about deletes of files: once a session → never, while a standing approval covers them"),
    "a client whose yes approves": (_agent(approvals=Approvals()), _agent(approvals=Approvals(through_client=True)),
        "through_client: false → true"),
    "answers that hold longer": (_agent(approvals=Approvals(expires_seconds=60)),
        _agent(approvals=Approvals(expires_seconds=61)), "expires_seconds: 60 → 61"),
    "fewer who must agree": (_agent(approvals=Approvals(quorum=2)), _agent(approvals=Approvals(quorum=1)),
        "quorum: 2 → 1"),
    "one more who may approve": (_agent(approvals=Approvals(keys=("k1",))),
        _agent(approvals=Approvals(keys=("k1", "k2"))), "key k2 may approve"),
    "one more with a name": (_agent(approvals=Approvals(keys=("k1",))),
        _agent(approvals=Approvals(keys=("k1", "k2"), names={"k2": "bob"})), "key bob (k2) may approve"),
    "no keys asked for": (_agent(approvals=Approvals(keys=("k1", "k2"))), _agent(),
        "who approves: keys k1, k2 → any approver"),
    "nobody, then anybody": (_agent(approvals=Approvals(keys=())), _agent(), "who approves: no key → any approver"),
    "more calls": (_agent(budget=Budget(1)), _agent(budget=Budget(2)), "max_calls_per_session: 1 → 2"),
    "any number of calls": (_agent(budget=Budget(1)), _agent(), "max_calls_per_session: 1 → no limit"),
    "more money": (_agent(budget=Budget(None, Decimal("5.00"))), _agent(budget=Budget(None, Decimal("5.10"))),
        "max_cost_usd: 5 → 5.1"),
    "more money a day": (_agent(budget=Budget(None, None, Decimal(1))), _agent(budget=Budget(None, None, Decimal(2))),
        "max_cost_usd_per_day: 1 → 2"),
    "more calls a day": (_agent(budget=Budget(max_calls_per_day=1)), _agent(budget=Budget(max_calls_per_day=2)),
        "max_calls_per_day: 1 → 2"),
    "any number of calls a day": (_agent(budget=Budget(max_calls_per_day=1)), _agent(),
        "max_calls_per_day: 1 → no limit"),
    "a higher limit": (_agent(limits={"memory_mb": 64}), _agent(limits={"memory_mb": 128}), "memory_mb: 64 → 128"),
    "a sandbox that may degrade": (_agent(), _agent(allow_degraded=True), "allow_degraded: false → true"),
    "a full record": (_agent(), _agent(record="full"), "record: digests → full"),
    "a connector": (_listed(), _listed(("github", ">=2.0")), "connector github"),
    "any version of a connector": (_listed(("github", ">=2.0")), _listed(("github", "")),
        "versions of github: >=2.0 → any version"),
    "one list less that names a version": (_listed(("github", ">=2.0"), app=(("github", "<3"),)),
        _listed(("github", ">=2.0")), "versions of github: <3 and >=2.0 → >=2.0"),
    "a server": (_agent(), _agent(servers={"files": {"command": ["serve", "."]}}), "server `files`"),
    "a server's grant": (_agent(servers={"files": {"command": ["serve"], "grants": ["fs:read:/a/b"]}}),
        _agent(servers={"files": {"command": ["serve"], "grants": ["fs:read:/a"]}}),
        "server `files` holds fs:read:/a except /a/b"),
    "a server's variable": (_agent(servers={"files": {"command": ["serve"]}}),
        _agent(servers={"files": {"command": ["serve"], "env": ["HOME"]}}), "server `files` has the variable `HOME`"),
    "a server's secret": (_agent(servers={"files": {"command": ["serve"]}}),
        _agent(servers={"files": {"command": ["serve"], "secrets": {"TOKEN": "github/token"}}}),
        "server `files` has the secret in `TOKEN`"),
    "a server's tool": (_agent(servers={"files": {"command": ["serve"]}}),
        _agent(servers={"files": {"command": ["serve"], "tools": {"read": {"needs": ["fs:read:/a"]}}}}),
        "server `files` has the tool `read`"),
    "deletes of files once a session": (_deleting("call"), _deleting("session"),
        "asks about deletes of files: about each → once a session"),
    "deletes of files under a standing approval": (_deleting("session"), _deleting("manifest"),
        "asks about deletes of files: once a session → never, while a standing approval covers them"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "text"), AGENT_WIDE.values(), ids=list(AGENT_WIDE))
def test_a_looser_agent_wide_term_has_grown_and_shrinks_in_the_other_direction(
    old: Manifest, new: Manifest, text: str
) -> None:
    assert change_texts(diff(old, new)) == {"grown": [text]}
    back = diff(new, old)
    assert [change.kind for change in back.shrunk] == [change.kind for change in diff(old, new).grown]
    assert (back.grown, back.changed) == ((), ())
    assert "asks about" not in text or back.shrunk[0].kind == "approval"


GROWN_EITHER_WAY: dict[str, tuple[Manifest, Manifest]] = {
    "another range of versions": (_listed(("github", ">=2.0")), _listed(("github", ">=1.0"))),
    "another command": (_agent(servers={"files": {"command": ["serve"]}}),
        _agent(servers={"files": {"command": ["serve", "--all"]}})),
    "a command in other words": (_agent(servers={"files": {"command": ["serve all"]}}),
        _agent(servers={"files": {"command": ["serve", "all"]}})),
    "a command with an empty word": (_agent(servers={"files": {"command": ["serve"]}}),
        _agent(servers={"files": {"command": ["serve", ""]}})),
    "another secret in the same variable": (_agent(servers={"files": {"command": ["serve"],
        "secrets": {"TOKEN": "a"}}}), _agent(servers={"files": {"command": ["serve"], "secrets": {"TOKEN": "b"}}})),
    "a server key that nobody knows": (_agent(servers={"files": {"command": ["serve"]}}),
        _agent(servers={"files": {"command": ["serve"], "cwd": "/"}})),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), GROWN_EITHER_WAY.values(), ids=list(GROWN_EITHER_WAY))
def test_an_undecidable_change_counts_as_grown_in_both_directions(one: Manifest, other: Manifest) -> None:
    for changes in (diff(one, other), diff(other, one)):
        assert (len(changes.grown), changes.shrunk, changes.changed) == (1, (), ())
        (change,) = changes.grown
        assert change.before != change.after


UNCHANGED: dict[str, tuple[Manifest, Manifest]] = {
    "a private range inside another": (_agent(private=(("10.0.0.0/8",),)),
        _agent(private=(("10.0.0.0/8", "10.2.0.0/16"),))),
    "a private range in halves": (_agent(private=(("10.0.0.0/8",),)),
        _agent(private=(("10.128.0.0/9", "10.0.0.0/9"),))),
    "a version named by another list": (_listed(("github", ">=2.0")),
        _listed(("github", ""), app=(("github", ">=2.0"),))),
    "keys in another order": (_agent(approvals=Approvals(keys=("k1", "k2"))),
        _agent(approvals=Approvals(keys=("k2", "k1")))),
    "money with more zeros": (_agent(budget=Budget(None, Decimal(5))), _agent(budget=Budget(None, Decimal("5.00")))),
    "a server's rules in another order": (_agent(servers={"f": {"command": ["s"],
        "grants": ["fs:read:/a", "fs:read:/b"], "env": ["A", "B"]}}),
        _agent(servers={"f": {"env": ["B", "A"], "grants": ["fs:read:/b", "fs:read:/a"], "command": ["s"]}})),
    "a delete that fs_reach allows instead of grants": (_deleting("session"), _deleting("session", by_fs_reach=True)),
    **{name: (BASE, respelt) for name, respelt in RESPELT.items()},
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), UNCHANGED.values(), ids=list(UNCHANGED))
def test_equal_values_that_are_written_differently_are_no_change(one: Manifest, other: Manifest) -> None:
    assert change_texts(diff(one, other)) == {}
    assert change_texts(diff(other, one)) == {}


def _both(write: Any, seconds: int) -> Manifest:
    two = (tool("one", "fs:*:/a", effect="write_limited"), tool("two", "fs:*:/a", effect="write_limited"))
    given: Any = {"max_effect": "write_limited", "approvals": Approvals(write), "limits": {"wall_seconds": seconds}}
    return manifest(*two, allows=ALLOWED, **given)


def _connected(name: str | None) -> Manifest:
    lines = (ConnectorRule("github", "", HERE), ConnectorRule("slack", "", HERE))
    spec = tool("one", connector=ConnectorRef(name) if name else None)
    return _one(spec=spec, connectors=Connectors(lines, profiles=(lines,)))


def _keeper(personality: str) -> Manifest:
    return manifest(tool("keeper", "storage:read:*"), allows=["storage:*:personality"], personality=personality)


RULE, OTHER_RULE = {"enum": ["a"]}, {"maxLength": 3}
TERMS: dict[str, tuple[Manifest, Manifest, dict[str, list[str]]]] = {
    "a second rule on an argument narrows": (_one(admission(args={"to": RULE})),
        _one(admission(args={"to": RULE}), admission(args={"to": OTHER_RULE})),
        {"shrunk": ['one: rules on `to`: {"enum":["a"]} → {"enum":["a"]} and {"maxLength":3}']}),
    "a limit that was the unknown default": (_one(), _one(limits={"wall_seconds": 3}),
        {"grown": ["wall_seconds: the default → 3"]}),
    "a limit that is the unknown default": (_one(limits={"wall_seconds": 3}), _one(),
        {"grown": ["wall_seconds: 3 → the default"]}),
    "an agent-wide change is not repeated for each tool": (_both("call", 3), _both("session", 4),
        {"grown": ["asks about writes: before each call → once a session", "wall_seconds: 3 → 4"]}),
    "a tighter limit of a tool is told by itself": (
        _one(admission(limits={"wall_seconds": 2}), limits={"wall_seconds": 3}),
        _one(admission(limits={"wall_seconds": 4}), limits={"wall_seconds": 5}),
        {"grown": ["one: wall_seconds: 2 → 4", "wall_seconds: 3 → 5"]}),
    "a first write is no change of approval": (_one(spec=tool("one", "fs:read:/a", effect="write_limited")), _one(),
        {"grown": ["one: fs:write:/a"]}),
    "nor is the end of the last one": (_one(), _one(spec=tool("one", "fs:read:/a", effect="write_limited")),
        {"shrunk": ["one: fs:write:/a"]}),
    "a weaker class than destructive needs fewer approvals": (_one(spec=tool("one", "fs:*:/a", effect="destructive")),
        _one(spec=tool("one", "fs:*:/a", effect="full")),
        {"shrunk": ["one: class: destructive → full"],
        "grown": ["one: asks about writes: before each call → once a session"]}),
    "another connector": (_connected("github"), _connected("slack"), {"grown": ["one: connector: github → slack"]}),
    "a first connector": (_connected(None), _connected("github"), {"grown": ["one: connector: none → github"]}),
    "no connector any more": (_connected("github"), _connected(None), {"changed": ["one: connector: github → none"]}),
    "names": (_agent(agent="clerk", version="1.0", app="desk", personality=None),
        _agent(agent="cook", version="2.0", app="kitchen", personality="kind"),
        {"changed": ["agent: clerk → cook", "version: 1.0 → 2.0", "app: desk → kitchen", "personality: none → kind"]}),
    "another personality, whose store tools reach": (_keeper("kind"), _keeper("stern"),
        {"grown": ["personality: kind → stern"]}),
    "native for a tool that is not there": (_agent(), _agent(natives=(Natives(frozenset({"a"}), HERE),)), {}),
    "another owner of a key": (_agent(approvals=Approvals(keys=("k1",), names={"k1": "ann"})),
        _agent(approvals=Approvals(keys=("k1",), names={"k1": "eve"})), {"changed": ["owner of k1: ann → eve"]}),
}  # fmt: skip
CHANGES = {**COMMAND_CASES, **REACH, **TOOLS, **TERMS}


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES.values(), ids=list(CHANGES))
def test_a_diff_says_exactly_what_changed(old: Manifest, new: Manifest, expected: dict[str, list[str]]) -> None:
    assert change_texts(diff(old, new)) == expected
    assert bool(expected) is (surface(old) != surface(new))


SOURCE = '''from licet import tool

@tool(capabilities={"network": {"allowed_hosts": ["a.example"]}}, effect="read_only", sandbox="restricted", cost_usd=1)
def fetch(url: str) -> str:
    """Fetch it."""
    return url
'''
AGENT = """agent: a
tools: {fetch: {from: "%s:fetch"}}
capabilities: {tools: [fetch], max_side_effect_class: write_limited, destinations: {allow: [a.example, b.example]}}
"""


@pytest.mark.parametrize(("module", "source", "expected"), [
    ("old", SOURCE.replace("Fetch it.", "Fetch a page.").replace("url", "link"),
        {"grown": ["fetch: takes: url: str → link: str"],
        "changed": ["fetch: description: Fetch it. → Fetch a page."]}),
    ("moved", SOURCE, {}),
    ("moved", SOURCE.replace('capabilities={"network": {"allowed_hosts": ["a.example"]}}',
        'needs=["network:*:a.example"]'), {}),
    ("old", SOURCE.replace('"]}}', '", "b.example"]}}'), {"grown": ["fetch: network:read:b.example"]}),
    ("moved", SOURCE.replace('"a.example"', '"b.example"'),
        {"grown": ["fetch: network:read:b.example"], "shrunk": ["fetch: network:read:a.example"]}),
    ("old", SOURCE.replace("read_only", "write_limited").replace("=1", "=2"),
        {"grown": ["fetch: network:write:a.example", "fetch: class: read_only → write_limited",
        "fetch: cost_usd: 1 → 2"]}),
    ("old", SOURCE.replace("restricted", "isolated"), {"grown": ["fetch: level: restricted → isolated"]}),
    ("moved", SOURCE.replace("@tool", "@other"), None),
])  # fmt: skip
def test_another_source_is_a_change_only_if_its_declaration_differs(
    module: str, source: str, expected: dict[str, list[str]] | None, tmp_path: Path
) -> None:
    versions = []
    for folder, name, text in (("one", "old", SOURCE), ("two", module, source)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(text)
        (tmp_path / folder / "m.yaml").write_text(AGENT % name)
        policy = review(tmp_path / folder / "m.yaml", places=Places("/srv", "/home/a"))
        assert policy.manifest is not None
        versions.append(policy.manifest)
    changes = change_texts(diff(*versions))
    if expected is None:  # nobody can tell any more what it declares, so it may be everything
        assert "fetch: declaration: callable → undeclared" in changes["changed"]
        assert "fetch: network:read:b.example" in changes["grown"]
    else:
        assert changes == expected


def test_every_change_is_of_a_known_kind() -> None:
    pairs = [(old, new) for cases in (REACH, TOOLS, ABOUT_A_TOOL, AGENT_WIDE) for old, new, _ in cases.values()]
    every = [diff(old, new) for old, new in pairs]
    found = {change.kind for one in every for change in (*one.grown, *one.shrunk, *one.changed)}
    assert found == {
        "approval", "arguments", "budget", "bundle", "ceiling", "connector", "cost", "declaration", "deny",
        "description", "effect", "level", "limit", "native", "private", "reach", "record", "reuse", "sandbox",
        "server", "tool",
    }  # fmt: skip


def test_the_document_of_a_change_without_an_origin() -> None:
    assert Change("deny", None, "denied").document() == {
        "kind": "deny",
        "tool": None,
        "text": "denied",
        "before": "",
        "after": "",
        "origin": None,
        "risk": {"level": "none", "kind": "nothing", "text": "reaches nothing"},
    }


def test_the_document_of_a_change() -> None:
    document = diff(_reader("fs:read:/a"), _reader("fs:read:/a", "fs:read:/b")).document()
    assert document == {
        "grown": [
            {
                "kind": "reach",
                "tool": "reader",
                "text": "fs:read:/b",
                "before": "",
                "after": "fs:read:/b",
                "origin": "agent.yaml:11:3",
                "risk": {"level": "low", "kind": "file_read", "text": "reads files"},
            }
        ],
        "shrunk": [],
        "changed": [],
    }
