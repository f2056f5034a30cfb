"""A tool opens a device: here the one that makes terminals."""

import os

from attacks.behind_walls import Outside


def attack() -> int:
    return os.major(os.fstat(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)).st_rdev)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda device: device, rare=True)
