"""Protocols of the `ctx` that a tool gets, and of its handles, async and sync. `guard` implements and enforces them.

`OPERATIONS` lists what tools behind walls and guests of WASM ask of handles. A test holds everyone to this list: the
protocols here, the handles in a worker, the handles of a guest, and the host that answers both.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, overload

from msgspec import Struct

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
HeaderLines = Mapping[str, str] | Iterable[tuple[str, str]]
TextMode = Literal["r", "w", "a", "x", "r+"]
BinaryMode = Literal["rb", "wb", "ab", "xb", "r+b", "rb+"]

# A JSON value. At run time it is `object`, because a tool may annotate an argument with it, and pydantic cannot read a
# recursive alias.
if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    Json = object


class Answer(Protocol):
    """The answer to a request."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def ok(self) -> bool:
        """Whether the status is 200 to 299."""

    @property
    def url(self) -> str:
        """The URL that answered, after redirects."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are case-insensitive."""

    @property
    def content(self) -> bytes:
        """The body."""

    @property
    def text(self) -> str:
        """The body as text."""

    def json(self) -> Json:
        """The body as JSON."""

    def raise_for_status(self) -> "Answer":
        """The answer itself; raises an exception if its status is an error."""


class AnswerStream(Protocol):
    """An answer whose body is still being received."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def ok(self) -> bool:
        """Whether the status is 200 to 299."""

    @property
    def url(self) -> str:
        """The URL that answers, after redirects."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are case-insensitive."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def read(self) -> bytes:
        """The rest of the body."""


class Fetch(Protocol):
    """`ctx.fetch`: requests to the hosts that the call holds."""

    async def __call__(
        self,
        url: str,
        method: str = "GET",
        *,
        headers: HeaderLines | None = None,
        json: object = None,
        body: bytes | str | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        redirects: bool = True,
    ) -> Answer:
        """Send a request, follow its redirects, and read the complete answer; or raise `Refused`.

        With `redirects=False` a redirect is an answer like any other: its status, and `location` in its headers.
        """

    def stream(
        self,
        url: str,
        method: str = "GET",
        *,
        headers: HeaderLines | None = None,
        json: object = None,
        body: bytes | str | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        redirects: bool = True,
    ) -> AbstractAsyncContextManager[AnswerStream]:
        """Send a request, and read the answer while it is received."""


class Status(Protocol):
    """The status of a file or directory."""

    @property
    def kind(self) -> Literal["file", "directory"]:
        """`file` or `directory`."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    @property
    def modified(self) -> float:
        """When it was last changed, in seconds since 1970."""

    @property
    def mode(self) -> int:
        """Its permission bits."""


class FileSystem(Protocol):
    """`ctx.fs`: files below the paths that the call holds; relative paths start at `ctx.workdir`, `~/` at home."""

    async def read(self, path: Path, limit: int | None = None) -> str:
        """The text of a file, in UTF-8. More than 10 MiB, or `limit` bytes, are refused: use `open`."""

    async def read_bytes(self, path: Path, limit: int | None = None) -> bytes:
        """The bytes of a file. More than 10 MiB, or `limit` bytes, are refused: use `open`."""

    async def write(self, path: Path, data: str | bytes) -> None:
        """Replace a file by text or bytes, atomically."""

    async def exists(self, path: Path) -> bool:
        """Whether there is a file or directory."""

    async def stat(self, path: Path) -> Status:
        """The status of a path."""

    async def list(self, path: Path = ".") -> list[str]:
        """The names in a directory that the call holds, sorted."""

    async def mkdir(self, path: Path) -> None:
        """Make a directory and its parents; an existing one is fine."""

    async def delete(self, path: Path) -> None:
        """Remove a file or an empty directory."""

    async def rename(self, source: Path, target: Path) -> None:
        """Move a file or a directory: a delete of the source and a write of the target."""

    @overload
    async def open(self, path: Path, mode: TextMode = "r", encoding: str = "utf-8") -> IO[str]: ...

    @overload
    async def open(self, path: Path, mode: BinaryMode, encoding: str = "utf-8") -> IO[bytes]: ...

    @overload
    async def open(self, path: Path, mode: str, encoding: str = "utf-8") -> IO[str] | IO[bytes]: ...

    async def open(self, path: Path, mode: str = "r", encoding: str = "utf-8") -> IO[str] | IO[bytes]:
        """A file object: `r`, `w`, `a`, `x` or `r+`, with `b` for bytes."""


class SecretStore(Protocol):
    """`ctx.secrets`: secrets by reference."""

    async def get(self, reference: str) -> str:
        """The value of a secret."""

    def ref(self, reference: str) -> str:
        """A placeholder that becomes the secret in a header, a body or a child's environment, and nowhere else."""


