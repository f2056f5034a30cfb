"""Pipes in an event loop: read to a limit, written as the other side takes it, and closed once each."""

import asyncio
import os
from collections.abc import Callable

_CHUNK = 1 << 16


class Pipes:
    """The ends of some pipes; closing is done once each, whatever happens when."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def pipe(self) -> tuple[int, int]:
        """A new pipe, as (read, write)."""
        pair = os.pipe()  # not inherited by anything else that this process starts
        self._open.update(pair)
        return pair

    def shut(self, fd: int) -> None:
        """Close one end."""
        self._open.discard(fd)
        os.close(fd)

    def keep(self, fd: int) -> int:
        """Close an open file of another kind together with the pipes."""
        self._open.add(fd)
        return fd

    def give(self, fd: int) -> int:
        """One end, which then is the caller's to close."""
        self._open.remove(fd)
        return fd

    def close(self) -> None:
        """Close what is still open."""
        while self._open:
            os.close(self._open.pop())


class _Stream:
    """One pipe in the event loop, from its first byte to its end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._leave: Callable[[int], object] = self._loop.remove_reader
        self._fd = -1
        self._watched = True

    def stop(self) -> None:
        """Look at the pipe no longer."""
        self._unwatch()
        self.done.cancel()

    def _finish(self) -> None:
        self._unwatch()
        if not self.done.done():  # whoever waited for it and was cancelled has cancelled it too
            self.done.set_result(None)

    def _unwatch(self) -> None:
        if self._watched:  # otherwise its number may be another's already
            self._watched = False
            self._leave(self._fd)


class Receiver(_Stream):
    """Keeps the first bytes and reads on: a flood neither grows this process nor blocks the program."""

    def __init__(self, fd: int, limit: int) -> None:
        super().__init__()
        os.set_blocking(fd, False)
        self._fd, self._limit = fd, limit
        self.data, self.truncated = bytearray(), False
        self.first: asyncio.Future[None] = self._loop.create_future()  # something has come, or nothing ever will
        self._loop.add_reader(fd, self._read)

    def stop(self) -> None:
        """Look at the pipe no longer."""
        super().stop()
        self.first.cancel()

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        room = self._limit - len(self.data)
        self.data += chunk[: max(room, 0)]
        self.truncated = self.truncated or len(chunk) > room
        if not self.first.done():
            self.first.set_result(None)
        if not chunk:
            self._finish()


class Sender(_Stream):
    """Writes some bytes as the other side takes them, and then does what is to be done with the pipe."""

    def __init__(self, fd: int, data: bytes, then: Callable[[int], object] = lambda _: None) -> None:
        super().__init__()
        os.set_blocking(fd, False)
        self._leave = self._loop.remove_writer
        self._fd, self._left, self._then = fd, memoryview(data), then
        self._loop.add_writer(fd, self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._fd, self._left[:_CHUNK]) :]
        except (BlockingIOError, InterruptedError):
            return
        except (BrokenPipeError, ConnectionResetError):  # it does not want the rest
            self._left = self._left[:0]
        if not self._left:
            self._finish()
            self._then(self._fd)
