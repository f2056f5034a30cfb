"""Runs commands at a terminal of a test, types when they ask, and reads what they wrote."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import warm

# The first terminal that the leader of a session opens becomes its controlling terminal, which is `/dev/tty`.
LEADER = f"import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); {warm.PROGRAM}"


def at_terminal(
    words: Sequence[str], *talk: tuple[tuple[bytes, ...], bytes], meanwhile: Callable[[], object] = lambda: None
) -> tuple[int, str]:
    """Run a command at a new terminal, and type each answer once one of the texts before it was seen."""
    ours, theirs = os.openpty()
    with subprocess.Popen([*warm.command(LEADER), *words], stdin=theirs, stdout=theirs, stderr=theirs) as child:
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
