"""A tool watches what happens to files that it cannot open (`inotify`)."""

import ctypes
import os

from attacks.behind_walls import Outside, raw


def attack(target: str) -> str:
    watch = raw("inotify_init1", os.O_NONBLOCK)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.inotify_add_watch(watch, os.fsencode(target), 0x20) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    return "watching"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "watching")
