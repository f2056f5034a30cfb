"""Opens the files that the path or descriptor of a supervised call means to its caller, without access to them.

For a process that shares its root directory with the caller. A file that was opened here is the one that is then acted
upon, whatever the caller puts at its name meanwhile.
"""

import errno
import os
import re
import struct

from licet.sandbox.kernel import system_calls
from licet.sandbox.kernel.notifications import open_file
from licet.sandbox.limits import LONGEST_PATH

AT_FDCWD = -100
_NO_MAGIC_LINKS = 0x02
_OF_ITSELF = re.compile(rb"/(?:proc/(?:self|thread-self)|dev)/fd/([0-9]{1,9})")
_OF_A_PROCESS = re.compile(rb"/proc/(?:self|thread-self)(/.*)?", re.DOTALL)


def opened(thread: int, directory: int, path: bytes, *, follow: bool) -> int:
    """Open a path as a thread would, starting at one of its descriptors or `AT_FDCWD`.

    Links of /proc that lead to what a process has open are followed only where the caller names a descriptor of its
    own: within this process they would be those of this process.
    """
    if len(path) >= LONGEST_PATH:
        raise OSError(errno.ENAMETOOLONG, "the path is too long")
    if follow and (own := _OF_ITSELF.fullmatch(path)):
        return open_file(thread, int(own[1]))
    if own := _OF_A_PROCESS.fullmatch(path):
        path = b"/proc/%d%s" % (thread, own[1] or b"")
    if path.startswith(b"/"):
        return _opened(AT_FDCWD, path, follow=follow)
    start = started(thread, directory)
    try:
        return _opened(start, path, follow=follow)
    finally:
        os.close(start)


def started(thread: int, directory: int) -> int:
    """The directory that relative paths of a call start at, opened."""
    if directory == AT_FDCWD:
        return os.open(f"/proc/{thread}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return open_file(thread, directory)


def _opened(start: int, path: bytes, *, follow: bool) -> int:
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    how = struct.pack("=QQQ", flags, 0, _NO_MAGIC_LINKS)
    number = system_calls.NUMBERS[system_calls.machine()]["openat2"]
    return system_calls.syscall("openat2", number, start, path + b"\0", how, len(how))
