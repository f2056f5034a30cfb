"""What a thin client does with one shell line: hands its descriptors to the resident, and waits for the exit code.

The line and all that it started end with this process, by SIGKILL too: the resident sees the connection close. It gets
the ticket, the text, the directory and three descriptors, and of the variables only those that it asks for by name.
"""

import _signal  # type: ignore[import-not-found]  # `signal` would load `enum`
import _socket
import posix
import sys

from licet.hooks.limits import REQUEST_SECONDS
from licet.hooks.resident_hook import current_directory, encoded, refusal
from licet.hooks.resident_place import NoPlace, NoResident, Unreachable, connect
from licet.hooks.resident_wire import (
    ENDED,
    FROM_RESIDENT,
    LINE,
    SIGNAL,
    TAKEN,
    VALUES,
    WANTED,
    BadMessage,
    Messages,
    number,
    number_in,
    packed,
)

_READ = 1 << 16
_PASSED_ON = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGWINCH, _signal.SIGCONT)


class Lost(Exception):
    """The resident has ended, and the line with it."""


def line(ticket: str, text: str) -> int:
    """Run a line; returns its exit code. Raises what is wrong, and becomes another program where it works alone."""
    try:
        return _run(ticket, text)
    except (NoPlace, NoResident, Unreachable) as without:
        from licet.hooks.resident_start import line_alone, start

        if isinstance(without, NoResident) and start():
            try:
                return _run(ticket, text)
            except (NoPlace, NoResident, Unreachable):
                pass
        line_alone(ticket, text)
        raise


def _run(ticket: str, text: str) -> int:
    end = connect(posix.environ)
    try:
        return _Line(end).run(packed(LINE, encoded(ticket), encoded(text), current_directory()))
    finally:
        end.close()


class _Line:
    """A line that the resident runs, and the signals that come meanwhile."""

    def __init__(self, end: _socket.socket) -> None:
        self._end = end
        self._messages = Messages(FROM_RESIDENT)
        self._sending = True  # what a signal would send now has to wait
        self._waiting: list[int] = []
        self._before: dict[int, object] = {}

    def run(self, request: bytes) -> int:
        """The exit code. Signals that come before the line was taken are passed on afterwards."""
        taken = False
        self._pass_on()
        self._end.settimeout(REQUEST_SECONDS)
        try:
            self._request(request)
            while True:
                data = self._end.recv(_READ)
                if not data:
                    break
                for kind, fields in self._messages.feed(data):
                    if kind == TAKEN and not taken:
                        taken = True
                        self._end.settimeout(None)
                        self._send(b"")
                    elif kind == WANTED and taken:
                        self._send(_values(fields))
                    elif kind == ENDED and taken and len(fields) == 1:
                        return ended(number_in(fields[0]))
                    else:
                        raise refusal(kind, fields)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            if not taken:
                self._hold_back()
        if taken:
            raise Lost("the resident has ended, and the line with it")
        raise Unreachable("the resident has ended")

    def _request(self, request: bytes) -> None:
        """Send the request. A short line may have ended before this returns: what is received says so."""
        files = b"".join([stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2)])
        try:
            sent = self._end.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
            if sent < len(request):
                self._end.sendall(request[sent:])
        except ConnectionError:
            pass

    def _send(self, message: bytes) -> None:
        """Send something. A line that has ended meanwhile takes no more: what is received says how it ended."""
        self._sending = True
        try:
            if message:
                self._end.sendall(message)
        except ConnectionError:
            pass
        self._sending = False
        while self._waiting:
            self._signal(self._waiting.pop(0), None)

    def _pass_on(self) -> None:
        for each in (*_PASSED_ON, _signal.SIGTSTP):
            before = _signal.getsignal(each)
            if before is not _signal.SIG_IGN:  # `nohup` ignores it, for the line too
                self._before[each] = before
                _signal.signal(each, self._signal)

    def _hold_back(self) -> None:
        """Let signals do again what they do without a line, those that have come too."""
        for each, before in self._before.items():
            _signal.signal(each, before)
        for each in self._waiting:
            posix.kill(posix.getpid(), each)

    def _signal(self, which: int, _frame: object) -> None:
        if self._sending:
            self._waiting.append(which)
            return
        self._send(packed(SIGNAL, number(which)))
        if which == _signal.SIGTSTP:  # Ctrl-Z stops the line and then this process; SIGCONT continues both
            posix.kill(posix.getpid(), _signal.SIGSTOP)


def _values(names: list[bytes]) -> bytes:
    found: list[bytes] = []
    for name in names:
        if name in posix.environ:
            found += (name, posix.environ[name])
    return packed(VALUES, *found)


def ended(code: int) -> int:
    """The exit code, or the end by the signal that ended the line."""
    if 0 <= code <= 255:
        return code
    if not -64 <= code < 0:
        raise BadMessage("no exit code")
    if code not in (-_signal.SIGKILL, -_signal.SIGSTOP):
        _signal.signal(-code, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (-code,))
    posix.kill(posix.getpid(), -code)
    return 128 - code
