"""Calls of the Linux kernel that Python has no function for, with errors that name the call.

The bottom of the walls: it decides nothing. Importing it works everywhere; calling it elsewhere than on Linux refuses.
"""

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any

# Every argument travels as one machine word. A bare int would be a C int, which cuts 64-bit flags in half; addresses
# of bytes and structures are passed as pointers.
Word = int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None


@cache
def _libc() -> Any:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "walls are built from system calls of Linux, and this is another system")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.prctl.restype = ctypes.c_int
    return libc


def _word(value: Word) -> Any:
    if isinstance(value, int):
        return ctypes.c_long(value)
    if isinstance(value, ctypes.Structure):
        return ctypes.byref(value)
    return ctypes.c_void_p(None) if value is None else value


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: Word) -> int:
    """Make a system call by its number; `what` is what the error names if it fails."""
    return _checked(_libc().syscall(ctypes.c_long(number), *map(_word, arguments)), what)


def prctl(what: str, option: int, *arguments: Word) -> int:
    """Ask the kernel to change something about this process; what is not given is zero, as the kernel demands."""
    padded = (*arguments, *(0,) * (4 - len(arguments)))
    return _checked(_libc().prctl(ctypes.c_int(option), *map(_word, padded)), what)


@cache
def machine() -> str:
    """The architecture of this kernel, as `syscalls` names them."""
    return os.uname().machine if hasattr(os, "uname") else "unknown"
