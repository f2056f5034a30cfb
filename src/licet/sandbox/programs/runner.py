"""Runs programs of this machine: they inherit nothing, and end with everything that they started.

A supervisor process keeps the deadline of each program even if this process is busy or dies. A program that kills its
supervisor, or forks faster than it is killed, is stopped by its walls only.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from subprocess import Popen
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from licet.core.decision.request import Reason
from licet.guard.execution import Command, Ending, Finished, Running, Streams, Used, Walls
from licet.guard.import_path import FoundProgram, followed
from licet.guard.ports import Unavailable
from licet.sandbox.limits import SUPERVISOR_SECONDS
from licet.sandbox.programs.supervisor_client import Pipes, Supervisor
from licet.sandbox.programs.terminal_streams import AttachedStreams
from licet.sandbox.streams import Receiver, Sender

_T = TypeVar("_T")
_LATE = -9  # what a program that ran too long ended by
_NO_WAY = "programs are run on Linux only"


class LocalProcesses:
    """Runs programs. `PATH` is read once, and only its absolute directories count.

    `ready` is a supervisor that was started in advance, for the first program that it fits.
    """

    def __init__(self, path: str | None = None, *, ready: Supervisor | None = None) -> None:
        self._ready = ready
        whole = os.environ.get("PATH", os.defpath) if path is None else path
        self._folders = [folder for folder in whole.split(os.pathsep) if os.path.isabs(folder)]

    def find(self, name: str) -> str | None:
        """The real path of a program by name on the host's PATH, or by absolute path; None if there is none.

        It carries the links on the way: the walls do not trust a link that a tool may have made.
        """
        if "\0" in name or not name or ("/" in name and not os.path.isabs(name)):
            return None
        for candidate in [name] if os.path.isabs(name) else [os.path.join(folder, name) for folder in self._folders]:
            with suppress(OSError):  # circular links
                real, links = followed(candidate)
                if os.path.isfile(real) and os.access(real, os.X_OK):
                    return FoundProgram(real, links, candidate)
        return None

    async def run(self, command: Command, walls: Walls) -> Finished:
        """Run a program behind walls until it ends or its time is up. Raises `OSError` if it cannot be started."""
        return await self._watched(command, walls, None)

    async def run_attached(self, command: Command, walls: Walls, attached: AttachedStreams) -> Finished:
        """Run a program with the input and output of this process; output is neither limited nor kept.

        The last output may still be copied when this returns: see `AttachedStreams.finish`.
        """
        return await self._watched(command, walls, attached)

    @asynccontextmanager
    async def start(self, command: Command, walls: Walls, streams: Streams) -> AsyncIterator[Running]:
        """A program behind walls that runs inside the `async with`. Raises `OSError` if it cannot be started."""
        inside, running = _inside(command, walls), None
        try:
            async with _supervised(inside, self._fitting(inside), joined=streams.joined) as channels:
                running = _Running(channels, streams, inside)
                try:
                    await running.wait_until_started()
                    yield running
                finally:
                    running.stop()
        finally:
            if inside.watch is not None:
                await _to_its_end(inside.watch.ended())
            if running is not None:
                running.left()

    def _fitting(self, command: Command) -> Supervisor | None:
        """The supervisor that was started in advance, if it fits; for the first program only."""
        ready, self._ready = self._ready, None
        return ready if ready is not None and ready.walled == (command.watch is not None) else None

    async def _watched(self, command: Command, walls: Walls, attached: AttachedStreams | None) -> Finished:
        inside, trouble = _inside(command, walls), None
        try:
            async with _supervised(inside, self._fitting(inside), attached=attached) as channels:
                finished, used = await _exchange(channels, inside, attached)
        finally:
            if inside.watch is not None:
                trouble = await _to_its_end(inside.watch.ended())
        if trouble is not None:
            raise trouble
        reason = _limit(used, inside) or ("LIMIT_OUTPUT" if finished.truncated else "")
        return replace(finished, reason=reason, detail=_detail(inside))


def _inside(command: Command, walls: Walls) -> Command:
    if not sys.platform.startswith("linux") or not sys.executable:
        raise Unavailable(_NO_WAY)
    return walls.around(command)


class _Channels(Pipes):
    """Pipes to a supervisor and its program, as (read, write) pairs, and the command for it."""

    def __init__(self, command: Command) -> None:
        super().__init__()
        self.message = _message(command)
        self.control = -1  # our end of the supervisor's socket, which the supervisor closes
        try:
            self.stdin, self.stdout, self.stderr = self.pipe(), self.pipe(), self.pipe()
            self.status = self.pipe()
            self._far = {self.stdin[0], self.stdout[1], self.stderr[1], self.status[1]}
        except BaseException:
            self.close()
            raise

    def streams(
        self, attached: AttachedStreams | None, *, joined: bool, has_jobs: bool = False
    ) -> tuple[int, int, int]:
        """The streams of the program: these pipes, or copies of the streams of this process."""
        if attached is not None:
            given = attached.connect(self, has_jobs=has_jobs)
            self._far.update(given)
            return given
        return self.stdin[0], self.stdout[1], self.stdout[1] if joined else self.stderr[1]

    def close_far_ends(self) -> None:
        """Close the ends that belong to the program."""
        while self._far:
            self.shut(self._far.pop())


@asynccontextmanager
async def _supervised(
    command: Command, ready: Supervisor | None, *, attached: AttachedStreams | None = None, joined: bool = False
) -> AsyncIterator[_Channels]:
    """A supervisor with its command; on exit it has ended, and its program before it."""
    files = command.watch.files if command.watch is not None else ()
    channels: _Channels | None = None
    supervisor = ready
    try:
        channels = _Channels(command)
        has_jobs = command.own_terminal != "alone" and command.watch is not None and command.watch.has_jobs
        streams = channels.streams(attached, joined=joined, has_jobs=has_jobs)
        lent = attached.lent if attached is not None and command.watch is not None else None
        if lent is not None:
            channels.message = _framed(b"\0".join((str(command.seconds).encode(), lent[1])))
        if supervisor is None:
            supervisor = Supervisor(walled=command.watch is not None)
        channels.message = supervisor.send(
            channels.message, (*streams, channels.status[1], *files, *(() if lent is None else lent[:1]))
        )
    except BaseException:
        if channels is not None:
            channels.close()
        if supervisor is not None:
            supervisor.discard()
        raise
    finally:
        for file in files:
            os.close(file)
    try:
        channels.close_far_ends()
        channels.control = supervisor.control.fileno()
        yield channels
    finally:
        if attached is not None:
            attached.control = -1
        channels.close()
        supervisor.control.close()  # which stops it
        await _wait_for_exit(supervisor.process)


async def _exchange(
    channels: _Channels, command: Command, attached: AttachedStreams | None
) -> tuple[Finished, Used | None]:
    """Send the command and its input, and receive the output until the supervisor has finished."""
    sent, said = Sender(channels.control, channels.message), Receiver(channels.status[0], 64)
    fed = Sender(channels.stdin[1], command.stdin, channels.shut)
    out, err = (Receiver(pipe[0], command.output_bytes) for pipe in (channels.stdout, channels.stderr))
    streams = (sent, said, fed, out, err)
    try:
        if attached is not None:
            sent.done.add_done_callback(lambda _: attached.takes_signals(channels.control))
        # The supervisor keeps the deadline; this one is for a supervisor that is dead or stuck.
        await asyncio.wait_for(said.done, command.seconds + SUPERVISOR_SECONDS)
        # All processes of the program are dead. A pipe that is still open was passed to another process.
        await asyncio.wait([out.done, err.done], timeout=SUPERVISOR_SECONDS / 10)
    except TimeoutError:
        pass
    finally:
        for stream in streams:
            stream.stop()
    used = _used(said, command)
    exit_code, truncated = _LATE if used is None else used.returncode, out.truncated or err.truncated
    return Finished(exit_code, bytes(out.data), bytes(err.data), truncated, timed_out=used is None), used


def _used(said: Receiver, command: Command) -> Used | None:
    """How a program ended, as its supervisor reports it; None if it had to be killed."""
    words = bytes(said.data).decode()
    kind, _, number = words.removeprefix("started ").partition(" ")
    if kind == "blind":
        raise Unavailable("programs cannot be supervised here, because /proc cannot be read")
    if kind == "error":
        raise OSError(int(number), os.strerror(int(number)), command.binary)
    if kind == "" and said.done.done() and not said.done.cancelled():
        if words:  # the program ran, and the kernel killed it with its supervisor
            return Used(-signal.SIGKILL, 0.0, 0)
        raise Unavailable("the supervisor of a program was killed before it could start the program")
    if kind != "ended":
        return None
    code, seconds, kilobytes = number.split()
    return Used(int(code), float(seconds), int(kilobytes) << 10)


def _limit(used: Used | None, command: Command) -> Reason | Literal[""]:
    """Which limit ended a program, after its walls were cleaned up."""
    if used is None:
        return "LIMIT_TIME"
    return command.watch.limit(used) if command.watch is not None else ""


def _detail(command: Command) -> str:
    return command.watch.detail if command.watch is not None else ""


class _Running:
    """A running program whose streams were handed over."""

    def __init__(self, channels: _Channels, streams: Streams, command: Command) -> None:
        self._talk, self._command = channels, command
        self.ending: Ending | None = None
        self._ended: tuple[Used | None] | None = None  # set when it has ended
        self._said = Receiver(channels.status[0], 64)
        self._parts = [Sender(channels.control, channels.message), self._said]
        near = (channels.stdin[1], channels.stdout[0], channels.stderr[0])
        wanted = (streams.stdin, streams.stdout, streams.stderr)
        self._handed = [fd for fd, is_wanted in zip(near, wanted, strict=True) if is_wanted]
        if not streams.stdin:
            channels.shut(channels.stdin[1])
        # Not the null device: root could change its mode for all processes.
        self._parts += [Receiver(fd, 0) for fd in near[1:] if fd not in self._handed]

    async def wait_until_started(self) -> None:
        """Wait until the program runs. Raises if it cannot be started."""
        await self._said.first
        if not self._said.data.startswith(b"started"):
            await self._said.done
            _used(self._said, self._command)
        watch = self._command.watch
        trouble = await watch.started() if watch is not None else None
        if trouble is not None:
            raise trouble

    def handed(self) -> tuple[int, ...]:
        """Our ends of the requested pipes, which the caller closes."""
        given = tuple(self._talk.give(fd) for fd in self._handed)
        self._handed = []
        return given

    def signal(self, number: int) -> None:
        """Send a signal to the program, through its supervisor."""
        with suppress(BrokenPipeError, ConnectionResetError):
            os.write(self._talk.control, bytes([number]))

    async def ended(self) -> int:
        """Wait for the exit code."""
        await asyncio.wait([self._said.done], timeout=self._command.seconds + SUPERVISOR_SECONDS)
        used = _used(self._said, self._command)
        self._ended = (used,)
        return _LATE if used is None else used.returncode

    def left(self) -> None:
        """Set `ending`, after the program and its walls are gone."""
        if self._ended is not None:
            (used,) = self._ended
            code = _LATE if used is None else used.returncode
            self.ending = Ending(code, _limit(used, self._command), _detail(self._command))

    def stop(self) -> None:
        """Stop watching its pipes."""
        for part in self._parts:
            part.stop()


async def _to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Wait for what closes files, even if this task is cancelled: a deadline cancels it again and again."""
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    found = task.result()
    if cancelled is not None:
        raise cancelled
    return found


