"""Problems that a review predicts from a manifest alone: a quorum that cannot be met."""

import pytest

from core.manifests import HERE, manifest
from licet.core.decision.foreseen import quorum_problems
from licet.core.policy.terms import Approvals
from licet.core.values import Origin

ONE, TWO = ("ed25519:" + letter * 43 for letter in "BC")
PLACES = {"approvals.quorum": Origin("agent.yaml", 7, 5), "approvals.keys": Origin("agent.yaml", 8, 5)}

QUORUMS: dict[str, tuple[Approvals, str, int]] = {
    # who must agree, what is wrong with that, and the line it is told of
    "the default": (Approvals(), "", 0),
    "one without keys": (Approvals(quorum=1), "", 0),
    "two without keys": (Approvals(quorum=2), "a quorum of 2 without `keys`", 7),
    "as many as there are keys": (Approvals(quorum=2, keys=(ONE, TWO)), "", 0),
    "one more": (Approvals(quorum=3, keys=(ONE, TWO)), "a quorum of 3", 8),
    "one key twice": (Approvals(quorum=2, keys=(ONE, ONE)), "a quorum of 2", 8),
    "one key in two spellings": (Approvals(quorum=2, keys=(ONE, ONE + "=")), "a quorum of 2", 8),
    "what is no key": (Approvals(quorum=2, keys=(ONE, "ed25519:short")), "a quorum of 2", 8),
    "nobody, on purpose": (Approvals(quorum=2, keys=()), "", 0),
}


@pytest.mark.parametrize("case", QUORUMS)
def test_a_quorum_that_cannot_be_met_is_reported(case: str) -> None:
    approvals, wrong, line = QUORUMS[case]
    found = list(quorum_problems(manifest(approvals=approvals, places=PLACES)))
    assert [problem.found for problem in found] == ([wrong] if wrong else [])
    assert [problem.origin.line for problem in found] == ([line] if wrong else [])
    assert [problem.severity for problem in found] == (["error" if approvals.keys else "warning"] if wrong else [])
    for problem in quorum_problems(manifest(approvals=approvals)):  # where no line is known
        assert problem.origin == HERE


def test_a_problem_with_a_quorum_states_what_is_expected() -> None:
    (none,) = quorum_problems(manifest(approvals=Approvals(quorum=2)))
    assert none.expected == "keys that tell those who approve apart"
    assert none.hint == "as it stands nobody can approve anything: list their public keys under `approvals.keys`"
    (few,) = quorum_problems(manifest(approvals=Approvals(quorum=9, keys=(ONE, TWO))))
    assert (few.expected, few.hint) == ("at most 2, the number of keys", "")
