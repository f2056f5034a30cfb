"""The package store: installed packages by content, read-only, each with a list of the hashes of its files.

A package lies in `<store>/<kind>/<name>/<version>-<16 hex digits>/`; the digits are of the digest of the integrity of
everything installed there. It is made in a directory next to it and renamed: a half-made package never has that name.

Each start checks all files: none is missing, none is new, and each has its size and its times of change. A file whose
times differ (a backup was restored) is hashed instead, and `verify=True` hashes all. Only this user can write to the
store, and no grant can, so the check finds accidents and other programs, not somebody who also rewrites the list.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.late_pattern import late_pattern
from licet.core.policy.lock import Resolved
from licet.core.values import digest
from licet.own_files import open_regular
from licet.packages.clients import PackageChanged, PackageError, check_time
from licet.packages.limits import (
    STEP_SECONDS,
)

__all__ = [
    "Files",
    "Installed",
    "PackageChanged",
    "PackageError",
    "Progress",
    "Resolved",
    "building",
    "check_program",
    "file_digest",
    "keep_only",
    "kept",
    "place",
    "put",
    "unchanged",
]

Progress = Callable[[str], None]
Starter = Literal["node", "python", ""]

_FILES = "files.json"
_NEW = ".new-"
_LOCK = ".lock"
_NAME = late_pattern(r"(@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*")
_VERSION = late_pattern(r"[0-9A-Za-z][0-9A-Za-z.!+_-]*")


class Installed(Struct, frozen=True):
    """How to start a server: the program without the server's own arguments, and what its process must read.

    Whoever can write to `readable` decides what the server does, so no grant may.
    """

    argv: tuple[str, ...]
    readable: tuple[str, ...]
    environment: Mapping[str, str] = {}


class File(Struct, frozen=True, array_like=True):
    """A file of a package when it was installed; for a link, `target` instead of a hash."""

    size: int
    modified: int
    changed: int
    sha256: str = ""
    target: str = ""


class Files(Struct, frozen=True, kw_only=True):
    """The list of a package: what it was installed from, which programs it has, and all its files.

    A program is a file with what starts it: Node, the Python of the package, or the kernel.
    """

    format: Literal[1] = 1
    platform: str
    integrity: Mapping[str, Mapping[str, str]]
    programs: Mapping[str, tuple[Starter, str]]
    files: Mapping[str, File] = {}


# Places ---------------------------------------------------------------------------------------------------------------


def place(
    store: Path, kind: str, name: str, version: str, platform: str, integrity: Mapping[str, Mapping[str, str]]
) -> Path:
    """The directory of a package. `integrity` is that of what is installed on this platform.

    Names come from the lock, which is a file of the project: one that would lead elsewhere is refused.
    """
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise PackageError(
            f"`{visible(name)}` in version `{visible(version)}` is no package: `licet lock` writes names"
        )
    address = digest({"platform": platform, "integrity": integrity}).removeprefix("sha256:")[:16]
    return store / kind / name / f"{version}-{address}"


@contextmanager
def building(store: Path, kind: str, name: str) -> Iterator[Path]:
    """A new directory next to where the package will be. It is removed at the end, unless `put` renamed it.

    The directories of processes that died are removed too: nobody holds the lock of those.
    """
    import tempfile  # at each start of a program nothing is installed

    if not _NAME.fullmatch(name):
        raise PackageError(f"`{visible(name)}` is no name of a package")
    parent = store / kind / name
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(store, 0o700)
    except OSError as wrong:
        raise PackageError(f"the package store {store} cannot be made: {wrong.strerror}") from wrong
    with _locked(parent / _LOCK):  # a new directory must not look dead before it is locked
        for left in parent.glob(f"{_NEW}*"):
            _discard_if_dead(left)
        new = Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))
        held = _hold(new)
    try:
        yield new
    finally:
        _discard(new)
        os.close(held)


def keep_only(new: Path, name: str) -> None:
    """Remove what was only needed to make a package: all but one entry of its directory."""
    import shutil

    for path in list(new.iterdir()):
        if path.name != name:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def check_program(program: str, programs: Iterable[str], package: str, version: str) -> None:
    """Raise `PackageError` unless a package that was just installed has the program that a command starts."""
    if program not in programs:
        names = ", ".join(f"`{visible(one)}`" for one in sorted(programs)) or "none"
        raise PackageError(f"{package} {version} has no program `{visible(program)}`: it has {names}")


def put(new: Path, store: Path, target: Path, listed: Files) -> None:
    """Make a directory read-only, write its list, and give it its name.

    A package of this name that another process put there stays, if it is unchanged.
    """
    import tempfile

    files = {name: _recorded(new, name) for name in _freeze(new)}
    listing = new / _FILES
    listing.write_bytes(msgspec.json.encode(replace(listed, files=files)))
    listing.chmod(0o444)
    for folder, _, _ in os.walk(new):
        os.chmod(folder, 0o555)  # noqa: S103 - less than it had
    with _locked(target.parent / _LOCK):
        if unchanged(store, target, listed.integrity) is not None:
            return
        if target.is_dir():
            old = Path(tempfile.mkdtemp(prefix=_NEW, dir=target.parent))
            os.rename(target, old)  # a read-only directory can be renamed, but not moved to another one
            os.rename(new, target)
            _discard(old)
        else:
            os.rename(new, target)


def kept(
    store: Path, target: Path, integrity: Mapping[str, Mapping[str, str]], *, verify: bool = False
) -> Files | None:
    """Return the list of a package that is in the store and unchanged; `None` if it is not there.

    Raises `PackageChanged`, with the file, if the package was changed.
    """
    try:
        data = (target / _FILES).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if target.is_dir():
            raise PackageChanged(_changed(target, f"its list {_FILES} is missing")) from None
        return None
    except OSError as wrong:
        raise PackageError(f"{target} cannot be read: {wrong.strerror}") from wrong
    try:
        listed = msgspec.json.decode(data, type=Files)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PackageChanged(_changed(target, f"its list {_FILES} cannot be read")) from None
    if listed.integrity != integrity:
        raise PackageChanged(_changed(target, f"its list {_FILES} has another integrity"))
    if problem := _writable_by_others(store, target):
        raise PackageError(problem)
    if difference := _difference(target, listed.files, verify=verify):
        raise PackageChanged(_changed(target, difference))
    return listed


def unchanged(store: Path, target: Path, integrity: Mapping[str, Mapping[str, str]]) -> Files | None:
    """Return the list of a package whose every file is as it was installed; `None` if it has to be installed."""
    with suppress(PackageError):
        return kept(store, target, integrity, verify=True)
    return None


def _changed(target: Path, difference: str) -> str:
    return f"{target} was changed after it was installed: {difference}; `licet lock` installs it again"


# Files ----------------------------------------------------------------------------------------------------------------


def file_digest(path: str | os.PathLike[str]) -> str:
    """The hash of a file in the form that a lock has: `sha256:` and 64 hexadecimal digits."""
    with open_regular(path) as fd, os.fdopen(os.dup(fd), "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _freeze(root: Path) -> Iterator[str]:
    """Make everything below a directory read-only; yields the names of the files and links."""
    for folder, _, _ in os.walk(root):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    continue
                if not entry.is_symlink():
                    found = entry.stat(follow_symlinks=False)
                    if not stat.S_ISREG(found.st_mode):
                        raise PackageError(f"the package has `{visible(entry.name)}`, which is no regular file")
                    os.chmod(entry.path, 0o555 if found.st_mode & 0o111 else 0o444)
                yield os.path.relpath(entry.path, root)


def _recorded(root: Path, name: str) -> File:
    path = root / name
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return File(found.st_size, found.st_mtime_ns, found.st_ctime_ns, target=os.readlink(path))
    return File(found.st_size, found.st_mtime_ns, found.st_ctime_ns, file_digest(path))


def _difference(root: Path, listed: Mapping[str, File], *, verify: bool) -> str:
    """The first difference between the list and the directory; empty if there is none."""
    left = dict(listed)
    for folder, names in _walk(str(root)):
        prefix = folder[len(str(root)) + 1 :]
        for name, found in names:
            relative = f"{prefix}/{name}" if prefix else name
            file = left.pop(relative, None)
            if file is None:
                if relative == _FILES:
                    continue
                return f"`{visible(relative)}` is new"
            same = (found.st_size, found.st_mtime_ns, found.st_ctime_ns) == (file.size, file.modified, file.changed)
            if (verify or not same) and not _same_content(root / relative, found, file):
                return f"`{visible(relative)}` is different"
    return f"`{visible(min(left))}` is missing" if left else ""


def _same_content(path: Path, found: os.stat_result, file: File) -> bool:
    try:
        if stat.S_ISLNK(found.st_mode):
            return os.readlink(path) == file.target and not file.sha256
        return stat.S_ISREG(found.st_mode) and found.st_size == file.size and file_digest(path) == file.sha256
    except OSError:
        return False


def _walk(root: str) -> Iterator[tuple[str, list[tuple[str, os.stat_result]]]]:
    """Yield each directory with its files and their status. Links are not followed."""
    left = [root]
    while left:
        folder = left.pop()
        names = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        names.append((entry.name, entry.stat(follow_symlinks=False)))
        except OSError as wrong:  # `os.walk` would skip it
            raise PackageError(f"{folder} cannot be read: {wrong.strerror}") from wrong
        yield folder, names


def _writable_by_others(store: Path, target: Path) -> str:
    """What another user may change: the package, or a directory above it up to the store."""
    for path in (target, *target.parents):
        found = path.lstat()
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
            return f"another user may change {path}: no server is started from it; `chmod go-w` it, or remove it"
        if path == store:
            break
    return ""


# Directories of builds ------------------------------------------------------------------------------------------------


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not _flock(fd):  # another process may hold it for long
            check_time("waiting for another process that installs the same package")
            time.sleep(STEP_SECONDS)
        yield
    finally:
        os.close(fd)


def _flock(fd: int) -> bool:
    import fcntl  # not on every platform

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold(directory: Path) -> int:
    """Lock a directory as long as the returned descriptor is open, so that nobody takes it for a dead one."""
    import fcntl

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _discard_if_dead(directory: Path) -> None:
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    is_dead = _flock(fd)
    os.close(fd)
    if is_dead:
        _discard(directory)


def _discard(directory: Path) -> None:
    """Remove a directory, read-only ones in it too."""
    import shutil

    for folder, _, _ in os.walk(directory):
        with suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(directory, ignore_errors=True)
