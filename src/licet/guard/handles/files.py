"""What a grant says of paths, in the words of a files backend: every answer comes from the grant itself.

`ctx.fs`: the files of one call. Every path is asked about first, and what was asked about is what is opened.
"""

import asyncio
import io
import os
from collections.abc import Callable
from functools import lru_cache
from typing import IO, Any, NoReturn, TypeVar

from licet.core.algebra.capability import capability
from licet.core.algebra.scope import inside, path_ancestors
from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Kind, Use, path_text, use_of_path
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.meter import Exceeded
from licet.guard.ports import Escaped, Files, Held, Stat, TooLarge, Waiting

_KINDS: dict[str, Kind] = {action: use_of_path(action, "/").kind for action in ("read", "write", "delete")}


class HeldPaths:
    """The paths of one grant."""

    __slots__ = ("_answers", "_denied", "grant")

    def __init__(self, grant: CapabilitySet) -> None:
        self.grant = grant
        self._answers = {action: grant.answers(kind) for action, kind in _KINDS.items()}
        self._denied = {
            action: tuple(sorted(key or "/" for key, allowed in answers.items() if not allowed))
            for action, answers in self._answers.items()
        }

    def root(self, action: str, path: str) -> str:
        """The outermost directory or file that is held and contains a path; links may not lead out of it."""
        answers = self._answers[action]
        for key in reversed(path_ancestors(_key(path))):
            if answers.get(key):
                return key or "/"
        raise Escaped("nothing that is held contains it")

    def covers(self, action: str, path: str) -> bool:
        """Whether a path, as it turned out to be, is held."""
        try:
            return self.grant.has(use_of_path(action, path))
        except InvalidUse:
            return False

    def covers_tree(self, action: str, path: str) -> bool:
        """Whether a path and everything below it is held."""
        # Made from its parts: a path that exists may hold characters that no rule can.
        return self.grant.has(capability("fs", _KINDS[action].atom, _key(path), None))

    def overlaps(self, action: str, path: str) -> bool:
        """Whether anything at a path or below it is held."""
        kept = (key for key, allowed in self._answers[action].items() if allowed)
        return self.covers(action, path) or any(inside(key, (path,)) for key in kept)

    def allowed(self, action: str) -> tuple[str, ...]:
        """The outermost paths that are held; below them, what `denied` names is not."""
        return tuple(sorted(key or "/" for key, allowed in self._answers[action].items() if allowed))

    def directories_with_closed_names(self) -> tuple[str, ...]:
        """The directories that may be written, but for a name directly in them that a deny closes.

        Landlock has no deny: without a private root nothing new can be made directly in such a directory.
        """
        above = {os.path.dirname(path) for path in self.denied("write")}
        return tuple(sorted(directory for directory in above if self.covers("write", directory)))

    def denied(self, action: str) -> tuple[str, ...]:
        """The paths that denies name."""
        return self._denied[action]


def _key(path: str) -> str:
    return "" if path == "/" else path


@lru_cache(maxsize=1000)
def held_paths(grant: CapabilitySet) -> HeldPaths:
    """The paths of a grant. Calls of one tool share its grant, so they are worked out once."""
    return HeldPaths(grant)


READ_LIMIT = 10 << 20
_INLINE = 1 << 20  # a thread costs more than reading this much
_FIRST = 1 << 16
_DEEP = 64  # directories; to make many more, one inside the other, takes long enough to hold up other calls

_MODES = {"r": "rb", "w": "wb", "a": "ab", "x": "xb", "r+": "r+b"}
_ACTIONS = {"rb": ("read",), "wb": ("write",), "ab": ("write",), "xb": ("write",), "r+b": ("read", "write")}

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_T = TypeVar("_T")


def _size(file: IO[bytes]) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:  # a file in memory, which is no file of the system
        return READ_LIMIT


