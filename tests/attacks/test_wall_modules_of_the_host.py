"""A tool takes what it wants out of the modules that the host has loaded."""

import sys

from attacks.behind_walls import Outside
from licet import SyncContext


def attack(ctx: SyncContext) -> list[str]:
    wanted = ("licet.assemble.running", "licet.guard.gate", "sandbox.levels", "pytest")
    return [name for name in wanted if name in sys.modules]


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda found: found, refused=None)
