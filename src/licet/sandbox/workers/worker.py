"""Runs inside the walls: a worker builds its walls, loads its tool, and serves calls until the host closes the socket.

The walls are built before any code of the tool runs, imports included. The host's first frame names everything that
they leave reachable. A worker that cannot build one of its walls ends at once. Where the walls leave part of a grant
reachable, the tool is loaded when its call comes, so that nothing of the grant is used without a call.
"""

import ast
import asyncio
import contextlib
import errno
import importlib
import importlib.machinery
import io
import os
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, NoReturn

from licet.declare import Tool
from licet.declare.arguments import validator
from licet.declare.plain_json import plain_data
from licet.errors import Refused
from licet.guard.execution import result_text
from licet.sandbox.bridge import shims
from licet.sandbox.bridge.wire import Closed, Frame
from licet.sandbox.bridge.worker_context import HostClient, HostReply, RemoteContext, SyncHandle
from licet.sandbox.kernel import hardening, landlock, notifications, seccomp
from licet.sandbox.limits import LONGEST_ERROR, MEMORY_RESERVE, MOST_FRAMES
from licet.source.finder import FromText, module_spec


class GivenModules:
    """Finds the modules of a tool by name. Nothing is searched: directories cannot be listed behind the walls."""

    def __init__(self, modules: Mapping[str, Sequence[str | None]], *, bytecode: bool) -> None:
        self._modules = modules
        self._source: Any = importlib.machinery.SourceFileLoader if bytecode else FromText

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Where a module is, if it belongs to the tool."""
        if name not in self._modules:
            return None
        file, directory = self._modules[name]
        return module_spec(name, file, None if directory is None else [directory], self._source)


def load(spec: Mapping[str, Any]) -> Any:
    """Import the module of a tool, behind the walls, and return the tool's function.

    Without `bytecode` in the specification, files are compiled from their source, because a grant may write where
    compiled files lie.
    """
    modules: Mapping[str, Sequence[str | None]] = spec["modules"]
    sys.path[:], sys.argv[:] = spec["path"], [""]
    # The zygote may have another module under one of these names.
    for name in [name for name in modules if name in sys.modules]:
        del sys.modules[name]
    sys.meta_path.insert(0, GivenModules(modules, bytecode=spec["bytecode"]))
    cell, name = spec["cell"], spec["module"]
    module = importlib.import_module(name) if cell is None else run_cell(cell, name)
    found = getattr(module, spec["qualname"])
    return found.fn if isinstance(found, Tool) else found


def load_guest(spec: Mapping[str, Any], files: Sequence[int], host: HostClient) -> Any:
    """Load a tool that is no Python function. What runs it is imported in the workers of such tools alone."""
    module, name = spec["loader"]
    return getattr(importlib.import_module(module), name)(spec, files, host)


def run_cell(cell: Mapping[str, Any], name: str) -> ModuleType:
    """Run the statements of a notebook cell, each with its own file name and line, as a module."""
    module = sys.modules[name] = ModuleType(name)
    for piece in cell["pieces"]:
        file, text = piece["file"], piece["text"]
        tree = ast.increment_lineno(ast.parse(text), piece["line"] - 1)
        exec(compile(tree, file, "exec", cell["flags"], dont_inherit=True), vars(module))  # noqa: S102 (code of the tool)
    return module


OUT_OF_MEMORY, NO_WALLS = 77, 78  # reasons in an exit report
EXIT_REPORT = struct.Struct("=II")  # pid, reason
_WAYS_OUT = {
    "BINARY_NOT_ALLOWED": "; to allow it, name it under `process` in the tool's capabilities and in the manifest",
}


class TooLong(Exception):
    """A result of more bytes than the limit."""


class ExitReporter:
    """Reports why a worker ends, over a pipe that is closed before its tool is loaded: a tool could report anything."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def exit(self, why: int) -> NoReturn:
        """End the process, and report why if the pipe is open."""
        if self.fd >= 0:
            os.write(self.fd, EXIT_REPORT.pack(os.getpid(), why))
        os._exit(why)

    def close(self) -> None:
        """Report nothing from now on."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def live(end: socket.socket, parent: int, fd: int, judge: socket.socket | None = None) -> NoReturn:
    """Run a worker in this process; does not return.

    At the other end of `judge` is the process that counts what this one makes in directories.
    """
    reporter = ExitReporter(fd)
    try:
        host = HostClient(end)
        spec = host.wire.receive().head
        printed, *files = host.wire.files(1 + spec["files"])
        _print_to(printed)
        try:
            wall_in(spec, {end.fileno(), fd, *files}, parent, judge)
        except (OSError, ValueError):
            reporter.exit(NO_WALLS)
        _Worker(host, spec, reporter, files).serve()
    except Closed:
        os._exit(0)
    except MemoryError:
        reporter.exit(OUT_OF_MEMORY)
    finally:
        os._exit(1)


class _Prints(io.RawIOBase):
    """A standard stream that never blocks: what does not fit into the pipe to the host is dropped."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            os.write(self._fd, data)
        return len(data)


