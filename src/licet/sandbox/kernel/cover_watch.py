"""Keeps the names closed that a program must not use, while processes outside of its walls replace what is there.

A mount over a name goes when another process of the machine replaces or removes what has the name, and it moves away
with what is renamed. The table of mounts and the events of names tell it. Then every process of the program is stopped,
the name is covered again, and what the program did meanwhile is searched. If it holds what was open to it, or if that
cannot be decided, the program ends.

For the process that waits outside of the pid namespace of a program, in its mount namespace. It is behind no walls, and
the program cannot see it.
"""

import errno
import json
import os
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from licet.sandbox.kernel import holders, mounts
from licet.sandbox.kernel.name_events import (
    CLOSE_WRITE,
    CREATE,
    MODIFY,
    MOVED_FROM,
    MOVED_TO,
    OF_NAMES,
    OPEN,
    NameEvents,
    Overflow,
)
from licet.sandbox.kernel.namespaces import HIDDEN_FILE, CoverKind
from licet.sandbox.limits import (
    BUSY_QUIET_SECONDS,
    CLOSE_SECONDS,
    FREEZE_SECONDS,
    LONGEST_QUIET_SECONDS,
    MOST_EXPOSED_ENTRIES,
    MOST_REPLACED,
    NAME_PAUSE_SECONDS,
    QUIET_SECONDS,
)

_FLAGS = mounts.READ_ONLY | mounts.NO_SUID | mounts.NO_DEV
_O_PATH = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC  # 0: imported where nothing of this can run
# What the two processes say: stop everything, all is stopped, go on.
FREEZE, IS_FROZEN, GO_ON, IS_READY = b"F", b"f", b"G", b"R"
_REPLACED = "`{}` was replaced or removed from outside while the program ran"
_LENGTH = 8
_NOWHERE = -1  # no mount has this id
PLACEHOLDER_TIME = 1_000_000_001  # of `own_files`, which nothing here imports; a test compares the two
_TAKEN = "it was moved away while it was open"


class Undecided(Exception):
    """The program cannot go on; the text says why, to a person."""


def send_covers(watch: socket.socket, covers: Mapping[str, CoverKind]) -> None:
    """Send the process outside what is covered, and wait until it watches. Raises `OSError` if it cannot."""
    text = json.dumps(covers).encode()
    watch.sendall(len(text).to_bytes(_LENGTH, "big") + text)
    answer = watch.recv(1 << 16)
    if answer != IS_READY:
        text_of_error = answer.decode(errors="replace") or "the process that watches them has ended"
        raise OSError(errno.EIO, f"closed files cannot be watched: {text_of_error}")


