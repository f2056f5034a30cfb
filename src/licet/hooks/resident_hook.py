"""What a thin client does with one event of an agent: asks the resident, and prints what it answers.

Without a resident it starts one, and without that it works alone: the same decision, made by `licet hook`. Raises an
exception for every failure; `resident_client` knows which of them refuse.
"""

import _signal  # type: ignore[import-not-found]  # `signal` would load `enum`
import _socket
import posix
import sys

from licet.hooks.limits import HOOK_SECONDS, PAYLOAD_BYTES, READ_BYTES
from licet.hooks.resident_place import NoPlace, NoResident, Unreachable, connect
from licet.hooks.resident_wire import (
    ALONE,
    ANSWER,
    FROM_RESIDENT,
    HOOK,
    LEAVING,
    REFUSED,
    BadMessage,
    Messages,
    number_in,
    packed,
)

# The variables with the directory that an agent was started in, where its hooks are started in others.
STARTS = {"claude": b"CLAUDE_PROJECT_DIR"}


class Late(BaseException):
    """The time of the hook is up."""


class TooLarge(Exception):
    """The event is larger than an event may be."""


class Refusal(Exception):
    """The resident refuses, and says why."""


def hook(agent: str, event: str) -> int:
    """Answer one event on the standard streams; returns the exit code. Raises whatever is wrong."""
    _signal.signal(_signal.SIGALRM, _late)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
    _signal.setitimer(_signal.ITIMER_REAL, HOOK_SECONDS)
    payload = _payload()
    request = packed(HOOK, encoded(agent), encoded(event), start_directory(agent), payload)
    try:
        output, errors, code = _asked(request)
    except (NoPlace, NoResident, Unreachable) as without:
        from licet.hooks.resident_start import alone, start

        if not isinstance(without, NoResident) or not start():
            return alone(agent, event, payload)
        try:
            output, errors, code = _asked(request)
        except (NoPlace, NoResident, Unreachable):
            return alone(agent, event, payload)
    write(1, output)
    write(2, errors)
    return code


def _late(_signal: int, _frame: object) -> None:
    raise Late("no answer in time")


def _payload() -> bytes:
    """What the agent writes. It is read before the resident is asked, which would have to wait for it."""
    parts: list[bytes] = []
    left = PAYLOAD_BYTES
    while part := posix.read(0, READ_BYTES):
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise TooLarge(f"the event has more than {PAYLOAD_BYTES} bytes")
    return b"".join(parts)


def _asked(request: bytes) -> tuple[bytes, bytes, int]:
    """The answer of the resident: output, errors and exit code."""
    end = connect(posix.environ)
    try:
        end.sendall(request)
        kind, fields = received(end, Messages(FROM_RESIDENT))
    except ConnectionError:
        raise Unreachable("the resident has ended") from None
    finally:
        end.close()
    if kind == ANSWER and len(fields) == 3:
        code = number_in(fields[2])
        if 0 <= code <= 255:
            return fields[0], fields[1], code
    raise refusal(kind, fields)


def received(end: _socket.socket, messages: Messages) -> tuple[int, list[bytes]]:
    """The next message of the resident, which sends none before it is asked. Raises `Unreachable` at its end."""
    while True:
        data = end.recv(READ_BYTES)
        if not data:
            raise Unreachable("the resident has ended")
        if found := messages.feed(data):
            if len(found) > 1:
                raise BadMessage("two messages where one was expected")
            return found[0]


def refusal(kind: int, fields: list[bytes]) -> Exception:
    """What a message means that is no answer."""
    if kind == LEAVING:
        return NoResident()
    if kind == ALONE:
        return Unreachable("the resident has no room")
    if kind == REFUSED and len(fields) == 1:
        return Refusal(fields[0].decode("utf-8", "replace"))
    return BadMessage("no answer")


def encoded(word: str) -> bytes:
    """A word of the command line as the bytes that it was."""
    return word.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def start_directory(agent: str) -> bytes:
    """The directory that an agent was started in, if it says it to its hooks; else the current one."""
    named = posix.environ.get(STARTS.get(agent, b""), b"")
    return named if named.startswith(b"/") else current_directory()


def current_directory() -> bytes:
    """The current directory; empty if it was removed."""
    try:
        return posix.getcwdb()
    except FileNotFoundError:
        return b""


def write(file: int, data: bytes) -> None:
    """Write all of the data."""
    while data:
        data = data[posix.write(file, data) :]
