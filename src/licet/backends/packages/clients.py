"""Runs npm and pip, and finds the programs that servers run on. Never through a shell.

The clients keep the configuration of this user for registries, proxies and certificates. They run in a directory of
their own, so the `.npmrc` of a project is not read, nor is what a version manager finds in a project. Variables that
load code into Node or Python are left out, and those that say where the command was given or what `npm run` read there;
of `NODE_OPTIONS`, those remain that say whose certificates count.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from licet.backends.packages.errors import PackageError
from licet.backends.packages.limits import STEP_SECONDS, check_time
from licet.core.algebra.scope import visible
from licet.regular_files import open_regular, read_most

__all__ = ["advice", "client_environment", "find_on_path", "has_module", "is_native", "native_program", "run_client"]

_LOADS_CODE = re.compile(
    r"PYTHON.*|NODE_OPTIONS|NODE_PATH|LD_PRELOAD|LD_AUDIT|npm_(lifecycle|package|node|exec).*"
    r"|PWD|OLDPWD|INIT_CWD|(PYENV|NODENV)_DIR",
    re.IGNORECASE,
)
# `npm run` and the like set one of these, and pass the settings of the project on as variables in lower case. What a
# person has set in upper case stays.
_OF_NPM_RUN = frozenset(
    ("npm_lifecycle_event", "npm_lifecycle_script", "npm_package_json", "npm_command", "npm_execpath")
)
_WHOSE_CERTIFICATES = frozenset(("--use-system-ca", "--use-openssl-ca", "--use-bundled-ca"))
_NATIVE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
# In the words of Node, and of pip.
_NOT_TRUSTED = re.compile(r"SELF_SIGNED_CERT|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)|CERTIFICATE_VERIFY_FAILED")
_NOT_REACHED = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|ERR_SOCKET_TIMEOUT|EIDLETIMEOUT"
    r"|ECONNECTIONTIMEOUT|NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
    r"|Connection aborted|timed out"
)
_MOST_LINES = 12
_LONGEST_FILE = 1 << 30
_ASKING_SECONDS = 30.0
_OWN_PATH = {"node": ("-p", "process.execPath"), "python": ("-I", "-S", "-c", "import sys; print(sys.executable)")}


def client_environment(without: str = "") -> dict[str, str]:
    """The environment of a client; `without` is a pattern for further names to leave out."""
    left_out = re.compile(f"{_LOADS_CODE.pattern}|{without}" if without else _LOADS_CODE.pattern, re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if not left_out.fullmatch(name)}
    if not _OF_NPM_RUN.isdisjoint(os.environ):
        kept = {name: value for name, value in kept.items() if not name.startswith("npm_config_")}
    options = [one for one in os.environ.get("NODE_OPTIONS", "").split() if one in _WHOSE_CERTIFICATES]
    return kept | ({"NODE_OPTIONS": " ".join(options)} if options else {})


def advice(said: str, certificates: str, ways: str) -> str:
    """The setting to change, if what a client said is that it did not get to a registry: one of two texts, or none."""
    if _NOT_TRUSTED.search(said):
        return f"\n  the certificate is of an authority that is not known: if your network has its own, {certificates}"
    if _NOT_REACHED.search(said):
        return f"\n  the registry was not reached: {ways}"
    return ""


def run_client(
    command: Sequence[str], directory: Path, environment: dict[str, str], doing: str, *, most_written: int = 16 << 30
) -> str:
    """Run a client and return its output. Raises `PackageError` with its last lines if it fails.

    It is ended, with all that it started, when there is no more time (`limits.py`), or when it has written too much.
    """
    check_time(doing)
    try:
        process = subprocess.Popen(  # noqa: S603 - npm or pip, and checked names
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as wrong:
        raise PackageError(f"{doing} failed: {command[0]} cannot be started: {wrong.strerror}") from wrong
    with process:
        try:
            _bound_files(process.pid)
            output, errors = _output(process, doing, most_written)
        except BaseException:
            # Also if it has ended itself: what it started may hold its output. Nobody has waited for it, so its id, and
            # that of its group, are still its own.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
        text = "\n  ".join(visible(line) for line in lines[-_MOST_LINES:]) or f"it ended with {process.returncode}"
        raise PackageError(f"{doing} failed:\n  {text}")
    return output.decode("utf-8", "replace")


def _output(process: subprocess.Popen[bytes], doing: str, most_written: int) -> tuple[bytes, bytes]:
    while True:
        try:
            return process.communicate(timeout=STEP_SECONDS)
        except subprocess.TimeoutExpired:
            check_time(doing)
        if _written(process.pid) > most_written:
            raise PackageError(f"{doing} failed: more than {most_written >> 20} MiB were written for it")


def _written(pid: int) -> int:
    """How many bytes a process has written, where the system tells."""
    try:
        stated = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(stated.partition("wchar: ")[2].split()[0])


def _bound_files(pid: int) -> None:
    """A registry may send without end: no file that a client writes gets longer than an ordinary package."""
    import resource  # not on every platform

    if hasattr(resource, "prlimit"):
        with suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (_LONGEST_FILE, _LONGEST_FILE))


def find_on_path(name: str) -> str | None:
    """The absolute path of a program on PATH. Entries that depend on the current directory are not searched."""
    places = [place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    return shutil.which(name, path=os.pathsep.join(places))


def native_program(name: str) -> str | None:
    """The real interpreter behind `node` or `python3` on PATH.

    Version managers put a script there that starts another program. Behind walls it would not work, so it is asked
    here where its interpreter is. It is asked in `/`: a file of a project may name any program.
    """
    found = find_on_path(name)
    if found is None or is_native(found):
        return found
    question = _OWN_PATH["node" if name.startswith("node") else "python"]
    try:
        asked = subprocess.run(  # noqa: S603 - a program on PATH of this user
            [found, *question],
            cwd="/",
            env=client_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_ASKING_SECONDS,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    answer = asked.stdout.strip()
    return answer if os.path.isabs(answer) and is_native(answer) else None


def is_native(path: str) -> bool:
    """Whether a file is a program for the machine itself and no script."""
    try:
        with open_regular(path) as fd:
            return read_most(fd, 4).startswith(_NATIVE)
    except OSError:
        return False


@cache
def has_module(python: str, name: str) -> bool:
    """Whether an interpreter finds a module in its own libraries. The module is not imported."""
    question = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    command = [python, "-I", "-c", question]
    asked = subprocess.run(command, env=client_environment(), check=False, capture_output=True)  # noqa: S603 - our text
    return asked.returncode == 0
