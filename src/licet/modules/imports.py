"""Follows the imports of source files by parsing them. Nothing is imported, so no code of a file runs.

A syntax tree takes about a kilobyte per token, so a file with too many tokens is not parsed.
"""

import ast
import importlib.machinery
import importlib.util
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import inf

from licet.modules.finder import ModulePlace

MOST_TOKENS = 100_000  # of one file: about 9,000 lines of ordinary code, and 90 MB of memory to parse
MOST_DOTS = 100  # in one dotted name: to parse an import, Python keeps every prefix of it in memory

# Words, signs and line ends. Those in strings and comments count too: an f-string contains code, and only a real
# tokenizer can find the end of a string.
_TOKEN = re.compile(r"\w+|[^\w\s]|\n|\r")
_WORD = r"[\w\u0080-\U0010ffff]++"
_DOTTED = re.compile(rf"{_WORD}(?:[\s\\]*+\.[\s\\]*+{_WORD})*+")
_MANY_DOTS = re.compile(rf"(?:\.[\s\\]*+{_WORD}[\s\\]*+){{{MOST_DOTS + 1}}}")


def token_count(text: str) -> int:
    """Count words, signs and line ends. Python never makes more tokens than these."""
    return sum(1 for _ in _TOKEN.finditer(text))


def too_expensive_to_parse(text: str) -> tuple[str, str, str] | None:
    """Why a text is too expensive to parse: what was found, what was expected, and the fix; None if it is not."""
    # Counting takes as long as parsing, so what is cheaper to rule out is ruled out first.
    if len(text) > MOST_TOKENS and (tokens := token_count(text)) > MOST_TOKENS:
        return f"{tokens} tokens", f"at most {MOST_TOKENS} in one file", "split the module"
    if not _MANY_DOTS.search(text):
        return None
    if (dots := max((name[0].count(".") for name in _DOTTED.finditer(text)), default=0)) > MOST_DOTS:
        return f"a name with {dots} dots", f"at most {MOST_DOTS}", "shorten it"
    return None


_MOST_MODULES = 2000
_MOST_BYTES = 512 << 10  # of one source file, as in a review; the imports of a longer one are not followed
_LONGEST_NAME = 512  # of a module; the names of all its parent packages would otherwise fill the memory
_LIBRARY_NAMES = ("site-packages", "dist-packages", "lib-dynload")


def followed(
    start: Mapping[str, ModulePlace],
    locate: Callable[[str], ModulePlace | None],
    *,
    most_bytes: float = inf,
    most_names: float = inf,
) -> dict[str, ModulePlace]:
    """The modules in `start`, their packages, and all modules that they import and that `locate` finds.

    After `most_bytes` of source, or `most_names` imported names, imports are not followed further.
    """
    found: dict[str, ModulePlace] = {}
    left = list(start.items())
    while left and len(found) < _MOST_MODULES:
        name, place = left.pop()
        if name in found:
            continue
        found[name] = place
        wanted = [name.rpartition(".")[0]]
        if place.file is not None and most_bytes >= 0 and most_names >= 0:
            most_bytes -= _size(place.file)
            wanted += imported_names(place.file, name, is_package=place.directory is not None)
        most_names -= len(wanted)
        unseen = [(other, locate(other)) for other in wanted if other and other not in found]
        left += [(other, there) for other, there in unseen if there is not None]
    return found


def library_directories() -> tuple[str, ...]:
    """The real directories of the standard library and of installed packages that this process imports from."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [path for path in sys.path if os.path.basename(path) in _LIBRARY_NAMES]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if os.path.isdir(path)))


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0


def imported_names(file: str, name: str, *, is_package: bool) -> tuple[str, ...]:
    """The names that a source file imports anywhere, each preceded by its parent packages."""
    try:
        return _names(file, name, is_package, os.stat(file).st_mtime_ns)
    except OSError:
        return ()


@lru_cache(4096)
def _names(file: str, name: str, is_package: bool, changed: int) -> tuple[str, ...]:
    if file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return ()
    try:
        text = _text(file)
    except (OSError, ValueError, LookupError, SyntaxError):
        return ()
    return imports_of(text, name if is_package else name.rpartition(".")[0])


def imports_of(text: str, package: str = "") -> tuple[str, ...]:
    """The names that a source text imports anywhere, each preceded by its parent packages."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names = (dotted for dotted in _imports(tree, package) if len(dotted) <= _LONGEST_NAME)
    return tuple(dict.fromkeys(above for dotted in names for above in with_parents(dotted)))


def _text(file: str) -> str:
    # Without O_NONBLOCK, which Windows does not have, a named pipe in the place of a file would block for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    with open(os.open(file, flags), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ValueError("not a regular file")
        data = opened.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("a source file that is too long")
    text = importlib.util.decode_source(data)  # before counting: in UTF-7 much code can look like one word
    if too_expensive_to_parse(text):
        raise ValueError("a source file that takes too much memory to parse")
    return text


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = _resolved("." * level + (module or ""), package)
                if base:
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in names if alias.name != "*")
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(str() as text), *_]
            ):
                if called in ("import_module", "__import__") and (base := _resolved(text, package)):
                    yield base


def _resolved(name: str, package: str) -> str:
    try:
        return importlib.util.resolve_name(name, package)
    except (ImportError, ValueError):
        return ""


def with_parents(dotted: str) -> Iterator[str]:
    """The parent packages of a dotted name, outermost first, and then the name."""
    parts = dotted.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))
