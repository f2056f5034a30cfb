"""Entries and their verification: one spelling, every byte under a hash, and each way to tamper caught and located."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from unittest.mock import ANY

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from core.ledgers import KEY, LEDGER, OTHER_KEY, check, heads, rows, sample_stem, sign, verified
from licet.core.canonical import money_text
from licet.core.ledger.entry import (
    KEYS,
    START,
    Head,
    HeadFacts,
    Row,
    Stem,
    Tail,
    Unsound,
    check_entry,
    frame,
    head_body,
    kept_at,
    link,
    listed,
    read_head,
    stem,
    time_text,
)
from licet.core.ledger.merkle import leaf_hash
from licet.core.ledger.verify import verify
from tampered import changed


def data_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# Two sessions of one agent and one of another, interleaved; heads after 4 and 8 of 10 entries.
NAMES = ["s a", "s a", "z a", "s b", "s a", "z a", "s b", "s a", "z a", "s a"]
STEMS = [sample_stem(number, *names.split()) for number, names in enumerate(NAMES, 1)]
ROWS = rows(STEMS)
HEADS = heads(ROWS, [4, 8])


# Entries --------------------------------------------------------------------------------------------------------------


def test_an_entry_says_what_it_was_made_of() -> None:
    entry = check_entry(ROWS[4].body)
    assert list(entry) == sorted(KEYS)
    assert entry["number"] == 5
    assert entry["sequence"] == 3
    assert entry["previous"] == f"sha256:{ROWS[1].hash.hex()}"
    assert (entry["ledger"], entry["recorded"]) == (LEDGER, "2026-01-01T00:00:05.000000Z")
    assert check_entry(ROWS[0].body)["previous"] is None
    assert ROWS[4].hash == leaf_hash(ROWS[4].body)


texts = st.text(max_size=12)


@given(texts, texts, texts, texts, st.tuples(texts, texts) | st.none(), st.integers(1, 2**40))
def test_whatever_the_texts_an_entry_is_canonical(
    agent: str, session: str, tool: str, error: str, parent: tuple[str, str] | None, number: int
) -> None:
    within = frame(
        "receipt", agent, session, tool, manifest="m", tool_digest=None, parent=parent, verdict="deny", error=error
    )
    made = stem(within, "r", "t")
    row = link(made, "l", number, Tail(7, b"\x01" * 32, 3), "now")
    entry = check_entry(row.body)
    assert row.body == rfc8785.dumps(entry)
    assert row.hash == leaf_hash(row.body)
    assert [entry["agent"], entry["session"], entry["tool"]] == [row.agent, row.session, row.tool]
    assert (entry["sequence"], entry["number"], row.sequence) == (8, number, 8)
    if all(text.isprintable() for text in (agent, session, tool, error)):  # otherwise half a character may be in it
        assert (entry["agent"], entry["tool"], entry["error"]) == (agent, tool, error)


# Control characters, bidi, half characters, what JSON escapes, and long ones.
odd = st.text(st.characters() | st.sampled_from('"\\\x00\x1f\x7f\u2028\u202e\ud800é😀'), max_size=40)
written = odd | st.builds(lambda text, times: text * times, odd, st.integers(1, 200))
amounts = st.decimals("0", "1e9", places=15)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | written,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd, inner, max_size=3),
    max_leaves=8,
)


@given(
    names=st.tuples(written, written, written, written, written),
    parent=st.tuples(written, written) | st.none(),
    error=written | st.none(),
    lists=st.tuples(st.lists(written, max_size=3), st.lists(values, max_size=3), st.lists(values, max_size=3)),
    numbers=st.tuples(st.integers(1, 2**53 - 1), st.integers(0, 2**53 - 2)),
    money=st.tuples(amounts, amounts),
    given=st.tuples(values, values) | st.none(),
    flags=st.tuples(st.booleans(), st.sampled_from(["decision", "receipt"]), st.sampled_from(["allow", "ask", "deny"])),
    before=st.binary(min_size=32, max_size=32) | st.just(b""),
)
def test_what_is_spliced_is_the_canonical_json_of_what_it_says(
    names: tuple[str, ...],
    parent: tuple[str, str] | None,
    error: str | None,
    lists: tuple[list[str], list[Any], list[Any]],
    numbers: tuple[int, int],
    money: tuple[Decimal, Decimal],
    given: tuple[Any, Any] | None,
    flags: tuple[bool, str, str],
    before: bytes,
) -> None:
    agent, session, tool, name, manifest = names
    rules, events, approvals = lists
    truncated, kind, verdict = flags
    budget = {"after": {"calls": 2, "cost_usd": money_text(money[0])}, "before": {"calls": 1}}
    bodies = {"arguments": data_text(given[0]), "result": data_text(given[1])} if given else None
    sandbox = {"layers": rules, "level": None, "programs": None}
    said: Any = {
        "agent": agent,
        "approvals": approvals,
        "arguments": None,
        **({"bodies": bodies} if bodies else {}),
        "budget": budget,
        "code": error,
        "cost_usd": money_text(money[1]),
        "duration_ms": "1.234",
        "error": error,
        "events": events,
        "format": 1,
        "id": name,
        "kind": kind,
        "ledger": "l",
        "manifest": manifest,
        "number": numbers[0],
        "parent": {"agent": parent[0], "session": parent[1]} if parent else None,
        "previous": f"sha256:{before.hex()}" if before else None,
        "reason": "R",
        "recorded": "now",
        "result": None,
        "rules": rules,
        "sandbox": sandbox,
        "sequence": numbers[1] + 1,
        "session": session,
        "time": "then",
        "tool": tool,
        "tool_digest": error,
        "truncated": truncated,
        "verdict": verdict,
    }
    within = frame(
        kind,
        agent,
        session,
        tool,
        manifest=manifest,
        tool_digest=error,
        parent=parent,
        verdict=verdict,
        reason="R",
        code=error,
        cost_usd=money_text(money[1]),
        error=error,
        truncated=truncated,
        approvals=data_text(approvals),
        events=data_text(events),
        rules=listed(rules),
        sandbox=data_text(sandbox),
    )
    inside = f'"bodies":{data_text(bodies)},' if bodies else ""
    made = stem(within, name, "then", duration_ms='"1.234"', budget=data_text(budget), bodies=inside)
    row = link(made, "l", numbers[0], Tail(numbers[1], before, 0), "now")
    assert row.body == data_text(said).encode(errors="replace")
    assert row.hash == leaf_hash(row.body)
    if not any("\ud800" <= letter <= "\udfff" for letter in row.body.decode() + data_text(said)):
        assert row.body == rfc8785.dumps(said)
        assert row == Row(
            numbers[0], name, kind, agent, session, numbers[1] + 1, tool, verdict, "then", row.hash, row.body
        )


MALFORMED: dict[str, Callable[[bytes], bytes]] = {
    "a space": lambda body: body.replace(b'"agent":', b'"agent": '),
    "another order": lambda body: json.dumps({"b": 1, "a": 2}, separators=(",", ":")).encode(),
    "a key twice": lambda body: body.replace(b'"agent":"a"', b'"agent":"a","agent":"a"'),
    "a fraction": lambda body: body.replace(b'"number":1', b'"number":1.0'),
    "not a number": lambda body: body.replace(b'"number":1', b'"number":NaN'),
    "a missing key": lambda body: body.replace(b'"agent":"a",', b""),
    "an unknown key": lambda body: body.replace(b'"agent":', b'"afar":1,"agent":'),
    "another type": lambda body: body.replace(b'"number":1', b'"number":"1"'),
    "truth for a number": lambda body: body.replace(b'"number":1', b'"number":true'),
    "another kind": lambda body: body.replace(b'"kind":"receipt"', b'"kind":"recipe"'),
    "another verdict": lambda body: body.replace(b'"verdict":"deny"', b'"verdict":"maybe"'),
    "an older format": lambda body: body.replace(b'"format":1', b'"format":0'),
    "no object": lambda body: b"[]",
    "no JSON": lambda body: body[:-1],
    "no text": lambda body: b"\xff",
    "an escape too many": lambda body: body.replace(b'"agent":"a"', b'"agent":"\\u0061"'),
    "depth without end": lambda body: b"[" * 100_000,
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_entry_is_refused(change: Callable[[bytes], bytes]) -> None:
    changed = change(ROWS[0].body)
    assert changed != ROWS[0].body
    with pytest.raises(Unsound):
        check_entry(changed)


def test_an_entry_of_a_newer_format_says_so() -> None:
    with pytest.raises(Unsound, match="format 2, which a newer licet has written"):
        check_entry(ROWS[0].body.replace(b'"format":1', b'"format":2'))


def test_a_key_that_is_there_twice_is_named_as_such() -> None:
    with pytest.raises(Unsound, match="a key is there twice"):
        check_entry(MALFORMED["a key twice"](ROWS[0].body))


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize("kind", ["decision", "receipt"])
def test_an_entry_is_of_any_kind_and_verdict(kind: str, verdict: str) -> None:
    made = stem(frame(kind, "a", "s", "t", manifest="m", tool_digest=None, verdict=verdict), "r", "then")
    entry = check_entry(link(made, LEDGER, 1, START, "now").body)
    assert (entry["kind"], entry["verdict"], START) == (kind, verdict, (0, b"", 0))


def test_what_nobody_says_of_a_call_is_that_nothing_happened() -> None:
    made = stem(frame("receipt", "a", "s", "t", manifest="m", tool_digest=None), "r", "then")
    entry = check_entry(link(made, LEDGER, 1, START, "now").body)
    unsaid = {"verdict": "allow", "reason": "ALLOWED", "cost_usd": "0", "truncated": False, "sandbox": {}}
    unsaid |= {key: [] for key in ("approvals", "events", "rules")}
    unsaid |= dict.fromkeys(["parent", "code", "error", "arguments", "result", "duration_ms", "budget", "previous"])
    assert {key: entry[key] for key in unsaid} == unsaid
    assert entry.keys() == KEYS.keys() - {"bodies"}


def test_half_a_character_is_searched_for_as_it_is_written() -> None:
    within = frame("receipt", "a\ud800", "s\ud800", "t\ud800", manifest="m", tool_digest=None)
    row = link(stem(within, "r\ud800", "then"), LEDGER, 1, START, "now")
    assert row[:9] == (1, "r?", "receipt", "a?", "s?", 1, "t?", "allow", "then")
    assert verify([row], heads([row], [1]), key=KEY, check=check).ok


LAST = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEPT = [
    (timedelta(0), False),
    (timedelta(microseconds=1), False),
    (timedelta(microseconds=-1), True),
    (timedelta(minutes=-1), True),
    (timedelta(minutes=-1, microseconds=-1), False),
]


@pytest.mark.parametrize(("step", "smoothed"), KEPT)
def test_a_clock_that_goes_back_by_up_to_a_minute_is_smoothed(step: timedelta, smoothed: bool) -> None:
    assert kept_at(LAST + step, time_text(LAST)) == time_text(LAST if smoothed else LAST + step)


TIMES = [
    (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
    (datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02T03:04:05.000006Z"),  # noqa: DTZ001
    (datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2))), "2026-01-02T01:04:05.000006Z"),
]


@pytest.mark.parametrize(("moment", "text"), TIMES)
def test_a_time_is_utc_with_microseconds(moment: datetime, text: str) -> None:
    assert time_text(moment) == text


def test_times_that_come_in_any_order_are_told_apart() -> None:
    """One second is remembered, and asked for again."""
    for second, micro in [(5, 999_999), (5, 0), (4, 999_999), (4, 0), (6, 0), (5, 999_999), (6, 1), (5, 7)]:
        moment = datetime(2026, 1, 2, 3, 4, second, micro, UTC)
        assert time_text(moment) == f"2026-01-02T03:04:{second:02}.{micro:06}Z"


# Verification ---------------------------------------------------------------------------------------------------------


def test_a_whole_ledger_is_whole() -> None:
    outcome = verified(ROWS, HEADS)
    assert outcome.ok
    assert (outcome.entries, outcome.heads, outcome.signed, outcome.ledger) == (10, 2, 8, LEDGER)
    assert outcome.root == read_head(heads(ROWS, [10])[0].body).root


def test_an_empty_ledger_is_whole_with_and_without_a_head() -> None:
    assert verified([], []).ok
    assert verified([], heads([], [0])).ok
    assert verified(ROWS, [*heads(ROWS, [0]), *HEADS]).ok


def edited(row: Row, key: str) -> bytes:
    entry = json.loads(row.body)
    entry[key] = changed(entry[key])
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize("key", KEYS)
def test_every_field_of_every_entry_is_under_its_hash(number: int, key: str) -> None:
    changed = list(ROWS)
    changed[number - 1] = ROWS[number - 1]._replace(body=edited(ROWS[number - 1], key))
    finding = verified(changed, HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.id) == ("edited", number, f"r-{number}")


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("key", sorted(KEYS))
def test_who_hashes_what_they_edited_is_found_by_the_chain_or_a_head(number: int, key: str) -> None:
    changed, body = list(ROWS), edited(ROWS[number - 1], key)
    entry = json.loads(body)
    columns = {name: entry[name] for name in Row._fields if name in entry}
    changed[number - 1] = ROWS[number - 1]._replace(**{**columns, "number": number}, body=body, hash=leaf_hash(body))
    finding = verified(changed, HEADS).finding
    assert finding is not None
    first, last = finding.number, max(finding.number, finding.until)
    start, end = (1, 4) if number <= 4 else (5, 8)
    assert start <= first <= number <= last <= end, finding


COLUMNS = ["id", "kind", "agent", "session", "sequence", "tool", "verdict", "time"]


@pytest.mark.parametrize("other", ["x", None, 7, b"x", "\ud800"], ids=repr)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_disagrees_with_its_entry_is_named(column: str, other: Any) -> None:
    changed = list(ROWS)
    changed[5] = ROWS[5]._replace(**{column: other})
    finding = verified(changed, HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 6)
    assert f"by {column} " in finding.text


SHORT = rows([sample_stem(number, f"s-{number}") for number in range(1, 7)])  # each session has one entry


def test_sessions_of_one_entry_are_whole() -> None:
    outcome = verified(SHORT, heads(SHORT, [6]))
    assert (outcome.ok, outcome.signed) == (True, 6)
    assert outcome.ends == {("a", f"s-{row.number}"): Tail(1, row.hash, row.number) for row in SHORT}


@pytest.mark.parametrize("other", ["x", "s-1", None, 7], ids=repr)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_the_first_entry_of_a_session_is_held_to_it(column: str, other: Any) -> None:
    changed = [*SHORT[:4], SHORT[4]._replace(**{column: other}), SHORT[5]]
    finding = verified(changed, heads(SHORT, [6])).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 5)
    assert f"by {column} " in finding.text


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        (b'"budget":{', b'"budget": {'),
        (b'"budget":{', b'"afar":1,"budget":{'),
        (b'"code":"execution_failed"', b'"code":"execution_failed","code":"ok"'),
        (b'"duration_ms":"1.234"', b'"duration_ms":1.234'),
        (b'"rules":["y (f:1)"]', b'"rules":"y (f:1)"'),
        (b'"rules":["y (f:1)"]', b'"rules":["y (f:1)"'),
    ],
)
def test_what_no_head_speaks_for_is_read_word_by_word(written: bytes, instead: bytes) -> None:
    body = ROWS[9].body.replace(written, instead)
    assert body != ROWS[9].body
    finding = verified([*ROWS[:9], ROWS[9]._replace(body=body, hash=leaf_hash(body))], HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("edited", 10)


@pytest.mark.parametrize("other", [None, "x", 7, b""], ids=repr)
@pytest.mark.parametrize("column", ["body", "hash"])
def test_what_is_no_body_or_no_hash_is_found(column: str, other: Any) -> None:
    changed = list(ROWS)
    changed[5] = ROWS[5]._replace(**{column: other})
    finding = verified(changed, HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("edited", 6)


def test_a_hash_that_is_none_is_no_hash_whatever_it_is_equal_to() -> None:
    finding = verified([*ROWS[:9], ROWS[9]._replace(hash=ANY)], HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.id) == ("edited", 10, "r-10")


def renumbered(entries: list[Row]) -> list[Row]:
    return [row._replace(number=number) for number, row in enumerate(entries, 1)]


def relinked(stems: list[Stem]) -> list[Row]:
    """What somebody writes who knows everything but the key."""
    return rows(stems)


SPLICED = rows([sample_stem(number, "other") for number in range(20, 23)], ledger="ledger-2")
STEPS_BACK = rows(STEMS, times=[1, 2, 3, 4, 5, 2, 7, 8, 9, 10])

# Each attack on the rows: what is found, and where. Entry 10 is not signed yet.
ATTACKS: dict[str, tuple[list[Row], str, int]] = {
    "drop one": ([*ROWS[:4], *ROWS[5:]], "missing", 5),
    "drop the first": (ROWS[1:], "missing", 1),
    "drop several": ([*ROWS[:2], *ROWS[6:]], "missing", 3),
    "drop one and renumber": (renumbered([*ROWS[:4], *ROWS[5:]]), "moved", 5),
    "swap two": ([*ROWS[:2], ROWS[3], ROWS[2], *ROWS[4:]], "missing", 3),
    "swap two and renumber": (renumbered([*ROWS[:2], ROWS[3], ROWS[2], *ROWS[4:]]), "moved", 3),
    "repeat one": ([*ROWS[:5], ROWS[4], *ROWS[5:]], "moved", 5),
    "repeat one and renumber": (renumbered([*ROWS[:5], ROWS[4], *ROWS[5:]]), "moved", 6),
    "repeat one at the end": (renumbered([*ROWS, ROWS[4]]), "moved", 11),
    "truncate": (ROWS[:6], "truncated", 7),
    "truncate all": ([], "truncated", 1),
    "splice at the end": (renumbered([*ROWS, *SPLICED]), "foreign", 11),
    "splice into the middle": (renumbered([*ROWS[:4], *SPLICED, *ROWS[4:]]), "foreign", 5),
    "another ledger under these heads": (SPLICED, "foreign", 1),
    "write it all anew without one": (relinked([*STEMS[:2], *STEMS[3:]]), "root", 1),
    "write it all anew in another order": (relinked([*STEMS[:4], STEMS[5], STEMS[4], *STEMS[6:]]), "root", 5),
    "write it all anew with one more": (relinked([*STEMS[:6], sample_stem(99), *STEMS[6:]]), "root", 5),
    "leave out what a session begins with": (rows(STEMS[:2])[1:], "missing", 1),
    "turn the clock back": (STEPS_BACK, "root", 5),
}


@pytest.mark.parametrize(("changed", "kind", "number"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_on_the_entries_is_found_and_located(changed: list[Row], kind: str, number: int) -> None:
    finding = verified(changed, HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == (kind, number), finding


def test_what_is_too_short_says_how_much_of_the_rest_is_not_proven() -> None:
    """Two were taken out of the middle, and all behind them written anew: it need not be the end that is missing."""
    finding = verified(rows([*STEMS[:5], *STEMS[8:]]), HEADS).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("truncated", 8, 8)
    assert finding.text.endswith("and there are 7; nothing after entry 4 fits a head, so none of it is proven")
    finding = verified(ROWS[:4], HEADS).finding  # all that is left fits
    assert finding is not None
    assert finding.text.endswith("and there are 4")


def test_a_chain_that_does_not_hold_is_found_between_heads() -> None:
    tail = Tail(1, b"\x00" * 32, 1)
    broken = link(STEMS[1], LEDGER, 2, tail, "2026-01-01T00:00:02.000000Z")
    finding = verified([ROWS[0], broken], heads([ROWS[0]], [1])).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("chain", 2)
    assert "does not follow entry 1" in finding.text
    finding = verified([ROWS[0], broken], []).finding  # nothing vouches for the first
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("chain", 1, 2)
    skipped = link(STEMS[1], LEDGER, 2, Tail(3, ROWS[0].hash, 1), "2026-01-01T00:00:02.000000Z")
    finding = verified([ROWS[0], skipped], []).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("chain", 2)
    assert finding.text == "r-2 is number 4 of its session, after number 1"


def test_a_chain_that_goes_on_from_nothing_is_found() -> None:
    late = link(STEMS[0], LEDGER, 1, Tail(0, b"\x07" * 32, 0), "2026-01-01T00:00:01.000000Z")
    finding = verified([late], []).finding
    assert finding is not None
    assert (finding.kind, finding.text) == ("chain", "it does not follow the start of its session")


def test_a_clock_that_went_back_is_told_when_all_else_is_right() -> None:
    outcome = verified(STEPS_BACK, heads(STEPS_BACK, [4, 10]))
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.number, outcome.entries) == ("clock", 6, 10)
    assert "from 2026-01-01T00:00:05.000000Z to 2026-01-01T00:00:02.000000Z" in outcome.finding.text


def head_with(changes: dict[str, Any], key: str = KEY) -> Head:
    facts = {**json.loads(HEADS[1].body), **changes}
    body = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return Head(8, body, sign(key, body))


NO_HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "of a newer format": ({"format": 2}, "it has format 2, which a newer licet has written: use that one"),
    "of an older format": ({"format": 0}, "it is no head of a ledger"),
    "of a format that is none": ({"format": "2"}, "it is no head of a ledger"),
    **{
        f"with no {name}": ({name: 1}, "it is no head of a ledger")
        for name in ("key", "kind", "ledger", "root", "time")
    },
    "with a size that is none": ({"size": "8"}, "it is no head of a ledger"),
    "with truth for a size": ({"size": True}, "it is no head of a ledger"),
    "with a size that is negative": ({"size": -1}, "it is no head of a ledger"),
}


@pytest.mark.parametrize(("changes", "text"), NO_HEADS.values(), ids=NO_HEADS)
def test_what_is_no_head_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(Unsound) as refusal:
        read_head(head_with(changes).body)
    assert str(refusal.value) == text


def test_a_head_says_what_it_was_made_of() -> None:
    facts = HeadFacts(LEDGER, 0, "sha256:" + "01" * 32, "then", 'a "key"')
    assert read_head(head_body(LEDGER, 0, b"\x01" * 32, "then", 'a "key"')) == facts


HEAD_ATTACKS: dict[str, tuple[list[Head], str, int]] = {
    "edit the signature": ([HEADS[0], HEADS[1]._replace(signature=b"x" * 32)], "signature", 8),
    "edit the first signature": ([HEADS[0]._replace(signature=b""), HEADS[1]], "signature", 4),
    "edit the body": ([HEADS[0], HEADS[1]._replace(body=HEADS[1].body.replace(b"00:01", b"00:02"))], "signature", 8),
    "edit the column": ([HEADS[0], HEADS[1]._replace(size=7)], "head", 7),
    "no head": ([HEADS[0], HEADS[1]._replace(body=b"{}")], "head", 8),
    "no JSON": ([HEADS[0], HEADS[1]._replace(body=b"x")], "head", 8),
    "sign with another key": (heads(ROWS, [4, 8], key=OTHER_KEY), "key", 4),
    "sign one with another key": ([HEADS[0], head_with({"key": OTHER_KEY}, OTHER_KEY)], "key", 8),
    "sign with another key in the name of this": ([HEADS[0], head_with({}, OTHER_KEY)], "signature", 8),
    "a head of another ledger": ([HEADS[0], head_with({"ledger": "ledger-2"})], "foreign", 8),
    "another root": ([HEADS[0], head_with({"root": "sha256:00"})], "root", 5),
    "another format": ([HEADS[0], head_with({"format": 2})], "head", 8),
    "a size that is none": ([HEADS[0], head_with({"size": "8"})], "head", 8),
    "a size that is negative": ([HEADS[0], head_with({"size": -1})], "head", 8),
    "a key more": ([HEADS[0], head_with({"more": 1})], "head", 8),
    "another kind": ([HEADS[0], head_with({"kind": "receipt"})], "head", 8),
    "no heads at all": ([], "unsigned", 1),
}


@pytest.mark.parametrize(("changed", "kind", "number"), HEAD_ATTACKS.values(), ids=HEAD_ATTACKS)
def test_an_attack_on_the_heads_is_found_and_located(changed: list[Head], kind: str, number: int) -> None:
    finding = verified(ROWS, changed).finding
    assert finding is not None
    assert (finding.kind, finding.number) == (kind, number), finding


def test_the_first_wrong_thing_is_told() -> None:
    changed = [*ROWS[:2], ROWS[2]._replace(tool="x"), *ROWS[3:]]
    finding = verified(changed, [HEADS[0], HEADS[1]._replace(signature=b"")]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 3)


def test_an_older_copy_of_everything_is_told_by_a_head_that_was_kept_elsewhere() -> None:
    older = ROWS[:6], heads(ROWS, [4])
    assert verified(*older).ok
    finding = verified(*older, kept=[HEADS[1]]).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("truncated", 7, 8)
    assert verified(ROWS, HEADS, kept=[HEADS[1], HEADS[0]]).ok
    forked = rows([*STEMS[:3], sample_stem(77), *STEMS[4:]])
    finding = verified(forked, heads(forked, [10]), kept=[HEADS[0]]).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("root", 1, 4)


def test_what_is_not_signed_yet_is_counted() -> None:
    outcome = verified(ROWS, heads(ROWS, [9]))
    assert (outcome.ok, outcome.entries - outcome.signed) == (True, 1)


def test_the_right_key_is_the_one_that_is_asked_for() -> None:
    assert verify(ROWS, heads(ROWS, [10], key=OTHER_KEY), key=OTHER_KEY, check=check).ok


def test_a_finding_says_where() -> None:
    finding = verified([*ROWS[:4], *ROWS[6:]], HEADS).finding
    assert str(finding) == "entries 5 to 6: after entry 4 comes entry 7"
    finding = verified([*ROWS[:4], ROWS[4]._replace(tool="x"), *ROWS[5:]], HEADS).finding
    assert str(finding) == "entry 5 (r-5): it is searched for by tool `x`, and says `t`"


def test_a_row_is_linked_to_the_start_of_its_session() -> None:
    row = link(STEMS[0], LEDGER, 1, START, "now")
    assert (row.sequence, check_entry(row.body)["sequence"], check_entry(row.body)["previous"]) == (1, 1, None)
