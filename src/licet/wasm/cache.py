"""Compiled modules: native code that is made once, kept in licet's data directory, and checked at each use.

A compiled file is named by the digest of the module and of what compiled it.

Large files that licet makes once and keeps in its data directory: compiled code, and the Python of `licet.tools`.

A note next to each file has its digest. A file that differs, or that others could write, is removed and made again. No
grant reaches the directory. Somebody who can write there as this user can also replace the note: the check finds
damage, and changes by other users.

What is known of a compiled module, and of the wasmtime that is installed. Imports no wasmtime.

Compiled code in memory that nobody can change any more: what was checked is what workers map and run.

The cache is on disk, where a file may be replaced or deleted at any time, also while workers run from it. On systems
without such memory, workers map the checked file itself.

Which walls stand around a WASM tool: wasmtime in a process of its own always, and those of the kernel around it.

At `restricted`, wasmtime alone keeps the guarantee: a guest has no files, network or processes. The walls of the kernel
are a second layer. On Linux they are required, unless the manifest has `sandbox: {allow_degraded: true}`; on other
systems there are none. At `isolated` the kernel enforces the denies inside a grant, so all walls are required.
"""

import contextlib
import errno
import hashlib
import importlib.metadata
import os
import platform
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from licet.core.policy.layer import Level
from licet.core.values import digest
from licet.declare.limits import LARGEST_MODULE
from licet.declare.wasm import WasmModule
from licet.guard.execution import Layers, SandboxUnavailable
from licet.own_files import open_regular, read_most, read_regular, replace_file
from licet.policy_files.policy_paths import data_root
from licet.sandbox.probe import WORKER_WALLS, Support
from licet.sandbox.streams import write_all
from licet.sandbox.workers.engine import ErrandFailed, run_errand
from licet.wasm.limits import (
    COMPILE_MEMORY,
    COMPILE_SECONDS,
    COMPILER_FILES,
    COPIED_AT_ONCE,
    LARGEST_CODE,
    LARGEST_NOTE,
    OWN_COMPILE_MEMORY,
    OWN_COMPILE_SECONDS,
)

_NOEXEC_SEAL = 8  # MFD_NOEXEC_SEAL


class SealedCode:
    """A sealed copy of a compiled file. The memory is given back with the last reference to it and the last worker."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        weakref.finalize(self, os.close, fd)


class Changed(Exception):
    """A compiled file that is not as it was made."""


def sealed(file: Path, sha256: str) -> SealedCode | None:
    """A sealed copy of a file with this digest; None on a system without such memory. Raises `Changed` or `OSError`."""
    if not hasattr(os, "memfd_create"):
        return None
    import fcntl  # not on every platform

    copy = SealedCode(_memory())
    running = hashlib.sha256()
    with open_regular(file, links=False) as source:
        while data := os.read(source, COPIED_AT_ONCE):
            running.update(data)
            write_all(copy.fd, data)
    if running.hexdigest() != sha256:
        raise Changed(f"{file} has changed since it was made")
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(copy.fd, fcntl.F_ADD_SEALS, seals)
    return copy


def _memory() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        # No file that can be executed: some systems permit no other. Its pages can still be mapped as code.
        return os.memfd_create("licet-code", flags | _NOEXEC_SEAL)
    except OSError as wrong:
        if wrong.errno != errno.EINVAL:  # a kernel before 6.3 does not know the flag
            raise
    return os.memfd_create("licet-code", flags)


EXTRA = "install it with `pip install 'licet[wasm]'`"


class Described(Struct, frozen=True):
    """What a module is: its kind, what it imports and exports, and the memory that it starts with."""

    kind: str  # `module` or `component`
    imports: tuple[Mapping[str, Any], ...]
    exports: tuple[Mapping[str, Any], ...]
    memory_bytes: int = 0
    memory_most_bytes: int = 0


class Compiled(Struct, frozen=True):
    """A compiled module: its file, what the module is, and its code in sealed memory where there is such memory."""

    file: str
    module: Described
    code: SealedCode | None = None


def wasmtime_version() -> str:
    """The version of wasmtime, without importing it. Raises `SandboxUnavailable` if it is not installed."""
    try:
        return importlib.metadata.version("wasmtime")
    except importlib.metadata.PackageNotFoundError:
        raise SandboxUnavailable(f"WASM tools need wasmtime, which is not installed: {EXTRA}") from None


_DEGRADED = (
    "or let WASM tools run without them, behind wasmtime alone: `sandbox: {allow_degraded: true}` in the manifest"
)


def wasm_layers(support: Support, level: Level, *, allow_degraded: bool) -> Layers:
    """The layers around a WASM tool, and those that are missing. Raises `SandboxUnavailable` if it may not run."""
    if level == "native":
        raise SandboxUnavailable("a WASM module never runs in the process of the host: use `restricted` or `isolated`")
    version = wasmtime_version()
    if level == "isolated":
        support.require(level)
    missing = tuple(wall for wall in WORKER_WALLS if not support.wall_holds(wall))
    if missing and on_linux() and not allow_degraded:
        text = "; ".join((*support.missing(level), *support.advice(level), _DEGRADED))
        raise SandboxUnavailable(f"`{level}` cannot be kept here: {text}")
    return Layers(
        ("handles", "process", f"wasmtime-{version}", *support.layers(level, missing)),
        (*missing, *support.uncounted(level)),
    )


def on_linux() -> bool:
    """Whether this system has the walls of the kernel at all."""
    return sys.platform == "linux"


_NEW = ".new-"  # begins the names of what is not finished


class Note(Struct, frozen=True):
    """What is known of a kept file: a note next to it, as JSON."""

    format: int
    sha256: str
    size: int


N = TypeVar("N", bound=Note)
Turn = Callable[[], contextlib.AbstractContextManager[object]]


def private_directory(name: str, what: str, *, make: bool = True) -> Path:
    """A directory below `wasm` in licet's data directory, closed to other users. Raises `SandboxUnavailable`.

    `what` is what it is for: `compiled modules`. Without `make` it may not be there.
    """
    root = data_root()
    if not root:
        raise SandboxUnavailable(f"there is no directory for {what}: set HOME or XDG_DATA_HOME")
    directory = Path(root) / "wasm" / name
    try:
        if make:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if make or os.path.lexists(directory):
            _own(directory)
    except OSError as wrong:
        raise SandboxUnavailable(f"{what} cannot be kept in {directory}: {wrong.strerror or wrong}") from None
    return directory


def _own(directory: Path) -> None:
    """Raise `OSError` if another user owns the directory; close it to others."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(0, "it is not a directory of this user")
    if found.st_mode & 0o022:
        directory.chmod(0o700)


