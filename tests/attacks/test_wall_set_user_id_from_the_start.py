"""A tool makes a file with the bit already set, and changes no mode at all."""

import os
import stat

from attacks.behind_walls import Outside


def attack(granted: str) -> None:
    os.umask(0)
    os.close(os.open(f"{granted}/program", os.O_CREAT | os.O_WRONLY, 0o4755))


def test_the_walls_stop_it(outside: Outside) -> None:
    def bit(_: object) -> bool:
        path = f"{outside.granted}/program"
        return os.path.exists(path) and bool(os.stat(path).st_mode & stat.S_ISUID)

    outside.shows(attack, bit)