def _print_to(pipe: int) -> None:
    """Send standard output and error to the host, for its operator."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(pipe, fd)
        stream = io.TextIOWrapper(_Prints(fd), "utf-8", "backslashreplace", line_buffering=True, write_through=True)  # type: ignore[type-var]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.close(pipe)


def wall_in(spec: Mapping[str, Any], keep: set[int], parent: int, judge: socket.socket | None = None) -> None:
    """Give up everything that the specification does not name, for good.

    Only a guest may lack walls, where the manifest permits it: what runs it confines it too.
    """
    os.setsid()
    scratch = spec["scratch"]
    os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = scratch
    try:
        os.chdir(spec["directory"] or scratch)
    except OSError:
        os.chdir(scratch)
    rules = [rule for path, access, identity in spec["rules"] for rule in _rule(path, access, identity)]
    rules.append(landlock.PathRule(scratch, landlock.READ | landlock.WRITE | landlock.DELETE))
    version, walls, limits = spec["landlock"], spec["walls"], hardening.Limits(**spec["limits"])
    ruleset = landlock.ruleset(rules, version=version) if "landlock" in walls else -1
    if "hardening" in walls:
        kept = {0, 1, 2, *keep, *({ruleset} if ruleset >= 0 else ()), *({judge.fileno()} if judge is not None else ())}
        hardening.harden(limits=limits, keep_fds=kept, parent=parent)
    else:
        hardening.limit(limits)
    if ruleset >= 0:
        landlock.restrict(ruleset)
        os.close(ruleset)
    if "seccomp" in walls:
        own_pid = None if version >= landlock.SIGNALS_SINCE else os.getpid()
        _filter(seccomp.program(own_pid=own_pid, abi=version, counts=judge is not None), judge)
    if judge is not None:
        judge.close()


def _filter(text: bytes, judge: socket.socket | None) -> None:
    """Install the filter, and give its listener away, if it has one."""
    if judge is None:
        seccomp.install(text)
        return
    listener = notifications.install(text)
    socket.send_fds(judge, [b"L"], [listener])
    os.close(listener)


def _rule(path: str, access: int, identity: list[int] | None) -> Iterator[landlock.PathRule]:
    """A rule for the file that the host checked; a file that has replaced it since then gets none."""
    if identity is None:
        yield landlock.PathRule(path, access)
        return
    with contextlib.suppress(OSError):  # a file that was removed needs no rule
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)  # `harden` closes it before the tool is loaded
        found = os.fstat(fd)
        if [found.st_dev, found.st_ino] == identity:
            yield landlock.PathRule(f"/proc/self/fd/{fd}", access)


class _Worker:
    def __init__(
        self, host: HostClient, spec: Mapping[str, Any], reporter: ExitReporter, files: Sequence[int] = ()
    ) -> None:
        self._host = host
        self._files = files
        self._reporter = reporter
        self._reserve = bytes(MEMORY_RESERVE)
        self._spec = spec
        self._context: str | None = spec["context"]
        self._wrong: dict[str, Any] | None = None
        cell = spec["cell"]["pieces"] if spec["cell"] is not None else ()
        self._own_files = {*(file for file, _ in spec["modules"].values()), *(piece["file"] for piece in cell)}
        self._runner: asyncio.Runner | None = None
        if spec["connects"]:
            shims.install_socket(self._connect)
        if spec["programs"] is not None:
            shims.install_subprocess(self._start, self._signal, spec["programs"])
        self._fn: Callable[..., Any] | None = None
        if not spec["late"]:
            self._load()

    def _load(self) -> None:
        spec = self._spec
        self._reporter.close()
        try:
            self._fn = load(spec) if spec["guest"] is None else load_guest(spec["guest"], self._files, self._host)
            if spec["async"]:
                self._runner = asyncio.Runner()
                self._runner.get_loop()
        except BaseException as error:
            self._reserve = b""
            self._wrong = {**described(error), **_stopped_at(error, spec["modules"])}
            _print_traceback(error, self._own_files)

    def _connect(self, host: str, port: int) -> int:
        """A connection that the host made."""
        return self._ask("connect", host=host, port=port).file()

    def _start(self, asked: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
        """Have the host start a program; returns its number and its pipes."""
        answer = self._ask("process.start", **asked)
        return answer.head["id"], answer.files

    def _signal(self, program: int, number: int) -> None:
        self._ask("process.signal", program=program, signal=number)

    def _ask(self, op: str, **fields: Any) -> HostReply:
        """Ask on behalf of a library, which expects an `OSError` for a refusal."""
        try:
            return self._host.ask_now(op, **fields)
        except Refused as refusal:
            if refusal.code == "BACKEND_MISSING":  # it is granted, but nothing is configured for it
                raise FileNotFoundError(errno.ENOENT, str(refusal)) from refusal
            raise PermissionError(errno.EACCES, f"{refusal}{_WAYS_OUT.get(refusal.code, '')}") from refusal
        except RuntimeError as no_call:
            raise PermissionError(errno.EACCES, str(no_call)) from no_call

    def serve(self) -> None:
        """Serve one call, or all that come with `reuse`."""
        wire = self._host.wire
        while True:
            frame = wire.receive()
            if "call" not in frame.head:  # a late answer to a question of an earlier call
                wire.drop(frame)
                continue
            if self._fn is None and self._wrong is None:  # no code of the tool has run yet
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
            _print_traceback(error, self._own_files)
            return {**described(error), "line": _line(error, self._fn)}, b""
        return {}, text

    @cached_property
    def _validate(self) -> Callable[[object], dict[str, Any]]:
        assert self._fn is not None  # noqa: S101
        return validator(self._fn, self._context)

    def _called(self, frame: Frame) -> Any:
        arguments = plain_data(frame.blob)
        if not frame.head["plain"]:  # models, dates, sets: validated again by the type hints of the tool
            arguments = self._validate(arguments)
        loop = self._runner.get_loop() if self._runner is not None else None
        self._host.begin(frame.head["call"], loop)
        if self._spec["guest"] is not None:
            self._fn.environment = frame.head["environment"]  # type: ignore[union-attr]
        if self._context is not None:
            context = RemoteContext(self._host, frame.head)
            arguments[self._context] = context if loop is not None else SyncHandle(context)
        try:
            fn, runner = self._fn, self._runner
            assert fn is not None  # noqa: S101
            return fn(**arguments) if runner is None else runner.run(_alone(fn, arguments))
        finally:
            self._host.finish()


def _bounded(text: bytes, most: int) -> bytes:
    if len(text) > most:
        raise TooLong(f"{len(text)} bytes of result, expected at most {most}")
    return text


async def _alone(fn: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run an async tool, and cancel the tasks that it left running."""
    try:
        return await fn(**arguments)
    finally:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def _stopped_at(error: BaseException, modules: Mapping[str, Sequence[str | None]]) -> dict[str, Any]:
    """Where loading stopped: the last line of a module of the tool that an exception came through."""
    names = {file: name for name, (file, _) in modules.items() if file is not None}
    found: dict[str, Any] = {"loading": "", "line": 0}
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename in names:
            found = {"loading": names[step.tb_frame.f_code.co_filename], "line": step.tb_lineno}
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.filename in names:
        found = {"loading": names[error.filename], "line": error.lineno}
    return found


