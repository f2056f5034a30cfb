"""A tool leaves a program in a directory that it may write, and lets whoever starts it become its owner."""

import os
import stat

from attacks.behind_walls import Outside


def attack(granted: str) -> None:
    path = f"{granted}/program"
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(file, b"#!/bin/sh\n")
    os.fchmod(file, 0o4755)


def test_the_walls_stop_it(outside: Outside) -> None:
    def bit(_: object) -> bool:
        path = f"{outside.granted}/program"
        return os.path.exists(path) and bool(os.stat(path).st_mode & stat.S_ISUID)

    outside.shows(attack, bit)
