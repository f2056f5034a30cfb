"""The laws of the algebra, and its agreement with the naive reference on small universes."""

import operator
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.naive import DOMAINS, PlainRule, PlainUse, reach, reach_of, universe
from core.strategies import PlainSet, domains, rules, rules_of, sets, sets_of, uses
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet


@cache
def _uses(domain: str) -> tuple[Use, ...]:
    return tuple(Use(use.text) for use in universe(domain))


def reached(domain: str, found: CapabilitySet) -> int:
    """The uses of a universe that the library says a set has."""
    return sum(1 << bit for bit, use in enumerate(_uses(domain)) if found.has(use))


two_rules = domains.flatmap(lambda domain: st.tuples(rules_of(domain), rules_of(domain)))
three_rules = domains.flatmap(lambda domain: st.tuples(rules_of(domain), rules_of(domain), rules_of(domain)))
two_sets = domains.flatmap(lambda domain: st.tuples(st.just(domain), sets_of(domain), sets_of(domain)))


# One rule -------------------------------------------------------------------------------------------------------------


@given(rules)
def test_a_rule_reaches_what_the_reference_says(rule: PlainRule) -> None:
    assert reached(rule.domain, CapabilitySet([rule.text])) == reach(rule)


@given(two_rules)
def test_the_meet_of_two_rules_reaches_exactly_what_both_reach(two: tuple[PlainRule, PlainRule]) -> None:
    one, other = two
    met = Capability(one.text).meet(Capability(other.text))
    expected = reach(one) & reach(other)
    assert (0 if met is None else reached(one.domain, CapabilitySet([met]))) == expected
    assert (met is None) == (expected == 0)


@given(two_rules)
def test_the_meet_of_two_rules_does_not_depend_on_their_order(two: tuple[PlainRule, PlainRule]) -> None:
    one, other = (Capability(rule.text) for rule in two)
    assert one.meet(other) == other.meet(one)


@given(three_rules)
def test_the_meet_of_three_rules_does_not_depend_on_grouping(three: tuple[PlainRule, PlainRule, PlainRule]) -> None:
    one, two, three_ = (Capability(rule.text) for rule in three)
    left, right = one.meet(two), two.meet(three_)
    assert (left and left.meet(three_)) == (right and one.meet(right))


@given(rules)
def test_a_rule_meets_itself_in_itself(rule: PlainRule) -> None:
    one = Capability(rule.text)
    assert one.meet(one) == one


@given(st.tuples(rules, rules))
def test_rules_of_different_domains_have_nothing_in_common(two: tuple[PlainRule, PlainRule]) -> None:
    one, other = (Capability(rule.text) for rule in two)
    if one.domain != other.domain:
        assert one.meet(other) is None
        assert not one.covers(other)


@given(two_rules)
def test_covers_agrees_with_brute_force(two: tuple[PlainRule, PlainRule]) -> None:
    one, other = two
    assert Capability(one.text).covers(Capability(other.text)) == (not reach(other) & ~reach(one))


@given(three_rules)
def test_covers_is_a_partial_order(three: tuple[PlainRule, PlainRule, PlainRule]) -> None:
    one, two, three_ = (Capability(rule.text) for rule in three)
    assert one.covers(one)
    if one.covers(two) and two.covers(one):
        assert one == two
        assert hash(one) == hash(two)
    if one.covers(two) and two.covers(three_):
        assert one.covers(three_)


@given(two_rules)
def test_one_rule_covers_another_exactly_if_their_meet_is_the_other(two: tuple[PlainRule, PlainRule]) -> None:
    one, other = (Capability(rule.text) for rule in two)
    assert one.covers(other) == (one.meet(other) == other)


@given(two_rules)
def test_rules_with_the_same_reach_are_equal_and_written_alike(two: tuple[PlainRule, PlainRule]) -> None:
    one, other = (Capability(rule.text) for rule in two)
    same = reach(two[0]) == reach(two[1])
    assert (one == other) == same
    assert (str(one) == str(other)) == same


# Sets -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
@given(data=st.data())
def test_a_set_has_what_the_reference_says(domain: str, data: st.DataObject) -> None:
    plain = data.draw(sets_of(domain))
    assert reached(domain, plain.real) == reach_of(domain, plain.allow, plain.deny)


@given(sets, uses)
def test_a_set_of_many_domains_has_what_the_reference_says(plain: PlainSet, use: PlainUse) -> None:
    expected = any(rule.reaches(use) for rule in plain.allow) and not any(rule.reaches(use) for rule in plain.deny)
    assert plain.real.has(use.text) == expected
    assert plain.real.has(Use(use.text)) == expected


