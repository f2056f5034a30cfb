"""What this process has open, but for what gates of earlier tests may open and close whenever they like."""

import contextlib
import os
import time


def open_files() -> set[tuple[str, str]]:
    """Each open descriptor and where it leads; files of SQLite, which close with whatever held them, left out."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            target = os.readlink(f"/proc/self/fd/{number}")
            if ".sqlite" not in target:
                found.add((number, target))
    return found


def left_open(before: set[tuple[str, str]], seconds: float = 10.0) -> set[tuple[str, str]]:
    """What was opened since then and stays open; what a thread of an earlier gate looks at does not stay."""
    end = time.monotonic() + seconds
    while (left := open_files() - before) and time.monotonic() < end:
        time.sleep(0.02)
    return left
