"""What was observed runs again under what was learned: twice, after what it made was removed, and once more.

Cases: `replay.yaml`. Each policy is narrower than the project: what was there and is not written stays closed.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from msgspec import Struct, convert
from msgspec.structs import replace

import warm
from attacks.walled_programs import needs_namespaces
from licet import load_manifest
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import inside
from licet.core.decision.reach import reach_of
from licet.core.policy.manifest import COMMANDS, with_commands
from programs.places import Outcome, Place, Row, Servers, agreed, missing, serving_rows, words_of
from programs.test_programs import compare, walled

pytestmark = needs_namespaces


class Replay(Struct, frozen=True):
    """One command with what removes its results; `replay.yaml` says what the fields mean."""

    row: Row
    clean: str
    agreed: bool
    opened: tuple[str, ...]
    unlike: tuple[str, ...]

    def compared(self, outcome: Outcome) -> Outcome:
        """What is compared of a run."""
        files = {name: text for name, text in outcome.files.items() if name not in self.unlike}
        return replace(outcome, files=files)


def replays() -> list[Replay]:
    """All cases."""
    cases: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("replay.yaml").read_text("utf-8"))
    own = ("clean", "agreed", "opened", "unlike")
    return [
        Replay(
            convert({key: value for key, value in case.items() if key not in own}, Row),
            case["clean"],
            case.get("agreed", False),
            tuple(case.get("opened", ())),
            tuple(case.get("unlike", ())),
        )
        for case in cases
    ]


REPLAYS = replays()


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="licet-replay-", dir="/var/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made).resolve()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with TemporaryDirectory(prefix="licet-servers-", dir="/var/tmp") as made, serving_rows(Path(made)) as started:
        yield started


@pytest.mark.who
@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", REPLAYS, ids=[case.row.name for case in REPLAYS])
def test_what_was_learned_replays_twice_and_after_a_clean(case: Replay, folder: Path, servers: Servers) -> None:
    if why := missing(case.row):
        pytest.skip(why)
    place = Place(folder, case.row, servers)
    before = {path.relative_to(place.project) for path in place.project.rglob("*")}
    line, clean = words_of(place.line), words_of(case.clean)
    for words in (line, line, clean):
        assert place.run([*warm.licet(), "observe", "--", *words]).code == 0
    place.restore()
    place.settle([*warm.licet(), "learn", "--write"])
    if case.agreed:
        agreed(place.policy)
    place.settle([*warm.licet(), "trust", "--yes"])
    _is_narrow(place, before, case.opened)
    place.keep()
    steps = (line, line, clean, line)
    bare = [place.run(words) for words in steps]
    assert [outcome.code for outcome in bare] == [0, 0, 0, 0], bare
    place.restore()
    for words, outcome in zip(steps, bare, strict=True):
        compare(case.row, case.compared(walled(place, words)), case.compared(outcome), "works")


def _is_narrow(place: Place, before: set[Path], opened: tuple[str, ...]) -> None:
    """What was there and is not written is closed to writes and deletes, whoever agrees to what."""
    manifest = with_commands(load_manifest(place.policy).expand(str(place.project), str(place.project.parent / "home")))
    reach = reach_of(manifest, COMMANDS)
    assert reach is not None
    open_paths = tuple(str(place.project / path) for path in opened)
    for action in ("write", "delete"):
        assert not reach.grant.has(Capability(f"fs:{action}:{place.project}"))
        closed = [str(place.project / name) for name in before if not inside(str(place.project / name), open_paths)]
        assert [path for path in closed if reach.grant.has(f"fs:{action}:{path}")] == [], place.policy.read_text()
