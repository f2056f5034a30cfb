"""Finds processes that hold a file by its path: open, mapped, executed, or as a directory that they are in.

For a process outside of a pid namespace whose processes are all stopped, in their mount namespace and with their /proc.
"""

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

_GONE = b" (deleted)"
_LINKS = ("cwd", "root", "exe")


class Undecided(Exception):
    """Whether a file is held cannot be found out."""


def counts_sent_files(own: int) -> bool:
    """Whether the kernel tells how many open files wait in a socket; for `own` see `holder`."""
    near, far = socket.socketpair()
    with near, far:
        return _waiting(os.open(f"fdinfo/{near.fileno()}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=own)) is not None


def holder(paths: Mapping[str, bool], covers: Mapping[int, str], own: int) -> str:
    """What holds one of these paths, or something below it, in words; empty if nothing does.

    `paths` says whether reading is closed, too. `covers` are the mounts over such paths by their ids, with the paths
    where they are: what was opened through the one at a path, or one below it, is not held. `own` is the directory of
    this process in /proc, opened. Raises `Undecided` if a process cannot be looked at.
    """
    patterns = {path: _mapping(path) for path in paths}
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    if not processes:
        raise Undecided("/proc is not there")
    for process in processes:
        if process == "1":
            continue
        try:
            tasks = _live_tasks(process)
            for task in tasks:
                if text := _held_by(task, paths, covers, own):
                    return text
            maps = _read(f"{tasks[0]}/maps") if tasks else b""  # threads of a process have one memory
        except OSError as error:
            if not _live_tasks(process):  # it was killed
                continue
            raise Undecided(f"a process cannot be looked at: {error.strerror}") from error
        for path, pattern in patterns.items():
            # A private mapping of what may be read harms nothing.
            if any(paths[path] or line[1] == b"s" for line in pattern.finditer(maps)):
                return f"a process has `{path}` mapped"
    return ""


def _live_tasks(process: str) -> list[str]:
    """The tasks of a process that have not ended, as directories.

    One that has ended has no files and cannot be looked at. If it is the first one, the process as a whole shows
    nothing of what the others have.
    """
    tasks = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for name in os.listdir(f"/proc/{process}/task"):
            task = f"/proc/{process}/task/{name}"
            with suppress(FileNotFoundError, ProcessLookupError):
                if _read(f"{task}/stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                    tasks.append(task)
    return tasks


def _held_by(task: str, paths: Iterable[str], covers: Mapping[int, str], own: int) -> str:
    for link in _LINKS:
        with suppress(FileNotFoundError):  # a thread of a process that ends
            inside = _containing(os.fsencode(os.readlink(f"{task}/{link}")), paths)
            if inside and (path := _uncovered(inside, covers.get(_mount_of(f"{task}/{link}", own)))):
                return f"a process uses `{path}`"
    for file in os.listdir(f"{task}/fd"):
        target = os.fsencode(os.readlink(f"{task}/fd/{file}"))
        if target.startswith(b"socket:"):
            if _waiting(os.open(f"{task}/fdinfo/{file}", os.O_RDONLY | os.O_CLOEXEC)):
                raise Undecided("open files are on their way from one process to another")
            continue
        inside = _containing(target, paths)
        if inside and (path := _uncovered(inside, covers.get(_mount(f"{task}/fdinfo/{file}")))):
            return f"a process has `{path}` open"
    return ""


def _containing(target: bytes, paths: Iterable[str]) -> list[str]:
    """The paths at or below which a file is."""
    return [path for path in paths if _is_in(target, os.fsencode(path))]


def _is_in(target: bytes, path: bytes) -> bool:
    return target.startswith(path) and (target[len(path) :] in (b"", _GONE) or target[len(path)] == 0x2F)


def _uncovered(paths: Iterable[str], cover: str | None) -> str:
    """The first of these paths that was not covered for who opened something through the mount that is at `cover`."""
    return next((path for path in paths if cover is None or not _is_in(os.fsencode(cover), os.fsencode(path))), "")


def _mapping(path: str) -> "re.Pattern[bytes]":
    name = re.escape(os.fsencode(path).replace(b"\n", b"\\012"))
    return re.compile(rb"^[^ ]+ ..." + rb"(.) [^/\n]*" + name + rb"(?:/.*| \(deleted\))?$", re.MULTILINE)


def _waiting(information: int) -> int | None:
    """How many open files wait in a socket; None for one that carries none, or on a kernel that does not say."""
    with open(information, "rb", buffering=0) as file:
        return next((int(line.split()[1]) for line in _lines(file.read(4096)) if line.startswith(b"scm_fds:")), None)


def _mount(path: str) -> int:
    """The id of the mount that a file was opened through."""
    return mount_id(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _mount_of(path: str, own: int) -> int:
    file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return mount_id(os.open(f"fdinfo/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=own))
    finally:
        os.close(file)


def mount_id(information: int) -> int:
    """The id of the mount of an open file, from what /proc has about it, which is closed."""
    with open(information, "rb", buffering=0) as file:
        return next(int(line.split()[1]) for line in _lines(file.read(4096)) if line.startswith(b"mnt_id:"))


def _lines(text: bytes) -> Iterator[bytes]:
    return iter(text.splitlines())


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=1 << 16) as file:
        return file.read()
