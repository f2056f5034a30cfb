"""Starting supervisors of programs: each is an interpreter of its own, which holds nothing of this process.

What one runs it is told afterwards, together with the files that the program gets. So one can be started before it is
known what it will run, and whoever waits for a program does not wait for an interpreter. It loads little, and so does
this module.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

# As a module and not as a script, which Python would compile each time. `licet` itself is not needed, and not on the
# path; nor are these folders, whose `http` is not the one that others mean.
_START = """
import sys
control, *folders = sys.argv[1:]
for name, places in (("licet", []), ("licet.backends", folders[:1]), ("licet.sandbox", folders[1:])):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = places
launch = None
if folders[1:]:
    from licet.sandbox.launcher import main as launch
from licet.backends.process_supervisor import main
main(int(control), launch)
"""


class Supervisor:
    """One that has been started and waits for its command; `control` is the socket to it, whose end means stop.

    `launcher` is the folder of the module that builds walls. One that was started with it starts no program without
    walls, and one that was started without it none behind walls.
    """

    def __init__(self, launcher: str | None = None) -> None:
        self.launcher = launcher
        folders = [os.path.dirname(os.path.abspath(__file__)), *([launcher] if launcher is not None else [])]
        self.control, far = socket.socketpair()
        # What an interpreter that was built with shared libraries needs to start. No program gets it.
        environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the interpreter and a script of our own
                [sys.executable, "-I", "-S", "-c", _START, str(far.fileno()), *folders],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=environment, cwd="/", pass_fds=[far.fileno()], start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self.control.close()
            raise
        finally:
            far.close()

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
            self.process.kill()
            self.process.wait()


@contextmanager
def early(launcher: str) -> Iterator[Supervisor | None]:
    """A supervisor for the first program behind walls; None where there can be none, which that program then hears."""
    supervisor = None
    if sys.platform == "linux" and sys.executable:
        with suppress(OSError):
            supervisor = Supervisor(launcher)
    try:
        yield supervisor
    finally:
        if supervisor is not None:
            supervisor.discard()
