"""A tool makes a process, which would stay when its call is over."""

import os

from attacks.behind_walls import Outside


def attack() -> int:
    child = os.fork()
    if not child:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda code: code == 7)
