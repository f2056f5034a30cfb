"""A tool whose module fills its scratch directory by itself, some time after it was loaded behind walls."""

import os
import threading
import time

from licet import tool

_called = threading.Event()


def _fill() -> None:
    if _called.wait(1.5):  # whoever is called does nothing; the others wait for a call
        return
    for number in range(60):
        with open(f"{os.environ['TMPDIR']}/{number}", "wb") as file:
            file.write(bytes(1 << 20))
    time.sleep(600)


if os.environ.get("TMPDIR", "") == os.environ.get("HOME", "none"):  # only in a process behind walls
    threading.Thread(target=_fill, daemon=True).start()


@tool(needs=[], effect="read_only")
def busy() -> None:
    """Do nothing; the module does enough."""
    _called.set()
