"""Parts of a ledger: put together they say what one pass says, and nothing where anything is wrong."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ledgers import KEY, LEDGER, check, heads, in_parts, rows, sample_stem
from licet.core.ledger.entry import START, Head, Row, Tail, link
from licet.core.ledger.merkle import leaf_hash
from licet.core.ledger.verify import verify, verify_joined
from licet.core.ledger.verify_part import look_at_part
from tampered import changed

SIZE = 24
NAMES = st.sampled_from(["s", "t", "u"]), st.sampled_from(["a", "b"]), st.sampled_from(["decision", "receipt"])


@dataclass
class Ledger:
    """Entries of some sessions, and heads of which the last speaks for all but a few."""

    rows: list[Row]
    heads: list[Head]

    @property
    def signed(self) -> int:
        return self.heads[-1].size


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    names = draw(st.lists(st.tuples(*NAMES), min_size=4, max_size=SIZE))
    times = sorted(draw(st.lists(st.integers(0, 59), min_size=len(names), max_size=len(names))))
    made = rows([sample_stem(number, *name) for number, name in enumerate(names, 1)], times=times)
    sizes = draw(st.sets(st.integers(1, len(names)), max_size=4)) | {draw(st.integers(2, len(names)))}
    return Ledger(made, heads(made, sizes))


@st.composite
def ends(draw: st.DrawFn, signed: int) -> list[int]:
    """Where parts end, the last where the last head is."""
    return [*sorted(draw(st.sets(st.integers(0, signed - 1), min_size=1, max_size=3))), signed]


@st.composite
def tampered(draw: st.DrawFn, ledger: Ledger) -> Ledger:
    """What somebody has done to a ledger who has no key."""
    made, signed, at = list(ledger.rows), list(ledger.heads), draw(st.integers(0, len(ledger.rows) - 1))
    row = made[at]
    match draw(st.sampled_from(["column", "body", "rehash", "drop", "swap", "repeat", "cut", "clock", "anew", "head"])):
        case "column":
            name = draw(st.sampled_from(Row._fields))
            made[at] = row._replace(**{name: draw(st.sampled_from([changed(getattr(row, name)), None, b"x"]))})
        case "body" | "rehash" as how:
            place = draw(st.integers(0, len(row.body) - 1))
            body = row.body[:place] + bytes([row.body[place] ^ 1]) + row.body[place + 1 :]
            made[at] = row._replace(body=body, hash=row.hash if how == "body" else leaf_hash(body))
        case "drop":
            del made[at]
        case "swap":
            other = draw(st.integers(0, len(made) - 1))
            made[at], made[other] = made[other]._replace(number=at + 1), row._replace(number=other + 1)
        case "repeat":
            made.insert(at, row)
        case "cut":
            del made[at:]
        case "clock":
            body = row.body.replace(b'"recorded":"2026-', b'"recorded":"2025-')
            made[at] = row._replace(body=body, hash=leaf_hash(body))
            signed = heads(made, [head.size for head in signed])  # whoever has the key can say anything
        case "anew":
            made = rows([sample_stem(number, session=f"s{number % 3}") for number in range(1, len(made) + 1)])
        case "head":
            which = draw(st.integers(0, len(signed) - 1))
            body = draw(st.sampled_from([signed[which].body, b"{}"]))
            signed[which] = Head(signed[which].size, body, b"")
    return Ledger(made, signed)


@given(st.data())
def test_a_whole_ledger_is_as_whole_in_parts(data: st.DataObject) -> None:
    ledger = data.draw(ledgers())
    plain = verify(ledger.rows, ledger.heads, key=KEY, check=check)
    assert plain.ok
    assert in_parts(ledger.rows, ledger.heads, data.draw(ends(ledger.signed))) == plain


@given(st.data())
def test_what_is_wrong_in_one_pass_is_not_right_in_parts(data: st.DataObject) -> None:
    whole = data.draw(ledgers())
    ledger = data.draw(tampered(whole))
    plain = verify(ledger.rows, ledger.heads, key=KEY, check=check)
    joined = in_parts(ledger.rows, ledger.heads, data.draw(ends(whole.signed)))
    assert joined == (plain if plain.ok else None)


ROWS = rows([sample_stem(number, "st"[number % 2]) for number in range(1, 13)])
HEADS = heads(ROWS, [4, 8, 12])


def test_a_part_says_what_its_sessions_go_on_from() -> None:
    part = look_at_part(ROWS[4:8], 5, 8, [4, 8, 12])
    assert part is not None
    assert (part.first, part.last, part.ledger) == (5, 8, "ledger-1")
    assert part.begun == {
        ("a", "t"): (2, f'"sha256:{ROWS[2].hash.hex()}"'),
        ("a", "s"): (2, f'"sha256:{ROWS[3].hash.hex()}"'),
    }
    assert part.ends["a", "s"] == (4, f'"sha256:{ROWS[7].hash.hex()}"', 8)
    assert (part.since, part.recorded) == (b"2026-01-01T00:00:05.000000Z", b"2026-01-01T00:00:08.000000Z")
    assert [many for many, _ in part.trees] == [4]


@pytest.mark.parametrize("sizes", [[6], [4, 6, 12], [5, 6, 7]])
def test_its_subtrees_end_where_a_head_does(sizes: list[int]) -> None:
    part = look_at_part(ROWS[4:8], 5, 8, sizes)
    assert part is not None
    size, reached = 4, {4}
    for many, _ in part.trees:
        size += many
        reached.add(size)
    assert size == 8
    assert {one for one in sizes if 4 < one < 8} <= reached


def test_a_head_within_a_subtree_leaves_it_to_one_pass() -> None:
    part = look_at_part(ROWS[4:8], 5, 8, [8])
    assert in_parts(ROWS, heads(ROWS, [6, 8]), [4, 8]) is not None
    assert verify_joined(ROWS[:4], [part], ROWS[8:], heads(ROWS, [6, 8]), key=KEY, check=check) is None
    assert verify_joined(ROWS[:4], [part], ROWS[8:], heads(ROWS, [4, 8]), key=KEY, check=check) is not None


def test_what_no_head_speaks_for_is_no_matter_for_a_part() -> None:
    assert in_parts(ROWS, HEADS[:2], [4, 8]) is not None
    assert in_parts(ROWS, HEADS[:2], [4, 9]) is None
    assert in_parts(ROWS, HEADS[:1], [4, 8]) is None


@pytest.mark.parametrize("other", [[], ROWS[4:7], ROWS[5:8], ROWS[4:9], [ROWS[4], ROWS[4], *ROWS[6:8]]])
def test_a_part_of_other_entries_is_none(other: list[Row]) -> None:
    assert look_at_part(other, 5, 8, [8]) is None


def test_a_part_does_not_begin_what_others_have_begun() -> None:
    """A session that begins anew in the part, though it was there before."""
    anew = rows([sample_stem(number, "st"[number % 2]) for number in range(1, 5)])
    assert anew == ROWS[:4]
    fresh: Any = look_at_part(ROWS[:4], 1, 4, [4])
    moved = fresh._replace(first=5, last=8, since=b"3", recorded=b"3")
    assert verify_joined(ROWS[:4], [moved], [], HEADS[:1], key=KEY, check=check) is None


def test_a_part_goes_on_from_where_its_sessions_were_whoever_has_signed_it() -> None:
    again = list(ROWS[:4])
    tails = {"s": START, "t": START}
    for number in range(5, 9):
        one = sample_stem(number, "st"[number % 2])
        session = one[0].chain[1]
        again.append(link(one, LEDGER, number, tails[session], "2026-01-01T00:00:09.000000Z"))
        tails[session] = Tail(again[-1].sequence, again[-1].hash, number)
    signed = heads(again, [4, 8])
    finding = verify(again, signed, key=KEY, check=check).finding
    assert finding is not None
    assert (finding.kind, finding.number) == ("chain", 5)
    assert look_at_part(again[4:8], 5, 8, [8]) is not None
    assert in_parts(again, signed, [4, 8]) is None


def test_nothing_in_no_parts_is_whole() -> None:
    nothing = verify_joined([], [], [], [], key=KEY, check=check)
    assert nothing is not None
    assert (nothing.ok, nothing.entries) == (True, 0)


def test_a_part_that_does_not_follow_is_not_passed_over() -> None:
    """Even where all its entries are among the others."""
    earlier: Any = look_at_part(ROWS[4:8], 5, 8, [8])
    later: Any = look_at_part(ROWS[8:], 9, 12, [12])
    for part in (earlier, later._replace(begun={})):
        assert verify_joined(ROWS[:8], [part], ROWS[8:], HEADS, key=KEY, check=check) is None
    assert verify_joined(ROWS[:8], [later], [], HEADS, key=KEY, check=check) is not None