class Store(Protocol):
    """`ctx.kv`: small values under keys."""

    def of(self, kind: str) -> "Store":
        """The store of another kind that the tool declared."""

    async def get(self, key: str, default: Json = None) -> Json:
        """The value under a key, or the default."""

    async def set(self, key: str, value: object, ttl_seconds: int | None = None) -> None:
        """Store a JSON value, for `ttl_seconds` or for as long as the tool declared."""

    async def delete(self, key: str) -> bool:
        """Delete a key, and return whether it existed."""

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with exactly this prefix, sorted."""


class Environment(Protocol):
    """`ctx.env`: declared variables of the host."""

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of a variable, or the default if it is not set."""


class Ended(Protocol):
    """How a program ended."""

    @property
    def exit_code(self) -> int:
        """Its exit code; negative if a signal ended it."""

    @property
    def stdout(self) -> str:
        """Its output as text; bytes that are not UTF-8 are replaced."""

    @property
    def stderr(self) -> str:
        """Its error output as text; bytes that are not UTF-8 are replaced."""

    @property
    def stdout_bytes(self) -> bytes:
        """Its output."""

    @property
    def stderr_bytes(self) -> bytes:
        """Its error output."""

    @property
    def truncated(self) -> bool:
        """Whether output was cut."""

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because its time was up."""

    @property
    def reason(self) -> str:
        """The limit that ended it or cut its output, such as `LIMIT_CPU`; empty if none did."""


class Programs(Protocol):
    """`ctx.process`: programs that the call holds, each behind walls."""

    async def spawn(
        self,
        name: str,
        args: Iterable[str] = (),
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> Ended:
        """Run a program until it ends."""


class CallFacts(Protocol):
    """The facts about its call that every context has."""

    @property
    def session_id(self) -> str:
        """The session this call belongs to."""

    @property
    def agent(self) -> str:
        """The agent on whose behalf the tool runs."""

    @property
    def workdir(self) -> str:
        """The directory that relative paths start from."""

    def charge(self, amount: Decimal | str | int) -> None:
        """Add to the cost of this call, in dollars; the sum must not exceed the declared `cost_usd`."""


class Context(CallFacts, Protocol):
    """The context of a call. Annotate a parameter of a tool with it; models never see that parameter."""

    @property
    def fetch(self) -> Fetch:
        """Requests to the hosts that this call holds."""

    @property
    def fs(self) -> FileSystem:
        """Files below the paths that this call holds."""

    @property
    def secrets(self) -> SecretStore:
        """Secrets that this call holds, by reference."""

    @property
    def kv(self) -> Store:
        """The store that the tool declared."""

    @property
    def env(self) -> Environment:
        """Variables of the host's environment that this call holds."""

    @property
    def process(self) -> Programs:
        """Programs that this call holds."""


class SyncFetch(Protocol):
    """`ctx.fetch`: requests to the hosts that the call holds. Only async tools can stream a body."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        *,
        headers: HeaderLines | None = None,
        json: object = None,
        body: bytes | str | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        redirects: bool = True,
    ) -> Answer:
        """Send a request, follow its redirects, and read the complete answer; or raise `Refused`.

        With `redirects=False` a redirect is an answer like any other: its status, and `location` in its headers.
        """


class SyncFileSystem(Protocol):
    """`ctx.fs`: files below the paths that the call holds; relative paths start at `ctx.workdir`, `~/` at home."""

    def read(self, path: Path, limit: int | None = None) -> str:
        """The text of a file, in UTF-8. More than 10 MiB, or `limit` bytes, are refused: use `open`."""

    def read_bytes(self, path: Path, limit: int | None = None) -> bytes:
        """The bytes of a file. More than 10 MiB, or `limit` bytes, are refused: use `open`."""

    def write(self, path: Path, data: str | bytes) -> None:
        """Replace a file by text or bytes, atomically."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory."""

    def stat(self, path: Path) -> Status:
        """The status of a path."""

    def list(self, path: Path = ".") -> list[str]:
        """The names in a directory that the call holds, sorted."""

    def mkdir(self, path: Path) -> None:
        """Make a directory and its parents; an existing one is fine."""

    def delete(self, path: Path) -> None:
        """Remove a file or an empty directory."""

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or a directory: a delete of the source and a write of the target."""

    @overload
    def open(self, path: Path, mode: TextMode = "r", encoding: str = "utf-8") -> IO[str]: ...

    @overload
    def open(self, path: Path, mode: BinaryMode, encoding: str = "utf-8") -> IO[bytes]: ...

    @overload
    def open(self, path: Path, mode: str, encoding: str = "utf-8") -> IO[str] | IO[bytes]: ...

    def open(self, path: Path, mode: str = "r", encoding: str = "utf-8") -> IO[str] | IO[bytes]:
        """A file object: `r`, `w`, `a`, `x` or `r+`, with `b` for bytes."""


class SyncSecretStore(Protocol):
    """`ctx.secrets`: secrets by reference."""

    def get(self, reference: str) -> str:
        """The value of a secret."""

    def ref(self, reference: str) -> str:
        """A placeholder that becomes the secret in a header, a body or a child's environment, and nowhere else."""


