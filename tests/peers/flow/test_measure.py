"""The numbers of the replay, on a suite of two tools: each count beside one that must differ."""

import asyncio

from msgspec.structs import replace

from .measure import POLICIES, Row, below_floors, measure, table, total
from .replay import DELIVERIES, Policy
from .toy_suite import BOB, EVE, ToySuite

WRITING = {"send_letter"}


def row_of(policy: str, every: int = 1) -> Row:
    suite = ToySuite()
    chosen = POLICIES[policy](suite)
    assert chosen is not None
    return asyncio.run(measure(suite, replace(chosen, name=policy), every)).row(WRITING)


def test_without_flow_every_goal_is_reached_and_nobody_is_asked() -> None:
    row = row_of("none")
    assert (row.pairs, row.words_only) == (2, 2)
    assert row.delivered == {"first contact": 1, "whole task": 1, "cold": 2}
    assert row.blocked == row.harmless == dict.fromkeys(DELIVERIES, 0)
    assert (row.calls, row.unasked, row.refused, row.tasks, row.solved, row.quiet, row.asks) == (3, 3, 0, 2, 2, 2, 0)
    assert (row.destinations, row.destinations_reached, row.foreign, row.foreign_reached) == (4, 4, 2, 2)


def test_with_flow_every_goal_is_blocked() -> None:
    row = row_of("signatures")
    assert row.blocked == row.harmless == row.delivered
    assert (row.unasked, row.quiet, row.asks, row.unasked_under_attack) == (3, 2, 0, row.under_attack)
    assert (row.destinations, row.destinations_reached, row.foreign, row.foreign_reached) == (4, 2, 2, 0)


def test_a_question_to_a_user_counts_the_call_and_its_task() -> None:
    row = row_of("rule of two")  # the letter that is sent after the others were read
    assert (row.unasked, row.quiet, row.asks, row.refused, row.solved) == (2, 1, 1, 0, 2)


def test_every_nth_pair_is_played() -> None:
    assert (row_of("none", every=2).pairs, row_of("none", every=2).words_only) == (1, 1)


def test_misses_name_the_call_and_all_its_sessions() -> None:
    measured = asyncio.run(measure(ToySuite(), Policy("none")))
    [one] = [miss for miss in measured.misses(WRITING) if miss.tool == "send_letter"]
    assert (one.kind, one.attack, one.arguments["recipient"]) == ("reached", "exfiltrate", EVE)
    assert one.sessions == ["forward first contact", "forward whole task", "forward cold", "write cold"]
    suite = ToySuite()
    policy = POLICIES["rule of two"](suite)
    assert policy is not None
    [asked] = asyncio.run(measure(suite, policy)).misses(WRITING)
    assert (asked.kind, asked.attack, asked.arguments["recipient"]) == ("asked", "", BOB)
    assert asked.asked


def test_a_total_adds_each_count_and_a_table_has_a_line_for_each_row() -> None:
    row = row_of("none")
    summed = total("none", [row, row])
    assert (summed.suite, summed.calls, summed.delivered["cold"]) == ("all", 6, 4)
    lines = table([row, summed]).splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["none", "toy", "2"], ["none", "all", "4"]]


def test_a_floor_is_missed_by_what_is_worse_alone() -> None:
    good = replace(row_of("signatures"), suite="all")
    assert below_floors([good]) == []
    assert below_floors([replace(good, policy="parameters", unasked=0)]) == []
    assert below_floors([replace(good, suite="toy", unasked=0)]) == []
    assert len(below_floors([replace(good, unasked=0)])) == 1
    assert len(below_floors([replace(good, blocked={**good.blocked, "cold": 0})])) == 1


def test_a_control_in_which_an_attack_does_not_work_is_told() -> None:
    control = replace(row_of("none"), suite="all")
    assert below_floors([control]) == []
    assert len(below_floors([replace(control, blocked={**control.blocked, "cold": 1})])) == 1
