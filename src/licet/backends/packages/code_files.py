"""The files in the directories that `servers.NAME.code` names: a digest of each, for the lock and at each start.

Compiled files in `__pycache__` are left out: they differ from machine to machine, and `python_start` does not use them.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping

from licet.backends.packages.store import PackageError, file_digest
from licet.core.algebra.scope import visible
from licet.regular_files import NotRegular

__all__ = ["code_difference", "code_digests"]

_MOST_FILES = 20_000
_MOST_BYTES = 512 * 1024 * 1024


def code_digests(directory: str) -> dict[str, str]:
    """The digest of each file below a directory, by its relative path; of a link, the digest of where it leads.

    Raises `PackageError` for what cannot be pinned: a link that leads out of the directory, a pipe, too many files.
    """
    root = os.path.realpath(directory)
    if not os.path.isdir(root):
        raise PackageError(f"`{visible(directory)}` is no directory: `code` names the directory of a server's files")
    found: dict[str, str] = {}
    size = 0
    for path, about in _files(root):
        size += about.st_size
        if len(found) >= _MOST_FILES or size > _MOST_BYTES:
            raise PackageError(
                f"`{visible(directory)}` has more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MB: "
                "name the directory that has the server's own files alone"
            )
        found[os.path.relpath(path, root)] = _digest(path, about, root)
    return dict(sorted(found.items()))


def code_difference(locked: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first file that differs, with how; empty if none does."""
    for name in sorted(locked.keys() | now.keys()):
        if locked.get(name) != now.get(name):
            what = "is missing" if name not in now else "is new" if name not in locked else "is different"
            return f"`{visible(name)}` {what}"
    return ""


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    left = [root]
    while left:
        folder = left.pop()
        is_cache = os.path.basename(folder) == "__pycache__"
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif not (is_cache and entry.name.endswith(".pyc")):
                        yield entry.path, entry.stat(follow_symlinks=False)
        except OSError as wrong:
            raise PackageError(f"{visible(folder)} cannot be read: {wrong.strerror}") from wrong


def _digest(path: str, about: os.stat_result, root: str) -> str:
    try:
        if stat.S_ISLNK(about.st_mode):
            if not f"{os.path.realpath(path)}/".startswith(f"{root}/"):
                raise PackageError(f"the link {visible(path)} leads out of the code of the server: put a copy there")
            return f"sha256:{hashlib.sha256(os.fsencode(f'link to {os.readlink(path)}')).hexdigest()}"
        if not stat.S_ISREG(about.st_mode):
            raise NotRegular(None, "it is no regular file")
        return file_digest(path)
    except OSError as wrong:
        raise PackageError(f"{visible(path)} cannot be read: {wrong.strerror}") from wrong
