"""A tool changes the mode, owner and times of its standard streams, which are the null device of everybody."""

import os
import stat
from collections.abc import Callable

from attacks.behind_walls import Outside, raw


def attack() -> list[str]:
    done = []
    for stream in (0, 1, 2):
        found = os.fstat(stream)
        mode = stat.S_IMODE(found.st_mode)
        ways: dict[str, Callable[[], object]] = {
            "fchmod": lambda at=stream, mode=mode: os.fchmod(at, mode),
            "fchmodat2": lambda at=stream, mode=mode: raw(452, at, b"", mode, 0x1000),
            "fchown": lambda at=stream, found=found: os.fchown(at, found.st_uid, found.st_gid),
            "futimens": lambda at=stream: os.utime(at),
            "fsetxattr": lambda at=stream: os.setxattr(at, "trusted.licet", b"x"),
            "by name": lambda at=stream, mode=mode: os.chmod(f"/proc/self/fd/{at}", mode),
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
