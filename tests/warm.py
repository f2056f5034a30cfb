"""Runs `python -c CODE WORD...` in a fork of a process that has loaded licet, all that it uses, and pytest already.

For tests in which the code is the point and the start of an interpreter is not. One such process serves all tests of a
worker; if a test ends it, the next run starts another.
"""

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 300  # seconds: a run that hangs, not one that is slow
PROGRAM = "from licet.cli import program; program()"
SCRIPT = os.path.join(sysconfig.get_path("scripts"), "licet")
_AS_SCRIPT = f"import sys; sys.argv[0], sys.path[0] = {SCRIPT!r}, {os.path.dirname(SCRIPT)!r}; {PROGRAM}"

# A small interpreter that stands for the fork: it passes on its streams and signals, and ends as the fork does.
_STAND_IN = """
import _signal, _socket, marshal, os, sys
place, code, *words = sys.argv[1:]
server = _socket.socket(_socket.AF_UNIX)
server.connect(place)
for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    _signal.signal(number, lambda number, frame: server.send(bytes((number,))))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
given = marshal.dumps((code, words, os.getcwd(), dict(os.environ)))
server.sendmsg([len(given).to_bytes(4)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(given)
ended = os.waitstatus_to_exitcode(int.from_bytes(server.recv(4) or bytes((0, 0, 0, _signal.SIGKILL))))
if ended < 0:
    if -ended != _signal.SIGKILL:
        _signal.signal(-ended, _signal.SIG_DFL)
    os.kill(os.getpid(), -ended)
os._exit(ended)
"""


def run(
    code: str,
    words: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run code with words as its arguments, and a text as its input."""
    with tempfile.TemporaryDirectory(prefix="licet-warm-") as place, contextlib.ExitStack() as opened:
        Path(place, "in").write_text(stdin, "utf-8")
        modes = {"in": "rb", "out": "wb", "error": "wb"}
        files = [opened.enter_context(open(Path(place, name), mode)) for name, mode in modes.items()]
        given = (code, list(words), os.fspath(cwd or os.getcwd()), dict(os.environ if env is None else env))
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(_server().place)
            sent = marshal.dumps(given)
            socket.send_fds(server, [len(sent).to_bytes(4)], [file.fileno() for file in files])
            server.sendall(sent)
            status = server.recv(4)
        out, error = (Path(place, name).read_text("utf-8", "replace") for name in ("out", "error"))
    returned = os.waitstatus_to_exitcode(int.from_bytes(status)) if status else -signal.SIGKILL
    return subprocess.CompletedProcess([sys.executable, "-c", code, *words], returned, out, error)


def command(code: str) -> list[str]:
    """The first words of a command for `subprocess`, in place of `python -c CODE`; all three streams must be open."""
    return [sys.executable, "-I", "-S", "-c", _STAND_IN, _server().place, code]


def licet() -> list[str]:
    """The same in place of the command `licet`, as it is installed."""
    return command(_AS_SCRIPT)


class _Server(NamedTuple):
    process: "subprocess.Popen[bytes]"
    folder: str

    @property
    def place(self) -> str:
        return os.path.join(self.folder, "socket")

    def end(self) -> None:
        with self.process:  # closes its pipes and waits
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


_servers: list[_Server] = []


def _server() -> _Server:
    if not _servers or _servers[0].process.poll() is not None:
        folder = tempfile.mkdtemp(prefix="licet-warm-")
        modules = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            [sys.executable, __file__, os.path.join(folder, "socket")],
            env={**os.environ, "PYTHONPATH": modules}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        _servers[:] = [_Server(process, folder)]
        atexit.register(_servers[0].end)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    return _servers[0]


# In the process that forks --------------------------------------------------------------------------------------------


def _serve(place: str) -> None:
    _load()
    del sys.path[0]  # the directory of this file, which `python -c` does not have
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for a run
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        while 0 not in select.select([0, listener.fileno()], [], [])[0]:  # until the worker that started this is gone
            connection = listener.accept()[0]
            if not os.fork():
                listener.close()
                _attend(connection)
            connection.close()


def _load() -> None:
    """Load what a run may need: licet loads some of it only when it needs it."""
    import pytest  # noqa: F401

    import licet

    for module in pkgutil.walk_packages(licet.__path__, "licet."):
        # An adapter imports an agent framework, which is not installed here; the guest runs in a component alone.
        if not module.name.endswith(("__main__", "guest.component")) and "adapters" not in module.name:
            importlib.import_module(module.name)
    for name in ("cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography.hazmat.primitives.serialization"):
        importlib.import_module(name)
    for name in ("httpx2", "pydantic.json_schema", "pydantic.type_adapter", "rfc8785", "sqlite3", "yaml", "zoneinfo"):
        importlib.import_module(name)
    gc.freeze()


def _attend(connection: socket.socket) -> None:
    """Start a run, pass on the signals that are sent for it, and send back how it ended."""
    length, streams, _, _ = socket.recv_fds(connection, 4, 3)
    given = b""
    while len(given) < int.from_bytes(length):
        part = connection.recv(1 << 20)
        assert part, "whoever wanted this run is gone"
        given += part
    ends, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if not child:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (ends, end, connection.detach()):
            os.close(number)
        _attempt(streams, *marshal.loads(given))
    for stream in streams:
        os.close(stream)
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        ready = select.select([ends, connection.fileno()], [], [])[0]
        if ends in ready:
            os.read(ends, 1)
        else:
            for number in connection.recv(1) or (signal.SIGKILL,):  # whoever wanted this run is gone
                os.kill(child, number)
    with contextlib.suppress(OSError):
        connection.sendall(ended[1].to_bytes(4))
    os._exit(0)


def _attempt(streams: Sequence[int], code: str, words: list[str], cwd: str, env: dict[str, str]) -> None:
    ended = 1
    try:
        signal.alarm(PATIENCE)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        stdout: Any = sys.stdout
        stdout.reconfigure(line_buffering=os.isatty(1))
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["-c", *words]
        sys.path.insert(0, "")
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        ended = 0
    except SystemExit as given:
        ended = given.code if isinstance(given.code, int) else int(given.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _end(ended)


def _end(code: int) -> None:
    """End as an interpreter does, without taking apart what it has loaded."""
    try:
        ended: Any = threading
        ended._shutdown()
        ended = atexit
        ended._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
