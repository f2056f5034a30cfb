"""How a bundle narrows its tools: private addresses, approval keys, and what a review shows of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from licet import Manifest, load_manifest
from licet.assemble import review
from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny, address_grounds
from licet.core.decision.foreseen import closed_address_problems, foreseen
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Request
from licet.core.policy.terms import Approvals
from licet.core.review.diff import diff
from licet.core.review.surface import surface
from licet.core.values import key_text

ONE, TWO, THREE = (key_text(bytes([number] * 32)) for number in (9, 10, 11))
WORKSPACE: dict[str, Any] = {
    "tools": {
        "t": {"needs": ["network:*:*"], "effect": "read_only", "sandbox": "restricted", "cost_usd": 1},
        "u": {"needs": [], "effect": "read_only", "sandbox": "restricted", "cost_usd": 1},
    },
    "connectors": {"tenant_allowlist": ["github", "slack"]},
}
CAPABILITIES: dict[str, Any] = {
    "bundles": ["b"],
    "tools": ["u"],
    "destinations": {"allow": ["*", "10.1.2.3"]},
    "private": ["10.0.0.0/8", "192.168.0.0/16"],
    "connectors": ["github", "slack"],
}


def write(place: Path, bundle: dict[str, Any], name: str = "b", **capabilities: Any) -> Path:
    """An agent `a` with one bundle, in a directory of its own."""
    place.mkdir(exist_ok=True)
    content = WORKSPACE | {"bundles": {name: {"tools": ["t"]} | bundle}}
    (place / "licet.yaml").write_text(json.dumps(content))
    manifest = {"agent": "a", "capabilities": CAPABILITIES | {"bundles": [name]} | capabilities}
    (place / "manifest.yaml").write_text(json.dumps(manifest))
    return place / "manifest.yaml"


def loaded(place: Path, bundle: dict[str, Any], **given: Any) -> Manifest:
    return load_manifest(write(place, bundle, **given)).expand(str(place), "/home/somebody")


def reach(place: Path, bundle: dict[str, Any], tool: str = "t", **capabilities: Any) -> Reach:
    found = reach_of(loaded(place, bundle, **capabilities), tool)
    assert found is not None
    return found


# Private addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bundle", "host", "address", "fix"),
    [
        ({}, "x.test", "10.9.9.9", None),
        ({}, "x.test", "192.168.1.1", None),
        ({}, "10.1.2.3", "10.1.2.3", None),
        ({"private": ["10.0.0.0/8"]}, "x.test", "10.9.9.9", None),
        ({"private": ["10.0.0.0/8"]}, "x.test", "192.168.1.1", '["10.0.0.0/8", "192.168.1.1/32"]'),
        ({"private": []}, "x.test", "10.9.9.9", '["10.9.9.9/32"]'),
        ({"private": []}, "x.test", "8.8.8.8", None),
        # An address that the manifest writes out is open there; the bundle lists none, and so it stays closed.
        ({"private": []}, "10.1.2.3", "10.1.2.3", '["10.1.2.3/32"]'),
        ({"private": [], "destinations": ["10.1.2.3"]}, "10.1.2.3", "10.1.2.3", None),
        ({"private": ["10.0.0.0/8"], "destinations": ["*"]}, "10.1.2.3", "10.1.2.3", None),
        ({"private": [], "destinations": ["*"]}, "10.1.2.3", "10.1.2.3", '["10.1.2.3/32"]'),
    ],
)
def test_a_bundle_narrows_which_private_addresses_its_tools_reach(
    tmp_path: Path, bundle: dict[str, Any], host: str, address: str, fix: str | None
) -> None:
    grounds = address_grounds(Use(f"network:https:get@{host}"), (address,), reach(tmp_path / "p", bundle))
    assert bool(grounds) == (fix is not None)
    if fix is not None:
        assert grounds[0].reason == "ADDRESS_NOT_ALLOWED"
        assert grounds[0].fix == f"set `bundles.b.private: {fix}` in {tmp_path / 'p' / 'licet.yaml'}"


def test_addresses_that_bundle_and_manifest_close_are_opened_in_both(tmp_path: Path) -> None:
    held = reach(tmp_path / "p", {"private": []}, private=[])
    (first, *_) = address_grounds(Use("network:https:get@x.test"), ("10.0.0.1",), held)
    assert "set `capabilities.private: [" in first.fix
    assert "set `bundles.b.private: [" in first.fix


def test_a_metadata_address_is_opened_by_no_bundle(tmp_path: Path) -> None:
    held = reach(tmp_path / "p", {"private": ["169.254.0.0/16"]})
    grounds = address_grounds(Use("network:https:get@x.test"), ("169.254.169.254",), held)
    assert grounds
    assert {ground.fix for ground in grounds} == {""}


def test_a_review_sees_that_a_bundle_leaves_no_private_address(tmp_path: Path) -> None:
    policy = review(write(tmp_path / "p", {"private": []}))
    assert policy.manifest is not None
    request = Request("t", (Use("network:https:get@db.internal"),))
    decision = foreseen(decide(request, policy.manifest), policy.manifest)
    assert decision.verdict == "deny"
    assert "`private` is empty in bundles.b" in decision.rules[0].text


# Approvals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "bundle", "together"),
    [
        ({}, {}, Approvals("session", 300, 1, None)),
        ({"expires_seconds": 60}, {"expires_seconds": 600}, Approvals("session", 60, 1, None)),
        ({"expires_seconds": 600}, {"expires_seconds": 60}, Approvals("session", 60, 1, None)),
        ({}, {"expires_seconds": 600}, Approvals("session", 300, 1, None)),
        ({"quorum": 2, "keys": [ONE, TWO]}, {"quorum": 1}, Approvals("session", 300, 2, (ONE, TWO))),
        ({"keys": [ONE, TWO]}, {"quorum": 2}, Approvals("session", 300, 2, (ONE, TWO))),
        ({}, {"keys": [ONE]}, Approvals("session", 300, 1, (ONE,))),
        ({"keys": [ONE, TWO]}, {"keys": [TWO, THREE]}, Approvals("session", 300, 1, (TWO,))),
        ({"keys": [ONE]}, {"keys": []}, Approvals("session", 300, 1, ())),
        ({"keys": [ONE + "="]}, {"keys": [ONE]}, Approvals("session", 300, 1, (ONE + "=",))),
        ({"write": "call"}, {"write": "manifest"}, Approvals("call", 300, 1, None)),
        ({"write": "manifest"}, {"write": "session"}, Approvals("session", 300, 1, None)),
    ],
)
def test_the_stricter_value_of_each_key_of_approvals_counts(
    tmp_path: Path, manifest: dict[str, Any], bundle: dict[str, Any], together: Approvals
) -> None:
    held = {"approvals": bundle} if bundle else {}
    assert reach(tmp_path / "p", held, approvals=manifest).approvals == together
    alone = reach(tmp_path / "p", held, "u", approvals=manifest).approvals
    assert alone.quorum == manifest.get("quorum", 1)  # a tool in no bundle is approved as its manifest says


@pytest.mark.parametrize(
    ("manifest", "bundle", "found", "severity"),
    [
        ({}, {"quorum": 2}, "a quorum of 2 without `keys`", "warning"),
        ({"keys": [ONE]}, {"quorum": 2}, "a quorum of 2", "error"),
        ({"quorum": 2, "keys": [ONE, TWO]}, {"keys": [TWO, THREE]}, "a quorum of 2", "error"),
        ({"keys": [ONE]}, {"keys": [TWO]}, "keys of which the manifest lists none", "warning"),
    ],
)
def test_a_bundle_whose_approvals_cannot_be_given_is_reported(
    tmp_path: Path, manifest: dict[str, Any], bundle: dict[str, Any], found: str, severity: str
) -> None:
    policy = review(write(tmp_path / "p", {"approvals": bundle}, approvals=manifest, destinations={}))
    assert [(one.found, one.severity, Path(one.origin.file).name) for one in policy.problems] == [
        (found, severity, "licet.yaml")
    ]


def test_a_bundle_with_a_cost_limit_needs_the_cost_of_its_tools(tmp_path: Path) -> None:
    path = write(tmp_path / "p", {"budget": {"max_cost_usd": 1}}, destinations={})
    workspace = json.loads((path.parent / "licet.yaml").read_text())
    del workspace["tools"]["t"]["cost_usd"]
    (path.parent / "licet.yaml").write_text(json.dumps(workspace))
    assert [problem.found for problem in review(path).problems] == ["`t` without `cost_usd`"]


# Review --------------------------------------------------------------------------------------------------------------

TERMS: dict[str, Any] = {
    "budget": {"max_calls_per_session": 5, "max_cost_usd": 2},
    "approvals": {"write": "call", "expires_seconds": 60, "quorum": 2, "keys": [ONE, TWO]},
    "connectors": [{"connector": "github", "version": ">=3"}],
    "private": ["10.0.0.0/8"],
}


def test_the_surface_shows_the_limits_of_a_bundle(tmp_path: Path) -> None:
    shown = surface(loaded(tmp_path / "p", TERMS)).document()["bundles"]["b"]
    assert "licet.yaml" in shown.pop("origin")
    assert shown == {
        "budget": {
            "max_calls_per_session": 5,
            "max_calls_per_day": None,
            "max_cost_usd": "2",
            "max_cost_usd_per_day": None,
        },
        "approvals": {
            "write": "call",
            "expires_seconds": 60,
            "quorum": 2,
            "keys": sorted([ONE, TWO]),
            "delete": "call",
            "through_client": False,
            "names": {},
        },
        "connectors": {"github": [">=3"]},
        "private": ["10.0.0.0/8"],
    }


def test_a_bundle_without_limits_is_not_shown(tmp_path: Path) -> None:
    idle = {"approvals": {"quorum": 1, "expires_seconds": 900}, "private": ["0.0.0.0/0", "::/0"]}
    assert surface(loaded(tmp_path / "p", idle)).bundles == ()


WIDER: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("a higher limit", {"budget": {"max_calls_per_day": 5}}, {"budget": {"max_calls_per_day": 6}}, "max_calls_per_day"),
    ("no limit", {"budget": {"max_cost_usd": 5}}, {}, "max_cost_usd: 5 → no limit"),
    ("a longer expiry", {"approvals": {"expires_seconds": 5}}, {"approvals": {"expires_seconds": 9}},
        "expires_seconds"),
    ("a smaller quorum", TERMS, TERMS | {"approvals": TERMS["approvals"] | {"quorum": 1}}, "quorum: 2 → 1"),
    ("another key", {"approvals": {"keys": [ONE]}}, {"approvals": {"keys": [ONE, TWO]}}, "keys"),
    ("no keys", {"approvals": {"keys": [ONE]}}, {}, "any approver"),
    ("a looser word", {"approvals": {"write": "call"}}, {}, "approvals.write: call → session"),
    ("another connector", {"connectors": ["github"]}, {"connectors": ["github", "slack"]}, "connector slack"),
    ("any connector", {"connectors": []}, {}, "connector github"),
    ("wider versions", TERMS, TERMS | {"connectors": ["github"]}, "versions of github"),
    ("more addresses", {"private": ["10.0.0.0/8"]}, {}, "private addresses 192.168.0.0/16"),
    ("first addresses", {"private": []}, {"private": ["10.0.0.0/9"]}, "private addresses 10.0.0.0/9"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "text"), [case[1:] for case in WIDER], ids=[case[0] for case in WIDER])
def test_removing_a_limit_of_a_bundle_is_growth(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], text: str
) -> None:
    before, after = loaded(tmp_path / "old", old), loaded(tmp_path / "new", new)
    assert before.digest != after.digest
    wider, narrower = diff(before, after), diff(after, before)
    assert any(text in change.text and change.text.startswith("bundle `b`: ") for change in wider.grown)
    assert wider.shrunk == () == narrower.grown
    assert narrower.shrunk
    assert not diff(before, before)


def test_moving_a_tool_to_a_looser_bundle_is_growth(tmp_path: Path) -> None:
    before, after = loaded(tmp_path / "old", TERMS), loaded(tmp_path / "new", {}, name="c")
    texts = [change.text for change in diff(before, after).grown]
    for part in ("max_calls_per_session: 5 → no limit", "quorum: 2 → 1", "connector slack", "private addresses"):
        assert any(part in text for text in texts), part


def test_unused_bundles_change_neither_digest_nor_surface(tmp_path: Path) -> None:
    path = write(tmp_path / "p", TERMS)
    before = load_manifest(path)
    workspace = json.loads((path.parent / "licet.yaml").read_text())
    workspace["bundles"]["spare"] = {"tools": ["w"], "budget": {"max_cost_usd": 1}, "private": []}
    (path.parent / "licet.yaml").write_text(json.dumps(workspace))
    after = load_manifest(path)
    assert (before.digest, surface(before).bundles) == (after.digest, surface(after).bundles)


# Two workspaces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "terms",
    [
        {"private": []},
        {"budget": {"max_calls_per_session": 1}},
        {"connectors": ["slack"]},
        {"approvals": {"write": "call"}},
    ],
    ids=str,
)
def test_manifests_with_different_bundles_of_the_same_name_do_not_meet(terms: dict[str, Any]) -> None:
    one, other = (_assigning({"tools": ["t"], **stated}) for stated in ({}, terms))
    for first, second in ((one, other), (other, one)):
        with pytest.raises(ValueError, match="the bundle `b` says different things in"):
            first.meet(second)
    assert one.meet(_assigning({"tools": ["t"]})).admissions.keys() == {"t"}


def _assigning(bundle: dict[str, Any]) -> Manifest:
    capabilities = {"bundles": ["b"], "connectors": ["github", "slack"]}
    return Manifest.from_data({"agent": "a", "capabilities": capabilities}, {**WORKSPACE, "bundles": {"b": bundle}})


# What a list of a bundle closes

_CLOSED: dict[str, tuple[list[str], list[str], str, bool]] = {
    "an empty list of the bundle": ([], ["127.0.0.0/8"], "localhost", True),
    "lists that have nothing in common": (["10.0.0.0/8"], ["192.168.0.0/16"], "db.internal", True),
    "a list without the addresses of this machine": (["10.0.0.0/8"], ["10.0.0.0/8"], "localhost", True),
    "an address that the ceiling writes out": ([], [], "127.0.0.1", True),
    "lists that have it": (["127.0.0.0/8"], ["127.0.0.0/8"], "localhost", False),
    "an address in both lists": (["127.0.0.0/8"], ["127.0.0.0/8"], "127.0.0.1", False),
}


@pytest.mark.parametrize(("bundle", "manifest", "host", "closed"), _CLOSED.values(), ids=_CLOSED)
def test_check_explain_and_surface_agree_on_private_addresses(
    bundle: list[str], manifest: list[str], host: str, closed: bool, tmp_path: Path
) -> None:
    tool = {"needs": ["network:*:*"], "effect": "read_only", "sandbox": "restricted"}
    shared = {"tools": {"t": tool}, "bundles": {"b": {"tools": ["t"], "private": bundle}}}
    own = {"bundles": ["b"], "private": manifest, "destinations": {"allow": [host]}}
    (tmp_path / "licet.yaml").write_text(json.dumps(shared))
    file = tmp_path / "m.yaml"
    file.write_text(json.dumps({"agent": "a", "capabilities": own}))
    policy = review(file).manifest
    assert policy is not None
    decision = foreseen(decide(Request("t", (Use(f"network:http:get@{host}:80"),)), policy), policy)
    warned = list(closed_address_problems(policy))
    (shown,) = surface(policy, policy).tools
    assert (isinstance(decision, Deny), bool(warned), not shown.entries) == (closed, closed, closed)
    if closed:
        assert all(ground.origin is not None and ground.origin.line for ground in decision.rules)
        assert any(ground.fix for ground in decision.rules)


def _agent(*tenant: str, app: dict[str, Any]) -> Manifest:
    workspace = {
        "tools": {"t": {"needs": ["connector:use:github"], "effect": "read_only", "sandbox": "restricted"}},
        "connectors": {"tenant_allowlist": [*tenant], "app_overrides": {"x": app}},
    }
    capabilities = {"tools": ["t"], "grants": ["connector:use:*"], "connectors": ["github", "slack"]}
    return Manifest.from_data({"agent": "a", "app": "x", "capabilities": capabilities}, workspace)


@pytest.mark.parametrize(
    ("other", "reached"),
    [
        (_agent("github", app={}), True),
        (_agent("slack", app={}), False),
        (_agent("github", app={"allow": ["slack"]}), False),
        (_agent("github", app={"allow": []}), False),
        (_agent("github", app={"deny": ["github"]}), False),
    ],
)
def test_connector_lists_of_another_workspace_count_where_two_manifests_meet(other: Manifest, reached: bool) -> None:
    mine = _agent("github", "slack", app={})
    for met in (mine.meet(other), other.meet(mine)):
        decision = decide(Request("t", (Use("connector:use:github"),)), met)
        assert (decision.verdict == "allow") == reached
