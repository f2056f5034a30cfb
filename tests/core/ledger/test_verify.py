"""Verification: the rules about the end of a ledger, and that the first broken rule is reported."""

from typing import Any

import pytest
from msgspec.structs import replace

from core.ledgers import KEY, LEDGER, check, checkpoints, plain_entry, rows, sample_entry, sign, verified
from licet.core.ledger.entry import Checkpoint, Row, Tail, checkpoint_body, link
from licet.core.ledger.merkle import Frontier, leaf_hash
from licet.core.ledger.verify import Finding, Outcome, narrowed, verify

ENTRIES = [sample_entry(number) for number in range(1, 11)]
ROWS = rows(ENTRIES)
CHECKPOINTS = checkpoints(ROWS, [4, 8])
FORGED = CHECKPOINTS[1]._replace(signature=b"")


def test_a_wrong_checkpoint_is_reported_before_a_later_entry() -> None:
    first = CHECKPOINTS[0]._replace(signature=b"")
    entries = [*ROWS[:6], ROWS[6]._replace(tool="other"), *ROWS[7:]]
    finding = verified(entries, [first, CHECKPOINTS[1]]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("signature", 4)


def test_a_wrong_entry_is_reported_before_a_later_checkpoint() -> None:
    entries = [*ROWS[:6], ROWS[6]._replace(tool="other"), *ROWS[7:]]
    finding = verified(entries, [CHECKPOINTS[0], FORGED]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 7)


def test_a_wrong_checkpoint_over_more_entries_than_there_are_is_reported() -> None:
    finding = verified(ROWS[:6], [CHECKPOINTS[0], FORGED]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("signature", 8)


OTHERS = rows([sample_entry(number + 20) for number in range(10)])


@pytest.mark.parametrize(
    "second", [FORGED, CHECKPOINTS[1], *checkpoints(OTHERS, [8])], ids=["forged", "of the others", "fits"]
)
def test_a_replaced_range_is_reported_whatever_a_later_checkpoint_says(second: Checkpoint) -> None:
    """The first checkpoint does not match, so an error in the second one is not the first broken rule."""
    outcome = verified(OTHERS, [CHECKPOINTS[0], second])
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.number, outcome.finding.until) == ("root", 1, 4)
    assert (outcome.checkpoints, outcome.signed) == (2, 0)


@pytest.mark.parametrize(
    ("mismatch", "chain", "told"),
    [
        ((1, 4), (3, 0), (3, 3)),
        ((1, 4), (4, 0), (4, 4)),
        ((1, 4), (2, 6), (2, 4)),
        ((3, 6), (1, 5), (3, 5)),
        ((3, 6), (1, 9), (3, 6)),
    ],
)
def test_a_broken_chain_narrows_the_range_that_does_not_match_a_checkpoint(
    mismatch: tuple[int, int], chain: tuple[int, int], told: tuple[int, int]
) -> None:
    found = narrowed(
        Finding("root", mismatch[0], "", until=mismatch[1]), Finding("chain", chain[0], "why", "r", chain[1])
    )
    assert found == Finding("chain", told[0], "why", "r", told[1])


@pytest.mark.parametrize("chain", [(5, 0), (5, 8), (1, 2)])
def test_a_chain_that_is_broken_elsewhere_does_not_narrow_the_range(chain: tuple[int, int]) -> None:
    mismatch = Finding("root", 3, "", until=4)
    assert narrowed(mismatch, Finding("chain", chain[0], "why", "r", chain[1])) == mismatch


def test_a_finding_without_a_range_is_about_one_entry() -> None:
    assert Finding("edited", 3, "why") == Finding("edited", 3, "why", "", 0)
    assert [str(Finding("edited", 3, "why", until=until)) for until in (0, 3, 4)] == [
        "entry 3: why",
        "entry 3: why",
        "entries 3 to 4: why",
    ]


def test_the_defaults_of_an_outcome() -> None:
    outcome = Outcome(0, 0, 0, LEDGER, "", None)
    assert outcome == Outcome(0, 0, 0, LEDGER, "", None, b"", "", {}, False, ())
    assert [found.ok for found in (outcome, replace(outcome, finding=Finding("edited", 3, "why")))] == [True, False]


def signed_ms(entries: list[Row], time: str) -> Checkpoint:
    """A checkpoint over all of these entries."""
    frontier = Frontier()
    frontier.extend([row.hash for row in entries])
    body = checkpoint_body(LEDGER, frontier.size, frontier.root, time, KEY)
    return Checkpoint(frontier.size, body, sign(KEY, body))


def test_entries_without_any_checkpoint_are_reported() -> None:
    finding = verified(ROWS, []).finding
    assert finding == Finding("unsigned", 1, "no checkpoint covers any entry", until=10)


@pytest.mark.parametrize(("last", "late"), [(40, False), (50, False), (51, True)])
def test_entries_may_be_unsigned_for_ten_seconds(last: int, late: bool) -> None:
    """A checkpoint is no older than the entries that it covers, whatever its clock said."""
    made = rows(ENTRIES[:4], times=[38, 39, 40, last])
    finding = verified(made, [signed_ms(made[:3], "2026-01-01T00:00:20.000000Z")]).finding
    assert (finding is not None) == late
    if finding is not None:
        assert (finding.kind, finding.number, finding.until) == ("unsigned", 4, 4)
        assert finding.text.startswith("not proven: the last checkpoint was signed at 2026-01-01T00:00:40")


@pytest.mark.parametrize("last", [40, 50])
def test_the_clock_of_a_checkpoint_counts_if_it_is_ahead(last: int) -> None:
    made = rows(ENTRIES[:4], times=[1, 2, 3, last])
    assert verified(made, [signed_ms(made[:3], "2026-01-01T00:00:40.000000Z")]).ok


def behind(entries: list[Row], *times: str) -> list[Row]:
    """More entries of the same session, recorded at these times."""
    made = list(entries)
    for time in times:
        tail = Tail(made[-1].sequence, made[-1].hash, made[-1].number)
        made.append(link(ENTRIES[len(made)], LEDGER, len(made) + 1, tail, time))
    return made


@pytest.mark.parametrize(("signed", "late"), [("on a day", True), ("some day", False), ("the next day", False)])
def test_an_invalid_time_does_not_count_as_recent(signed: str, late: bool) -> None:
    finding = verified(behind(ROWS[:4], "some day"), [signed_ms(ROWS[:4], signed)]).finding
    assert (finding is not None) == late
    if finding is not None:
        assert (finding.kind, finding.number) == ("unsigned", 5)


def test_invalid_times_are_compared_as_text() -> None:
    odd = "2026-01-01T00:00:30.000000é"
    made = behind(ROWS[:2], odd, odd, odd, "2026-01-01T00:00:05.000000Z")
    outcome = verified(made, checkpoints(made, [4, 6]))
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.number, outcome.entries) == ("clock", 6, 6)
    assert outcome.finding.text == f"the time went back from {odd} to 2026-01-01T00:00:05.000000Z"
    outcome = verified(made[:5], checkpoints(made, [5]))
    assert (outcome.ok, outcome.recorded) == (True, odd)


