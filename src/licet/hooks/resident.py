"""The resident: one process of a user that keeps policies and walls ready, and answers hooks and runs lines.

This module carries bytes and descriptors between clients and a `Service`, which decides. From a client it takes these,
and the values of variables that the service asks for, and nothing else. It is reached by its own user alone. No client
keeps others waiting: each message has a limit and each step a time, and nothing is read or sent that would block.
"""

import array
import asyncio
import errno
import fcntl
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from licet.hooks import resident_wire as wire
from licet.hooks.agent_event import Printed
from licet.hooks.limits import (
    ACCEPTED_AT_ONCE,
    BACKLOG,
    FILES_SECONDS,
    HELD_BYTES,
    HOOK_SECONDS,
    IDLE_SECONDS,
    LINE_BYTES,
    LOG_BYTES,
    LOOK_SECONDS,
    MOST_CLIENTS,
    MOST_OPEN_FILES,
    MOST_SIGNALS,
    MOST_VARIABLES,
    PATH_BYTES,
    PRINTED_BYTES,
    READ_BYTES,
    REASON_BYTES,
    REQUEST_SECONDS,
    UPKEEP_EVERY_SECONDS,
    WORD_BYTES,
)
from licet.hooks.resident_place import Unreachable, address, peer, process_of
from licet.hooks.resident_start import made

SERVICE = "licet.hooks.answering:service"  # a function without arguments that returns the `Service`

