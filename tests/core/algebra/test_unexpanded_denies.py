"""Denies that start with `~` or `${workdir}`: until they are expanded they may mean any path, so they refuse all."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.naive import ACTIONS, BINARIES, PATHS, PlainRule, reach, reach_of, universe
from core.strategies import PlainSet
from licet.core.algebra.rules import Capability, Use, use_of_path
from licet.core.algebra.set import CapabilitySet
from licet.guard.held_paths import held_paths
from licet.guard.ports import Escaped

ROOTED = ("~", "~/a", "~/a/b", "${workdir}", "${workdir}/a")
SCOPES = {"fs": (*PATHS, *ROOTED), "process": (*BINARIES, "~/a", "${workdir}/a")}
# Where the two roots may lie: apart, inside each other, the same, at rules, beside them, and at the top.
PLACES = tuple(product(("/a", "/a/b", "/z", "/"), repeat=2))


@cache
def _uses(domain: str) -> tuple[Use, ...]:
    return tuple(Use(use.text) for use in universe(domain))


def reached(domain: str, found: CapabilitySet) -> int:
    return sum(1 << bit for bit, use in enumerate(_uses(domain)) if found.has(use))


def is_rooted(rule: PlainRule) -> bool:
    return rule.scope.split("/")[0] in ("~", "${workdir}")


def expected(domain: str, plain: PlainSet) -> int:
    """The reference for `has`: an unexpanded deny refuses every use of its actions."""
    denies = [replace(rule, scope="*") if is_rooted(rule) else rule for rule in plain.deny]
    return reach_of(domain, plain.allow, denies)


def rules_of(domain: str, scopes: tuple[str, ...]) -> st.SearchStrategy[PlainRule]:
    return st.sampled_from([PlainRule(domain, *parts) for parts in product((*ACTIONS[domain], "*"), scopes)])


def sets_of(domain: str) -> st.SearchStrategy[PlainSet]:
    some = st.lists(rules_of(domain, SCOPES[domain]), max_size=4).map(tuple)
    return st.builds(PlainSet, some, some)


domains = st.sampled_from(("fs", "fs", "process"))
one_set = domains.flatmap(lambda domain: st.tuples(st.just(domain), sets_of(domain)))
two_sets = domains.flatmap(lambda domain: st.tuples(st.just(domain), sets_of(domain), sets_of(domain)))
three_sets = domains.flatmap(lambda domain: st.tuples(sets_of(domain), sets_of(domain), sets_of(domain)))


@given(one_set)
def test_a_set_has_what_the_reference_says(plain: tuple[str, PlainSet]) -> None:
    domain, one = plain
    assert reached(domain, one.real) == expected(domain, one)


@given(two_sets)
def test_a_meet_has_what_both_have_and_a_union_what_no_deny_of_either_refuses(
    two: tuple[str, PlainSet, PlainSet],
) -> None:
    domain, one, other = two
    assert reached(domain, one.real & other.real) == expected(domain, one) & expected(domain, other)
    both = PlainSet(one.allow + other.allow, one.deny + other.deny)
    assert reached(domain, one.real | other.real) == expected(domain, both)


@given(two_sets)
def test_a_set_within_another_has_no_use_that_the_other_has_not(two: tuple[str, PlainSet, PlainSet]) -> None:
    domain, one, other = two
    if one.real <= other.real:
        assert not expected(domain, one) & ~expected(domain, other)
    assert (not one.real - other.real) == (one.real <= other.real)
    assert one.real & other.real <= one.real
    assert one.real & other.real <= other.real
    assert one.real <= one.real


@given(three_sets)
def test_order_is_transitive_and_a_meet_is_the_most_that_both_hold(three: tuple[PlainSet, PlainSet, PlainSet]) -> None:
    one, two, last = (plain.real for plain in three)
    if one <= two and two <= last:
        assert one <= last
    if one <= two and one <= last:
        assert one <= two & last


@given(two_sets, st.sampled_from(PLACES))
def test_an_absolute_set_within_another_stays_there_wherever_the_roots_come_to_lie(
    two: tuple[str, PlainSet, PlainSet], places: tuple[str, str]
) -> None:
    _, one, other = two
    absolute = PlainSet(tuple(rule for rule in one.allow if not is_rooted(rule) and rule.scope not in "*/"), one.deny)
    if absolute.real <= other.real:
        assert absolute.real.expand(*places) <= other.real.expand(*places)


@given(one_set, st.sampled_from(PLACES))
def test_a_set_has_no_use_that_it_would_lose_when_it_is_expanded(
    plain: tuple[str, PlainSet], places: tuple[str, str]
) -> None:
    domain, one = plain
    assert not reached(domain, one.real) & ~reached(domain, one.real.expand(*places))


@given(two_sets)
def test_a_capability_without_a_root_is_had_exactly_if_every_use_of_it_is(two: tuple[str, PlainSet, PlainSet]) -> None:
    domain, one, other = two
    for rule in other.allow:
        if not is_rooted(rule) and rule.scope not in "*/":
            whole = not reach(rule) & ~expected(domain, one)
            assert one.real.has(Capability(rule.text)) == whole


@given(one_set)
def test_verdict_and_atoms_at_agree_with_has(plain: tuple[str, PlainSet]) -> None:
    domain, one = plain
    found = one.real
    for use in _uses(domain):
        had = found.has(use)
        assert (found.verdict(use) is True) == had
        assert bool(found.atoms_at(use)[0] & use.kind.atom) == had
        if any(is_rooted(rule) and rule.action in ("*", use.action) for rule in one.deny):
            assert found.verdict(use) is False


@given(sets_of("fs"))
def test_held_paths_are_empty_under_an_unexpanded_deny(plain: PlainSet) -> None:
    held = held_paths(plain.real)
    for action in ACTIONS["fs"]:
        if any(is_rooted(rule) and rule.action in ("*", action) for rule in plain.deny):
            assert held.allowed(action) == ()
            assert held.denied(action) == ("/",)
            for path in ("/", "/a", "/a/b", "/z"):
                assert not held.covers(action, path)
                assert not held.covers_tree(action, path)
                assert not held.overlaps(action, path)
                with pytest.raises(Escaped):
                    held.root(action, path)


def test_an_unexpanded_deny_of_one_path_refuses_every_path_until_it_is_expanded() -> None:
    found = CapabilitySet(["fs:read:/"], deny=["fs:read:~/x"])
    assert not found.has("fs:read:/home/me/x")
    assert not found.has(use_of_path("read", "/home/me/.ssh/id_ed25519"))
    assert not found.has(Capability("fs:read:/home/me"))
    assert found.expand("/srv", "/home/me").has("fs:read:/home/me/y")
    assert not found.expand("/srv", "/home/me").has("fs:read:/home/me/x")
