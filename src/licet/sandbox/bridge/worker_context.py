"""The `ctx` of a tool behind a wall: the same handles as at `native`, each of which asks the host.

Nothing is decided here, and the host trusts nothing from here: a tool that bypasses these classes finds a socket, and
what it sends there is checked like every question. The methods are async; `SyncHandle` makes them blocking for tools
that are plain functions.

The worker's connection to the host: numbered questions, answers in any order, refusals as exceptions.

One thread of a tool may ask from an event loop, and others may block for answers. While a question is sent, answers are
received, so that two large messages cannot block each other.
"""

import asyncio
import builtins
import contextlib
import io
import json as json_text
import os
import select
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from math import inf
from typing import Any

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground, Request
from licet.declare.context import Json, Path
from licet.errors import Refused
from licet.guard.execution import Finished
from licet.guard.handles.messages import Headers, Response
from licet.guard.ports import Stat
from licet.sandbox.bridge.wire import FROM_HOST, Closed, Frame, Wire, names_in, packed
from licet.sandbox.limits import LARGEST_NUMBER, MOST_ASKED_AT_ONCE, MOST_SENT_HEADERS


class HostReply:
    """The host's answer to one question."""

    __slots__ = ("blob", "files", "head")

    def __init__(self, head: dict[str, Any], blob: bytes, files: tuple[int, ...]) -> None:
        self.head, self.blob, self.files = head, blob, files

    def file(self) -> int:
        """The only file of the answer."""
        (found,) = self.files
        return found


