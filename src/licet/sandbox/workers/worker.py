"""Loading a tool inside its walls: by file, under a name that runs nothing but definitions.

The life of a worker, inside: it walls itself in, loads its tool, and answers calls until the host hangs up.

Where the walls leave something of a grant reachable, the tool is loaded when its call has come: no call, no use. The
walls come before the tool's code, imports included. Everything that they leave reachable was named by the host in
the first frame; a worker that cannot build every wall that it was told to build ends at once.
"""

import asyncio
import contextlib
import errno
import importlib
import importlib.machinery
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, NoReturn

from licet.declare import Tool
from licet.declare.arguments import validator
from licet.declare.plain_json import plain_data
from licet.errors import Refused
from licet.guard.close import result_text
from licet.modules.finder import FromText, module_spec
from licet.sandbox.bridge import socket_shim, subprocess_shim
from licet.sandbox.bridge.client import Answer, Asking
from licet.sandbox.bridge.context import RemoteContext, Waiting
from licet.sandbox.kernel import hardening, landlock, seccomp
from licet.sandbox.workers.wire import Closed, Frame


class Given:
    """Finds the modules that a worker was given, by name. Directories cannot be listed here, so nothing is searched."""

    def __init__(self, modules: Mapping[str, Sequence[str | None]], *, bytecode: bool) -> None:
        self._modules = modules
        self._source: Any = importlib.machinery.SourceFileLoader if bytecode else FromText

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Where a module is, if it is one of these."""
        if name not in self._modules:
            return None
        file, directory = self._modules[name]
        return module_spec(name, file, None if directory is None else [directory], self._source)


def load(
    module: str, qualname: str, modules: Mapping[str, Sequence[str | None]], path: Sequence[str], *, bytecode: bool
) -> Any:
    """The function of a tool; its module and the modules that it imports run now, behind the walls.

    Without `bytecode` files are compiled from their text: what was compiled earlier lies where a grant may write.
    """
    sys.path[:] = path
    # What the zygote had under one of these names is another module.
    for name in [name for name in modules if name in sys.modules]:
        del sys.modules[name]
    sys.meta_path.insert(0, Given(modules, bytecode=bytecode))
    found = getattr(importlib.import_module(module), qualname)
    return found.fn if isinstance(found, Tool) else found


OUT_OF_MEMORY, NO_WALLS = 77, 78  # why there is no answer
LAST_WORDS = struct.Struct("=II")  # who ends, and why
_RESERVE = 1 << 20  # bytes of memory with which to say that there is no more
_MOST_SAID = 2000  # characters of an error
_WAYS_OUT = {
    "BINARY_NOT_ALLOWED": "; to allow it, name it under `process` in the tool's capabilities and in the manifest",
}


class TooLong(Exception):
    """A result of more bytes than the limit."""


class LastWords:
    """Says why a worker ends, by a pipe that is shut before its tool is loaded: code of a tool could say anything."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def say(self, why: int) -> NoReturn:
        """End."""
        if self.fd >= 0:
            os.write(self.fd, LAST_WORDS.pack(os.getpid(), why))
        os._exit(why)

    def shut(self) -> None:
        """Say nothing from now on."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def live(end: socket.socket, parent: int, fd: int) -> NoReturn:
    """Be a worker; does not return."""
    words = LastWords(fd)
    try:
        asking = Asking(end)
        spec = asking.wire.receive().head
        try:
            wall_in(spec, {end.fileno(), fd}, parent)
        except (OSError, ValueError):
            words.say(NO_WALLS)
        _Worker(asking, spec, words).serve()
    except Closed:
        os._exit(0)
    except MemoryError:
        words.say(OUT_OF_MEMORY)
    finally:
        os._exit(1)


def wall_in(spec: Mapping[str, Any], keep: set[int], parent: int) -> None:
    """Give up everything that the host did not name, for good."""
    os.setsid()
    scratch = spec["scratch"]
    os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = scratch
    try:
        os.chdir(spec["directory"] or scratch)
    except OSError:
        os.chdir(scratch)
    rules = [rule for path, access, identity in spec["rules"] for rule in _rule(path, access, identity)]
    rules.append(landlock.Rule(scratch, landlock.READ | landlock.WRITE | landlock.DELETE))
    version = spec["landlock"]
    ruleset = landlock.ruleset(rules, version=version)
    hardening.harden(limits=hardening.Limits(**spec["limits"]), keep_fds={0, 1, 2, *keep, ruleset}, parent=parent)
    landlock.restrict(ruleset)
    os.close(ruleset)
    own_pid = None if version >= landlock.SIGNALS_SINCE else os.getpid()
    seccomp.install(seccomp.program(own_pid=own_pid, abi=version))


def _rule(path: str, access: int, identity: list[int] | None) -> Iterator[landlock.Rule]:
    """A rule for what the host has looked at; whoever put something else in its place since then gains nothing."""
    if identity is None:
        yield landlock.Rule(path, access)
        return
    with contextlib.suppress(OSError):  # what is gone needs no rule
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)  # closed with everything else before the tool is loaded
        found = os.fstat(fd)
        if [found.st_dev, found.st_ino] == identity:
            yield landlock.Rule(f"/proc/self/fd/{fd}", access)


class _Worker:
    def __init__(self, asking: Asking, spec: Mapping[str, Any], words: LastWords) -> None:
        self._asking = asking
        self._words = words
        self._reserve = bytes(_RESERVE)
        self._spec = spec
        self._context: str | None = spec["context"]
        self._wrong: dict[str, Any] | None = None
        self._runner: asyncio.Runner | None = None
        if spec["connects"]:
            socket_shim.install(self._connect)
        if spec["programs"] is not None:
            subprocess_shim.install(self._start, self._signal, spec["programs"])
        self._fn: Callable[..., Any] | None = None
        if not spec["late"]:
            self._load()

    def _load(self) -> None:
        spec = self._spec
        self._words.shut()
        try:
            self._fn = load(spec["module"], spec["qualname"], spec["modules"], spec["path"], bytecode=spec["bytecode"])
            if spec["async"]:
                self._runner = asyncio.Runner()
                self._runner.get_loop()
        except BaseException as error:
            self._reserve = b""
            self._wrong = described(error)

    def _connect(self, host: str, port: int) -> int:
        """A connection that the host made."""
        return self._ask("connect", host=host, port=port).file()

    def _start(self, asked: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
        """A program that the host started: its number, and the pipes that lead to it."""
        answer = self._ask("process.start", **asked)
        return answer.head["id"], answer.files

    def _signal(self, program: int, number: int) -> None:
        self._ask("process.signal", program=program, signal=number)

    def _ask(self, op: str, **fields: Any) -> Answer:
        """Ask for a library, which knows refusals as errors of the system."""
        try:
            return self._asking.ask_now(op, **fields)
        except Refused as refusal:
            if refusal.code == "BACKEND_MISSING":  # it would be allowed, and is not there
                raise FileNotFoundError(errno.ENOENT, str(refusal)) from refusal
            raise PermissionError(errno.EACCES, f"{refusal}{_WAYS_OUT.get(refusal.code, '')}") from refusal
        except RuntimeError as nobody:
            raise PermissionError(errno.EACCES, str(nobody)) from nobody

    def serve(self) -> None:
        """One call, or as many as come."""
        wire = self._asking.wire
        while True:
            frame = wire.receive()
            if "call" not in frame.head:  # an answer for a call that did not wait for it
                wire.drop(frame)
                continue
            if self._fn is None and self._wrong is None:  # until now nothing of the tool has run
                self._load()
            head, blob = self._answer(frame)
            call: int = frame.head["call"]
            wire.send({"op": "result", "call": call, **head}, blob)
            if not self._spec["reuse"]:
                os._exit(0)

    def _answer(self, frame: Frame) -> tuple[dict[str, Any], bytes]:
        if self._wrong is not None:
            return self._wrong, b""
        try:
            text = _bounded(result_text(self._called(frame)), self._spec["result_bytes"])
        except BaseException as error:
            if isinstance(error, MemoryError):
                self._reserve = b""
            return {**described(error), "line": _line(error, self._fn)}, b""
        return {}, text

    @cached_property
    def _validate(self) -> Callable[[object], dict[str, Any]]:
        assert self._fn is not None  # noqa: S101
        return validator(self._fn, self._context)

    def _called(self, frame: Frame) -> Any:
        arguments = plain_data(frame.blob)
        if not frame.head["plain"]:  # models, dates, sets: made again from what was sent, by the tool's own hints
            arguments = self._validate(arguments)
        loop = self._runner.get_loop() if self._runner is not None else None
        self._asking.begin(frame.head["call"], loop)
        if self._context is not None:
            context = RemoteContext(self._asking, frame.head)
            arguments[self._context] = context if loop is not None else Waiting(context)
        try:
            fn, runner = self._fn, self._runner
            assert fn is not None  # noqa: S101
            return fn(**arguments) if runner is None else runner.run(_alone(fn, arguments))
        finally:
            self._asking.finish()


def _bounded(text: bytes, most: int) -> bytes:
    if len(text) > most:
        raise TooLong(f"{len(text)} bytes of result, expected at most {most}")
    return text


async def _alone(fn: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run an async tool; what it left running ends with it."""
    try:
        return await fn(**arguments)
    finally:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def _line(error: BaseException, fn: Callable[..., Any] | None) -> int:
    """The last line of the tool's own file that an exception came through; 0 if there is none."""
    file, found, step = getattr(getattr(fn, "__code__", None), "co_filename", None), 0, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            found = step.tb_lineno
        step = step.tb_next
    return found


def described(error: BaseException) -> dict[str, Any]:
    """What is told of an exception: the name of its type, its text, and by which limit or refusal it came."""
    text = ""
    with contextlib.suppress(Exception):  # a tool's exception may do anything when asked for its text
        text = str(error)[:_MOST_SAID]
    text = text.encode("utf-8", "replace").decode()
    told: dict[str, Any] = {"error": f"{type(error).__name__}"[:200], "text": text}
    if isinstance(error, OSError) and type(error.errno) is int:
        told["errno"] = error.errno
    number = vars(error).get("licet_number")
    if type(number) is int:
        told["refused"] = number
    return told
