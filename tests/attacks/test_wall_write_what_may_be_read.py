"""A tool writes to a file that it may only read, by opening again what it has open."""

import os
from pathlib import Path

from attacks.behind_walls import Outside


def attack(path: str) -> None:
    reading = os.open(path, os.O_RDONLY)
    os.write(os.open(f"/proc/self/fd/{reading}", os.O_RDWR), b"after")


def test_the_walls_stop_it(outside: Outside) -> None:
    path = Path(outside.place, "readable")
    path.write_text("before")
    outside.shows(attack, lambda _: path.read_text() != "before", needs=[f"fs:read:{path}"], path=str(path))
