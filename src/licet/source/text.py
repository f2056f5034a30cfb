"""Reads a Python file and parses it to a syntax tree, or reports why that is not possible. Nothing is run.

A file under review may be hostile. So its kind, size, encoding and nesting are checked before it is parsed.
"""

import ast
import io
import os
import re
import tokenize
import warnings
from functools import cached_property

from msgspec import Struct

from licet.core.values import Origin, Problem
from licet.own_files import FileTooLarge, read_regular, size_text
from licet.source.imports import too_expensive_to_parse

MOST_BYTES = 512 << 10  # over ten thousand lines; the tree of a hostile file takes a thousand times its size
MOST_PARTS = 10_000  # of one f-string; some interpreters take quadratic time for it
LONGEST_EXCERPT = 500  # characters; several times what a message shows

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
# Characters that show text in another order than Python reads it ("trojan source"): embeddings, overrides, isolates.
_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")
_F_STRING = re.compile(
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
        return read_regular(path, MOST_BYTES)
    except FileTooLarge:
        return Problem(start, f"more than {MOST_BYTES} bytes", f"at most {size_text(MOST_BYTES)} of Python")
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        return Problem(start, f"no readable file ({getattr(error, 'strerror', None) or error})", "a Python file")


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
    for string in _F_STRING.finditer(text) if text.count("{") > MOST_PARTS else ():
        if string[0].count("{") > MOST_PARTS:
            line = len(_LINE_BREAK.findall(text, 0, string.start())) + 1
            column = string.start() - max(text.rfind(end, 0, string.start()) for end in "\r\n")
            found = f"an f-string of more than {MOST_PARTS} parts"
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
