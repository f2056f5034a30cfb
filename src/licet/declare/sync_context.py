"""Protocols of the `ctx` of a sync tool: the handles of `context` with blocking methods."""

import os
from collections.abc import Iterable, Mapping
from typing import IO, Protocol, overload

from licet.declare.context import (
    Answer,
    BinaryMode,
    CallFacts,
    Ended,
    Environment,
    HeaderLines,
    Json,
    Path,
    Status,
    TextMode,
)


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
