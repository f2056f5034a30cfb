"""A tool of root mounts something over a directory."""

from attacks.behind_walls import Outside, raw


def attack(granted: str) -> int:
    done = raw("mount", b"none", granted, b"tmpfs", 0, None)
    raw("umount2", granted, 0)
    return done


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, root=True, rare=True)
