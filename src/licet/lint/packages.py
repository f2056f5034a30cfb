"""Says what installed packages touch by themselves. Each is read once per version; nothing is imported.

The result is cached in the cache directory of the user, by distribution, version and table. A cache that cannot be read
is made again.
"""

import ast
import importlib.machinery
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from licet.core.values import Problem
from licet.own_files import read_regular
from licet.policy_files.policy_paths import cache_root
from licet.source import callables
from licet.source.imports import library_directories
from licet.source.meaning import Code, Finder, SourceFile
from licet.source.scopes import Function, Scope
from licet.source.text import parse, read_bytes
from licet.source.touches import touched_by

_MOST_FILES = 3000  # of one package
_MOST_BYTES = 40 << 20
_NOT_RUN = frozenset({"tests", "test", "testing", "__pycache__"})
_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)


class Scanned(Struct, frozen=True):
    """What one installed package touches: for each domain, the first line that shows it."""

    name: str
    version: str
    touches: Mapping[str, str]
    has_compiled: bool = False  # code that cannot be read
    is_partial: bool = False  # there was more of it than is read


class Packages:
    """Finds and reads packages by the names that are imported. `directories` are searched before those of licet."""

    def __init__(self, directories: Iterable[str] = (), *, cache: str | None = None) -> None:
        self._directories = list(dict.fromkeys((*directories, *library_directories())))
        self._cache = cache_root() if cache is None else cache
        self._known: dict[str, Scanned | None] = {}

    def scanned(self, name: str) -> Scanned | None:
        """What the package of a top-level name touches; None if it is not installed."""
        if name not in self._known:
            self._known[name] = self._scan(name)
        return self._known[name]

    def _scan(self, name: str) -> Scanned | None:
        for directory in self._directories:
            paths = list(_files(directory, name))
            if not paths:
                continue
            distribution, version = _distribution(directory, name)
            kept = self._cache_file(f"{distribution}-{name}-{version}") if version else ""
            if kept and (known := _read_cache(kept)) is not None:
                return known
            scanned = _read_package(name, version, directory, paths)
            if kept:
                _write_cache(kept, scanned)
            return scanned
        return None

    def _cache_file(self, key: str) -> str:
        safe = re.sub(r"[^A-Za-z0-9_.+-]", "_", key)[:150]
        return os.path.join(self._cache, "lint", f"{safe}-{callables.digest()}.json") if self._cache else ""


def environments(project: Iterable[str]) -> list[str]:
    """The library directories of the virtual environments that a project is used with: active, or `.venv` in it."""
    active = os.environ.get("VIRTUAL_ENV", "")
    homes = [active, *(os.path.join(place, name) for place in project for name in (".venv", "venv"))]
    found: list[str] = []
    for home in homes:
        if home and os.path.isfile(os.path.join(home, "pyvenv.cfg")):
            with suppress(OSError):
                versions = sorted(os.listdir(os.path.join(home, "lib")))
                found += [os.path.join(home, "lib", version, "site-packages") for version in versions]
    return [path for path in found if os.path.isdir(path)]


def _files(directory: str, name: str) -> Iterator[str]:
    """The Python and extension files of a package or module."""
    for ending in (".py", *_EXTENSIONS):
        if os.path.isfile(path := os.path.join(directory, f"{name}{ending}")):
            yield path
    for folder, names, files in os.walk(os.path.join(directory, name)):
        names[:] = sorted(one for one in names if one not in _NOT_RUN)
        yield from (os.path.join(folder, one) for one in sorted(files) if one.endswith((".py", *_EXTENSIONS)))


def _distribution(directory: str, name: str) -> tuple[str, str]:
    """The distribution that a package belongs to, and its version; empty if none lists it."""
    try:
        folders = [entry for entry in os.listdir(directory) if entry.endswith(".dist-info")]
    except OSError:
        return "", ""
    wanted = re.sub(r"[-_.]+", "-", name).lower()
    folders.sort(key=lambda entry: re.sub(r"[-_.]+", "-", entry.partition("-")[0]).lower() != wanted)
    for folder in folders:
        with suppress(OSError, UnicodeDecodeError):
            record = f"\n{read_regular(os.path.join(directory, folder, 'RECORD'), _MOST_BYTES).decode()}"
            if f"\n{name}/" in record or f"\n{name}.py," in record or f"\n{name}." in record:
                distribution, _, version = folder.removesuffix(".dist-info").rpartition("-")
                return distribution, version
    return "", ""


class _Nothing(Finder):
    """Finds no other files: each file of a package is read by itself."""

    def find(self, module: str) -> SourceFile | None:
        return None

    def has(self, top: str) -> bool:
        return False


def _read_package(name: str, version: str, directory: str, paths: list[str]) -> Scanned:
    touches: dict[str, str] = {}
    left, compiled, partial = _MOST_BYTES, False, len(paths) > _MOST_FILES
    for path in paths[:_MOST_FILES]:
        if not path.endswith(".py"):
            compiled = True
            continue
        shown = os.path.relpath(path, directory)
        data = read_bytes(path, shown)
        if isinstance(data, Problem) or left < 0:
            partial = True
            continue
        left -= len(data)
        text = parse(data, shown)
        if isinstance(text, Problem):
            partial = True
            continue
        module = shown.removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__")
        file = SourceFile(path, module, path.endswith("__init__.py"), text, _Nothing())
        try:
            for kind, what, line in _touches(file):
                touches.setdefault(kind, f"{what} ({shown}:{line})")
        except RecursionError:
            partial = True
    return Scanned(name, version, touches, compiled, partial)


def _touches(file: SourceFile) -> Iterator[tuple[str, str, int]]:
    scopes: list[Scope] = [file.scope]
    for bindings in file.scope.bindings.values():
        scopes += [file.scope_of(Code(file, what)) for _, what, _ in bindings if isinstance(what, Function)]
    for node in file.scope.classes:
        owner = file.class_of(node, file.scope)
        for bindings in owner.body.bindings.values():
            scopes += [file.scope_of(Code(file, what, owner)) for _, what, _ in bindings if isinstance(what, Function)]
    for scope in scopes:
        for use in touched_by(scope, file).uses:
            if not use.called:
                continue
            yield use.kind.partition(":")[0].replace("scratch", "fs"), f"`{use.what}`", use.line
        for imported in scope.imports:
            for kind, module in _libraries(imported):
                yield kind, f"imports `{module}`", imported.lineno


def _libraries(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom) and node.level:
        return
    names = [alias.name for alias in node.names]
    modules = names if isinstance(node, ast.Import) else [node.module or "", *(f"{node.module}.{one}" for one in names)]
    for kind, libraries in callables.LIBRARIES.items():
        for module in modules:
            if module in libraries or module.partition(".")[0] in libraries:
                yield kind, module


def _read_cache(path: str) -> Scanned | None:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            return msgspec.json.decode(file.read(1 << 20), type=Scanned)
    except (OSError, msgspec.DecodeError, AttributeError):  # Windows has no user numbers
        return None


def _write_cache(path: str, scanned: Scanned) -> None:
    draft = f"{path}.{os.getpid()}"
    with suppress(OSError):  # without a cache the package is read again next time
        for folder in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path)):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(scanned))
        os.replace(draft, path)
