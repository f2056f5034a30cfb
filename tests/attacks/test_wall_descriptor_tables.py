"""A tool changes how the processor finds memory (`modify_ldt`), for code that few have read."""

import ctypes

from attacks.behind_walls import Outside, raw


def attack() -> int:
    return raw("modify_ldt", 0, ctypes.create_string_buffer(64), 64)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda size: size is not None and size >= 0, rare=True, only_on="x86_64")
