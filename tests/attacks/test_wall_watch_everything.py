"""A tool of root watches every file of the machine, and is handed each open (`fanotify`)."""

from attacks.behind_walls import Outside, raw


def attack(place: str) -> str:
    group = raw("fanotify_init", 0, 0)
    raw("fanotify_mark", group, 1, 0x20, -100, place)
    return "watching"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "watching", root=True, rare=True)
