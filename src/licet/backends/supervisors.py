"""Starting supervisors of programs: each is an interpreter of its own, which holds nothing of this process.

What one runs it is told afterwards, together with the files that the program gets. So one can be started before it is
known what it will run, and whoever waits for a program does not wait for an interpreter. It loads little, and so does
this module.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from licet.guard.own_interpreter import libraries, own_interpreter, scratch_places

_HERE = os.path.dirname(os.path.abspath(__file__))
_MODULE = "licet.backends.process_supervisor"
_PATIENCE = 60.0  # seconds


class Supervisor:
    """One that has been started and waits for its command; `control` is the socket to it, whose end means stop.

    `launcher` is the folder of the module that builds walls. One that was started with it starts no program without
    walls, and one that was started without it none behind walls. With `trying` it first tries out the walls.
    """

    def __init__(self, launcher: str | None = None, *, trying: bool = False) -> None:
        self.launcher, self._trying = launcher, trying
        folders, places = {"licet.backends": _HERE}, [f"{_MODULE}:main"]
        if launcher is not None:
            folders["licet.sandbox"] = launcher
            places.append("licet.sandbox.launcher:main")
            if trying:
                places += ["licet.sandbox.attempts:tried", "licet.sandbox.launcher:prepare"]
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
