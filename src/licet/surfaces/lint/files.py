"""The source files of a project: found by module name below some directories, read once, and never imported."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from licet.core.origin import Origin, Problem
from licet.modules.imports import token_count
from licet.policy_files.policy_paths import shown_path
from licet.policy_files.source.text import parse, read_bytes
from licet.regular_files import read_regular
from licet.surfaces.lint.source_file import Finder, SourceFile

MOST_TOKENS = 500_000  # of all files that are parsed in one run, which takes about 450 MB: some 45,000 lines
_MOST_SEARCHED = 1 << 20  # of one file; a longer one is not parsed
_OURS = "licet"
_LIBRARIES = ("site-packages", "dist-packages")
_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist"})


class Project(Finder):
    """Reads files by path or by module name.

    `most_tokens` bounds what one run parses. `texts` are files whose contents are given, such as those of an editor.
    """

    def __init__(
        self, roots: Iterable[str] = (), most_tokens: int = MOST_TOKENS, texts: Mapping[str, bytes] | None = None
    ) -> None:
        # Directories to search. In a directory of installed packages, only those that files were named of.
        self._roots: dict[str, set[str] | None] = dict.fromkeys(map(os.path.abspath, roots))
        self._files: dict[str, SourceFile | Problem] = {}  # by real path
        self._found: dict[str, SourceFile | None] = {}  # by module name
        self._tops: dict[str, bool] = {}
        self._most, self._tokens = most_tokens, 0
        self._uncounted: list[bytes] = []  # counting is slow, and no file has more tokens than bytes
        self._given = {os.path.abspath(path): data for path, data in (texts or {}).items()}

    def may_have_tools(self, path: str) -> bool:
        """Whether the text of a file can have a tool of licet at all; if it cannot be read, parsing reports it."""
        given = self._given.get(os.path.abspath(path))
        if given is None:
            try:
                given = read_regular(path, _MOST_SEARCHED)
            except (OSError, ValueError):
                return True
        return b"licet" in given and b"tool" in given

    @property
    def files(self) -> Iterator[SourceFile]:
        """All files that were read and parsed."""
        return (file for file in self._files.values() if isinstance(file, SourceFile))

    def problems(self) -> Iterator[Problem]:
        """Why files could not be read, each file once."""
        return (file for file in self._files.values() if isinstance(file, Problem))

    def read(self, path: str) -> SourceFile | Problem:
        """Read one file, and take the directory of its outermost package as a place of the project."""
        path = os.path.abspath(path)
        root = os.path.dirname(path)
        while os.path.isfile(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
            root = os.path.dirname(root)
        dotted = os.path.relpath(path, root).removesuffix(".py").replace(os.sep, ".")
        top = dotted.partition(".")[0]
        if root not in self._roots or top not in (self._roots[root] or (top,)):
            only = {top} if os.path.basename(root) in _LIBRARIES else None
            self._roots[root] = only and only | (self._roots.get(root) or set())
            self._tops.clear()
            self._found = {name: found for name, found in self._found.items() if found is not None}
        is_package = os.path.basename(path) == "__init__.py"
        return self._parsed(path, dotted.removesuffix(".__init__") if is_package else dotted, is_package)

    def find(self, module: str) -> SourceFile | None:
        """The file of a module of the project; None if it is not a part of the project, or cannot be read."""
        if module not in self._found:
            self._found[module] = self._located(module)
        return self._found[module]

    def has(self, top: str) -> bool:
        """Whether a top-level name is of the project."""
        if top not in self._tops:
            paths = [os.path.join(root, top) for root, only in self._roots.items() if only is None or top in only]
            there = any(os.path.isdir(one) or os.path.isfile(f"{one}.py") for one in paths)
            self._tops[top] = there and top not in sys.stdlib_module_names
        return self._tops[top]

    def _located(self, module: str) -> SourceFile | None:
        top = module.partition(".")[0]
        # What tools import of licet has entries in the table; only the ready-made tools are read.
        if top == _OURS and module.split(".")[1:2] != ["tools"]:
            return None
        if not self.has(top) or not all(map(str.isidentifier, module.split("."))):
            return None
        for root, only in self._roots.items():
            if only is not None and top not in only:
                continue
            below = os.path.join(root, *module.split("."))
            for path, is_package in ((os.path.join(below, "__init__.py"), True), (f"{below}.py", False)):
                if os.path.isfile(path):
                    found = self._parsed(path, module, is_package)
                    return found if isinstance(found, SourceFile) else None
        return None

    def _parsed(self, path: str, module: str, is_package: bool) -> SourceFile | Problem:
        real = os.path.realpath(path)
        if real not in self._files:
            self._files[real] = self._file(path, module, is_package)
        return self._files[real]

    def _file(self, path: str, module: str, is_package: bool) -> SourceFile | Problem:
        shown = shown_path(path)
        data = self._given.get(path) or read_bytes(path, shown)
        if isinstance(data, Problem):
            return data
        if not self._fits(data):
            found, most = "more source than one run reads", f"at most {self._most} tokens of tools and helpers"
            return Problem(Origin(shown, 1, 1), found, most, "name fewer files", "warning")
        text = parse(data, shown)
        return text if isinstance(text, Problem) else SourceFile(path, module, is_package, text, self)

    def _fits(self, data: bytes) -> bool:
        """Whether a file fits the limit of tokens with all files before it; if it does, it counts."""
        if self._tokens + sum(map(len, self._uncounted)) + len(data) <= self._most:
            self._uncounted.append(data)
            return True
        self._tokens += sum(token_count(one.decode(errors="replace")) for one in self._uncounted)
        self._uncounted.clear()
        tokens = token_count(data.decode(errors="replace"))
        if self._tokens + tokens > self._most:
            return False
        self._tokens += tokens
        return True


def python_files(paths: Iterable[str]) -> Iterator[str]:
    """The Python files among some paths and below the directories among them, without hidden and installed ones."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, names, files in os.walk(path):
            kept = (name for name in names if name[0] != "." and name not in _NOT_OURS)
            names[:] = sorted(name for name in kept if not os.path.isfile(os.path.join(folder, name, "pyvenv.cfg")))
            yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))
