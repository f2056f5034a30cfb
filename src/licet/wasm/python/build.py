"""Builds the component that runs model-written Python: CPython for WASI, its library, and the guest, in one file.

Two builds from the same inputs behave the same but differ in their bytes, because the component holds the memory of an
interpreter that has started. So a cache is named by the digest of the inputs, and has to keep the digest of its output.

The Python of `licet.tools.python`: built once, kept in licet's data directory, and checked at each use.

The file is named by the digest of what it was built from, because two builds differ in their bytes.
"""

import errno
import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec import Struct

from licet.declare.wasm import WasmModule
from licet.errors import LicetError
from licet.wasm.cache import Note, Turn, checked, keep, locked, private_directory, unfinished
from licet.wasm.limits import BUILD_PROCESSOR_SECONDS, BUILD_SECONDS, BUILD_SPACE

Report = Callable[[str, float], None]  # what is done, and how far it is, from 0 to 1

COMPONENTIZE_PY = "0.25.1"  # it brings the interpreter, so another version is another Python
_HERE = Path(__file__).parent
_GUEST = "guest"
_WIT = "runner.wit"
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from componentize_py import script; sys.exit(script())"


class BuildFailed(LicetError):
    """The component could not be built."""


def inputs_digest(source: Path = _HERE) -> str:
    """The SHA-256 of everything that decides what the component does, as 64 hexadecimal digits.

    Time zones are not part of it: they are those of the machine that builds.
    """
    inputs = {
        "componentize-py": COMPONENTIZE_PY,
        "wasmtime": _version("wasmtime", "wasm"),
        "files": {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in _sources(source)},
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def build(target: Path, report: Report = lambda phase, part: None, source: Path = _HERE) -> None:
    """Build the component and put it at `target`, whole or not at all. This takes 20 seconds of a processor."""
    report("preparing", 0.0)
    program = _componentize_py()
    place = target.parent
    with _disk_errors(target):
        place.mkdir(parents=True, exist_ok=True)
    # Next to the target, where what a killed build leaves is found and removed.
    with _disk_errors(target), tempfile.TemporaryDirectory(prefix="licet-python-", dir=place) as made:
        work = Path(made)
        if (free := shutil.disk_usage(place).free) < BUILD_SPACE:
            raise BuildFailed(f"{free // 2**20} MB are free at {place}, and the build needs {BUILD_SPACE // 2**20}")
        _copy_sources(source, work)
        _run(program, work, report)
        report("storing", 0.98)
        (work / "runner.wasm").replace(target)
    report("done", 1.0)


def _sources(source: Path) -> list[Path]:
    return [source / _WIT, *sorted((source / _GUEST).glob("*.py"))]


def _version(package: str, extra: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise BuildFailed(f"{package} is not installed: pip install 'licet[{extra}]'") from None


def _componentize_py() -> str:
    """The directory from which componentize-py is imported."""
    version = _version("componentize-py", "wasm-build")
    if version != COMPONENTIZE_PY:
        raise BuildFailed(
            f"found componentize-py {version}, expected {COMPONENTIZE_PY}: pip install 'licet[wasm-build]'"
        )
    found = importlib.util.find_spec("componentize_py")
    if found is None or found.origin is None:
        raise BuildFailed("componentize-py cannot be imported: pip install 'licet[wasm-build]'")
    return str(Path(found.origin).parents[1])


def _copy_sources(source: Path, work: Path) -> None:
    for path in _sources(source):
        copy = work / "source" / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    (work / "source" / _GUEST / "zones").write_bytes(_zones())
    # componentize-py adds the packages of the environment that it finds. This one is empty.
    (work / "environment" / "lib" / "python3" / "site-packages").mkdir(parents=True)


def _zones() -> bytes:
    """The time zones of this machine: a line of JSON with the place of each, by name, and then their data."""
    places: dict[bytes, tuple[int, int]] = {}
    named, end = {}, 0
    for name in sorted(zoneinfo.available_timezones()):
        if data := _zone(name):
            if data not in places:
                places[data], end = (end, end + len(data)), end + len(data)
            named[name] = places[data]
    return json.dumps(named).encode() + b"\n" + b"".join(places)


def _zone(name: str) -> bytes | None:
    for place in zoneinfo.TZPATH:
        with suppress(OSError):
            return Path(place, name).read_bytes()
    with suppress(OSError, ImportError):
        return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    return None


def _run(program: str, work: Path, report: Report) -> None:
    """Run componentize-py on the copied sources."""
    arguments = ["-d", f"source/{_WIT}", "-w", "runner", "componentize", f"{_GUEST}.component", "-p", "source"]
    environment = {"VIRTUAL_ENV": str(work / "environment"), "TMPDIR": str(work), "PATH": ""}
    environment |= {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    log, started = work / "log", time.monotonic()
    with (
        log.open("wb") as output,
        subprocess.Popen(  # noqa: S603 - our own interpreter, and no text of anyone else
            [sys.executable, "-I", "-c", _PROGRAM, program, *arguments, "-o", "runner.wasm"],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            while process.poll() is None:
                spent = time.monotonic() - started
                if spent > BUILD_SECONDS:
                    raise BuildFailed(f"componentize-py did not end within {BUILD_SECONDS} seconds")
                report("building", 0.02 + 0.95 * _done(process.pid, spent))
                time.sleep(0.1)
        finally:
            process.kill()
    if process.returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        raise BuildFailed(f"componentize-py ended with {process.returncode}: {said[-4000:] or 'it said nothing'}")


def _done(pid: int, spent: float) -> float:
    """The part of its work that a process has done, by its time on a processor; by the clock where that is not told."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return min(spent / BUILD_PROCESSOR_SECONDS, 1.0)


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BuildFailed(f"the disk is full: {target} needs {BUILD_SPACE // 2**20} MB") from problem
        raise BuildFailed(f"the component could not be stored at {target}: {problem}") from problem


Builder = Callable[[Path, Report], None]

_DIRECTORY = "python"
_FORMAT = 1
_NOT_BUILT = "the Python of `licet.tools.python` is not built yet"
_HOW = "pip install 'licet[wasm-build]', then run `licet wasm build`"


class Runner(Struct, frozen=True):
    """The component that runs Python: its file, digest and size, and the digest of what it was built from."""

    file: str
    sha256: str
    size: int
    inputs: str

    @property
    def module(self) -> WasmModule:
        """The component as the module of a tool."""
        return WasmModule(self.file, self.sha256)


def build_here(target: Path, report: Report) -> None:
    """Build the component; `BuildFailed` says what to install if the builder is missing."""
    try:
        importlib.metadata.version("componentize-py")
    except importlib.metadata.PackageNotFoundError:
        raise BuildFailed(f"{_NOT_BUILT}, and componentize-py is not installed: {_HOW}") from None
    build(target, report)


def runner(
    report: Report = lambda phase, part: None, builder: Builder = build_here, turn: Turn = nullcontext
) -> Runner:
    """The component: the kept one, or else one that is built now, which takes 20 seconds of a processor. Blocks.

    `turn` is entered once no other process builds it, for as long as there is something to do.
    Raises `BuildFailed`, or `SandboxUnavailable` if there is no place for it. Of a build that fails, nothing is left.
    """
    target, inputs = _place()
    try:
        with locked(target, lambda: report("waiting for another process that builds it", 0.0)), turn():
            note = checked(target, Note, _FORMAT)
            if note is None:
                with unfinished(target) as directory:
                    builder(directory / "made", report)
                    note = keep(directory / "made", target, lambda sha256, size: Note(_FORMAT, sha256, size))
    except OSError as wrong:
        raise BuildFailed(f"{target} cannot be kept: {wrong.strerror or wrong}") from wrong
    return Runner(str(target), note.sha256, note.size, inputs)


def kept_runner() -> Runner | None:
    """The component if it is built and as it was made; it is not built. Raises as `runner` does."""
    target, inputs = _place(make=False)
    note = checked(target, Note, _FORMAT, remove=False)
    return None if note is None else Runner(str(target), note.sha256, note.size, inputs)


def _place(*, make: bool = True) -> tuple[Path, str]:
    inputs = inputs_digest()
    directory = private_directory(_DIRECTORY, "the Python of `licet.tools.python`", make=make)
    return directory / f"{inputs}.wasm", inputs
