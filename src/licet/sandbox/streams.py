"""Reads, writes and copies open files: from the event loop without ever blocking it, and in threads.

`Source` and `Sink`: pipes and sockets are polled. Files and terminals, and pipes that cannot be opened again, are read
and written in a thread. The mode of an open file that other processes may share is never changed.

`Receiver` and `Sender`: pipes of a program that end with it. `carry`: two connections. `copy`: in a thread.
"""

import asyncio
import os
import select
import socket
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

from licet.sandbox.limits import CHUNK, MOST_UNWRITTEN


class Gone(Exception):
    """The other side has ended, or can no longer be reached; the text says why."""


class Source(Protocol):
    """Bytes that come in. One task at a time reads."""

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""

    def close(self) -> None:
        """End a read that waits."""


class Sink(Protocol):
    """Bytes that go out, in the order of the calls. Each call is written whole or not at all, also if cancelled."""

    async def write(self, data: bytes) -> None:
        """Write data, or wait first if much of what came before is still unwritten. Raises `Gone`."""

    def write_now(self, data: bytes) -> bool:
        """Write data if that needs no waiting; returns whether it was taken."""

    async def flushed(self) -> None:
        """Wait until all of it is written, or nobody reads any more."""

    def close(self) -> None:
        """Drop what is unwritten."""


def pipe_source(fd: int) -> Source:
    """A source that owns the reading end of a pipe."""
    return _source(fd) if _polls() and _unblock(fd) else ThreadedSource(fd)


def pipe_sink(fd: int) -> Sink:
    """A sink that owns the writing end of a pipe."""
    return _sink(fd) if _polls() and _unblock(fd) else ThreadedSink(fd)


def shared_source(fd: int) -> Source:
    """A source that owns this descriptor, while other processes may share its open file."""
    if _polls() and (own := _own_pipe(fd, os.O_RDONLY)) is not None:
        return _source(own)
    if _polls() and stat.S_ISSOCK(os.fstat(fd).st_mode):
        end = socket.socket(fileno=fd)
        return PolledSource(fd, lambda size: end.recv(size, socket.MSG_DONTWAIT), end.close)
    return ThreadedSource(fd)


def shared_sink(fd: int) -> Sink:
    """A sink that owns this descriptor, while other processes may share its open file."""
    if _polls() and (own := _own_pipe(fd, os.O_WRONLY)) is not None:
        return _sink(own)
    if _polls() and stat.S_ISSOCK(os.fstat(fd).st_mode):
        end = socket.socket(fileno=fd)
        return PolledSink(fd, lambda data: end.send(data, socket.MSG_DONTWAIT), end.close)
    return ThreadedSink(fd)


def _source(fd: int) -> Source:
    return PolledSource(fd, lambda size: os.read(fd, size), lambda: os.close(fd))


def _sink(fd: int) -> Sink:
    return PolledSink(fd, lambda data: os.write(fd, data), lambda: os.close(fd))


def _polls() -> bool:
    return sys.platform != "win32"


