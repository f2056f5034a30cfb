"""Opening a path with `openat2`: the kernel refuses links, or keeps them beneath a directory, in the same step.

Called by its number, which is the same on every architecture that Linux still builds for. Which paths may be opened
is not known here.
"""

import ctypes
import errno
import os
import sys

from licet.guard.ports import Escaped

_NUMBER = 437
_AT_FDCWD = -100
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 128  # a rename anywhere may make the kernel say EAGAIN; whoever renames without end gets it as an error


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_SIZE = ctypes.sizeof(_How)


class Openat2:
    """Paths as the kernel resolves them; needs `/proc` to know where a link led."""

    __slots__ = ("_hows", "_syscall")

    def __init__(self) -> None:
        """Find the system call, or raise `OSError` where it, or `/proc`, is missing."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "openat2 is a system call of Linux")
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
        call.restype = ctypes.c_long
        self._syscall = call
        self._hows: dict[tuple[int, int], _How] = {}  # what is asked for, made once: the kernel only reads it
        probe = self.direct("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.readlink(f"/proc/self/fd/{probe}")
        finally:
            os.close(probe)

    def direct(self, path: str, flags: int) -> int:
        """Open an absolute path that holds no link; `ELOOP` if it does."""
        return self._open(_AT_FDCWD, path, flags, _NO_SYMLINKS)

    def beneath(self, root_fd: int, root: str, relative: str, flags: int) -> tuple[int, str]:
        """Open a path whose links stay below a directory, and say which path it really is."""
        try:
            fd = self._open(root_fd, relative, flags, _BENEATH | _NO_MAGICLINKS)
        except OSError as wrong:
            if wrong.errno in (errno.EXDEV, errno.ELOOP):
                raise Escaped("a link leads out, or nowhere") from wrong
            raise
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")
        except BaseException:
            os.close(fd)
            raise
        # What was removed meanwhile has no path any more, and the kernel's note of it would pass for another name.
        if real.endswith(" (deleted)"):
            os.close(fd)
            raise Escaped("it was removed while it was opened")
        return fd, real

    def _open(self, directory: int, path: str, flags: int, resolve: int) -> int:
        how = self._hows.get((flags, resolve))
        if how is None:
            how = self._hows[flags, resolve] = _How(flags, 0, resolve)
        name = path.encode("utf-8", "surrogateescape")
        if b"\0" in name:  # C would read the part before it
            raise ValueError("embedded null byte")
        for _ in range(_TRIES):
            fd: int = self._syscall(_NUMBER, directory, name, ctypes.addressof(how), _SIZE)
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code not in (errno.EAGAIN, errno.EINTR):
                break
        raise OSError(code, os.strerror(code), path)
