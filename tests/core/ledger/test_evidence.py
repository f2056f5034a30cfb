"""Evidence packs: proofs for several entries at once, and every way in which a signed pack can still be wrong."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from core.ledgers import KEY, OTHER_KEY, check, checkpoints, rows, sample_entry, sign
from licet.core.ledger.entry import Row, Unsound, check_row
from licet.core.ledger.merkle import inclusion_proofs
from licet.core.ledger.verify import (
    Finding,
    Pack,
    check_pack,
    checkpoint_line,
    envelope,
    read_checkpoint_lines,
    statement,
    to_sign,
)

ROWS = rows([sample_entry(1), sample_entry(2, "other"), sample_entry(3), sample_entry(4), sample_entry(5, "other")])
CHECKPOINT = checkpoints(ROWS, [5])[0]
ALL = {1, 2, 3, 4, 5}


def payload(numbers: set[int] = ALL, of: list[Row] = ROWS) -> bytes:
    proofs = inclusion_proofs([row.hash for row in of], len(of), [number - 1 for number in numbers])
    return statement([row for row in of if row.number in numbers], CHECKPOINT, proofs)


def checked(body: bytes, key: str = KEY) -> Pack | Finding:
    return check_pack(envelope(body, key, sign(key, to_sign(body))).encode(), KEY, check)


def changed(change: Callable[[dict[str, Any]], object], numbers: set[int] = ALL) -> Pack | Finding:
    """Change the statement of a pack, sign it with the right key, and check it."""
    statement_fields = json.loads(payload(numbers))
    change(statement_fields)
    return checked(json.dumps(statement_fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


@pytest.mark.parametrize("numbers", [{1}, {3}, {5}, {1, 4}, ALL], ids=str)
def test_a_pack_holds_its_entries_and_their_checkpoint(numbers: set[int]) -> None:
    pack = checked(payload(numbers))
    assert isinstance(pack, Pack)
    assert {entry["number"] for entry in pack.entries} == numbers
    assert (pack.key, pack.checkpoint.size) == (KEY, 5)


def test_the_statement_is_in_toto_and_the_envelope_dsse() -> None:
    statement_fields = json.loads(payload({3}))
    assert statement_fields["_type"] == "https://in-toto.io/Statement/v1"
    assert statement_fields["subject"] == [
        {"name": "r-3/receipt", "digest": {"sha256": sha256(ROWS[2].body).hexdigest()}}
    ]
    assert json.loads(envelope(b"x", "k", b"s")) == {
        "payload": "eA==",
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"keyid": "k", "sig": "cw=="}],
    }
    # The example of the DSSE specification, with the type of a statement.
    assert to_sign(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"


def put(place: str, value: Any) -> Callable[[dict[str, Any]], object]:
    """A change of the statement: another value at a path."""
    *way, last = (int(step) if step.isdigit() else step for step in place.split("."))

    def change(statement_fields: Any) -> None:
        for step in way:
            statement_fields = statement_fields[step]
        statement_fields[last] = value(statement_fields[last]) if callable(value) else value

    return change


def swap(statement_fields: dict[str, Any]) -> None:
    """Swap the first two entries and their subjects."""
    for each in (statement_fields["predicate"]["entries"], statement_fields["subject"]):
        each[:2] = each[1], each[0]


OTHERS = rows([sample_entry(number) for number in range(6, 11)], ledger="another")


@pytest.mark.parametrize(("change", "number", "text"), [
    (put("_type", "x"), 0, "no statement of type"),
    (put("predicateType", "x"), 0, "no statement of type"),
    (put("predicate", None), 0, "does not have the fields of a pack"),
    (put("predicate.entries", []), 0, "it has 5 subjects and 0 entries"),
    (put("subject", lambda all_of_them: all_of_them[:4]), 0, "it has 4 subjects and 5 entries"),
    (put("predicate.checkpoint.signature", "AA=="), 0, "its checkpoint has no valid signature"),
    (put("predicate.checkpoint.signature", 7), 0, "a signature is text"),
    (put("predicate.checkpoint.signature", "é"), 0, "a signature is no base64"),
    (put("predicate.checkpoint.body", "{}"), 0, "does not fit the schema"),
    (put("predicate.checkpoint.body", lambda text: text.replace('"size":5', '"size":6')), 0,
        "its checkpoint has no valid"),
    (put("predicate.entries.2.body", "{}"), 3, "it cannot be read"),
    (put("predicate.entries.2", "x"), 3, "it cannot be read"),
    (put("predicate.entries.2.body", lambda text: text.replace("NOT", "NOW")), 3, "does not cover it"),
    (put("predicate.entries.2.number", 4), 4, "does not cover it"),
    (put("predicate.entries.2.number", "3"), 3, "it cannot be read: its number is not an integer"),
    (put("predicate.entries.2.number", True), 3, "it cannot be read: its number is not an integer"),
    (put("predicate.entries.2.proof", []), 3, "does not cover it"),
    (put("predicate.entries.2.proof.0", "00" * 32), 3, "does not cover it"),
    (put("predicate.entries.2.proof.0", "x"), 3, "it cannot be read"),
    (put("predicate.entries.2.body", OTHERS[2].body.decode()), 3, "was written to the ledger another"),
    (swap, 1, "it comes after entry 2"),
    (put("predicate.entries", lambda each: [each[0], each[0], *each[2:]]), 1, "it comes after entry 1"),
    (put("subject.2.name", "r-9/receipt"), 3, "its subject is `r-9/receipt`"),
    (put("subject.2.digest.sha256", "00"), 3, "with another digest"),
    (put("subject.2", 7), 3, "it cannot be read"),
])  # fmt: skip
def test_an_error_in_a_signed_pack_is_reported(
    change: Callable[[dict[str, Any]], object], number: int, text: str
) -> None:
    found = changed(change)
    assert isinstance(found, Finding)
    assert found.number == number
    assert text in found.text


def test_entries_that_do_not_link_are_reported_although_a_checkpoint_covers_them() -> None:
    """Only the owner of the key could make such a pack. Its chain is checked all the same."""
    another = rows([sample_entry(1), sample_entry(2, "other"), sample_entry(3, kind="decision")])[2]
    broken = [*ROWS[:2], another, *ROWS[3:]]
    checkpoint = checkpoints(broken, [5])[0]
    proofs = inclusion_proofs([row.hash for row in broken], 5, range(5))
    found = checked(statement(broken, checkpoint, proofs))
    assert isinstance(found, Finding)
    assert (found.number, found.text) == (4, "it does not link to the one before it")


def test_a_pack_with_a_gap_is_not_checked_for_missing_links() -> None:
    assert isinstance(checked(payload({1, 4})), Pack)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"payload":1}'])
def test_data_that_is_not_a_pack_is_reported(data: bytes) -> None:
    found = check_pack(data, KEY, check)
    assert isinstance(found, Finding)
    assert found.number == 0


def test_a_pack_signed_with_another_key_is_refused() -> None:
    found = checked(payload(), OTHER_KEY)
    assert isinstance(found, Finding)
    assert found.text == f"the pack: it has no valid signature of {KEY}"


def test_one_of_several_signatures_is_enough() -> None:
    body = payload()
    statement_fields = json.loads(envelope(body, KEY, sign(KEY, to_sign(body))))
    statement_fields["signatures"].insert(0, {"keyid": OTHER_KEY, "sig": "AA=="})
    data = json.dumps(statement_fields, sort_keys=True, separators=(",", ":")).encode()
    assert isinstance(check_pack(data, KEY, check), Pack)


# Checkpoints that are kept elsewhere ----------------------------------------------------------------------------------


def test_a_checkpoint_is_read_back_from_its_line() -> None:
    line = checkpoint_line(CHECKPOINT)
    assert read_checkpoint_lines(f"{line}\n\n  {line}\n") == [CHECKPOINT, CHECKPOINT]


LINE = checkpoint_line(CHECKPOINT)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "x", "{}", "[]", "\ud800", LINE[:-1], LINE.replace('"size":5', '"size":-5'),
     LINE.replace('"signature":"', '"signature":"é'), f"{LINE}\n7"],
)  # fmt: skip
def test_malformed_lines_of_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(Unsound):
        read_checkpoint_lines(text)


# Entries, one by one -------------------------------------------------------------------------------------------------


def test_an_entry_is_sound_or_says_why_not() -> None:
    row = ROWS[2]
    assert check_row(row)["id"] == "r-3"
    with pytest.raises(Unsound, match="its bytes are not those"):
        check_row(row._replace(body=row.body + b" "))
    for name in ("id", "kind", "agent", "session", "sequence", "tool", "verdict", "time"):
        with pytest.raises(Unsound, match=f"its index says {name} `x`"):
            check_row(row._replace(**{name: "x"}))  # type: ignore[arg-type]


def test_each_entry_of_a_running_call_has_a_name_of_its_own() -> None:
    kinds: tuple[Any, ...] = ("decision", "progress", "progress", "receipt")
    made = rows([sample_entry(1, kind=kind) for kind in kinds])
    proofs = inclusion_proofs([row.hash for row in made], len(made), range(4))
    body = statement(made, checkpoints(made, [4])[0], proofs)
    names = [subject["name"] for subject in json.loads(body)["subject"]]
    assert names == ["r-1/decision", "r-1/progress/2", "r-1/progress/3", "r-1/receipt"]
    pack = checked(body)
    assert isinstance(pack, Pack)
    assert [entry["kind"] for entry in pack.entries] == [*kinds]
