"""`ctx.fs`: the files of one call.

Every path is checked against the grant first. The backend then opens exactly what was checked, and refuses a path that
leads out of the grant through a link.
"""

import asyncio
import io
import os
from collections.abc import Callable
from typing import IO, Any, NoReturn, TypeVar

from licet.core.algebra.rules import InvalidUse, Use, path_text, use_of_path
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.held_paths import held_paths
from licet.guard.limits import DEEPEST_MADE, FIRST_READ, INLINE_BYTES, READ_LIMIT
from licet.guard.meter import Exceeded
from licet.guard.ports import Escaped, Files, GivenUp, Held, Stat, TooLarge, Waiting

_MODES = {"r": "rb", "w": "wb", "a": "ab", "x": "xb", "r+": "r+b"}
_ACTIONS = {"rb": ("read",), "wb": ("write",), "ab": ("write",), "xb": ("write",), "r+b": ("read", "write")}

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_T = TypeVar("_T")


def _size(file: IO[bytes]) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:  # a file in memory has no descriptor
        return READ_LIMIT


class ScopedFiles:
    """`ctx.fs` of one call. Relative paths start at the working directory of the agent, and `~/` at the home directory.

    A file from `open()` stays usable until it is closed, also after the call has ended.
    """

    __slots__ = ("_files", "_grant", "_held", "_home", "_limit", "_workdir")

    def __init__(
        self, grant: Grant, files: Files | None, workdir: str, read_limit: int = READ_LIMIT, home: str | None = None
    ) -> None:
        self._grant = grant
        self._files = files
        self._workdir, self._home = workdir, home
        self._limit = read_limit
        self._held = held_paths(grant.capabilities)

    async def read(self, path: Path, limit: int | None = None) -> str:
        return (await self.read_bytes(path, limit)).decode()

    async def read_bytes(self, path: Path, limit: int | None = None) -> bytes:
        sent, use = self._checked("read", path)
        if limit is not None and (not isinstance(limit, int) or limit < 0):  # `read(-1)` would read everything
            self._grant.refuse("INPUT_INVALID", "expected `limit` to be a number of bytes, 0 or more", use)
        most = self._limit if limit is None else min(limit, self._limit)
        try:
            with self._backend(use).open(use.target, "rb", self._held) as file:
                data = file.read(min(FIRST_READ, most + 1))
                if len(data) == FIRST_READ <= most:
                    data += file.read(min(INLINE_BYTES, most + 1) - FIRST_READ)
                    if len(data) == INLINE_BYTES <= most:
                        data = await self._rest(file, data, most)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)
        except Exceeded as over:
            self._grant.exceeded(over, use)
        if len(data) > most:
            text = f"the file is larger than {most} bytes"
            self._grant.refuse("LIMIT_SIZE", text, use, "read it piece by piece with `ctx.fs.open(path, 'rb')`")
        return data

    async def _rest(self, file: IO[bytes], data: bytes, most: int) -> bytes:
        """Read the rest of a large file in a thread. Both parts count as memory of the call while they are joined."""
        with self._grant.meter.share() as share:
            share.take(2 * min(_size(file), most + 1))
            return data + await asyncio.to_thread(file.read, most + 1 - len(data))

    async def write(self, path: Path, data: str | bytes) -> None:
        if isinstance(data, str):
            content = str.encode(data)  # not `data.encode()`: a subclass may override it
        elif isinstance(data, bytes | bytearray | memoryview):
            content = bytes(memoryview(data))
        else:
            raise TypeError(f"expected text or bytes, found {type(data).__name__}")
        sent, use = self._checked("write", path)
        self._count(use)
        try:
            if len(content) > INLINE_BYTES:
                await self._write_in_thread(use, content)
            else:
                self._backend(use).write(use.target, content, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)

    def _count(self, use: Use, *, directories: bool = False) -> None:
        """Count what may be made at a path, against `limits.written_paths`."""
        meter = self._grant.meter
        try:
            (meter.take_directories if directories else meter.take_path)(use.target)
        except Exceeded as over:
            self._grant.exceeded(over, use)

    async def _write_in_thread(self, use: Use, content: bytes) -> None:
        turn = Waiting(lambda: self._grant.over)
        try:
            await asyncio.to_thread(self._backend(use).write, use.target, content, self._held, turn)
        except asyncio.CancelledError:
            turn.give_up()  # the thread continues, but must not replace the file
            raise
        except GivenUp:  # the call has ended meanwhile, and this task of its tool was not cancelled with it
            self._grant.check(use)
            raise

    async def exists(self, path: Path) -> bool:
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def stat(self, path: Path) -> Stat:
        sent, use = self._checked("read", path)
        return self._act(self._backend(use).stat, use, sent)

    async def list(self, path: Path = ".") -> list[str]:
        sent, use = self._checked("read", path)
        try:  # in a thread: there may be very many
            return await asyncio.to_thread(self._backend(use).list, use.target, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)
        except TooLarge as wrong:
            self._grant.refuse("LIMIT_SIZE", str(wrong), use, "let a program list it, or keep files in subdirectories")

    async def mkdir(self, path: Path) -> None:
        sent, use = self._checked("write", path)
        self._count(use, directories=True)
        try:
            if use.target.count("/") > DEEPEST_MADE:
                await asyncio.to_thread(self._backend(use).mkdir, use.target, self._held)
            else:
                self._backend(use).mkdir(use.target, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)

    async def delete(self, path: Path) -> None:
        sent, use = self._use("delete", path)
        await self._permit(use, sent)
        self._act(self._backend(use).delete, use, sent)

    async def rename(self, source: Path, target: Path) -> None:
        """Move a file or a directory: this checks a delete of the source and a write of the target."""
        sent, away = self._use("delete", source)
        new_sent, use = self._checked("write", target)  # before an approver is asked about the delete
        await self._permit(away, sent)
        self._count(use)
        try:
            self._backend(use).rename(away.target, use.target, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, away, sent, new_sent)

    async def open(self, path: Path, mode: str = "r", encoding: str = "utf-8") -> IO[Any]:
        binary = _MODES.get(mode.replace("b", "", 1))
        if binary is None:
            raise ValueError(f"expected one of the modes {', '.join(_MODES)}, perhaps with `b`")
        sent, use = "", None
        for action in _ACTIONS[binary]:
            sent, use = self._checked(action, path if use is None else sent)
        assert use is not None  # noqa: S101 - every mode has an action
        meter = self._grant.meter
        try:
            meter.check_files(1)
            if binary != "rb":
                meter.take_path(use.target)
            file = self._backend(use).open(use.target, binary, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)
        except Exceeded as over:
            self._grant.exceeded(over, use)
        meter.opened(file)
        return file if "b" in mode else io.TextIOWrapper(file, encoding)

    def _use(self, action: str, path: Path) -> tuple[str, Use]:
        """The path as text, and its use. The caller's object is read once: a later read could differ from the check."""
        try:
            sent = path_text(path)
            return sent, use_of_path(action, sent, self._workdir, self._home)
        except InvalidUse as wrong:
            self._grant.invalid("PATH_NOT_REACHABLE", wrong)

    def _checked(self, action: str, path: Path) -> tuple[str, Use]:
        """As `_use`, and check it. A refusal repeats the path as it was sent, and shows no directory of the host."""
        sent, use = self._use(action, path)
        try:
            self._grant.check(use)
        except Refused as refusal:
            self._repeat(refusal, sent)
        return sent, use

    def _backend(self, use: Use) -> Files:
        return self._grant.backend(self._files, use)

    async def _permit(self, use: Use, sent: str) -> None:
        try:
            self._grant.require(use)
            self._backend(use)  # no approver is asked about a delete that cannot be done
            await self._grant.permit(use)
        except Refused as refusal:
            self._repeat(refusal, sent)

    def _repeat(self, refusal: Refused, sent: str) -> NoReturn:
        raise refusal.repeating(self._grant.redacted(sent)) from refusal.__cause__

    def _act(self, act: Callable[[str, Held], _T], use: Use, sent: str) -> _T:
        try:
            return act(use.target, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)

    def _fail(self, wrong: Escaped | OSError, use: Use, *sent: str) -> NoReturn:
        """Refuse a path that led out of the grant; raise the system's error with the paths that the caller sent."""
        if isinstance(wrong, Escaped):
            try:
                self._grant.refuse("PATH_NOT_REACHABLE", f"the path may not be followed: {wrong}", use)
            except Refused as refusal:
                self._repeat(refusal, sent[0])
        first, second = (*sent, None)[:2]
        raise OSError(wrong.errno, wrong.strerror, first, None, second) from None
