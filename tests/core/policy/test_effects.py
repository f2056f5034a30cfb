"""What each side-effect class permits for every kind of use, and the order of classes and levels."""

from itertools import pairwise

import pytest

from core.naive import DOMAINS
from core.oracle import all_uses, class_permits, effect_of
from core.tables import grouped
from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import (
    CLASSES,
    LEVELS,
    EffectClass,
    class_fits,
    delete_asks,
    level_fits,
    permits,
    weakest_class,
)

USES = tuple(use for domain in DOMAINS for use in all_uses(domain))
NAMED = CapabilitySet(["network:tcp:a.b:80", "network:tcp:*.b"])

# One line of the design each: the weakest class that permits a use.
WEAKEST = grouped({
    "read_only": ["fs:read:/srv/x", "network:https:get@a.example", "network:http:head@a.example",
        "network:https:options@a.example", "process:exec:git", "env:read:PATH", "secret:read:KEY",
        "storage:write:tool-private", "storage:write:session", "storage:read:personality", "tool:call:other",
        "connector:use:github"],
    "write_limited": ["fs:write:/srv/x", "network:https:post@a.example", "network:https:put@a.example",
        "network:https:patch@a.example", "storage:write:personality"],
    "full": ["fs:delete:/srv/x", "network:https:delete@a.example", "network:https:propfind@a.example",
        "network:tcp:a.example:22"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WEAKEST)
def test_each_use_has_a_weakest_class(text: str, expected: EffectClass) -> None:
    assert weakest_class(Use(text)) == expected
    for effect in CLASSES:
        assert permits(effect).has(Use(text)) == (CLASSES.index(effect) >= CLASSES.index(expected))


def test_tcp_that_a_rule_names_is_permitted_to_write_limited_and_never_to_read_only() -> None:
    use = Use("network:tcp:db.internal:5432")
    assert weakest_class(use, tcp_named=True) == "write_limited"
    assert weakest_class(Use("network:tcp:[::1]:5432"), tcp_named=True) == "write_limited"
    named = CapabilitySet(["network:tcp:db.internal:5432"])
    assert not permits("read_only", named).has(use)
    assert permits("write_limited", named).has(use)
    assert not permits("write_limited", named).has(Use("network:tcp:db.internal:5433"))


@pytest.mark.parametrize("host", ["get", "delete", "other", "tcp", "read"])
def test_a_host_may_be_named_like_a_method(host: str) -> None:
    assert weakest_class(Use(f"network:tcp:{host}:5432"), tcp_named=True) == "write_limited"
    assert weakest_class(Use(f"network:tcp:{host}:5432")) == "full"


def test_naming_tcp_names_nothing_else() -> None:
    named = CapabilitySet(["network:tcp:db.internal:5432"])
    assert permits("write_limited", named) <= permits("full")
    assert not permits("write_limited", named).has(Use("network:https:delete@db.internal:5432"))


@pytest.mark.parametrize("effect", CLASSES)
def test_a_class_permits_exactly_its_line_of_the_table(effect: EffectClass) -> None:
    plain, named = permits(effect), permits(effect, NAMED)
    for use in USES:
        assert plain.has(use) == class_permits(effect, use, tcp_is_named=False), use
        assert named.has(use) == class_permits(effect, use, tcp_is_named=NAMED.has(use)), use


def test_a_stronger_class_permits_whatever_a_weaker_one_does() -> None:
    for weaker, stronger in pairwise(CLASSES):
        assert permits(weaker, NAMED) <= permits(stronger, NAMED)


def test_every_use_has_a_class_that_permits_it() -> None:
    assert {weakest_class(use) for use in USES} == {"read_only", "write_limited", "full"}


@pytest.mark.parametrize("effect", CLASSES)
def test_each_delete_needs_approval_at_every_class_that_permits_deletes(effect: EffectClass) -> None:
    for use in USES:
        expected = effect_of(use) == "delete" and effect in ("full", "destructive")
        assert delete_asks(use, effect) == expected, use


def test_classes_and_levels_are_ordered() -> None:
    for i, one in enumerate(CLASSES):
        for j, other in enumerate(CLASSES):
            assert class_fits(one, other) == (i <= j)
    for i, level in enumerate(LEVELS):
        for j, above in enumerate(LEVELS):
            assert level_fits(level, above) == (i <= j)
    assert " < ".join(CLASSES) == "read_only < write_limited < full < destructive"
    assert " < ".join(LEVELS) == "restricted < isolated < native"
