"""A tool makes a file that others keep to themselves readable for everybody."""

import os
import stat

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.chmod(target, 0o777)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: stat.S_IMODE(os.stat(outside.target).st_mode) == 0o777)
