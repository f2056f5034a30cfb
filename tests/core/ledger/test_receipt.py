"""Entries and their verification: one encoding, every byte hashed, and each way to tamper found and located."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest.mock import ANY

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, inspect, structs

from core.ledgers import (
    KEY,
    LEDGER,
    OTHER_KEY,
    check,
    checkpoints,
    plain_entry,
    rows,
    sample_entry,
    sign,
    verified,
)
from licet.core.ledger.entry import (
    COLUMNS,
    START,
    Checkpoint,
    CheckpointFacts,
    Entry,
    EventFact,
    LinkedEntry,
    Row,
    Tail,
    Unsound,
    checkpoint_body,
    entry_fields,
    link,
    read_checkpoint,
    read_entry,
    recorded_at,
    time_text,
)
from licet.core.ledger.merkle import leaf_hash
from licet.core.ledger.verify import verify
from tampered import changed

# Two sessions of one agent and one of another, interleaved; checkpoints after 4 and 8 of 10 entries.
NAMES = [
    ("s", "a"), ("s", "a"), ("z", "a"), ("s", "b"), ("s", "a"), ("z", "a"), ("s", "b"), ("s", "a"), ("z", "a"),
    ("s", "a"),
]  # fmt: skip
ENTRIES = [sample_entry(number, session, agent) for number, (session, agent) in enumerate(NAMES, 1)]
ROWS = rows(ENTRIES)
KEYS = set(LinkedEntry.__struct_fields__)
CHECKPOINTS = checkpoints(ROWS, [4, 8])


# Entries --------------------------------------------------------------------------------------------------------------


def test_an_entry_has_its_facts_and_its_sequence_number() -> None:
    entry = read_entry(ROWS[4].body)
    assert entry.sequence == 3
    assert entry.previous == f"sha256:{ROWS[1].hash.hex()}"
    assert (entry.format, entry.ledger, entry.recorded) == (2, LEDGER, "2026-01-01T00:00:05.000000Z")
    assert read_entry(ROWS[0].body).previous is None
    assert ROWS[4].hash == leaf_hash(ROWS[4].body)
    assert {name: getattr(entry, name) for name in Entry.__struct_fields__} == structs.asdict(ENTRIES[4])


def test_the_number_in_the_ledger_is_not_hashed() -> None:
    """So writers of different sessions can hash their entries without waiting for each other."""
    first, later = (link(ENTRIES[0], LEDGER, number, START, "now") for number in (1, 7))
    assert (first.body, first.hash) == (later.body, later.hash)


def declared(kind: Any) -> Iterator[Any]:
    """Every type that a field of an entry may have, and those inside it."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from declared(field.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from declared(one)
    elif isinstance(kind, inspect.VarTupleType):
        yield from declared(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        yield from declared(kind.key_type)
        yield from declared(kind.value_type)
    elif isinstance(kind, inspect.Metadata):
        yield from declared(kind.type)
    else:
        yield kind


@pytest.mark.parametrize("struct", [LinkedEntry, CheckpointFacts])
def test_every_field_type_can_be_written_as_canonical_json(struct: type[Struct]) -> None:
    """`canonical_json` trusts a Struct: no floats, no decimals, no bytes, and integers below 2**53."""
    kinds = list(declared(inspect.type_info(struct)))
    allowed = (inspect.StrType, inspect.IntType, inspect.BoolType, inspect.NoneType, inspect.LiteralType)
    assert [kind for kind in kinds if not isinstance(kind, allowed)] == []
    assert all(kind.le == 2**53 - 1 for kind in kinds if isinstance(kind, inspect.IntType))


texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\x00\x1f\x7f\u2028\u202eé😀'), max_size=12
)


