"""From a call that waits to what it touches: a table of calls, and the rules for those that are no uses.

A call that will fail is no use: a file that is not there, a directory that may not be written, a name that is taken.
What is left may still fail, for reasons that only the kernel knows.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from licet.sandbox.kernel.notify import Notice
from licet.sandbox.observe.caller import FROM_HERE, Caller, Entry, Found, peer_of

_EMPTY_PATH, _NO_FOLLOW, _FOLLOW = 0x1000, 0x100, 0x400  # AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW
_REMOVE_DIRECTORY = 0x200
_TMPFILE = 0o20000000
_EXCHANGE = 2
_ADDRESS = 128  # bytes of a `struct sockaddr_storage`
_SHEBANG = re.compile(rb"#![ \t]*(\S+)")
_MOST_INTERPRETERS = 4
_ELF32 = b"\x7fELF\x01"


class Act(NamedTuple):
    """One thing that a call does.

    `what` is `read`, `write`, `delete` or `exec`, with a path; `connect` with `host:port`; or a note about the target:
    `unix` (the path of a socket), `32 bits`, `setuid`. A write may have `made` a name that was not there.
    """

    what: str
    target: str
    made: bool = False


Acts = Iterator[Act]
Arguments = tuple[int, ...]


def acts_of(notice: Notice, caller: Caller) -> list[Act]:
    """What a call does. Raises `Unreadable` if its arguments cannot be read."""
    known = _ACTS.get(notice.name)
    return list(known(caller, notice.arguments)) if known else []


def _at(number: int) -> int:
    """The number of a directory, which the kernel takes as a C int."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number & 0x80000000 else number


# Opening -------------------------------------------------------------------------------------------------------------


def _opened(caller: Caller, at: int, path: str | None, flags: int) -> Acts:
    if flags & os.O_PATH:  # it can neither be read nor written
        return
    access = flags & os.O_ACCMODE
    writes, reads = access != os.O_RDONLY or bool(flags & os.O_TRUNC), access in (os.O_RDONLY, os.O_RDWR)
    found = caller.find(at, path, follow=not flags & os.O_NOFOLLOW)
    if found is None:
        entry = caller.through_links(at, path) if flags & os.O_CREAT else None
        if entry is not None and not entry.exists and _writable(entry):
            yield from _touched(entry.path, reads=access == os.O_RDWR, writes=True, made=True)
        return
    if flags & os.O_CREAT and flags & os.O_EXCL:
        return
    if flags & _TMPFILE:
        if found.is_directory and found.permits(os.W_OK):
            yield Act("write", found.path)
        return
    if stat.S_ISLNK(found.mode) or (flags & os.O_DIRECTORY and not found.is_directory):
        return
    if (writes and found.is_directory) or stat.S_ISSOCK(found.mode):
        return
    if found.permits((os.R_OK if reads else 0) | (os.W_OK if writes else 0)):
        yield from _touched(found.path, reads=reads, writes=writes)
        if reads and (named := caller.name_through_links(at, path, found)):
            yield Act("read", named)  # behind walls, a link is there only if a rule is about it


def _touched(path: str, *, reads: bool, writes: bool, made: bool = False) -> Acts:
    if reads:
        yield Act("read", path)
    if writes:
        yield Act("write", path, made)


def _open(caller: Caller, given: Arguments) -> Acts:
    return _opened(caller, FROM_HERE, caller.text(given[0]), given[1])


def _openat(caller: Caller, given: Arguments) -> Acts:
    return _opened(caller, _at(given[0]), caller.text(given[1]), given[2])


def _openat2(caller: Caller, given: Arguments) -> Acts:
    flags = int.from_bytes(caller.data(given[2], 8), "little")  # the first field of `struct open_how`
    return _opened(caller, _at(given[0]), caller.text(given[1]), flags)


def _creat(caller: Caller, given: Arguments) -> Acts:
    return _opened(caller, FROM_HERE, caller.text(given[0]), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)


# Running -------------------------------------------------------------------------------------------------------------


def _run(caller: Caller, found: Found | None, interpreters: int = _MOST_INTERPRETERS) -> Acts:
    if found is None or not stat.S_ISREG(found.mode) or not found.permits(os.X_OK):
        return
    yield Act("exec", found.path)
    beginning = found.beginning(256)
    if beginning.startswith(_ELF32):
        yield Act("32 bits", found.path)
    if (found.mode & stat.S_ISUID and found.user != os.getuid()) or found.mode & stat.S_ISGID:
        yield Act("setuid", found.path)
    script = _SHEBANG.match(beginning)
    if script and interpreters:  # which the kernel starts, without a call of its own
        yield from _run(caller, caller.find(FROM_HERE, os.fsdecode(script[1])), interpreters - 1)


def _run_by_name(caller: Caller, at: int, path: str | None, *, follow: bool = True) -> Acts:
    found = caller.find(at, path, follow=follow)
    acts = list(_run(caller, found))
    yield from acts
    if acts and found and (named := caller.name_through_links(at, path, found)):
        yield Act("read", named)


def _execve(caller: Caller, given: Arguments) -> Acts:
    return _run_by_name(caller, FROM_HERE, caller.text(given[0]))


def _execveat(caller: Caller, given: Arguments) -> Acts:
    path = caller.text(given[1])
    if not path and given[4] & _EMPTY_PATH:
        return _run(caller, caller.file(_at(given[0])))
    return _run_by_name(caller, _at(given[0]), path, follow=not given[4] & _NO_FOLLOW)


# Names: making, moving, removing -------------------------------------------------------------------------------------


def _writable(entry: Entry) -> bool:
    return entry.directory.permits(os.W_OK | os.X_OK)