async def _wait_for_exit(supervisor: Popen[bytes]) -> None:
    """Wait until the supervisor has ended, and its program before it, even if this task is cancelled."""
    given_up, cancelled = time.monotonic() + SUPERVISOR_SECONDS, None
    with _ending(supervisor.pid) as (ended, pause):
        while supervisor.poll() is None:
            if time.monotonic() > given_up:
                supervisor.kill()
                supervisor.wait()
            try:
                await asyncio.wait([ended], timeout=pause)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


@contextmanager
def _ending(process: int) -> Iterator[tuple["asyncio.Future[None]", float]]:
    """A future that is done when a process has ended, and the seconds after which to poll."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    try:
        watched = os.pidfd_open(process)
    except OSError:  # an old kernel, or another sandbox around this process
        yield ended, 0.002
        return

    def tell() -> None:
        loop.remove_reader(watched)
        ended.set_result(None)

    loop.add_reader(watched, tell)
    try:
        yield ended, SUPERVISOR_SECONDS
    finally:
        loop.remove_reader(watched)
        os.close(watched)


def _message(command: Command) -> bytes:
    """A command as the supervisor reads it: its parts, separated by NUL."""
    if command.watch is not None:  # the launcher gets the rest from `LauncherClient`
        return _framed(str(command.seconds).encode())
    if not os.path.isabs(command.binary):
        raise ValueError(f"expected the absolute path of a program, found `{command.binary}`")
    pairs = [f"{name}={value}" for name, value in command.environment.items()]
    if any("=" in name or not name for name in command.environment):
        raise ValueError("expected names of variables without `=`")
    parts = [str(command.seconds), command.directory, command.binary, str(len(command.argv)), *command.argv, *pairs]
    with suppress(UnicodeEncodeError):
        raw = [os.fsencode(part) for part in parts]
        if not any(b"\0" in part for part in raw):
            return _framed(b"\0".join(raw))
    raise ValueError("expected arguments and variables without NUL and lone surrogates")


def _framed(text: bytes) -> bytes:
    return len(text).to_bytes(8, "big") + text
