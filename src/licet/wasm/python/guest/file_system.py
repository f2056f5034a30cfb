"""`open`, and the parts of `os` that work on files, over `ctx.fs`. `pathlib`, `glob`, `shutil`, `zipfile` … use them.

A file is read when it is opened, and written when it is flushed or closed.
"""

import builtins
import errno
import io
import os
import stat
import sys
import tarfile
import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

from .host_context import Context

_LIBRARY = os.path.dirname(os.__file__)
_LOOKS_UP = ("os", "collections.abc", __name__)  # modules through which a variable is looked up


class HostFile(io.BytesIO):
    """A file of the host, in memory until it is flushed or closed."""

    def __init__(self, files: "HostFiles", path: str, kind: str, updated: bool, content: bytes) -> None:
        super().__init__(content)
        self._files, self.name, self._mode = files, path, f"{kind}b{'+' if updated else ''}"
        self._reads, self._writes, self._appends = kind == "r" or updated, kind != "r" or updated, kind == "a"
        self._changed = False
        self.is_wrapped = False  # by a text file, which closes this one
        if self._appends:
            self.seek(0, io.SEEK_END)

    @property
    def mode(self) -> str:
        return self._mode

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def _readable(self) -> None:
        if not self._reads:
            raise io.UnsupportedOperation("not readable: the file was opened for writing")

    def read(self, size: int | None = -1, /) -> bytes:
        self._readable()
        return super().read(size)

    def read1(self, size: int | None = -1, /) -> bytes:
        self._readable()
        return super().read1(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        self._readable()
        return super().readline(size)

    def readinto(self, buffer: Any, /) -> int:
        self._readable()
        return super().readinto(buffer)

    def write(self, data: Any, /) -> int:
        if not self._writes:
            raise io.UnsupportedOperation("not writable: the file was opened for reading")
        if self._appends:
            self.seek(0, io.SEEK_END)
        self._changed = True
        return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        if not self._writes:
            raise io.UnsupportedOperation("not writable: the file was opened for reading")
        self._changed = True
        return super().truncate(size)

    def flush(self) -> None:
        super().flush()
        if self._changed:
            self._changed = False  # also if the host refuses: it would refuse again
            self._files.ctx.fs.write(self.name, self.getvalue())

    def close(self) -> None:
        if not self.closed:
            try:
                self.flush()
            finally:
                super().close()

    def __del__(self) -> None:
        if not self.is_wrapped:  # in a cycle this may be called before that of the text file, which has text to write
            self.close()


class HostFiles:
    """Opens files of the host, and remembers those that are still open."""

    def __init__(self, ctx: Context, directory: str = ".") -> None:
        self.ctx, self.directory = ctx, directory
        self._opened: weakref.WeakSet[Any] = weakref.WeakSet()

    def open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """The builtin `open`."""
        if isinstance(file, int):
            raise OSError(errno.EBADF, "there are no file descriptors here: open a file by its path")
        if opener:
            raise OSError(errno.ENOSYS, "there are no temporary files here: use io.BytesIO, io.StringIO or open(path)")
        path, text = os.fsdecode(file), mode.replace("U", "")
        kinds = [letter for letter in text if letter in "rwax"]
        if len(kinds) != 1 or set(text) - set("rwax+bt") or len(set(text)) != len(text) or {"b", "t"} <= set(text):
            raise ValueError(f"invalid mode: {mode!r}")
        if "b" in text and (encoding or errors or newline is not None):
            raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
        if kinds[0] in "wx":
            self.ctx.fs.write(path, b"")  # now, as everywhere: a refusal is an error of this line
        binary = HostFile(self, path, kinds[0], "+" in text, self._content(path, kinds[0]))
        if "b" in text:
            self._opened.add(binary)
            return binary
        if encoding in (None, "locale"):
            encoding = "utf-8"
        wrapped = io.TextIOWrapper(binary, encoding, errors, newline, line_buffering=buffering == 1)
        binary.is_wrapped = True
        wrapped.mode = text  # type: ignore[misc]
        self._opened.add(wrapped)
        return wrapped

    def _content(self, path: str, kind: str) -> bytes:
        """What the file holds before the first write."""
        if _is_own(path):
            raise _missing(path)
        if kind == "x" and self.ctx.fs.exists(path):
            raise FileExistsError(errno.EEXIST, "File exists", path)
        if kind == "r":
            return self.ctx.fs.read_bytes(path)
        if kind != "a":
            return b""
        try:
            return self.ctx.fs.read_bytes(path)
        except FileNotFoundError:
            return b""

    def close_all(self) -> None:
        """Write and close what is still open, as the end of a program does; the first error is raised at the end."""
        first: BaseException | None = None
        for file in [*self._opened]:
            try:
                file.close()
            except Exception as problem:
                first = first or problem
        if first:
            raise first

    def stat(self, path: Any, *, dir_fd: object = None, follow_symlinks: bool = True) -> os.stat_result:
        """`os.stat`."""
        if isinstance(path, int):
            raise OSError(errno.EBADF, "there are no file descriptors here")
        name = os.fsdecode(path)
        if _is_own(name):
            raise _missing(name)
        found = self.ctx.fs.stat(name)
        mode = found.mode | (stat.S_IFDIR if found.is_dir else stat.S_IFREG)
        seconds = int(found.modified)
        return os.stat_result((mode, 0, 0, 1, 0, 0, found.size, seconds, seconds, seconds, *(found.modified,) * 3))

    def listdir(self, path: Any = ".") -> list[Any]:
        """`os.listdir`."""
        names = self.ctx.fs.list(path)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else [*names]

    def scandir(self, path: Any = ".") -> "Entries":
        """`os.scandir`."""
        place = os.fspath(path)
        return Entries([Entry(self, place, name) for name in self.listdir(place)])

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: object = None) -> None:
        """`os.mkdir`; the handle makes parents too, and takes a directory that exists."""
        if self.ctx.fs.exists(path):
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self.ctx.fs.mkdir(path)

    def remove(self, path: Any, *, dir_fd: object = None) -> None:
        """`os.remove`, `os.unlink` and `os.rmdir`."""
        self.ctx.fs.delete(path)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: object = None, dst_dir_fd: object = None) -> None:
        """`os.rename` and `os.replace`."""
        self.ctx.fs.rename(src, dst)

    def access(self, path: Any, mode: int, **options: object) -> bool:
        """`os.access`, which can only tell whether a path is there."""
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def getcwd(self) -> str:
        return self.directory

    def unchanged(self, path: Any, *args: object, **options: object) -> None:
        """`os.chmod` and `os.utime`: the host decides modes and times, and `shutil.copy` sets both."""
        self.stat(path)


