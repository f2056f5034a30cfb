"""The questions that a worker can ask, by name, and the handle of the call that answers each.

`OPERATIONS` of `declare/context.py` lists most of them. Those that need more than a method with its arguments are
written out here, as are those of programs and connections. Another name is refused. Fields are passed on one by one, so
a worker cannot name another argument of a handle.

Programs that a library in a walled tool starts with `subprocess`: the host starts them, behind walls of their own.

They are checked like programs of `ctx.process`. The worker gets pipes that the host made, and one more pipe for the
exit code; no open file of the worker is passed to a program. Output is copied without the secrets that were placed for
the program. At most one piece of output is buffered: a tool that does not read blocks the program, as with a pipe.
"""

import asyncio
import errno
import io
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import IO, Any

from msgspec import Struct
from msgspec.structs import astuple

from licet.declare.context import OPERATIONS, Operation, method_of
from licet.guard.bind import BoundContext, parts_of
from licet.guard.execution import JsonText, Running, Streams
from licet.guard.handles.processes import started as started_program
from licet.guard.handles.secrets_and_kv import ScopedKv
from licet.guard.meter import Exceeded, Meter
from licet.guard.redaction.redact import Redactor, in_turn
from licet.sandbox.bridge.wire import FROM_WORKER, BrokenWire, Overrun, packed_names
from licet.sandbox.limits import MOST_PIECES, MOST_RUNNING
from licet.sandbox.programs.proxy import connect
from licet.sandbox.streams import Gone, Sink, Source, pipe_sink, pipe_source


def start_redacted_copy(source: int, sink: int, redactor: Redactor) -> "asyncio.Task[None]":
    """Copy one pipe into another until one of them ends; both are closed when the task ends."""
    came, going = pipe_source(source), pipe_sink(sink)

    def close(_: "asyncio.Task[None]") -> None:  # also if the task is cancelled before it starts
        came.close()
        going.close()

    task = asyncio.ensure_future(_copy(came, going, redactor))
    task.add_done_callback(close)
    return task


async def _copy(source: Source, sink: Sink, redactor: Redactor) -> None:
    stream = redactor.stream()
    with suppress(Gone):  # the program notices when its own pipe is closed
        while piece := await source.read():
            await sink.write(await in_turn(stream.work(piece)))
            await sink.flushed()
        await sink.write(stream.finish())
        await sink.flushed()


# SIGSTOP would stop the process that waits for the program inside the walls, and not the program.
_SENT = signal.valid_signals() - {signal.SIGSTOP} if hasattr(signal, "SIGSTOP") else set()


class CallPrograms:
    """The programs that one call has started; they end with it at the latest."""

    def __init__(self, context: BoundContext) -> None:
        self._context = context
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running: dict[int, Running] = {}
        self._copying: set[asyncio.Task[None]] = set()  # copies of output that was not read yet

    async def start(
        self, number: int, name: str, args: list[Any], streams: Streams, env: Mapping[str, str] | None, cwd: str | None
    ) -> tuple[int, ...]:
        """Start one. Returns our ends of its streams, and of the pipe for its exit code, when it runs."""
        if len(self._tasks) >= MOST_RUNNING:
            raise BlockingIOError(errno.EAGAIN, f"{MOST_RUNNING} programs of this call are running already")
        started: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._tasks[number] = asyncio.ensure_future(self._live(number, (name, args, streams, env, cwd), started))
        try:
            return await started
        except asyncio.CancelledError:
            if started.done() and not started.cancelled():  # the files of a question that was cancelled
                for file in started.result():
                    os.close(file)
            raise

    async def _live(self, number: int, asked: tuple[Any, ...], started: "asyncio.Future[tuple[int, ...]]") -> None:
        """The task of one program; the program ends with it."""
        writing, code, text = -1, 0, ""
        try:
            async with started_program(self._context.process, *asked) as running:
                if started.cancelled():
                    return
                reading, writing = os.pipe()
                started.set_result((*self._redacted(running, asked[2]), reading))
                self._running[number] = running
                try:
                    code = await running.ended()
                finally:
                    del self._running[number]
            text = str(code)  # only here: an exit that could not be recorded is not reported
        except Exception as wrong:
            if not started.done():
                started.set_exception(wrong)
        finally:
            del self._tasks[number]
            if writing != -1:  # an empty pipe means that the program was killed
                with suppress(OSError):  # the worker may be gone
                    os.write(writing, text.encode())
                os.close(writing)

    def _redacted(self, running: Running, streams: Streams) -> tuple[int, ...]:
        """Our ends of the streams. Output may hold secrets that were placed for the program, so it is redacted."""
        files = running.handed()
        if not any(rule.domain == "secret" for rule in parts_of(self._context).grant.capabilities.allow):
            return files
        given = []
        for index, file in enumerate(files):
            if streams.stdin and not index:
                given.append(file)
                continue
            near, far = os.pipe()
            task = start_redacted_copy(file, far, self._context.secrets.placed)
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)
            given.append(near)
        return tuple(given)

    def signal(self, number: int, which: int) -> None:
        """Send a signal to a program of this call, and to nothing else."""
        if which not in _SENT:
            raise OSError(errno.EINVAL, "this signal cannot be sent to a program behind walls")
        running = self._running.get(number)
        if running is None:
            raise ProcessLookupError(errno.ESRCH, "the program has ended")
        running.signal(which)

    async def finish(self) -> None:
        """End all programs of the call."""
        tasks = (*self._tasks.values(), *self._copying)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


