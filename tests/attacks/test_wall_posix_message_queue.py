"""A tool opens a queue that has a name (POSIX), which no wall for files sees."""

import os

from attacks.behind_walls import Outside, raw


def attack() -> str:
    name = f"licet-{os.getpid()}"
    raw("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
    raw("mq_unlink", name)
    return "opened"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "opened", rare=True)
