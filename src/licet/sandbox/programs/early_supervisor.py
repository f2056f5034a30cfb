"""Starts a supervisor while this process still imports code and reads its policy.

The supervisor tests the walls on another core, and then waits for the first program. A command that will start a
program behind walls saves that time.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from licet.sandbox.programs.supervisor_client import Supervisor, supervisor_in_advance

AHEAD = f"{__name__}.ahead"  # where the command line keeps it in its context


@contextmanager
def supervisor_ahead() -> Iterator[Supervisor | None]:
    """A supervisor for the first program, whose results of testing the walls are used; None if there can be none."""
    _fill_streams()
    started = supervisor_in_advance()
    try:
        if started is not None:
            from licet.sandbox import probe

            probe.expect(started.tried)
        yield started
    finally:
        if started is not None:
            started.discard()


def _fill_streams() -> None:
    """Open an empty pipe in place of a closed stream: the next open file would get its number and go to the command."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            ends = reading, writing = os.pipe()
            os.dup2(writing if stream else reading, stream)
            for end in ends:
                if end != stream:
                    os.close(end)
