"""The meaning of a manifest as plain data, and its digest."""

import json
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import Phase, given, settings
from msgspec.structs import replace

from core.manifests import HERE, admission, layer, manifest, manifests, tool
from licet.core.policy.layer import Layer, Rule
from licet.core.policy.manifest import Manifest, document, manifest_digest
from licet.core.policy.terms import Approvals, Budget, Example, MaxEffect, Natives
from licet.core.values import Origin, canonical_json, digest, money_text, plain

UNSHRUNK = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))  # random manifests take minutes to shrink
BASE = manifest(
    tool("t", "env:read:A", cost_usd=Decimal("0.25")),
    allows=["env:read:A", "env:read:B"],
    denies=["env:read:C"],
    version="1.0",
    budget=Budget(5, Decimal("1.50"), None),
)


@given(manifests)
@settings(UNSHRUNK, max_examples=settings().max_examples // 2)
def test_a_document_is_plain_json(policy: Manifest) -> None:
    said = document(policy)
    assert json.loads(json.dumps(said)) == said
    assert manifest_digest(policy) == digest(said)
    assert canonical_json(said) == rfc8785.dumps(said)


def _elsewhere(origin: Origin) -> Origin:
    return Origin("another/file.yaml", origin.line + 100, origin.column + 7)


def _moved(one: Layer) -> Layer:
    def moved(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        return tuple(Rule(rule.capability, _elsewhere(rule.origin), "elsewhere") for rule in reversed(rules))

    return replace(one, origin=_elsewhere(one.origin), allows=moved(one.allows), denies=moved(one.denies))


@given(manifests)
@settings(UNSHRUNK, max_examples=settings().max_examples // 2)
def test_places_and_order_do_not_change_the_document(policy: Manifest) -> None:
    moved = replace(
        policy,
        origin=_elsewhere(policy.origin),
        layers=tuple(_moved(one) for one in policy.layers),
        admissions=dict(reversed(list(policy.admissions.items()))),
        tools={name: replace(spec, origin=_elsewhere(HERE)) for name, spec in reversed(list(policy.tools.items()))},
        max_effects=tuple(MaxEffect(top.effect, _elsewhere(top.origin), top.stated) for top in policy.max_effects),
        limits=dict(reversed(list(policy.limits.items()))),
        files=("another/file.yaml",),
    )
    assert manifest_digest(moved) == manifest_digest(policy)


@given(manifests, manifests)
@settings(UNSHRUNK, max_examples=settings().max_examples // 3)
def test_equal_documents_are_equal_digests_and_no_others(one: Manifest, two: Manifest) -> None:
    assert (document(one) == document(two)) == (manifest_digest(one) == manifest_digest(two))


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("another agent", {"agent": "other"}),
    ("another version", {"version": "1.1"}),
    ("another app", {"app": "x"}),
    ("a personality", {"personality": "p"}),
    ("an allow more", {"layers": (layer(["env:read:A", "env:read:B", "env:read:D"], ["env:read:C"]),)}),
    ("a deny less", {"layers": (layer(["env:read:A", "env:read:B"]),)}),
    ("another layer", {"layers": (*BASE.layers, layer(["env:read:A"], kind="personality"))}),
    ("a tool more", {"admissions": {**BASE.admissions, "u": (admission(),)}}),
    ("what a tool needs", {"tools": {"t": tool("t", "env:read:B", cost_usd=Decimal("0.25"))}}),
    ("what a tool costs", {"tools": {"t": tool("t", "env:read:A", cost_usd=Decimal("0.26"))}}),
    ("a stronger class", {"max_effects": (MaxEffect("full", HERE, stated=True),)}),
    ("an address range", {"private": (("10.0.0.0/8",),)}),
    ("a native tool", {"natives": (Natives(frozenset({"t"}), HERE),)}),
    ("who agrees", {"approvals": Approvals("call")}),
    ("how long that holds", {"approvals": Approvals(expires_seconds=301)}),
    ("how many must agree", {"approvals": Approvals(quorum=2)}),
    ("whose word counts", {"approvals": Approvals(keys=("k",))}),
    ("that nobody's word counts", {"approvals": Approvals(keys=())}),
    ("calls", {"budget": Budget(6, Decimal("1.50"), None)}),
    ("money", {"budget": Budget(5, Decimal("1.51"), None)}),
    ("money a day", {"budget": Budget(5, Decimal("1.50"), Decimal(2))}),
    ("a limit", {"limits": {"wall_seconds": 1}}),
    ("a weaker wall", {"allow_degraded": True}),
    ("what is recorded", {"record": "full"}),
    ("a server", {"servers": {"s": {"command": ["x"]}}}),
    ("where a tool is declared", {"sources": {"t": ("m:t", HERE)}}),
]


@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[name for name, _ in CHANGES])
def test_a_change_of_meaning_is_another_document(change: dict[str, Any]) -> None:
    assert document(replace(BASE, **change)) != document(BASE)


def test_these_changes_give_different_documents() -> None:
    digests = {manifest_digest(replace(BASE, **change)) for _, change in CHANGES}
    assert len(digests) == len(CHANGES)


SAME: list[tuple[str, dict[str, Any]]] = [
    ("rules in another order", {"layers": (layer(["env:read:B", "env:read:A", "env:read:A"], ["env:read:C"]),)}),
    ("an allow inside a deny", {"layers": (layer(["env:read:A", "env:read:B", "env:read:C"], ["env:read:C"]),)}),
    ("tools of other agents", {"tools": {**BASE.tools, "other": tool("other", "fs:*:*")}}),
    ("money in other digits", {"budget": Budget(5, Decimal("1.5"), None)}),
    ("the policy's own protection", {"layers": (*BASE.layers, layer(denies=["fs:write:/a"], kind="protected paths"))}),
    ("the files it came from", {"files": ("a.yaml", "b.yaml")}),
    ("an example", {"examples": (Example("t", "env:read:A", True, HERE),)}),
    ("an example of the opposite", {"examples": (Example("t", "env:read:A", False, HERE),)}),
]


@pytest.mark.parametrize("change", [change for _, change in SAME], ids=[name for name, _ in SAME])
def test_a_change_without_meaning_gives_the_same_document(change: dict[str, Any]) -> None:
    assert document(replace(BASE, **change)) == document(BASE)


def test_filling_in_directories_does_not_change_the_digest() -> None:
    policy = manifest(tool("t", "fs:read:~/x"), allows=["fs:read:${workdir}", "fs:read:~"])
    one, two = policy.expand("/one", "/home/1"), policy.expand("/two", "/home/2")
    assert one.digest == two.digest == policy.digest == manifest_digest(policy)
    assert one.ceiling != two.ceiling


def test_a_rule_that_names_tcp_is_part_of_the_meaning() -> None:
    plainly = manifest(tool("t"), allows=["network:*:db.internal"])
    named = manifest(tool("t"), allows=["network:*:db.internal", "network:tcp:db.internal:5432"])
    assert plainly.ceiling == named.ceiling
    assert document(plainly) != document(named)


MONEY = [
    ("5", "5"),
    ("5.00", "5"),
    ("0.250", "0.25"),
    ("1E+3", "1000"),
    ("1E-7", "0.0000001"),
    ("0", "0"),
    ("0.00", "0"),
]


@pytest.mark.parametrize(("amount", "text"), MONEY)
def test_money_is_a_plain_decimal_string(amount: str, text: str) -> None:
    assert money_text(Decimal(amount)) == text
    assert plain({"cost": Decimal(amount)}) == {"cost": text}


def test_plain_data_has_no_python_in_it() -> None:
    said = plain({"set": frozenset({"b", "a"}), "tuple": (1, (2,)), "proxy": MappingProxyType({"k": Decimal("1.0")})})
    assert said == {"set": ["a", "b"], "tuple": [1, [2]], "proxy": {"k": "1"}}
    assert digest(said) == digest({"proxy": {"k": "1"}, "tuple": [1, [2]], "set": ["a", "b"]})
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