def _line(error: BaseException, fn: Callable[..., Any] | None) -> int:
    """The last line of the tool's own file that an exception came through; 0 if there is none."""
    file, found, step = getattr(getattr(fn, "__code__", None), "co_filename", None), 0, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            found = step.tb_lineno
        step = step.tb_next
    return found


def _print_traceback(error: BaseException, own: Collection[str]) -> None:
    """Print the traceback of a tool's error, from the first frame in one of its own files."""
    with contextlib.suppress(Exception):  # `__str__` of a tool's exception may raise
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename not in own:
            step = step.tb_next
        traceback.print_exception(type(error), error, step or error.__traceback__, limit=-MOST_FRAMES)


def described(error: BaseException) -> dict[str, Any]:
    """An exception as JSON for the host: its type, text, errno, and the number of the refusal that it is."""
    text = ""
    with contextlib.suppress(Exception):  # `__str__` of a tool's exception may raise
        text = str(error)[:LONGEST_ERROR]
    text = text.encode("utf-8", "replace").decode()
    fields: dict[str, Any] = {"error": f"{type(error).__name__}"[:200], "text": text}
    if isinstance(error, OSError) and type(error.errno) is int:
        fields["errno"] = error.errno
    reason = vars(error).get("reason")
    if type(reason) is str:
        fields["reason"] = reason[:LONGEST_ERROR]
    printed = vars(error).get("printed")
    if type(printed) is str:
        fields["printed"] = printed[-LONGEST_ERROR:].encode("utf-8", "replace").decode()
    number = vars(error).get("licet_number")
    if type(number) is int:
        fields["refused"] = number
    return fields
