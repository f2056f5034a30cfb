"""Finds processes that hold a file, by its path and its inode: open, mapped, executed, or as their directory.

For a process outside of a pid namespace whose processes are all stopped, in their mount namespace and with their /proc.
"""

import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def identity(about: os.stat_result) -> tuple[int, int]:
    """What tells a file from all others, whatever its names are."""
    return about.st_dev, about.st_ino


class Exposed:
    """What was open to a program for a moment.

    - `covers`: the mounts over such paths by their ids, with the paths where they are: what was opened through the one
      at a path, or one below it, is not held
    - `paths`: closed paths, and whether reading is closed, too
    - `files`: what has been at these paths or below them, with that path; a name can be another one meanwhile
    - `mapped`: the same, as mappings name it
    - `around`: directories that lead to closed paths. From a directory in one, which was opened through another mount,
      a process comes to what is beneath the covers
    """

    # No dataclass: what that imports would make each program start a quarter later.
    def __init__(self, covers: Mapping[int, str]) -> None:
        self.covers = covers
        self.paths: dict[str, bool] = {}
        self.files: dict[tuple[int, int], str] = {}
        self.mapped: dict[tuple[str, int], str] = {}
        self.around: dict[tuple[int, int], str] = {}

    def add(self, path: str, about: os.stat_result, device: str) -> None:
        """Add a file that has been at a path, or below it; `device` is the one of its mount."""
        self.files[identity(about)] = path
        # Some file systems give their files other devices than their mounts have.
        for name in (device, f"{os.major(about.st_dev)}:{os.minor(about.st_dev)}"):
            self.mapped[name, about.st_ino] = path


def holder(exposed: Exposed, own: int) -> str:
    """What holds something that was open, in words; empty if nothing does.

    `own` is the directory of this process in /proc, opened. Raises `Undecided` if a process cannot be looked at.
    """
    patterns = {path: _mapping(path) for path in exposed.paths}
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    if not processes:
        raise Undecided("/proc is not there")
    for process in processes:
        if process == "1":
            continue
        try:
            tasks = _live_tasks(process)
            for task in tasks:
                if text := _held_by(task, exposed, own):
                    return text
            maps = _read(f"{tasks[0]}/maps") if tasks else b""  # threads of a process have one memory
        except OSError as error:
            if not _live_tasks(process):  # it was killed
                continue
            raise Undecided(f"a process cannot be looked at: {error.strerror}") from error
        mapped = [(path, line[1]) for path, pattern in patterns.items() for line in pattern.finditer(maps)]
        mapped += _mapped(maps, exposed.mapped)
        for path, sharing in mapped:
            # A private mapping of what may be read harms nothing.
            if exposed.paths[path] or sharing == b"s":
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


def _held_by(task: str, exposed: Exposed, own: int) -> str:
    for link in _LINKS:
        with suppress(FileNotFoundError):  # a thread of a process that ends
            text = os.fsencode(os.readlink(f"{task}/{link}"))
            if path := _held(f"{task}/{link}", text, exposed, lambda: _mount_of(f"{task}/{link}", own)):  # noqa: B023
                return f"a process uses `{path}`"
    for file in os.listdir(f"{task}/fd"):
        text = os.fsencode(os.readlink(f"{task}/fd/{file}"))
        if text.startswith(b"socket:"):
            if _waiting(os.open(f"{task}/fdinfo/{file}", os.O_RDONLY | os.O_CLOEXEC)):
                raise Undecided("open files are on their way from one process to another")
            continue
        if path := _held(f"{task}/fd/{file}", text, exposed, lambda: _mount(f"{task}/fdinfo/{file}")):  # noqa: B023
            return f"a process has `{path}` open"
    return ""


def _held(link: str, text: bytes, exposed: Exposed, mount: Callable[[], int]) -> str:
    """What is held by a link of /proc, which reads `text` and leads through a mount; empty if nothing is."""
    about = os.stat(link)
    paths = _containing(text, exposed.paths)
    if identity(about) in exposed.files:
        paths.append(exposed.files[identity(about)])
    if exposed.around and stat.S_ISDIR(about.st_mode):
        paths += _around(link, exposed.around)
    return _uncovered(paths, exposed.covers.get(mount())) if paths else ""


def _around(link: str, around: Mapping[tuple[int, int], str]) -> list[str]:
    """Those of some directories that a directory is, or from which it is reached; its own name may be gone."""
    paths, before = [], None
    about = os.stat(link)
    while identity(about) != before:
        before = identity(about)
        if before in around:
            paths.append(around[before])
        link += "/.."
        about = os.stat(link)
    return paths


def _mapped(maps: bytes, mapped: Mapping[tuple[str, int], str]) -> Iterator[tuple[str, bytes]]:
    """The files among the mappings of a process, each with whether it is shared (`s`) or private (`p`)."""
    for line in maps.splitlines():
        _, rights, _, device, number, *_ = line.split(None, 5)
        if number != b"0":
            major, _, minor = device.partition(b":")
            path = mapped.get((f"{int(major, 16)}:{int(minor, 16)}", int(number)))
            if path is not None:
                yield path, rights[3:4]


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
