"""`licet wasm`: look into a WASM module without running it, and build the Python of `licet.tools.python` ahead.

How far the build of the Python of `licet.tools.python` is, and how long the rest takes on this machine.

It has two parts: putting the component together, and compiling it. The first tells how far it is. The second does not,
but takes about as much longer as the first did, on a fast machine and on a slow or busy one.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import asdict

from licet.cli.limits import BUILD_LINE_SECONDS, WASM_DECLARATION_LINES_SHOWN, WASM_LINES_SHOWN
from licet.cli.options import FILE, json_option
from licet.cli.output import coloured, counted, fail, print_report, show, show_lines, wants_json
from licet.core.algebra.scope import Malformed, visible
from licet.declare.wasm import WasmModule, read_module
from licet.guard.execution import SandboxUnavailable
from licet.sandbox.probe import look
from licet.wasm.cache import OWN, Compiled, Described, InvalidModule, compiled, wasm_layers
from licet.wasm.declaration import Declaration, command_of, declaration, python_declaration
from licet.wasm.module_imports import Asked, asked_for, shown_name
from licet.wasm.python.build import BuildFailed, Report, Runner, kept_runner, runner

COMPILING = "compiling for this machine"
_FIRST = 0.45  # the part of all the time that goes into putting the component together
_KNOWN_FROM = 0.1  # of the first part: before that a guess would be wild


class Stand(Struct, frozen=True):
    """What is done now, which part of everything is done, and the seconds that are left, as far as can be told."""

    phase: str
    done: float
    left: float | None

    @property
    def text(self) -> str:
        """The phase, and the time that is left, for people."""
        if self.left is None:
            return self.phase
        rest = "nearly done" if self.left < 1 else f"about {_rounded(self.left)} left"
        return f"{self.phase}: {rest}"


def _rounded(seconds: float) -> str:
    if seconds > 90:
        return f"{seconds / 60:.0f} minutes"
    return f"{max(1, round(seconds / 5) * 5) if seconds > 10 else round(seconds)} seconds"


class Pace:
    """Remembers the reports of a build, with their times."""

    def __init__(self, now: float) -> None:
        self._begun = now
        self._phase, self._part = "starting", 0.0
        self._compiling_since: float | None = None

    def report(self, phase: str, part: float, now: float) -> None:
        """Note what is done, and how far it is."""
        self._phase, self._part = phase, part
        if phase == COMPILING:
            self._compiling_since = now

    def stand(self, now: float) -> Stand:
        """How things stand at a moment."""
        if self._compiling_since is not None:
            whole = (self._compiling_since - self._begun) / _FIRST * (1 - _FIRST)
            spent = now - self._compiling_since
            done = min(spent / whole, 0.99) if whole > 0 else 0.0
            return Stand(self._phase, _FIRST + (1 - _FIRST) * done, max(0.0, whole - spent))
        done = _FIRST * self._part
        known = self._phase == "building" and self._part >= _KNOWN_FROM
        return Stand(self._phase, done, (now - self._begun) * (1 - done) / done if known else None)


@contextlib.contextmanager
def progress(*, quiet: bool, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """A bar on a terminal, and otherwise a line for each phase and every 15 seconds, on stderr."""
    pace = Pace(clock())
    if quiet:
        yield lambda phase, part: None
    elif sys.stderr.isatty():
        with _bar(pace, clock) as tell, _ticking(tell, 0.5):
            yield _reporting(pace, clock, tell)
    else:
        tell = _as_lines(pace, clock)
        with _ticking(tell, 1.0):
            yield _reporting(pace, clock, tell)


def _reporting(pace: Pace, clock: Callable[[], float], tell: Callable[[], None]) -> Report:
    def report(phase: str, part: float) -> None:
        pace.report(phase, part, clock())
        tell()

    return report


def _as_lines(pace: Pace, clock: Callable[[], float]) -> Callable[[], None]:
    """A function that prints where things stand, if that is new or the last line is old."""
    last, since, turn = "", clock(), threading.Lock()

    def tell() -> None:
        nonlocal last, since
        with turn:
            stand, now = pace.stand(clock()), clock()
            if stand.phase in ("storing", "done", "starting") or (
                stand.phase == last and now - since < BUILD_LINE_SECONDS
            ):
                return
            last, since = stand.phase, now
            show(stand.text, err=True)

    return tell


@contextlib.contextmanager
def _bar(pace: Pace, clock: Callable[[], float]) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, color_system="auto" if coloured(err=True) else None)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def tell() -> None:
            stand = pace.stand(clock())
            bar.update(task, description=stand.text, completed=stand.done)

        yield tell


@contextlib.contextmanager
def _ticking(tell: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function again and again until the end, since compiling reports nothing itself."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(seconds):
            tell()

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        ended.set()
        ticker.join()


_KINDS = {"module": "core module", "component": "component"}


@click.group(name="wasm")
def command() -> None:
    """Look into WASM modules, and build the Python that runs code of models.

    Each command takes --json.

    \b
      licet wasm inspect count.wasm
      licet wasm build

    \b
    Exit codes:
      0  the module can be a tool; the Python is built
      1  it cannot, or the file is no module; the Python cannot be built
      2  bad command line
    """


# inspect --------------------------------------------------------------------------------------------------------------


@command.command(name="inspect")
@click.argument("file", type=FILE)
@click.option(
    "--allow-degraded",
    is_flag=True,
    help="Compile it also where walls of the kernel are missing, behind wasmtime alone.",
)
@json_option
@click.pass_context
def inspect_command(ctx: click.Context, file: Path, allow_degraded: bool) -> None:
    """Show what a WASM module imports and exports, and what it would need as a tool.

    Nothing of the module runs. It is compiled in a process of its own behind walls, and kept for its first call. The
    exit code is 1 if it asks for what no grant can give, such as HTTP of its own or functions of another host.

    \b
      licet wasm inspect count.wasm
      licet wasm inspect count.wasm --json
    """
    if not os.path.exists(file):
        fail(f"there is no file {file}")
    try:
        module = read_module(os.path.abspath(file), "")
        made = _compiled(module, allow_degraded)
    except Malformed as wrong:
        fail(str(wrong))
    except (InvalidModule, SandboxUnavailable) as wrong:
        fail(visible(str(wrong)))
    own = _is_runner(module)
    asked = asked_for(made.module.kind, made.module.imports)
    declared = python_declaration(asked) if own else declaration(str(file), file.stem, made.module, asked)
    size = os.path.getsize(module.file)
    found = str(file), size, module, made.module, asked, declared
    print_report(_document(*found), lambda _: _show(*found))
    ctx.exit(1 if declared is None or asked.impossible else 0)


def _is_runner(module: WasmModule) -> bool:
    """Whether a file is the Python that licet has built."""
    try:
        return (built := kept_runner()) is not None and built.module == module
    except (BuildFailed, SandboxUnavailable):
        return False


def _compiled(module: WasmModule, allow_degraded: bool) -> Compiled:
    support = look()
    layers = wasm_layers(support, "restricted", allow_degraded=allow_degraded)
    with _busy("compiling"):
        return compiled(module, support.walls_in_spec(layers.missing))


def _document(
    file: str, size: int, module: WasmModule, found: Described, asked: Asked, declared: Declaration | None
) -> dict[str, object]:
    return {
        "file": file,
        "kind": found.kind,
        "size_bytes": size,
        "sha256": module.sha256,
        "memory": {"at_start_bytes": found.memory_bytes, "most_bytes": found.memory_most_bytes or None},
        "imports": {
            "wasi": asked.wasi,
            "host": asked.host,
            "impossible": asked.impossible,
        },
        "exports": [{"name": one["name"], "type": one["type"]} for one in found.exports if one["type"] != "type"],
        "usable": declared is not None and not asked.impossible,
        "command": command_of(found),
        "functions": declared.functions if declared else [],
        "needs": declared.needs if declared else [],
        "declaration": "\n".join(declared.python) if declared else None,
        "manifest": "\n".join(declared.manifest) if declared else None,
    }


def _show(
    file: str, size: int, module: WasmModule, found: Described, asked: Asked, declared: Declaration | None
) -> None:
    _row("file", file)
    _row("kind", _KINDS[found.kind])
    _row("size", f"{size:,} bytes")
    _row("sha256", module.sha256)
    _row("memory", _memory(found))
    _row("runs as", _runs_as(found, declared))
    _list("imports", _imports(asked))
    functions = [(one["name"], one["type"]) for one in found.exports if one["type"] != "type"]
    _list("exports", [f"{shown_name(str(name))}  {shown_name(str(type_))}" for name, type_ in functions])
    if asked.impossible:
        show("")
        show(f"it cannot run here: {counted(len(asked.impossible), 'import')} that no grant can give", colour="red")
        _lines([f"{one.name}: {one.why}" for one in asked.impossible])
        return
    if declared is None:
        show("")
        show("it cannot be a tool: it exports no function that can be called", colour="red")
        return
    _list("needs", declared.needs)
    _list("declaration, in Python", declared.python, WASM_DECLARATION_LINES_SHOWN)
    _list("manifest", declared.manifest)


def _row(name: str, text: str) -> None:
    show(f"{name:<9} {text}")


def _list(title: str, lines: Sequence[str], most: int = WASM_LINES_SHOWN) -> None:
    show("")
    show(title if lines else f"{title}: none", colour="cyan")
    _lines(lines, most)


def _lines(lines: Sequence[str], most: int = WASM_LINES_SHOWN) -> None:
    show_lines(f"  {line}" if line else "" for line in lines[:most])
    if len(lines) > most:
        show(f"  … and {len(lines) - most} more: --json lists all")


def _imports(asked: Asked) -> list[str]:
    width = max((len(part) for part in asked.wasi), default=0)
    lines = [f"WASI   {part:<{width}}  {_cut(', '.join(names))}" for part, names in asked.wasi.items()]
    lines += [f"licet  {', '.join(asked.host)}"] if asked.host else []
    return lines + [f"never  {one.name}" for one in asked.impossible]


def _cut(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _memory(found: Described) -> str:
    if not found.memory_bytes and not found.memory_most_bytes:
        return "none at the start"
    most = _size(found.memory_most_bytes) if found.memory_most_bytes else "what the limit `memory_mb` allows"
    return f"{_size(found.memory_bytes)} at the start, at most {most}"


def _size(size: int) -> str:
    return f"{size / (1 << 10):,.0f} KB" if size < 1 << 20 else f"{size / (1 << 20):,.1f} MB"


def _runs_as(found: Described, declared: Declaration | None) -> str:
    named = command_of(found)
    if named is not None:
        return f"a command: `{shown_name(named)}`, with JSON on standard input, and its output as the result"
    if declared is None:
        return "nothing"
    shown = ", ".join(shown_name(one) for one in declared.functions[:WASM_LINES_SHOWN])
    return f"a function, which `function=` names: {_cut(shown, 400)}"


# build ----------------------------------------------------------------------------------------------------------------


@command.command(name="build")
@json_option
def build_command() -> None:
    """Build the Python of `licet.tools.python`, once, ahead of its first call.

    It needs `pip install 'licet[wasm-build]'`, and takes one minute on a fast machine, and several on a slow or busy
    one, with the time that is left: CPython for WASI is put together with the part of licet that runs inside, and then
    compiled for this machine. If it is there already, nothing happens.
    """
    started = time.monotonic()
    try:
        was_there = kept_runner() is not None
        with progress(quiet=wants_json()) as report:
            built = runner(report)
            if not was_there:
                report(COMPILING, 1.0)
            code = _compile_runner(built)
    except (BuildFailed, SandboxUnavailable, InvalidModule) as wrong:
        fail(visible(str(wrong)))

    def text(_: object) -> None:
        if was_there:
            show("it is built already: nothing to do")
        else:
            show(f"built in {time.monotonic() - started:.0f} seconds", colour="green")
        _row("kept in", built.file)
        _row("size", f"{built.size:,} bytes, and {os.path.getsize(code):,} of compiled code")
        _row("sha256", built.sha256)
        _row("inputs", built.inputs)

    print_report({"built": not was_there, **asdict(built), "compiled": code}, text)


def _compile_runner(built: Runner) -> str:
    """Compile the component, as its first call would. licet has made it itself, so missing walls do not matter."""
    support = look()
    layers = wasm_layers(support, "restricted", allow_degraded=True)
    return compiled(built.module, support.walls_in_spec(layers.missing), OWN).file


def build_if_missing() -> None:
    """Build the Python of `licet.tools.python` with progress, before a call that would build it without."""
    with contextlib.suppress(BuildFailed, SandboxUnavailable, InvalidModule):  # the call says what is wrong
        if kept_runner() is None:
            with progress(quiet=wants_json()) as report:
                built = runner(report)
                report(COMPILING, 1.0)
                _compile_runner(built)


@contextlib.contextmanager
def _busy(text: str) -> Iterator[None]:
    """Say on a terminal that something takes its time."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True, color_system="auto" if coloured(err=True) else None).status(text):
        yield
