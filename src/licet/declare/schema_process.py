"""Checks data by a JSON Schema in a process of licet's own, with limits of time and memory.

A check that explodes ends with its process. Each process answers one question at a time; two are kept for the next
questions, since starting one takes a tenth of a second.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from time import monotonic
from typing import Any, cast

from msgspec import Struct

from licet.declare.schema_program import LENGTHS, NO, READY, YES

ANSWER_SECONDS = 2.0  # for a yes or no
_LIST_SECONDS = 0.5  # for the errors after a no
_START_SECONDS = 10.0
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema_program.py")
_MOST_KEPT = 2
_LONGEST_ANSWER = 1 << 16
_lock = threading.Lock()
_kept: list["_Checker"] = []


class Answer(Struct, frozen=True):
    """Whether data fits a schema; None if that took too long, or needed too much memory."""

    fits: bool | None
    errors: tuple[tuple[str, str, str], ...] = ()  # place, message and keyword of some errors
    unusable: str = ""  # why the schema cannot be used


def ask(options: dict[str, object], schema: bytes, data: bytes) -> Answer:
    """Ask a process, and wait for its answer: call this in a thread in which no event loop runs."""
    try:
        checker = _take()
    except OSError:
        return Answer(None)
    try:
        answer = checker.answer(json.dumps(options).encode(), schema, data)
    except BaseException:
        checker.end()
        raise
    if answer.fits is None or (answer.fits is False and not answer.errors and not answer.unusable):
        checker.end()  # it did not answer in time, or has died
    else:
        _keep(checker)
    return answer


def _take() -> "_Checker":
    with _lock:
        while _kept:
            checker = _kept.pop()
            if checker.owner == os.getpid():  # otherwise this process was forked, and its parent uses that one
                return checker
            checker.forget()
    return _Checker()


def _keep(checker: "_Checker") -> None:
    with _lock:
        if len(_kept) < _MOST_KEPT:
            _kept.append(checker)
            return
    checker.end()


@atexit.register
def _end_all() -> None:
    with _lock:
        while _kept:
            checker = _kept.pop()
            if checker.owner == os.getpid():
                checker.end()


if hasattr(os, "register_at_fork"):  # not on Windows
    # The thread of the parent that holds it does not exist in a forked child.
    os.register_at_fork(after_in_child=cast("Any", _lock)._at_fork_reinit)


class _Checker:
    """A process that checks, and the socket to it."""

    def __init__(self) -> None:
        found = find_spec("jsonschema_rs")
        if not sys.executable or found is None or not found.origin:
            raise OSError("there is no interpreter with the library that checks")
        packages = os.path.dirname(os.path.dirname(os.path.abspath(found.origin)))
        command = [sys.executable, "-I", "-S", "-B", _PROGRAM, packages]
        environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self.owner = os.getpid()
        self._read = b""  # of what it sent, the part behind the last line
        self._socket, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL,
                env=environment, cwd="/", start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        if self._line(monotonic() + _START_SECONDS) != READY:
            self.end()
            raise OSError("the process that checks did not start")

    def answer(self, options: bytes, schema: bytes, data: bytes) -> Answer:
        """Ask one question."""
        until = monotonic() + ANSWER_SECONDS
        lengths = LENGTHS.pack(len(options), len(schema), len(data))
        try:
            self._socket.settimeout(ANSWER_SECONDS)
            self._socket.sendall(b"".join((lengths, options, schema, data)))
        except OSError:
            return Answer(None)
        line = self._line(until)
        if line == YES:
            return Answer(True)
        if line != NO:
            return Answer(None) if not line else Answer(False, unusable=json.loads(line[1:]))
        errors = self._line(monotonic() + _LIST_SECONDS)
        return Answer(False, tuple((place, text, rule) for place, text, rule in json.loads(errors or b"[]")))

    def _line(self, until: float) -> bytes:
        """The next line that it sends; empty if there is none in time."""
        while b"\n" not in self._read and len(self._read) < _LONGEST_ANSWER:
            try:
                self._socket.settimeout(max(until - monotonic(), 0.001))
                piece = self._socket.recv(_LONGEST_ANSWER)
            except OSError:
                return b""
            if not piece:
                return b""
            self._read += piece
        line, end, self._read = self._read.partition(b"\n")
        return line + end

    def end(self) -> None:
        """End it, whatever it is doing."""
        self._socket.close()
        with suppress(OSError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def forget(self) -> None:
        """Leave it to the process that started it."""
        self._socket.close()
        self._process.returncode = 0  # so that nobody here waits for it
