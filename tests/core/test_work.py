"""The cost of a large manifest, in function calls and not in seconds: it grows no faster than the input."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from counted import work
from licet.core.decision.validate import validate_tools
from licet.core.policy.connector import ConnectorRule, Connectors
from licet.core.policy.layer import ALL_BUT_NETWORK
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission, MaxEffect, Natives
from licet.core.review.diff import diff
from licet.core.review.surface import surface

from .manifests import HERE, layer, manifest, tool


def large(
    size: int,
    *needs: str,
    admission: Admission = Admission(HERE),  # noqa: B008
    denies: int | None = None,
    **given: Any,
) -> Manifest:
    """A manifest of this size whose tools have similar needs; without needs, no tool is declared."""
    names = [f"t{number}" for number in range(size)]
    hosts = [f"network:*:h{number}.example.com" for number in range(size)]
    # Each tool is a rule too: in a manifest, those that are admitted may be called by others.
    allows = [*hosts, *(f"tool:call:{name}" for name in names), "fs:read:/srv"]
    specs = [tool(name, *(need.format(number) for need in needs)) for number, name in enumerate(names)] if needs else []
    return manifest(
        *specs,
        allows=allows,
        denies=[f"{host}:22" for host in hosts[:denies]],
        admissions={name: (replace(admission, approval="session"),) for name in names},
        **given,
    )


def in_one_bundle(size: int) -> Manifest:
    hosts = [f"network:*:h{number}.example.com" for number in range(size)]
    shared = layer(hosts, kind="bundle", silent=ALL_BUT_NETWORK)
    return large(size, "network:*:*", admission=Admission(HERE, "b", layer=shared))


def with_connectors(size: int) -> Manifest:
    lines = tuple(ConnectorRule(f"c{number}", "", HERE) for number in range(size))
    return large(size, "connector:use:*", connectors=Connectors(tenant=lines, profiles=(lines,)))


MANIFESTS: dict[str, Callable[[int], Manifest]] = {
    "tools that need every host": lambda size: large(size, "network:*:*"),
    "tools that need one host": lambda size: large(size, "network:*:h1.example.com"),
    "tools that need what is not allowed": lambda size: large(size, "network:*:elsewhere.example.com"),
    "tools that nobody declares": large,
    "tools of one bundle with many hosts": in_one_bundle,
    "tools under many connectors": with_connectors,
}


def narrowed(found: Manifest) -> Manifest:
    """The manifest without its first host, and without its first deny; its digest is not counted either."""
    first, *others = found.layers
    layers = (replace(first, allows=first.allows[1:], denies=first.denies[1:]), *others)
    return replace(found, layers=layers, loaded=found)


COMMANDS: dict[str, Callable[[Manifest], Any]] = {
    "check": lambda found: validate_tools(found.tools.values(), found),
    "surface": lambda found: surface(found).document(),
    "diff": lambda found: diff(found, narrowed(found)),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("made", MANIFESTS.values(), ids=MANIFESTS)
@pytest.mark.sampled(6)
def test_four_times_the_tools_and_rules_take_about_four_times_the_work(
    made: Callable[[int], Manifest], command: Callable[[Manifest], Any]
) -> None:
    small, large = made(40), made(160)
    command(made(40))  # so that what is made once for all manifests is not counted
    # Neither is the digest: what it is over says for each tool anew what its bundle reaches.
    assert small.digest != large.digest
    assert work(lambda: command(large)) < 6 * work(lambda: command(small))


def test_tools_with_equal_grants_share_one_grant_and_one_list_of_entries() -> None:
    first, *others = surface(large(5, "network:*:*")).tools
    assert first.entries
    for other in others:
        assert other.grant is first.grant
        assert other.entries is first.entries


def test_tools_that_run_at_another_class_get_their_own_grant() -> None:
    found = large(2, "network:*:*", max_effect="write_limited")
    stronger = replace(found.tools["t1"], effect="write_limited")
    one, two = surface(replace(found, tools={**found.tools, "t1": stronger})).tools
    assert not one.grant.has("network:https:post@h0.example.com:443")
    assert two.grant.has("network:https:post@h0.example.com:443")


@pytest.mark.parametrize("differs", ["layer", "effects", "levels", "max_calls", "max_cost_usd", "native"])
def test_undeclared_tools_that_are_admitted_differently_get_their_own_answer(differs: str) -> None:
    narrow = layer(["network:*:h0.example.com"], kind="bundle", silent=ALL_BUT_NETWORK)
    other = {
        "layer": Admission(HERE, layer=narrow),
        "effects": Admission(HERE, effects=(("read_only", HERE),)),
        "levels": Admission(HERE, levels=(("restricted", HERE),)),
        "max_calls": Admission(HERE, max_calls=3),
        "max_cost_usd": Admission(HERE, max_cost_usd=Decimal(3)),
        "native": Admission(HERE),
    }[differs]
    found = large(3)
    found = replace(
        found,
        admissions={**found.admissions, "t1": (replace(other, approval="session"),)},
        max_effects=(MaxEffect("write_limited", HERE, stated=True),),
        natives=(Natives(frozenset({"t1"} if differs == "native" else ()), HERE),),
    )
    shown = surface(found).tools
    assert replace(shown[0], name="") == replace(shown[2], name="")
    assert replace(shown[0], name="") != replace(shown[1], name="")
    alone = replace(found, admissions={"t1": found.admissions["t1"]})
    assert surface(alone).tools == (shown[1],)