_STREAMS = 3
_MOST_CODE = 255
_ANCILLARY = socket.CMSG_SPACE((_STREAMS + 1) * array.array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0
_SIGNALS = (
    frozenset(
        (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
    )
    if sys.platform != "win32"
    else frozenset()
)

Variables = Callable[[Sequence[str]], Awaitable[dict[str, str]]]


class Service(Protocol):
    """What answers: everything that decides, or runs something, is behind it."""

    async def hook(self, agent: str, event: str, payload: bytes, directory: str, client: int = 0) -> Printed:
        """Answer one event. It is cancelled when its client ends, or its time is up. `client` is that process."""

    async def line(
        self, ticket: str, text: str, directory: str, streams: tuple[int, int, int], variables: Variables,
        signals: AsyncIterator[int],
    ) -> int:  # fmt: skip
        """Run a shell line; returns its exit code, or minus the signal that ended it.

        The descriptors are the client's and stay open until this returns. It is cancelled when its client ends: then
        every process of the line has to end too. `variables` asks the client for values; what it lacks is left out.
        """

    def is_needed(self) -> bool:
        """Whether something must stay in memory though no client is there, such as a session."""

    async def tidy(self) -> None:
        """Do what nobody has asked for and is due from time to time. It takes a second at most."""

    async def close(self) -> None:
        """End everything, when the resident ends."""


class Log:
    """A log of a few lines that cannot fill a disk. It never holds anything that came from a client."""

    def __init__(self, place: int, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(f"{name}.log", flags, 0o600, dir_fd=place)
        self._left = LOG_BYTES

    def say(self, text: str) -> None:
        """Write a line, unless the log is full."""
        data = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n".encode("utf-8", "backslashreplace")
        if len(data) <= self._left:
            self._left -= len(data)
            with suppress(OSError):
                os.write(self._file, data)

    def wrong(self, what: str, error: BaseException) -> None:
        """Write what went wrong, and where: not what the error says, since it may quote a client."""
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        places = ", ".join(f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in frames)
        self.say(f"{what}: {type(error).__name__} at {places}")


class Resident:
    """Accepts clients, and ends when it is told to, when nothing needs it, or when licet's files have changed."""

    def __init__(self, service: Service, place: int, name: str, lock: int, log: Log, files: str) -> None:
        self._service, self._log = service, log
        self._place, self._name, self._lock = place, name, lock
        self._files = files  # how the files of licet were when the modules were loaded
        self._listener, self._socket = _listening(place, name)
        self._clients: set[_Client] = set()
        self._over = asyncio.Event()
        self._used = self._looked = self._tidied = time.monotonic()
        self._leaving = False
        self._counts = {"hooks": 0, "lines": 0, "refused": 0, "alone": 0}
        self.held = 0  # bytes of requests
        self.tasks: set[asyncio.Task[None]] = set()  # those of clients that have gone may still clean up

    async def run(self) -> None:
        """Serve until the end."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, "a signal")
        self._log.say(f"licet {_version()}: process {os.getpid()} listens")
        while not self._over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), LOOK_SECONDS)
            self._look()
            await self._tidy()
        await self._service.close()
        self._log.say("has ended")

    async def _tidy(self) -> None:
        if time.monotonic() - self._tidied >= UPKEEP_EVERY_SECONDS:
            try:
                await self._service.tidy()
            except Exception as wrong:
                self._log.wrong("what is due from time to time failed", wrong)
            self._tidied = time.monotonic()

    def _look(self) -> None:
        """End if nobody needs this process, or nobody can reach it."""
        if self._clients or self.tasks or self._service.is_needed():
            self._used = time.monotonic()
        elif time.monotonic() - self._used >= IDLE_SECONDS:
            self.leave("nobody needs it")
        if not self._leaving and _identity(self._place, self._name) != self._socket:
            self.leave("its socket is another one now")
        self.is_outdated()

    def is_outdated(self) -> bool:
        """Whether this process is leaving, or the files of licet have changed, and it leaves now."""
        now = time.monotonic()
        if not self._leaving and now - self._looked >= FILES_SECONDS:
            self._looked = now
            if files_of_licet() != self._files:
                self.leave("the files of licet have changed")
        return self._leaving

    def leave(self, why: str) -> None:
        """Take no new work, so that another resident can start. What is under way goes on."""
        if self._leaving:
            return
        self._leaving = True
        self._log.say(f"leaves: {why}")
        self._accept()  # who waits is told to go to another one
        asyncio.get_running_loop().remove_reader(self._listener)
        if _identity(self._place, self._name) == self._socket:
            os.unlink(f"{self._name}.sock", dir_fd=self._place)
        self._accept()
        self._listener.close()
        os.close(self._lock)
        self._end_if_done()

    def stop(self, why: str) -> None:
        """Leave, and end the lines too."""
        self.leave(why)
        for client in tuple(self._clients):
            client.end_line()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._leaving and not self._clients and not self.tasks:
            self._over.set()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                end, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as wrong:  # too many open files, or the client is gone
                if wrong.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._log.say(f"cannot accept: {wrong.strerror}")
                    return
                continue
            end.setblocking(False)
            try:
                is_own = peer(end) == os.geteuid()
            except (OSError, Unreachable):
                is_own = False
            if not is_own:
                self._counts["refused"] += 1
                end.close()
            elif len(self._clients) >= MOST_CLIENTS:
                self._counts["alone"] += 1
                with suppress(OSError):
                    end.send(wire.packed(wire.ALONE))
                end.close()
            else:
                self._clients.add(_Client(self, end))

    def forget(self, client: "_Client") -> None:
        """A client has ended."""
        self._clients.discard(client)
        self._used = time.monotonic()
        self._end_if_done()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something for a client."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._has_done)
        return task

    def _has_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (wrong := task.exception()) is not None:
            self._log.wrong("a client could not be answered", wrong)
        self._end_if_done()

    async def hook(self, agent: str, event: str, payload: bytes, directory: str, client: int) -> bytes:
        """The message that answers an event."""
        self._counts["hooks"] += 1
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                printed = await self._service.hook(agent, event, payload, directory, client)
            if len(printed.output) + len(printed.errors) > PRINTED_BYTES or not 0 <= printed.code <= _MOST_CODE:
                raise ValueError("an answer that cannot be printed")  # noqa: TRY301
        except TimeoutError:
            return _refused("no answer in time")
        except Exception as wrong:
            self._log.wrong("a hook failed", wrong)
            return _refused(f"the hook failed: {type(wrong).__name__}")
        return wire.packed(wire.ANSWER, printed.output, printed.errors, wire.number(printed.code))

    async def line(self, *about: Any) -> bytes:
        """The message at the end of a line."""
        self._counts["lines"] += 1
        try:
            code = await self._service.line(*about)
        except Exception as wrong:
            self._log.wrong("a line failed", wrong)
            return _refused(f"the line failed: {type(wrong).__name__}")
        return wire.packed(wire.ENDED, wire.number(code))

    def state(self) -> dict[str, str]:
        """What `licet hooks status` shows."""
        counts = {name: str(count) for name, count in self._counts.items()}
        return {"pid": str(os.getpid()), "version": _version(), "under way": str(len(self.tasks)), **counts}


class _Client:
    """One connection: a request, what is asked and sent meanwhile, and the answer."""

    def __init__(self, resident: Resident, end: socket.socket) -> None:
        self._resident, self._end = resident, end
        self._loop = asyncio.get_running_loop()
        self._messages = wire.Messages(wire.FROM_CLIENT)
        self._held = 0
        self._files: list[int] = []
        self._task: asyncio.Task[None] | None = None
        self._is_line = False
        self._values: asyncio.Future[list[bytes]] | None = None
        self._signals: asyncio.Queue[int] = asyncio.Queue(MOST_SIGNALS)
        self._unsent = bytearray()
        self._closes = False  # when everything is sent
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True
        self._wait()
        self._loop.add_reader(end, self._read)

    def close(self) -> None:
        """End the connection, and what is done for it."""
        if not self._is_open:
            return
        self._is_open = False
        self._done_waiting()
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        self._resident.held -= self._held
        if self._task is not None:
            self._task.cancel()
        else:
            self._close_files()
        self._resident.forget(self)

    def end_line(self) -> None:
        """End it if it is a line."""
        if self._is_line:
            self.close()

    def _close_files(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def _wait(self) -> None:
        """Give the client a limited time from now on."""
        self._done_waiting()
        self._timer = self._loop.call_later(REQUEST_SECONDS, self.close)

    def _done_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read(self) -> None:
        try:
            data, ancillary, flags, _ = self._end.recvmsg(READ_BYTES, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        files = _files_in(ancillary)
        if files:
            is_wanted = self._task is None and not self._files and self._messages.between
            self._files += files
            if not is_wanted or len(files) != _STREAMS or flags & socket.MSG_CTRUNC:
                self.close()
                return
        if not data or flags & socket.MSG_CTRUNC:
            self.close()
            return
        try:
            if self._task is None and not self._hold(len(data)):
                return
            for kind, fields in self._messages.feed(data):
                self._take(kind, fields)
                if not self._is_open:
                    return
        except wire.BadMessage:
            self.close()

    def _hold(self, size: int) -> bool:
        self._held += size
        self._resident.held += size
        if self._resident.held > HELD_BYTES:
            self._finish(wire.packed(wire.ALONE))
            return False
        return True

    def _take(self, kind: int, fields: list[bytes]) -> None:
        if self._closes:  # it was answered already
            return
        if self._task is not None:
            self._take_more(kind, fields)
        elif self._resident.is_outdated():
            self._finish(wire.packed(wire.LEAVING))
        elif kind == wire.HOOK and not self._files:
            agent, event, directory, payload = _sized(fields, WORD_BYTES, WORD_BYTES, PATH_BYTES, None)
            process = process_of(self._end)
            self._begin(self._resident.hook(_text(agent), _text(event), payload, _text(directory), process))
        elif kind == wire.LINE and len(self._files) == _STREAMS:
            ticket, text, directory = _sized(fields, WORD_BYTES, LINE_BYTES, PATH_BYTES)
            self._is_line = True
            stdin, stdout, stderr = self._files
            self._send(wire.packed(wire.TAKEN))
            about = _text(ticket), _text(text), _text(directory), (stdin, stdout, stderr)
            self._begin(self._resident.line(*about, self._variables, self._received_signals()))
        elif kind == wire.STATUS and not self._files:
            pairs = [word.encode() for pair in self._resident.state().items() for word in pair]
            self._finish(wire.packed(wire.STATE, *pairs))
        elif kind == wire.STOP and not self._files:
            self._finish(wire.packed(wire.LEAVING))
            self._resident.stop("it was told to")
        else:
            raise wire.BadMessage("no request")

    def _take_more(self, kind: int, fields: list[bytes]) -> None:
        if kind == wire.VALUES and self._values is not None and not self._values.done():
            self._values.set_result(fields)
        elif kind == wire.SIGNAL and self._is_line and len(fields) == 1:
            number = wire.number_in(fields[0])
            if number not in _SIGNALS:
                raise wire.BadMessage("no signal that is passed on")
            with suppress(asyncio.QueueFull):
                self._signals.put_nowait(number)
        else:
            raise wire.BadMessage("a message that nobody waits for")

    def _begin(self, work: Coroutine[Any, Any, bytes]) -> None:
        if not self._unsent:
            self._done_waiting()
        self._task = self._resident.start(self._answer(work))

    async def _answer(self, work: Coroutine[Any, Any, bytes]) -> None:
        answer = b""
        try:
            answer = await work
        finally:
            self._close_files()
            self._task = None
            if answer:
                self._finish(answer)
            else:
                self.close()

    async def _variables(self, names: Sequence[str]) -> dict[str, str]:
        """Ask the client for the values of variables."""
        wanted = dict.fromkeys(names)
        if len(wanted) > MOST_VARIABLES:
            raise ValueError("too many variables")
        self._values = self._loop.create_future()
        self._send(wire.packed(wire.WANTED, *(os.fsencode(name) for name in wanted)))
        async with asyncio.timeout(REQUEST_SECONDS):
            fields = await self._values
        self._values = None
        if len(fields) % 2:
            raise wire.BadMessage("a name without a value")
        found = {os.fsdecode(name): os.fsdecode(value) for name, value in zip(fields[::2], fields[1::2], strict=True)}
        if any(b"\0" in field for field in fields) or not found.keys() <= wanted.keys():
            raise wire.BadMessage("a variable that was not asked for")
        return found

    async def _received_signals(self) -> AsyncIterator[int]:
        while True:
            yield await self._signals.get()

    def _finish(self, message: bytes) -> None:
        """Send the last message."""
        if self._is_open:
            self._closes = True
            self._send(message)

    def _send(self, message: bytes) -> None:
        idle = not self._unsent
        self._unsent += message
        if idle:
            self._wait()
            self._write()

    def _write(self) -> None:
        try:
            sent = self._end.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._end, self._write)
            return
        self._loop.remove_writer(self._end)
        self._done_waiting()
        if self._closes:
            self.close()


def _version() -> str:
    return str(sys.modules["licet"].__version__)


def _refused(why: str) -> bytes:
    return wire.packed(wire.REFUSED, why.encode("utf-8", "backslashreplace")[:REASON_BYTES])


def _sized(fields: list[bytes], *most: int | None) -> list[bytes]:
    if len(fields) != len(most):
        raise wire.BadMessage("another number of fields")
    if any(limit is not None and len(field) > limit for field, limit in zip(fields, most, strict=True)):
        raise wire.BadMessage("a field that is too long")
    return fields


def _text(field: bytes) -> str:
    if b"\0" in field:
        raise wire.BadMessage("a NUL in a text")
    return os.fsdecode(field)


def _files_in(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, raw in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(raw[: len(raw) - len(raw) % found.itemsize])
    return found.tolist()


def _listening(place: int, name: str) -> tuple[socket.socket, tuple[int, int]]:
    """A listening socket in place of a stale one, and its file. The lock of this name must be held."""
    with suppress(FileNotFoundError):
        os.unlink(f"{name}.sock", dir_fd=place)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(address(place, name))
    about = _identity(place, name)
    listener.listen(BACKLOG)
    if about is None:
        raise FileNotFoundError(errno.ENOENT, "the socket is gone")
    return listener, about


def _identity(place: int, name: str) -> tuple[int, int] | None:
    """Which file the socket is."""
    try:
        about = os.stat(f"{name}.sock", dir_fd=place, follow_symlinks=False)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def files_of_licet() -> str:
    """A text that changes with the version and with each source file of licet."""
    found: list[str] = []
    waiting = [str(Path(__file__).parent.parent)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=True) and entry.name != "__pycache__":
                        waiting.append(entry.path)
                    elif entry.name.endswith(".py"):
                        about = entry.stat()
                        found.append(f"{entry.path} {about.st_mtime_ns} {about.st_size} {about.st_ino}")
        except OSError as wrong:
            found.append(f"{wrong.filename} {wrong.errno}")
    return "\n".join(sorted(found))


def only_one(place: int, name: str) -> int | None:
    """The lock of a resident; None if there is one already."""
    lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def main(words: Sequence[str], environ: Mapping[bytes, bytes]) -> None:
    """Become the resident of this name, unless there is one."""
    from licet.hooks.resident_place import directory

    (name,) = words
    if len(name) != 16 or not set(name) <= set("0123456789abcdef"):
        raise SystemExit("expected the name of a resident")
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # nothing is open yet that is needed
    os.chdir("/")
    os.umask(0o077)
    place = made(directory(dict(environ)))
    lock = only_one(place, name)
    if lock is None:
        return
    log = Log(place, name)
    try:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = MOST_OPEN_FILES if most == resource.RLIM_INFINITY else min(most, MOST_OPEN_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        files = files_of_licet()
        service: Service = resolve_name(SERVICE)()
        asyncio.run(_serve(service, place, name, lock, log, files))
    except BaseException as wrong:
        log.wrong("ended by an error", wrong)
        raise


async def _serve(service: Service, place: int, name: str, lock: int, log: Log, files: str) -> None:
    await Resident(service, place, name, lock, log, files).run()


if __name__ == "__main__":
    main(sys.argv[1:], os.environb)
