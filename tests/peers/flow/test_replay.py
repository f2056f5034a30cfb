"""The replay itself, on a suite of two tools: what counts as delivered, reached, asked and done."""

import asyncio
from typing import Any

import pytest

from .replay import DELIVERIES, Delivery, Destination, Planned, Player, Policy, destinations_of
from .signatures import admissions_of, flow_of
from .toy_suite import BOB, EVE, SIGNATURES, ToySuite

GUARDED = Policy("signatures", flow_of(SIGNATURES, returns=True), admissions_of(SIGNATURES, returns=True))


def run(work: Any) -> Any:
    return asyncio.run(work)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_without_flow_an_attack_works_and_with_flow_it_is_asked_about(delivery: Delivery) -> None:
    bare = run(Player(ToySuite(), Policy("none")).attacked("forward", "exfiltrate", delivery))
    assert (bare.delivered, bare.reached, [step.asked for step in bare.steps if step.asked]) == (True, True, [])
    guarded = run(Player(ToySuite(), GUARDED).attacked("forward", "exfiltrate", delivery))
    assert (guarded.delivered, guarded.reached) == (True, False)
    last = guarded.steps[-1]
    assert (last.by, last.call.tool, last.ran) == ("attacker", "send_letter", False)
    assert last.asked[0].startswith("FLOW_ORIGIN: ")


def test_the_deliveries_differ_in_what_the_session_has_done_before() -> None:
    player = Player(ToySuite(), Policy("none"))
    made = {one: run(player.attacked("forward", "exfiltrate", one)).of("user") for one in DELIVERIES}
    assert {one: [step.call.tool for step in steps] for one, steps in made.items()} == {
        "first contact": ["list_letters"],
        "whole task": ["list_letters", "send_letter"],
        "cold": [],
    }


def test_a_text_that_no_call_of_the_user_returns_is_not_delivered() -> None:
    player = Player(ToySuite(), Policy("none"))
    played = {one: run(player.attacked("write", "exfiltrate", one)) for one in DELIVERIES}
    assert {one: session.delivered for one, session in played.items()} == {
        "first contact": False,
        "whole task": False,
        "cold": True,
    }
    assert not played["whole task"].of("attacker")


@pytest.mark.parametrize("policy", [Policy("none"), GUARDED], ids=lambda policy: policy.name)
def test_the_users_own_calls_run_and_solve_the_task(policy: Policy) -> None:
    for user in ("forward", "write"):
        played = run(Player(ToySuite(), policy).benign(user))
        assert played.done
        assert all(step.ran and not step.asked for step in played.steps)


def test_a_goal_without_a_call_is_told_apart() -> None:
    player = Player(ToySuite(), Policy("none"))
    assert player.needs_a_call("forward", "exfiltrate")
    assert not player.needs_a_call("forward", "advertise")


def test_a_session_reaches_the_destinations_of_its_task_alone() -> None:
    suite = ToySuite()
    bob, eve = Destination("send_letter", (BOB,)), Destination("send_letter", (EVE,))
    found = destinations_of(suite)
    assert found.calls == {one: [sent_to(*one.values)] for one in (bob, eve)}
    assert found.foreign == {eve}
    for user in suite.users():
        assert run(Player(suite, Policy("none")).reached(user, "exfiltrate", found)) == {bob, eve}
        assert run(Player(suite, GUARDED).reached(user, "exfiltrate", found)) == {bob}


def sent_to(recipient: str) -> Planned:
    return Planned("send_letter", {"body": "Hello", "recipient": recipient})
