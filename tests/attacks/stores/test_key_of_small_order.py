"""A public key that is a point of small order: whoever has the manifest can sign for it, without any private half."""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from guard.questions import question
from licet import ManifestError, load_manifest
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.secrets import check_signature, generated_key, verifies
from licet.core.values import key_bytes, key_text

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
NEUTRAL: Point = (0, 1)


def added(one: Point, two: Point) -> Point:
    """The sum of two points, as RFC 8032 has it."""
    (x1, y1), (x2, y2) = one, two
    cross = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + cross, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - cross, -1, P)
    return x % P, y % P


def times_eight(point: Point) -> Point:
    for _ in range(3):
        point = added(point, point)
    return point


def points(y: int) -> list[Point]:
    """The points of the curve with this y: two, one or none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    roots = {candidate * sign % P for candidate in (root, root * pow(2, (P - 1) // 4, P)) for sign in (1, -1)}
    return [(x, y) for x in sorted(roots) if x * x % P == square]


def small_points() -> set[Point]:
    """All of them: the multiples of one of order 8, which is what the prime order leaves of some other point."""
    order = 2**252 + 27742317777372353535851937790883648493
    for y in range(2, 100):
        for point in points(y):
            found, power = NEUTRAL, point
            for bit in reversed(f"{order:b}"):
                found = added(found, power) if bit == "1" else found
                power = added(power, power)
            four = added(added(found, found), added(found, found))
            if four != NEUTRAL:
                several = [NEUTRAL]
                for _ in range(7):
                    several.append(added(several[-1], found))
                return set(several)
    raise AssertionError("a curve without a point of order 8")


SMALL = small_points()
# With each sign, whether the point has that one or not, and with y above the prime where 255 bits hold it.
SPELLED = sorted(
    (y + more | sign << 255).to_bytes(32, "little")
    for y in {y for _, y in SMALL}
    for more in (0, P)
    if y + more < 2**255
    for sign in (0, 1)
)
FOR_EVERYTHING = NEUTRAL[1].to_bytes(32, "little") + bytes(32)  # R is the neutral element, and S is nothing


def test_there_are_eight_such_points_in_fourteen_spellings() -> None:
    assert len(SMALL) == 8
    assert {times_eight(point) for point in SMALL} == {NEUTRAL}
    assert len(set(SPELLED)) == 14


def test_a_verifier_takes_one_constant_for_the_signature_of_everything() -> None:
    neutral = NEUTRAL[1].to_bytes(32, "little")
    assert all(verifies(neutral, FOR_EVERYTHING, message) for message in (b"", b"pay alice", b"pay mallory"))


@pytest.mark.parametrize("key", SPELLED, ids=bytes.hex)
def test_no_manifest_lists_one(tmp_path: Path, key: bytes) -> None:
    lines = ["agent: a", "capabilities:", "  approvals:", "    keys:"]
    lines += [f"      - {name}" for name in (generated_key().public, key_text(key))]
    (tmp_path / "agent.yaml").write_text("\n".join(lines))
    with pytest.raises(ManifestError, match="anybody can sign for this one") as refused:
        load_manifest(tmp_path / "agent.yaml")
    assert "agent.yaml:6" in str(refused.value)


@pytest.mark.parametrize("key", SPELLED, ids=bytes.hex)
def test_no_signature_counts_for_one(tmp_path: Path, key: bytes) -> None:
    """Also where no file was read: in code, and for `licet receipts verify --key`."""
    name = key_text(key)
    assert key_bytes(name) is None
    assert not any(check_signature(name, bytes([number]), FOR_EVERYTHING) for number in range(32))
    store = SqliteApprovals(tmp_path / "approvals.sqlite")
    asked = question(keys=(name,))
    request = asyncio.run(store.ask(asked)).request
    store.close()
    with sqlite3.connect(tmp_path / "approvals.sqlite") as db:
        db.execute("INSERT INTO answers VALUES (?, ?, 0, ?, 0)", (request, name, FOR_EVERYTHING))
    db.close()
    assert asyncio.run(store.ask(asked)).answer == "absent"


def test_other_keys_are_what_they_were(tmp_path: Path) -> None:
    names = [generated_key().public for _ in range(20)]
    assert [key_text(key_bytes(name) or b"") for name in names] == names
    manifest = {"agent": "a", "capabilities": {"approvals": {"keys": names}}}
    (tmp_path / "agent.json").write_text(json.dumps(manifest))
    assert load_manifest(tmp_path / "agent.json").approvals.keys == tuple(names)
