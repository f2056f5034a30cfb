"""Verifies ledgers as a program of its own, which has no threads: `python parts_process.py WAYS LEDGER…`.

The ways are `alone`, `ended` with children that end at once, `refused` where there can be no more processes, and
`threaded` beside another thread. It prints a JSON list with an object for each ledger: by the way, what came of it, how
often it forked, how far it was said to be, and what it has left behind.
"""

import errno
import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from licet.assemble.ledger import public_key
from licet.backends.ledger.verify import verify_ledger

forks: list[None] = []
ending: list[None] = []
os.register_at_fork(before=lambda: forks.append(None), after_in_child=lambda: ending and os._exit(9))


def children() -> int:
    """Whether there is one that nobody has waited for."""
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return 1
    return 0


def verified(path: Path) -> dict[str, Any]:
    forks.clear()
    seen: list[int] = []
    before = len(os.listdir("/proc/self/fd"))
    outcome = verify_ledger(path, public_key(None, path), progress=seen.append)
    left = len(os.listdir("/proc/self/fd")) - before
    return {"outcome": repr(outcome), "forks": len(forks), "seen": seen, "left": [left, children()]}


def ended(path: Path) -> dict[str, Any]:
    ending.append(None)
    try:
        return verified(path)
    finally:
        ending.clear()


def refused(path: Path) -> dict[str, Any]:
    def fork() -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    real, os.fork = os.fork, fork  # a limit does not hold who may do everything
    try:
        return verified(path)
    finally:
        os.fork = real


def threaded(path: Path) -> dict[str, Any]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        return verified(path)
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    ways = {"alone": verified, "ended": ended, "refused": refused, "threaded": threaded}
    print(json.dumps([{way: ways[way](Path(name)) for way in sys.argv[1].split(",")} for name in sys.argv[2:]]))