@given(texts, texts, texts, texts | st.none(), st.lists(texts, max_size=3), st.integers(0, 2**53 - 2))
def test_an_entry_is_written_by_rfc_8785(
    agent: str, session: str, tool: str, error: str | None, rules: list[str], sequence: int
) -> None:
    events = tuple(EventFact(kind="k", rule=rule) for rule in rules)
    said = Entry(
        kind="receipt", id="r", agent=agent, session=session, tool=tool, time="then", manifest="m", error=error,
        rules=tuple(rules), events=events,
    )  # fmt: skip
    row = link(said, "l", 3, Tail(sequence, b"\x01" * 32, 2), "now")
    assert row.body == rfc8785.dumps(json.loads(row.body))
    assert row.hash == leaf_hash(row.body)
    entry = read_entry(row.body)
    assert (entry.agent, entry.session, entry.tool, entry.error) == (agent, session, tool, error)
    assert row == Row(3, "r", "receipt", agent, session, sequence + 1, tool, "allow", "then", row.hash, row.body)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        link(structs.replace(ENTRIES[0], error="\ud800"), LEDGER, 1, START, "now")


MALFORMED: dict[str, Callable[[bytes], bytes]] = {
    "a space": lambda body: body.replace(b'"agent":', b'"agent": '),
    "another order": lambda body: body.replace(b'"sequence":1,"session":"s"', b'"session":"s","sequence":1'),
    "a key twice": lambda body: body.replace(b'"agent":"a"', b'"agent":"a","agent":"a"'),
    "a float": lambda body: body.replace(b'"sequence":1', b'"sequence":1.0'),
    "a float instead of text": lambda body: body.replace(b'"duration_ms":"1.234"', b'"duration_ms":1.234'),
    "not a number": lambda body: body.replace(b'"sequence":1', b'"sequence":NaN'),
    "a large number": lambda body: body.replace(b'"sequence":1', b'"sequence":9007199254740992'),
    "a negative number": lambda body: body.replace(b'"sequence":1', b'"sequence":-1'),
    "a missing key": lambda body: body.replace(b'"agent":"a",', b""),
    "a missing key with a default": lambda body: body.replace(b'"truncated":true,', b""),
    "an unknown key": lambda body: body.replace(b'"agent":', b'"afar":1,"agent":'),
    "an unknown key inside": lambda body: body.replace(b'"level":', b'"lever":1,"level":'),
    "another type": lambda body: body.replace(b'"sequence":1', b'"sequence":"1"'),
    "truth for a number": lambda body: body.replace(b'"sequence":1', b'"sequence":true'),
    "another kind": lambda body: body.replace(b'"kind":"receipt"', b'"kind":"recipe"'),
    "another verdict": lambda body: body.replace(b'"verdict":"deny"', b'"verdict":"maybe"'),
    "a long purpose": lambda body: body.replace(b'"to look it up"', b'"' + b"x" * 501 + b'"'),
    "no object": lambda body: b"[]",
    "no JSON": lambda body: body[:-1],
    "no text": lambda body: b"\xff",
    "an escape too many": lambda body: body.replace(b'"agent":"a"', b'"agent":"\\u0061"'),
    "depth without end": lambda body: b"[" * 100_000,
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED)
def test_malformed_entries_are_refused(change: Callable[[bytes], bytes]) -> None:
    changed = change(ROWS[0].body)
    assert changed != ROWS[0].body
    with pytest.raises(Unsound):
        read_entry(changed)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "it has format 1, written by an older licet: this version reads format 2 alone"),
        (3, "it has format 3, written by a newer licet: use that version"),
    ],
)
def test_an_entry_of_another_format_is_refused_with_the_reason(number: int, text: str) -> None:
    with pytest.raises(Unsound, match=text):
        read_entry(ROWS[0].body.replace(b'"format":2', b'"format":%d' % number))


def test_the_default_values_of_an_entry() -> None:
    row = link(plain_entry(1), LEDGER, 1, START, "now")
    fields = entry_fields(row.body)
    unsaid: dict[str, Any] = {"verdict": "allow", "reason": "ALLOWED", "cost_usd": "0", "truncated": False}
    unsaid |= {key: [] for key in ("approvals", "events", "rules")}
    unsaid |= dict.fromkeys(["parent", "caller", "purpose", "code", "error", "arguments", "result", "duration_ms"])
    unsaid |= {"sandbox": {"access": None, "layers": [], "level": None, "programs": None}, "budget": None}
    assert {key: fields[key] for key in unsaid} == unsaid
    optional = {"bodies", "call_id", "coding_agent", "flags", "flow", "node", "observed", "organisation", "repeats"}
    assert fields.keys() == KEYS - optional - {"standing", "state"}
    assert START == (0, b"", 0)


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
    assert recorded_at(LAST + step, time_text(LAST)) == time_text(LAST if smoothed else LAST + step)


