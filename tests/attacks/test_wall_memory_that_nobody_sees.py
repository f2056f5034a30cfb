"""A tool keeps something in memory that not even root can look at (`memfd_secret`)."""

from attacks.behind_walls import Outside, raw


def attack() -> int:
    return raw("memfd_secret", 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, rare=True)
