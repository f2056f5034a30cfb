"""Runs commands at a terminal of a test, types when they ask, and reads what they wrote."""

import os
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import warm

PATIENCE = 120  # seconds: something that hangs, not something that is slow

# The first terminal that the leader of a session opens becomes its controlling terminal, which is `/dev/tty`.
_LEADING = "import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR))"
LEADER = f"{_LEADING}\n{warm.PROGRAM}"


def at_terminal(
    words: Sequence[str],
    *talk: tuple[tuple[bytes, ...], bytes],
    meanwhile: Callable[[], object] = lambda: None,
    program: str = warm.PROGRAM,
) -> tuple[int, str]:
    """Run a command at a new terminal, and type each answer once one of the texts before it was seen."""
    ours, theirs = os.openpty()
    code = f"{_LEADING}\n{program}"
    with subprocess.Popen([*warm.command(code), *words], stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown, seen, answers = b"", 0, list(talk)
        with suppress(OSError):  # EIO: the other end is closed when the command ends
            while piece := os.read(ours, 1 << 16):  # one read gives a part, however much there is
                shown += piece
                if answers and any(text in shown[seen:] for text in answers[0][0]):
                    meanwhile()
                    seen = len(shown)
                    os.write(ours, answers.pop(0)[1])
        os.close(ours)
    return child.returncode, shown.decode()


def shown_at_terminal(words: Sequence[str], env: Mapping[str, str] | None = None, *, errors: bool = True) -> str:
    """What a command that asks nothing writes to a terminal, on standard output or on both streams."""
    ours, theirs = os.openpty()  # click leaves escapes out of what goes into a pipe
    stderr = theirs if errors else subprocess.DEVNULL
    ended = subprocess.run([*warm.licet(), *words], check=False, stdout=theirs, stderr=stderr, env=env)
    os.close(theirs)
    said = b""
    with suppress(OSError):
        while piece := os.read(ours, 1 << 16):
            said += piece
    os.close(ours)
    return f"{ended.returncode}\r\n{said.decode()}"


# Starts its words as the leader of a session at the terminal, as a terminal emulator starts a shell.
_EMULATOR = """
import os, sys
os.setsid()
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Person:
    """Somebody at a terminal of their own, where a program or a shell was started."""

    def __init__(self, *words: str, size: tuple[int, int] = (33, 77)) -> None:
        self._ours, self.terminal = os.openpty()
        termios.tcsetwinsize(self.terminal, size)
        self.before = termios.tcgetattr(self.terminal)
        terminal = self.terminal
        self.started = subprocess.Popen(
            [sys.executable, "-S", "-c", _EMULATOR, *words], stdin=terminal, stdout=terminal, stderr=terminal
        )
        self.seen = b""

    def until(self, text: bytes) -> bytes:
        """Wait until a text is shown; returns all that was shown since the last wait."""
        while text not in self.seen:
            assert select.select([self._ours], [], [], PATIENCE)[0], self.seen
            self.seen += os.read(self._ours, 1 << 16)
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def types(self, line: str, text: bytes) -> bytes:
        """Type a line, and wait until a text is shown behind its echo."""
        self.type(line.encode() + b"\r")
        self.until(b"\r\n")
        return self.until(text)

    def code(self) -> int:
        """Wait until what was started has ended; returns how. What was shown last is in `seen`."""
        while self.started.poll() is None:
            if select.select([self._ours], [], [], 0.05)[0]:
                self.seen += os.read(self._ours, 1 << 16)
        while select.select([self._ours], [], [], 0)[0]:
            self.seen += os.read(self._ours, 1 << 16)
        return self.started.returncode

    def close(self) -> None:
        self.started.kill()
        self.started.wait()
        os.close(self._ours)
        os.close(self.terminal)