_UNFIT = object()  # for a value that was not JSON; handles refuse it with their own message
Head = Mapping[str, Any]


class OperationReply(Struct, frozen=True):
    """An answer: fields, bytes, and files that are closed once they are sent."""

    head: dict[str, Any]
    blob: bytes = b""
    files: tuple[int, ...] = ()


Act = Callable[[int, Head, bytes], Awaitable[OperationReply | None]]


class Mirrors:
    """Copies of files of a memory backend, which has no file descriptors. The worker gets the copy.

    Changes are written back before the next question is answered, and when the call ends.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._kept: list[tuple[IO[bytes], int, bytes]] = []

    def copy(self, file: IO[bytes], writable: bool) -> int:
        """A file descriptor of a copy."""
        place = file.tell()
        file.seek(0)
        content = file.read() if file.readable() else b""
        fd = os.memfd_create("mirror", os.MFD_CLOEXEC)
        with open(os.dup(fd), "r+b") as whole:
            whole.write(content)
        os.lseek(fd, place, os.SEEK_SET)
        if writable:
            try:
                self._meter.take_files(1)
            except Exceeded as over:
                os.close(fd)
                raise Overrun(over.reason, str(over)) from None
            self._kept.append((file, os.dup(fd), content))
        else:
            file.close()
        return fd

    def update(self) -> None:
        """Write changes back."""
        for index, (file, fd, before) in enumerate(self._kept):
            size = os.fstat(fd).st_size
            if size > FROM_WORKER.blob:
                raise BrokenWire(f"a file of {size} bytes, expected at most {FROM_WORKER.blob}")
            now = os.pread(fd, size, 0)
            if now != before:
                file.seek(0)
                file.truncate()
                file.write(now)
                file.flush()
                self._kept[index] = (file, fd, now)

    def finish(self) -> None:
        """Write changes back, and close all copies."""
        try:
            self.update()
        finally:
            for file, fd, _ in self._kept:
                file.close()
                os.close(fd)
            self._kept.clear()


class Operations:
    """The questions of one call."""

    def __init__(
        self,
        context: BoundContext,
        mirrors: Mirrors,
        programs: CallPrograms,
        answer: Callable[[int, OperationReply], Awaitable[None]],
        *,
        direct: bool,
    ) -> None:
        self.context = context
        self._direct = direct
        self._mirrors = mirrors
        self._programs = programs
        self._answer = answer
        self._streams: dict[int, asyncio.Queue[int | None]] = {}
        self._listing = asyncio.Lock()

    def find(self, op: str) -> Act:
        """What answers a question. Raises `BrokenWire` if nothing does."""
        if op in _WRITTEN_OUT:
            return partial(_WRITTEN_OUT[op], self)
        operation = OPERATIONS.get(op)
        if operation is None:
            raise BrokenWire("a question with an unknown name")
        return partial(self._ask, operation)

    async def _ask(self, operation: Operation, _: int, head: Head, blob: bytes) -> OperationReply:
        """Ask the handle that the list of operations names."""
        value: Any = method_of(self.context, operation, head.get("kind"))(*_arguments(operation, head))
        return _reply(operation, await value)

    def answer_now(self, op: str, head: Head) -> OperationReply:
        """The answer to a question of `NOW`."""
        if op in _WRITTEN_OUT_NOW:
            return _WRITTEN_OUT_NOW[op](self, head)
        operation = OPERATIONS[op]
        return _reply(operation, method_of(self.context, operation, None)(*_arguments(operation, head)))

    # Files -----------------------------------------------------------------------------------------------------------

    async def fs_write(self, _: int, head: Head, blob: bytes) -> OperationReply:
        await self.context.fs.write(_of(head, "path"), blob)
        return OperationReply({})

    async def fs_stat(self, _: int, head: Head, blob: bytes) -> OperationReply:
        return OperationReply({"value": astuple(await self.context.fs.stat(_of(head, "path")))})

    async def fs_list(self, number: int, head: Head, blob: bytes) -> None:
        await self._list(number, self.context.fs.list, _of(head, "path"))

    async def fs_open(self, _: int, head: Head, blob: bytes) -> OperationReply:
        """Open a file and pass it to the worker."""
        mode = _of(head, "mode")
        file = await self.context.fs.open(_of(head, "path"), mode.replace("b", "", 1) + "b")
        try:
            fd = os.dup(file.fileno())
        except io.UnsupportedOperation:
            return OperationReply({}, files=(self._mirrors.copy(file, file.writable()),))
        file.close()
        return OperationReply({}, files=(fd,))

    # Network ---------------------------------------------------------------------------------------------------------

    async def fetch(self, _: int, head: Head, blob: bytes) -> OperationReply:
        """Send a request and read the complete response."""
        answer = await self.context.fetch(*_where(head), **self._options(head, blob))
        return OperationReply(
            {"status": answer.status, "url": answer.url, "headers": answer.headers.pairs}, answer.content
        )

    async def stream_open(self, number: int, head: Head, blob: bytes) -> OperationReply | None:
        """A request whose body is read in pieces, all in one task: a deadline belongs to a task."""
        asked = number
        wanted: asyncio.Queue[int | None] = asyncio.Queue()
        try:
            async with self.context.fetch.stream(*_where(head), **self._options(head, blob)) as answer:
                self._streams[number] = wanted
                opened = {"stream": number, "status": answer.status, "url": answer.url, "headers": answer.headers.pairs}
                await self._answer(number, OperationReply(opened))
                pieces = aiter(answer)
                while (following := await wanted.get()) is not None:
                    asked = following
                    piece = await anext(pieces, None)
                    await self._answer(asked, OperationReply({"done": piece is None}, piece or b""))
        except Exception as error:
            raise _At(asked, error) from error
        finally:
            self._streams.pop(number, None)
        return None

    async def stream_next(self, number: int, head: Head, blob: bytes) -> OperationReply | None:
        """Ask for the next piece; the task of the stream answers."""
        wanted = self._stream(head)
        if wanted.qsize() >= MOST_PIECES:
            raise BrokenWire("too many pieces of a stream were asked for at once")
        wanted.put_nowait(number)
        return None

    async def stream_close(self, _: int, head: Head, blob: bytes) -> OperationReply:
        """Close a stream, whether it was read to its end, failed, or neither."""
        wanted = self._streams.pop(_of(head, "stream", int), None)
        if wanted is not None:
            wanted.put_nowait(None)
        return OperationReply({})

    def _stream(self, head: Head) -> "asyncio.Queue[int | None]":
        wanted = self._streams.get(_of(head, "stream", int))
        if wanted is None:
            raise RuntimeError("the answer is closed: read it inside `async with`")
        return wanted

    async def connect(self, _: int, head: Head, blob: bytes) -> OperationReply:
        """Connect to a host, and pass the socket to the worker; only at a level with direct access."""
        self._needs_direct()
        parts = parts_of(self.context)
        made = await connect(parts.grant, parts.ports.http, _of(head, "host"), _of(head, "port", int))
        return OperationReply({}, files=(made.detach(),))

    def _options(self, head: Head, blob: bytes) -> dict[str, Any]:
        if type(headers := head.get("headers")) is int:  # there were too many: the worker sent their number
            try:
                parts_of(self.context).grant.meter.check_headers(headers)
            except Exceeded as over:
                parts_of(self.context).grant.exceeded(over)
        return _options(head, blob)

    def _needs_direct(self) -> None:
        if not self._direct:
            raise BrokenWire("a question that exists at the level `isolated` only")

    # Storage, programs -----------------------------------------------------------------------------------------------

    def _kv(self, head: Head) -> ScopedKv:
        kind = head.get("kind")
        return self.context.kv if kind is None else self.context.kv.of(kind)

    async def kv_set(self, _: int, head: Head, blob: bytes) -> OperationReply:
        kv = self._kv(head)
        kv.check_text(blob)
        await kv.set(head.get("key"), _value(blob), head.get("ttl_seconds"))  # type: ignore[arg-type]
        return OperationReply({})

    async def kv_list(self, number: int, head: Head, blob: bytes) -> None:
        await self._list(number, self._kv(head).list, head.get("prefix"))

    async def _list(self, number: int, names: Callable[[Any], Awaitable[list[str]]], of: object) -> None:
        """Answer with a list. A call has one list in memory at a time."""
        grant = parts_of(self.context).grant
        async with self._listing:
            try:
                data = await packed_names(await names(of), grant.meter)
            except Exceeded as over:
                grant.exceeded(over)
            await self._answer(number, OperationReply({}, data))

    async def process_spawn(self, _: int, head: Head, blob: bytes) -> OperationReply:
        names = ("env", "cwd", "timeout")
        ended = await self.context.process.spawn(
            _of(head, "name"), _of(head, "args", list), blob, **{name: head.get(name) for name in names}
        )
        fields = ("exit_code", "truncated", "timed_out", "reason")
        summary: dict[str, Any] = {name: getattr(ended, name) for name in fields}
        summary["stdout"] = len(ended.stdout_bytes)
        return OperationReply(summary, ended.stdout_bytes + ended.stderr_bytes)

    async def process_start(self, number: int, head: Head, blob: bytes) -> OperationReply:
        """Start a program, and pass its pipes to the worker; the question's number becomes the program's."""
        self._needs_direct()
        streams = Streams(*(_of(head, name, bool) for name in Streams.__struct_fields__))
        name, args = _of(head, "name"), _of(head, "args", list)
        files = await self._programs.start(number, name, args, streams, head.get("env"), head.get("cwd"))
        return OperationReply({}, files=files)

    # Answered at once -------------------------------------------------------------------------------------------------

    def process_signal(self, head: Head) -> OperationReply:
        """Send a signal to a program that this call started."""
        self._needs_direct()
        self._programs.signal(_of(head, "program", int), _of(head, "signal", int))
        return OperationReply({})

    def kv_of(self, head: Head) -> OperationReply:
        self.context.kv.of(_of(head, "kind"))
        return OperationReply({})


class _At(Exception):
    """An error that answers another question than the one that started the task."""

    def __init__(self, number: int, error: Exception) -> None:
        self.number, self.error = number, error
        super().__init__(str(error))


def at(number: int, error: Exception) -> tuple[int, Exception]:
    """The number of the question that an error answers, and the error."""
    return (error.number, error.error) if isinstance(error, _At) else (number, error)


def _of(head: Head, name: str, kind: type = str) -> Any:
    value = head.get(name)
    if type(value) is not kind:
        raise BrokenWire(f"a question without `{name}`")
    return value


def _arguments(operation: Operation, head: Head) -> list[object]:
    texts = [_of(head, name) for name in operation.texts]
    return texts + [head.get(name) for name in (*operation.values, *operation.optional)]


def _reply(operation: Operation, found: object) -> OperationReply:
    if operation.result == "value":
        return OperationReply({"value": found})
    return OperationReply({}, found if isinstance(found, bytes) else b"")


def _where(head: Head) -> tuple[Any, Any]:
    return head.get("url"), head.get("method")


def _options(head: Head, blob: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("timeout", "max_bytes"):
        value = head.get(name)
        found[name] = _UNFIT if value is False else value
    found["redirects"] = head.get("redirects", True)
    headers = head.get("headers")
    found["headers"] = _UNFIT if isinstance(headers, int) else headers
    if head.get("json") is not None:
        found["json"] = JsonText(blob) if head["json"] else _UNFIT
    match head.get("body"):
        case None:
            pass
        case "text":
            found["body"] = blob.decode("utf-8", "surrogatepass")
        case "bytes":
            found["body"] = blob
        case _:
            found["body"] = _UNFIT
    return found


def _value(blob: bytes) -> Any:
    try:
        return json.loads(blob)
    except (ValueError, RecursionError):
        return _UNFIT


_WRITTEN_OUT: Mapping[str, Callable[[Operations, int, Head, bytes], Awaitable[OperationReply | None]]] = {
    "fs.write": Operations.fs_write,
    "fs.stat": Operations.fs_stat,
    "fs.list": Operations.fs_list,
    "fs.open": Operations.fs_open,
    "fetch": Operations.fetch,
    "stream.open": Operations.stream_open,
    "stream.next": Operations.stream_next,
    "stream.close": Operations.stream_close,
    "kv.set": Operations.kv_set,
    "kv.list": Operations.kv_list,
    "process.spawn": Operations.process_spawn,
    "process.start": Operations.process_start,
    "connect": Operations.connect,
}
_WRITTEN_OUT_NOW: Mapping[str, Callable[[Operations, Head], OperationReply]] = {
    "kv.of": Operations.kv_of,
    "process.signal": Operations.process_signal,
}
NOW = {*_WRITTEN_OUT_NOW, *(name for name, operation in OPERATIONS.items() if operation.at_once)}  # answered at once
