"""What archives of packages may hold: names that say where a file will be, and no more than an ordinary package has.

A small archive can unpack to a thousand times its size, and the sizes that it states can be wrong: what counts are the
bytes that were unpacked.

`unpack_tarball` unpacks a package of npm: the files and directories of its archive, and nothing else. npm itself
unpacks without a bound. Links are left out, as npm does.
"""

import gzip
import io
import os
import tarfile
import unicodedata
import zlib
from pathlib import Path

from licet.core.algebra.scope import visible
from licet.packages.clients import PackageError
from licet.packages.limits import (
    CHUNK,
    FREE_UNPACKED_BYTES,
    LONGEST_HEADER,
    LONGEST_MEMBER_NAME,
    LONGEST_MEMBER_PART,
    MOST_UNPACKED_BYTES,
    MOST_UNPACKED_FILES,
    MOST_UNPACKED_TIMES,
)


class Bounds:
    """Counts what the archives of one package unpack to. Raises `PackageError` for more than a package may have."""

    def __init__(self) -> None:
        self._files = self._bytes = self._left = 0
        self._archive = ""

    def start(self, archive: str, size: int) -> None:
        """Begin with an archive of so many bytes."""
        self._archive, self._left = visible(archive), FREE_UNPACKED_BYTES + MOST_UNPACKED_TIMES * size

    def file(self) -> None:
        """Count a file or a directory."""
        self._files += 1
        if self._files > MOST_UNPACKED_FILES:
            raise PackageError(
                f"{self._archive} is not installed: with it, there are more than {MOST_UNPACKED_FILES} files"
            )

    def unpacked(self, size: int) -> None:
        """Count bytes that were unpacked."""
        self._bytes += size
        self._left -= size
        if self._left < 0:
            raise PackageError(f"{self._archive} is not installed: it unpacks to far more than its own size")
        if self._bytes > MOST_UNPACKED_BYTES:
            raise PackageError(
                f"{self._archive} is not installed: with it, there are more than {MOST_UNPACKED_BYTES >> 30} GiB"
            )


def wrong_name(name: str) -> str:
    """Why the name of a file in an archive is not plainly where that file will be; empty if it is.

    Installers read `a//b` and `./a/b` as `a/b`. No builder writes such names, so they are refused.
    """
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or ".." in parts:
        return "leads out of the package"
    if "" in parts or "." in parts:
        return "is not written as a plain path"
    if any(unicodedata.category(character) == "Cc" for character in name):
        return "has a control character"
    if len(name.encode(errors="replace")) > LONGEST_MEMBER_NAME or any(
        len(part.encode(errors="replace")) > LONGEST_MEMBER_PART for part in parts
    ):
        return "is too long"
    return ""


def folded(name: str) -> str:
    """A name as the most lenient file system reads it: without differences of case, form, and dots at the end."""
    parts = unicodedata.normalize("NFKC", name).casefold().split("/")
    return "/".join(part.rstrip(". ") for part in parts)


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
        if not 0 <= size <= LONGEST_HEADER:
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