class HostClient:
    """The worker's end of the wire during a call."""

    def __init__(self, end: socket.socket) -> None:
        self.wire = Wire(end, FROM_HOST)
        self.call = 0
        self._next = 0
        self._answers: dict[int, HostReply] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room: asyncio.Semaphore | None = None
        self._thread = 0
        self._reading = False

    def begin(self, call: int, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start a call; with a loop, answers are received by it."""
        self.call, self._loop, self._thread = call, loop, threading.get_ident()
        self._answers, self._waiting = {}, {}
        self._room = asyncio.Semaphore(MOST_ASKED_AT_ONCE) if loop is not None else None
        self._reading = False

    def finish(self) -> None:
        """End the call: tasks that the tool left running get no answers."""
        self.call = 0
        if self._loop is not None and self._reading:
            self._loop.remove_reader(self.wire.socket)

    async def ask(self, op: str, blob: bytes = b"", **fields: object) -> HostReply:
        """Ask, and wait for the answer: in the loop if there is one, otherwise by blocking."""
        if self._loop is None or self._room is None:
            return self.ask_now(op, blob, **fields)
        if not self._reading:
            self._loop.add_reader(self.wire.socket, self._taken_in)
            self._reading = True
        async with self._room:
            number = self._sent(op, blob, fields)
            if number not in self._answers:
                arrived = self._waiting[number] = self._loop.create_future()
                await arrived
            return _checked(self._answers.pop(number))

    def ask_now(self, op: str, blob: bytes = b"", **fields: object) -> HostReply:
        """Ask, and block until the answer is there."""
        if not self.call:
            raise RuntimeError("no call is running, so the host cannot be asked")
        with self._lock:
            number = self._sent(op, blob, fields)
            while number not in self._answers:
                self._take()
            return _checked(self._answers.pop(number))

    def _sent(self, op: str, blob: bytes, fields: Mapping[str, object]) -> int:
        with self._lock:
            number = self._next = self._next + 1
            data = memoryview(packed({**fields, "op": op, "id": number, "call": self.call}, blob))
            end = self.wire.socket
            while data:
                try:
                    data = data[end.send(data, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(end, select.POLLIN | select.POLLOUT)
                    if any(event & select.POLLIN for _, event in poll.poll()):
                        self._take()
            return number

    def _taken_in(self) -> None:
        # Another thread that blocks for its own answer receives this one too.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._take()
        except Closed:  # the host has ended the call
            raise SystemExit from None
        finally:
            self._lock.release()

    def _take(self) -> None:
        self.wire.take()
        for frame in self.wire.frames():
            number = frame.head["id"]
            self._answers[number] = self._whole(frame)
            waiting = self._waiting.pop(number, None)
            if waiting is None:
                continue
            if threading.get_ident() == self._thread:
                _arrived(waiting)
            elif self._loop is not None:
                self._loop.call_soon_threadsafe(_arrived, waiting)

    def _whole(self, frame: Frame) -> HostReply:
        """An answer with its files; an error if this process may not open so many."""
        count = frame.head.get("files", 0)
        try:
            files = self.wire.files(count) if count else ()
        except OSError as wrong:
            return HostReply({"error": "OSError", "errno": wrong.errno, "text": wrong.strerror, "paths": ()}, b"", ())
        return HostReply(frame.head, frame.blob, files)


def _arrived(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def _checked(answer: HostReply) -> HostReply:
    head = answer.head
    if "refused" in head:
        raise _refused(head)
    if "error" in head:
        raise _error(head)
    return answer


def _refused(head: Mapping[str, Any]) -> Refused:
    """A refusal with the host's code and text. The rules behind it are not sent: they are for the operator."""
    use = None
    with contextlib.suppress(InvalidUse):
        use = Use(head["use"]) if head["use"] else None
    refusal = Refused(Deny(Request(head["tool"]), (Ground(head["code"], head["text"]),), use))
    refusal.code = head["code"]
    refusal.args = (head["text"],)
    vars(refusal)["licet_number"] = head["refused"]  # the host recognizes it by this number if the tool lets it through
    return refusal


_KNOWN: dict[str, Callable[..., BaseException]] = {
    name: kind
    for name in (
        "TypeError",
        "ValueError",
        "KeyError",
        "LookupError",
        "RuntimeError",
        "TimeoutError",
        "NotImplementedError",
    )
    if isinstance(kind := getattr(builtins, name), type)
}


def _error(head: Mapping[str, Any]) -> BaseException:
    if head.get("errno") is not None:
        first, second = (*head["paths"], None, None)[:2]
        return OSError(head["errno"], head["text"], first, None, second)
    kind = _KNOWN.get(head["error"])
    return kind(head["text"]) if kind else RuntimeError(f"{head['error']}: {head['text']}")


def _path(path: Path) -> str:
    return os.fsdecode(path)


class RemoteFiles:
    """`ctx.fs` behind a wall."""

    __slots__ = ("_host",)

    def __init__(self, host: HostClient) -> None:
        self._host = host

    async def read(self, path: Path, limit: int | None = None) -> str:
        return (await self.read_bytes(path, limit)).decode()

    async def read_bytes(self, path: Path, limit: int | None = None) -> bytes:
        return (await self._host.ask("fs.read", path=_path(path), limit=limit)).blob

    async def write(self, path: Path, data: str | bytes) -> None:
        if isinstance(data, str):
            content = str.encode(data)
        elif isinstance(data, bytes | bytearray | memoryview):
            content = bytes(memoryview(data))
        else:
            raise TypeError(f"expected text or bytes, found {type(data).__name__}")
        await self._host.ask("fs.write", content, path=_path(path))

    async def exists(self, path: Path) -> bool:
        return bool((await self._host.ask("fs.exists", path=_path(path))).head["value"])

    async def stat(self, path: Path) -> Stat:
        return Stat(*(await self._host.ask("fs.stat", path=_path(path))).head["value"])

    async def list(self, path: Path = ".") -> list[str]:
        return names_in((await self._host.ask("fs.list", path=_path(path))).blob)

    async def mkdir(self, path: Path) -> None:
        await self._host.ask("fs.mkdir", path=_path(path))

    async def delete(self, path: Path) -> None:
        await self._host.ask("fs.delete", path=_path(path))

    async def rename(self, source: Path, target: Path) -> None:
        await self._host.ask("fs.rename", source=_path(source), target=_path(target))

    async def open(self, path: Path, mode: str = "r", encoding: str = "utf-8") -> Any:
        """A file that the host opens and passes to this process."""
        answer = await self._host.ask("fs.open", path=_path(path), mode=mode)
        file = io.open(answer.file(), f"{mode.replace('b', '', 1)}b")  # noqa: SIM115, UP020 - the tool closes it
        return file if "b" in mode else io.TextIOWrapper(file, encoding)


class RemoteFetch:
    """`ctx.fetch` behind a wall."""

    __slots__ = ("_host",)

    def __init__(self, host: HostClient) -> None:
        self._host = host

    async def __call__(self, url: str, method: str = "GET", **options: object) -> Response:
        head, blob = _request(url, method, **options)
        answer = await self._host.ask("fetch", blob, **head)
        return Response(answer.head["status"], answer.head["url"], _headers(answer.head), answer.blob)

    @asynccontextmanager
    async def stream(self, url: str, method: str = "GET", **options: object) -> AsyncIterator["RemoteStream"]:
        head, blob = _request(url, method, **options)
        answer = await self._host.ask("stream.open", blob, **head)
        stream = RemoteStream(self._host, answer.head)
        try:
            yield stream
        finally:
            stream.closed = True
            await self._host.ask("stream.close", stream=answer.head["stream"])


class RemoteStream:
    """A response whose body is read in pieces."""

    def __init__(self, host: HostClient, head: Mapping[str, Any]) -> None:
        self._host, self._number = host, head["stream"]
        self.status: int = head["status"]
        self.url: str = head["url"]
        self.headers = _headers(head)
        self.closed = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self.closed:
            raise RuntimeError("the answer is closed: read it inside `async with`")
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while True:
            answer = await self._host.ask("stream.next", stream=self._number)
            if answer.head["done"]:
                return
            yield answer.blob

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self])


