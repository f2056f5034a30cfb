"""A tool has the loader of the system start a program, so that the program itself is only read."""

import glob
import os

from attacks.behind_walls import Outside

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", *glob.glob("/lib/ld-musl-*.so.1"))


def attack(target: str) -> None:
    loader = next(path for path in LOADERS if os.path.exists(path))
    os.execv(loader, [loader, "/bin/sh", "-c", f"echo after > '{target}'; echo; echo '{{\"value\": 1}}'"])


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