@given(sets, uses)
def test_a_verdict_distinguishes_allowed_denied_and_not_covered(plain: PlainSet, use: PlainUse) -> None:
    denied = any(rule.reaches(use) for rule in plain.deny)
    allowed = any(rule.reaches(use) for rule in plain.allow)
    assert plain.real.verdict(use.text) is (False if denied else True if allowed else None)


@given(sets, st.lists(uses, max_size=6))
def test_what_a_set_lacks_is_the_first_use_it_does_not_have(plain: PlainSet, asked: list[PlainUse]) -> None:
    real = plain.real
    expected = next((use.text for use in asked if not plain.real.has(use.text)), None)
    found = real.lacks(tuple(Use(use.text) for use in asked))
    assert (found if found is None else str(found)) == expected


@given(sets, rules)
def test_a_deny_wins_over_every_allow(plain: PlainSet, deny: PlainRule) -> None:
    narrowed = PlainSet((*plain.allow, deny), (*plain.deny, deny)).real
    assert not reached(deny.domain, narrowed) & reach(deny)


@given(two_sets)
def test_the_meet_of_two_sets_has_exactly_what_both_have(two: tuple[str, PlainSet, PlainSet]) -> None:
    domain, one, other = two
    expected = reach_of(domain, one.allow, one.deny) & reach_of(domain, other.allow, other.deny)
    assert reached(domain, one.real & other.real) == expected


@given(sets, sets, uses)
def test_the_meet_of_sets_of_many_domains_has_exactly_what_both_have(
    one: PlainSet, two: PlainSet, use: PlainUse
) -> None:
    assert (one.real & two.real).has(use.text) == (one.real.has(use.text) and two.real.has(use.text))


@given(sets, sets)
def test_the_meet_of_sets_does_not_depend_on_their_order(one: PlainSet, two: PlainSet) -> None:
    assert one.real & two.real == two.real & one.real


@given(sets, sets, sets)
def test_the_meet_of_sets_does_not_depend_on_grouping(one: PlainSet, two: PlainSet, three: PlainSet) -> None:
    assert (one.real & two.real) & three.real == one.real & (two.real & three.real)


@given(sets)
def test_a_set_meets_itself_in_itself(plain: PlainSet) -> None:
    assert plain.real & plain.real == plain.real


@given(sets, sets)
def test_a_meet_only_ever_narrows(one: PlainSet, two: PlainSet) -> None:
    met = one.real & two.real
    assert met <= one.real
    assert met <= two.real


@given(sets, sets)
def test_a_union_is_all_allows_and_all_denies_of_both(one: PlainSet, two: PlainSet) -> None:
    assert one.real | two.real == PlainSet(one.allow + two.allow, one.deny + two.deny).real


@given(sets, sets, sets)
def test_a_union_does_not_depend_on_order_grouping_or_repetition(one: PlainSet, two: PlainSet, three: PlainSet) -> None:
    assert one.real | two.real == two.real | one.real
    assert (one.real | two.real) | three.real == one.real | (two.real | three.real)
    assert one.real | one.real == one.real


@given(sets)
def test_the_empty_set_reaches_nothing_and_adds_nothing(plain: PlainSet) -> None:
    empty = CapabilitySet()
    assert plain.real | empty == plain.real
    assert not plain.real & empty
    assert empty <= plain.real


@given(two_sets)
def test_a_set_is_within_another_exactly_if_brute_force_finds_no_use_outside(
    two: tuple[str, PlainSet, PlainSet],
) -> None:
    domain, one, other = two
    outside = reach_of(domain, one.allow, one.deny) & ~reach_of(domain, other.allow, other.deny)
    assert (one.real <= other.real) == (not outside)
    assert (other.real >= one.real) == (not outside)


@given(sets, sets)
def test_order_across_domains_agrees_with_brute_force(one: PlainSet, two: PlainSet) -> None:
    outside = any(reach_of(domain, one.allow, one.deny) & ~reach_of(domain, two.allow, two.deny) for domain in DOMAINS)
    assert (one.real <= two.real) == (not outside)


@given(two_sets)
def test_a_difference_has_exactly_the_uses_that_are_not_covered(two: tuple[str, PlainSet, PlainSet]) -> None:
    domain, one, other = two
    told = 0
    for piece in one.real - other.real:
        found = reached(domain, CapabilitySet([piece.rule], piece.excepts))
        assert found, "a piece that reaches nothing"
        told |= found
    assert told == reach_of(domain, one.allow, one.deny) & ~reach_of(domain, other.allow, other.deny)


