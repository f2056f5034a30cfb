"""Programs of this machine: started with nothing inherited, and ended with everything they started.

A small supervisor (`process_supervisor`) stands between: it keeps the deadline even if this process is busy or dies.
Limits: a program that kills its supervisor, or forks faster than it can be killed, needs walls (`sandbox`) to stop it.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from licet.guard.ports import Command, Finished, Unavailable, Walls

_SUPERVISOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "process_supervisor.py")
_CHUNK = 1 << 16
_GRACE = 2.0  # seconds that the supervisor has to clear up
_NO_WAY = "programs are run on Linux only"


class LocalProcesses:
    """Runs programs. `PATH` is that of the moment this was made, and only its absolute directories count."""

    def __init__(self, path: str | None = None) -> None:
        whole = os.environ.get("PATH", os.defpath) if path is None else path
        self._folders = [folder for folder in whole.split(os.pathsep) if os.path.isabs(folder)]

    def find(self, name: str) -> str | None:
        """The real path of a program by name, on the host's PATH, or None; an absolute path is looked at as it is."""
        if "\0" in name or not name or ("/" in name and not os.path.isabs(name)):
            return None
        for candidate in [name] if os.path.isabs(name) else [os.path.join(folder, name) for folder in self._folders]:
            real = os.path.realpath(candidate)
            if os.path.isfile(real) and os.access(real, os.X_OK):
                return real
        return None

    async def run(self, command: Command, walls: Walls) -> Finished:
        """Run a program behind walls until it ends or its time is up; `OSError` if it cannot be started."""
        return await self._watched(command, walls, attached=False)

    async def run_attached(self, command: Command, walls: Walls) -> Finished:
        """The same with the input and output of this process instead of pipes: nothing is read, capped or kept."""
        return await self._watched(command, walls, attached=True)

    async def _watched(self, command: Command, walls: Walls, *, attached: bool) -> Finished:
        if not sys.platform.startswith("linux") or not sys.executable:
            raise Unavailable(_NO_WAY)
        inside, trouble = walls.around(command), None
        try:
            finished = await _supervised(inside, attached)
        finally:
            if inside.watch is not None:
                trouble = await inside.watch.ended()
        if trouble is not None:
            raise trouble
        return finished


async def _supervised(command: Command, attached: bool) -> Finished:
    files = command.watch.files if command.watch is not None else ()
    pipes: _Pipes | None = None
    try:
        message = _message(command)
        pipes = _Pipes()
        passed = (pipes.control[0], pipes.status[1], *files)
        supervisor = subprocess.Popen(  # noqa: S603 - the interpreter and a script of our own
            [sys.executable, "-I", "-S", _SUPERVISOR, *map(str, passed)],
            stdin=None if attached else pipes.stdin[0],
            stdout=None if attached else pipes.stdout[1],
            stderr=None if attached else pipes.stderr[1],
            env={},
            cwd="/",
            pass_fds=passed,
            start_new_session=True,
        )
    except BaseException:
        if pipes is not None:
            pipes.close()
        raise
    finally:
        for file in files:
            os.close(file)
    try:
        pipes.close_far_ends()
        return await _converse(pipes, message, command)
    finally:
        pipes.close()  # the end of the control pipe means stop
        await _gone(supervisor)


async def _converse(pipes: "_Pipes", message: bytes, command: Command) -> Finished:
    """Send the command and its input, and take what comes back until the supervisor has finished."""
    sent, said = _Sender(pipes.control[1], message), _Receiver(pipes.status[0], 64)
    fed = _Sender(pipes.stdin[1], command.stdin, pipes.shut)
    out, err = (_Receiver(pipe[0], command.output_bytes) for pipe in (pipes.stdout, pipes.stderr))
    streams = (sent, said, fed, out, err)
    try:
        # The supervisor keeps the time; should it be gone or stuck, so do we.
        await asyncio.wait_for(said.done, command.seconds + _GRACE)
        # All writers are dead. Whoever still holds a pipe open was handed it, and nobody waits for that.
        await asyncio.wait([out.done, err.done], timeout=_GRACE / 2)
    except TimeoutError:
        pass
    finally:
        for stream in streams:
            stream.stop()
    kind, _, number = bytes(said.data).decode().partition(" ")
    if kind == "error":
        raise OSError(int(number), os.strerror(int(number)), command.binary)
    if kind == "" and said.done.done() and not said.done.cancelled():
        raise Unavailable("the supervisor of a program was killed before the program ended")
    late = kind != "ended"
    returncode = -9 if late else int(number)
    return Finished(returncode, bytes(out.data), bytes(err.data), out.truncated or err.truncated, timed_out=late)


