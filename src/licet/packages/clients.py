"""Runs npm and pip, and finds the programs that servers run on. Never through a shell.

The clients keep the configuration of this user for registries, proxies and certificates. They run in a directory of
their own, so the `.npmrc` of a project is not read, nor is what a version manager finds in a project. Variables that
load code into Node or Python are left out, and those that say where the command was given or what `npm run` read there;
of `NODE_OPTIONS`, those remain that say whose certificates count.

What licet itself runs outside of walls for a server: npm and pip with their settings, and version managers.

An attacker who can write these files chooses what `licet lock` installs, or which interpreter runs. They are found
from PATH, variables and files; nothing is started.

Bounds how long installing takes, and stops it from outside: registries may be slow, or silent.

Whatever asks a registry runs in a thread of its own, with a deadline. What it waits for, it waits for in short steps,
and looks at the deadline between them.

Why a package is not installed, or not started.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import cache
from pathlib import Path
from threading import Event
from typing import TypeVar

from msgspec import Struct

from licet.core.algebra.scope import inside, visible
from licet.core.late_pattern import late_pattern
from licet.errors import LicetError
from licet.own_files import find_on_path, open_regular, read_most, read_regular
from licet.packages.limits import (
    ASKING_SECONDS,
    LARGEST_CLIENT_FILE,
    LARGEST_SETTINGS,
    MOST_CLIENT_BYTES,
    MOST_CLIENT_LINES,
    STEP_SECONDS,
)

__all__ = [
    "PackageChanged",
    "PackageError",
    "advice",
    "check_time",
    "client_environment",
    "has_module",
    "in_thread",
    "is_native",
    "native_program",
    "npm_places",
    "pip_places",
    "run_client",
    "shim_places",
]


class PackageError(LicetError):
    """A package that is not installed, or not started. The text has the reason and the fix."""


class PackageChanged(PackageError):
    """A package in the store is not as it was installed. `licet lock` installs it again."""


Result = TypeVar("Result")


class _Limit(Struct, frozen=True):
    seconds: float
    deadline: float
    stopped: Event


_limit: ContextVar[_Limit | None] = ContextVar("_limit", default=None)


def check_time(doing: str) -> None:
    """Raise `PackageError` if there is no more time, or nobody waits for the result any more."""
    limit = _limit.get()
    if limit is None:
        return
    if limit.stopped.is_set():
        raise PackageError(f"{doing} was stopped")
    if time.monotonic() > limit.deadline:
        raise PackageError(f"{doing} failed: installing took longer than {limit.seconds:g} s")


async def in_thread(seconds: float, work: Callable[[], Result]) -> Result:
    """Run what may ask a registry, and return its result. It is stopped after so many seconds, or if this is cancelled.

    It has its own thread: in the common pool, a few silent registries would keep everything else waiting.
    """
    stopped = Event()

    def limited() -> Result:
        _limit.set(_Limit(seconds, time.monotonic() + seconds, stopped))
        return work()

    pool = ThreadPoolExecutor(1, thread_name_prefix="licet packages")
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, limited)
    finally:
        stopped.set()
        pool.shutdown(wait=False)


_LOADS_CODE = late_pattern(
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
_NOT_TRUSTED = late_pattern(r"SELF_SIGNED_CERT|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)|CERTIFICATE_VERIFY_FAILED")
_NOT_REACHED = late_pattern(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|ERR_SOCKET_TIMEOUT|EIDLETIMEOUT"
    r"|ECONNECTIONTIMEOUT|NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError"
    r"|Connection aborted|timed out"
)
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
    command: Sequence[str],
    directory: Path,
    environment: dict[str, str],
    doing: str,
    *,
    most_written: int = MOST_CLIENT_BYTES,
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
        text = (
            "\n  ".join(visible(line) for line in lines[-MOST_CLIENT_LINES:]) or f"it ended with {process.returncode}"
        )
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
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (LARGEST_CLIENT_FILE, LARGEST_CLIENT_FILE))


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
            timeout=ASKING_SECONDS,
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


_ROOTS = (
    *("PYENV_ROOT", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "VOLTA_HOME", "NVM_DIR"),
    *("NODENV_ROOT", "NODENV_DIR", "RBENV_ROOT", "PROTO_HOME", "FNM_DIR"),
)
_SHIM_SETTINGS = (".tool-versions", ".asdfrc", ".config/mise")
_NPM_SETTING = late_pattern(r"\s*(prefix|globalconfig)\s*=\s*[\"']?(.*?)[\"']?\s*")
_STARTS = late_pattern(r"^\s*exec\s+[\"']?([^\"'\s$]+)", re.MULTILINE)


def npm_places(npm: str, node: str, home: str) -> Iterator[str]:
    """The package that npm itself is, each file with its settings, and where Node looks for what npm does not have.

    `npm` and `node` are the paths at which they were found; empty if they were not.
    """
    prefixes = [os.path.dirname(os.path.dirname(one)) for one in (node, os.path.realpath(node)) if node]
    packages = [os.path.join(prefix, "lib", "node_modules", "npm") for prefix in prefixes]
    if npm:
        prefixes.append(os.path.dirname(os.path.dirname(npm)))
        package = os.path.dirname(os.path.dirname(os.path.realpath(npm)))
        if os.path.isfile(os.path.join(package, "package.json")):
            packages.append(package)
    stated = {name.lower(): value for name, value in client_environment().items() if value}
    user = stated.get("npm_config_userconfig") or (os.path.join(home, ".npmrc") if home else "")
    files = [user, stated.get("npm_config_globalconfig", "")]
    prefixes += filter(None, (os.environ.get("PREFIX"), stated.get("npm_config_prefix")))
    for name, value in _npm_settings(user):
        path = re.sub(r"^(~|\$\{HOME\})(?=/|$)", lambda _: home, value)
        (prefixes if name == "prefix" else files).append(path)
    files += (os.path.join(prefix, "etc", "npmrc") for prefix in prefixes)
    if home:
        files += (os.path.join(home, name) for name in (".node_modules", ".node_libraries"))
        if any(os.path.basename(package) == "corepack" for package in packages):
            files.append(os.environ.get("COREPACK_HOME") or os.path.join(home, ".cache", "node", "corepack"))
    yield from _narrow((*packages, *files), home)


def _npm_settings(file: str) -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        for line in read_regular(file, LARGEST_SETTINGS).decode("utf-8", "replace").splitlines():
            if found := _NPM_SETTING.fullmatch(line):
                yield found[1], found[2]


def pip_places(home: str) -> Iterator[str]:
    """Each place where pip looks for its settings."""
    settings = os.environ.get("XDG_CONFIG_HOME", "")
    shared = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    places = [os.environ.get("PIP_CONFIG_FILE", ""), os.path.join(sys.prefix, "pip.conf"), "/etc/pip.conf"]
    places += (os.path.join(folder, "pip") for folder in (settings, *shared.split(os.pathsep)) if folder)
    places += (os.path.join(home, name) for name in (".pip", ".config/pip") if home)
    if home and sys.platform == "darwin":
        places.append(os.path.join(home, "Library/Application Support/pip"))
    yield from _narrow((place for place in places if place != os.devnull), home)


def shim_places(program: str, home: str) -> Iterator[str]:
    """If a program on PATH is only a shim: the version manager behind it, its interpreters and its settings."""
    if not os.path.lexists(program):
        return
    real = os.path.realpath(program)
    shims = [path for path in (program, real) if os.path.basename(os.path.dirname(path)) == "shims"]
    shims += [program] if os.path.basename(real) == "volta-shim" else []
    named = [os.environ[name] for name in _ROOTS if os.environ.get(name)]
    if shims:
        roots = [os.path.dirname(os.path.dirname(shim)) for shim in shims]
        settings = (os.path.join(home, name) for name in _SHIM_SETTINGS if home)
        yield from _narrow((*roots, *named, *settings, real, *_started_by(real)), home)
    else:  # nvm and others have no shims: they put a version on PATH
        yield from _narrow((root for root in named if inside(program, (root,))), home)


def _started_by(shim: str) -> Iterator[str]:
    """The programs that a shim names after `exec`, each of them wherever PATH has it."""
    with suppress(OSError):
        for word in _STARTS.findall(read_regular(shim, LARGEST_SETTINGS).decode("utf-8", "replace")):
            folders = [""] if "/" in word else os.environ.get("PATH", os.defpath).split(os.pathsep)
            paths = (os.path.join(folder, word) for folder in folders)
            yield from (path for path in paths if os.path.isfile(path))


def _narrow(places: Iterable[str], home: str) -> Iterator[str]:
    """Only absolute paths, and none that the home directory is in: what else is there has nothing to do with it."""
    for place in places:
        if os.path.isabs(place) and (path := os.path.normpath(place)) != "/" and not (home and inside(home, (path,))):
            yield path