class OwnTime(datetime):
    """What a clock of a test library returns."""


TIMES = [
    (OwnTime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
    (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "2026-01-02T03:04:05.000006Z"),
    (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
    (datetime(999, 1, 2, 3, 4, 5, 600, UTC), "0999-01-02T03:04:05.000600Z"),
    (datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02T03:04:05.000006Z"),  # noqa: DTZ001
    (datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2))), "2026-01-02T01:04:05.000006Z"),
]


@pytest.mark.parametrize(("moment", "text"), TIMES)
def test_a_time_is_utc_with_microseconds(moment: datetime, text: str) -> None:
    assert time_text(moment) == text


# Verification ---------------------------------------------------------------------------------------------------------


def test_an_untouched_ledger_verifies() -> None:
    outcome = verified(ROWS, CHECKPOINTS)
    assert outcome.ok
    assert (outcome.entries, outcome.checkpoints, outcome.signed, outcome.ledger) == (10, 2, 8, LEDGER)
    assert outcome.root == read_checkpoint(checkpoints(ROWS, [10])[0].body).root


def test_an_empty_ledger_verifies_with_and_without_a_checkpoint() -> None:
    assert verified([], []).ok
    assert verified([], checkpoints([], [0])).ok
    assert verified(ROWS, [*checkpoints(ROWS, [0]), *CHECKPOINTS]).ok


def edited(row: Row, key: str) -> bytes:
    entry = json.loads(row.body)
    entry[key] = changed(entry[key])
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_field_of_an_entry_is_hashed(number: int, key: str) -> None:
    changed = list(ROWS)
    changed[number - 1] = ROWS[number - 1]._replace(body=edited(ROWS[number - 1], key))
    finding = verified(changed, CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.id) == ("edited", number, f"r-{number}")


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("key", sorted(KEYS))
def test_an_edit_with_a_new_hash_is_found_by_the_chain_or_a_checkpoint(number: int, key: str) -> None:
    changed, body = list(ROWS), edited(ROWS[number - 1], key)
    entry = json.loads(body)
    columns = {name: entry[name] for name in Row._fields if name in entry}
    changed[number - 1] = ROWS[number - 1]._replace(**{**columns, "number": number}, body=body, hash=leaf_hash(body))
    finding = verified(changed, CHECKPOINTS).finding
    assert finding is not None
    first, last = finding.number, max(finding.number, finding.until)
    start, end = (1, 4) if number <= 4 else (5, 8)
    assert start <= first <= number <= last <= end, finding


@pytest.mark.parametrize("other", ["x", None, 7, b"x", "\ud800"], ids=repr)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_disagrees_with_its_entry_is_named(column: str, other: Any) -> None:
    changed = list(ROWS)
    changed[5] = ROWS[5]._replace(**{column: other})
    finding = verified(changed, CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 6)
    assert f"its index says {column} " in finding.text


SHORT = rows([sample_entry(number, f"s-{number}") for number in range(1, 7)])  # each session has one entry


def test_sessions_of_one_entry_verify() -> None:
    outcome = verified(SHORT, checkpoints(SHORT, [6]))
    assert (outcome.ok, outcome.signed) == (True, 6)
    assert outcome.ends == {("a", f"s-{row.number}"): Tail(1, row.hash, row.number) for row in SHORT}


