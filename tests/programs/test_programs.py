"""Ordinary programs do behind walls what they do without, or are refused as their policy demands.

Cases: `rows.yaml`. Each is run under the preset for coding agents, and under what `observe` and `learn` write for it.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

import warm
from attacks.walled_programs import needs_programs
from programs.places import Outcome, Place, Refusal, Row, Servers, agreed, merged, missing, rows, serving_rows, words_of
from programs.table import PAGE, page

pytestmark = needs_programs

ROWS = rows()


@pytest.fixture
def folder(row: Row) -> Iterator[Path]:
    """A directory for the project of a row."""
    with TemporaryDirectory(prefix="licet-programs-", dir=row.below, ignore_cleanup_errors=True) as made:
        yield Path(made).resolve()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with TemporaryDirectory(prefix="licet-servers-", dir="/var/tmp") as made, serving_rows(Path(made)) as started:
        yield started


def walled(place: Place, words: list[str]) -> Outcome:
    """Run a command behind walls; a person agrees first if the policy asks one."""
    script = [warm.SCRIPT] if place.row.terminal is not None else warm.licet()
    ended = place.run([*script, "run", "--", *words])
    if asked := re.search(r"licet approvals approve (a-\w+)", ended.err):
        place.settle([*warm.licet(), "approvals", "approve", asked[1], "--yes"])
        ended = place.run([*script, "run", "--", *words])
    return ended


def compare(row: Row, found: Outcome, bare: Outcome | None, expected: str | Refusal) -> None:
    """Compare a run behind walls with the run without, or with the refusal that the policy demands."""
    if isinstance(expected, Refusal):
        assert found.code == expected.code, found
        assert re.search(expected.says, found.out + found.err), found
        assert re.search(expected.hint, found.err), found
        return
    assert bare is not None, "a row that is not run bare has nothing to be compared with"
    for side in ("err", "out", "code"):  # what the program says is the best explanation of its code
        assert getattr(found, side) == getattr(bare, side), (side, found.code, found.out, found.err)
    different = {name for name in {*found.files, *bare.files} if found.files.get(name) != bare.files.get(name)}
    assert {name: (bare.files.get(name), found.files.get(name)) for name in sorted(different)} == {}


@pytest.mark.who
@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_program_under_the_preset(row: Row, folder: Path, servers: Servers) -> None:
    if why := missing(row):
        pytest.skip(why)
    place = Place(folder, row, servers)
    place.settle([*warm.licet(), "init", "--preset", "coding", "--yes"])
    merged(place.policy, place.adds())
    place.settle([*warm.licet(), "trust", "--yes"])
    place.keep()
    bare = place.run(["sh", "-c", place.line]) if row.bare else None
    place.restore()
    compare(row, walled(place, ["sh", "-c", place.line]), bare, row.preset)


# Rows that need a policy of their own, or are about what a policy refuses, have no words in flags.
WITH_FLAGS = [row for row in ROWS if row.preset == "works" and not row.policy and row.terminal is None and row.bare]


@pytest.mark.who
@pytest.mark.sampled(3)
@pytest.mark.parametrize("row", WITH_FLAGS, ids=[row.name for row in WITH_FLAGS])
def test_a_program_under_flags_alone(row: Row, folder: Path, servers: Servers) -> None:
    """What others run or trust is closed, and ordinary work goes on."""
    if why := missing(row):
        pytest.skip(why)
    place = Place(folder, row, servers)
    bare = place.run(["sh", "-c", place.line])
    place.restore()
    read = [sys.base_prefix, *servers.files(place.line)]
    flags = [
        *(f"--allow-read={path}" for path in (".", *read)),
        "--allow-write=.",
        "--allow-env=LANG",
        "--allow-env=TERM",
    ]
    found = place.run([*warm.licet(), "run", *flags, "--", "sh", "-c", place.line])
    own = [line for line in found.err.splitlines(keepends=True) if not line.startswith("licet: not writable, since")]
    compare(row, replace(found, err="".join(own)), bare, "works")


LEARNED = [row for row in ROWS if row.learned != "skip"]


@pytest.mark.who
@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", LEARNED, ids=[row.name for row in LEARNED])
def test_a_program_under_what_was_learned(row: Row, folder: Path, servers: Servers) -> None:
    if why := missing(row):
        pytest.skip(why)
    place = Place(folder, row, servers)
    words = words_of(place.line)
    observed = place.run([*warm.licet(), "observe", "--", *words])
    place.restore()
    place.settle([*warm.licet(), "learn", "--write"])
    if row.learned == "agreed":
        agreed(place.policy)
    place.settle([*warm.licet(), "trust", "--yes"])
    place.keep()
    bare = place.run(words)
    assert (observed.code, observed.out) == (bare.code, bare.out), observed
    for _ in range(2):  # temporary names differ from run to run
        place.restore()
        compare(row, walled(place, words), bare, "works" if row.learned == "agreed" else row.learned)


def test_the_table_of_the_docs_is_written_from_the_rows() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make reference`: docs/programs.md is another text"
    assert len(ROWS) >= 40
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if isinstance(row.preset, Refusal) or row.policy])
def test_what_does_not_work_is_explained_in_the_table(row: Row) -> None:
    assert row.note


def test_a_difference_is_noticed() -> None:
    same = Outcome(0, "out", "", {"a": "-"})
    compare(ROWS[0], same, same, "works")
    for other in (
        Outcome(1, "out", "", {"a": "-"}),
        Outcome(0, "", "", {"a": "-"}),
        Outcome(0, "out", "e", {"a": "-"}),
    ):
        with pytest.raises(AssertionError):
            compare(ROWS[0], other, same, "works")
    for files in ({}, {"a": "d"}, {"a": "-", "b": "-"}):
        with pytest.raises(AssertionError):
            compare(ROWS[0], Outcome(0, "out", "", files), same, "works")
    with pytest.raises(AssertionError):
        compare(ROWS[0], Outcome(1, "", "no", {}), None, Refusal(1, "no", "licet says why"))
