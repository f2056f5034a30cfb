"""Starts interpreters of licet's own, and supervisors of programs, which run in one.

Such an interpreter has the standard library and licet, and nothing else of the host. It starts with `-I -S`: without
variables, user directory and `site`. So no `.pth` file, `sitecustomize` or `usercustomize` runs in it.

A supervisor gets its command after it was started, together with the files of the program. So it can be started
early, and the program does not wait for the start of an interpreter.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from licet.sandbox.launcher_script import by_launcher
from licet.sandbox.limits import SUPERVISOR_START_SECONDS

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
# Makes `licet` importable without the directory around it, which may hold anything.
_IMPORT_LICET = f"""
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("licet", os.path.join({_PACKAGE!r}, "__init__.py"))
sys.modules["licet"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["licet"])
"""
# Python text that every such interpreter runs first. Tests of this process put an audit hook here.
PRELUDE = ""
_SCRATCH = ("TMPDIR", "TEMP", "TMP")  # where `tempfile` looks, in this order


def own_interpreter(program: str, *options: str) -> list[str]:
    """The command of an interpreter that runs a Python text, with the standard library and licet alone.

    Words that are added to the command are its arguments.
    """
    return [sys.executable, "-I", "-S", *options, "-c", f"{PRELUDE}\n{_IMPORT_LICET}{program}"]


def libraries() -> dict[str, str]:
    """The variable that an interpreter built with shared libraries needs to start. No program gets it."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def scratch_places() -> dict[str, str]:
    """The variables that name the directory for temporary files, made absolute for a process in another directory."""
    return {name: os.path.abspath(os.environ[name]) for name in _SCRATCH if os.environ.get(name)}


_WITHOUT_WALLS = "from licet.sandbox.programs.supervisor import main; main()"
_WALLED = "from licet.sandbox.programs import launcher, supervisor; supervisor.main(launcher.main)"
_TRYING = """
from licet.sandbox import attempts
from licet.sandbox.programs import launcher, supervisor
supervisor.main(launcher.main, attempts.tried, launcher.prepare)
"""


class Supervisor:
    """A supervisor that was started and waits for its command. Closing `control`, the socket to it, stops it.

    A `walled` one starts its program behind walls only, and another one without walls only. With `trying` it first
    tests whether the walls hold on this machine.
    """

    def __init__(self, *, walled: bool = False, trying: bool = False) -> None:
        self.walled, self._trying = walled or trying, trying
        program = _TRYING if trying else _WALLED if walled else _WITHOUT_WALLS
        self.control, far = socket.socketpair()
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the interpreter and a program of our own
                [*(by_launcher if self.walled else list)(own_interpreter(program)), str(far.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**libraries(), **scratch_places()}, cwd="/", pass_fds=[far.fileno()], start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self.control.close()
            raise
        finally:
            far.close()

    def tried(self) -> bytes:
        """Wait for the results of testing the walls. Raises `OSError` if there are none."""
        self.control.settimeout(SUPERVISOR_START_SECONDS)
        report = b""
        while not report.endswith(b"\n"):
            more = self.control.recv(1 << 16)
            if not more:
                raise BrokenPipeError("the supervisor has ended")
            report += more
        self._trying = False
        return report

    def send(self, message: bytes, files: Sequence[int]) -> bytes:
        """Send files with the beginning of a message; the caller writes the returned rest to `control`."""
        self.control.setblocking(False)  # its buffer is empty, so some bytes are sent at once
        with suppress(BrokenPipeError, ConnectionResetError):  # a dead supervisor reports nothing about its program
            return message[socket.send_fds(self.control, [message], files) :]
        return b""

    def discard(self) -> None:
        """End a supervisor that was given no command; the code that gives it one also waits for its end."""
        if self.control.fileno() != -1:
            self.control.close()
            if self._trying:  # it removes its files, and then finds the socket closed
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(SUPERVISOR_START_SECONDS)
            self.process.kill()
            self.process.wait()


def supervisor_in_advance() -> Supervisor | None:
    """A supervisor that tests the walls and waits for the first program behind them; None if none can be started."""
    if sys.platform == "linux" and sys.executable:
        with suppress(OSError):
            return Supervisor(trying=True)
    return None


class Pipes:
    """The ends of some pipes. Each is closed once."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def pipe(self) -> tuple[int, int]:
        """A new pipe, as (read, write)."""
        pair = os.pipe()  # no other program that this process starts inherits it
        self._open.update(pair)
        return pair

    def shut(self, fd: int) -> None:
        """Close one end."""
        self._open.discard(fd)
        os.close(fd)

    def keep(self, fd: int) -> int:
        """Close another open file together with the pipes."""
        self._open.add(fd)
        return fd

    def give(self, fd: int) -> int:
        """Hand over one end, which the caller then closes."""
        self._open.remove(fd)
        return fd

    def close(self) -> None:
        """Close all ends that are open."""
        while self._open:
            os.close(self._open.pop())
