"""Tools whose module acts by itself as soon as it is loaded, in a process of its own: call or no call."""

import contextlib
import os
import threading
import time

from licet import SyncContext, tool


def _write(folder: str) -> None:
    with open(f"{folder}/{os.getpid()}-{time.monotonic_ns()}", "w", encoding="utf-8"):
        pass


def _go_on(folder: str) -> None:
    while True:
        _write(folder)
        time.sleep(0.01)


# Only in a process behind walls, and only where it may write: the directory of the gate is where `isolated` begins.
if os.environ.get("TMPDIR", "") == os.environ.get("HOME", "none"):
    with contextlib.suppress(OSError):
        _write("data")
        threading.Thread(target=_go_on, args=("data",), daemon=True).start()


@tool(needs=["fs:write:${workdir}/data"], effect="write_limited")
def save(ctx: SyncContext) -> int:
    """Say in which process this is."""
    return os.getpid()


@tool(needs=["fs:write:${workdir}/data"], effect="write_limited", reuse=True)
def save_on(ctx: SyncContext) -> int:
    """Say in which process this is, in one that serves many calls."""
    return os.getpid()
