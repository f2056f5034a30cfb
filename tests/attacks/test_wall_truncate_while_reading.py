"""A tool cuts a file that it may read to nothing by opening it for reading (`O_TRUNC`)."""

import os
from pathlib import Path

from attacks.behind_walls import Outside


def attack(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


def test_the_walls_stop_it(outside: Outside) -> None:
    path = Path(outside.place, "readable")
    path.write_text("before")
    outside.shows(attack, lambda _: path.read_text() != "before", needs=[f"fs:read:{path}"], path=str(path))
