"""The meter of one call: counts what the host holds for it and makes for it, against the call's limits.

The broker of its worker, its handles and the proxy of its programs share one meter. Each takes from it *before* it
allocates, and gives back afterwards. Time, and what the tool uses in its own process, are limited elsewhere.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, Protocol

from licet.core.decision.request import Reason
from licet.guard.limits import HOST_FILES, HOST_MEMORY_MB, REQUEST_HEADERS, WAITING_KB, WRITTEN_PATHS

# If the manifest states no limit.
DEFAULTS: Mapping[str, int] = {
    "host_memory_mb": HOST_MEMORY_MB,
    "host_files": HOST_FILES,
    "waiting_kb": WAITING_KB,
    "request_headers": REQUEST_HEADERS,
    "written_paths": WRITTEN_PATHS,
}


_LESS = {"written_paths": "write fewer files in one call"}


class Exceeded(Exception):
    """A call would cost the host more than its limits allow; `fix` tells the operator how to allow it."""

    def __init__(self, reason: Reason, key: str, text: str) -> None:
        self.reason: Reason = reason
        self.fix = f"set a higher `limits.{key}` under `capabilities`, or {_LESS.get(key, 'hold less at once')}"
        super().__init__(f"{text} (`limits.{key}`)")


class SharedCount(Protocol):
    """A count of paths in an open file, which other processes of the call have too."""

    file: int

    @property
    def taken(self) -> int:
        """The number that was counted."""

    def begin(self, taken: int) -> None:
        """Count from a number on."""

    def take(self) -> bool:
        """Count one path; False if it is one too many."""

    def close(self) -> None:
        """Close this copy of the file."""


class Meter:
    """Counts memory, open files and written paths of one call. Safe to use from several threads."""

    __slots__ = (
        *("_files", "_lock", "_memory", "_memory_mb", "_opened", "_waiters", "host_files", "host_memory"),
        *("_paths", "_shared", "_sharers", "_written", "request_headers", "waiting", "waiting_kb", "written_paths"),
    )

    def __init__(self, limits: Mapping[str, int] = DEFAULTS) -> None:
        self._memory_mb = limits.get("host_memory_mb", DEFAULTS["host_memory_mb"])
        self.host_memory = self._memory_mb << 20
        self.host_files = limits.get("host_files", DEFAULTS["host_files"])
        self.waiting_kb = limits.get("waiting_kb", DEFAULTS["waiting_kb"])
        self.waiting = self.waiting_kb << 10
        self.request_headers = limits.get("request_headers", DEFAULTS["request_headers"])
        self.written_paths = limits.get("written_paths", DEFAULTS["written_paths"])
        self._written: set[int] = set()
        self._paths = 0  # written and refused, by handles, and by processes that have ended
        self._shared: SharedCount | None = None  # the same while a process that is counted runs
        self._sharers = 0
        self._lock = threading.Lock()
        self._memory = self._files = 0
        self._opened: list[weakref.ref[Any]] = []  # files that were opened for the tool
        self._waiters: list[asyncio.Future[None]] = []  # of tasks that wait for files

    # Memory ----------------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> int:
        """Bytes that the host holds for the call now."""
        return self._memory

    def take_memory(self, size: int) -> None:
        """Count bytes before they are allocated; `Exceeded` if they do not fit."""
        with self._lock:
            if self._memory + size > self.host_memory:
                raise Exceeded(
                    "LIMIT_HOST_MEMORY",
                    "host_memory_mb",
                    f"this call would make the host hold more than {self._memory_mb} MB for it at once",
                )
            self._memory += size

    def give_memory(self, size: int) -> None:
        """Give back bytes that were freed."""
        with self._lock:
            self._memory -= size

    def share(self) -> "Share":
        """A part of the memory that can grow, and is given back as one: `with meter.share() as share:`."""
        return Share(self)

    # Files -----------------------------------------------------------------------------------------------------------

    def check_headers(self, count: int) -> None:
        """Raise `Exceeded` if a request has too many header lines."""
        if count > self.request_headers:
            most = self.request_headers
            raise Exceeded("LIMIT_HEADERS", "request_headers", f"a request has more than {most} header lines")

    def take_path(self, path: str) -> None:
        """Count a path before something may be made there, once in a call; `Exceeded` if there are too many.

        It need not be new: to look would cost more than to count.
        """
        # Hashes take little memory, however long the paths are, and nobody outside can make two paths have the same.
        number = hash(path)
        if number in self._written:
            return
        with self._lock:
            if self._shared is None:
                self._paths += 1
            if self._paths > self.written_paths if self._shared is None else not self._shared.take():
                text = f"this call would write more than {self.written_paths} different paths"
                raise Exceeded("LIMIT_PATHS", "written_paths", text)
            self._written.add(number)

    def share_count(self, made: Callable[[], SharedCount]) -> SharedCount:
        """Count paths together with a process of the call until `unshare_count`; `made` if it is the first one.

        It begins with what was counted before. Closing it is left to this meter.
        """
        with self._lock:
            if self._shared is None:
                self._shared = made()
                self._shared.begin(self._paths)
            self._sharers += 1
            return self._shared

    def unshare_count(self) -> None:
        """End what `share_count` began: the process has ended."""
        with self._lock:
            self._sharers -= 1
            if self._shared is not None and not self._sharers:
                self._paths = self._shared.taken
                self._shared.close()
                self._shared = None

    def take_directories(self, path: str) -> None:
        """Count a directory, and those above it, which may be made with it."""
        while path:
            self.take_path(path)
            path = path.rpartition("/")[0]

    def check_files(self, count: int) -> None:
        """Raise `Exceeded` if this process may not open so many more files for the call."""
        with self._lock:
            if self._files + count + self._held() > self.host_files:
                raise self._too_many_files()

    def take_files(self, count: int) -> None:
        """Count files before they are opened; `Exceeded` if there are too many."""
        if count:
            with self._lock:
                if self._files + count + self._held() > self.host_files:
                    raise self._too_many_files()
                self._files += count

    def give_files(self, count: int) -> None:
        """Give back files that were closed, or handed to another process."""
        if count:
            with self._lock:
                self._files -= count
            self._wake()

    def opened(self, file: IO[Any]) -> None:
        """Count a file that is given to a tool in this process, until it is closed or garbage-collected."""
        with self._lock, suppress(TypeError):  # an object of a backend may not support weak references
            self._opened.append(weakref.ref(file))

    @asynccontextmanager
    async def files(self, count: int) -> AsyncIterator[None]:
        """Count files for work that ends by itself; wait until there are enough.

        Work that needs more files than the limit waits until it is alone.
        """
        count = min(count, self.host_files)
        while True:
            with self._lock:
                held = self._held()
                if held + count > self.host_files:  # the tool holds them: waiting would not help
                    raise self._too_many_files()
                if self._files + held + count <= self.host_files:
                    self._files += count
                    break
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                self._wake()  # it may have been woken already: wake the others instead
                raise
        try:
            yield
        finally:
            self.give_files(count)

    def _held(self) -> int:
        """How many files the tool still has open. Closed ones are only sorted out when the limit is near."""
        if len(self._opened) + self._files < self.host_files // 2:
            return len(self._opened)
        kept = [each for each in self._opened if (file := each()) is not None and not file.closed]
        self._opened[:] = kept
        return len(kept)

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            with suppress(RuntimeError):  # its loop is closed
                waiter.get_loop().call_soon_threadsafe(_wake_one, waiter)

    def _too_many_files(self) -> Exceeded:
        text = f"this call would make the host hold more than {self.host_files} open files for it at once"
        return Exceeded("LIMIT_HOST_FILES", "host_files", text)


class Share:
    """A growing part of a call's memory; leaving the context gives all of it back."""

    __slots__ = ("_meter", "_size")

    def __init__(self, meter: Meter) -> None:
        self._meter, self._size = meter, 0

    def take(self, size: int) -> None:
        """Count more bytes; `Exceeded` if they do not fit."""
        self._meter.take_memory(size)
        self._size += size

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *_: object) -> None:
        size, self._size = self._size, 0
        self._meter.give_memory(size)


def _wake_one(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
