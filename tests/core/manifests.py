"""Manifests for tests: small ones made by hand, and random ones over the universes of `naive`."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.connector import ConnectorRef, ConnectorRule, Connectors
from licet.core.policy.layer import ALL_BUT_NETWORK, CLASSES, EVERY_DOMAIN, LEVELS, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import WRITE_APPROVALS, Admission, Approvals, Budget, MaxEffect, Natives
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin

from .strategies import PlainSet, rules, sets_of

HERE = Origin("agent.yaml", 1, 1)


def layer(
    allows: Iterable[str] = (),
    denies: Iterable[str] = (),
    kind: Any = "manifest",
    *,
    by_fs_reach: bool = False,
    **given: Any,
) -> Layer:
    """A layer of rules, each with another line number; connectors have their own lists.

    With `by_fs_reach`, deletes of files are allowed by `fs_reach.write`, and otherwise by `grants`.
    """
    given.setdefault("silent", frozenset({"connector"}))

    def key(text: str) -> str:
        return "capabilities.fs_reach.write" if by_fs_reach and text.startswith("fs:delete:") else "grants"

    return Layer(
        kind,
        f"the {kind}",
        HERE,
        tuple(Rule(Capability(text), Origin("agent.yaml", line, 3), key(text)) for line, text in enumerate(allows, 10)),
        tuple(Rule(Capability(text), Origin("agent.yaml", line, 3), "deny") for line, text in enumerate(denies, 50)),
        **given,
    )


def tool(name: str, *needs: str, effect: Any = "read_only", sandbox: Any = "restricted", **given: Any) -> ToolSpec:
    """A tool that needs some rules."""
    return ToolSpec(name, CapabilitySet(needs), effect, sandbox, origin=Origin("licet.yaml", 7, 3), **given)


def admission(**given: Any) -> Admission:
    """A place in the list of tools."""
    return Admission(Origin("agent.yaml", 5, 5), **given)


def manifest(
    *tools: ToolSpec,
    allows: Iterable[str] = (),
    denies: Iterable[str] = (),
    admissions: Mapping[str, tuple[Admission, ...]] | None = None,
    **given: Any,
) -> Manifest:
    """A manifest of one layer that admits its tools by name, unless `admissions` says otherwise."""
    asked = given.get("approvals", Approvals()).write
    admitted = {spec.name: (admission(approval=asked),) for spec in tools} if admissions is None else admissions
    given.setdefault("layers", (layer(allows, denies),))
    given.setdefault("pinned", "licet.lock")
    strongest = given.pop("max_effect", "read_only")
    return Manifest(
        agent=given.pop("agent", "clerk"),
        origin=HERE,
        admissions=admitted,
        tools={spec.name: spec for spec in tools},
        max_effects=(MaxEffect(strongest, Origin("agent.yaml", 4, 3), stated=True),),
        **given,
    )


# Random ones ----------------------------------------------------------------------------------------------------------

NAMES = ("one", "two", "three")
# Often everything: a tool that needs only what the ceiling happens not to allow teaches nothing.
_EVERYTHING = tuple(f"{domain}:*:*" for domain in sorted(EVERY_DOMAIN))
_texts = st.lists(rules, max_size=5).map(lambda found: tuple(rule.text for rule in found))
_needs = st.one_of(st.just(_EVERYTHING), _texts)
_limits = st.dictionaries(st.sampled_from(("wall_seconds", "memory_mb")), st.integers(1, 3), max_size=2)
_args = st.dictionaries(
    st.sampled_from(("path", "url")),
    st.sampled_from(({"maxLength": 5}, {"enum": ["a"]}, {"scope": "network"})),
    max_size=2,
)
_ranges = st.lists(
    st.sampled_from(("10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "fd00::/8", "fd00::/16")), max_size=3
).map(tuple)
_lines = st.lists(
    st.builds(
        ConnectorRule, st.sampled_from(("github", "slack")), st.sampled_from(("", ">=2.0", "==1.5.*")), st.just(HERE)
    ),
    max_size=3,
).map(tuple)


def _often_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.none(), values)


def _layer_of(found: PlainSet, kind: Any, silent: frozenset[str], by_fs_reach: bool = False) -> Layer:
    allows, denies = [rule.text for rule in found.allow], [rule.text for rule in found.deny]
    return layer(allows, denies, kind, silent=silent, by_fs_reach=by_fs_reach)


_plain_sets = st.builds(
    PlainSet, st.lists(rules, max_size=8).map(tuple), st.one_of(st.just(()), st.lists(rules, max_size=3).map(tuple))
)
_own_layers = st.builds(_layer_of, _plain_sets, st.just("manifest"), st.just(frozenset[str]()), st.booleans())
_narrowing = st.builds(
    _layer_of, sets_of("network"), st.sampled_from(("workspace", "bundle")), st.just(ALL_BUT_NETWORK)
)
_layers = st.one_of(
    _own_layers.map(lambda one: (one,)),
    st.tuples(_narrowing, _own_layers),
    st.tuples(_own_layers, _own_layers),
)
_stated_classes = st.lists(st.tuples(st.sampled_from(CLASSES), st.just(HERE)), max_size=1).map(tuple)
_stated_levels = st.lists(st.tuples(st.sampled_from(LEVELS), st.just(HERE)), max_size=1).map(tuple)
_seats = st.builds(
    Admission,
    st.just(HERE),
    st.sampled_from(("", "", "desk", "lab")),
    _stated_classes,
    _stated_levels,
    _often_none(_narrowing),
    _args,
    _often_none(st.sampled_from(WRITE_APPROVALS)),
    _often_none(st.integers(0, 3)),
    _often_none(st.sampled_from((Decimal("0.5"), Decimal(5)))),
    _limits,
)
specs = st.builds(
    ToolSpec,
    st.just("?"),
    _needs.map(CapabilitySet),
    _often_none(st.sampled_from(CLASSES)),
    st.one_of(st.sampled_from(LEVELS), st.none()),
    _often_none(st.builds(ConnectorRef, st.sampled_from(("github", "slack")), st.sampled_from(("", "2.1")))),
    _often_none(st.sampled_from((Decimal(0), Decimal(1)))),
    origin=st.just(HERE),
)
_admitted = st.dictionaries(
    st.sampled_from(NAMES), st.lists(_seats, min_size=1, max_size=2).map(tuple), min_size=1, max_size=3
)
_declared = st.dictionaries(st.sampled_from(NAMES), specs, min_size=1, max_size=3)


def _named(specs: dict[str, ToolSpec]) -> dict[str, ToolSpec]:
    return {name: replace(spec, name=name) for name, spec in specs.items()}


_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "agent": st.sampled_from(("clerk", "cook")),
    "origin": st.just(HERE),
    "pinned": st.sampled_from(("licet.lock", "licet.lock", "")),
    "version": st.sampled_from(("", "1.0")),
    "app": st.just(""),
    "personality": _often_none(st.just("kind")),
    "layers": _layers,
    "admissions": _admitted,
    "tools": _declared.map(_named),
    "max_effects": st.sampled_from((*CLASSES, "full")).map(lambda effect: (MaxEffect(effect, HERE, stated=True),)),
    "private": st.lists(_ranges, max_size=2).map(tuple),
    "natives": st.frozensets(st.sampled_from(NAMES), max_size=2).map(lambda names: (Natives(names, HERE),)),
    "connectors": st.builds(Connectors, _lines, _often_none(_lines), profiles=st.tuples(_lines)),
    "approvals": st.builds(Approvals, st.sampled_from(WRITE_APPROVALS), st.sampled_from((300, 600)), st.integers(1, 2),
        st.sampled_from((None, (), ("k1",), ("k1", "k2"))), st.sampled_from(WRITE_APPROVALS), st.booleans()),
    "budget": st.builds(Budget, _often_none(st.integers(0, 3)),
        _often_none(st.sampled_from((Decimal("0.5"), Decimal(5)))),
        _often_none(st.sampled_from((Decimal("0.5"), Decimal(5)))), _often_none(st.integers(0, 3))),
    "limits": _limits,
    "allow_degraded": st.booleans(),
    "record": st.sampled_from(("digests", "full")),
    "servers": st.dictionaries(st.just("files"),
        st.fixed_dictionaries({"command": st.sampled_from((["a"], ["b"])), "grants": _texts.map(list),
        "env": st.sampled_from(([], ["HOME"]))}), max_size=1),
}  # fmt: skip


@st.composite
def _manifests(draw: st.DrawFn) -> Manifest:
    return Manifest(**{part: draw(values) for part, values in _PARTS.items()})


manifests = _manifests()


@st.composite
def _versions(draw: st.DrawFn) -> tuple[Manifest, Manifest]:
    old = draw(manifests)
    parts = draw(st.lists(st.sampled_from(sorted(_PARTS)), max_size=2, unique=True))
    return old, replace(old, **{part: draw(_PARTS[part]) for part in parts})


# Two versions of a manifest that differ in few parts, or in none that matters.
versions = _versions()
