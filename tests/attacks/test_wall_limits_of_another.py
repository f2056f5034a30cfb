"""A tool takes open files away from another process, which then fails."""

import resource

from attacks.behind_walls import Outside


def attack(pid: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (7, hard))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: resource.prlimit(outside.pid, resource.RLIMIT_NOFILE)[0] == 7)
