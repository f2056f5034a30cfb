"""A tool sets bits of a number that the kernel does not look at, and a filter might."""

from attacks.behind_walls import Outside, raw

SOCKET = 41


def attack() -> int:
    return raw((1 << 32) + SOCKET, 2, 1, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, rare=True, only_on="x86_64")
