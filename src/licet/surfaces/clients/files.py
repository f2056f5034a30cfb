"""Reads and replaces files of this user: no links, nothing of other users, and never a file that changed meanwhile."""

import hashlib
import os
import secrets
import stat
from pathlib import Path

from msgspec import Struct

from licet.errors import LicetError
from licet.regular_files import NotRegular, open_regular, read_most

MOST_BYTES = 32 << 20


class Unusable(LicetError):
    """A file that is not read or not written. The text has the reason and the fix."""


class Seen(Struct, frozen=True):
    """A file as it was read."""

    path: Path
    data: bytes
    mode: int

    @property
    def text(self) -> str:
        """The content as text; raises `Unusable` if it is not UTF-8."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError:
            raise Unusable(f"{self.path} is not UTF-8: save it as UTF-8") from None


def digest(data: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def read_own(path: Path, base: Path) -> Seen | None:
    """Read a regular file of this user; None if there is none. No part of its path below `base` may be a link.

    A project from elsewhere could otherwise have one of its files lead to another file of this user.
    """
    below = path.relative_to(base) if path.is_relative_to(base) else Path(path.name)
    parts = [path, *list(path.parents)[: len(below.parts) - 1]]
    if link := next((part for part in reversed(parts) if part.is_symlink()), None):
        raise Unusable(f"{link} is a link: edit the file that it leads to by hand")
    try:
        with open_regular(path, links=False) as number:
            about = os.fstat(number)
            _check_owner(path, about)
            data = read_most(number, MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegular as wrong:
        raise Unusable(f"{path} is {wrong.strerror}") from None
    except OSError as wrong:
        raise Unusable(f"{path} cannot be read: {wrong.strerror}") from None
    if len(data) > MOST_BYTES:
        raise Unusable(f"{path} is larger than {MOST_BYTES >> 20} MiB")
    return Seen(path, data, stat.S_IMODE(about.st_mode))


def _check_owner(path: Path, about: os.stat_result) -> None:
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        raise Unusable(f"{path} belongs to another user: run this command as that user")


def replace_own(seen: Seen, data: bytes, base: Path) -> None:
    """Replace a file by new bytes, if it is still what was read. Its mode stays."""
    now = read_own(seen.path, base)
    if now is None or now.data != seen.data:
        raise Unusable(f"{seen.path} changed meanwhile: close its client, and try again")
    write_own(seen.path, data, now.mode)


def write_own(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file atomically, with this mode from its first byte on."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        number = os.open(draft, flags, 0o600)
        try:
            with os.fdopen(number, "wb") as file:
                if hasattr(os, "fchmod"):
                    os.fchmod(number, mode)
                file.write(data)
                file.flush()
                os.fsync(number)
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as wrong:
        raise Unusable(f"{path} cannot be written: {wrong.strerror}") from None


def own_directory(path: Path) -> Path:
    """Make a directory that only this user can read."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as wrong:
        raise Unusable(f"the directory {path} cannot be made: {wrong.strerror}") from None
    return path
