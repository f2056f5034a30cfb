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
from itertools import chain
from typing import Any, NamedTuple

from licet.sandbox.kernel import holders, mounts
from licet.sandbox.kernel.name_events import (
    CLOSE_WRITE,
    CREATE,
    DELETE,
    MODIFY,
    MOVED_FROM,
    MOVED_TO,
    OF_NAMES,
    OPEN,
    WRITTEN,
    NameEvents,
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
_ENDING = "`{}` was replaced or removed from outside while the program ran, and {}"
_LENGTH = 8
_NOWHERE = -1  # no mount has this id
PLACEHOLDER_TIME = 1_000_000_001  # of `own_files`, which nothing here imports; a test compares the two
_TAKEN = "it was moved away while it was open"
_SECOND = "more than one file was put there before it was closed again"


class Undecided(Exception):
    """The program cannot go on; the text says why, to a person."""

    def __init__(self, path: str, why: object) -> None:
        super().__init__(_ENDING.format(path, why))


class _Mount(NamedTuple):
    """A mount of the table: its parent, the path where it is now, and the device that mappings name for its files."""

    parent: int
    point: str
    device: str


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
    """What happened to one name since every process of the program last stood still, and the name was closed.

    An ordinary process of the host puts one file there each time that the name is open. It does so by a rename, or it
    removes the old one and makes a new one. Whatever happens to that file before the name is covered may have been the
    program.
    """

    def __init__(self, *, hidden: bool) -> None:
        self._hidden = hidden
        self._has_appeared = self._is_complete = self._was_moved = False
        self._is_open = self._is_away = False  # something appeared since the name was last covered, and was moved away
        self.trouble = ""

    @property
    def is_taken(self) -> bool:
        """Whether it was moved away after it had appeared."""
        return self._is_away

    def add(self, mask: int) -> None:
        """Add an event. Whoever moves a complete file to a name does not write to it then, and need not open it."""
        if mask & (MOVED_TO | CREATE):
            if self._is_open:
                self.trouble = self.trouble or (_TAKEN if self._is_away else _SECOND)
            self._has_appeared = self._is_open = True
            self._is_complete = self._was_moved = bool(mask & MOVED_TO)
            self._is_away = False
        elif mask & MOVED_FROM:
            self._is_away = self._is_open
        elif mask & DELETE and self._is_open:
            self.trouble = self.trouble or "it was removed while it was open"
        elif not self._has_appeared:
            return
        elif (mask & MODIFY and self._is_complete) or (mask & WRITTEN and self._was_moved):
            self.trouble = "it was written while it was open"
        elif mask & OPEN and self._is_complete and self._hidden:
            self.trouble = self.trouble or "it was opened before it was hidden again"
        elif mask & CLOSE_WRITE and self._is_complete:  # what is written through a mapping tells no more
            self.trouble = self.trouble or "it was open for writing before it was closed again"
        elif mask & CLOSE_WRITE:
            self._is_complete = True

    def cover(self) -> None:
        """The name is covered, and all events until then were added: only somebody outside can open it again.

        What was opened before can still be written and closed.
        """
        self._is_open = self._is_away = False


class CoverWatch:
    """The watch over the names that are covered for one program. `orders` are those of the launcher."""

    def __init__(self, watch: socket.socket, own: int, orders: Mapping[str, Any]) -> None:
        self._watch, self._own = watch, own
        self._keys = frozenset(orders["mounts"].get("keys", ()))
        self._placeholders: Mapping[str, str | None] = orders["mounts"].get("closed", {})
        self._absent: Sequence[str] = orders["mounts"].get("absent", ())
        self._paused = 0.0
        self._times: deque[float] = deque(maxlen=MOST_REPLACED)
        self._exposed: dict[str, list[int]] = {}  # what was open to the program, and the files that were there
        self._stands_still = False  # the program, in which nothing is open to it
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
        beneath = {parent for parent, point, _ in table.values() if parent in table and table[parent].point == point}
        points = {mount.point: number for number, mount in table.items() if number not in beneath}
        self._ids: dict[str, int] = {}
        for path in self._kinds:
            if path not in points and path not in self._absent:
                raise Undecided(path, "it could not be watched before")
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
            if self._names.lost and not changed:  # whatever else happened, nothing was open if the mounts are there
                self._names.watch()
                changed = not self._is_covered()
                self._names.lost = changed
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
            self._cover_existing()
            self._stands_still = True
            # All that the program did is among the events now, and all later ones are of others.
            self._add_events()
            self._check_histories()
            self._settle(until)
            self._check_holders()
            self._wait_until_quiet(until)
            # What came while the program stood still was not of it, and must not count as if it came later.
            while self._add_events() and not self._is_covered():
                self._settle(time.monotonic() + CLOSE_SECONDS)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EOFError from error  # the program has ended
        except (holders.Undecided, OSError) as error:
            path = next(iter(self._exposed), next(iter(self._kinds)))
            what = error.strerror if isinstance(error, OSError) else error
            raise Undecided(path, what) from error
        self._forget()
        self._watch.sendall(GO_ON)

    def _forget(self) -> None:
        """Begin anew: every name is closed."""
        self._stands_still = self._names.lost = False
        self._histories = {path: _History(hidden=kind == "hidden") for path, kind in self._kinds.items()}

    # Events ----------------------------------------------------------------------------------------------------------

    def _add_events(self) -> bool:
        """Read the events of names; whether one of the names may be another file now."""
        events = self._names.read()
        for path, mask in events:
            if path in self._histories:
                self._histories[path].add(mask)
        return any(mask & OF_NAMES for _, mask in events)

    def _end_gaps(self) -> None:
        """Learn what happened to names until they were covered, where they are covered still."""
        for directory in {os.path.dirname(path) for path in self._exposed}:
            # A call that changes a name tells it before it lets go of its directory, which a listing waits for.
            with suppress(OSError), os.scandir(directory) as entries:
                next(entries, None)
        self._add_events()
        for path in self._histories.keys() - set(self._open_names()):
            self._histories[path].cover()

    def _check_histories(self) -> None:
        if self._names.lost and self._exposed:
            raise Undecided(next(iter(self._exposed)), "more happened beside it than can be followed")
        for path, history in self._histories.items():
            trouble = history.trouble or (_TAKEN if history.is_taken and not os.path.lexists(path) else "")
            if trouble:
                raise Undecided(path, trouble)

    def _wait_until_frozen(self) -> None:
        until = time.monotonic() + 2 * FREEZE_SECONDS
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        poll.register(self._table, select.POLLPRI | select.POLLERR)
        poll.register(self._names, select.POLLIN)
        self._end_gaps()
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
            self._end_gaps()
        raise OSError(errno.ETIMEDOUT, "its processes could not be stopped in time")

    def _wait_until_quiet(self, until: float) -> None:
        """Let nothing change for a moment if files are replaced again and again."""
        often = len(self._times) == MOST_REPLACED and self._times[-1] - self._times[0] < CLOSE_SECONDS
        while self._changes_within(BUSY_QUIET_SECONDS if often else 0.0):
            self._settle(time.monotonic() + CLOSE_SECONDS)
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

    def _mounts(self) -> dict[int, _Mount]:
        """The mounts of this namespace by their ids."""
        os.lseek(self._table, 0, os.SEEK_SET)
        text = b""
        while piece := os.read(self._table, 1 << 16):
            text += piece
        table = {}
        for line in text.splitlines():
            number, parent, device, _, point, _ = line.split(b" ", 5)
            table[int(number)] = _Mount(int(parent), os.fsdecode(_plain(point)), device.decode())
        return table

    def _open_names(self) -> list[str]:
        """The names that are not covered, outer ones first."""
        table = self._mounts()
        return [path for path, number in self._ids.items() if number not in table or table[number].point != path]

    def _is_covered(self) -> bool:
        """Whether every name is covered that is there, or was."""
        return not any(self._ids[path] != _NOWHERE or os.path.lexists(path) for path in self._open_names())

    def _cover_existing(self) -> list[str]:
        """Cover the names that are not covered and where something is; returns the others."""
        self._changes.poll(0)  # what changes from here on is seen by the next poll
        missing = []
        for path in self._open_names():
            try:
                target = os.open(path, _O_PATH)
            except (FileNotFoundError, NotADirectoryError):
                missing.append(path)
                if self._ids[path] != _NOWHERE and not self._stands_still:
                    self._exposed.setdefault(path, [])
                continue
            if not self._stands_still:
                self._exposed.setdefault(path, []).append(target)
                if stat.S_ISREG(os.fstat(target).st_mode):
                    os.fchdir(self._own)
                    self._names.follow(path, f"fd/{target}")
            try:
                self._cover(path, target)
            except FileNotFoundError:  # it is gone meanwhile
                missing.append(path)
            finally:
                if self._stands_still:
                    os.close(target)
        return missing

    def _cover(self, path: str, target: int) -> None:
        about, kind, mount = os.fstat(target), self._kinds[path], self._mount_of(target)
        # With its cover, it was moved away and back. The cover of a directory around it is another mount.
        if self._covers.get(mount) == kind and self._mounts()[mount].point == path:
            self._ids[path] = mount
            return
        if stat.S_ISLNK(about.st_mode):
            raise Undecided(path, "a link is there now, which cannot be closed")
        if path in self._keys:
            raise Undecided(path, "there was a key in it: start the program again")
        if kind == "around" or (kind == "copy" and path not in self._spares):
            raise Undecided(path, "what was shown in it cannot be shown again")
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
                self._ids |= dict.fromkeys(self._open_names(), _NOWHERE)  # they are missing, and may be
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
            raise Undecided(path, "nothing can be put in its place")
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
        if self._exposed:
            self._check_exposed()
        for file in chain.from_iterable(self._exposed.values()):
            os.close(file)
        self._exposed = {}
        self._names.forget()

    def _check_exposed(self) -> None:
        if not holders.counts_sent_files(self._own):
            raise OSError(errno.ENOSYS, "this kernel does not tell which open files processes send to each other")
        table = self._mounts()
        exposed = holders.Exposed({number: mount.point for number, mount in table.items() if number in self._covers})
        for path, files in self._exposed.items():
            is_held = self._kinds[path] == "held"
            if not is_held:  # in a directory that is held, only the closed names matter, and the way to them
                exposed.paths[path] = self._kinds[path] == "hidden"
            for file in files:
                number = self._mount_of(file)
                mount = table.get(number)
                if number in self._covers and mount and mount.point == path:
                    continue  # it was moved away with its cover, and back
                if is_held:
                    exposed.around[holders.identity(os.fstat(file))] = path
                    continue
                for name, about in _entries(path, file):
                    if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
                        raise Undecided(path, f"`{name}` has a second name now")
                    exposed.add(path, about, mount.device if mount else "")
        if text := holders.holder(exposed, self._own):
            paths = (*exposed.paths, *exposed.around.values())
            raise Undecided(next((path for path in paths if f"`{path}`" in text), paths[0]), text)


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


def _entries(path: str, file: int) -> Iterator[tuple[str, os.stat_result]]:
    """What is open as `file` at a path, and everything below it."""
    about = os.fstat(file)
    yield path, about
    if not stat.S_ISDIR(about.st_mode):
        return
    count = 0
    for folder, folders, files, inner in os.fwalk(".", dir_fd=file):
        for name in (*folders, *files):
            count += 1
            if count > MOST_EXPOSED_ENTRIES:
                raise OSError(errno.E2BIG, f"`{path}` holds too much to be searched")
            with suppress(FileNotFoundError):
                entry = os.stat(name, dir_fd=inner, follow_symlinks=False)
                yield os.path.normpath(os.path.join(path, folder, name)), entry


def _plain(word: bytes) -> bytes:
    """A path of the table of mounts, which writes some characters as octal numbers."""
    if b"\\" not in word:
        return word
    parts: Iterable[bytes] = word.split(b"\\")
    first, *others = parts
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in others)
