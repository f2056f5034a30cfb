"""What attacks on walls are tried on: see `behind_walls`."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from attacks.behind_walls import NO_WALLS, Outside
from sandbox.levels import WALLED, needs_walls


def _sampled(level: str, most: int) -> Any:
    return pytest.param(level, marks=pytest.mark.sampled(most, of=f"attacks, {level}"))


@pytest.fixture(params=(_sampled(NO_WALLS, 35), *(_sampled(level, 65) for level in WALLED)))
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
