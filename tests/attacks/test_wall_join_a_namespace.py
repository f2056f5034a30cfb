"""A tool of root joins the namespaces of another process, by a file that stands for it."""

from attacks.behind_walls import Outside, raw

NETWORK = 0x40000000


def attack(pid: int) -> int:
    return raw("setns", raw("pidfd_open", pid, 0), NETWORK)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, root=True, rare=True)