def _unblock(fd: int) -> bool:
    """Make a pipe non-blocking; anything else is left as it is. The two ends of a pipe have a mode each."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return False
    os.set_blocking(fd, False)
    return True


def _own_pipe(fd: int, access: int) -> int | None:
    """Open a pipe again in place of a descriptor, so that its mode is ours alone; None if that is not possible."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return None
    try:
        own = os.open(f"/proc/self/fd/{fd}", access | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no /proc, another user's pipe, or nobody reads it
        return None
    os.close(fd)
    return own


# Polled ---------------------------------------------------------------------------------------------------------------


class PolledSource:
    """Reads when the event loop says that there is something.

    The loop goes on watching between two reads, until bytes come while nobody waits for them.
    """

    def __init__(self, fd: int, read: Callable[[int], bytes], close: Callable[[], None]) -> None:
        self._fd, self._read, self._close = fd, read, close
        self._is_open = True
        self._is_watched = False
        self._waiting: asyncio.Future[None] | None = None
        self._came: bytes | None = None  # read, and not yet given to anybody

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""
        while self._is_open:
            came, self._came = self._came, None
            if came is None:
                came = self._now()
            if came is not None:
                return came
            await self._readable()
        return b""

    def _now(self) -> bytes | None:
        """What can be read without waiting; None if that is nothing."""
        try:
            return self._read(CHUNK)
        except BlockingIOError:
            return None
        except OSError:  # a socket whose other end was reset
            return b""

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        if not self._is_watched:
            self._is_watched = True
            loop.add_reader(self._fd, self._take)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _take(self) -> None:
        if self._waiting is None or self._came is not None:
            self._unwatch()
        elif (came := self._now()) is not None:
            self._came = came
            _settle(self._waiting)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            asyncio.get_running_loop().remove_reader(self._fd)

    def close(self) -> None:
        """End a read that waits."""
        if not self._is_open:
            return
        self._is_open = False
        self._unwatch()
        if self._waiting is not None:
            _settle(self._waiting)
        self._close()


class PolledSink:
    """Writes at once what fits, and the rest when the event loop says that there is room."""

    def __init__(self, fd: int, write: Callable[[memoryview], int], close: Callable[[], None]) -> None:
        self._fd, self._write, self._close = fd, write, close
        self._is_open = True
        self._is_watched = False
        self._unwritten: deque[memoryview] = deque()
        self._size = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # until at most so many bytes are unwritten

    async def write(self, data: bytes) -> None:
        """Write data, or wait first if much of what came before is still unwritten. Raises `Gone`."""
        while self._is_open and self._size > MOST_UNWRITTEN:
            await self._until(MOST_UNWRITTEN)
        if self._is_open:
            self._unwritten.append(memoryview(data))
            self._size += len(data)
            if not self._is_watched:
                self._flush()
        if not self._is_open:
            raise Gone("it does not read any more")

    def write_now(self, data: bytes) -> bool:
        """Write data if all that came before is written; returns whether it was taken."""
        if not self._is_open or self._size:
            return False
        self._unwritten.append(memoryview(data))
        self._size += len(data)
        self._flush()
        return True

    async def flushed(self) -> None:
        """Wait until all of it is written, or nobody reads any more."""
        while self._is_open and self._size:
            await self._until(0)

    def close(self) -> None:
        """Drop what is unwritten."""
        if not self._is_open:
            return
        self._is_open = False
        self._watch(False)
        self._unwritten.clear()
        self._size = 0
        self._wake()
        self._close()

    def _flush(self) -> None:
        try:
            while self._unwritten:
                head = self._unwritten[0]
                written = self._write(head)
                self._size -= written
                if written == len(head):
                    self._unwritten.popleft()
                else:
                    self._unwritten[0] = head[written:]
        except BlockingIOError:
            self._watch(True)
        except OSError:  # nobody reads it any more
            self.close()
        else:
            self._watch(False)
        self._wake()

    def _watch(self, is_wanted: bool) -> None:
        if is_wanted == self._is_watched:
            return
        self._is_watched = is_wanted
        loop = asyncio.get_running_loop()
        if is_wanted:
            loop.add_writer(self._fd, self._flush)
        else:
            loop.remove_writer(self._fd)

    async def _until(self, most: int) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((most, waiting))
        await waiting

    def _wake(self) -> None:
        for most, waiting in self._waiting:
            if self._size <= most:
                _settle(waiting)
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]


def _settle(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


# In a thread ----------------------------------------------------------------------------------------------------------


class _Worker:
    """A thread that runs blocking calls one after another. The process may end while one of them blocks."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: Callable[[], bytes]) -> "asyncio.Future[bytes]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bytes] = loop.create_future()
        self._jobs.put((job, loop, done))
        return done

    def stop(self, last: Callable[[], None]) -> None:
        """End the thread after the jobs that it has."""
        self._jobs.put((last, None, None))

    def _run(self) -> None:
        while True:
            job, loop, done = self._jobs.get()
            if loop is None:
                job()
                return
            value: bytes | OSError
            try:
                value = job()
            except OSError as wrong:
                value = wrong
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_give, done, value)


def _give(done: "asyncio.Future[bytes]", value: bytes | OSError) -> None:
    if done.done():
        return
    if isinstance(value, OSError):
        done.set_exception(value)
    else:
        done.set_result(value)


class ThreadedSource:
    """Reads in a thread. A terminal that nobody types at keeps the thread until the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._worker = _Worker("licet-gateway-input")
        self._reading: asyncio.Future[bytes] | None = None
        self._closed: asyncio.Future[bytes] | None = None
        self._is_open = True

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""
        if not self._is_open:
            return b""
        if self._reading is None:
            self._reading = self._worker.submit(lambda: os.read(self._fd, CHUNK))
        self._closed = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._reading, self._closed], return_when=asyncio.FIRST_COMPLETED)
        if self._closed.done():
            return b""
        reading, self._reading = self._reading, None
        try:
            return reading.result()
        except OSError:
            return b""

    def close(self) -> None:
        """End a read that waits."""
        if self._is_open:
            self._is_open = False
            if self._closed is not None and not self._closed.done():
                self._closed.set_result(b"")
            self._worker.stop(lambda: os.close(self._fd))  # in the thread: it may be using the file