def _headers(head: Mapping[str, Any]) -> Headers:
    return Headers((name, value) for name, value in head["headers"])


def _request(
    url: object,
    method: object,
    *,
    headers: object = None,
    json: object = None,
    body: object = None,
    timeout: object = None,
    max_bytes: object = None,
    redirects: object = True,
) -> tuple[dict[str, Any], bytes]:
    """A request as JSON. A value that is not JSON is sent as False: the host refuses it with its own message."""
    head: dict[str, Any] = {"url": _text(url), "method": _text(method)}
    head |= {"timeout": _number(timeout), "max_bytes": _number(max_bytes)}
    head["redirects"] = redirects if isinstance(redirects, bool) else None
    blob = b""
    if headers is not None:
        try:
            pairs: Any = headers.items() if isinstance(headers, Mapping) else headers
            sent = [[_text(name), _text(value)] for name, value in pairs]
            head["headers"] = sent if len(sent) <= MOST_SENT_HEADERS else len(sent)
        except (TypeError, ValueError):
            head["headers"] = False
    if json is not None:
        try:
            blob = json_text.dumps(json, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            head["json"] = True
        except (TypeError, ValueError, RecursionError):
            head["json"] = False
    content = b""
    if isinstance(body, str):
        head["body"], content = "text", body.encode("utf-8", "surrogatepass")
    elif isinstance(body, bytes | bytearray | memoryview):
        head["body"], content = "bytes", bytes(body)
    elif body is not None:
        head["body"] = False
    return head, blob if json is not None else content


def _text(value: object) -> str | None:
    return str.__str__(value) if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or value != value or abs(value) == inf:
        return False
    return max(min(value, LARGEST_NUMBER), -LARGEST_NUMBER)


class RemoteSecrets:
    """`ctx.secrets` behind a wall."""

    __slots__ = ("_host",)

    def __init__(self, host: HostClient) -> None:
        self._host = host

    async def get(self, reference: str) -> str:
        return str((await self._host.ask("secrets.get", reference=f"{reference}")).head["value"])

    def ref(self, reference: str) -> str:
        return str(self._host.ask_now("secrets.ref", reference=f"{reference}").head["value"])


class RemoteKv:
    """`ctx.kv` behind a wall."""

    __slots__ = ("_host", "_kind")

    def __init__(self, host: HostClient, kind: str | None = None) -> None:
        self._host, self._kind = host, kind

    def of(self, kind: str) -> "RemoteKv":
        self._host.ask_now("kv.of", kind=f"{kind}")
        return RemoteKv(self._host, f"{kind}")

    async def get(self, key: str, default: Json = None) -> Json:
        value = (await self._host.ask("kv.get", kind=self._kind, key=key)).head["value"]
        return default if value is None else value

    async def set(self, key: str, value: object, ttl_seconds: int | None = None) -> None:
        try:
            text = json_text.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError):
            text = b""  # not JSON: the store refuses it with its own message
        await self._host.ask("kv.set", text, kind=self._kind, key=key, ttl_seconds=ttl_seconds)

    async def delete(self, key: str) -> bool:
        return bool((await self._host.ask("kv.delete", kind=self._kind, key=key)).head["value"])

    async def list(self, prefix: str = "") -> list[str]:
        return names_in((await self._host.ask("kv.list", kind=self._kind, prefix=prefix)).blob)


