"""A tool makes the kernel wait in the middle of its work for a page of memory (`userfaultfd`)."""

from attacks.behind_walls import Outside, raw

USER_ONLY = 1


def attack() -> int:
    return raw("userfaultfd", USER_ONLY)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, rare=True)
