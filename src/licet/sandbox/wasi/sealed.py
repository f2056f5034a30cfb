"""Compiled code in memory that nobody can change any more: what was checked is what workers map and run.

The cache is on disk, where a file may be replaced or deleted at any time, also while workers run from it. On systems
without such memory, workers map the checked file itself.
"""

import errno
import hashlib
import os
import weakref
from pathlib import Path

from licet.regular_files import open_regular

_CHUNK = 1 << 20
_NOEXEC_SEAL = 8  # MFD_NOEXEC_SEAL


class SealedCode:
    """A sealed copy of a compiled file. The memory is given back with the last reference to it and the last worker."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        weakref.finalize(self, os.close, fd)


class Changed(Exception):
    """A compiled file that is not as it was made."""


def sealed(file: Path, sha256: str) -> SealedCode | None:
    """A sealed copy of a file with this digest; None on a system without such memory. Raises `Changed` or `OSError`."""
    if not hasattr(os, "memfd_create"):
        return None
    import fcntl  # not on every platform

    copy = SealedCode(_memory())
    running = hashlib.sha256()
    with open_regular(file, links=False) as source:
        while data := os.read(source, _CHUNK):
            running.update(data)
            _write(copy.fd, data)
    if running.hexdigest() != sha256:
        raise Changed(f"{file} has changed since it was made")
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(copy.fd, fcntl.F_ADD_SEALS, seals)
    return copy


def _memory() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        # No file that can be executed: some systems permit no other. Its pages can still be mapped as code.
        return os.memfd_create("licet-code", flags | _NOEXEC_SEAL)
    except OSError as wrong:
        if wrong.errno != errno.EINVAL:  # a kernel before 6.3 does not know the flag
            raise
    return os.memfd_create("licet-code", flags)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