class _Pipes:
    """Five pipes, as (read, write) pairs; closing is done once each, whatever happens when."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        try:
            self.stdin, self.stdout, self.stderr = self._pipe(), self._pipe(), self._pipe()
            self.control, self.status = self._pipe(), self._pipe()
        except BaseException:
            self.close()
            raise

    def _pipe(self) -> tuple[int, int]:
        pair = os.pipe()  # not inherited by anything else that this process starts
        self._open.update(pair)
        return pair

    def close_far_ends(self) -> None:
        """Close what belongs to the child alone, and make the near ends ready for an event loop."""
        for near, far in (self.stdin[::-1], self.stdout, self.stderr, self.control[::-1], self.status):
            self.shut(far)
            os.set_blocking(near, False)

    def shut(self, fd: int) -> None:
        """Close one end."""
        self._open.discard(fd)
        os.close(fd)

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

    def stop(self) -> None:
        """Look at the pipe no longer."""
        if not self.done.done():  # otherwise its number may be another's already
            self._leave(self._fd)
            self.done.cancel()

    def _finish(self) -> None:
        self._leave(self._fd)
        self.done.set_result(None)


class _Receiver(_Stream):
    """Keeps the first bytes and reads on: a flood neither grows this process nor blocks the program."""

    def __init__(self, fd: int, limit: int) -> None:
        super().__init__()
        self._fd, self._limit = fd, limit
        self.data, self.truncated = bytearray(), False
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        if not chunk:
            self._finish()
            return
        room = self._limit - len(self.data)
        self.data += chunk[: max(room, 0)]
        self.truncated = self.truncated or len(chunk) > room


class _Sender(_Stream):
    """Writes some bytes as the other side takes them, and then does what is to be done with the pipe."""

    def __init__(self, fd: int, data: bytes, then: Callable[[int], object] = lambda _: None) -> None:
        super().__init__()
        self._leave = self._loop.remove_writer
        self._fd, self._left, self._then = fd, memoryview(data), then
        self._loop.add_writer(fd, self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._fd, self._left[:_CHUNK]) :]
        except (BlockingIOError, InterruptedError):
            return
        except BrokenPipeError:  # it does not want the rest
            self._left = self._left[:0]
        if not self._left:
            self._finish()
            self._then(self._fd)


async def _gone(supervisor: "subprocess.Popen[bytes]") -> None:
    """Return when the supervisor has ended, and its program before it; being cancelled does not cut this short."""
    given_up, cancelled = time.monotonic() + _GRACE, None
    while supervisor.poll() is None:
        if time.monotonic() > given_up:
            supervisor.kill()
            supervisor.wait()
        try:
            await asyncio.sleep(0.002)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _message(command: Command) -> bytes:
    """A command as the supervisor reads it: no part of a command can hold a NUL."""
    if not os.path.isabs(command.binary):
        raise ValueError(f"expected the absolute path of a program, found `{command.binary}`")
    pairs = [f"{name}={value}" for name, value in command.environment.items()]
    if any("=" in name or not name for name in command.environment):
        raise ValueError("expected names of variables without `=`")
    parts = [str(command.seconds), command.directory, command.binary, str(len(command.argv)), *command.argv, *pairs]
    with suppress(UnicodeEncodeError):
        raw = [os.fsencode(part) for part in parts]
        if not any(b"\0" in part for part in raw):
            whole = b"\0".join(raw)
            return len(whole).to_bytes(8, "big") + whole
    raise ValueError("expected arguments and variables without NUL and lone surrogates")
