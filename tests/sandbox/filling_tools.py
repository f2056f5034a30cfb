"""A tool whose module fills its scratch directory by itself, without a call, when a signal says so."""

import os
import signal
from typing import Any

from licet import tool

LOADED = "loaded"  # a file that is there when the module can take the signal


def _fill(*_: Any) -> None:
    for number in range(60):
        with open(f"{os.environ['TMPDIR']}/{number}", "wb") as file:
            file.write(bytes(1 << 20))


if os.environ.get("TMPDIR", "") == os.environ.get("HOME", "none"):  # only in a process behind walls
    signal.signal(signal.SIGUSR1, _fill)
    with open(f"{os.environ['TMPDIR']}/{LOADED}", "wb"):
        pass


@tool(needs=[], effect="read_only")
def busy() -> None:
    """Do nothing; the module does enough."""
