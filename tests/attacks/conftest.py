"""What attacks on walls are tried on: see `behind_walls`."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from attacks.behind_walls import NO_WALLS, Outside
from sandbox.levels import WALLED, needs_walls

# How many attacks of each file are tried at each level, unless all are.
TRIED = {NO_WALLS: 2, "restricted": 3, "isolated": 2}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sample by file, so that each kind of attack is tried at each level."""
    for item in items:
        level = getattr(item, "callspec", None) and item.callspec.params.get("outside")  # type: ignore[attr-defined]
        if level is not None:
            item.add_marker(pytest.mark.sampled(TRIED[level], of=f"{item.path.name}, {level}"))


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
