"""A tool uses a file that the host has open and did not close for whom it starts."""

import os

from attacks.behind_walls import Outside


def attack(number: int) -> str:
    return os.pread(number, 100, 0).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    from licet.sandbox.workers import close_workers

    number = os.open(outside.secret, os.O_RDONLY)
    try:
        os.set_inheritable(number, True)
        close_workers()  # so that what workers come from is started with the file open
        outside.shows(attack, refused="Bad file descriptor", number=number)
    finally:
        os.close(number)
