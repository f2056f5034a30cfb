"""The streams of the command of `licet run`, or of a shell line: it never gets the open files of who runs it.

A process with an open file can change its mode, owner and times, truncate it, and move or lock the offset that others
share. So files, pipes and sockets are copied through new pipes. A terminal is opened a second time, because programs
need a real one; behind walls with namespaces it is on a read-only mount (see `sandbox/programs/launcher.py`). Or the
program gets a terminal of its own, and what goes through it is copied.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from licet.sandbox.limits import AWAKE_SECONDS, CHUNK, COPY_SECONDS, LAST_OUTPUT
from licet.sandbox.programs.supervisor_client import Pipes
from licet.sandbox.streams import Unwritten, copy, write_all

if sys.platform != "win32":
    import fcntl
    import termios

NAMES = ("standard input", "standard output", "standard error")


class AttachedStreams:
    """Standard input, output and error of this process, for one program; `finish` must always be called.

    `streams` are other descriptors in place of 0, 1 and 2, which the caller may close after `finish`. With
    `own_terminal` no terminal among them is passed on: the program gets a new one of the same size, and what goes
    through it is copied. So it can neither change the terminal of its caller nor type into it.
    """

    def __init__(self, streams: Sequence[int] = (0, 1, 2), *, own_terminal: bool = False) -> None:
        self._streams, self._own_terminal = tuple(streams), own_terminal
        self._input: threading.Thread | None = None
        self._outputs: list[threading.Thread] = []
        self._settings: dict[int, list[Any]] = {}  # of terminals
        self.lost: str | None = None  # which output could not be written, and why
        self.control = -1  # of the supervisor, while the program runs
        self._waiting: list[int] = []  # signals that came before there was a program
        self._last: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    @property
    def said(self) -> str:
        """The last output of the program, and its last errors, without what went to a terminal."""
        return "\n".join(kept.decode(errors="replace") for kept in self._last.values())

    @property
    def has_own_terminal(self) -> bool:
        """Whether the program gets a terminal that was made for it."""
        return self._own_terminal and any(map(os.isatty, self._streams))

    def takes_signals(self, control: int) -> None:
        """The supervisor has its command, and passes on what is written to `control` from now on."""
        self.control = control
        for number in self._waiting:
            self.signal(number)
        self._stay_awake(asyncio.get_running_loop())

    def _stay_awake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the loop a few times a second: a signal that comes right before it sleeps does not wake it."""
        if self.control >= 0:
            loop.call_later(AWAKE_SECONDS, self._stay_awake, loop)

    def interrupt(self) -> bool:
        """Pass a Ctrl-C on to the program; False if none is running. Safe in a signal handler."""
        return self.signal(signal.SIGINT)

    def signal(self, number: int) -> bool:
        """Pass a signal on to the program; False if none is running. Safe in a signal handler."""
        if self.control < 0:
            return False
        try:
            os.write(self.control, bytes([number]))
        except OSError:
            return False
        return True

    def signal_soon(self, number: int) -> None:
        """Pass a signal on to the program, when it runs if it does not yet."""
        if not self.signal(number):
            self._waiting.append(number)

    def connect(self, pipes: Pipes) -> tuple[int, int, int]:
        """The streams for the program; closing `pipes` closes them and ends the copying.

        Output and errors that go to the same file share one pipe, so that their order is kept.
        """
        ends: list[int] = []
        made: dict[int, int] = {}  # by the number of a terminal: the program's own in its place
        output, errors = self._streams[1:]
        for number, stream in enumerate(self._streams):
            if self._own_terminal and os.isatty(stream):
                device = os.fstat(stream).st_rdev
                if device not in made:
                    made[device] = self._terminal_like(stream, pipes, reads=number == 0)
                ends.append(made[device])
            elif (terminal := _terminal(stream)) is not None:
                self._settings[stream] = termios.tcgetattr(stream)
                ends.append(pipes.keep(terminal))
            elif number == 2 and not os.isatty(output) and os.path.sameopenfile(output, errors):
                ends.append(ends[1])
            else:
                reading, writing = pipes.pipe()
                ends.append(writing if number else reading)
                self._copy(number, pipes.give(reading if number else writing))
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

    def _terminal_like(self, stream: int, pipes: Pipes, *, reads: bool) -> int:
        """A new terminal with the settings and the size of another one, and threads that copy between the two."""
        before = termios.tcgetattr(stream)
        ours, theirs = os.openpty()
        pipes.keep(theirs)
        try:
            termios.tcsetattr(theirs, termios.TCSANOW, before)
            _resize(stream, ours)
            shown, typed = os.dup(stream), os.dup(stream) if reads else -1
            typing = os.dup(ours) if reads else -1
        except BaseException:
            os.close(ours)
            raise
        self._settings[stream] = before
        # The new terminal does all that a terminal does with what is typed and written, so the other one does nothing.
        termios.tcsetattr(stream, termios.TCSANOW, _passing(before, reads=reads))
        self._begin(self._outputs, "licet-terminal", self._show, ours, shown)
        if reads:
            inputs: list[threading.Thread] = []
            self._begin(inputs, "licet-input", _type, typed, typing)
            self._input = inputs[0]
        return theirs

    def _begin(self, threads: list[threading.Thread], name: str, work: Callable[..., None], *files: int) -> None:
        """Start a thread that owns these files."""
        thread = threading.Thread(target=work, args=files, daemon=True, name=name)
        threads.append(thread)
        try:
            thread.start()
        except BaseException:
            threads.remove(thread)
            for file in files:
                os.close(file)
            raise

    def _copy(self, number: int, end: int) -> None:
        stream = self._streams[number]
        if number and _nobody_reads(stream):
            os.close(end)  # before the program starts, so that its first write fails
            return
        try:
            # A thread may be stuck in a write when the caller closes the stream, whose number is then another file's.
            own = os.dup(stream)
        except BaseException:
            os.close(end)
            raise
        if number:
            self._begin(self._outputs, "licet-output", partial(self._take, number), own, end)
        else:
            inputs: list[threading.Thread] = []
            self._begin(inputs, "licet-input", _feed, own, end)
            self._input = inputs[0]

    def _keep(self, number: int, data: bytes) -> None:
        self._last[number] += data
        del self._last[number][:-LAST_OUTPUT]

    def _take(self, number: int, sink: int, source: int) -> None:
        """Copy from the program to an output; a failed write ends the program by SIGPIPE."""
        try:
            copy(source, sink, partial(self._keep, number))
        except OSError as wrong:
            if wrong.errno != errno.EPIPE:
                self.lost = f"{NAMES[number]} could not be written: {wrong.strerror}"
        finally:
            os.close(source)
            os.close(sink)

    def _show(self, source: int, sink: int) -> None:
        """Copy from the program's own terminal to that of its caller, whose size it follows, until nobody has it."""
        poll = select.poll()
        poll.register(source, select.POLLIN)
        try:
            while True:
                _resize(sink, source)
                if not poll.poll(AWAKE_SECONDS * 1000):
                    continue
                try:
                    data = os.read(source, CHUNK)
                except OSError:  # EIO: every process with this terminal has ended
                    return
                write_all(sink, data)
        except OSError as wrong:
            self.lost = f"the terminal could not be written: {wrong.strerror}"
        finally:
            os.close(source)
            os.close(sink)


