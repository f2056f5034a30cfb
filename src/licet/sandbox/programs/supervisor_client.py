"""How licet starts an interpreter of its own: the command, with a few modules of licet and nothing else of the host.

Every one is started with `-I -S`: no variable, no user directory, and no `site`. So no `.pth` file, `sitecustomize` or
`usercustomize` runs there, whoever has written it.

Starting supervisors of programs: each is an interpreter of its own, which holds nothing of this process.

What one runs it is told afterwards, together with the files that the program gets. So one can be started before it is
known what it will run, and whoever waits for a program does not wait for an interpreter. It loads little, and so does
this module.

Pipes in an event loop: read to a limit, written as the other side takes it, and closed once each.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

# Modules, and not scripts, which Python would compile each time. `licet` itself would load more than is needed, and is
# not on the path; nor are the folders of its packages, whose `http` is not the one that others mean.
_START = """
import sys
for name in ("licet", *folders):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = [folders[name]] if name in folders else []
def found(place):
    module, _, name = place.partition(":")
    __import__(module)
    return getattr(sys.modules[module], name)
main, *others = map(found, places)
main(*others)
"""
# Python text that every such interpreter runs first. Tests put an audit hook here, from within this process; nothing
# outside of it can.
PRELUDE = ""
_SCRATCH = ("TMPDIR", "TEMP", "TMP")  # where `tempfile` looks, in this order


def own_interpreter(folders: Mapping[str, str], *places: str) -> list[str]:
    """The command of an interpreter that has these packages, and calls the first function with the others.

    A function is named by its module and its own name: `licet.sandbox.attempts:main`. What is added to the command are
    arguments.
    """
    return isolated_interpreter(f"folders, places = {dict(folders)!r}, {places!r}{_START}")


def isolated_interpreter(program: str, *options: str) -> list[str]:
    """The command of an interpreter that runs this text and has the standard library alone."""
    return [sys.executable, "-I", "-S", *options, "-c", f"{PRELUDE}\n{program}"]


def libraries() -> dict[str, str]:
    """The variable that an interpreter which was built with shared libraries needs to start. No program gets it."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def scratch_places() -> dict[str, str]:
    """The variables that say where files for a while are kept, for a process that is in another directory."""
    return {name: os.path.abspath(os.environ[name]) for name in _SCRATCH if os.environ.get(name)}


_SANDBOX = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODULE = "licet.sandbox.programs.supervisor"
_PATIENCE = 60.0  # seconds


class Supervisor:
    """One that has been started and waits for its command; `control` is the socket to it, whose end means stop.

    `launcher` is the folder of the module that builds walls. One that was started with it starts no program without
    walls, and one that was started without it none behind walls. With `trying` it first tries out the walls.
    """

    def __init__(self, launcher: str | None = None, *, trying: bool = False) -> None:
        self.launcher, self._trying = launcher, trying
        folders, places = {"licet.sandbox": _SANDBOX}, [f"{_MODULE}:main"]
        if launcher is not None:
            places.append("licet.sandbox.programs.launcher:main")
            if trying:
                places += ["licet.sandbox.attempts:tried", "licet.sandbox.programs.launcher:prepare"]
        self.control, far = socket.socketpair()
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the interpreter and a script of our own
                [*own_interpreter(folders, *places), str(far.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**libraries(), **scratch_places()}, cwd="/", pass_fds=[far.fileno()], start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self.control.close()
            raise
        finally:
            far.close()

    def tried(self) -> bytes:
        """What came of trying out the walls, as soon as it is known; `OSError` if that cannot be said any more."""
        self.control.settimeout(_PATIENCE)
        said = b""
        while not said.endswith(b"\n"):
            more = self.control.recv(1 << 16)
            if not more:
                raise BrokenPipeError("the supervisor has ended")
            said += more
        self._trying = False
        return said

    def send(self, message: bytes, files: Sequence[int]) -> bytes:
        """Hand over files with the beginning of a message; what is left of it is to be written to `control`."""
        self.control.setblocking(False)  # it is empty, and so takes some of it at once
        with suppress(BrokenPipeError, ConnectionResetError):  # it is gone, and so says nothing about any program
            return message[socket.send_fds(self.control, [message], files) :]
        return b""

    def discard(self) -> None:
        """End it, unless somebody has told it what to run: whoever does that also waits for its end."""
        if self.control.fileno() != -1:
            self.control.close()
            if self._trying:  # it has files to clear up, and then sees that nobody wants anything of it
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(_PATIENCE)
            self.process.kill()
            self.process.wait()


def start_early(launcher: str) -> Supervisor | None:
    """A supervisor that tries out the walls and is there for the first program behind them; None if that cannot be."""
    if sys.platform == "linux" and sys.executable:
        with suppress(OSError):
            return Supervisor(launcher, trying=True)
    return None


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