class ThreadedSink:
    """Writes in a thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._worker = _Worker("licet-gateway-output")
        self._last: asyncio.Future[bytes] | None = None
        self._is_open = True

    async def write(self, data: bytes) -> None:
        """Write data after all that came before. Raises `Gone`."""
        if not self._is_open:
            raise Gone("it does not read any more")
        self._last = self._worker.submit(lambda: self._write(data))
        try:
            await asyncio.shield(self._last)
        except OSError:
            self.close()
            raise Gone("it does not read any more") from None

    def write_now(self, data: bytes) -> bool:
        """Nothing is written without a thread."""
        return False

    async def flushed(self) -> None:
        """Wait until all of it is written, or nobody reads any more."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def close(self) -> None:
        """Write nothing after what was begun."""
        if self._is_open:
            self._is_open = False
            self._worker.stop(lambda: os.close(self._fd))

    def _write(self, data: bytes) -> bytes:
        write_all(self._fd, data)
        return b""


# Pipes of a program ---------------------------------------------------------------------------------------------------


class _Pipe:
    """One pipe in the event loop, from its first byte to its end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._remove: Callable[[int], object] = self._loop.remove_reader
        self._fd = -1
        self._watched = True

    def stop(self) -> None:
        """Stop watching the pipe."""
        self._unwatch()
        self.done.cancel()

    def _finish(self) -> None:
        self._unwatch()
        if not self.done.done():  # a cancelled task that awaited it has cancelled it too
            self.done.set_result(None)

    def _unwatch(self) -> None:
        if self._watched:  # otherwise its number may belong to another file by now
            self._watched = False
            self._remove(self._fd)


class Receiver(_Pipe):
    """Keeps the first bytes and reads on: a flood neither fills the memory of this process nor blocks the program."""

    def __init__(self, fd: int, limit: int) -> None:
        super().__init__()
        os.set_blocking(fd, False)
        self._fd, self._limit = fd, limit
        self.data, self.truncated = bytearray(), False
        self.first: asyncio.Future[None] = self._loop.create_future()  # done with the first bytes, or at the end
        self._loop.add_reader(fd, self._read)

    def stop(self) -> None:
        """Stop watching the pipe."""
        super().stop()
        self.first.cancel()

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        room = self._limit - len(self.data)
        self.data += chunk[: max(room, 0)]
        self.truncated = self.truncated or len(chunk) > room
        if not self.first.done():
            self.first.set_result(None)
        if not chunk:
            self._finish()


class Sender(_Pipe):
    """Writes some bytes as the other side reads them, and then calls `then` with the pipe."""

    def __init__(self, fd: int, data: bytes, then: Callable[[int], object] = lambda _: None) -> None:
        super().__init__()
        os.set_blocking(fd, False)
        self._remove = self._loop.remove_writer
        self._fd, self._left, self._then = fd, memoryview(data), then
        self._loop.add_writer(fd, self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._fd, self._left[:CHUNK]) :]
        except (BlockingIOError, InterruptedError):
            return
        except (BrokenPipeError, ConnectionResetError):  # the reader has closed it
            self._left = self._left[:0]
        if not self._left:
            self._finish()
            self._then(self._fd)


# Connections ----------------------------------------------------------------------------------------------------------


class Readable(Protocol):
    """Bytes that come in over a connection."""

    async def read(self, size: int, /) -> bytes:
        """Some bytes, or none at the end. An `OSError` ends the connection."""


async def carry(reader: Readable, writer: asyncio.StreamWriter, other: socket.socket) -> None:
    """Carry bytes between a connection and another one, both ways, until both sides have ended."""
    try:
        others_reader, others_writer = await asyncio.open_connection(sock=other)
    except BaseException:
        other.close()
        raise
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_pump(reader, others_writer))
            both.create_task(_pump(others_reader, writer))
        await close_when_sent(others_writer)
    except* OSError:
        writer.transport.abort()
    finally:
        others_writer.transport.abort()


async def _pump(source: Readable, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK):
        sink.write(data)
        await sink.drain()
    sink.write_eof()


async def close_when_sent(writer: asyncio.StreamWriter) -> None:
    """Close a connection once everything that was written is sent."""
    writer.close()
    await writer.wait_closed()


# In a thread of the caller --------------------------------------------------------------------------------------------


class Unwritten(OSError):
    """Bytes that were read could not be written; `size` is their number."""

    def __init__(self, wrong: OSError, size: int) -> None:
        super().__init__(wrong.errno, wrong.strerror)
        self.size = size


def copy(source: int, sink: int, seen: Callable[[bytes], object] = lambda _: None) -> None:
    """Copy until the source ends or the reader of the sink has closed it. Raises `OSError` if either fails.

    `seen` is called with each piece before it is written.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(sink, 0)  # reports only that the reader has closed it
    while True:
        if sink in dict(poll.poll()):
            return
        try:
            data = os.read(source, CHUNK)
        except BlockingIOError:  # another process read it
            continue
        if not data:
            return
        seen(data)
        write_all(sink, data)


def write_all(sink: int, data: bytes) -> None:
    """Write all of it, also if the file does not block and is full. Raises `Unwritten`."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(sink, left) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(sink, select.POLLOUT)
            poll.poll()
        except OSError as wrong:
            raise Unwritten(wrong, len(left)) from None