@given(two_sets, st.randoms(use_true_random=False))
def test_the_pieces_do_not_depend_on_the_order_of_rules(two: tuple[str, PlainSet, PlainSet], random: Random) -> None:
    _, one, other = two
    shuffled = [
        PlainSet(*(tuple(random.sample(side, len(side))) for side in (it.allow, it.deny))) for it in (one, other)
    ]
    assert shuffled[0].real - shuffled[1].real == one.real - other.real


@given(sets, sets)
def test_the_difference_is_empty_exactly_if_the_one_is_within_the_other(one: PlainSet, two: PlainSet) -> None:
    assert (not one.real - two.real) == (one.real <= two.real)


@given(two_sets)
def test_exceptions_lie_inside_their_piece_and_pieces_come_in_order(two: tuple[str, PlainSet, PlainSet]) -> None:
    _, one, other = two
    pieces = one.real - other.real
    for piece in pieces:
        for hole in piece.excepts:
            assert piece.rule.covers(hole)
            assert piece.rule != hole
            assert not any(bigger.covers(hole) for bigger in piece.excepts if bigger != hole)
    assert [str(piece) for piece in pieces] == sorted({str(piece) for piece in pieces})


@given(two_sets)
def test_a_capability_is_had_exactly_if_every_use_of_it_is(two: tuple[str, PlainSet, PlainSet]) -> None:
    domain, one, other = two
    for rule in other.allow:
        whole = not reach(rule) & ~reach_of(domain, one.allow, one.deny)
        assert one.real.has(Capability(rule.text)) == whole


# Normal form ----------------------------------------------------------------------------------------------------------


@given(sets, st.randoms(use_true_random=False))
def test_the_order_of_rules_does_not_matter(plain: PlainSet, random: Random) -> None:
    allow, deny = list(plain.allow), list(plain.deny)
    random.shuffle(allow)
    random.shuffle(deny)
    shuffled = PlainSet((*allow, *allow), (*deny, *deny)).real
    assert shuffled == plain.real
    assert hash(shuffled) == hash(plain.real)
    assert repr(shuffled) == repr(plain.real)
    assert shuffled.digest == plain.real.digest
    assert list(shuffled) == list(plain.real)


@given(two_sets)
def test_equal_sets_have_equal_hashes_texts_and_digests_and_others_do_not(two: tuple[str, PlainSet, PlainSet]) -> None:
    one, other = two[1].real, two[2].real
    same = one == other
    assert operator.ne(one, other) == (not same)
    assert same == (repr(one) == repr(other))
    assert same == (str(one) == str(other))
    assert same == (one.digest == other.digest)
    assert same == (one.allow == other.allow and one.deny == other.deny)
    if same:
        assert hash(one) == hash(other)


@given(two_sets)
def test_sets_are_equal_exactly_if_allows_and_denies_cover_the_same(two: tuple[str, PlainSet, PlainSet]) -> None:
    domain, one, other = two
    same_denies = reach_of(domain, one.deny) == reach_of(domain, other.deny)
    same_reach = reach_of(domain, one.allow, one.deny) == reach_of(domain, other.allow, other.deny)
    if one.real == other.real:
        assert same_denies
        assert same_reach
    if not one.deny and not other.deny:
        assert (one.real == other.real) == same_reach


@given(sets)
def test_the_normal_form_reads_back_as_itself(plain: PlainSet) -> None:
    real = plain.real
    again = CapabilitySet(real.allow, real.deny)
    assert again == real
    assert (again.allow, again.deny) == (real.allow, real.deny)
    from_text = CapabilitySet(map(str, real.allow), map(str, real.deny))
    assert from_text == real
    assert from_text.digest == real.digest


@given(sets)
def test_the_normal_form_holds_maximal_rules_only_in_code_point_order(plain: PlainSet) -> None:
    real = plain.real
    for side in (real.allow, real.deny):
        assert [str(rule) for rule in side] == sorted({str(rule) for rule in side})
        assert not any(one.covers(other) for one in side for other in side if one != other)
    assert not any(deny.covers(allow) for deny in real.deny for allow in real.allow)
    assert list(real) == list(real.allow)
    assert len(real) == len(real.allow)
    assert bool(real) == bool(real.allow)


@given(rules)
def test_a_deny_that_touches_nothing_stays(deny: PlainRule) -> None:
    only = CapabilitySet(deny=[deny.text])
    assert only != CapabilitySet()
    assert not only
    assert not reached(deny.domain, only | CapabilitySet([deny.text]))


@given(sets)
def test_denies_stay_in_meets_and_unions(plain: PlainSet) -> None:
    other = CapabilitySet(["fs:read:*", "network:*:*", "secret:read:*"])
    denies = CapabilitySet(deny=[rule.text for rule in plain.deny]).deny
    assert (plain.real & other).deny == denies
    assert (plain.real | other).deny == denies
    assert (other & plain.real).deny == denies
