"""What attacks on walls are tried on: see `behind_walls`."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from attacks.behind_walls import NO_WALLS, Outside
from sandbox.levels import WALLED, needs_walls

# How many attacks of each theme are tried at each level, unless all are.
TRIED = {NO_WALLS: 4, "restricted": 6, "isolated": 4}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sample by theme, so that each kind of attack is tried at each level."""
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if "outside" in given:
            level, theme = given["outside"], str(given.get("attack", item.path.stem)).partition(".")[0]
            item.add_marker(pytest.mark.sampled(TRIED[level], of=f"attacks, {theme}, {level}"))


@pytest.fixture(params=(NO_WALLS, *WALLED))
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outside]:
    """The world around one attack: without walls first, then behind those of each level."""
    needs_walls()
    with closing(Outside(request.param, tmp_path.resolve())) as there:
        yield there


@pytest.fixture(params=WALLED)
def inside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outside]:
    """The same for attacks on what is only there behind walls: whoever answers the questions of a tool."""
    needs_walls()
    with closing(Outside(request.param, tmp_path.resolve())) as there:
        yield there
