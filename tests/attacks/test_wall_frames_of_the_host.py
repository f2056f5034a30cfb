"""A tool walks up the stacks of all threads, to those who called it and to what they hold."""

import sys
from typing import Any

from attacks.behind_walls import Outside
from licet import SyncContext


def attack(ctx: SyncContext) -> list[str]:
    found: list[str] = []
    for top in sys._current_frames().values():
        frame: Any = top
        while frame is not None:
            found += [type(value).__name__ for value in frame.f_locals.values()]
            frame = frame.f_back
    return [name for name in found if name in ("Gate", "Session", "Backends", "BoundContext", "Holding")]


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda found: found, refused=None)
