"""What `licet run` takes an interpreter of its own for, started before all that it takes to read the command line.

It loads beside us: it tries out the walls, and then waits for the program that it is to supervise.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from licet import sandbox
from licet.backends.supervisors import Supervisor, start_early

_begun: list[Supervisor | None] = []


def begin() -> None:
    """Start it; whoever is next to enter `supervisor` has it."""
    _fill_streams()
    _begun.append(start_early(os.path.dirname(os.path.abspath(sandbox.__file__))))


@contextmanager
def supervisor() -> Iterator[Supervisor | None]:
    """The one that was started; None where there can be none, which the first program then hears."""
    if not _begun:
        begin()
    started = _begun.pop()
    try:
        yield started
    finally:
        if started is not None:
            started.discard()


def _fill_streams() -> None:
    """Put an empty pipe where a stream is closed: what is opened next would have its number, and be the command's."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            ends = reading, writing = os.pipe()
            os.dup2(writing if stream else reading, stream)
            for end in ends:
                if end != stream:
                    os.close(end)
