"""Checks data against a JSON Schema that was written as data: of a WASM tool, or of the tools of an MCP server.

Both the schema and the data may be made to take forever. A check that is short, whatever the data is, runs in place and
says yes or no. All else runs in a process with limits of time and memory: long checks, and the list
of errors after a no.

Checks data by a JSON Schema in a process of licet's own, with limits of time and memory.

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from licet.declare.arguments import InvalidArguments, checked_json
from licet.declare.check_cost import LARGEST_PATTERN, SMALL_PATTERN, has_long_integer, may_wait, values_in, weight_of
from licet.declare.limits import ANSWER_SECONDS, LIST_SECONDS, LONGEST_ANSWER, MOST_CHECKERS, START_SECONDS
from licet.declare.plain_json import PLAIN, data_again, plain_json
from licet.declare.schema_program import LENGTHS, NO, READY, YES, compile_schema, first_line

NO_FIT = "does not fit its schema"  # if no more is known
TOO_LONG = "cannot be checked against its schema: that takes too much time or memory"


class UnusableSchema(ValueError):
    """A JSON Schema that cannot be used: it is wrong, or it refers to another document."""


class SchemaCheck:
    """A JSON Schema, ready to check data. No other document is fetched for it.

    With `rules` it is a rule of a manifest, in which each format is enforced.
    """

    __slots__ = ("_largest_pattern", "_rules", "_schema", "_text", "_validator", "_weight", "unusable")

    def __init__(self, schema: object, *, rules: bool = False) -> None:
        self._schema, self._rules = schema, rules
        self._text = b""
        self._weight = weight_of(schema, of_any_size=rules)  # of the operator's own: it was compiled when it was read
        self.unusable: ValueError | None = None  # why a rule cannot be used; of other schemas the process tells
        for self._largest_pattern in (SMALL_PATTERN, LARGEST_PATTERN) if rules else (SMALL_PATTERN,):
            try:
                self._validator, self.unusable = self._compiled() if self._weight else None, None
            except Exception as wrong:  # it cannot be used, or has a large pattern
                self._validator, self.unusable = None, ValueError(str(wrong))
            else:
                break

    def _compiled(self) -> Any:
        return compile_schema(self._schema, largest_pattern=self._largest_pattern, rules=self._rules)

    def fits(self, data: object, text: bytes | None = None) -> bool | None:
        """Whether data fits, whose JSON may be known; None if that is not known here."""
        if self._validator is None or self._weight is None:
            return None
        if text is None and type(data) in PLAIN:
            size, values = 4 * len(data) if type(data) is str else 20, 1
        else:
            text = plain_json(data) if text is None else text
            size, values = len(text), values_in(text)
        if not self._weight.is_short(size, values, self._largest_pattern) or has_long_integer(data, text):
            return None
        try:
            fits: bool = self._validator.is_valid(data)
        except ValueError:  # data that the library does not take, such as very deep nesting
            return None
        return fits

    def answer(self, text: bytes) -> "Answer":
        """What a process says about the data with this JSON. Raises `Unfinished` in an event loop."""
        may_wait()

        try:
            self._text = self._text or msgspec.json.encode(self._schema)
        except (ValueError, RecursionError) as wrong:
            return Answer(False, unusable=str(wrong)[:200])
        return ask({"largest_pattern": LARGEST_PATTERN, "rules": self._rules}, self._text, text)

    def wrong_with(self, data: object, text: bytes | None = None) -> str:
        """What is wrong with data; empty if nothing is. Raises `Unfinished` in an event loop if that takes longer."""
        try:
            text = plain_json(data) if text is None else text
        except ValueError:  # nested too deep
            return TOO_LONG
        if fits := self.fits(data, text):
            return ""
        answer = self.answer(text)
        if answer.unusable:
            return f"the JSON Schema cannot be used: {answer.unusable}"
        if answer.fits:
            return ""
        if answer.fits is None and fits is None:
            return TOO_LONG
        return "; ".join(f"{place}: {said}"[:300] if place else said for place, said, _ in answer.errors) or NO_FIT


def check_usable(schema: Mapping[str, Any]) -> None:
    """Raise `UnusableSchema` if a schema of the operator's own cannot be used."""
    try:
        compile_schema(dict(schema), largest_pattern=LARGEST_PATTERN, rules=False)
    except Exception as wrong:
        raise UnusableSchema(first_line(wrong)) from None


def schema_validator(schema: Mapping[str, Any]) -> Callable[[object], dict[str, Any]]:
    """A function that checks arguments against a JSON Schema; a schema that cannot be used refuses every call.

    It raises `Unfinished` in an event loop if that takes longer.
    """
    check = cache(lambda: SchemaCheck(dict(schema)))  # when it is first called: a server may have hundreds of tools

    def validate(given: object) -> dict[str, Any]:
        text = checked_json(given)
        arguments: dict[str, Any] = data_again(text)
        if wrong := check().wrong_with(arguments, text):
            raise InvalidArguments(f"what was sent {wrong}" if wrong in (NO_FIT, TOO_LONG) else wrong)
        return arguments

    return validate


_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema_program.py")
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
        if len(_kept) < MOST_CHECKERS:
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


def _start_afresh() -> None:
    """In a forked child: the thread of the parent that holds the lock does not exist there."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_afresh)


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
        if self._line(monotonic() + START_SECONDS) != READY:
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
        errors = self._line(monotonic() + LIST_SECONDS)
        return Answer(False, tuple((place, text, rule) for place, text, rule in json.loads(errors or b"[]")))

    def _line(self, until: float) -> bytes:
        """The next line that it sends; empty if there is none in time."""
        while b"\n" not in self._read and len(self._read) < LONGEST_ANSWER:
            try:
                self._socket.settimeout(max(until - monotonic(), 0.001))
                piece = self._socket.recv(LONGEST_ANSWER)
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
