"""What only the end of a ledger shows, and which of two things that are wrong is told: the first."""

from typing import Any

import pytest

from core.ledgers import KEY, LEDGER, check, heads, rows, sample_stem, sign, verified
from counted import work
from licet.core.ledger.entry import Head, Row, Stem, Tail, frame, head_body, link, stem
from licet.core.ledger.linked import Finding, Outcome, both
from licet.core.ledger.merkle import Frontier, leaf_hash
from licet.core.ledger.verify import verify

STEMS = [sample_stem(number) for number in range(1, 11)]
ROWS = rows(STEMS)
HEADS = heads(ROWS, [4, 8])
FORGED = HEADS[1]._replace(signature=b"")


def test_a_head_that_is_wrong_is_told_before_an_entry_behind_it() -> None:
    first = HEADS[0]._replace(signature=b"")
    entries = [*ROWS[:6], ROWS[6]._replace(tool="other"), *ROWS[7:]]
    finding = verified(entries, [first, HEADS[1]]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("signature", 4)


def test_an_entry_is_told_before_a_head_behind_it_that_is_wrong() -> None:
    entries = [*ROWS[:6], ROWS[6]._replace(tool="other"), *ROWS[7:]]
    finding = verified(entries, [HEADS[0], FORGED]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 7)


def test_a_head_that_is_wrong_is_told_though_there_are_not_so_many_entries() -> None:
    finding = verified(ROWS[:6], [HEADS[0], FORGED]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("signature", 8)


OTHERS = rows([sample_stem(number + 20) for number in range(10)])


@pytest.mark.parametrize("second", [FORGED, HEADS[1], *heads(OTHERS, [8])], ids=["forged", "of the others", "fits"])
def test_a_range_that_was_exchanged_is_told_whatever_a_head_behind_it_says(second: Head) -> None:
    """The first head does not fit, so what the second says is no longer the first thing that is wrong."""
    outcome = verified(OTHERS, [HEADS[0], second])
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.number, outcome.finding.until) == ("root", 1, 4)
    assert (outcome.heads, outcome.signed) == (2, 0)


@pytest.mark.parametrize(
    ("doubt", "chain", "told"),
    [
        ((1, 4), (3, 0), (3, 3)),
        ((1, 4), (4, 0), (4, 4)),
        ((1, 4), (2, 6), (2, 4)),
        ((3, 6), (1, 5), (3, 5)),
        ((3, 6), (1, 9), (3, 6)),
    ],
)
def test_what_a_head_and_a_chain_doubt_is_where_both_do(
    doubt: tuple[int, int], chain: tuple[int, int], told: tuple[int, int]
) -> None:
    found = both(Finding("root", doubt[0], "", until=doubt[1]), Finding("chain", chain[0], "why", "r", chain[1]))
    assert found == Finding("chain", told[0], "why", "r", told[1])


@pytest.mark.parametrize("chain", [(5, 0), (5, 8), (1, 2)])
def test_a_chain_that_breaks_elsewhere_leaves_the_doubt(chain: tuple[int, int]) -> None:
    doubt = Finding("root", 3, "", until=4)
    assert both(doubt, Finding("chain", chain[0], "why", "r", chain[1])) == doubt


def test_a_finding_of_which_no_range_is_known_is_about_one_entry() -> None:
    assert Finding("edited", 3, "why") == ("edited", 3, "why", "", 0)
    assert [str(Finding("edited", 3, "why", until=until)) for until in (0, 3, 4)] == [
        "entry 3: why",
        "entry 3: why",
        "entries 3 to 4: why",
    ]


def test_an_outcome_says_of_nothing_that_it_was_there() -> None:
    outcome = Outcome(0, 0, 0, LEDGER, "", None)
    assert outcome[6:] == (b"", "", {}, False)
    assert [found.ok for found in (outcome, outcome._replace(finding=Finding("edited", 3, "why")))] == [True, False]


def signed_at(entries: list[Row], time: str) -> Head:
    """A head over all of these."""
    frontier = Frontier()
    frontier.extend([row.hash for row in entries])
    body = head_body(LEDGER, frontier.size, frontier.root, time, KEY)
    return Head(frontier.size, body, sign(KEY, body))


def test_entries_without_any_head_are_told_to_be() -> None:
    finding = verified(ROWS, []).finding
    assert finding == Finding("unsigned", 1, "no head speaks for any entry", until=10)


@pytest.mark.parametrize(("last", "late"), [(40, False), (50, False), (51, True)])
def test_what_is_behind_the_last_head_is_there_for_ten_seconds(last: int, late: bool) -> None:
    """A head is no older than what it speaks for, whatever its clock has said."""
    made = rows(STEMS[:4], times=[38, 39, 40, last])
    finding = verified(made, [signed_at(made[:3], "2026-01-01T00:00:20.000000Z")]).finding
    assert (finding is not None) == late
    if finding is not None:
        assert (finding.kind, finding.number, finding.until) == ("unsigned", 4, 4)
        assert finding.text.startswith("not proven: the last head that is left was signed at 2026-01-01T00:00:40")


@pytest.mark.parametrize("last", [40, 50])
def test_the_clock_of_a_head_counts_where_it_is_ahead(last: int) -> None:
    made = rows(STEMS[:4], times=[1, 2, 3, last])
    assert verified(made, [signed_at(made[:3], "2026-01-01T00:00:40.000000Z")]).ok


def behind(entries: list[Row], *times: str) -> list[Row]:
    """More entries of the same session, recorded at these times."""
    made = list(entries)
    for time in times:
        tail = Tail(made[-1].sequence, made[-1].hash, made[-1].number)
        made.append(link(STEMS[len(made)], LEDGER, len(made) + 1, tail, time))
    return made


@pytest.mark.parametrize(("signed", "late"), [("on a day", True), ("some day", False), ("the next day", False)])
def test_a_time_that_is_none_is_not_taken_for_one_that_is_near(signed: str, late: bool) -> None:
    finding = verified(behind(ROWS[:4], "some day"), [signed_at(ROWS[:4], signed)]).finding
    assert (finding is not None) == late
    if finding is not None:
        assert (finding.kind, finding.number) == ("unsigned", 5)


def test_a_time_that_is_none_may_end_where_a_time_does() -> None:
    """What is looked at of it is as long as a time, which can be in the middle of a letter."""
    odd = "2026-01-01T00:00:30.000000é"
    cut = odd[:-1] + "\ufffd"
    made = behind(ROWS[:2], odd, odd, odd, "2026-01-01T00:00:05.000000Z")
    outcome = verify(made, heads(made, [4, 6]), key=KEY, check=check)
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.number, outcome.entries) == ("clock", 6, 6)
    assert outcome.finding.text == f"the time went back from {cut} to 2026-01-01T00:00:05.000000Z"
    outcome = verify(made[:5], heads(made, [5]), key=KEY, check=check)
    assert (outcome.ok, outcome.recorded) == (True, cut)