def _passing(settings: list[Any], *, reads: bool) -> list[Any]:
    """The settings of a terminal that changes nothing that is written, nor typed if somebody `reads` it."""
    inputs, outputs, control, local, *rest = settings
    if reads:
        inputs &= ~(termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON)
        local &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    *speeds, characters = rest
    characters = [*characters]
    if reads:
        characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    return [inputs, outputs & ~termios.OPOST, control, local, *speeds, characters]


def _resize(like: int, terminal: int) -> None:
    """Give a terminal the size of another one, which tells its programs if it is a new size."""
    with suppress(OSError, termios.error):
        size = fcntl.ioctl(like, termios.TIOCGWINSZ, bytes(8))
        if fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)) != size:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _type(source: int, sink: int) -> None:
    """Copy what is typed to the program's own terminal, until nobody has that."""
    try:
        copy(source, sink)
    except OSError:  # the caller's terminal, or the program, is gone
        pass
    finally:
        os.close(source)
        os.close(sink)


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


def _feed(source: int, sink: int) -> None:
    """Copy an input to the program; in a file, the offset then is behind what the program read."""
    try:
        unwritten = 0
        try:
            copy(source, sink)
        except Unwritten as wrong:
            unwritten = wrong.size
        except OSError:  # an unreadable input is an empty one for the program
            return
        if stat.S_ISREG(os.fstat(source).st_mode) and (left := unwritten + _inside(sink)):
            with suppress(OSError):
                os.lseek(source, -left, os.SEEK_CUR)
    finally:
        os.close(sink)
        os.close(source)


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
