"""Finds source files by path or module name, and parses each to a syntax tree, or reports why not. Nothing is run.

A file under review may be hostile. So its kind, size, encoding and nesting are checked before it is parsed.
"""

import ast
import io
import os
import re
import sys
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from licet.core.late_pattern import late_pattern
from licet.core.values import Origin, Problem
from licet.own_files import FileTooLarge, read_regular, size_text
from licet.source.finder import OURS
from licet.source.limits import (
    LARGEST_SEARCHED,
    LARGEST_SOURCE,
    LONGEST_EXCERPT,
    MOST_DOTS,
    MOST_FSTRING_PARTS,
    MOST_TOKENS,
    MOST_TOKENS_OF_PROJECT,
)
from licet.source.scopes import Function, Imported, Scope, absolute, function_scope, module_scope

_LIBRARIES = ("site-packages", "dist-packages")
_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist"})
# Words, signs and line ends. Those in strings and comments count too: an f-string contains code, and only a real
# tokenizer can find the end of a string.
_TOKEN = late_pattern(r"\w+|[^\w\s]|\n|\r")
_WORD = r"[\w\u0080-\U0010ffff]++"
_DOTTED = late_pattern(rf"{_WORD}(?:[\s\\]*+\.[\s\\]*+{_WORD})*+")
_MANY_DOTS = late_pattern(rf"(?:\.[\s\\]*+{_WORD}[\s\\]*+){{{MOST_DOTS + 1}}}")
_LINE_BREAK = late_pattern(r"\r\n|\r|\n")
# Characters that show text in another order than Python reads it ("trojan source"): embeddings, overrides, isolates.
_REORDERING = late_pattern("[\u202a-\u202e\u2066-\u2069]")
_F_STRING = late_pattern(
    r"(?<!\w)(?:f|fr|rf)(?:"
    r'"""(?:[^\\]|\\.)*?"""|'
    r"'''(?:[^\\]|\\.)*?'''|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'(?:[^'\\\n]|\\.)*')",
    re.IGNORECASE | re.DOTALL,
)
_PLAIN_FIELDS = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "name", "asname", "module", "level", "kind"})
# The fields of each kind of node that may hold nodes.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(field for field in kind._fields if field not in _PLAIN_FIELDS)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


class Lines(Struct, frozen=True):
    """The lines of a file, to compute columns."""

    file: str
    lines: tuple[str, ...]

    def place_at(self, line: int, offset: int) -> Origin:
        """The origin of a line and an offset in bytes. Columns count characters, as editors do."""
        before = self.lines[line - 1].encode()[:offset] if line <= len(self.lines) else b""
        return Origin(self.file, line, len(before.decode(errors="replace")) + 1)


