"""Resolves commands that are no launchers: a program of an installed distribution, or a file.

A console script or a module of a Python environment is pinned by its distribution and version, as that distribution's
RECORD lists it. Any other file is pinned by its hash; of `python server.py` and `node index.js` that is the script. The
interpreter is the machine's and is not pinned. The other files of a server are pinned if `servers.NAME.code` names
their directory (`started_from.py`). A Python script cannot import from its own directory (`launchers.py`).

Only files are read: neither the program nor the interpreter of its environment is started. The one exception is a
version manager on PATH, which is asked where its interpreter is.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from glob import escape, glob
from pathlib import Path

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.core.late_pattern import late_pattern
from licet.own_files import find_on_path, open_regular, read_most
from licet.packages.clients import is_native, native_program
from licet.packages.launchers import (
    Launch,
    LaunchError,
    environment_of,
    interpreter,
    is_python,
    python_argv,
    settings_of,
    site_directories,
)
from licet.packages.package_store import Installed, PackageError, Resolved, file_digest

__all__ = [
    "FoundProgram", "find_program", "first_line", "installed_prefixes", "interpreter_of", "runtime_of", "same_program",
]  # fmt: skip

_SHEBANG = late_pattern(rb"#![ \t]*(?:\S*/env[ \t]+(?:-S[ \t]+)?)?(\S+)[ \t]*([^\n]*)\n")
_LINES = late_pattern(rb"#!/bin/sh\n'''exec' \"?([^\"\n]+?)\"? \"\$0\" \"\$@\"\n")  # pip's form for long paths


class FoundProgram(Struct, frozen=True):
    """A program of this machine: what is pinned of it, and how it is started."""

    resolved: Resolved
    installed: Installed


def find_program(launch: Launch, directory: Path) -> FoundProgram:
    """Find the file or the distribution that a command starts. Paths in the command are relative to `directory`."""
    if launch.interpreter and launch.interpreter[-1] == "-m":
        return _module(launch, directory)
    if launch.interpreter:
        return _script(launch, directory)
    return _program(launch, directory)


def same_program(resolved: Resolved, launch: Launch, directory: Path) -> Installed:
    """How to start a program that is still what the lock says. Raises `PackageError`, with what changed, if not."""
    found = find_program(launch, directory)
    if found.resolved != resolved:
        raise PackageError(
            f"`{visible(launch.program)}` is {_described(found.resolved)}, and the lock says {_described(resolved)}: "
            "`licet lock --update` shows and accepts the difference"
        )
    return found.installed


def _described(resolved: Resolved) -> str:
    if resolved.kind == "file":
        return f"the file `{visible(resolved.program)}` with {resolved.digest[:23]}…"
    return f"`{visible(resolved.program)}` of {visible(resolved.name)} {visible(resolved.version)}"


# The three kinds of commands ------------------------------------------------------------------------------------------


def _module(launch: Launch, directory: Path) -> FoundProgram:
    from licet.packages.distributions import (
        owner_of,  # what lists installed files loads much, and `licet run` needs none
    )

    python = _interpreter(launch.interpreter[0], directory)
    inner = launch.program.replace(".", "/")
    argv = python_argv(python, launch.interpreter[1:], launch.program, launch.code)
    for place in launch.code:
        for path in (os.path.join(place, relative) for relative in (f"{inner}/__main__.py", f"{inner}.py")):
            if os.path.isfile(path):
                resolved = Resolved("file", program=launch.program, digest=_digest(path))
                return FoundProgram(resolved, Installed(argv, (*launch.code, *runtime_of(python))))
    for library in _libraries(python):
        for relative in (f"{inner}/__main__.py", f"{inner}.py"):
            if owner := owner_of(os.path.join(library, relative), [library]):
                name, version = owner
                resolved = Resolved("distribution", name, version, launch.program)
                return FoundProgram(resolved, Installed(argv, (*launch.code, *runtime_of(python))))
    raise LaunchError(
        f"no distribution that is installed for `{visible(launch.interpreter[0])}` lists a module "
        f"`{visible(launch.program)}` that can be started: install it, or name its directory in `code` of the server"
    )


def _script(launch: Launch, directory: Path) -> FoundProgram:
    script = _regular(Path(os.path.realpath(directory / launch.program)), launch.program)
    starter = _interpreter(launch.interpreter[0], directory)
    resolved = Resolved("file", program=os.path.basename(launch.program), digest=_digest(script))
    argv = _argv(starter, launch.interpreter[1:], script, launch.code)
    readable = (script, *launch.code, *_around(script), *runtime_of(starter))
    return FoundProgram(resolved, Installed(argv, readable))


def _argv(starter: str, flags: Sequence[str], script: str, code: Sequence[str]) -> tuple[str, ...]:
    if is_python(os.path.basename(starter)):
        return python_argv(starter, flags, script, code)
    return starter, *flags, script


def _program(launch: Launch, directory: Path) -> FoundProgram:
    from licet.packages.distributions import owner_of

    name = launch.program
    found = os.path.abspath(directory / name) if "/" in name else find_on_path(name)
    if found is None:
        raise LaunchError(f"`{visible(name)}` is not on PATH: install it, or name its path")
    if os.path.basename(os.path.dirname(found)) == "shims":
        raise LaunchError(f"`{visible(name)}` is only a shim of a version manager: name the program that it starts")
    path = _regular(Path(os.path.realpath(found)), name)
    if interpreter(os.path.basename(path)):  # under another name: its script would be a mere argument, and not pinned
        raise LaunchError(f"`{visible(name)}` is a link to `{visible(os.path.basename(path))}`: name that instead")
    starter, flags = _shebang(path)
    argv: tuple[str, ...] = (path,)
    readable: tuple[str, ...] = (path, *launch.code, *_around(path))
    if starter is not None:
        argv = _argv(starter, flags, path, launch.code)
        readable += runtime_of(starter)
        if is_python(os.path.basename(starter)) and (owner := owner_of(path, list(_libraries(starter)))):
            resolved = Resolved("distribution", *owner, program=os.path.basename(path))
            return FoundProgram(resolved, Installed(argv, readable))
    resolved = Resolved("file", program=os.path.basename(path), digest=_digest(path))
    return FoundProgram(resolved, Installed(argv, readable))


# Files ----------------------------------------------------------------------------------------------------------------


def _regular(path: Path, written: str) -> str:
    if not path.is_file():
        raise LaunchError(f"`{visible(written)}` is no file: the command names what it starts")
    return os.path.abspath(path)


def _digest(path: str) -> str:
    try:
        return file_digest(path)
    except OSError as wrong:
        raise PackageError(f"{path} cannot be read: {wrong.strerror}") from wrong


def _shebang(path: str) -> tuple[str | None, Sequence[str]]:
    """The Python or Node that a script names in its first line, with flags; `None` for every other file."""
    starter, flags = interpreter_of(path)
    known = starter is not None and _is_known(os.path.basename(starter))
    return (starter, flags) if known else (None, ())


def _is_known(name: str) -> bool:
    return interpreter(name) in ("python", "node")


def interpreter_of(path: str) -> tuple[str | None, Sequence[str]]:
    """The interpreter that a script names in its first line, with flags; `None` for a file that is no script."""
    starter, flags = first_line(path)
    if not starter or ("/" in starter and not _is_known(os.path.basename(starter))):
        return starter or None, flags
    return _interpreter(starter, Path("/")), flags


def first_line(path: str) -> tuple[str, Sequence[str]]:
    """The interpreter as a script writes it in its first line, with flags; empty for a file that is no script."""
    try:
        with open_regular(path) as fd:
            first = read_most(fd, 4096)
    except OSError as wrong:
        raise PackageError(f"{path} cannot be read: {wrong.strerror}") from wrong
    match = _LINES.match(first) or _SHEBANG.match(first)
    if match is None:
        return "", ()
    return os.fsdecode(match[1]), os.fsdecode(match[2]).split() if match.re is _SHEBANG else []


def _interpreter(written: str, directory: Path) -> str:
    """The path of an interpreter. Links stay: Python finds its virtual environment by the path it is started with."""
    known = _is_known(written)
    if "/" in written:
        found: str | None = os.path.abspath(directory / written)
    else:
        found = native_program(written) if known else find_on_path(written)
    if found is None or not is_native(found):
        raise LaunchError(f"`{visible(written)}` is no interpreter that can be started: install it, or name its path")
    return found


def _around(path: str) -> Iterator[str]:
    """What a script for Node reads without naming it: `node_modules` above it, and the package that it belongs to."""
    if not path.endswith((".js", ".mjs", ".cjs", ".ts")):
        return
    for folder in Path(path).parents:
        described = folder / "package.json"
        if described.is_file():
            # An installed package reads itself. A project does not: it may have secrets next to its sources.
            yield str(folder if "node_modules" in folder.parts else described)
            break
    for folder in Path(path).parents:
        if (folder / "node_modules").is_dir():
            yield str(folder / "node_modules")


# Python environments --------------------------------------------------------------------------------------------------


def _prefixes(python: str, *, stated: bool = True) -> tuple[str, str]:
    """The directory of the virtual environment of an interpreter, empty if it has none, and that of Python itself.

    An environment of copies has no link to follow. `stated` says whether the settings in it are believed.
    """
    environment, base = environment_of(python), os.path.dirname(os.path.dirname(os.path.realpath(python)))
    if stated and environment and base == os.path.realpath(environment):
        home = os.path.realpath(settings_of(environment).get("home", ""))
        if os.path.basename(home) == "bin" and glob(f"{escape(os.path.dirname(home))}/lib*/py*3*/os.py"):
            base = os.path.dirname(home)
    return environment, base


def _libraries(python: str) -> Iterator[str]:
    """The directories that an interpreter has its distributions in, without those in the home of the user."""
    environment, base = _prefixes(python)
    roots = [environment] if environment else [base, *(["/usr/local"] if base == "/usr" else [])]
    yield from sorted({os.path.realpath(path) for root in roots for path in site_directories(root)})


def runtime_of(starter: str, *, stated: bool = True) -> tuple[str, ...]:
    """What an interpreter itself reads: its file, its virtual environment, and its own libraries.

    Without `stated`, a `pyvenv.cfg` is not believed: neither that there is an environment, nor, as one of copies says,
    where its Python is.
    """
    real = os.path.realpath(starter)
    if not is_python(os.path.basename(starter)):
        return (real,)
    environment, base = _prefixes(starter, stated=stated)
    return (*((environment,) if environment and stated else ()), real, os.path.join(base, "lib"))


def installed_prefixes(project: Path) -> list[str]:
    """The directories of every Python and Node that programs in a project may start: with `bin` and `lib` in them.

    They are on PATH, also as a virtual environment, or the base of a virtual environment in the project. What a file of
    the project says is believed only if an interpreter with its library is there, and nobody but root and this user can
    change it.
    """
    named = [found for name in ("python3", "python", "node") if (found := native_program(name))]
    named.append(os.path.join(os.environ.get("VIRTUAL_ENV", ""), "bin", "python"))
    active = [environment for path in named if (environment := environment_of(path)) and _is_active(environment)]
    for pattern in ("*/pyvenv.cfg", ".*/pyvenv.cfg", ".tox/*/pyvenv.cfg", ".nox/*/pyvenv.cfg"):
        for settings in sorted(glob(f"{escape(str(project))}/{pattern}")):
            environment = os.path.dirname(settings)
            named += [os.path.join(settings_of(environment).get("home", ""), "python3"), f"{environment}/bin/python"]
    prefixes: dict[str, None] = dict.fromkeys(active)
    for path in named:
        for step in _steps(path):
            prefix = os.path.dirname(os.path.dirname(step))
            if os.path.basename(os.path.dirname(step)) == "bin" and _is_prefix(prefix):
                prefixes[prefix] = None
    return list(prefixes)


def _steps(path: str) -> Iterator[str]:
    """A path, and what each link at its end leads to."""
    for _ in range(40):
        if not os.path.isabs(path):
            return
        yield path
        if not os.path.islink(path):
            return
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def _is_prefix(prefix: str) -> bool:
    versions = [os.path.dirname(one) for one in glob(f"{escape(prefix)}/lib/py*/os.py")]
    pairs = [(os.path.basename(version), f"{version}/os.py") for version in versions]
    pairs += [("node", f"{prefix}/include/node/node.h"), ("node", f"{prefix}/lib/node_modules/npm/package.json")]
    return any(_is_ours(prefix, name, library) for name, library in pairs)


def _is_active(environment: str) -> bool:
    return os.path.isabs(environment) and _is_ours(environment, "python", f"{environment}/pyvenv.cfg")


def _is_ours(prefix: str, name: str, library: str) -> bool:
    """Whether a program for this machine is there with its library, and only root and this user can change them."""
    with suppress(OSError):
        files = [os.stat(path) for path in (prefix, f"{prefix}/bin/{name}", library)]
        ours = all(about.st_uid in (0, os.getuid()) and not about.st_mode & 0o002 for about in files)
        return ours and is_native(f"{prefix}/bin/{name}")
    return False