@pytest.mark.parametrize("other", ["x", "s-1", None, 7], ids=repr)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_the_first_entry_of_a_session_is_checked(column: str, other: Any) -> None:
    changed = [*SHORT[:4], SHORT[4]._replace(**{column: other}), SHORT[5]]
    finding = verified(changed, checkpoints(SHORT, [6])).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 5)
    assert f"its index says {column} " in finding.text


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
def test_entries_after_the_last_checkpoint_are_parsed_too(written: bytes, instead: bytes) -> None:
    body = ROWS[9].body.replace(written, instead)
    assert body != ROWS[9].body
    finding = verified([*ROWS[:9], ROWS[9]._replace(body=body, hash=leaf_hash(body))], CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("edited", 10)


@pytest.mark.parametrize("other", [None, "x", 7, b""], ids=repr)
@pytest.mark.parametrize("column", ["body", "hash"])
def test_a_body_or_hash_that_is_not_bytes_is_found(column: str, other: Any) -> None:
    changed = list(ROWS)
    changed[5] = ROWS[5]._replace(**{column: other})
    finding = verified(changed, CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("edited", 6)


def test_a_hash_that_is_not_bytes_is_refused_even_if_it_compares_equal() -> None:
    finding = verified([*ROWS[:9], ROWS[9]._replace(hash=ANY)], CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.id) == ("edited", 10, "r-10")


def renumbered(entries: list[Row]) -> list[Row]:
    return [row._replace(number=number) for number, row in enumerate(entries, 1)]


def relinked(entries: list[Entry]) -> list[Row]:
    """A ledger as an attacker without the key would rewrite it: all hashes and links are right."""
    return rows(entries)


SPLICED = rows([sample_entry(number, "other") for number in range(20, 23)], ledger="ledger-2")
STEPS_BACK = rows(ENTRIES, times=[1, 2, 3, 4, 65, 2, 67, 68, 69, 70])

# Each attack on the rows: what is found, and where. Entry 10 is not signed yet.
ATTACKS: dict[str, tuple[list[Row], str, int]] = {
    "drop one": ([*ROWS[:4], *ROWS[5:]], "missing", 5),
    "drop the first": (ROWS[1:], "missing", 1),
    "drop several": ([*ROWS[:2], *ROWS[6:]], "missing", 3),
    "drop one and renumber": (renumbered([*ROWS[:4], *ROWS[5:]]), "chain", 5),
    "swap two": ([*ROWS[:2], ROWS[3], ROWS[2], *ROWS[4:]], "missing", 3),
    "swap two and renumber": (renumbered([*ROWS[:2], ROWS[3], ROWS[2], *ROWS[4:]]), "root", 1),
    "repeat one": ([*ROWS[:5], ROWS[4], *ROWS[5:]], "moved", 5),
    "repeat one and renumber": (renumbered([*ROWS[:5], ROWS[4], *ROWS[5:]]), "chain", 6),
    "repeat one at the end": (renumbered([*ROWS, ROWS[4]]), "chain", 11),
    "truncate": (ROWS[:6], "truncated", 7),
    "truncate all": ([], "truncated", 1),
    "splice at the end": (renumbered([*ROWS, *SPLICED]), "foreign", 11),
    "splice into the middle": (renumbered([*ROWS[:4], *SPLICED, *ROWS[4:]]), "foreign", 5),
    "another ledger under these checkpoints": (SPLICED, "foreign", 1),
    "write it all anew without one": (relinked([*ENTRIES[:2], *ENTRIES[3:]]), "root", 1),
    "write it all anew in another order": (relinked([*ENTRIES[:4], ENTRIES[5], ENTRIES[4], *ENTRIES[6:]]), "root", 5),
    "write it all anew with one more": (relinked([*ENTRIES[:6], sample_entry(99), *ENTRIES[6:]]), "root", 5),
    "leave out what a session begins with": (rows(ENTRIES[:2])[1:], "missing", 1),
    "turn the clock back": (STEPS_BACK, "root", 5),
}


@pytest.mark.parametrize(("changed", "kind", "number"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_on_the_entries_is_found_and_located(changed: list[Row], kind: str, number: int) -> None:
    finding = verified(changed, CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number) == (kind, number), finding


def test_a_truncated_ledger_says_how_much_of_the_rest_is_not_proven() -> None:
    """Entries were removed from the middle and the later ones rewritten, so it is not known which ones are missing."""
    finding = verified(rows([*ENTRIES[:5], *ENTRIES[8:]]), CHECKPOINTS).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("truncated", 8, 8)
    assert finding.text.endswith("and there are 7; no checkpoint covers what is after entry 4, so none of it is proven")
    finding = verified(ROWS[:4], CHECKPOINTS).finding  # all that is left fits
    assert finding is not None
    assert finding.text.endswith("and there are 4")


def test_a_broken_chain_is_found_between_checkpoints() -> None:
    tail = Tail(1, b"\x00" * 32, 1)
    broken = link(ENTRIES[1], LEDGER, 2, tail, "2026-01-01T00:00:02.000000Z")
    finding = verified([ROWS[0], broken], checkpoints([ROWS[0]], [1])).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("chain", 2)
    assert "does not link to entry 1" in finding.text
    finding = verified([ROWS[0], broken], []).finding  # nothing vouches for the first
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("chain", 1, 2)
    skipped = link(ENTRIES[1], LEDGER, 2, Tail(3, ROWS[0].hash, 1), "2026-01-01T00:00:02.000000Z")
    finding = verified([ROWS[0], skipped], []).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("chain", 2)
    assert finding.text == "r-2 is number 4 of its session, after number 1"


def test_a_link_to_a_missing_first_entry_is_found() -> None:
    late = link(ENTRIES[0], LEDGER, 1, Tail(0, b"\x07" * 32, 0), "2026-01-01T00:00:01.000000Z")
    finding = verified([late], []).finding
    assert finding is not None
    assert (finding.kind, finding.text) == ("chain", "it does not link to the start of its session")


def test_a_clock_that_went_back_is_reported_when_all_else_is_right() -> None:
    outcome = verified(STEPS_BACK, checkpoints(STEPS_BACK, [4, 10]))
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.number, outcome.entries) == ("clock", 6, 10)
    assert "from 2026-01-01T00:01:05.000000Z to 2026-01-01T00:00:02.000000Z" in outcome.finding.text


def test_clocks_of_nodes_may_differ_by_a_minute() -> None:
    differ = rows(ENTRIES, times=[1, 2, 3, 4, 61, 2, 67, 68, 69, 70])
    assert verified(differ, checkpoints(differ, [4, 10])).finding is None


def checkpoint_with(changes: dict[str, Any], key: str = KEY) -> Checkpoint:
    facts = {**json.loads(CHECKPOINTS[1].body), **changes}
    body = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return Checkpoint(8, body, sign(key, body))


NO_CHECKPOINTS: dict[str, tuple[dict[str, Any], str]] = {
    "of a newer format": ({"format": 3}, "it has format 3, written by a newer licet: use that version"),
    "of an older format": ({"format": 1}, "it has format 1, written by an older licet"),
    "of a format that is none": ({"format": "2"}, "does not fit the schema"),
    **{f"with no {name}": ({name: 1}, "does not fit") for name in ("key", "kind", "ledger", "root", "time")},
    "with a size that is none": ({"size": "8"}, "does not fit the schema"),
    "with truth for a size": ({"size": True}, "does not fit the schema"),
    "with a size that is negative": ({"size": -1}, "does not fit the schema"),
}


@pytest.mark.parametrize(("changes", "text"), NO_CHECKPOINTS.values(), ids=NO_CHECKPOINTS)
def test_malformed_checkpoints_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(Unsound, match=text):
        read_checkpoint(checkpoint_with(changes).body)


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    facts = CheckpointFacts(ledger=LEDGER, size=0, root="sha256:" + "01" * 32, time="then", key='a "key"')
    assert read_checkpoint(checkpoint_body(LEDGER, 0, b"\x01" * 32, "then", 'a "key"')) == facts


CHECKPOINT_ATTACKS: dict[str, tuple[list[Checkpoint], str, int]] = {
    "edit the signature": ([CHECKPOINTS[0], CHECKPOINTS[1]._replace(signature=b"x" * 32)], "signature", 8),
    "edit the first signature": ([CHECKPOINTS[0]._replace(signature=b""), CHECKPOINTS[1]], "signature", 4),
    "edit the body": ([CHECKPOINTS[0], CHECKPOINTS[1]._replace(body=CHECKPOINTS[1].body.replace(b":01:", b":02:"))],
        "signature", 8),
    "edit the column": ([CHECKPOINTS[0], CHECKPOINTS[1]._replace(size=7)], "checkpoint", 7),
    "no checkpoint": ([CHECKPOINTS[0], CHECKPOINTS[1]._replace(body=b"{}")], "checkpoint", 8),
    "no JSON": ([CHECKPOINTS[0], CHECKPOINTS[1]._replace(body=b"x")], "checkpoint", 8),
    "sign with another key": (checkpoints(ROWS, [4, 8], key=OTHER_KEY), "key", 4),
    "sign one with another key": ([CHECKPOINTS[0], checkpoint_with({"key": OTHER_KEY}, OTHER_KEY)], "key", 8),
    "sign with another key in the name of this": ([CHECKPOINTS[0], checkpoint_with({}, OTHER_KEY)], "signature", 8),
    "a head of another ledger": ([CHECKPOINTS[0], checkpoint_with({"ledger": "ledger-2"})], "foreign", 8),
    "another root": ([CHECKPOINTS[0], checkpoint_with({"root": "sha256:00"})], "root", 5),
    "another format": ([CHECKPOINTS[0], checkpoint_with({"format": 3})], "checkpoint", 8),
    "a size that is none": ([CHECKPOINTS[0], checkpoint_with({"size": "8"})], "checkpoint", 8),
    "a size that is negative": ([CHECKPOINTS[0], checkpoint_with({"size": -1})], "checkpoint", 8),
    "a key more": ([CHECKPOINTS[0], checkpoint_with({"more": 1})], "checkpoint", 8),
    "another kind": ([CHECKPOINTS[0], checkpoint_with({"kind": "receipt"})], "checkpoint", 8),
    "no checkpoints at all": ([], "unsigned", 1),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "kind", "number"), CHECKPOINT_ATTACKS.values(), ids=CHECKPOINT_ATTACKS)
def test_an_attack_on_the_checkpoints_is_found_and_located(changed: list[Checkpoint], kind: str, number: int) -> None:
    finding = verified(ROWS, changed).finding
    assert finding is not None
    assert (finding.kind, finding.number) == (kind, number), finding


def test_the_first_broken_rule_is_reported() -> None:
    changed = [*ROWS[:2], ROWS[2]._replace(tool="x"), *ROWS[3:]]
    finding = verified(changed, [CHECKPOINTS[0], CHECKPOINTS[1]._replace(signature=b"")]).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("column", 3)


def test_an_older_copy_of_the_ledger_is_found_with_a_checkpoint_stored_elsewhere() -> None:
    older = ROWS[:6], checkpoints(ROWS, [4])
    assert verified(*older).ok
    finding = verified(*older, kept=[CHECKPOINTS[1]]).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("truncated", 7, 8)
    assert verified(ROWS, CHECKPOINTS, kept=[CHECKPOINTS[1], CHECKPOINTS[0]]).ok
    forked = rows([*ENTRIES[:3], sample_entry(77), *ENTRIES[4:]])
    finding = verified(forked, checkpoints(forked, [10]), kept=[CHECKPOINTS[0]]).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("root", 1, 4)


def test_the_outcome_counts_the_signed_entries() -> None:
    outcome = verified(ROWS, checkpoints(ROWS, [9]))
    assert (outcome.ok, outcome.entries - outcome.signed) == (True, 1)


def test_a_ledger_verifies_with_the_key_that_signed_it() -> None:
    assert verify(ROWS, checkpoints(ROWS, [10], key=OTHER_KEY), key=OTHER_KEY, check=check).ok


def test_a_finding_names_its_entry_or_range() -> None:
    finding = verified([*ROWS[:4], *ROWS[6:]], CHECKPOINTS).finding
    assert str(finding) == "entries 5 to 6: after entry 4 comes entry 7"
    finding = verified([*ROWS[:4], ROWS[4]._replace(tool="x"), *ROWS[5:]], CHECKPOINTS).finding
    assert str(finding) == "entry 5 (r-5): its index says tool `x`, and the entry says `t`"


def test_a_row_is_linked_to_the_start_of_its_session() -> None:
    row = link(ENTRIES[0], LEDGER, 1, START, "now")
    entry = read_entry(row.body)
    assert (row.sequence, entry.sequence, entry.previous) == (1, 1, None)
