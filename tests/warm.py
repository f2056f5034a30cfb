"""Runs `python -c CODE WORD...` in a fork of a process that has loaded licet and pytest already.

For tests in which the code is the point and the start of an interpreter is not. One such process serves all tests of a
worker; if a test ends it, the next run starts another.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PATIENCE = 300  # seconds: a run that hangs, not one that is slow
_servers: list["subprocess.Popen[str]"] = []


def run(
    code: str,
    words: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run code with words as its arguments, and a text as its input."""
    with tempfile.TemporaryDirectory(prefix="licet-warm-") as place:
        request = {
            "code": code,
            "words": list(words),
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "place": place,
        }
        Path(place, "in").write_text(stdin, "utf-8")
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = server.stdout.readline()
        if not status:
            _servers.clear()
        out, error = (Path(place, name).read_text("utf-8", "replace") for name in ("out", "error"))
    returned = os.waitstatus_to_exitcode(int(status)) if status else -signal.SIGKILL
    return subprocess.CompletedProcess([sys.executable, "-c", code, *words], returned, out, error)


def _server() -> "subprocess.Popen[str]":
    if not _servers or _servers[0].poll() is not None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        place = os.pathsep.join(filter(None, sys.path))
        _servers[:] = [subprocess.Popen([sys.executable, __file__], env={**os.environ, "PYTHONPATH": place}, **pipes)]
        atexit.register(_servers[0].kill)
    return _servers[0]


# In the process that forks --------------------------------------------------------------------------------------------


def _serve() -> None:
    import pytest  # noqa: F401

    import licet
    import licet.surfaces.cli.app

    assert licet.surfaces.cli.app
    del sys.path[0]  # the directory of this file, which `python -c` does not have
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _attempt(request)
        print(os.waitpid(child, 0)[1], flush=True)


def _attempt(request: dict[str, Any]) -> None:
    code = 1
    try:
        signal.alarm(PATIENCE)
        for number, name in enumerate(("in", "out", "error")):
            flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
            os.dup2(os.open(os.path.join(request["place"], name), flags, 0o600), number)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = ["-c", *request["words"]]
        sys.path.insert(0, "")
        exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
