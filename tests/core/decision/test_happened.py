"""The events of a decision: its checks, and before them the end of the session if that is why it was refused."""

import pytest

from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import (
    ApprovalAsked,
    Ask,
    CapabilityDenied,
    Decision,
    Deny,
    Happened,
    SessionEnded,
    all_events,
    events,
)
from licet.core.decision.request import Approval, Ground, Reason, Request

from ..manifests import manifest, tool

USE = Use.parse("fs:read:/srv/a")
CALL = "tool:call:t"


REQUEST = Request("t", uses=(USE,))


def denied(reason: Reason, use: Use | None = None) -> Deny:
    return Deny(REQUEST, (Ground(reason, "why"),), use)


OTHERS: dict[str, Decision] = {
    "allowed": decide(Request("t"), manifest(tool("t"))),
    "asked about": Ask(REQUEST, Approval("m", "t", "", ""), (Ground("APPROVAL_REQUIRED", "why"),)),
    "refused for another reason": denied("BUDGET_EXCEEDED"),
    "refused for one use": denied("SESSION_ENDED", USE),
}


def test_a_call_of_an_ended_session_has_the_event_session_ended() -> None:
    ended = denied("SESSION_ENDED")
    assert all_events(ended) == (SessionEnded(CALL, "t"), CapabilityDenied(CALL, "t", "SESSION_ENDED", "why"))
    assert all_events(ended) == (SessionEnded(CALL, "t", "", ""), *events(ended))


@pytest.mark.parametrize("decision", OTHERS.values(), ids=OTHERS)
def test_other_decisions_have_only_events_of_checks(decision: Decision) -> None:
    assert all_events(decision) == events(decision)


def test_each_event_class_is_distinct() -> None:
    kinds = Happened.__subclasses__()
    assert {SessionEnded, ApprovalAsked} < set(kinds)
    for kind in kinds:
        assert [type(other(CALL, "t")) for other in kinds if other(CALL, "t") == kind(CALL, "t")] == [kind]
        assert not hasattr(kind(CALL, "t"), "__dict__")