class Entry:
    """An `os.DirEntry`."""

    def __init__(self, files: HostFiles, place: Any, name: Any) -> None:
        self._files, self.name, self.path = files, name, os.path.join(place, name)

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._files.stat(self.path)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path)

    def is_symlink(self) -> bool:
        return False

    def is_junction(self) -> bool:
        return False

    def inode(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Entries:
    """What `os.scandir` returns."""

    def __init__(self, entries: list[Entry]) -> None:
        self._left = iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        return self._left

    def __next__(self) -> Entry:
        return next(self._left)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()

    def close(self) -> None:
        self._left = iter(())


class HostEnviron(MutableMapping[str, str]):
    """`os.environ`: the host is asked for each variable that the code looks up. What is set here stays here."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._own: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name in self._own:
            return self._own[name]
        if not _is_asked_by_code():
            raise KeyError(name)
        try:
            value = self._ctx.env.get(name)
        except PermissionError as refusal:
            raise KeyError(f"{name}: {refusal}") from None
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: str) -> None:
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own])

    def __len__(self) -> int:
        return len(self._own)

    def copy(self) -> dict[str, str]:
        return dict(self._own)

    def __repr__(self) -> str:
        return f"environ({self._own!r})"


def _is_own(path: str) -> bool:
    """Whether a path is of this instance, such as the file of a library function in a traceback."""
    return path.startswith(("<", "/python/", f"{_LIBRARY}/"))


def _is_asked_by_code() -> bool:
    """Whether it is not the library that looks up a variable, such as `NO_COLOR`: the host would record each."""
    frame: Any = sys._getframe(1)
    while frame and frame.f_globals.get("__name__") in _LOOKS_UP:
        frame = frame.f_back
    name = frame.f_code.co_filename if frame else ""
    return name.startswith("<") and not name.startswith("<frozen")


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", path)


def _no_descriptors(*args: object, **options: object) -> Any:
    raise OSError(errno.ENOSYS, "there are no file descriptors here: use open(path)")


def _absolute(path: Any, *, strict: bool = False) -> Any:
    """The absolute path. Links are the host's part, which would be asked about each parent otherwise."""
    return os.path.abspath(path)


def install(files: HostFiles) -> None:
    """Put `files` in the place of the files of the system."""
    builtins.open = io.open = files.open
    tarfile.bltn_open = files.open  # type: ignore[attr-defined] # taken when it was imported
    instead = {
        "access": files.access,
        "chmod": files.unchanged,
        "environ": HostEnviron(files.ctx),
        "fdopen": _no_descriptors,
        "getcwd": files.getcwd,
        "getcwdb": lambda: os.fsencode(files.getcwd()),
        "listdir": files.listdir,
        "lstat": files.stat,
        "mkdir": files.mkdir,
        "open": _no_descriptors,
        "remove": files.remove,
        "rename": files.rename,
        "replace": files.rename,
        "rmdir": files.remove,
        "scandir": files.scandir,
        "stat": files.stat,
        "unlink": files.remove,
        "utime": files.unchanged,
    }
    for name, thing in instead.items():
        setattr(os, name, thing)
    os.path.realpath = _absolute  # type: ignore[assignment]
