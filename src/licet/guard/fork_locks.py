"""Locks that are free in a forked child: the thread of the parent that held one does not exist there."""

import os
import weakref
from typing import Any, TypeVar

_Lock = TypeVar("_Lock")
_LOCKS: "weakref.WeakSet[Any]" = weakref.WeakSet()


def free_after_fork(lock: _Lock) -> _Lock:
    """Return the lock. A forked child finds it free, whoever held it in the parent."""
    _LOCKS.add(lock)
    return lock


def _in_child() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # as the standard library does with its own locks


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
