"""A tool of root makes a file system that is mounted nowhere, and works in it (`fsopen`)."""

from attacks.behind_walls import Outside, raw

CREATE = 6


def attack() -> int:
    made = raw("fsopen", b"tmpfs", 0)
    raw("fsconfig", made, CREATE, None, None, 0)
    return raw("fsmount", made, 0, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, root=True, rare=True)
