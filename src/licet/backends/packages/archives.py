"""What archives of packages may hold: names that say where a file will be, and no more than an ordinary package has.

A small archive can unpack to a thousand times its size, and the sizes that it states can be wrong: what counts are the
bytes that were unpacked.
"""

import unicodedata

from licet.backends.packages.errors import PackageError
from licet.core.algebra.scope import visible

__all__ = ["CHUNK", "Bounds", "folded", "wrong_name"]

CHUNK = 1 << 16  # bytes that are unpacked at once
_MOST_BYTES = 4 << 30  # of a package with all that it needs
_MOST_FILES = 200_000
_FREE_BYTES = 64 << 20  # that a single archive may unpack to, whatever its size
_MOST_TIMES = 30  # its own size is what it may unpack to beyond that; sources and tables of text reach 10
_LONGEST_NAME = 1000  # bytes
_LONGEST_PART = 255


class Bounds:
    """Counts what the archives of one package unpack to. Raises `PackageError` for more than a package may have."""

    def __init__(self) -> None:
        self._files = self._bytes = self._left = 0
        self._archive = ""

    def start(self, archive: str, size: int) -> None:
        """Begin with an archive of so many bytes."""
        self._archive, self._left = visible(archive), _FREE_BYTES + _MOST_TIMES * size

    def file(self) -> None:
        """Count a file or a directory."""
        self._files += 1
        if self._files > _MOST_FILES:
            raise PackageError(f"{self._archive} is not installed: with it, there are more than {_MOST_FILES} files")

    def unpacked(self, size: int) -> None:
        """Count bytes that were unpacked."""
        self._bytes += size
        self._left -= size
        if self._left < 0:
            raise PackageError(f"{self._archive} is not installed: it unpacks to far more than its own size")
        if self._bytes > _MOST_BYTES:
            raise PackageError(
                f"{self._archive} is not installed: with it, there are more than {_MOST_BYTES >> 30} GiB"
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
    if len(name.encode(errors="replace")) > _LONGEST_NAME or any(
        len(part.encode(errors="replace")) > _LONGEST_PART for part in parts
    ):
        return "is too long"
    return ""


def folded(name: str) -> str:
    """A name as the most lenient file system reads it: without differences of case, form, and dots at the end."""
    parts = unicodedata.normalize("NFKC", name).casefold().split("/")
    return "/".join(part.rstrip(". ") for part in parts)
