"""A new terminal for a program, in place of that of a person, and the threads that copy between the two.

The new terminal does all that a terminal does: echo, lines, Ctrl-C, Ctrl-Z. That of the person passes bytes meanwhile,
but only as long as the program has what is typed: not while licet asks something, while the run is stopped or in the
background, and in a pipeline not before the program wants to read. A program that wants to is stopped by the kernel
(SIGTTIN, SIGTTOU), because its job is not yet the one in the foreground of the new terminal.
"""

import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from licet.sandbox.kernel.terminal_settings import (
    Settings,
    apply,
    is_foreground,
    passing,
    settings_of,
)
from licet.sandbox.limits import AWAKE_SECONDS, CHUNK, COPY_SECONDS, STOP_LOOK_SECONDS
from licet.sandbox.streams import write_all

if sys.platform != "win32":
    import fcntl
    import termios

_SESSION_OF = 0x5429  # TIOCGSID
_LEFT_TO_IT = 2.0  # seconds; a typed Ctrl-Z stops the program within that time, or it does not want to stop


class OwnTerminal:
    """The end of licet of a new terminal, and the terminal of a person that it stands for.

    `screen` shows what the program writes. What is typed at `keyboard` goes to the program: from the start, or, if it
    is `asked_for`, once the program wants to read. Both are closed by `finish`, which must be called.
    """

    def __init__(self, screen: int, keyboard: int | None, *, asked_for: bool) -> None:
        self._screen, self._keyboard = screen, keyboard
        self._ours, self.theirs = os.openpty()
        try:
            # In the background they are those of a shell's line editor: a new terminal has better ones.
            self._before = settings_of(screen if is_foreground(screen) else self.theirs)
            inner = self._before if keyboard is not None else passing(self._before, reads=False)
            termios.tcsetattr(self.theirs, termios.TCSANOW, inner)
            os.set_blocking(self._ours, False)
            self._awake, self._wake = os.pipe()
        except BaseException:
            os.close(self._ours)
            os.close(self.theirs)
            raise
        os.set_blocking(self._wake, False)
        os.set_blocking(self._awake, False)
        self.resize()
        self._wanted = not asked_for and keyboard is not None
        self._lock = threading.RLock()
        self._active: Settings | None = None  # what the terminal of the person gets back, if it passes bytes now
        self._holds = 0
        self._flows = threading.Event()  # unset while licet asks something
        self._flows.set()
        self._ended = False
        self._threads: list[threading.Thread] = []
        self._typed = b""  # what was typed, and has no room in the new terminal yet
        self._stop_was_seen: bytes | None = None  # how often the program had been switched away from by then
        self._soon = 0.0  # until when a stop is expected
        self.lost: str | None = None

    @property
    def in_foreground(self) -> bool:
        """Whether the program has what is typed from the start."""
        return self._wanted and is_foreground(self._screen)

    @property
    def lent(self) -> tuple[int, Settings] | None:
        """The terminal that may be left passing bytes if this process is killed, and its settings."""
        return None if self._keyboard is None else (self._keyboard, self._before)

    def begin(
        self,
        seen: Callable[[bytes], object],
        signal_program: Callable[[int], object],
        *,
        suspend: Callable[[], object] | None,
        interrupted: Callable[[], object],
    ) -> None:
        """Begin to copy.

        `seen` gets what the program writes, `suspend` stops this process as a job, and `interrupted` is called for each
        Ctrl-C that the new terminal turns into a signal. `signal_program` passes a signal on: SIGTTIN gives the program
        what is typed, SIGTTOU takes it away, and both let it go on.
        """
        self._seen, self._signal, self._suspend, self._interrupted = seen, signal_program, suspend, interrupted
        self._start("licet-terminal", self._show)
        self._start("licet-keyboard", self._attend)

    def want(self) -> None:
        """The program is to have what is typed from the start, since nothing shows that it wants to read."""
        self._wanted = self._keyboard is not None

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True, name=name)
        thread.start()
        self._threads.append(thread)

    def finish(self, *, wait: bool) -> None:
        """Wait until all that the program wrote was shown; give the terminal of the person its settings back."""
        alive = False
        if not self._threads:
            os.close(self.theirs)
        try:
            for thread in self._threads[:1]:
                thread.join(None if wait else COPY_SECONDS)
        finally:
            self._ended = True
            self._flows.set()
            self._nudge()
            with self._lock:
                self._pass_on(False)
            for thread in self._threads:
                thread.join(COPY_SECONDS)
                alive = alive or thread.is_alive()
        if not alive:  # a thread that is stuck in a write still uses them
            for file in (self._ours, self._screen, self._awake, self._wake):
                os.close(file)
            if self._keyboard is not None:
                os.close(self._keyboard)

    def resize(self) -> None:
        """Give the new terminal the size of the other one, which tells its programs if it is a new size."""
        with suppress(OSError):
            size = fcntl.ioctl(self._screen, termios.TIOCGWINSZ, bytes(8))
            if fcntl.ioctl(self._ours, termios.TIOCGWINSZ, bytes(8)) != size:
                fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def show(self, text: bytes) -> None:
        """Write something of licet's on the terminal of the person."""
        with suppress(OSError):
            write_all(self._screen, text.replace(b"\n", b"\r\n") if self._active is not None else text)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Leave the terminal of the person as it was meanwhile, with what is typed and without what is written."""
        self._flows.clear()
        try:
            with self.left_alone():
                yield
        finally:
            self._flows.set()

    @contextmanager
    def left_alone(self) -> Iterator[None]:
        """Leave the terminal of the person as it was meanwhile, with what is typed."""
        with self._lock:
            self._holds += 1
            self._pass_on(False)
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1
                self._settle()
            self._nudge()

    def continued(self) -> None:
        """After this process was stopped: the program goes on too, in the foreground if this process is there."""
        with self._lock:
            self._stop_was_seen = self._stopped()
            self.resize()
            self._settle(again=True)
            self._signal(signal.SIGTTOU if self._active is None else signal.SIGTTIN)

    # Copying --------------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Copy from the new terminal to that of the person, until nobody has the new one."""
        poll = select.poll()
        poll.register(self._ours, select.POLLIN)
        try:
            while True:
                try:
                    text = os.read(self._ours, CHUNK)
                except BlockingIOError:
                    poll.poll()
                    continue
                except OSError:  # EIO: every process with this terminal has ended
                    return
                self._seen(text)
                self._flows.wait()
                if self._active is None and self._keyboard is not None:
                    text = text.replace(b"\r\n", b"\n")  # the terminal of the person makes that again
                write_all(self._screen, text)
        except OSError as error:
            self.lost = f"the terminal could not be written: {error.strerror}"
        finally:
            self._ended = True
            self._nudge()

    def _attend(self) -> None:
        """Copy what is typed, follow the size, and see to a program that has stopped, until the terminal is gone."""
        looked = 0.0
        while not self._ended:
            with self._lock:
                self._settle()
                reads = self._active is not None and not self._typed
            poll = select.poll()
            poll.register(self._awake, select.POLLIN)
            poll.register(self._ours, select.POLLOUT if self._typed else 0)
            if reads and self._keyboard is not None:
                poll.register(self._keyboard, select.POLLIN)
            pause = STOP_LOOK_SECONDS if not self._wanted or time.monotonic() < self._soon else AWAKE_SECONDS
            ready = dict(poll.poll(1000 * pause))
            if self._awake in ready:
                with suppress(BlockingIOError):
                    os.read(self._awake, CHUNK)
            if ready.get(self._ours, 0) & select.POLLHUP:
                time.sleep(STOP_LOOK_SECONDS)  # nobody has it now: `_show` ends when it has read all
                continue
            if self._keyboard in ready:
                self._read()
            if self._typed:
                with suppress(BlockingIOError, OSError):
                    self._typed = self._typed[os.write(self._ours, self._typed) :]
            if time.monotonic() - looked >= pause / 2:
                looked = time.monotonic()
                self.resize()
                self._look()

    def _read(self) -> None:
        with self._lock:  # nobody begins to ask meanwhile
            if self._active is None or self._keyboard is None:
                return
            poll = select.poll()
            poll.register(self._keyboard, select.POLLIN)
            if not poll.poll(0):  # who has asked has read it
                return
            try:
                text = os.read(self._keyboard, CHUNK)
            except OSError:
                text = b""
            if not text:  # it is gone
                os.close(self._keyboard)
                self._keyboard = None
                return
        self._typed = text
        self._heed(text)

    def _heed(self, text: bytes) -> None:
        """Notice the characters that the new terminal turns into signals."""
        with suppress(termios.error):
            settings = settings_of(self._ours)
            flags, characters = settings[3], settings[-1]
            assert isinstance(flags, int) and isinstance(characters, list)  # noqa: S101, PT018
            if flags & termios.ISIG:
                if characters[termios.VSUSP] in text:
                    self._soon = time.monotonic() + _LEFT_TO_IT
                for _ in range(text.count(characters[termios.VINTR])):
                    self._interrupted()

    def _nudge(self) -> None:
        with suppress(OSError):
            os.write(self._wake, b"x")

    # Who has the terminal -------------------------------------------------------------------------------------------

    def _settle(self, *, again: bool = False) -> None:
        """Let the terminal of the person pass bytes if the program should have them; `again` if it may have changed."""
        if self._keyboard is None or self._holds or self._ended or not self._wanted:
            return
        if self._active is None:
            if is_foreground(self._keyboard):
                self._pass_on(True)
                if not self._is_leading():
                    self._signal(signal.SIGTTIN)
        elif again:
            apply(self._keyboard, passing(self._active, reads=True))

    def _pass_on(self, wanted: bool) -> None:
        if self._keyboard is None:
            return
        if wanted:
            with suppress(termios.error):
                self._active = settings_of(self._keyboard)
                apply(self._keyboard, passing(self._active, reads=True))
        elif self._active is not None:
            apply(self._keyboard, self._active)
            self._active = None

    def _look(self) -> None:
        """See to a program that has stopped: it wants to read, or it was stopped like any job."""
        with self._lock:
            if self._holds or self._ended or self._keyboard is None:
                return
            stopped = self._stopped()
            if stopped is None or stopped == self._stop_was_seen:
                return
            self._stop_was_seen, self._soon, self._wanted = stopped, 0.0, True
            if self._suspend is None or (is_foreground(self._keyboard) and not self._is_leading()):
                self._settle()
                self._signal(signal.SIGTTIN)
                return
        self._suspend()

    def _session(self) -> int:
        (session,) = struct.unpack("=i", fcntl.ioctl(self._ours, _SESSION_OF, bytes(4)))
        return int(session)

    def _program(self) -> int:
        """The program itself: the oldest child of the process that leads the session of the new terminal."""
        return _children(self._session())[0]

    def _is_leading(self) -> bool:
        """Whether the program, or a job of it, has what is typed; true if that cannot be known."""
        try:
            return os.tcgetpgrp(self._ours) != os.getpgid(self._session())
        except OSError:
            return True

    def _stopped(self) -> bytes | None:
        """None if the program goes on; else what differs each time that it stops."""
        try:
            process = self._program()
            if not _is_stopped(process):
                return None
            with open(f"/proc/{process}/status", "rb") as file:
                return b"".join(line for line in file if b"ctxt_switches" in line)
        except (OSError, ValueError, IndexError):  # it has ended, or not begun
            return None


def _is_stopped(process: int) -> bool:
    """Whether a process has stopped, or waits, as after `vfork`, for one that was stopped before it ran a program."""
    state = _state(process)
    return state == b"T" or (state == b"D" and any(_state(child) == b"T" for child in _children(process)))


def _state(process: int) -> bytes:
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0]


def _children(process: int) -> list[int]:
    with open(f"/proc/{process}/task/{process}/children", "rb") as file:
        return [int(child) for child in file.read().split()]


def has_jobs() -> bool:
    """Whether a program that stops can be noticed, and so may be stopped."""
    task = threading.get_native_id()
    return os.path.exists("/proc/1") and os.path.exists(f"/proc/{os.getpid()}/task/{task}/children")


def stop_like_a_job() -> None:
    """Stop this process as Ctrl-Z does, until it is let go on: at once where nobody in its session could do that."""
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, before)
