"""Unpacks a package of npm: the files and directories of its archive, and nothing else.

npm itself unpacks without a bound. Links are left out, as npm does.
"""

import gzip
import io
import os
import tarfile
import zlib
from pathlib import Path

from licet.backends.packages.archives import CHUNK, Bounds, wrong_name
from licet.backends.packages.errors import PackageError
from licet.core.algebra.scope import visible

__all__ = ["unpack_tarball"]

_LONGEST_HEADER = 1 << 20  # bytes; Python reads the whole of an extended header at once


def unpack_tarball(tarball: Path, directory: Path, name: str, bounds: Bounds) -> None:
    """Unpack into a new directory, without the first part of each name. Raises `PackageError`."""
    bounds.start(name, tarball.stat().st_size)
    try:
        with open(tarball, "rb") as file, gzip.GzipFile(fileobj=file) as inflated:
            directory.mkdir(parents=True)
            with tarfile.TarFile(fileobj=_Counted(inflated, bounds)) as archive:
                for member in archive:
                    _unpack(archive, member, directory, name, bounds)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, RecursionError) as wrong:
        raise PackageError(f"{visible(name)} is no package that can be unpacked: {visible(str(wrong))}") from wrong


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path, name: str, bounds: Bounds) -> None:
    bounds.file()
    if not (member.isreg() or member.isdir()):
        return
    problem = "has holes, which are not in the archive" if member.issparse() else wrong_name(member.name)
    if problem:
        raise PackageError(f"{visible(name)} is not installed: `{visible(member.name)}` {problem}")
    _, _, inner = member.name.partition("/")
    if not inner:
        return
    place = directory / inner
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None  # noqa: S101 - it is a regular file
    # Exclusive: a name that is in it twice is refused. There are no links here to follow.
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if member.mode & 0o111 else 0o644)
    with content, open(fd, "wb") as file:
        while data := content.read(CHUNK):
            file.write(data)


class _Counted(io.RawIOBase):
    """What an archive inflates to, read once from its beginning to its end. All of it is counted."""

    def __init__(self, inflated: gzip.GzipFile, bounds: Bounds) -> None:
        super().__init__()
        self._inflated, self._bounds, self._position = inflated, bounds, 0

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_HEADER:
            raise ValueError("a header is too long")
        data = self._inflated.read(size)
        self._bounds.unpacked(len(data))
        self._position += len(data)
        return data

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or offset < self._position:
            raise ValueError("its parts are not in order")
        while self._position < offset and self.read(min(CHUNK, offset - self._position)):
            pass
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True
