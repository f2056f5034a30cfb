"""Finds the repositories that the index of a repository of git names: submodules, and others that were added to it.

`git status` and `git diff` start git in each, there or not, and that runs what its configuration names. The index is
read here, as `gitformat-index` describes it: git itself would run programs of the repository to list it.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress

from licet.own_files import read_regular
from licet.policy_files.limits import MOST_OF_INDEX

_MODE = b"\x00\x00\xe0\x00"  # of a repository, as an entry of the index has it
_GITLINK = 0o160000
_EXTENDED, _LENGTH = 0x4000, 0xFFF  # flags of an entry
_HASHES = (hashlib.sha1(usedforsecurity=False).digest_size, hashlib.sha256().digest_size)


class UnreadIndex(ValueError):
    """An index that is too large, or not as git writes it."""


def gitlinks(directory: str) -> tuple[str, ...]:
    """The paths of other repositories in the index of a repository, relative to its files; `directory` is its `.git`.

    Raises `UnreadIndex`.
    """
    data = _read(os.path.join(directory, "index"))
    entries = _entries(data)
    if b"link" in data:  # of two parts: the other one is in a file that is named by its hash
        is_replaced = (b"", True) in entries  # which of the other entries it stands for is not looked up
        for shared in _shared(directory, data):
            entries += [(name, is_link or is_replaced) for name, is_link in _entries(shared, every=is_replaced)]
    return tuple(sorted({os.fsdecode(name) for name, is_link in entries if is_link and _is_below(name)}))


def _shared(directory: str, data: bytes) -> Iterator[bytes]:
    with suppress(OSError):
        for name in os.listdir(directory):
            start, _, key = name.partition(".")
            with suppress(ValueError):
                if start == "sharedindex" and key and bytes.fromhex(key) in data:
                    yield _read(os.path.join(directory, name))


def _read(file: str) -> bytes:
    try:
        return read_regular(file, MOST_OF_INDEX)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UnreadIndex(file) from error


def _entries(data: bytes, *, every: bool = False) -> list[tuple[bytes, bool]]:
    """The names in an index, each with whether it is a repository; none if no entry is, unless `every` is wanted."""
    if _MODE not in data and not every:
        return []
    for size in _HASHES:
        with suppress(IndexError, ValueError):
            return list(_parsed(data, size))
    raise UnreadIndex


def _parsed(data: bytes, size: int) -> Iterator[tuple[bytes, bool]]:
    version, count = int.from_bytes(data[4:8]), int.from_bytes(data[8:12])
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    place, name = 12, b""
    for _ in range(count):
        mode = int.from_bytes(data[place + 24 : place + 28])
        flags = int.from_bytes(data[place + 40 + size : place + 42 + size])
        start = place + 42 + size + (2 if flags & _EXTENDED else 0)
        shared = 0
        if version == 4:  # a name begins as the one before it, without some letters at its end
            removed, start = _number(data, start)
            shared = len(name) - removed
        end = data.index(b"\0", start)
        name = name[:shared] + data[start:end]
        if shared < 0 or min(len(name), _LENGTH) != flags & _LENGTH:
            raise ValueError("no entry")
        yield name, mode == _GITLINK
        place = end + 1 if version == 4 else place + (end - place + 8) // 8 * 8


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = data[place] & 0x7F
    while data[place] & 0x80:
        place += 1
        value = ((value + 1) << 7) | (data[place] & 0x7F)
    return value, place + 1


def _is_below(name: bytes) -> bool:
    return bool(name) and not name.startswith(b"/") and not {b"..", b".git"} & {*name.split(b"/")}