def _exactly(watch: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = watch.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


class _History:
    """What happened to one name since it was last known to be closed."""

    def __init__(self, *, hidden: bool) -> None:
        self._hidden = hidden
        self._appeared = 0  # MOVED_TO or CREATE
        self._is_complete = self._is_away = False
        self.trouble = ""

    @property
    def is_taken(self) -> bool:
        """Whether it was moved away after it had appeared."""
        return bool(self._appeared) and self._is_away

    def add(self, mask: int) -> None:
        """Add an event. Whoever moves a complete file to a name does not write to it then, and need not open it."""
        if mask & (MOVED_TO | CREATE):
            if self._is_away and self._appeared:
                self.trouble = _TAKEN
            self._appeared = mask & (MOVED_TO | CREATE)
            self._is_complete = bool(mask & MOVED_TO)
            self._is_away = False
        elif mask & MOVED_FROM:
            self._is_away = True
        elif not self._appeared:
            return
        elif mask & MODIFY and self._is_complete:
            self.trouble = "it was written while it was open"
        elif mask & OPEN and self._is_complete and self._hidden:
            self.trouble = self.trouble or "it was opened before it was hidden again"
        elif mask & CLOSE_WRITE and self._is_complete:  # what is written through a mapping tells no more
            self.trouble = self.trouble or "it was open for writing before it was closed again"
        elif mask & CLOSE_WRITE:
            self._is_complete = True


class CoverWatch:
    """The watch over the names that are covered for one program. `orders` are those of the launcher."""

    def __init__(self, watch: socket.socket, own: int, orders: Mapping[str, Any]) -> None:
        self._watch, self._own = watch, own
        self._keys = frozenset(orders["mounts"].get("keys", ()))
        self._placeholders: Mapping[str, str | None] = orders["mounts"].get("closed", {})
        self._absent: Sequence[str] = orders["mounts"].get("absent", ())
        self._paused = 0.0
        self._times: deque[float] = deque(maxlen=MOST_REPLACED)
        self._exposed: dict[str, list[int]] = {}  # what was open, and the files that were there
        self._made: set[str] = set()

    def begin(self) -> bool:
        """Learn what is covered, and watch it. False if nothing is."""
        size = int.from_bytes(_exactly(self._watch, _LENGTH), "big")
        self._kinds: dict[str, str] = dict(sorted(json.loads(_exactly(self._watch, size)).items()))
        if self._kinds:
            try:
                self._begin()
            except (OSError, Undecided) as error:
                self._watch.sendall(str(error).encode(errors="backslashreplace"))
                raise
        self._watch.sendall(IS_READY)
        return bool(self._kinds)

    def _begin(self) -> None:
        self._table = os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._own)
        self._changes = select.poll()
        self._changes.register(self._table, select.POLLPRI | select.POLLERR)
        self._names = NameEvents({path: kind == "hidden" for path, kind in self._kinds.items()})
        self._names.watch()
        self._forget()
        table = self._mounts()
        beneath = {parent for parent, point in table.values() if parent in table and table[parent][1] == point}
        points = {point: number for number, (_, point) in table.items() if number not in beneath}
        self._ids: dict[str, int] = {}
        for path in self._kinds:
            if path not in points and path not in self._absent:
                raise Undecided(_REPLACED.format(path))
            self._ids[path] = points.get(path, _NOWHERE)
        self._files = {path for path in self._kinds if not os.path.isdir(path)}
        self._covers = {number: self._kinds[path] for path, number in self._ids.items()}
        self._spares = {path: _copy_of(path) for path, kind in self._kinds.items() if kind == "copy"}

    def register(self, poll: "select.poll") -> None:
        """Let a poll wake when something may have happened."""
        poll.register(self._table, select.POLLPRI | select.POLLERR)
        if time.monotonic() >= self._paused:
            poll.register(self._names, select.POLLIN)
        else:
            with suppress(KeyError):
                poll.unregister(self._names)

    def pause(self) -> float | None:
        """The seconds until names are to be looked at again; None if there is no pause."""
        seconds = self._paused - time.monotonic()
        return seconds if seconds > 0 else None

    def look(self, ready: Mapping[int, int]) -> None:
        """Handle what a poll has found. Raises `Undecided` if the program must end, and `EOFError` if it has ended."""
        changed = self._table in ready
        if self._names.fileno() in ready:
            begun = time.monotonic()
            changed = self._add_events() or changed
            # However much a program does in such a directory: this takes a small part of a processor.
            self._paused = time.monotonic() + max(NAME_PAUSE_SECONDS, 4 * (time.monotonic() - begun))
        if changed:
            self._close_again()

    def _close_again(self) -> None:
        begun = time.monotonic()
        until = begun + CLOSE_SECONDS
        self._times.append(begun)
        try:
            self._watch.sendall(FREEZE)
            self._cover_existing()
            self._wait_until_frozen()
            # All that the program did is among the events now, and all later ones are of others.
            self._add_events()
            self._check_histories()
            self._settle(until)
            self._check_holders()
            self._wait_until_quiet(until)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EOFError from error  # the program has ended
        except (holders.Undecided, OSError) as error:
            path = next(iter(self._exposed), next(iter(self._kinds)))
            what = error.strerror if isinstance(error, OSError) else error
            raise Undecided(f"{_REPLACED.format(path)}, and {what}") from error
        self._forget()
        self._watch.sendall(GO_ON)

    def _forget(self) -> None:
        """Begin anew: every name is closed."""
        for files in self._exposed.values():
            for file in files:
                os.close(file)
        self._exposed = {}
        self._histories = {path: _History(hidden=kind == "hidden") for path, kind in self._kinds.items()}

    # Events ----------------------------------------------------------------------------------------------------------

    def _add_events(self) -> bool:
        """Read the events of names; whether one of the names may be another file now."""
        try:
            events = self._names.read()
        except Overflow as error:
            raise Undecided("more happens to files that are closed to the program than can be followed") from error
        for path, mask in events:
            if path in self._histories:
                self._histories[path].add(mask)
        return any(mask & OF_NAMES for _, mask in events)

    def _check_histories(self) -> None:
        for path, history in self._histories.items():
            trouble = history.trouble or (_TAKEN if history.is_taken and not os.path.lexists(path) else "")
            if trouble:
                raise Undecided(f"{_REPLACED.format(path)}, and {trouble}")

    def _wait_until_frozen(self) -> None:
        until = time.monotonic() + 2 * FREEZE_SECONDS
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        poll.register(self._table, select.POLLPRI | select.POLLERR)
        poll.register(self._names, select.POLLIN)
        while (seconds := until - time.monotonic()) > 0:
            ready = dict(poll.poll(seconds * 1000))
            if self._watch.fileno() in ready:
                answer = self._watch.recv(1 << 12)
                if answer == IS_FROZEN:
                    return
                if not answer:
                    raise EOFError
                raise OSError(errno.EBUSY, answer.decode(errors="replace"))
            self._add_events()
            self._cover_existing()
        raise OSError(errno.ETIMEDOUT, "its processes could not be stopped in time")

    def _wait_until_quiet(self, until: float) -> None:
        """Let nothing change for a moment if files are replaced again and again."""
        often = len(self._times) == MOST_REPLACED and self._times[-1] - self._times[0] < CLOSE_SECONDS
        while self._changes_within(BUSY_QUIET_SECONDS if often else 0.0):
            self._settle(until)
            if time.monotonic() > until:  # whoever replaces them does not stop, and the program has to go on
                return

    def _changes_within(self, seconds: float) -> bool:
        """Whether a mount or a name changes within some seconds."""
        poll = select.poll()
        poll.register(self._table, select.POLLPRI | select.POLLERR)
        poll.register(self._names, select.POLLIN)
        until = time.monotonic() + seconds
        while True:
            ready = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
            if self._table in ready:
                return True
            if not ready:
                return False
            if self._add_events():
                return True

    # Mounts ----------------------------------------------------------------------------------------------------------

    def _mounts(self) -> dict[int, tuple[int, str]]:
        """The mounts of this namespace by their ids, each with its parent and the path where it is now."""
        os.lseek(self._table, 0, os.SEEK_SET)
        text = b""
        while piece := os.read(self._table, 1 << 16):
            text += piece
        table = {}
        for line in text.splitlines():
            number, parent, _, _, point, _ = line.split(b" ", 5)
            table[int(number)] = int(parent), os.fsdecode(_plain(point))
        return table

    def _open_names(self) -> list[str]:
        """The names that are not covered, outer ones first."""
        table = self._mounts()
        self._covers = {number: kind for number, kind in self._covers.items() if number in table}
        return [path for path, number in self._ids.items() if number not in table or table[number][1] != path]

    def _cover_existing(self) -> list[str]:
        """Cover the names that are not covered and where something is; returns the others."""
        self._changes.poll(0)  # what changes from here on is seen by the next poll
        missing = []
        for path in self._open_names():
            try:
                target = os.open(path, _O_PATH)
            except (FileNotFoundError, NotADirectoryError):
                missing.append(path)
                if self._ids[path] != _NOWHERE:
                    self._exposed.setdefault(path, [])
                continue
            self._exposed.setdefault(path, []).append(target)
            try:
                self._cover(path, target)
            except FileNotFoundError:  # it is gone meanwhile
                missing.append(path)
        return missing

    def _cover(self, path: str, target: int) -> None:
        about, kind = os.fstat(target), self._kinds[path]
        if stat.S_ISLNK(about.st_mode):
            raise Undecided(f"{_REPLACED.format(path)}, and a link is there now, which cannot be closed")
        if path in self._keys:
            raise Undecided(f"{_REPLACED.format(path)}, and has a key in it: start the program again")
        if kind == "around" or (kind == "copy" and path not in self._spares):
            raise Undecided(f"{_REPLACED.format(path)}, and what was shown in it cannot be shown again")
        mount = self._mount_of(target)
        if self._covers.get(mount) == kind:  # it was moved away with its cover, and back
            self._ids[path] = mount
            return
        if kind == "hidden":
            fd = mounts.empty_directory() if stat.S_ISDIR(about.st_mode) else _copy_of(HIDDEN_FILE)
        elif kind == "copy":
            fd = self._spares.pop(path)
        else:
            fd = mounts.copied_from(target, _FLAGS if kind == "read-only" else 0)
        try:
            number = self._mount_of(fd)
            mounts.attach_onto(fd, target)
            self._ids[path], self._covers[number] = number, kind
            if kind == "copy":
                self._spares[path] = mounts.copied_from(fd, 0)
        finally:
            os.close(fd)

    def _mount_of(self, file: int) -> int:
        return holders.mount_id(os.open(f"fdinfo/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._own))

    def _settle(self, until: float) -> None:
        """Cover every name. A name that stays missing where the program could make it gets a placeholder."""
        while True:
            self._names.watch()
            missing = [path for path in self._cover_existing() if self._must_be_there(path) and _can_be_made(path)]
            if not missing and not any(map(os.path.lexists, self._open_names())):
                for path in self._made:  # each is as old as a placeholder, so that the host removes it
                    os.utime(path, ns=(PLACEHOLDER_TIME, PLACEHOLDER_TIME), follow_symlinks=False)
                self._made.clear()
                return
            if time.monotonic() > until:
                raise OSError(errno.ETIMEDOUT, "it is replaced again and again, so that it cannot be closed")
            if missing and self._stays_missing(missing):
                for path in missing:
                    self._make(path)

    def _stays_missing(self, paths: Iterable[str]) -> bool:
        """Whether none of these comes back within a moment; whoever works in its directory is waited for."""
        longest = time.monotonic() + LONGEST_QUIET_SECONDS
        while time.monotonic() < longest:
            before = self._names.count
            if self._changes_within(QUIET_SECONDS) or any(map(os.path.lexists, paths)):
                return False
            if self._names.count == before:
                break
        return True

    def _must_be_there(self, path: str) -> bool:
        """Whether a program must not make a missing name: a copy hides nothing, unless there was a key."""
        return self._kinds[path] != "copy" or path in self._keys

    def _make(self, path: str) -> None:
        """Make what stands for a missing name; the host removes it when the program has ended."""
        if self._kinds[path] == "held":
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._made.add(path)
            return
        if path not in self._placeholders:
            raise Undecided(f"{_REPLACED.format(path)}, and nothing can be put in its place")
        text = self._placeholders[path] or ("" if path in self._files else None)  # it stays what it was
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            if text is None:
                os.mkdir(path, 0o700)
            else:
                with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
                    file.write(text.encode("latin-1"))
            os.utime(path, ns=(PLACEHOLDER_TIME, PLACEHOLDER_TIME), follow_symlinks=False)

    # Holders ---------------------------------------------------------------------------------------------------------

    def _check_holders(self) -> None:
        exposed = {path: self._kinds[path] == "hidden" for path in self._exposed}
        if not exposed:
            return
        if not holders.counts_sent_files(self._own):
            raise OSError(errno.ENOSYS, "this kernel does not tell which open files processes send to each other")
        for path, files in self._exposed.items():
            for file in files:
                if name := _second_name(path, file):
                    raise Undecided(f"{_REPLACED.format(path)}, and `{name}` has a second name now")
        covers = {number: point for number, (_, point) in self._mounts().items() if number in self._covers}
        if text := holders.holder(exposed, covers, self._own):
            path = next((path for path in exposed if f"`{path}`" in text), next(iter(exposed)))
            raise Undecided(f"{_REPLACED.format(path)}, and {text}")


def _copy_of(path: str) -> int:
    """A detached copy of a mount that is attached, to be attached in another place."""
    file = os.open(path, _O_PATH)
    try:
        return mounts.copied_from(file, _FLAGS)
    finally:
        os.close(file)


def _can_be_made(path: str) -> bool:
    """Whether a program could make a missing name: what is there above it is not only read."""
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return not os.statvfs(above).f_flag & os.ST_RDONLY


def _second_name(path: str, file: int) -> str:
    """A file with a second name, at a path or below it; `file` is what is open there."""
    about = os.fstat(file)
    if not stat.S_ISDIR(about.st_mode):
        return path if about.st_nlink > 1 else ""
    for count, (name, entry) in enumerate(_entries(file)):
        if count > MOST_EXPOSED_ENTRIES:
            raise OSError(errno.E2BIG, f"`{path}` holds too much to be searched")
        if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
            return os.path.join(path, name)
    return ""


def _entries(directory: int) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a directory, which is open, with its path there."""
    for folder, folders, files, inner in os.fwalk(".", dir_fd=directory):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                yield os.path.normpath(os.path.join(folder, name)), os.stat(name, dir_fd=inner, follow_symlinks=False)


def _plain(word: bytes) -> bytes:
    """A path of the table of mounts, which writes some characters as octal numbers."""
    if b"\\" not in word:
        return word
    parts: Iterable[bytes] = word.split(b"\\")
    first, *others = parts
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in others)
