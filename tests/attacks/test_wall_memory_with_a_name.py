"""A tool writes to memory that other processes share under a name, for the next tool or for itself."""

import os
from pathlib import Path

from attacks.behind_walls import BEFORE, Outside


def attack(path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write("after")


def test_the_walls_stop_it(outside: Outside) -> None:
    import pytest

    shared = Path(f"/dev/shm/licet-{os.getpid()}-{id(outside):x}")
    if not os.access(shared.parent, os.W_OK):
        pytest.skip("this machine has no shared memory with names")
    shared.write_text(BEFORE)
    try:
        outside.shows(attack, lambda _: shared.read_text() != BEFORE, path=str(shared))
    finally:
        shared.unlink()
