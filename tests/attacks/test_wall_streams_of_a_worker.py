"""A tool changes the mode, owner and times of its standard streams, which are the null device of everybody."""

import os
import stat
from collections.abc import Callable
from functools import partial

from attacks.behind_walls import Outside, raw


def attack() -> list[str]:
    done = []
    for stream in (0, 1, 2):
        found = os.fstat(stream)
        mode = stat.S_IMODE(found.st_mode)
        ways: dict[str, Callable[[], object]] = {
            "fchmod": partial(os.fchmod, stream, mode),
            "fchmodat2": partial(raw, 452, stream, b"", mode, 0x1000),
            "fchown": partial(os.fchown, stream, found.st_uid, found.st_gid),
            "futimens": partial(os.utime, stream),
            "fsetxattr": partial(os.setxattr, stream, "trusted.licet", b"x"),
            "by name": partial(os.chmod, f"/proc/self/fd/{stream}", mode),
        }
        for name, way in ways.items():
            try:
                way()
            except OSError:
                continue
            done.append(f"{name} of {stream}")
    return done


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done, refused=None, root=True)