class SourceText(Lines, frozen=True, dict=True):
    """A parsed Python file. Its tree is large, so nothing that is cached may refer to it."""

    tree: ast.Module

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree but contexts and operators, collected once since walking is slow."""
        found: list[ast.AST] = [self.tree]
        for node in found:  # which grows meanwhile
            for field in _FIELDS[node.__class__]:
                value = getattr(node, field, None)
                if value.__class__ is list:
                    found += [inner for inner in value if inner.__class__ in _FIELDS]
                elif value.__class__ in _FIELDS:
                    found.append(value)
        return tuple(found)

    def place(self, node: ast.AST) -> Origin:
        return self.place_at(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))

    def beginning(self, node: ast.expr) -> str:
        """The first characters of a long node; empty for a short one, which `ast.unparse` writes fast enough."""
        first, last = node.lineno, node.end_lineno or node.lineno
        start = self.place(node).column - 1
        lines = [self.lines[first - 1][start:], *self.lines[first : min(last, first + LONGEST_EXCERPT)]]
        beyond = len(self.lines[last - 1].encode()) - (node.end_col_offset or 0) if len(lines) > last - first else 0
        text = "\n".join(lines)
        return text[:LONGEST_EXCERPT] if len(text) - beyond > LONGEST_EXCERPT else ""

    def place_of_decorator(self, node: ast.expr) -> Origin:
        """The place of the `@` of a decorator."""
        origin = self.place(node)
        at = self.lines[origin.line - 1].rfind("@", 0, origin.column)
        return Origin(self.file, origin.line, at + 1) if at >= 0 else origin


def read_bytes(path: str | os.PathLike[str], file: str) -> bytes | Problem:
    """Read a regular file, or return the problem."""
    start = Origin(file, 1, 1)
    try:
        return read_regular(path, LARGEST_SOURCE)
    except FileTooLarge:
        return Problem(start, f"more than {LARGEST_SOURCE} bytes", f"at most {size_text(LARGEST_SOURCE)} of Python")
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        return Problem(start, f"no readable file ({getattr(error, 'strerror', None) or error})", "a Python file")


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


def parse(data: bytes, file: str) -> SourceText | Problem:
    """Parse a file, or return the problem."""
    text = _decoded(data, file)
    if isinstance(text, Problem):
        return text
    start = Origin(file, 1, 1)
    if too_much := too_expensive_to_parse(text):
        return Problem(start, *too_much)
    lines = tuple(_LINE_BREAK.split(text))
    if hidden := _REORDERING.search(text):
        line = len(_LINE_BREAK.findall(text, 0, hidden.start())) + 1
        column = hidden.start() - max(text.rfind(end, 0, hidden.start()) for end in "\r\n")
        found = f"U+{ord(hidden[0]):04X}, which shows text in another order than Python reads it"
        return Problem(Origin(file, line, column), found, "text in reading order", "delete it")
    for string in _F_STRING.finditer(text) if text.count("{") > MOST_FSTRING_PARTS else ():
        if string[0].count("{") > MOST_FSTRING_PARTS:
            line = len(_LINE_BREAK.findall(text, 0, string.start())) + 1
            column = string.start() - max(text.rfind(end, 0, string.start()) for end in "\r\n")
            found = f"an f-string of more than {MOST_FSTRING_PARTS} parts"
            return Problem(Origin(file, line, column), found, "text that a person can read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for example about invalid escapes, which are not a problem here
            tree = ast.parse(text)
    except SyntaxError as error:
        origin = Origin(file, error.lineno or 1, max(error.offset or 1, 1))
        return Problem(origin, f"a syntax error ({error.msg})", "Python that this interpreter can read")
    except (RecursionError, MemoryError):
        return Problem(start, "code nested too deeply", "code that a person can read")
    except ValueError as error:
        return Problem(start, f"a file that is not text ({error})", "Python")
    return SourceText(file, lines, tree)


def _decoded(data: bytes, file: str) -> str | Problem:
    start, hint = Origin(file, 1, 1), "save the file as UTF-8"
    refused = ""
    try:
        # A file may state its own encoding. In UTF-7, a harmless comment becomes code.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding not in ("utf-8", "utf-8-sig", "ascii"):
            refused = f"the encoding {encoding}"
    except SyntaxError as error:
        refused = f"no encoding that Python knows ({error.msg})"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if refused.startswith("the encoding"):
            return Problem(start, refused, "UTF-8", hint)
        origin = Origin(file, data.count(b"\n", 0, error.start) + 1, 1)
        return Problem(origin, f"the byte 0x{data[error.start]:02X}", "UTF-8", hint)
    if refused:
        return Problem(start, refused, "UTF-8", hint)
    return Problem(start, "a zero byte", "text") if "\0" in text else text


class Code(Struct, frozen=True, eq=False):
    """A function of the project. `owner` is its class, if it is a method."""

    file: "SourceFile"
    node: Function
    owner: "Class | None" = None

    @property
    def name(self) -> str:
        return f"{self.owner.node.name}.{self.node.name}" if self.owner else self.node.name


class Class(Struct, frozen=True, eq=False):
    """A class of the project."""

    file: "SourceFile"
    node: ast.ClassDef
    body: Scope
    around: Scope


class Named(Struct, frozen=True):
    """Something outside of the project, by its full name."""

    name: str


class Value(Struct, frozen=True):
    """A value of a type in the table."""

    kind: str


class Instance(Struct, frozen=True, eq=False):
    """A value of a class of the project."""

    of: Class


class Package(Struct, frozen=True, eq=False):
    """A module of the project."""

    file: "SourceFile"


class Held(Struct, frozen=True, eq=False):
    """A table at module level, or something that was taken out of it: any of the functions that it holds."""

    file: "SourceFile"
    scope: Scope
    table: ast.expr


Meaning = Named | Value | Code | Class | Instance | Package | Held | None


class SourceFile:
    """One parsed file: its text, its full module name, and its scopes. Functions are walked when they are needed."""

    def __init__(self, path: str, module: str, text: SourceText, project: "Project") -> None:
        self.path, self.module, self.text, self.project = path, module, text, project
        self.names: dict[tuple[Scope, str], Meaning] = {}  # each name is looked up once
        self._functions: dict[ast.AST, Scope] = {}
        self._classes: dict[ast.ClassDef, Class] = {}
        self._owners: dict[ast.AST, Class] = {}
        self.held: dict[ast.expr, tuple[Code | Class, ...]] = {}

    @cached_property
    def scope(self) -> Scope:
        """The module itself."""
        return module_scope(self.text.tree, self.text.lines)

    def scope_of(self, code: Code) -> Scope:
        """The scope of a function at module level, or of a method."""
        if code.node not in self._functions:
            around = code.owner.around if code.owner else self.scope
            scope = self._functions[code.node] = function_scope(code.node, around)
            arguments = [*code.node.args.posonlyargs, *code.node.args.args]
            if code.owner is not None and arguments and not _is_static(code.node):
                self._owners[scope.node] = code.owner
        return self._functions[code.node]

    def owner_of(self, scope: Scope) -> "Class | None":
        """The class whose method a scope is, if its first parameter is the object."""
        return self._owners.get(scope.node)

    def class_of(self, node: ast.ClassDef, body: Scope, around: Scope) -> Class:
        return self._classes.setdefault(node, Class(self, node, body, around))

    @property
    def package(self) -> str:
        """The package that the module lies in, which relative imports start from."""
        return self.module if is_package(self.path) else self.module.rpartition(".")[0]

    def imported_from(self, imported: Imported) -> str:
        """The full name of the module that a name is imported from; empty if it is outside of the package."""
        return absolute(imported.module, imported.level, self.package)


def _is_static(node: Function) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)


class Project:
    """Reads files by path or by module name.

    `shown` gives the name of a file in messages, and `most_tokens` bounds what one run parses. `texts` are files whose
    contents are given, such as those of an editor.
    """

    def __init__(
        self,
        shown: Callable[[str], str],
        roots: Iterable[str] = (),
        most_tokens: int = MOST_TOKENS_OF_PROJECT,
        texts: Mapping[str, bytes] | None = None,
    ) -> None:
        self._shown = shown
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
                given = read_regular(path, LARGEST_SEARCHED)
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
        return self._parsed(path, dotted.removesuffix(".__init__") if is_package(path) else dotted)

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
        if top == OURS and module.split(".")[1:2] != ["tools"]:
            return None
        if not self.has(top) or not all(map(str.isidentifier, module.split("."))):
            return None
        for root, only in self._roots.items():
            if only is not None and top not in only:
                continue
            path = next(filter(os.path.isfile, module_files(root, module)), None)
            if path is not None:
                found = self._parsed(path, module)
                return found if isinstance(found, SourceFile) else None
        return None

    def _parsed(self, path: str, module: str) -> SourceFile | Problem:
        real = os.path.realpath(path)
        if real not in self._files:
            self._files[real] = self._file(path, module)
        return self._files[real]

    def _file(self, path: str, module: str) -> SourceFile | Problem:
        shown = self._shown(path)
        data = self._given.get(path) or read_bytes(path, shown)
        if isinstance(data, Problem):
            return data
        if not self._fits(data):
            found, most = "more source than one run reads", f"at most {self._most} tokens of tools and helpers"
            return Problem(Origin(shown, 1, 1), found, most, "name fewer files", "warning")
        text = parse(data, shown)
        return text if isinstance(text, Problem) else SourceFile(path, module, text, self)

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


def module_files(directory: str, dotted: str) -> Iterator[str]:
    """The files in which a module may be: that of a package, and that of a module alone.

    The dotted name is made of identifiers, so no part of it is `..` or has a slash.
    """
    below = os.path.join(directory, *dotted.split("."))
    yield os.path.join(below, "__init__.py")
    yield f"{below}.py"


def is_package(file: str) -> bool:
    """Whether a file is the module of a package."""
    return os.path.basename(file) == "__init__.py"


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
