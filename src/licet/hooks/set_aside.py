"""What shell lines have made that would configure a coding agent, somewhere below a directory that they may write.

Walls close names that they know. A line can make `.claude` in any other directory, which an agent reads that is started
there, or that opens a file there. So these directories are searched when a line ends, and when a gate is built or a
session begins if a line has ended without that: what was not there before is renamed, and a person is told.

The search is bounded, and goes from the outside in; a session is told if it does not get to the end. It enters no link,
no `.git` and no `node_modules`.
"""

import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from licet.core.algebra.scope import inside, visible
from licet.core.review.sensitive import SWITCHES, is_switch
from licet.hooks.limits import MOST_MOVED, MOST_SEARCHED
from licet.hooks.switches import OPENCODE_IGNORES
from licet.own_files import is_placeholder, read_regular, renamed_aside

_SKIPPED = frozenset((".git", "node_modules"))
_LAST = frozenset(one.path.rpartition("/")[2] for one in SWITCHES)
_MOST_RECORD = 16 << 20  # bytes
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Found(Struct, frozen=True):
    """What configures agents below some directories, and whether all of them were searched."""

    paths: tuple[str, ...]
    is_complete: bool = True


def search(roots: Iterable[str]) -> Found:
    """Find what configures agents, at any depth. Placeholders of lines that run are left out."""
    found: dict[str, None] = {}
    left, waiting = MOST_SEARCHED, deque(dict.fromkeys(roots))
    while waiting:
        if not left:
            return Found(tuple(found), is_complete=False)
        left -= 1
        directory = waiting.popleft()
        above = os.path.basename(directory)
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                # The last name first, which costs little: most entries are none.
                if entry.name.casefold() in _LAST and is_switch((above, entry.name)):
                    if not is_placeholder(entry.stat(follow_symlinks=False)):
                        found[entry.path] = None
                elif entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return Found(tuple(found))


class Watched(Struct, frozen=True):
    """The directories that lines may write, and what configured agents in them before: that is closed to lines."""

    roots: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    is_complete: bool = True  # whether all of the directories are searched


def set_aside(watched: Watched) -> list[str]:
    """Rename what is new in some directories and has something in it. Returns what a person is told."""
    found, told = search(watched.roots), []
    known = frozenset(watched.known)
    new = [path for path in found.paths if path not in known and os.path.realpath(path) not in known]
    for path in new[:MOST_MOVED]:
        root = max((root for root in watched.roots if inside(path, (root,))), key=len)
        with suppress(OSError):
            if moved := renamed_aside(root, path, _is_empty):
                text = f"{visible(path)} is new, and would configure a coding agent: it is {visible(moved)} now"
                told.append(f"{text}, which none reads; if you want it, rename it yourself")
    if len(new) > MOST_MOVED:
        told.append(f"{len(new) - MOST_MOVED} more paths are new that would configure a coding agent: remove them")
    return told


def _is_empty(folder: int, name: str) -> bool:
    """Whether a directory has at most the file in it that licet makes for OpenCode, as `make_missing` leaves it."""
    try:
        inner = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return False
    try:
        names = os.listdir(inner)
        if names == [".gitignore"]:
            ignores = os.open(".gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inner)
            with os.fdopen(ignores, "rb") as file:
                return file.read(len(OPENCODE_IGNORES) + 1) == OPENCODE_IGNORES
        return not names
    finally:
        os.close(inner)


class LineRecords:
    """Which lines run, and what was there when they began: so that nothing stays that a line has left which was killed.

    A record is locked while its line runs, and removed once what it made was searched.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def of_line(self, name: str, watched: Watched) -> Iterator[Callable[[], None]]:
        """Keep a record while a line runs, and after it until the function that this yields is called."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, written = self.directory / name, self.directory / f".{name}"
        record = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(record, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(msgspec.json.encode(watched))
            file.flush()
            os.rename(written, path)
            yield lambda: path.unlink(missing_ok=True)

    def settle(self) -> list[str]:
        """Set aside what lines have made that run, or that ended without a search. Returns what a person is told."""
        told: list[str] = []
        with suppress(FileNotFoundError):
            for name in sorted(one for one in os.listdir(self.directory) if one[0] != "."):
                path = self.directory / name
                try:
                    watched = msgspec.json.decode(read_regular(path, _MOST_RECORD, links=False), type=Watched)
                except FileNotFoundError:
                    continue
                except (OSError, msgspec.MsgspecError):
                    watched = Watched()  # nothing can be said of it
                told += set_aside(watched)
                with suppress(OSError), open(path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path)
        return list(dict.fromkeys(told))
