"""A tool has its memory written to a file when it crashes, for whoever comes by."""

import resource

from attacks.behind_walls import Outside


def attack() -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda size: size, refused="ValueError: not allowed to raise", rare=True)
