"""What a child can ask for, by name, and the handle of the call that each question goes to.

A question that is not in these tables does not exist. Fields are passed on one by one: a child cannot name an
argument that is not here.
"""

import asyncio
import io
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import astuple
from typing import IO, Any, NamedTuple

from licet.guard.bind import BoundContext
from licet.guard.execution import JsonText, Streams
from licet.guard.handles.kv import ScopedKv
from licet.guard.meter import Exceeded, Meter
from licet.sandbox.bridge.outbox import packed_names
from licet.sandbox.bridge.programs import Programs
from licet.sandbox.connect import connect
from licet.sandbox.workers.wire import FROM_A_CHILD, BrokenWire, Overrun

_UNFIT = object()  # stands for what a child could not put into JSON; handles refuse it in their own words
Head = Mapping[str, Any]
MOST_PIECES = 32  # of one stream that are asked for and have not come; a child of ours waits for each


class Answered(NamedTuple):
    """An answer: fields, bytes, and files that are closed once they are sent."""

    head: dict[str, Any]
    blob: bytes = b""
    files: tuple[int, ...] = ()


Act = Callable[[int, Head, bytes], Awaitable[Answered | None]]


class Mirrors:
    """Files of a backend that has no open files of the system: the child gets a copy, which is put back as it changes.

    For memory twins alone; what is written arrives before the next question is answered, and when the call ends.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._kept: list[tuple[IO[bytes], int, bytes]] = []

    def copy(self, file: IO[bytes], writable: bool) -> int:
        """A file of the system with the same content."""
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
        """Put back what was changed."""
        for index, (file, fd, before) in enumerate(self._kept):
            size = os.fstat(fd).st_size
            if size > FROM_A_CHILD.blob:
                raise BrokenWire(f"a file of {size} bytes, expected at most {FROM_A_CHILD.blob}")
            now = os.pread(fd, size, 0)
            if now != before:
                file.seek(0)
                file.truncate()
                file.write(now)
                file.flush()
                self._kept[index] = (file, fd, now)

    def finish(self) -> None:
        """Put everything back for the last time."""
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
        programs: Programs,
        answer: Callable[[int, Answered], Awaitable[None]],
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

    def find(self, op: object) -> Act:
        """What a question asks for; `BrokenWire` if it is nothing."""
        name = _LATER.get(op) if isinstance(op, str) else None
        if name is None:
            raise BrokenWire("a question that does not exist")
        act: Act = getattr(self, name)
        return act

    # Files -----------------------------------------------------------------------------------------------------------

    async def fs_read(self, _: int, head: Head, blob: bytes) -> Answered:
        """The bytes of a file."""
        return Answered({}, await self.context.fs.read_bytes(_of(head, "path"), head.get("limit")))

    async def fs_write(self, _: int, head: Head, blob: bytes) -> Answered:
        """Replace a file."""
        await self.context.fs.write(_of(head, "path"), blob)
        return Answered({})

    async def fs_exists(self, _: int, head: Head, blob: bytes) -> Answered:
        """Whether a path is something."""
        return Answered({"value": await self.context.fs.exists(_of(head, "path"))})

    async def fs_stat(self, _: int, head: Head, blob: bytes) -> Answered:
        """What a path is."""
        return Answered({"value": astuple(await self.context.fs.stat(_of(head, "path")))})

    async def fs_list(self, number: int, head: Head, blob: bytes) -> None:
        """The names in a directory."""
        await self._list(number, self.context.fs.list, _of(head, "path"))

    async def fs_mkdir(self, _: int, head: Head, blob: bytes) -> Answered:
        """Make a directory."""
        await self.context.fs.mkdir(_of(head, "path"))
        return Answered({})

    async def fs_delete(self, _: int, head: Head, blob: bytes) -> Answered:
        """Remove something."""
        await self.context.fs.delete(_of(head, "path"))
        return Answered({})

    async def fs_rename(self, _: int, head: Head, blob: bytes) -> Answered:
        """Move something."""
        await self.context.fs.rename(_of(head, "source"), _of(head, "target"))
        return Answered({})

    async def fs_open(self, _: int, head: Head, blob: bytes) -> Answered:
        """An open file, which then belongs to the child."""
        mode = _of(head, "mode")
        file = await self.context.fs.open(_of(head, "path"), mode.replace("b", "", 1) + "b")
        try:
            fd = os.dup(file.fileno())
        except io.UnsupportedOperation:
            return Answered({}, files=(self._mirrors.copy(file, file.writable()),))
        file.close()
        return Answered({}, files=(fd,))

    # Network ---------------------------------------------------------------------------------------------------------

    async def fetch(self, _: int, head: Head, blob: bytes) -> Answered:
        """A request and its whole answer."""
        answer = await self.context.fetch(*_where(head), **self._options(head, blob))
        return Answered({"status": answer.status, "url": answer.url, "headers": answer.headers.pairs}, answer.content)

    async def stream_open(self, number: int, head: Head, blob: bytes) -> Answered | None:
        """A request whose body is asked for in pieces. One task from start to end: its clock demands it."""
        asked = number
        wanted: asyncio.Queue[int | None] = asyncio.Queue()
        try:
            async with self.context.fetch.stream(*_where(head), **self._options(head, blob)) as answer:
                self._streams[number] = wanted
                told = {"stream": number, "status": answer.status, "url": answer.url, "headers": answer.headers.pairs}
                await self._answer(number, Answered(told))
                pieces = aiter(answer)
                while (following := await wanted.get()) is not None:
                    asked = following
                    piece = await anext(pieces, None)
                    await self._answer(asked, Answered({"done": piece is None}, piece or b""))
        except Exception as error:
            raise _At(asked, error) from error
        finally:
            self._streams.pop(number, None)
        return None

    async def stream_next(self, number: int, head: Head, blob: bytes) -> Answered | None:
        """The next piece; the task of the stream answers."""
        wanted = self._stream(head)
        if wanted.qsize() >= MOST_PIECES:
            raise BrokenWire("more pieces of a stream than anybody waits for")
        wanted.put_nowait(number)
        return None

    async def stream_close(self, _: int, head: Head, blob: bytes) -> Answered:
        """The end of a stream, read to its end or not; closing one that has failed is fine."""
        wanted = self._streams.pop(_of(head, "stream", int), None)
        if wanted is not None:
            wanted.put_nowait(None)
        return Answered({})

    def _stream(self, head: Head) -> "asyncio.Queue[int | None]":
        wanted = self._streams.get(_of(head, "stream", int))
        if wanted is None:
            raise RuntimeError("the answer is closed: read it inside `async with`")
        return wanted

    async def connect(self, _: int, head: Head, blob: bytes) -> Answered:
        """A connection that nobody mediates, where the level has direct access at all."""
        self._needs_direct()
        made = await connect(self.context._holding, self.context._ports.http, _of(head, "host"), _of(head, "port", int))
        return Answered({}, files=(made.detach(),))

    def _options(self, head: Head, blob: bytes) -> dict[str, Any]:
        if type(headers := head.get("headers")) is int:  # too many to be sent here: only their number came
            try:
                self.context._holding.meter.check_headers(headers)
            except Exceeded as over:
                self.context._holding.exceeded(over)
        return _options(head, blob)

    def _needs_direct(self) -> None:
        if not self._direct:
            raise BrokenWire("what libraries do by themselves is no question at this level")

    # Secrets, storage, programs --------------------------------------------------------------------------------------

    async def secrets_get(self, _: int, head: Head, blob: bytes) -> Answered:
        """The value of a secret."""
        return Answered({"value": await self.context.secrets.get(_of(head, "reference"))})

    def _kv(self, head: Head) -> ScopedKv:
        kind = head.get("kind")
        return self.context.kv if kind is None else self.context.kv.of(kind)

    async def kv_get(self, _: int, head: Head, blob: bytes) -> Answered:
        """A value."""
        return Answered({"value": await self._kv(head).get(head.get("key"))})  # type: ignore[arg-type]

    async def kv_set(self, _: int, head: Head, blob: bytes) -> Answered:
        """Keep a value."""
        kv = self._kv(head)
        kv.check_text(blob)
        await kv.set(head.get("key"), _value(blob), head.get("ttl_seconds"))  # type: ignore[arg-type]
        return Answered({})

    async def kv_delete(self, _: int, head: Head, blob: bytes) -> Answered:
        """Forget a value."""
        return Answered({"value": await self._kv(head).delete(head.get("key"))})  # type: ignore[arg-type]

    async def kv_list(self, number: int, head: Head, blob: bytes) -> None:
        """Keys."""
        await self._list(number, self._kv(head).list, head.get("prefix"))

    async def _list(self, number: int, names: Callable[[Any], Awaitable[list[str]]], of: Any) -> None:
        """Answer with a list. A call has one at a time, from when it is looked up until it is being sent."""
        holding = self.context._holding
        async with self._listing:
            try:
                data = await packed_names(await names(of), holding.meter)
            except Exceeded as over:
                holding.exceeded(over)
            await self._answer(number, Answered({}, data))

    async def process_spawn(self, _: int, head: Head, blob: bytes) -> Answered:
        """Run a program."""
        names = ("env", "cwd", "timeout")
        ended = await self.context.process.spawn(
            _of(head, "name"), _of(head, "args", list), blob, **{name: head.get(name) for name in names}
        )
        fields = ("exit_code", "truncated", "timed_out", "reason")
        told: dict[str, Any] = {name: getattr(ended, name) for name in fields}
        told["stdout"] = len(ended.stdout_bytes)
        return Answered(told, ended.stdout_bytes + ended.stderr_bytes)

    async def process_start(self, number: int, head: Head, blob: bytes) -> Answered:
        """Start a program, and hand over the pipes to talk to it; by the number of this question it is known."""
        self._needs_direct()
        streams = Streams(*(_of(head, name, bool) for name in Streams._fields))
        name, args = _of(head, "name"), _of(head, "args", list)
        files = await self._programs.start(number, name, args, streams, head.get("env"), head.get("cwd"))
        return Answered({}, files=files)

    # What needs no waiting -------------------------------------------------------------------------------------------

    def process_signal(self, head: Head) -> Answered:
        """Send a signal to a program that was started here."""
        self._needs_direct()
        self._programs.signal(_of(head, "program", int), _of(head, "signal", int))
        return Answered({})

    def secrets_ref(self, head: Head) -> Answered:
        """A text that stands for a secret."""
        return Answered({"value": self.context.secrets.ref(_of(head, "reference"))})

    def kv_of(self, head: Head) -> Answered:
        """Whether there is a store of a kind."""
        self.context.kv.of(_of(head, "kind"))
        return Answered({})

    def env_get(self, head: Head) -> Answered:
        """A variable."""
        return Answered({"value": self.context.env.get(_of(head, "name"))})

    def charge(self, head: Head) -> Answered:
        """Money."""
        self.context.charge(_of(head, "amount"))
        return Answered({})


class _At(Exception):
    """What went wrong in answering another question than the one that started the task."""

    def __init__(self, number: int, error: Exception) -> None:
        self.number, self.error = number, error
        super().__init__(str(error))


def at(number: int, error: Exception) -> tuple[int, Exception]:
    """The question that an error answers, and the error itself."""
    return (error.number, error.error) if isinstance(error, _At) else (number, error)


def _of(head: Head, name: str, kind: type = str) -> Any:
    value = head.get(name)
    if type(value) is not kind:
        raise BrokenWire(f"a question without `{name}`")
    return value


def _where(head: Head) -> tuple[Any, Any]:
    return head.get("url"), head.get("method")


def _options(head: Head, blob: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("timeout", "max_bytes"):
        value = head.get(name)
        found[name] = _UNFIT if value is False else value
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


_LATER = {
    **{f"fs.{name}": f"fs_{name}" for name in ("read", "write", "exists", "stat", "list", "mkdir", "delete")},
    **{f"kv.{name}": f"kv_{name}" for name in ("get", "set", "delete", "list")},
    **{f"stream.{name}": f"stream_{name}" for name in ("open", "next", "close")},
    "fs.rename": "fs_rename",
    "fs.open": "fs_open",
    "fetch": "fetch",
    "secrets.get": "secrets_get",
    "process.spawn": "process_spawn",
    "process.start": "process_start",
    "connect": "connect",
}
NOW: dict[object, Callable[[Operations, Head], Answered]] = {
    "secrets.ref": Operations.secrets_ref,
    "kv.of": Operations.kv_of,
    "env.get": Operations.env_get,
    "charge": Operations.charge,
    "process.signal": Operations.process_signal,
}
