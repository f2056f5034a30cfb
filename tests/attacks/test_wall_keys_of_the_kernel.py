"""A tool leaves a key in a ring that all processes of the user share, or takes one out."""

from attacks.behind_walls import Outside, raw

USER_RING, UNLINK = -4, 9


def attack() -> str:
    key = raw("add_key", b"user", b"licet-test", b"here", 4, USER_RING)
    raw("keyctl", UNLINK, key, USER_RING)
    return "kept"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "kept", rare=True)
