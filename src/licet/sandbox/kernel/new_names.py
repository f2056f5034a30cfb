"""Opens, makes, moves and removes files for a program beside names that are closed to it: the judge of these calls.

Each call is made on directories that were opened first, and whose paths the kernel then told: so no link and no rename
leads it elsewhere. What does not lie in the trees with closed names is left to the kernel and its Landlock rules.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from licet.sandbox.kernel import landlock, system_calls
from licet.sandbox.kernel.caller_files import AT_FDCWD, opened
from licet.sandbox.kernel.connections import is_marked, signed
from licet.sandbox.kernel.counted_entries import CountedEntries
from licet.sandbox.kernel.entry_count import FULL
from licet.sandbox.kernel.file_rights import FileRights, path_of
from licet.sandbox.kernel.notifications import Notice, add_file, answer, answer_with_value, go_on, text, waits
from licet.sandbox.kernel.removals import Removals
from licet.sandbox.kernel.supervised_calls import SupervisedCalls
from licet.sandbox.limits import LONGEST_PATH

_TMPFILE = 0o20000000
_REMOVE_DIRECTORY, _FOLLOW = 0x200, 0x400
_NO_REPLACE, _EXCHANGE = 1, 2
_SHARED_MEMORY = b"/dev/shm"
_NONE = -1
_KEPT = landlock.READ | landlock.EXECUTE | landlock.WRITE | landlock.DELETE  # rights that a move must not gain


class _Call(NamedTuple):
    """Where a call has a directory, a path and its next argument: flags, or a mode."""

    directory: int
    path: int
    following: int = _NONE


_OPENING: Final = {"open": _Call(_NONE, 0, 1), "openat": _Call(0, 1, 2), "creat": _Call(_NONE, 0)}
_TRUNCATING: Final = {"truncate": _Call(_NONE, 0, 1)}
_MAKING: Final = {
    "mkdir": _Call(_NONE, 0, 1), "mkdirat": _Call(0, 1, 2), "mknod": _Call(_NONE, 0, 1), "mknodat": _Call(0, 1, 2),
    "symlink": _Call(_NONE, 1), "symlinkat": _Call(1, 2),
}  # fmt: skip
_REMOVING: Final = {"unlink": _Call(_NONE, 0), "rmdir": _Call(_NONE, 0), "unlinkat": _Call(0, 1, 2)}
_MOVING: Final = {
    "rename": (_Call(_NONE, 0), _Call(_NONE, 1)), "renameat": (_Call(0, 1), _Call(2, 3)),
    "renameat2": (_Call(0, 1), _Call(2, 3, 4)), "link": (_Call(_NONE, 0), _Call(_NONE, 1)),
    "linkat": (_Call(0, 1), _Call(2, 3, 4)),
}  # fmt: skip


class _Place(NamedTuple):
    """A name in a directory: the directory opened, the name, and the real path of both."""

    directory: int
    name: bytes
    path: str


class NewNames:
    """The judge. `trees` are the roots with closed names in them; elsewhere the kernel goes on.

    Names of shared memory and semaphores, which the C library makes in /dev/shm, are made in `shared`.
    """

    names: Final = frozenset({*_OPENING, *_TRUNCATING, *_MAKING, *_REMOVING, *_MOVING})
    is_quick = False  # a path may lead to a file system that does not answer

    def __init__(
        self,
        rights: FileRights,
        trees: Collection[str],
        shared: str,
        counter: CountedEntries | None = None,
        removals: Removals | None = None,
    ) -> None:
        """`removals` judges what removes names outside of shared memory, where nobody has approved deletes."""
        self._rights, self._trees, self._counter = rights, (*trees, shared), counter
        self._shared, self._removals = os.fsencode(shared), removals

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Make a call for its caller, refuse it, or leave it to the kernel."""
        if notice.name in _REMOVING and self._removals is not None and not self._is_shared(notice):
            self._removals.judge(calls, notice, may_block=may_block)
        elif notice.name in _TRUNCATING and is_marked(notice.thread):
            raise OSError(errno.EACCES, "the caller has restricted itself")
        elif notice.name not in _TRUNCATING and (not self._concerns(notice) or is_marked(notice.thread)):
            # The own domain of a marked caller may be narrower. Before version 3 Landlock checks no truncation by path.
            self._leave(calls, notice)
        elif notice.name in _OPENING:
            self._open(calls, notice, may_block=may_block)
        else:
            with self._rights.lock:
                act = self._act(notice)
                if not waits(calls.listener, notice):  # all this may have been that of another thread
                    raise OSError(errno.ESRCH, "the caller is gone")
                act()
            answer(calls.listener, notice, 0)

    def _is_shared(self, notice: Notice) -> bool:
        """Whether a name that is to be removed is one of shared memory, as it is written now."""
        with suppress(OSError):  # a path that is none: who judges removals answers as the kernel does
            return os.path.dirname(self._path(notice, _REMOVING[notice.name])) == self._shared
        return False

    def _leave(self, calls: SupervisedCalls, notice: Notice) -> None:
        if _makes(notice) and self._counter is not None:
            self._counter.judge(calls, notice, may_block=False)
        else:
            go_on(calls.listener, notice)

    def _concerns(self, notice: Notice) -> bool:
        """Whether a path is written as one in a tree with closed names. The kernel decides about the others."""
        calls = _MOVING.get(notice.name) or ((_OPENING | _TRUNCATING | _MAKING | _REMOVING)[notice.name],)
        return any(self._is_in_tree(notice, call) for call in calls)

    def _is_in_tree(self, notice: Notice, call: _Call) -> bool:
        written = self._path(notice, call)
        above, slash, _ = written.rpartition(b"/")
        if written.startswith(b"/"):
            path = os.path.normpath(os.fsdecode(written))
            if self._has(path) or path.startswith(("/usr/", "/lib", "/proc/", "/dev/")):
                return self._has(path)
        with suppress(OSError):  # it is missing, or too long: the kernel says so
            directory = opened(notice.thread, _directory(notice, call), above or slash or b".", follow=True)
            try:
                return self._has(path_of(directory))
            finally:
                os.close(directory)
        return False

    def _has(self, path: str) -> bool:
        return any(path == tree or path.startswith(f"{tree}/") for tree in self._trees)

    def _path(self, notice: Notice, call: _Call) -> bytes:
        path = text(notice.thread, notice.arguments[call.path], LONGEST_PATH)
        above, _, name = path.rpartition(b"/")
        if above != _SHARED_MEMORY or not name:
            return path
        with suppress(FileExistsError):
            os.mkdir(self._shared, 0o700)
        return b"%s/%s" % (self._shared, name)

    # Opening

    def _open(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        flags = _flags(notice)
        if flags & os.O_PATH or flags & _TMPFILE & ~os.O_DIRECTORY:
            if not flags & os.O_PATH:
                raise OSError(errno.EOPNOTSUPP, "a file without a name, beside closed ones")
            go_on(calls.listener, notice)
            return
        call = _OPENING[notice.name]
        file = self._opened(notice, call, self._path(notice, call), flags)
        if file < 0:
            self._leave(calls, notice)
            return
        if stat.S_ISFIFO(os.fstat(file).st_mode):
            if not flags & os.O_NONBLOCK and not may_block:
                os.close(file)
                raise OSError(errno.EAGAIN, "too many calls wait")
            file = _wait_for_peer(calls, notice, file, flags)
        # The copy here is closed before the caller goes on: it may execute the file at once.
        try:
            number = add_file(calls.listener, notice, file, inherited=not flags & os.O_CLOEXEC)
        finally:
            os.close(file)
        if number is not None:
            answer_with_value(calls.listener, notice, number)

    def _opened(self, notice: Notice, call: _Call, path: bytes, flags: int) -> int:
        """The file, opened for the caller; a pipe is opened without access. -1 if the kernel shall decide."""
        follow = not flags & os.O_NOFOLLOW and not flags & os.O_EXCL
        directory = _directory(notice, call)
        try:
            file = opened(notice.thread, directory, path, follow=follow)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                return -1
            with suppress(FileExistsError), self._rights.lock:
                return self._new_file(notice, call, path, flags)
            if flags & os.O_EXCL:
                raise
            return self._opened(notice, call, path, flags & ~os.O_CREAT)  # it was made meanwhile
        try:
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, "the file is there")
            kind = os.fstat(file).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISFIFO(kind)):
                return -1
            try:
                rights = self._rights.of(file)
            except FileNotFoundError:  # it was replaced
                return -1
            mode = flags & os.O_ACCMODE
            wanted = (landlock.READ_FILE if mode in (os.O_RDONLY, os.O_RDWR) else 0) | (
                landlock.WRITE_FILE if mode != os.O_RDONLY or flags & os.O_TRUNC else 0
            )
            # Elsewhere it may be a file of this process, such as one in /proc/self, to which a link in the tree leads.
            if rights & wanted != wanted or not self._has(path_of(file)):
                return -1
            if stat.S_ISFIFO(kind):
                return os.dup(file)
            return os.open(f"/proc/self/fd/{file}", flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC)
        finally:
            os.close(file)

    def _new_file(self, notice: Notice, call: _Call, path: bytes, flags: int) -> int:
        with self._place(notice, call, path) as place:
            if os.path.lexists(f"/proc/self/fd/{place.directory}/{os.fsdecode(place.name)}"):
                return -1  # a link to a file that is not there
            self._check_new(place)
            self._count()
            mode = notice.arguments[1 if notice.name == "creat" else call.following + 1] & 0o777
            file = os.open(
                place.name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place.directory
            )
            try:
                os.fchmod(file, mode & ~_umask(notice.thread))
            except BaseException:
                os.close(file)
                raise
            return file

    # Making, removing and moving

    def _act(self, notice: Notice) -> Callable[[], None]:
        if notice.name in _MOVING:
            return self._moving(notice)
        call = (_TRUNCATING | _MAKING | _REMOVING)[notice.name]
        path = self._path(notice, call)
        if notice.name in _TRUNCATING:
            return self._truncating(notice, path)
        if notice.name in _REMOVING:
            return self._removing(notice, call, path)
        return self._making(notice, call, path)

    def _truncating(self, notice: Notice, path: bytes) -> Callable[[], None]:
        size = notice.arguments[1]

        def act() -> None:
            file = opened(notice.thread, AT_FDCWD, path, follow=True)
            try:
                if not self._rights.of(file) & landlock.WRITE_FILE:
                    raise PermissionError(errno.EACCES, "the file may not be written")
                written = os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            finally:
                os.close(file)
            try:
                os.ftruncate(written, size)
            finally:
                os.close(written)

        return act

    def _making(self, notice: Notice, call: _Call, path: bytes) -> Callable[[], None]:
        name, arguments = notice.name, notice.arguments
        mode = 0 if call.following == _NONE else arguments[call.following]
        target = text(notice.thread, arguments[0], LONGEST_PATH) if name.startswith("symlink") else b""
        umask = _umask(notice.thread)

        def act() -> None:
            with self._place(notice, call, path.rstrip(b"/") or path) as place:
                self._check_new(place, is_directory=name.startswith("mkdir"))
                self._count()
                if target or name.startswith("symlink"):
                    os.symlink(target, place.name, dir_fd=place.directory)
                elif name.startswith("mkdir"):
                    os.mkdir(place.name, 0o700, dir_fd=place.directory)
                    _set_mode(place, mode & 0o1777 & ~umask)
                else:
                    os.mkfifo(place.name, 0o600, dir_fd=place.directory)
                    _set_mode(place, mode & 0o777 & ~umask)

        return act

    def _removing(self, notice: Notice, call: _Call, path: bytes) -> Callable[[], None]:
        flags = 0 if call.following == _NONE else notice.arguments[call.following]
        directory = notice.name == "rmdir" or bool(flags & _REMOVE_DIRECTORY)

        def act() -> None:
            with self._place(notice, call, path.rstrip(b"/") or path) as place:
                is_shared = os.path.dirname(os.fsencode(place.path)) == self._shared
                # The caller may have written another path since: removals elsewhere are not decided here.
                if not self._rights.may_delete(place.path) or not (is_shared or self._removals is None):
                    raise PermissionError(errno.EACCES, "it may not be removed")
                if directory:
                    os.rmdir(place.name, dir_fd=place.directory)
                else:
                    os.unlink(place.name, dir_fd=place.directory)

        return act

    def _moving(self, notice: Notice) -> Callable[[], None]:
        first, second = _MOVING[notice.name]
        links = notice.name.startswith("link")
        flags = 0 if second.following == _NONE else notice.arguments[second.following]
        paths = [self._path(notice, call).rstrip(b"/") for call in (first, second)]
        if flags & ~(_FOLLOW if links else _NO_REPLACE | _EXCHANGE):
            raise OSError(errno.EINVAL, "flags that are not made here")

        def act() -> None:
            with self._place(notice, first, paths[0]) as old, self._place(notice, second, paths[1]) as new:
                self._check_move(old, new, links=links, exchanges=bool(flags & _EXCHANGE))
                if links:
                    self._count()
                    os.link(
                        old.name, new.name, src_dir_fd=old.directory, dst_dir_fd=new.directory, follow_symlinks=False
                    )
                    return
                number = system_calls.NUMBERS[system_calls.machine()]["renameat2"]
                system_calls.syscall(
                    "renameat2", number, old.directory, old.name + b"\0", new.directory, new.name + b"\0", flags
                )

        return act

    def _check_move(self, old: _Place, new: _Place, *, links: bool, exchanges: bool) -> None:
        rights = self._rights
        file = os.open(old.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=old.directory)
        try:
            about, of_file = os.fstat(file), rights.of(file)
        finally:
            os.close(file)
        if links:
            if not (stat.S_ISREG(about.st_mode) and of_file & landlock.WRITE_FILE):
                raise PermissionError(errno.EACCES, "it may not be linked")
        elif not rights.may_delete(old.path) or of_file & landlock.DELETE != landlock.DELETE:
            raise PermissionError(errno.EACCES, "it may not be moved")
        self._check_new(new)
        there = True
        try:
            os.stat(new.name, dir_fd=new.directory, follow_symlinks=False)
        except FileNotFoundError:
            there = False
        if there and not links and not rights.may_delete(new.path):
            raise PermissionError(errno.EACCES, "it may not be replaced")
        if exchanges:
            self._check_new(old)
        before, after = of_file & _KEPT, rights.at(new.path) & _KEPT
        if after & ~before or (exchanges and before & ~after):
            raise OSError(errno.EXDEV, "it would get more rights there")

    def _check_new(self, place: _Place, *, is_directory: bool = False) -> None:
        """Refuse a name that is closed, or that something closed lies below, but for a directory."""
        if not self._rights.may_write(place.path):
            raise PermissionError(errno.EACCES, "the name may not be used")
        if not is_directory and self._rights.leads_to_closed(place.path):
            raise PermissionError(errno.EACCES, "something closed would lie below it")

    def _count(self) -> None:
        if self._counter is not None and not self._counter.take():
            raise OSError(FULL, "too many paths were made")

    @contextmanager
    def _place(self, notice: Notice, call: _Call, path: bytes) -> Iterator[_Place]:
        """The directory and the name that a path means, where the name itself is followed by nothing."""
        above, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise OSError(errno.EBUSY, "a path without a name at its end")
        start = b"/" if path.startswith(b"/") and not above else above or b"."
        directory = opened(notice.thread, _directory(notice, call), start, follow=True)
        try:
            if not stat.S_ISDIR(os.fstat(directory).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory")
            yield _Place(directory, name, os.path.join(path_of(directory), os.fsdecode(name)))
        finally:
            os.close(directory)


def _wait_for_peer(calls: SupervisedCalls, notice: Notice, pipe: int, flags: int) -> int:
    """Open a pipe, which waits for somebody at its other end; closes the file that it is given."""
    path, number = f"/proc/self/fd/{pipe}".encode() + b"\0", system_calls.NUMBERS[system_calls.machine()]["openat"]
    plain = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | os.O_CLOEXEC
    try:
        while True:
            try:
                with calls.interruptible(notice):
                    return system_calls.syscall("openat", number, AT_FDCWD, path, plain)
            except InterruptedError:
                if not waits(calls.listener, notice):
                    raise OSError(errno.ESRCH, "the caller is gone") from None
    finally:
        os.close(pipe)


def _makes(notice: Notice) -> bool:
    """Whether a call may make an entry in a directory."""
    if notice.name in ("open", "openat"):
        return bool(_flags(notice) & os.O_CREAT)
    return notice.name in ("creat", "link", "linkat") or notice.name in _MAKING


def _flags(notice: Notice) -> int:
    if notice.name == "creat":
        return os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    return notice.arguments[_OPENING[notice.name].following] & 0xFFFFFFFF


def _directory(notice: Notice, call: _Call) -> int:
    return AT_FDCWD if call.directory == _NONE else signed(notice.arguments[call.directory])


def _umask(thread: int) -> int:
    with open(f"/proc/{thread}/status", "rb") as file:
        return next((int(line.split()[1], 8) for line in file if line.startswith(b"Umask:")), 0o077)


def _set_mode(place: _Place, mode: int) -> None:
    """Set the mode of what was just made; what a directory inherits from the one around it stays."""
    about = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    if not stat.S_ISLNK(about.st_mode):
        os.chmod(place.name, mode | about.st_mode & stat.S_ISGID, dir_fd=place.directory)
