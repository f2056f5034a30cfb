"""A tool asks the kernel to behave as an older one did, without random addresses for what it starts."""

from attacks.behind_walls import Outside, raw

NOT_RANDOM = 0x40000


def attack() -> int:
    raw("personality", NOT_RANDOM)
    return raw("personality", 0xFFFFFFFF)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda now: now and now & NOT_RANDOM, rare=True)
