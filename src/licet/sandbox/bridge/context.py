"""The `ctx` of a tool behind a wall: the same handles as at `native`, each of which asks the host.

Nothing is decided here, and the host trusts nothing from here: a tool that bypasses these classes finds a socket, and
what it sends there is checked like every question. The methods are async; `SyncHandle` makes them blocking for tools
that are plain functions.
"""

import asyncio
import io
import json as json_text
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from math import inf
from typing import Any

from licet.guard.execution import Finished
from licet.guard.handles.messages import Headers, Response
from licet.guard.ports import Stat
from licet.sandbox.bridge.client import HostClient
from licet.sandbox.bridge.outbox import names_in

_LARGEST = 10**15  # largest number that is sent: above every limit of the host
_MOST_HEADERS = 4096  # more are not sent; the host gets their number, and refuses


def _path(path: Any) -> str:
    return os.fsdecode(path)


class RemoteFiles:
    """`ctx.fs` behind a wall."""

    __slots__ = ("_host",)

    def __init__(self, host: HostClient) -> None:
        self._host = host

    async def read(self, path: Any, limit: int | None = None) -> str:
        return (await self.read_bytes(path, limit)).decode()

    async def read_bytes(self, path: Any, limit: int | None = None) -> bytes:
        return (await self._host.ask("fs.read", path=_path(path), limit=limit)).blob

    async def write(self, path: Any, data: str | bytes) -> None:
        if isinstance(data, str):
            content = str.encode(data)
        elif isinstance(data, bytes | bytearray | memoryview):
            content = bytes(memoryview(data))
        else:
            raise TypeError(f"expected text or bytes, found {type(data).__name__}")
        await self._host.ask("fs.write", content, path=_path(path))

    async def exists(self, path: Any) -> bool:
        return bool((await self._host.ask("fs.exists", path=_path(path))).head["value"])

    async def stat(self, path: Any) -> Stat:
        return Stat(*(await self._host.ask("fs.stat", path=_path(path))).head["value"])

    async def list(self, path: Any = ".") -> list[str]:
        return names_in((await self._host.ask("fs.list", path=_path(path))).blob)

    async def mkdir(self, path: Any) -> None:
        await self._host.ask("fs.mkdir", path=_path(path))

    async def delete(self, path: Any) -> None:
        await self._host.ask("fs.delete", path=_path(path))

    async def rename(self, source: Any, target: Any) -> None:
        await self._host.ask("fs.rename", source=_path(source), target=_path(target))

    async def open(self, path: Any, mode: str = "r", encoding: str = "utf-8") -> Any:
        """A file that the host opens and passes to this process."""
        answer = await self._host.ask("fs.open", path=_path(path), mode=mode)
        file = io.open(answer.file(), f"{mode.replace('b', '', 1)}b")  # noqa: SIM115, UP020 - the tool closes it
        return file if "b" in mode else io.TextIOWrapper(file, encoding)


class RemoteFetch:
    """`ctx.fetch` behind a wall."""

    __slots__ = ("_host",)

    def __init__(self, host: HostClient) -> None:
        self._host = host

    async def __call__(self, url: Any, method: Any = "GET", **options: Any) -> Response:
        head, blob = _request(url, method, **options)
        answer = await self._host.ask("fetch", blob, **head)
        return Response(answer.head["status"], answer.head["url"], _headers(answer.head), answer.blob)

    @asynccontextmanager
    async def stream(self, url: Any, method: Any = "GET", **options: Any) -> AsyncIterator["RemoteStream"]:
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
    url: Any,
    method: Any,
    *,
    headers: Any = None,
    json: Any = None,
    body: Any = None,
    timeout: Any = None,
    max_bytes: Any = None,
    redirects: Any = True,
) -> tuple[dict[str, Any], bytes]:
    """A request as JSON. A value that is not JSON is sent as False: the host refuses it with its own message."""
    head: dict[str, Any] = {"url": _text(url), "method": _text(method)}
    head |= {"timeout": _number(timeout), "max_bytes": _number(max_bytes)}
    head["redirects"] = redirects if isinstance(redirects, bool) else None
    blob = b""
    if headers is not None:
        try:
            pairs = headers.items() if isinstance(headers, Mapping) else headers
            sent = [[_text(name), _text(value)] for name, value in pairs]
            head["headers"] = sent if len(sent) <= _MOST_HEADERS else len(sent)
        except (TypeError, ValueError):
            head["headers"] = False
    if json is not None:
        try:
            blob = json_text.dumps(json, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            head["json"] = True
        except (TypeError, ValueError, RecursionError):
            head["json"] = False
    if body is not None:
        fits = isinstance(body, str | bytes | bytearray | memoryview)
        head["body"] = ("text" if isinstance(body, str) else "bytes") if fits else False
        if json is None and fits:
            blob = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
    return head, blob


def _text(value: Any) -> Any:
    return str.__str__(value) if isinstance(value, str) else None


def _number(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, int | float) or value != value or abs(value) == inf:
        return False
    return max(min(value, _LARGEST), -_LARGEST)


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

    async def get(self, key: str, default: Any = None) -> Any:
        value = (await self._host.ask("kv.get", kind=self._kind, key=key)).head["value"]
        return default if value is None else value

    async def set(self, key: str, value: Any, ttl_seconds: int | None = None) -> None:
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
        args: Any = (),
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: Any = None,
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _sync(self._target)(*args, **kwargs)


def _sync(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
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