@contextlib.contextmanager
def locked(target: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file, so that two processes do not make it at once; `waits` is called before waiting.

    What a process that was killed has left unfinished is removed.
    """
    import fcntl  # not on every platform

    path = target.with_suffix(".lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(fd, fcntl.LOCK_EX)
        for left in target.parent.glob(f"{_NEW}{target.stem}-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A directory next to a file, in which it is made; it is removed again, also after an error."""
    directory = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{_NEW}{target.stem}-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def checked(target: Path, type_: type[N], format_: int, *, remove: bool = True) -> N | None:
    """Return the note of an unchanged file, else None. With `remove`, a changed file and its note are deleted."""
    try:
        with open_regular(note_of(target), links=False) as fd:
            private = _is_private(os.fstat(fd))
            note = msgspec.json.decode(read_most(fd, LARGEST_NOTE), type=type_)
        with open_regular(target, links=False) as fd:
            found = os.fstat(fd)
            private = private and _is_private(found)
            if private and note.format == format_ and found.st_size == note.size and _hash(fd) == note.sha256:
                return note
    except (OSError, ValueError, RecursionError):  # a note that cannot be read is as bad as none
        pass
    for path in (note_of(target), target) if remove else ():
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return None


def _is_private(found: os.stat_result) -> bool:
    """Whether a file belongs to this user, who alone may write it, and has one name."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022 and found.st_nlink == 1


def keep(made: str | Path, target: Path, note_for: Callable[[str, int], N]) -> N:
    """Copy what was made to its place, with the note that `note_for` gives for its digest and size.

    Whoever made it may still change it, so the bytes are hashed as they are copied. Raises `OSError`.
    """
    with unfinished(target) as directory:
        copy = directory / "file"
        with open_regular(made, links=False) as source, copy.open("xb") as file:
            running, size = hashlib.sha256(), 0
            while data := os.read(source, COPIED_AT_ONCE):
                running.update(data)
                size += len(data)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        note = note_for(running.hexdigest(), size)
        copy.chmod(0o400)
        copy.replace(target)  # without its note, a file is not used
        replace_file(note_of(target), msgspec.json.encode(note))
    return note


def note_of(target: Path) -> Path:
    """The note next to a file."""
    return target.with_suffix(".json")


def _hash(fd: int) -> str:
    with open(fd, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_COMPILER = ("licet.wasm.compiler", "compile_file")  # by name: it imports wasmtime, which workers do alone
OUTPUT = "compiled"  # what the compiler calls its file
_FORMAT = 3
_LIMITS = {
    "open_files": COMPILER_FILES,
    "file_bytes": LARGEST_CODE,
    "address_bytes": 0,  # wasmtime reserves more addresses than it uses
}
# The C interface of wasmtime ends its process at such a type.
_ENDED = "; one reason is an imported or exported function that takes or returns vectors (v128), which cannot be called"


class CompileLimits(Struct, frozen=True):
    """What compiling one module may take: seconds by the clock and of the processor, and memory."""

    seconds: int
    memory_bytes: int


STRANGERS = CompileLimits(COMPILE_SECONDS, COMPILE_MEMORY)
OWN = CompileLimits(OWN_COMPILE_SECONDS, OWN_COMPILE_MEMORY)


class _Note(Note, frozen=True):
    """What is known of a compiled file, and of its module."""

    module: Described


class InvalidModule(Exception):
    """A file that wasmtime cannot compile. The text says why; `lasting` whether it would say so again."""

    def __init__(self, text: str, *, lasting: bool = True) -> None:
        self.lasting = lasting
        super().__init__(text)


def compiled(
    module: WasmModule, walls: Mapping[str, Any], limits: CompileLimits = STRANGERS, turn: Turn = contextlib.nullcontext
) -> Compiled:
    """The compiled form of a module: from the cache, or compiled now in a worker with these walls. Blocks.

    `turn` is entered once no other process compiles the module, for as long as there is something to do.
    Raises `InvalidModule`, or `SandboxUnavailable` if wasmtime or a place for the file is missing.
    """
    version = wasmtime_version()
    directory = private_directory("compiled", "compiled modules")
    # Wasmtime refuses code for a processor with other features by itself.
    made_by = ["wasmtime", version, platform.machine(), platform.system(), _FORMAT]
    name = digest({"module": module.sha256, "by": made_by}).removeprefix("sha256:")
    target = directory / f"{name}.cwasm"
    try:
        with locked(target), turn():
            note = checked(target, _Note, _FORMAT)
            if note is None:
                note = _compile(module, target, walls, limits)
            return Compiled(str(target), note.module, sealed(target, note.sha256))
    except (OSError, Changed) as wrong:
        reason = getattr(wrong, "strerror", None) or str(wrong)
        raise SandboxUnavailable(f"compiled code cannot be kept in {directory}: {reason}") from None


def _compile(module: WasmModule, target: Path, walls: Mapping[str, Any], limits: CompileLimits) -> _Note:
    """Compile a module into its place in the cache."""
    with _copy(module, target) as source:
        try:
            return run_errand(
                *_COMPILER,
                {"source": source},
                lambda scratch, described: _keep(scratch, described, module, target),
                walls=walls,
                read=[source],
                seconds=limits.seconds,
                limits={**_LIMITS, "cpu_seconds": limits.seconds, "memory_bytes": limits.memory_bytes},
                scratch_bytes=LARGEST_CODE,
            )
        except ErrandFailed as failed:
            ended = failed.kind == "Ended"
            text = f"{module.file} cannot be compiled: {failed}{_ENDED if ended else ''}"
            raise InvalidModule(text, lasting=not ended) from None


@contextlib.contextmanager
def _copy(module: WasmModule, target: Path) -> Iterator[str]:
    """The module in a file next to its target, where no grant writes, with the bytes that were declared."""
    try:
        data = read_regular(module.file, LARGEST_MODULE)
    except OSError as wrong:
        raise SandboxUnavailable(f"{module.file} cannot be read: {wrong.strerror or wrong}") from None
    if hashlib.sha256(data).hexdigest() != module.sha256:
        raise SandboxUnavailable(f"{module.file} has changed since the tool was declared: start the program again")
    with unfinished(target) as directory:
        (directory / "module").write_bytes(data)
        yield str(directory / "module")


def _keep(scratch: str, described: dict[str, Any], module: WasmModule, target: Path) -> _Note:
    """Move what a worker compiled into the cache, under its digest. The worker is not trusted with more than code."""
    if described.pop("sha256", None) != module.sha256:
        raise ErrandFailed("NoModule", "another file was compiled")
    found = msgspec.convert(described, Described)
    return keep(os.path.join(scratch, OUTPUT), target, lambda sha256, size: _Note(_FORMAT, sha256, size, found))
