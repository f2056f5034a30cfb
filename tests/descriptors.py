"""What this process has open, but for what gates of earlier tests may close whenever they like."""

import contextlib
import os
import tempfile

_SCRATCH = os.path.join(tempfile.gettempdir(), "licet-")


def open_files() -> set[tuple[str, str]]:
    """Each open descriptor and where it leads.

    Files of SQLite, which close with whatever held them, are left out, and scratch that a thread just looks at.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            target = os.readlink(f"/proc/self/fd/{number}")
            if ".sqlite" not in target and not target.startswith(_SCRATCH):
                found.add((number, target))
    return found
