"""Compiled modules: native code that is made once, kept in licet's data directory, and checked at each use.

A compiled file is named by the digest of the module and of what compiled it. A note next to it has the digest of the
compiled code; a file that differs, or that others could write, is removed and compiled again. No grant reaches the
directory. Somebody who can write there as this user can also replace the note: the check finds accidents and others.
"""

import contextlib
import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from licet.core.canonical import digest
from licet.declare.wasm import MOST_BYTES, WasmModule
from licet.guard.execution import SandboxUnavailable
from licet.policy_files.user_directories import data_root
from licet.regular_files import open_regular, read_regular
from licet.sandbox.wasi.compiled import Compiled, Described, wasmtime_version
from licet.sandbox.workers.errand import ErrandFailed, run_errand

_COMPILER = ("licet.sandbox.wasi.compiler", "compile_file")  # by name: it imports wasmtime, which workers do alone
OUTPUT = "compiled"  # what the compiler calls its file
_FORMAT = 1
_SECONDS = 600.0  # for one module; the largest take some 20 seconds
_LIMITS = {
    "cpu_seconds": 1200,
    "memory_bytes": 4 << 30,
    "open_files": 64,
    "file_bytes": 1 << 30,
    "address_bytes": 0,  # wasmtime reserves more addresses than it uses
}
_MOST_COMPILED = 1 << 30
_CHUNK = 1 << 20


class _Note(Struct, frozen=True):
    """What is known of a compiled file: a note next to it, as JSON."""

    format: int
    sha256: str
    size: int
    module: Described


class InvalidModule(Exception):
    """A file that wasmtime cannot compile. The text says why."""


def compiled(module: WasmModule, walls: Mapping[str, Any]) -> Compiled:
    """The compiled form of a module: from the cache, or compiled now in a worker with these walls. Blocks.

    Raises `InvalidModule`, or `SandboxUnavailable` if wasmtime or a place for the file is missing.
    """
    version = wasmtime_version()
    directory = _directory()
    # Wasmtime refuses code for a processor with other features by itself.
    made_by = ["wasmtime", version, platform.machine(), platform.system(), _FORMAT]
    name = digest({"module": module.sha256, "by": made_by}).removeprefix("sha256:")
    target = directory / f"{name}.cwasm"
    with _locked(directory / f"{name}.lock"):
        note = _checked(target)
        if note is None:
            note = _compile(module, target, walls)
    return Compiled(str(target), note.module)


def _directory() -> Path:
    root = data_root()
    if not root:
        raise SandboxUnavailable("there is no directory for compiled modules: set HOME or XDG_DATA_HOME")
    directory = Path(root) / "wasm" / "compiled"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _own(directory)
    except OSError as wrong:
        raise SandboxUnavailable(f"compiled modules cannot be kept in {directory}: {wrong.strerror or wrong}") from None
    return directory


def _own(directory: Path) -> None:
    """Raise `OSError` if another user owns the directory; close it to others."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(0, "it is not a directory of this user")
    if found.st_mode & 0o022:
        directory.chmod(0o700)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that two processes do not compile the same module."""
    import fcntl  # not on every platform

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _checked(target: Path) -> _Note | None:
    """The note of a compiled file that is as it was made; None, and no such file any more, if it is not."""
    try:
        note = msgspec.json.decode(read_regular(_note_of(target), _CHUNK, links=False), type=_Note)
        with open_regular(target, links=False) as fd:
            found = os.fstat(fd)
            private = found.st_uid == os.getuid() and not found.st_mode & 0o022 and found.st_nlink == 1
            if private and note.format == _FORMAT and found.st_size == note.size and _hash(fd) == note.sha256:
                return note
    except (OSError, msgspec.DecodeError):
        pass
    for path in (_note_of(target), target):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return None


def _note_of(target: Path) -> Path:
    return target.with_suffix(".json")


def _hash(fd: int) -> str:
    with open(fd, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compile(module: WasmModule, target: Path, walls: Mapping[str, Any]) -> _Note:
    """Compile a module into its place in the cache."""
    with _copy(module) as source:
        try:
            return run_errand(
                *_COMPILER,
                {"source": source},
                lambda scratch, described: _keep(scratch, described, target),
                walls=walls,
                read=[source],
                seconds=_SECONDS,
                limits=_LIMITS,
                scratch_bytes=_MOST_COMPILED,
            )
        except ErrandFailed as failed:
            if failed.kind in ("NoModule", "MemoryError", "Ended"):
                raise InvalidModule(f"{module.file} cannot be compiled: {failed}") from None
            raise SandboxUnavailable(f"{module.file} cannot be compiled: {failed.kind}: {failed}") from None
        except OSError as wrong:
            raise SandboxUnavailable(f"what was compiled cannot be kept: {wrong.strerror or wrong}") from None


@contextlib.contextmanager
def _copy(module: WasmModule) -> Iterator[str]:
    """The module in a file that only this user can change, with the bytes that were declared."""
    try:
        data = read_regular(module.file, MOST_BYTES)
    except OSError as wrong:
        raise SandboxUnavailable(f"{module.file} cannot be read: {wrong.strerror or wrong}") from None
    if hashlib.sha256(data).hexdigest() != module.sha256:
        raise SandboxUnavailable(f"{module.file} has changed since the tool was declared: start the program again")
    with tempfile.NamedTemporaryFile(prefix="licet-module-", suffix=".wasm") as file:
        file.write(data)
        file.flush()
        yield file.name


def _keep(scratch: str, described: Any, target: Path) -> _Note:
    """Move what a worker compiled into the cache, under its digest. The worker is not trusted with more than code."""
    module = msgspec.convert(described, Described)
    fd, made = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    try:
        with open_regular(os.path.join(scratch, OUTPUT), links=False) as source, open(fd, "wb") as file:
            running, size = hashlib.sha256(), 0
            while data := os.read(source, _CHUNK):
                running.update(data)
                size += len(data)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        note = _Note(_FORMAT, running.hexdigest(), size, module)
        os.chmod(made, 0o400)
        os.replace(made, target)
        _note_of(target).write_bytes(msgspec.json.encode(note))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        raise
    return note
