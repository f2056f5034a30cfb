"""The Python of `licet.tools.python`: built once, kept in licet's data directory, and checked at each use.

The file is named by the digest of what it was built from, because two builds differ in their bytes. `kept_files` says
how it is kept.
"""

import importlib.metadata
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from licet.declare.wasm import WasmModule
from licet.sandbox.wasi.kept_files import Note, Turn, checked, keep, locked, private_directory, unfinished
from licet.sandbox.wasi.python.build import BuildFailed, Report, build, inputs_digest

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
