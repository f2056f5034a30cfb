"""Files in memory: the twin of `LocalFiles` for tests. There are only files and directories, and no links."""

import errno
import io
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import RLock
from typing import BinaryIO

from msgspec import Struct, field

from licet.guard.ports import ANY_TIME, Escaped, Held, Stat, Turn


class _Node(Struct):
    """A file, or a directory if its content is None."""

    content: bytes | None
    mode: int
    modified: float = field(default_factory=time.time)


class MemoryFiles:
    """Files by absolute path. Parent directories of the given files are made; `directories` adds empty ones."""

    __slots__ = ("_lock", "_nodes")
    in_memory = True

    def __init__(self, files: Mapping[str, bytes | str] | None = None, directories: Iterable[str] = ()) -> None:
        self._lock = RLock()
        self._nodes: dict[str, _Node] = {"/": _Node(None, 0o755)}
        for path in (*directories, *(path.rpartition("/")[0] for path in files or {})):
            while path:
                self._nodes.setdefault(path, _Node(None, 0o755))
                path = path.rpartition("/")[0]
        for path, content in (files or {}).items():
            self._nodes[path] = _Node(content.encode() if isinstance(content, str) else content, 0o644)

    def contents(self) -> dict[str, bytes]:
        """A copy of every file, by path."""
        with self._lock:
            return {path: node.content for path, node in self._nodes.items() if node.content is not None}

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool]) -> None:
        """Do nothing, because there are no links here."""

    def open(self, path: str, mode: str, held: Held) -> BinaryIO:
        """A file: `rb`, `wb`, `ab`, `xb` or `r+b`. Written data is visible when the file is flushed or closed."""
        put = partial(self._put, path)
        with self._lock:
            if mode in ("rb", "r+b"):
                content = self._content(path)
                return io.BytesIO(content) if mode == "rb" else _Writing(put, content)
            self._place(path)
            found = self._nodes.get(path)
            if mode == "xb" and found is not None:
                raise _no(errno.EEXIST, path)
            content = self._content(path) if found is not None else b""
            if mode != "ab" or found is None:
                self._put(path, b"")
            return _Writing(put, content, at_end=True) if mode == "ab" else _Writing(put, b"")

    def write(self, path: str, data: bytes, held: Held, turn: Turn = ANY_TIME) -> None:
        """Replace a file atomically, while holding the write lock `turn`."""
        with turn, self._lock:
            self._place(path)
            if path in self._nodes:
                self._content(path)
            self._put(path, bytes(data))

    def stat(self, path: str, held: Held) -> Stat:
        """Return the status of a path, or raise `FileNotFoundError`."""
        with self._lock:
            node = self._node(path)
            size = 0 if node.content is None else len(node.content)
            return Stat("directory" if node.content is None else "file", size, node.modified, node.mode)

    def list(self, path: str, held: Held) -> list[str]:
        """The granted names in a directory, sorted."""
        with self._lock:
            if self._node(path).content is not None:
                raise _no(errno.ENOTDIR, path)
            inner = [place[len(_below(path)) :] for place in self._nodes if place.startswith(_below(path))]
        names = (name for name in inner if name and "/" not in name)
        return sorted(name for name in names if held.covers("read", _below(path) + name))

    def mkdir(self, path: str, held: Held) -> None:
        """Make a directory, and its granted parents; an existing one is fine."""
        with self._lock:
            missing = []
            while path not in self._nodes:
                missing.append(path)
                path = path.rpartition("/")[0] or "/"
                if path not in self._nodes and not held.covers("write", path):
                    raise _no(errno.ENOENT, path)
            if self._nodes[path].content is not None:
                raise _no(errno.ENOTDIR if missing else errno.EEXIST, path)
            for place in missing:
                self._nodes[place] = _Node(None, 0o755)

    def delete(self, path: str, held: Held) -> None:
        """Remove a file or an empty directory."""
        with self._lock:
            self._place(path)
            if self._node(path).content is None:
                _check_tree(path, "delete", held)
                if any(place.startswith(_below(path)) for place in self._nodes):
                    raise _no(errno.ENOTEMPTY, path)
            del self._nodes[path]

    def rename(self, source: str, target: str, held: Held) -> None:
        """Move a file or a directory; the target is replaced, as by the system."""
        with self._lock:
            self._place(source)
            self._place(target)
            moved = self._node(source)
            _check_tree(source, "delete", held)
            _check_tree(target, "write", held)
            if held.overlaps("read", target):
                _check_tree(source, "read", held)
            if source == target:
                return
            if target.startswith(_below(source)):
                raise _no(errno.EINVAL, source)
            found = self._nodes.get(target)
            if found is not None:
                if moved.content is not None and found.content is None:
                    raise _no(errno.EISDIR, target)
                if moved.content is None and found.content is not None:
                    raise _no(errno.ENOTDIR, target)
                if any(place.startswith(_below(target)) for place in self._nodes):
                    raise _no(errno.ENOTEMPTY, target)
            below = {place: node for place, node in self._nodes.items() if place.startswith(_below(source))}
            for place in (source, *below):
                del self._nodes[place]
            self._nodes[target] = moved
            self._nodes.update((target + place[len(source) :], node) for place, node in below.items())

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            above = path
            while above not in self._nodes:
                above = above.rpartition("/")[0] or "/"
            raise _no(errno.ENOENT if self._nodes[above].content is None else errno.ENOTDIR, path)
        return node

    def _content(self, path: str) -> bytes:
        content = self._node(path).content
        if content is None:
            raise _no(errno.EISDIR, path)
        return content

    def _place(self, path: str) -> None:
        """Check that the parent of a path is a directory."""
        if path == "/":
            raise Escaped("the root of all paths cannot be changed")
        above = path.rpartition("/")[0] or "/"
        if self._node(above).content is not None:
            raise _no(errno.ENOTDIR, path)

    def _put(self, path: str, content: bytes) -> None:
        with self._lock:
            old = self._nodes.get(path)
            self._nodes[path] = _Node(content, 0o644 if old is None else old.mode)


class _Writing(io.BytesIO):
    """An open file whose content is stored when it is flushed or closed."""

    def __init__(self, store: Callable[[bytes], None], content: bytes, *, at_end: bool = False) -> None:
        super().__init__(content)
        self._store = store
        if at_end:
            self.seek(0, io.SEEK_END)

    def flush(self) -> None:
        """Store what was written so far."""
        if not self.closed:
            self._store(self.getvalue())

    def close(self) -> None:
        """Store what was written, and close the file."""
        self.flush()
        super().close()


def _below(path: str) -> str:
    return path.rstrip("/") + "/"


def _check_tree(path: str, action: str, held: Held) -> None:
    if not held.covers_tree(action, path):
        raise Escaped("something in it is not held")


def _no(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
