"""Ordinary programs do behind walls what they do without, or are refused as their policy demands.

Cases: `rows.yaml`. Each is run under the preset for coding agents, and under what `observe` and `learn` write for it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import needs_namespaces
from programs.places import Outcome, Place, Refusal, Row, Servers, agreed, merged, missing, rows, serving_rows
from programs.places import toolchain, words_of

pytestmark = needs_namespaces

ROWS = rows()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with serving_rows(tmp_path_factory.mktemp("servers")) as made:
        yield made


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


@pytest.mark.sampled(7)
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_program_under_the_preset(row: Row, tmp_path: Path, servers: Servers) -> None:
    if why := missing(row):
        pytest.skip(why)
    place = Place(tmp_path, row, servers)
    place.settle([*warm.licet(), "init", "--preset", "coding", "--yes"])
    merged(place.policy, place.adds())
    place.settle([*warm.licet(), "trust", "--yes"])
    place.keep()
    bare = place.run(["sh", "-c", place.line]) if row.bare else None
    place.restore()
    compare(row, walled(place, ["sh", "-c", place.line]), bare, row.preset)


LEARNED = [row for row in ROWS if row.learned != "skip"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", LEARNED, ids=[row.name for row in LEARNED])
def test_a_program_under_what_was_learned(row: Row, tmp_path: Path, servers: Servers) -> None:
    if why := missing(row):
        pytest.skip(why)
    place = Place(tmp_path, row, servers)
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
