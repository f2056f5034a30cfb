"""A call with very many checks: the first are recorded, the others only counted."""

from unittest.mock import patch

import pytest

from guard.grants import grant
from licet.core.algebra.rules import Use
from licet.core.decision.decision import ApprovalAnswered, ApprovalAsked, CapabilityDenied, CapabilityGranted, Event
from licet.core.decision.reach import Reach
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.limits import GRANTED, REFUSED

MANY = 6000
CASES = {
    "granted, short": (CapabilityGranted, "/data/{}", MANY),
    "granted, deep": (CapabilityGranted, "/data" + "/a" * 1000 + "/{}", 1200),
    "refused, short": (CapabilityDenied, "/other/{}", MANY // 2),
    "refused, long": (CapabilityDenied, "/other/" + "a" * 3000 + "/{}", 1200),
}


def asked(call: Grant, path: str) -> bool:
    try:
        call.check(Use(f"fs:read:{path}"))
    except Refused:
        return False
    return True


def more(event: Event) -> int:
    return int(event.rule.partition(" more checks were ")[0])


@pytest.mark.parametrize(("kind", "path", "many"), CASES.values(), ids=CASES)
@pytest.mark.sampled(1)
def test_the_first_checks_are_kept_and_the_others_counted(kind: type[Event], path: str, many: int) -> None:
    call = grant(["fs:read:/data"])
    call.begin()
    granted = [asked(call, path.format(number)) for number in range(many)]
    assert set(granted) == {kind is CapabilityGranted}
    first, *listed, last = call.events
    assert first == CapabilityGranted("tool:call:worker", "worker", "", "")
    assert [event.capability for event in listed] == [f"fs:read:{path.format(n)}" for n in range(len(listed))]
    assert {type(event) for event in (*listed, last)} == {kind}
    assert len(listed) + more(last) == many
    assert more(last) > 0
    assert sum(len(event.capability) + len(event.rule) for event in listed) <= 2 * max(GRANTED, REFUSED)


def test_a_flood_of_one_kind_hides_none_of_the_other() -> None:
    call = grant(["fs:read:/data"])
    call.begin()
    for number in range(MANY):
        asked(call, f"/data/{number}")
    asked(call, "/other/file")
    assert [type(event) for event in call.events[-2:]] == [CapabilityDenied, CapabilityGranted]
    assert call.events[-2].capability == "fs:read:/other/file"


def test_a_flood_of_checks_does_not_hide_approval_questions() -> None:
    call = grant(["fs:read:/data"])
    call.begin()
    for number in range(MANY):
        asked(call, f"/data/{number}")
    call.note_of(ApprovalAsked, Use("fs:delete:/data/file"), rule="each delete asks")
    call.note_of(ApprovalAnswered, Use("fs:delete:/data/file"), rule="denied")
    *_, question, answer, last = call.events
    assert question == ApprovalAsked("fs:delete:/data/file", "worker", "", "each delete asks")
    assert answer == ApprovalAnswered("fs:delete:/data/file", "worker", "", "denied")
    assert more(last) == MANY - (len(call.events) - 4)  # without the call itself, these two, and the count


def test_questions_without_end_are_counted_too() -> None:
    seen: list[Event] = []
    call = grant(["fs:read:/data"], seen=seen)
    call.begin()
    for number in range(MANY):
        call.note_of(ApprovalAsked, Use(f"fs:delete:/data/{number}"))
    _, *listed, last = call.events
    assert {type(event) for event in (*listed, last)} == {ApprovalAsked}
    assert last.rule == f"{MANY - len(listed)} more questions to people and answers, which are not listed"
    assert len(seen) == MANY + 1 > len(call.events)


def test_checks_that_are_not_kept_are_still_observed() -> None:
    seen: list[Event] = []
    call = grant(["fs:read:/data"], seen=seen)
    call.begin()
    for number in range(MANY):
        asked(call, f"/data/{number}")
    assert len(seen) == MANY + 1 > len(call.events)


def test_the_rules_of_a_refusal_are_not_looked_up_again_at_the_end() -> None:
    call = grant(["fs:read:/data"])
    call.begin()
    for number in range(3):
        asked(call, f"/other/{number}")
    with patch.object(Reach, "obstacles_of", autospec=True, side_effect=Reach.obstacles_of) as looked_up:
        assert [event.reason for event in call.events[1:]] == ["PATH_NOT_REACHABLE"] * 3
    assert looked_up.call_count == 0


def test_a_refusal_still_says_what_is_allowed_instead() -> None:
    call = grant(["fs:read:/data"])
    with pytest.raises(Refused) as refused:
        call.check(Use("fs:read:/other"))
    assert "allowed here" in refused.value.explain()
