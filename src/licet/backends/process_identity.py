"""Which process something was left by: a name that no later process gets, and whether its owner is gone.

A number alone would not do, since the system gives it to others. Nothing that counts hangs on the answer.
"""

import os
from functools import lru_cache

_UNKNOWN = "-"


def this_process() -> str:
    """The name of this process: the boot, the numbering, its number in that, and when it was started."""
    return _named(os.getpid())


def is_gone(name: str) -> bool:
    """Whether a process has surely ended; False for one that cannot be told from here."""
    parts = name.split("/")
    if len(parts) != 4:
        return False
    (boot, numbering, number, started), here = parts, _boot()
    if boot != here:
        return _UNKNOWN not in (boot, here)
    if numbering != _numbering():  # a container beside this one, or the host around it
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    now = _started(int(number))
    return _UNKNOWN not in (started, now) and started != now


@lru_cache(maxsize=4)  # by number, so that a forked child has a name of its own
def _named(number: int) -> str:
    return f"{_boot()}/{_numbering()}/{number}/{_started(number)}"


@lru_cache(maxsize=1)
def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip() or _UNKNOWN


def _numbering() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return _UNKNOWN


def _started(number: int) -> str:
    fields = _read(f"/proc/{number}/stat").rpartition(")")[2].split()  # the name before it may hold anything
    return fields[19] if len(fields) > 19 else _UNKNOWN


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
