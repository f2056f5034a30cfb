"""A tool exchanges a file of its own with another (`RENAME_EXCHANGE`): neither is removed, neither is made."""

from attacks.behind_walls import Outside, raw, scratch


def attack(target: str) -> None:
    with open(scratch("mine"), "w", encoding="utf-8") as file:
        file.write("after")
    raw("renameat2", -100, scratch("mine"), -100, target, 2)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed, refused="PermissionError|cross-device link")