def test_a_time_that_is_no_text_is_told_as_what_was_not_signed() -> None:
    """Nobody without the key has it signed, but whoever looks at the ledger is to hear that, not to stumble over it."""
    entries = rows([sample_stem(number, "su"[number % 2]) for number in range(1, 9)])
    signed, changed = heads(entries, [8]), entries[6]
    said = changed.body.replace(b'"recorded":"2026-01-01T00:00:07.000000Z"', b'"recorded":"' + b"\xff" * 27 + b'"')
    assert said != changed.body
    forged = changed._replace(body=said, hash=leaf_hash(said))
    finding = verified([*entries[:6], forged, entries[7]], signed).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("root", 1, 8)


@pytest.mark.parametrize("held", [1 << 62, 1 << 33, -1, 1.5, "text", None])
def test_a_body_that_is_no_bytes_is_told_and_takes_no_memory(held: Any) -> None:
    """A file can hold a number there, and `bytes` of a number are so many zeros."""
    finding = verified([*ROWS[:6], ROWS[6]._replace(body=held), *ROWS[7:]], HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("edited", 7)


@pytest.mark.parametrize("held", [1 << 62, -1, 1.5, "text", None])
def test_a_head_that_is_no_bytes_is_told(held: Any) -> None:
    finding = verified(ROWS, [HEADS[0], HEADS[1]._replace(body=held)]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("head", 8)


def test_so_many_entries_may_wait_for_a_head_and_no_more() -> None:
    many = [sample_stem(number) for number in range(4_096 + 3)]
    made = rows(many, times=[1] * len(many))
    assert verify(made[:-1], heads(made, [2]), key=KEY, check=check).ok
    finding = verify(made, heads(made, [2]), key=KEY, check=check).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("unsigned", 3, len(made))


def plain_stem(number: int, agent: str, session: str) -> Stem:
    """An entry of nobody who was delegated to."""
    return stem(frame("receipt", agent, session, "t", manifest="m", tool_digest=None), f"r-{number}", "then")


def test_who_is_said_to_have_begun_a_session_is_who_has() -> None:
    """But for the agent, the first entry of a session is like those that another agent has begun others with."""
    made = rows([plain_stem(1, "b", "y"), plain_stem(2, "b", "z"), plain_stem(3, "a", "s"), plain_stem(4, "a", "s")])
    changed = [*made[:2], made[2]._replace(agent="b"), made[3]]
    finding = verified(changed, heads(made, [4])).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 3)
    assert "by agent `b`" in finding.text


@pytest.mark.parametrize(("sessions", "most"), [(1, 18), (3, 18), (2_000, 32)])
def test_most_entries_are_not_read_word_by_word(sessions: int, most: int) -> None:
    """What is like an entry before it takes a few calls: a million of them would take minutes otherwise."""

    def calls(size: int) -> int:
        made = rows([plain_stem(number, "a", f"s{number % sessions}") for number in range(size)], times=[1] * size)
        signed = heads(made, [size])
        return work(lambda: verify(made, signed, key=KEY, check=check))

    assert (calls(1_100) - calls(100)) / 1_000 < most


def test_what_no_head_speaks_for_takes_longer() -> None:
    read = rows([plain_stem(number, "a", "s") for number in range(100)], times=[1] * 100)
    signed = heads(read, [2])
    assert work(lambda: verify(read, signed, key=KEY, check=check)) / 100 > 60
