"""A tool of root exchanges the root of its mounts (`pivot_root`), in mounts of its own."""

from attacks.behind_walls import Outside, raw

NEW_MOUNTS, PRIVATE, BIND, RECURSIVE = 0x20000, 1 << 18, 4096, 16384


def attack(granted: str) -> int:
    raw("unshare", NEW_MOUNTS)
    raw("mount", None, b"/", None, PRIVATE | RECURSIVE, None)
    raw("mount", granted, granted, None, BIND, None)
    return raw("pivot_root", granted, granted)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, root=True, rare=True)
