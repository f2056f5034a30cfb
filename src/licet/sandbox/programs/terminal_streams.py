"""The streams of the command of `licet run`: the command never gets the operator's own open files.

A process with an open file can change its mode, owner and times, truncate it, and move or lock the offset that others
share. So files, pipes and sockets are copied through new pipes. A terminal is opened a second time, because programs
need a real one; behind walls with namespaces it is on a read-only mount (see `sandbox/programs/launcher.py`).
"""

import asyncio
import errno
import os
import select
import signal
import stat
import struct
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from licet.sandbox.limits import AWAKE_SECONDS, COPY_SECONDS, LAST_OUTPUT
from licet.sandbox.programs.supervisor_client import Pipes
from licet.sandbox.streams import Unwritten, copy

if sys.platform != "win32":
    import fcntl
    import termios

NAMES = ("standard input", "standard output", "standard error")


class AttachedStreams:
    """Standard input, output and error of this process, for one program; `finish` must always be called."""

    def __init__(self) -> None:
        self._input: threading.Thread | None = None
        self._outputs: list[threading.Thread] = []
        self._settings: dict[int, list[Any]] = {}  # of terminals
        self.lost: str | None = None  # which output could not be written, and why
        self.control = -1  # of the supervisor, while the program runs
        self._last: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    @property
    def said(self) -> str:
        """The last output of the program, and its last errors, without what went to a terminal."""
        return "\n".join(kept.decode(errors="replace") for kept in self._last.values())

    def takes_signals(self, control: int) -> None:
        """The supervisor has its command, and passes on what is written to `control` from now on."""
        self.control = control
        self._stay_awake(asyncio.get_running_loop())

    def _stay_awake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the loop a few times a second: a signal that comes right before it sleeps does not wake it."""
        if self.control >= 0:
            loop.call_later(AWAKE_SECONDS, self._stay_awake, loop)

    def interrupt(self) -> bool:
        """Pass a Ctrl-C on to the program; False if none is running. Safe in a signal handler."""
        if self.control < 0:
            return False
        try:
            os.write(self.control, bytes([signal.SIGINT]))
        except OSError:
            return False
        return True

    def connect(self, pipes: Pipes) -> tuple[int, int, int]:
        """The streams for the program; closing `pipes` closes them and ends the copying.

        Output and errors that go to the same file share one pipe, so that their order is kept.
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
        """Wait until all output of the program was copied, and restore the terminals.

        Without `wait`, output that cannot be written within two seconds is dropped: the program was killed.
        """
        try:
            for thread in self._outputs:
                thread.join(None if wait else COPY_SECONDS)
            if self._input is not None:
                self._input.join(COPY_SECONDS)
        finally:
            for stream, before in self._settings.items():
                _restore(stream, before)

    def _copy(self, stream: int, end: int) -> None:
        if stream:
            if _nobody_reads(stream):
                os.close(end)  # before the program starts, so that its first write fails
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

    def _keep(self, stream: int, data: bytes) -> None:
        self._last[stream] += data
        del self._last[stream][:-LAST_OUTPUT]

    def _take(self, stream: int, source: int) -> None:
        """Copy from the program to an output of this process; a failed write ends the program by SIGPIPE."""
        try:
            copy(source, stream, partial(self._keep, stream))
        except OSError as wrong:
            if wrong.errno != errno.EPIPE:
                self.lost = f"{NAMES[stream]} could not be written: {wrong.strerror}"
        finally:
            os.close(source)


def _terminal(stream: int) -> int | None:
    """The terminal of a stream, opened a second time so that nothing is shared; None if it is not a terminal.

    A terminal that may not be opened belongs to another user, as after `su`. It is passed on as it is, because only its
    owner can change its mode and times.
    """
    if not os.isatty(stream):
        return None
    access = fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE
    with suppress(OSError):
        terminal = os.open(os.ttyname(stream), access | os.O_NOCTTY | os.O_CLOEXEC)
        if os.fstat(terminal).st_rdev == os.fstat(stream).st_rdev:
            return terminal
        os.close(terminal)
    if os.fstat(stream).st_uid == os.getuid():  # its owner could change its mode and times, and it has no name here
        return None
    return os.dup(stream)


def _nobody_reads(stream: int) -> bool:
    poll = select.poll()
    poll.register(stream, 0)
    return bool(poll.poll(0))


def _feed(sink: int) -> None:
    """Copy the input of this process to the program; in a file, the offset then is behind what the program read."""
    try:
        unwritten = 0
        try:
            copy(0, sink)
        except Unwritten as wrong:
            unwritten = wrong.size
        except OSError:  # an unreadable input is an empty one for the program
            return
        if stat.S_ISREG(os.fstat(0).st_mode) and (left := unwritten + _inside(sink)):
            with suppress(OSError):
                os.lseek(0, -left, os.SEEK_CUR)
    finally:
        os.close(sink)


def _inside(pipe: int) -> int:
    """The number of unread bytes in a pipe."""
    (size,) = struct.unpack("=i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(size)


def _restore(stream: int, before: list[Any]) -> None:
    """Restore the settings of a terminal, unless another job has it now."""
    with suppress(OSError, termios.error):
        if termios.tcgetattr(stream) == before:
            return
        try:
            ours = os.tcgetpgrp(stream) == os.getpgrp()
        except OSError:  # not the controlling terminal: it has no jobs
            ours = True
        if ours:
            termios.tcsetattr(stream, termios.TCSANOW, before)
