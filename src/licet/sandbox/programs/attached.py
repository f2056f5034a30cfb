"""The streams of a program that is run in the place of a command: it never holds the operator's own files.

Whoever holds an open file can change its mode, owner and times, cut it, and move or lock what others share with it. So
files, pipes and sockets are copied through pipes that belong to this one program. A terminal is opened a second time:
programs need a real one, and behind walls with namespaces it is on a read-only mount (see `sandbox.launcher`).
"""

import errno
import os
import select
import stat
import struct
import sys
import threading
from contextlib import suppress
from typing import Any

from licet.sandbox.programs.supervisor_client import Pipes

if sys.platform != "win32":
    import fcntl
    import termios

_CHUNK = 1 << 16
_PATIENCE = 2.0  # seconds; for a thread that has nothing to wait for any more
NAMES = ("standard input", "standard output", "standard error")


class AttachedStreams:
    """Standard input, output and error of this process, for one program; `finish` is to be called in any case."""

    def __init__(self) -> None:
        self._input: threading.Thread | None = None
        self._outputs: list[threading.Thread] = []
        self._settings: dict[int, list[Any]] = {}  # of terminals
        self.lost: str | None = None  # which output could not be written, and why

    def connect(self, pipes: Pipes) -> tuple[int, int, int]:
        """What the program gets; all of it is closed with `pipes`, and then what is copied here ends too.

        Output and errors that go to the same place go through the same pipe, or their order would be lost.
        """
        ends: list[int] = []
        for stream in (0, 1, 2):
            if (terminal := _terminal(stream)) is not None:
                self._settings[stream] = termios.tcgetattr(stream)
                ends.append(pipes.keep(terminal))
            elif stream == 2 and not os.isatty(1) and os.path.sameopenfile(1, 2):
                ends.append(ends[1])
            else:
                reading, writing = pipes.pipe()
                ends.append(writing if stream else reading)
                self._copy(stream, pipes.give(reading if stream else writing))
        return ends[0], ends[1], ends[2]

    def finish(self, *, wait: bool) -> None:
        """Return when everything that the program wrote has been passed on, and leave terminals as they were.

        Without `wait`, what nobody takes within a moment is dropped: the program was ended, and its time is up.
        """
        try:
            for thread in self._outputs:
                thread.join(None if wait else _PATIENCE)
            if self._input is not None:
                self._input.join(_PATIENCE)
        finally:
            for stream, before in self._settings.items():
                _restore(stream, before)

    def _copy(self, stream: int, end: int) -> None:
        if stream:
            if _nobody_reads(stream):
                os.close(end)  # before the program starts: it is to notice with its first write
                return
            thread = threading.Thread(target=self._take, args=(stream, end), daemon=True, name="licet-output")
            self._outputs.append(thread)
        else:
            thread = self._input = threading.Thread(target=_feed, args=(end,), daemon=True, name="licet-input")
        try:
            thread.start()
        except BaseException:
            os.close(end)
            raise

    def _take(self, stream: int, source: int) -> None:
        """Copy from the program to an output of this process; what cannot be written ends the program by SIGPIPE."""
        try:
            _copied(source, stream)
        except OSError as wrong:
            if wrong.errno != errno.EPIPE:
                self.lost = f"{NAMES[stream]} could not be written: {wrong.strerror}"
        finally:
            os.close(source)


def _terminal(stream: int) -> int | None:
    """The terminal of a stream, opened again, so that nothing is shared with whoever else uses it; None if it is none.

    One that may not be opened again belongs to another user, as after `su`: it is handed on as it is, since its mode
    and times are for its owner to change.
    """
    if not os.isatty(stream):
        return None
    access = fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE
    with suppress(OSError):
        terminal = os.open(os.ttyname(stream), access | os.O_NOCTTY | os.O_CLOEXEC)
        if os.fstat(terminal).st_rdev == os.fstat(stream).st_rdev:
            return terminal
        os.close(terminal)
    if os.fstat(stream).st_uid == os.getuid():  # its name is not to be found here, and whoever holds it could change it
        return None
    return os.dup(stream)


def _nobody_reads(stream: int) -> bool:
    poll = select.poll()
    poll.register(stream, 0)
    return bool(poll.poll(0))


def _feed(sink: int) -> None:
    """Copy the input of this process to the program; of a file, what the program has not read stays unread."""
    try:
        unwritten = 0
        try:
            _copied(0, sink)
        except _Unwritten as wrong:
            unwritten = wrong.size
        except OSError:  # it cannot be read, which for the program is its end
            return
        if stat.S_ISREG(os.fstat(0).st_mode) and (left := unwritten + _inside(sink)):
            with suppress(OSError):
                os.lseek(0, -left, os.SEEK_CUR)
    finally:
        os.close(sink)


def _inside(pipe: int) -> int:
    """How many bytes are in a pipe that nobody has read."""
    (size,) = struct.unpack("=i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(size)


class _Unwritten(OSError):
    """Some bytes could not be written; `size` says how many had been read and are left."""

    def __init__(self, wrong: OSError, size: int) -> None:
        super().__init__(wrong.errno, wrong.strerror)
        self.size = size


def _copied(source: int, sink: int) -> None:
    """Copy until the end of the source, or until nobody reads the sink; `OSError` if either fails."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(sink, 0)  # that nobody reads any more is told without being asked
    while True:
        if sink in dict(poll.poll()):
            return
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:  # somebody else was faster
            continue
        if not data:
            return
        _write(sink, data)


def _write(sink: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(sink, left) :]
        except BlockingIOError:  # it is full, and somebody has told it not to block
            poll = select.poll()
            poll.register(sink, select.POLLOUT)
            poll.poll()
        except OSError as wrong:
            raise _Unwritten(wrong, len(left)) from None


def _restore(stream: int, before: list[Any]) -> None:
    """Set a terminal to what it was, unless another job has it now."""
    with suppress(OSError, termios.error):
        if termios.tcgetattr(stream) == before:
            return
        try:
            ours = os.tcgetpgrp(stream) == os.getpgrp()
        except OSError:  # it is not the one that this process was started from, and so has no jobs
            ours = True
        if ours:
            termios.tcsetattr(stream, termios.TCSANOW, before)
