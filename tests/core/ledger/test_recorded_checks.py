"""Finding denied uses in receipts: which pattern fits which text, and how they are counted."""

from typing import Any

import pytest

from licet.core.algebra.set import CapabilitySet
from licet.core.ledger.recorded_checks import DENIED, GRANTED, Checks, Tally, fits
from licet.core.limits import MOST_TEXTS

STRIPE = "network:https:get@api.stripe.com:443"


@pytest.mark.parametrize(
    ("pattern", "text", "fitting"),
    [
        ("*", STRIPE, True),
        ("network", STRIPE, True),
        ("net", STRIPE, False),
        ("network:*", STRIPE, True),
        ("network:https:get", STRIPE, True),
        ("network:https:get@api.stripe.com", STRIPE, True),
        ("network:https:get@api.stripe.co", STRIPE, False),
        ("network:https:get@*.stripe.com", STRIPE, True),
        ("network:https:get@*.stripe.com:443", STRIPE, True),
        ("network:https:get@*.stripe.com:8443", STRIPE, False),
        ("*stripe*", STRIPE, True),
        ("*stripe", STRIPE, False),
        ("*.com", STRIPE, True),
        ("*get*com", STRIPE, True),
        ("*com*get", STRIPE, False),
        ("stripe", STRIPE, False),
        ("network:https:get@api.stripe.com", "network:https:get@api.stripe.com.evil.test:443", False),
        ("*@api.stripe.com", "network:https:get@api.stripe.com.x@api.stripe.com:443", True),
        ("fs:read:/etc", "fs:read:/etc", True),
        ("fs:read:/etc", "fs:read:/etc/passwd", True),
        ("fs:read:/etc/", "fs:read:/etc/passwd", True),
        ("fs:read:/etc", "fs:read:/etcetera", False),
        ("fs:read:/", "fs:read:/etc/passwd", True),
        ("fs:*:/etc", "fs:write:/etc/passwd", True),
        ("fs:*:/etc", "fs:write:/srv/etc", False),
        ("fs:read:/a[b]?", "fs:read:/a[b]?", True),
        ("fs:read:/a[b]?", "fs:read:/abc", False),
        ("secret:read:github", "secret:read:github/token", True),
    ],
)
def test_a_pattern_matches_a_capability_or_its_beginning(pattern: str, text: str, fitting: bool) -> None:
    assert fits(pattern, text) is fitting


def test_a_long_text_is_compared_quickly() -> None:
    assert not fits("a*" * 50 + "b", "a" * 100_000)


def event(capability: str, kind: str = DENIED, reason: str = "HOST_NOT_ALLOWED", rule: str = "") -> dict[str, str]:
    return {"capability": capability, "kind": kind, "reason": reason, "rule": rule}


FLOOD = event("tool:call:t", reason="LIMIT_SIZE", rule="70 more checks were refused, which are not listed")


@pytest.mark.parametrize(
    ("checks", "which"),
    [
        (Checks(), [1, 3]),
        (Checks(denied=False), [0, 1, 3]),
        (Checks(pattern="fs"), [3]),
        (Checks(pattern="secret"), []),
        (Checks(rule=CapabilitySet(["network:*:*.stripe.com"])), [1]),
        (Checks(rule=CapabilitySet(["network:*:stripe.com"])), []),
        (Checks(rule=CapabilitySet(["network:write:*"])), []),
        (Checks(denied=False, rule=CapabilitySet(["fs:read:/srv"])), [3]),
        (Checks(pattern="network", rule=CapabilitySet(["fs:*:*"])), []),
    ],
)
def test_checks_are_found_by_kind_pattern_and_rule(checks: Checks, which: list[int]) -> None:
    events = [
        event("tool:call:t", GRANTED, ""),
        event(STRIPE),
        {"kind": "SandboxEntered"},
        event("fs:read:/srv/a"),
    ]
    assert list(checks.of({"events": events})) == [events[place] for place in which]


@pytest.mark.parametrize("checks", [Checks(pattern="fs"), Checks(rule=CapabilitySet(["fs:read:/srv"]))])
def test_unlisted_refusals_match_every_search(checks: Checks) -> None:
    assert list(checks.of({"events": [event(STRIPE), FLOOD]})) == [FLOOD]


@pytest.mark.parametrize("forged", [1, "x", None, [], {}, {"kind": DENIED}, {**event("x"), "rule": None}])
def test_malformed_events_are_skipped(forged: Any) -> None:
    assert list(Checks().of({"events": [forged]})) == []


def test_a_tally_counts_exactly_with_bounded_memory() -> None:
    tally = Tally()
    for number in range(MOST_TEXTS + 5):
        tally.add(event(f"fs:read:/{number}"))
    tally.add(event("fs:read:/3"))
    tally.add(FLOOD)
    assert (tally.total, tally.other) == (MOST_TEXTS + 6 + 70, 5 + 70)
    assert tally.most(1) == [{"kind": DENIED, "capability": "fs:read:/3", "reason": "HOST_NOT_ALLOWED", "count": 2}]
    assert len(tally.most()) == MOST_TEXTS