def _removed(caller: Caller, at: int, path: str | None, *, directory: bool) -> Acts:
    entry = caller.entry(at, path)
    if entry is None or not entry.exists or not _writable(entry):
        return
    found = caller.find(at, path, follow=False)
    if found is not None and found.is_directory is directory and not (directory and _has_entries(found)):
        yield Act("delete", entry.path)


def _has_entries(found: Found) -> bool:
    try:
        with os.scandir(f"/proc/self/fd/{found.fd}") as listed:
            return any(True for _ in listed)
    except OSError:
        return False


def _made(caller: Caller, at: int, path: str | None) -> Acts:
    entry = caller.entry(at, path)
    if entry is not None and not entry.exists and _writable(entry):
        yield Act("write", entry.path, made=True)


def _moved(caller: Caller, at: int, path: str | None, to: int, target: str | None, flags: int = 0) -> Acts:
    """A delete of the source and a write of the target, as `ctx.fs.rename` checks them."""
    source, goal = caller.entry(at, path), caller.entry(to, target)
    if source is None or goal is None or not source.exists or not (_writable(source) and _writable(goal)):
        return
    yield Act("delete", source.path)
    yield Act("write", goal.path, made=True)  # what was there is replaced by another file
    if flags & _EXCHANGE:
        yield Act("delete", goal.path)
        yield Act("write", source.path)


def _linked(caller: Caller, at: int, path: str | None, to: int, target: str | None, flags: int = 0) -> Acts:
    if not path and flags & _EMPTY_PATH:
        source = caller.file(at)
    else:
        source = caller.find(at, path, follow=bool(flags & _FOLLOW))
    made = list(_made(caller, to, target)) if source else []
    if source and made:
        yield Act("read", source.path)
        yield from made


# A change of a file that keeps its name: its size, mode, owner, times or attributes.
def _changed(caller: Caller, at: int, path: str | None, flags: int = 0) -> Acts:
    found = caller.find(at, path, follow=not flags & _NO_FOLLOW)
    if found is not None and (found.user == os.getuid() or found.permits(os.W_OK)):
        yield Act("write", found.path)


# Sockets -------------------------------------------------------------------------------------------------------------


def _connected(caller: Caller, number: int, address: int, size: int) -> Acts:
    peer = peer_of(caller.data(address, min(size & 0xFFFFFFFF, _ADDRESS)))
    if peer is None:
        return
    if peer.unix is not None:
        found = caller.find(FROM_HERE, peer.unix)
        if found is not None or not peer.unix:
            yield Act("unix", found.path if found else "one without a path")
    elif peer.port and caller.is_stream(_at(number)):
        host = f"[{peer.host}]" if ":" in peer.host else peer.host
        yield Act("connect", f"{host}:{peer.port}")


def _bound(caller: Caller, given: Arguments) -> Acts:
    peer = peer_of(caller.data(given[1], min(given[2] & 0xFFFFFFFF, _ADDRESS)))
    if peer is not None and peer.unix:
        yield from _made(caller, FROM_HERE, peer.unix)


# The table: which arguments name what. -------------------------------------------------------------------------------

_ACTS: Final[Mapping[str, Callable[[Caller, Arguments], Acts]]] = {
    "open": _open,
    "openat": _openat,
    "openat2": _openat2,
    "creat": _creat,
    "execve": _execve,
    "execveat": _execveat,
    "unlink": lambda c, a: _removed(c, FROM_HERE, c.text(a[0]), directory=False),
    "rmdir": lambda c, a: _removed(c, FROM_HERE, c.text(a[0]), directory=True),
    "unlinkat": lambda c, a: _removed(c, _at(a[0]), c.text(a[1]), directory=bool(a[2] & _REMOVE_DIRECTORY)),
    "rename": lambda c, a: _moved(c, FROM_HERE, c.text(a[0]), FROM_HERE, c.text(a[1])),
    "renameat": lambda c, a: _moved(c, _at(a[0]), c.text(a[1]), _at(a[2]), c.text(a[3])),
    "renameat2": lambda c, a: _moved(c, _at(a[0]), c.text(a[1]), _at(a[2]), c.text(a[3]), a[4]),
    "link": lambda c, a: _linked(c, FROM_HERE, c.text(a[0]), FROM_HERE, c.text(a[1])),
    "linkat": lambda c, a: _linked(c, _at(a[0]), c.text(a[1]), _at(a[2]), c.text(a[3]), a[4]),
    "symlink": lambda c, a: _made(c, FROM_HERE, c.text(a[1])),
    "symlinkat": lambda c, a: _made(c, _at(a[1]), c.text(a[2])),
    "mkdir": lambda c, a: _made(c, FROM_HERE, c.text(a[0])),
    "mkdirat": lambda c, a: _made(c, _at(a[0]), c.text(a[1])),
    "mknod": lambda c, a: _made(c, FROM_HERE, c.text(a[0])),
    "mknodat": lambda c, a: _made(c, _at(a[0]), c.text(a[1])),
    "truncate": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "chmod": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "fchmodat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1])),
    "fchmodat2": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[3]),
    "chown": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "lchown": lambda c, a: _changed(c, FROM_HERE, c.text(a[0]), _NO_FOLLOW),
    "fchownat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[4]),
    "utime": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "utimes": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "futimesat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1])),
    "utimensat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[3]),
    "setxattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "lsetxattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0]), _NO_FOLLOW),
    "setxattrat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[2]),
    "removexattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "lremovexattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0]), _NO_FOLLOW),
    "removexattrat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[2]),
    "connect": lambda c, a: _connected(c, a[0], a[1], a[2]),
    "sendto": lambda c, a: _connected(c, a[0], a[4], a[5]),
    "bind": _bound,
}