class SyncStore(Protocol):
    """`ctx.kv`: small values under keys."""

    def of(self, kind: str) -> "SyncStore":
        """The store of another kind that the tool declared."""

    def get(self, key: str, default: Json = None) -> Json:
        """The value under a key, or the default."""

    def set(self, key: str, value: object, ttl_seconds: int | None = None) -> None:
        """Store a JSON value, for `ttl_seconds` or for as long as the tool declared."""

    def delete(self, key: str) -> bool:
        """Delete a key, and return whether it existed."""

    def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with exactly this prefix, sorted."""


class SyncPrograms(Protocol):
    """`ctx.process`: programs that the call holds, each behind walls."""

    def spawn(
        self,
        name: str,
        args: Iterable[str] = (),
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> Ended:
        """Run a program until it ends."""


class SyncContext(CallFacts, Protocol):
    """The context of a tool that is not async: the same handles, with blocking methods."""

    @property
    def fetch(self) -> SyncFetch:
        """Requests to the hosts that this call holds."""

    @property
    def fs(self) -> SyncFileSystem:
        """Files below the paths that this call holds."""

    @property
    def secrets(self) -> SyncSecretStore:
        """Secrets that this call holds, by reference."""

    @property
    def kv(self) -> SyncStore:
        """The store that the tool declared."""

    @property
    def env(self) -> Environment:
        """Variables of the host's environment that this call holds."""

    @property
    def process(self) -> SyncPrograms:
        """Programs that this call holds."""


class Operation(Struct, frozen=True):
    """A question to a handle: the method of `ctx` that answers it, its arguments, and what is sent back."""

    method: str  # `HANDLE.METHOD`, or a method of `ctx` itself
    texts: tuple[str, ...] = ()  # arguments that are text
    values: tuple[str, ...] = ()  # arguments of any type: the method checks them
    optional: tuple[str, ...] = ()  # arguments of any type that may be missing
    result: Literal["nothing", "value", "bytes", "own"] = "nothing"  # `own`: more than one value
    at_once: bool = False  # whether the method is not async


# A store is that of the kind `kind`, if there is one.
OPERATIONS: Mapping[str, Operation] = {
    "fs.read": Operation("fs.read_bytes", ("path",), optional=("limit",), result="bytes"),
    "fs.write": Operation("fs.write", ("path",), ("data",)),
    "fs.exists": Operation("fs.exists", ("path",), result="value"),
    "fs.stat": Operation("fs.stat", ("path",), result="own"),
    "fs.list": Operation("fs.list", ("path",), result="own"),
    "fs.mkdir": Operation("fs.mkdir", ("path",)),
    "fs.delete": Operation("fs.delete", ("path",)),
    "fs.rename": Operation("fs.rename", ("source", "target")),
    "fetch": Operation(
        "fetch", (), ("url", "method"), ("headers", "json", "body", "timeout", "max_bytes", "redirects"), "own"
    ),
    "secrets.get": Operation("secrets.get", ("reference",), result="value"),
    "secrets.ref": Operation("secrets.ref", ("reference",), result="value", at_once=True),
    "kv.get": Operation("kv.get", (), ("key",), result="value"),
    "kv.set": Operation("kv.set", (), ("key", "value"), ("ttl_seconds",)),
    "kv.delete": Operation("kv.delete", (), ("key",), result="value"),
    "kv.list": Operation("kv.list", (), ("prefix",), result="own"),
    "env.get": Operation("env.get", ("name",), result="value", at_once=True),
    "process.spawn": Operation("process.spawn", ("name",), ("args",), ("stdin", "env", "cwd", "timeout"), "own"),
    "charge": Operation("charge", ("amount",), at_once=True),
}


def method_of(context: object, operation: Operation, kind: object) -> Callable[..., object]:
    """The method of a context that answers a question; `kind` is that of its store, or None."""
    handle, _, name = operation.method.rpartition(".")
    found: Any = getattr(context, handle) if handle else context
    if handle == "kv" and kind is not None:
        found = found.of(kind)
    method: Callable[..., object] = getattr(found, name)
    return method


class Surroundings(Protocol):
    """The argument of an availability check: the declared variables, programs and secrets."""

    def env(self, name: str) -> str | None:
        """The value of a declared environment variable, or None if it is not set."""

    def program(self, name: str) -> str | None:
        """The path of a declared program, or None if it is not installed."""

    async def secret(self, reference: str) -> bool:
        """Whether a declared secret exists here. Its value is not given.

        A check that is no coroutine returns what this returns: `available=lambda here: here.secret("API_KEY")`.
        """


# Called before a tool is offered or called. It sees only what the tool declares of variables, programs and secrets.
Available = Callable[[Surroundings], bool | Awaitable[bool]]


def never_available(_: Surroundings) -> bool:
    """The check of a tool that is declared with `available=False`."""
    return False


def availability_check(available: object) -> Available | None:
    """What `available=` of a declaration means; None if the tool can always run. `TypeError` if it means nothing."""
    if available is None or available is True:
        return None
    if available is False:
        return never_available
    if not callable(available):
        text = "`available` must be True, False, or a function that takes the surroundings and returns True or False"
        raise TypeError(text)
    return cast("Available", available)
