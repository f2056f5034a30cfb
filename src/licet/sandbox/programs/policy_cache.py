"""The cache of a policy: where pip, npm, uv, cargo, go, Playwright and Gradle keep what they download between runs.

Each policy has one of its own, below licet's data directory, which no grant reaches: what a program has put there is
read by programs of the same policy alone, and nothing on the host is started from it. The caches of the person are
neither read nor written. Once an hour a start looks at its size, and empties one that is too large unless another run
uses it.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from licet.guard.held_paths import HeldPaths
from licet.own_files import read_regular
from licet.policy_files.policy_paths import data_root, home_directory
from licet.sandbox.limits import CACHE_BYTES, CACHE_LOOK_SECONDS, LARGEST_CACHE_NOTE, MOST_CACHE_ENTRIES
from licet.sandbox.scratch import ScratchUse, clear, remove, used

PLACE = "/.licet-cache"  # in the private root of a program; no grant has this path
_DIRECTORY = "caches"
_FILES, _LOCK, _NOTE, _LOOKED = "files", "lock", "policy.json", "looked"
# A variable, the directory that it names in the cache, and where the program keeps it without that variable.
_PROGRAMS = (
    ("PIP_CACHE_DIR", "pip", ".cache/pip"),
    ("UV_CACHE_DIR", "uv", ".cache/uv"),
    ("npm_config_cache", "npm", ".npm"),
    ("CARGO_HOME", "cargo", ".cargo"),
    ("GOCACHE", "go-build", ".cache/go-build"),
    ("GOMODCACHE", "go-mod", "go"),
    ("PLAYWRIGHT_BROWSERS_PATH", "playwright", ".cache/ms-playwright"),
    ("GRADLE_USER_HOME", "gradle", ".gradle"),
)
_BESIDE = {"UV_CACHE_DIR": {"UV_LINK_MODE": "copy"}}  # no link leads out of the cache, which uv would warn about


class PolicyCache(NamedTuple):
    """The cache of one policy on the host."""

    directory: str

    @property
    def files(self) -> str:
        """What programs see of it."""
        return os.path.join(self.directory, _FILES)

    @property
    def policy(self) -> str:
        """The policy that it belongs to; empty if that cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(read_regular(os.path.join(self.directory, _NOTE), LARGEST_CACHE_NOTE, links=False))
            return str(note["policy"])
        return ""

    def used(self) -> ScratchUse:
        """Its size."""
        return used(self.files, MOST_CACHE_ENTRIES)

    def open(self, policy: str) -> "OpenCache":
        """Make it, and keep it for a run. Raises `OSError`, also where somebody empties it at the moment."""
        os.makedirs(self.directory, 0o700, exist_ok=True)
        lock = self._locked(fcntl.LOCK_SH | fcntl.LOCK_NB)
        try:
            with suppress(FileExistsError):
                os.mkdir(self.files, 0o700)
            if not self.policy:
                with open(os.path.join(self.directory, _NOTE), "w", encoding="utf-8") as note:
                    json.dump({"policy": policy}, note)
        except BaseException:
            os.close(lock)
            raise
        return OpenCache(self, lock)

    def clear(self) -> bool:
        """Remove it with everything in it; false if a run uses it."""
        try:
            lock = self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            remove(self.directory)
        finally:
            os.close(lock)
        return True

    def _locked(self, how: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(os.path.join(self.directory, _LOCK), flags, 0o600)
        try:
            fcntl.flock(lock, how)
        except BaseException:
            os.close(lock)
            raise
        return lock

    def bound(self, lock: int) -> None:
        """Empty it if it is too large and no other run uses it; looked at once in a while. It may take seconds."""
        looked = os.path.join(self.directory, _LOOKED)
        if self._is_recent(looked):
            return
        os.close(os.open(looked, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        os.utime(looked)
        size = self.used()
        if size.size <= CACHE_BYTES and size.entries < MOST_CACHE_ENTRIES:
            return
        with suppress(BlockingIOError):  # another run uses it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear(self.files)

    @staticmethod
    def _is_recent(file: str) -> bool:
        with suppress(OSError):
            return time.time() - os.lstat(file).st_mtime < CACHE_LOOK_SECONDS
        return False


class OpenCache(NamedTuple):
    """A cache that a run uses: nobody empties it meanwhile."""

    cache: PolicyCache
    lock: int

    def close(self) -> None:
        """End its use; what has grown too large is emptied now."""
        try:
            with suppress(OSError):
                self.cache.bound(self.lock)
        finally:
            os.close(self.lock)


def cache_of(policy: str, agent: str) -> PolicyCache | None:
    """The cache of a policy file; None for a user without a home directory."""
    root = data_root()
    name = hashlib.sha256(json.dumps([os.path.realpath(policy), agent]).encode()).hexdigest()[:32]
    return PolicyCache(os.path.join(root, _DIRECTORY, name)) if root else None


def caches() -> Iterator[PolicyCache]:
    """The caches of all policies of this user."""
    above = os.path.join(data_root(), _DIRECTORY)
    with suppress(OSError):
        yield from (PolicyCache(os.path.join(above, name)) for name in sorted(os.listdir(above)))


def cache_variables(place: str, environment: Mapping[str, str], held: HeldPaths) -> dict[str, str]:
    """The variables that lead programs to the cache, where they have none of their own.

    A program whose usual directory is granted, and which finds it by `HOME`, is left to that.
    """
    home, variables = home_directory(), dict[str, str]()
    for name, folder, usual in _PROGRAMS:
        finds_own = bool(home) and environment.get("HOME") == home and held.overlaps("read", os.path.join(home, usual))
        if not finds_own:
            variables |= {name: os.path.join(place, folder), **_BESIDE.get(name, {})}
    return variables
