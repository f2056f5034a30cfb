"""Reads the tools that a module declares as `NAME = Tool.wasm("file.wasm", …)`, from its source.

The module itself, a file next to the source, is read and hashed in a second step: source that stays the same may be
kept, and the module may change meanwhile.
"""

import ast
import inspect
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import Malformed
from licet.core.origin import Origin, Problem
from licet.core.policy.tool import ToolSpec
from licet.declare import Tool
from licet.declare.wasm import PYTHON, path_of, read_module, wasm_spec
from licet.policy_files.source.arguments import DeclarationForm, Given, malformed, not_literal, read_arguments
from licet.policy_files.source.names import WASM, Names, NotLiteral
from licet.policy_files.source.text import SourceText
from licet.regular_files import size_text

MOST_BYTES_IN_REVIEW = 256 << 20  # of all modules in one review
_LABEL = "`Tool.wasm`"
_FILE = "file"


class WasmFile(Struct, frozen=True):
    """The file of a module as a declaration names it, and where."""

    file: str
    origin: Origin


def _check(key: str, value: Any) -> None:
    stated = {} if key in ("capabilities", "needs") else {"needs": ()}
    wasm_spec(**{"file": "any.wasm", **stated, key: value})


_WASM = DeclarationForm(_LABEL, tuple(inspect.signature(Tool.wasm).parameters), _check)


class WasmCall(Struct, frozen=True, eq=False):
    """A name that a file binds to a call of `Tool.wasm`."""

    name: str
    call: ast.Call

    @property
    def lineno(self) -> int:
        """The first line of the call."""
        return self.call.lineno


def wasm_calls(names: Names) -> Iterator[WasmCall]:
    """The declarations of a file, without those inside functions and classes."""
    for name, bindings in names.by_name().items():
        for binding in bindings:
            call = binding.meaning
            if isinstance(call, ast.Call) and WASM in names.dotted(call.func):
                yield WasmCall(name, call)


def read_wasm(
    text: SourceText, names: Names, declaration: WasmCall
) -> tuple[ToolSpec | None, WasmFile | None, tuple[Problem, ...]]:
    """Read one declaration. If there is no spec, at least one problem is an error; the spec has no `source` yet."""
    name, call, origin = declaration.name, declaration.call, text.place(declaration.call)
    bound = _binding_problems(names, name, call, origin)
    given = read_arguments(text, names, call, name, _WASM, origin, bound, unnamed=1)
    file = _file(text, names, name, call, given)
    spec = None
    if given.sound and file is not None:
        try:
            spec = wasm_spec(**{**given.values, _FILE: file.file}, origin=origin)
        except Malformed as error:
            given.problems.append(malformed(origin, error))
    return spec, file, tuple(given.problems)


def _file(text: SourceText, names: Names, name: str, call: ast.Call, given: Given) -> WasmFile | None:
    """The file that a declaration names, as its first argument or as `file=`."""
    if _FILE in given.written:
        if call.args:
            found = f"`{_FILE}=` twice in {_LABEL} of `{name}`"
            given.problems.append(Problem(text.place(given.written[_FILE]), found, "it once"))
        value = given.values.get(_FILE)
        return WasmFile(value, text.place(given.written[_FILE])) if isinstance(value, str) else None
    if not call.args:
        expected = 'the path of a module, such as `Tool.wasm("count.wasm", …)`'
        given.problems.append(Problem(text.place(call), f"{_LABEL} of `{name}` without a file", expected))
        return None
    try:
        return WasmFile(path_of(names.value(call.args[0])), text.place(call.args[0]))
    except NotLiteral as error:
        given.problems.append(not_literal(text, name, _FILE, error))
    except Malformed as error:
        given.problems.append(malformed(text.place(call.args[0]), error))
    return None


def _binding_problems(names: Names, name: str, call: ast.Call, origin: Origin) -> Iterator[Problem]:
    """Problems because of which the running program might get another tool than the source shows."""
    if len(names.dotted(call.func)) > 1:
        found = f"{names.excerpt(call.func)} for `{name}`, a name that this file binds more than once"
        yield Problem(origin, found, "a name bound once, by its import from licet")
    if (count := len(names.bindings(name))) > 1:
        found = f"`{name}` bound {count} times in this file"
        yield Problem(origin, found, "one meaning of that name", "rename one, or declare `needs:` in licet.yaml")


class WasmFiles:
    """The modules of one review. Each file is read once, and their total size is bounded."""

    def __init__(self) -> None:
        self._hashes: dict[str, str | Malformed] = {}
        self._left = MOST_BYTES_IN_REVIEW

    def source(self, file: WasmFile, directory: str) -> str | Problem:
        """The hash of a module, or the problem; empty for the Python of licet."""
        if file.file == PYTHON:
            return ""
        path = os.path.join(directory, file.file)
        if path not in self._hashes:
            self._hashes[path] = self._hash(file.file, directory, path)
        found = self._hashes[path]
        return malformed(file.origin, found) if isinstance(found, Malformed) else found

    def _hash(self, file: str, directory: str, path: str) -> str | Malformed:
        with suppress(OSError, ValueError):  # reading it says what is wrong
            self._left -= os.stat(path).st_size
        if self._left < 0:
            most = f"at most {size_text(MOST_BYTES_IN_REVIEW)} of WebAssembly modules in one review"
            return Malformed(file, most, "name fewer of them with `from:`")
        try:
            return f"sha256:{read_module(file, directory).sha256}"
        except Malformed as wrong:
            return wrong