def test_an_entry_that_is_not_text_is_an_edit_even_with_the_right_hash() -> None:
    signed, changed = checkpoints(ROWS, [8]), ROWS[6]
    said = changed.body.replace(b'"recorded":"2026-01-01T00:00:07.000000Z"', b'"recorded":"' + b"\xff" * 27 + b'"')
    assert said != changed.body
    forged = changed._replace(body=said, hash=leaf_hash(said))
    finding = verified([*ROWS[:6], forged, *ROWS[7:]], signed).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("edited", 7)


@pytest.mark.parametrize("held", [1 << 62, 1 << 33, -1, 1.5, "text", None])
def test_a_body_that_is_not_bytes_is_reported_without_allocating_memory(held: Any) -> None:
    """SQLite may store a number there, and `bytes(number)` would allocate that many zeros."""
    finding = verified([*ROWS[:6], ROWS[6]._replace(body=held), *ROWS[7:]], CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("edited", 7)


@pytest.mark.parametrize("held", [1 << 62, -1, 1.5, "text", None])
def test_a_checkpoint_that_is_not_bytes_is_reported(held: Any) -> None:
    finding = verified(ROWS, [CHECKPOINTS[0], CHECKPOINTS[1]._replace(body=held)]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("checkpoint", 8)


def test_at_most_4096_entries_may_be_unsigned() -> None:
    many = [sample_entry(number) for number in range(4_096 + 3)]
    made = rows(many, times=[1] * len(many))
    assert verify(made[:-1], checkpoints(made, [2]), key=KEY, check=check).ok
    finding = verify(made, checkpoints(made, [2]), key=KEY, check=check).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("unsigned", 3, len(made))


def test_the_agent_column_of_the_first_entry_of_a_session_is_checked() -> None:
    made = rows(
        [plain_entry(1, "b", "y"), plain_entry(2, "b", "z"), plain_entry(3, "a", "s"), plain_entry(4, "a", "s")]
    )
    changed = [*made[:2], made[2]._replace(agent="b"), made[3]]
    finding = verified(changed, checkpoints(made, [4])).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 3)
    assert "its index says agent `b`" in finding.text


D, P, R = "decision", "progress", "receipt"
ORDERS: dict[str, tuple[list[tuple[str, int, str]], int]] = {
    "between": ([(D, 1, "s"), (P, 1, "s"), (P, 1, "s"), (R, 1, "s")], 0),
    "of a call that is open, or crashed": ([(D, 1, "s"), (P, 1, "s")], 0),
    "among other calls": ([(D, 1, "s"), (D, 2, "s"), (P, 1, "s"), (R, 2, "s"), (P, 1, "s"), (R, 1, "s")], 0),
    "before the decision": ([(D, 2, "s"), (P, 1, "s"), (D, 1, "s"), (R, 1, "s")], 2),
    "without a decision": ([(P, 1, "s")], 1),
    "after the receipt": ([(D, 1, "s"), (R, 1, "s"), (P, 1, "s")], 3),
    "of a call that was refused": ([(R, 1, "s"), (P, 1, "s")], 2),
    "in another session": ([(D, 1, "s"), (P, 1, "t")], 2),
}


@pytest.mark.parametrize(("made", "wrong"), ORDERS.values(), ids=ORDERS)
def test_an_entry_of_a_running_call_lies_between_its_decision_and_its_receipt(
    made: list[tuple[Any, int, str]], wrong: int
) -> None:
    entries = rows([sample_entry(number, session, kind=kind) for kind, number, session in made])
    finding = verified(entries, checkpoints(entries, [len(entries)])).finding
    found = (finding.kind, finding.number, finding.id) if finding is not None else ()
    assert found == (("order", wrong, "r-1") if wrong else ())
