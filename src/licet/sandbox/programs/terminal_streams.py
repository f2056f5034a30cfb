"""The streams of the command of `licet run`, or of a shell line: it never gets the open files of who runs it.

A process with an open file can change its mode, owner and times, truncate it, and move or lock the offset that others
share. So files, pipes and sockets are copied through new pipes. For a terminal the program gets one of its own, and
what goes through it is copied: see `own_terminal`. Or the terminal is opened a second time, because programs need a
real one; behind walls with namespaces it is on a read-only mount (see `sandbox/programs/launcher.py`).
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from licet.guard.execution import OwnedTerminal
from licet.sandbox.kernel.terminal_settings import packed
from licet.sandbox.limits import AWAKE_SECONDS, COPY_SECONDS, LAST_OUTPUT
from licet.sandbox.programs.own_terminal import OwnTerminal, has_jobs
from licet.sandbox.programs.supervisor_client import Pipes
from licet.sandbox.streams import Unwritten, copy

if sys.platform != "win32":
    import fcntl
    import termios

NAMES = ("standard input", "standard output", "standard error")


class AttachedStreams:
    """Standard input, output and error of this process, for one program; `finish` must always be called.

    `streams` are other descriptors in place of 0, 1 and 2, which the caller may close after `finish`. With
    `own_terminal` the program gets a new terminal in place of one among them, and what goes through it is copied. So it
    can neither change the terminal of its caller nor type into it. `in_pipelines`: where input is a terminal and output
    is not, as in `make | less`, input stays the terminal that it is, since others may read from it.
    """

    def __init__(
        self, streams: Sequence[int] = (0, 1, 2), *, own_terminal: bool = False, in_pipelines: bool = False
    ) -> None:
        self._streams, self._wants_own = tuple(streams), own_terminal
        is_terminal = [os.isatty(stream) for stream in self._streams]
        self._shares_input = in_pipelines and is_terminal[0] and not is_terminal[1]
        self._own: dict[int, OwnTerminal] = {}  # by the number of the terminal that it stands for
        self.unseen = ""  # why the program got the terminal itself, so that what it says is not seen
        self.interrupted: Callable[[], object] = lambda: None  # a Ctrl-C was typed at a terminal of its own
        self.suspend: Callable[[], object] | None = None  # stops this process like a job, with its program
        self._input: threading.Thread | None = None
        self._outputs: list[threading.Thread] = []
        self._settings: dict[int, list[Any]] = {}  # of terminals
        self._lost: str | None = None
        self.control = -1  # of the supervisor, while the program runs
        self._waiting: list[int] = []  # signals that came before there was a program
        self._last: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    @property
    def lost(self) -> str | None:
        """Which output could not be written, and why."""
        return self._lost or next((own.lost for own in self._own.values() if own.lost), None)

    @property
    def said(self) -> str:
        """The last output of the program, and its last errors, without what went to a terminal that is not its own."""
        return "\n".join(kept.decode(errors="replace") for kept in self._last.values())

    def own_terminal(self) -> OwnedTerminal:
        """Make the terminals for the program; whether one controls it, and whether it has what is typed at once."""
        if self._wants_own and not self._own and not self.unseen:
            try:
                self._make_terminals()
            except (OSError, termios.error) as error:
                self._drop_terminals()
                self.unseen = f"no terminal could be made for the program: {error}"
        if not self._own or self._shares_input:
            return ""
        if not has_jobs():
            return "alone"
        return "foreground" if next(iter(self._own.values())).in_foreground else "background"

    def _make_terminals(self) -> None:
        input_number = _device(self._streams[0])
        for number, stream in enumerate(self._streams):
            device = _device(stream)
            if device is None or device in self._own or (number == 0 and self._shares_input):
                continue
            screen = os.dup(next((one for one in self._streams[1:] if _device(one) == device), stream))
            keyboard = None
            try:
                if not self._shares_input and input_number in (None, device):
                    keyboard = _keyboard(stream)
                self._own[device] = OwnTerminal(screen, keyboard, asked_for=input_number is None)
            except BaseException:
                for file in (screen, keyboard):
                    if file is not None:
                        os.close(file)
                raise

    def _drop_terminals(self) -> None:
        for own in self._own.values():
            own.finish(wait=False)
        self._own.clear()

    @property
    def lent(self) -> tuple[int, bytes] | None:
        """The terminal that is left passing bytes if this process is killed, and its settings as text."""
        terminals = [own.lent for own in self._own.values() if own.lent is not None]
        return (terminals[0][0], packed(terminals[0][1])) if terminals else None

    def resized(self) -> None:
        """The terminal of the person has a new size."""
        for own in self._own.values():
            own.resize()

    def show(self, text: bytes) -> None:
        """Write something of licet's beside what the program writes."""
        for own in self._own.values():
            own.show(text)
            return
        with suppress(OSError):
            os.write(self._streams[2], text)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Leave the terminal to a question of licet meanwhile."""
        with ExitStack() as stack:
            for own in self._own.values():
                stack.enter_context(own.held())
            yield

    def stopped(self, stop: Callable[[], object]) -> None:
        """Stop like a job, by a function that returns when this process goes on, and the program with it."""
        self.signal(signal.SIGTSTP)
        with ExitStack() as stack:
            for own in self._own.values():
                stack.enter_context(own.left_alone())
            stop()
        for own in self._own.values():
            own.continued()
        if not self._own:
            self.signal(signal.SIGCONT)

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

    def connect(self, pipes: Pipes, *, has_jobs: bool = False) -> tuple[int, int, int]:
        """The streams for the program; closing `pipes` closes them and ends the copying.

        `has_jobs`: somebody in its session lets it go on when it has stopped.

        Output and errors that go to the same file share one pipe, so that their order is kept.
        """
        ends: list[int] = []
        for own in self._own.values():
            pipes.keep(own.theirs)
            if not has_jobs and os.isatty(self._streams[1]):
                own.want()
            own.begin(
                partial(self._keep, 1),
                self.signal,
                suspend=self.suspend,
                interrupted=lambda: self.interrupted(),
            )
        output, errors = self._streams[1:]
        for number, stream in enumerate(self._streams):
            device = _device(stream)
            if device in self._own and not (number == 0 and self._shares_input):
                ends.append(self._own[device].theirs)
            elif (terminal := _terminal(stream)) is not None:
                # In a pipeline they may be those of its other programs, such as `less`.
                if not self._shares_input or stat.S_ISREG(os.fstat(output).st_mode):
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
            for own in self._own.values():
                own.finish(wait=wait)
            for thread in self._outputs:
                thread.join(None if wait else COPY_SECONDS)
            if self._input is not None:
                self._input.join(COPY_SECONDS)
        finally:
            for stream, before in self._settings.items():
                _restore(stream, before)

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
                self._lost = f"{NAMES[number]} could not be written: {wrong.strerror}"
        finally:
            os.close(source)
            os.close(sink)


def _device(stream: int) -> int | None:
    """The number of a terminal; None if a stream is none."""
    return os.fstat(stream).st_rdev if os.isatty(stream) else None


def _keyboard(stream: int) -> int | None:
    """The terminal of a stream, to read what is typed there; None if it may not be read."""
    if fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
        return os.dup(stream)
    with suppress(OSError):
        return os.open(os.ttyname(stream), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    return None


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