class ScopedFiles:
    """Files that a call holds; relative paths start at the working directory of the agent.

    A file from `open()` stays open until it is closed: what was granted when it was opened is not taken back.
    """

    __slots__ = ("_files", "_grant", "_held", "_limit", "_workdir")

    def __init__(self, grant: Grant, files: Files | None, workdir: str, read_limit: int = READ_LIMIT) -> None:
        self._grant = grant
        self._files = files
        self._workdir = workdir
        self._limit = read_limit
        self._held = held_paths(grant.capabilities)

    async def read(self, path: Path, limit: int | None = None) -> str:
        """The text of a file in UTF-8; one of more than 10 MiB, or `limit` bytes, is refused: `open()` it instead."""
        return (await self.read_bytes(path, limit)).decode()

    async def read_bytes(self, path: Path, limit: int | None = None) -> bytes:
        """The bytes of a file; one of more than 10 MiB, or `limit` bytes, is refused: `open()` it instead."""
        sent, use = self._checked("read", path)
        if limit is not None and (not isinstance(limit, int) or limit < 0):  # a file reads all of it for -1
            self._grant.refuse("INPUT_INVALID", "expected `limit` to be a number of bytes, 0 or more", use)
        most = self._limit if limit is None else min(limit, self._limit)
        try:
            with self._backend(use).open(use.target, "rb", self._held) as file:
                data = file.read(min(_FIRST, most + 1))
                if len(data) == _FIRST <= most:
                    data += file.read(min(_INLINE, most + 1) - _FIRST)
                    if len(data) == _INLINE <= most:
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
        """What was read of a large file, and the rest of it; both count as memory of the call while they are joined."""
        with self._grant.meter.share() as share:
            share.take(2 * min(_size(file), most + 1))
            return data + await asyncio.to_thread(file.read, most + 1 - len(data))

    async def write(self, path: Path, data: str | bytes) -> None:
        """Put text or bytes in the place of a file: all of it, or nothing changes."""
        if isinstance(data, str):
            content = str.encode(data)  # a subclass may answer otherwise than its characters
        elif isinstance(data, bytes | bytearray | memoryview):
            content = bytes(memoryview(data))
        else:
            raise TypeError(f"expected text or bytes, found {type(data).__name__}")
        sent, use = self._checked("write", path)
        try:
            if len(content) > _INLINE:
                await self._write_aside(use, content)
            else:
                self._backend(use).write(use.target, content, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)

    async def _write_aside(self, use: Use, content: bytes) -> None:
        turn = Waiting()
        try:
            await asyncio.to_thread(self._backend(use).write, use.target, content, self._held, turn)
        except asyncio.CancelledError:
            turn.give_up()  # the thread goes on: what it has written must not appear any more
            raise

    async def exists(self, path: Path) -> bool:
        """Whether there is a file or directory."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def stat(self, path: Path) -> Stat:
        """What a path is, how large, and when it was changed."""
        sent, use = self._checked("read", path)
        return self._act(self._backend(use).stat, use, sent)

    async def list(self, path: Path = ".") -> list[str]:
        """The names in a directory, sorted; those that are not held are left out."""
        sent, use = self._checked("read", path)
        try:  # in a thread: there may be very many
            return await asyncio.to_thread(self._backend(use).list, use.target, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)
        except TooLarge as wrong:
            self._grant.refuse("LIMIT_SIZE", str(wrong), use, "let a program list it, or keep files in subdirectories")

    async def mkdir(self, path: Path) -> None:
        """Make a directory, and its parents as far as they are held; one that is there already is fine."""
        sent, use = self._checked("write", path)
        try:
            if use.target.count("/") > _DEEP:
                await asyncio.to_thread(self._backend(use).mkdir, use.target, self._held)
            else:
                self._backend(use).mkdir(use.target, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)

    async def delete(self, path: Path) -> None:
        """Remove a file or an empty directory."""
        sent, use = self._use("delete", path)
        await self._permit(use, sent)
        self._act(self._backend(use).delete, use, sent)

    async def rename(self, source: Path, target: Path) -> None:
        """Move a file or a directory: a delete of the source and a write of the target."""
        sent, away = self._use("delete", source)
        new_sent, use = self._checked("write", target)  # before a person is asked about the other half
        await self._permit(away, sent)
        try:
            self._backend(use).rename(away.target, use.target, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, away, sent, new_sent)

    async def open(self, path: Path, mode: str = "r", encoding: str = "utf-8") -> IO[Any]:
        """A file to read or write piece by piece: `r`, `w`, `a`, `x` or `r+`, with `b` for bytes."""
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
            file = self._backend(use).open(use.target, binary, self._held)
        except (Escaped, OSError) as wrong:
            self._fail(wrong, use, sent)
        except Exceeded as over:
            self._grant.exceeded(over, use)
        meter.opened(file)
        return file if "b" in mode else io.TextIOWrapper(file, encoding)

    def _use(self, action: str, path: Path) -> tuple[str, Use]:
        """What the caller sent, as text, and the use that it is: the caller's object is not looked at again."""
        try:
            sent = path_text(path)
            return sent, use_of_path(action, sent, self._workdir)
        except InvalidUse as wrong:
            self._grant.invalid("PATH_NOT_REACHABLE", wrong)

    def _checked(self, action: str, path: Path) -> tuple[str, Use]:
        """The same, of a use that is held; a refusal repeats what the caller sent, and no directory of the host."""
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
            self._backend(use)  # nobody is asked about a delete that cannot be done
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
        """Refuse what led outside; pass on the system's no, naming the paths that the caller sent and no other."""
        if isinstance(wrong, Escaped):
            try:
                self._grant.refuse("PATH_NOT_REACHABLE", f"the path may not be followed: {wrong}", use)
            except Refused as refusal:
                self._repeat(refusal, sent[0])
        first, second = (*sent, None)[:2]
        raise OSError(wrong.errno, wrong.strerror, first, None, second) from None