class RemoteEnv:
    """`ctx.env` behind a wall."""

    __slots__ = ("_host",)

    def __init__(self, host: HostClient) -> None:
        self._host = host

    def get(self, name: str, default: str | None = None) -> str | None:
        value = self._host.ask_now("env.get", name=f"{name}").head["value"]
        return default if value is None else value


class RemotePrograms:
    """`ctx.process` behind a wall."""

    __slots__ = ("_host",)

    def __init__(self, host: HostClient) -> None:
        self._host = host

    async def spawn(
        self,
        name: str,
        args: Iterable[str] = (),
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> Finished:
        answer = await self._host.ask(
            "process.spawn",
            stdin.encode() if isinstance(stdin, str) else bytes(stdin),
            name=f"{name}",
            args=[*args],
            env=None if env is None else dict(env),
            cwd=None if cwd is None else _path(cwd),
            timeout=_number(timeout),
        )
        head, middle = answer.head, answer.head["stdout"]
        ended = {name: head[name] for name in ("truncated", "timed_out", "reason")}
        return Finished(head["exit_code"], answer.blob[:middle], answer.blob[middle:], **ended)


class RemoteContext:
    """The `ctx` of a tool behind a wall."""

    def __init__(self, host: HostClient, who: Mapping[str, str]) -> None:
        self.session_id, self.agent, self.workdir = who["session_id"], who["agent"], who["workdir"]
        self._host = host
        self.fetch = RemoteFetch(host)
        self.fs = RemoteFiles(host)
        self.secrets = RemoteSecrets(host)
        self.kv = RemoteKv(host)
        self.env = RemoteEnv(host)
        self.process = RemotePrograms(host)

    def charge(self, amount: Decimal | str | int) -> None:
        if not isinstance(amount, Decimal | str | int):
            raise ValueError(  # noqa: TRY004 - as at every level
                f"expected an amount of money as a Decimal, a text or a whole number, found {amount!r}"
            )
        self._host.ask_now("charge", amount=str(amount))


_HANDLES = (RemoteContext, RemoteFetch, RemoteFiles, RemoteSecrets, RemoteKv, RemoteEnv, RemotePrograms)


class SyncHandle:
    """A handle for a tool that is not async: its methods return results instead of coroutines."""

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if callable(found) and not isinstance(found, _HANDLES):
            return _sync(found)
        return SyncHandle(found) if isinstance(found, _HANDLES) else found

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return _sync(self._target)(*args, **kwargs)


def _sync(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> object:
        answer = method(*args, **kwargs)
        if asyncio.iscoroutine(answer):
            answer = _driven(answer)
        return SyncHandle(answer) if isinstance(answer, _HANDLES) else answer

    return call


def _driven(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends: without a loop, each question blocks until its answer is there."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a handle waited for something that is not the host")
