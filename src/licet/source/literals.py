"""Evaluates the literals in a declaration from its source: constants, names that are bound once, constructors of licet.

The source is not run. A name that is bound again is noticed only if the source shows it (a second binding, `global`, a
method call on a list). The gate checks a tool again when the program registers it.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from msgspec import Struct

from licet.core.algebra.rules import Capability, destination_rule
from licet.core.algebra.scope import Malformed, binary, path_key, variable, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.tool import ToolCapabilities
from licet.source.limits import (
    CHARACTERS_PER_VALUE,
    LONGEST_CHAIN,
    LONGEST_NUMBER,
    LONGEST_TEXT,
    MOST_STEPS_TO_TEXT,
    MOST_VALUES,
    MOST_VALUES_IN_FILE,
)
from licet.source.scopes import IMPORT, Binding, Function, Imported, bound_by, module_level, with_parents
from licet.source.source_files import SourceText

TOOL = "licet.tool"
WASM = "licet.Tool.wasm"
GOVERNED = "licet.adapters.governed"

_FRONT_DOORS = ("licet", "licet.declare")
_STAR_NAMES = ("tool", "Tool", "ToolCapabilities", "Capability", "CapabilitySet", "Context", "SyncContext")
# Constructors that may be called. Nothing that a file under review defines is ever called.
_CONSTRUCTORS: dict[str, Any] = {
    "licet.ToolCapabilities": ToolCapabilities,
    "licet.ToolCapabilities.Network": ToolCapabilities.Network,
    "licet.ToolCapabilities.Storage": ToolCapabilities.Storage,
    "licet.ToolCapabilities.FsReach": ToolCapabilities.FsReach,
    "licet.ToolCapabilities.Process": ToolCapabilities.Process,
    "licet.Capability": Capability,
    "licet.CapabilitySet": CapabilitySet,
    "decimal.Decimal": Decimal,
}


# All prefixes of the dotted names above; other names do not matter here.
_KNOWN_PREFIXES = frozenset(
    beginning
    for known in (TOOL, WASM, GOVERNED, *_CONSTRUCTORS)
    for dotted in (known, known.replace("licet.", "licet.declare.", 1))
    for beginning in with_parents(dotted)
)


class NotLiteral(Exception):
    """An expression whose value is not known without running the code."""

    def __init__(self, node: ast.AST, found: str) -> None:
        self.node, self.found = node, found
        super().__init__(found)


class TooManyValues(Exception):
    """More values in one file than the limit; `node` is where it was exceeded."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node
        super().__init__(f"more than {MOST_VALUES_IN_FILE} values")


class _TooMany(Exception):
    """More values in one argument than the limit."""


class Names:
    """The names of one module. `top` are the nodes at module level, outside functions and classes."""

    def __init__(self, text: SourceText) -> None:
        self._text = text
        self.top = tuple(module_level(text.tree))
        self._bindings: dict[str, list[Binding]] = {}
        for name, binding in (every for node in self.top for one in bound_by(node) for every in _with_stars(*one)):
            self._bindings.setdefault(name, []).append(binding)
        self._global_names = {name for node in text.nodes if isinstance(node, ast.Global) for name in node.names}
        self._meaning_cache: dict[str, frozenset[str]] = {}
        self._excerpts: dict[ast.expr, str] = {}
        self._left = MOST_VALUES_IN_FILE

    def bindings(self, name: str) -> list[Binding]:
        return self._bindings.get(name, [])

    def by_name(self) -> dict[str, list[Binding]]:
        return self._bindings

    def of_licet(self) -> frozenset[str]:
        """The names that may mean something of licet."""
        return frozenset(name for name in self._bindings if self._meanings(name) & _KNOWN_PREFIXES)

    def dotted(self, node: ast.AST) -> set[str]:
        """The full names that an expression such as `licet.tool` may have; several if it is bound more than once."""
        names = self._full_names(node)
        return names | {f"{name} assigned" for name in names if not self._assigned.isdisjoint(with_parents(name))}

    def _full_names(self, node: ast.AST) -> set[str]:
        tail: list[str] = []
        while isinstance(node, ast.Attribute) and len(tail) < LONGEST_CHAIN:
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return set()
        return {_public(".".join([start, *reversed(tail)])) for start in self._meanings(node.id)}

    @cached_property
    def _assigned(self) -> set[str]:
        """The names of licet that the file replaces in the module, as `licet.tool = other` does."""
        stores = (node for node in self._text.nodes if isinstance(node, ast.Attribute))
        return {name for node in stores if not isinstance(node.ctx, ast.Load) for name in self._full_names(node)}

    def _meanings(self, name: str) -> frozenset[str]:
        """The full names of a name. All that are not in `_KNOWN_PREFIXES` count as one, however many there are."""
        if name not in self._meaning_cache:
            found = set(self._every_meaning(name))
            known = found & _KNOWN_PREFIXES
            self._meaning_cache[name] = frozenset(known | set(sorted(found - known)[:1]))
        return self._meaning_cache[name]

    def _every_meaning(self, name: str) -> Iterator[str]:
        for binding in self.bindings(name):
            yield binding.what.dotted if isinstance(binding.what, Imported) else f"{name} itself"
        if name in self._global_names:
            yield f"{name} as `global`"
        if self._has_star_import:
            yield f"{name} from a star"

    def value(self, node: ast.expr) -> Any:
        """Evaluate a literal, a name that is bound once to a literal, or a known constructor; else `NotLiteral`."""
        try:
            return self._value(node, [MOST_VALUES])
        except RecursionError:
            raise NotLiteral(node, "names or values nested too deeply") from None
        except _TooMany:
            raise NotLiteral(node, f"more than {MOST_VALUES} values") from None
        except TooManyValues:
            raise TooManyValues(node) from None

    def excerpt(self, node: ast.expr) -> str:
        """The beginning of a piece of code on one line. It is cached, since many tools may share one expression."""
        if node not in self._excerpts:
            self._excerpts[node] = _excerpt(node, self._text.beginning(node))
        return self._excerpts[node]

    def _value(self, node: ast.expr, left: list[int]) -> Any:
        left[0] -= 1
        self._left -= 1
        if left[0] < 0:
            raise _TooMany
        if self._left < 0:
            raise TooManyValues(node)
        match node:
            case ast.Constant(value=int() as number) if number.bit_length() > LONGEST_NUMBER:
                raise NotLiteral(node, f"a number of {number.bit_length()} bits")
            case ast.Constant(value=value):
                self._left -= len(value) // CHARACTERS_PER_VALUE if isinstance(value, str | bytes) else 0
                return value
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float())):
                return ast.literal_eval(node)
            case ast.Tuple(elts=items):
                return tuple(self._value(item, left) for item in items)
            case ast.List(elts=items):
                return [self._value(item, left) for item in items]
            case ast.Set(elts=items):
                return self._set(node, [self._value(item, left) for item in items])
            case ast.Dict(keys=keys, values=values):
                return self._dict(keys, values, left)
            case ast.Name(id=name):
                return self._value(self._constant(name, node), left)
            case ast.Call():
                return self._constructed(node, left)
        raise NotLiteral(node, self.excerpt(node))

    def _set(self, node: ast.expr, items: list[Any]) -> frozenset[Any]:
        try:
            return frozenset(items)
        except TypeError:
            raise NotLiteral(node, f"{self.excerpt(node)}, a set of what cannot be in one") from None

    def _dict(self, keys: list[ast.expr | None], values: list[ast.expr], left: list[int]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if key is None:
                raise NotLiteral(value, f"`**` of {self.excerpt(value)}")
            word = self._value(key, left)
            if not isinstance(word, str) or word in made:
                again = "a second time" if isinstance(word, str) else "that is not text"
                raise NotLiteral(key, f"the key {self.excerpt(key)} {again}")
            made[word] = self._value(value, left)
        return made

    def _constant(self, name: str, node: ast.expr) -> ast.expr:
        bound = self.bindings(name)
        if len(bound) != 1 or not isinstance(bound[0].what, ast.expr):
            where = f" (bound {len(bound)} times in this file)" if len(bound) > 1 else ""
            raise NotLiteral(node, f"the name `{name}`{where}")
        mutable = isinstance(bound[0].what, ast.List | ast.Set | ast.Dict)
        if name in self._global_names or self._has_star_import or (mutable and name in self._escaping):
            raise NotLiteral(node, f"the name `{name}`, which other code in this file may change")
        return bound[0].what

    @cached_property
    def _has_star_import(self) -> bool:
        """Whether a star import may rebind any name. One from licet does not count, since its names are known."""
        return any(
            isinstance(node, ast.ImportFrom)
            and node.module not in _FRONT_DOORS
            and any(alias.name == "*" for alias in node.names)
            for node in self._text.nodes
        )

    @cached_property
    def _escaping(self) -> set[str]:
        """The names that are used outside of declarations, where code may change the list or dict they refer to."""
        unchanged = {*self._in_declarations(), *self._only_read()}
        # A name inside the literal of another name escapes if that other name does.
        holders: dict[ast.AST, str] = {}
        for name, bound in self._bindings.items():
            for binding in bound:
                if isinstance(binding.what, ast.List | ast.Set | ast.Dict | ast.Tuple):
                    holders |= dict.fromkeys(ast.walk(binding.what), name)
        escaping: set[str] = set()
        contained: dict[str, set[str]] = {}
        for node in self._text.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in unchanged:
                if node in holders:
                    contained.setdefault(holders[node], set()).add(node.id)
                else:
                    escaping.add(node.id)
        waiting = list(escaping)
        while waiting:
            further = contained.pop(waiting.pop(), set()) - escaping
            escaping |= further
            waiting += further
        return escaping

    def _in_declarations(self) -> Iterator[ast.expr]:
        """The names that are plain values in a declaration, which `tool` only reads.

        Declarations inside a function do not count, since `tool` may be another name there. Neither do other decorators
        and other code, which may change a value.
        """
        marks = [mark for node in self.top if isinstance(node, Function) for mark in node.decorator_list]
        modules = [bound.what for each in self._bindings.values() for bound in each]
        waiting: list[ast.expr] = [
            value
            for known, calls in ((TOOL, marks), (WASM, modules), (GOVERNED, modules))
            for call in calls
            if isinstance(call, ast.Call) and self.dotted(call.func) == {known}
            for value in (*call.args, *(keyword.value for keyword in call.keywords))
        ]
        while waiting:
            match waiting.pop():
                case ast.Name() as name:
                    yield name
                case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items) | ast.Dict(values=items):
                    waiting += items
                case ast.Call(func=func, args=items, keywords=keywords) if self.dotted(func) & _CONSTRUCTORS.keys():
                    waiting += (*items, *(keyword.value for keyword in keywords))

    def _only_read(self) -> Iterator[ast.expr]:
        """The names in expressions that change nothing: `x in NAME`, and `NAME[i]` of a list of constants."""
        for node in self._text.nodes:
            match node:
                case ast.Compare(ops=ops, comparators=others) if all(isinstance(op, ast.In | ast.NotIn) for op in ops):
                    yield from others
                case ast.Subscript(value=ast.Name(id=name) as value, ctx=ast.Load()) if len(self.bindings(name)) == 1:
                    bound = self.bindings(name)[0].what
                    if isinstance(bound, ast.List) and all(isinstance(item, ast.Constant) for item in bound.elts):
                        yield value

    def _constructed(self, node: ast.Call, left: list[int]) -> Any:
        known = self.dotted(node.func)
        constructor = _CONSTRUCTORS.get(next(iter(known))) if len(known) == 1 else None
        if constructor is None or any(keyword.arg is None for keyword in node.keywords):
            raise NotLiteral(node, f"a call, {self.excerpt(node)}")
        given = [self._value(item, left) for item in node.args]
        named = {keyword.arg: self._value(keyword.value, left) for keyword in node.keywords if keyword.arg}
        try:
            return constructor(*given, **named)
        except Malformed:
            raise
        except (TypeError, ArithmeticError, ValueError) as error:
            raise NotLiteral(node, f"a call that fails, {self.excerpt(node)} ({error})") from None


def _with_stars(name: str, binding: Binding) -> Iterator[tuple[str, Binding]]:
    """A binding; or one for each name of licet, if all of them are imported."""
    match name, binding.what:
        case "*", Imported(module, level, _) if module in _FRONT_DOORS:
            yield from ((one, Binding(binding.node, IMPORT, Imported(module, level, one))) for one in _STAR_NAMES)
        case _:
            yield name, binding


def _public(dotted: str) -> str:
    """The public name of a name: `licet.tool` for `licet.declare.tool`."""
    return dotted.replace("licet.declare.", "licet.", 1) if dotted.startswith("licet.declare.") else dotted


def _excerpt(node: ast.expr, beginning: str) -> str:
    """The beginning of a piece of code on one line; `beginning` is its source if it is long, else empty."""
    try:
        if isinstance(node, ast.JoinedStr):
            node = ast.JoinedStr(node.values[:30])  # more than is shown, since writing all of a long one is slow
        text = beginning or ast.unparse(node)
    except (RecursionError, ValueError):
        text = type(node).__name__
    text = visible(" ".join(text.split()))
    return f"`{text[:59]}…`" if len(text) > 60 else f"`{text}`"


_PLACES = {"pathlib.Path.home": "~", "pathlib.Path.cwd": "${workdir}", "os.getcwd": "${workdir}"}
_SAME_TEXT = ("str", "os.path.expanduser", "os.path.abspath", "os.fspath", "urllib.request.Request")
_JOINING = ("pathlib.Path", "pathlib.PurePath", "os.path.join")


class TextPrefix(Struct, frozen=True):
    """The text that an expression begins with. `complete` is whether this is the whole text."""

    text: str
    complete: bool


class ExpressionValues:
    """The values of expressions in one scope, as far as the source shows them.

    `bound` gives the expression of a name that is bound once, and `dotted` the full name of an expression.
    """

    def __init__(self, bound: Callable[[str], ast.expr | None], dotted: Callable[[ast.AST], str]) -> None:
        self._bound, self._dotted = bound, dotted
        self._prefixes: dict[str, TextPrefix | None] = {}

    def followed(self, node: ast.expr | None) -> ast.expr | None:
        """The expression that a name is bound to, if it is bound once; any other expression is returned as it is."""
        for _ in range(MOST_STEPS_TO_TEXT):
            if not isinstance(node, ast.Name) or (bound := self._bound(node.id)) is None:
                break
            node = bound
        return node

    def prefix_of(self, node: ast.expr | None, hops: int = MOST_STEPS_TO_TEXT) -> TextPrefix | None:
        """The text that the value of an expression begins with; None if nothing is known about it."""
        if not hops:
            return None
        match node:
            case ast.Constant(value=str(text)):
                return TextPrefix(text[:LONGEST_TEXT], len(text) <= LONGEST_TEXT)
            case ast.JoinedStr(values=values):
                return self._joined_prefix(values, "", hops)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.prefix_of(value, hops - 1)
            case ast.BinOp(op=ast.Add() | ast.Div() as op):
                return self._joined_prefix(_operands(node, type(op)), "/" if isinstance(op, ast.Div) else "", hops)
            case ast.Name(id=name):
                if name not in self._prefixes:
                    self._prefixes[name] = None  # during the evaluation, since a name may be bound to itself
                    self._prefixes[name] = self.prefix_of(self._bound(name), hops - 1)
                return self._prefixes[name]
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                found = self.prefix_of(value, hops - 1)
                return TextPrefix(found.text.partition("{")[0], False) if found else None
            case ast.Call(func=func, args=arguments):
                return self._call_prefix(self._dotted(func), arguments, hops)
        return None

    def _call_prefix(self, name: str, arguments: Sequence[ast.expr], hops: int) -> TextPrefix | None:
        if name in _PLACES:
            return TextPrefix(_PLACES[name], True)
        if name in _SAME_TEXT and arguments:
            return self.prefix_of(arguments[0], hops - 1)
        return self._joined_prefix(arguments, "/", hops) if name in _JOINING and arguments else None

    def _joined_prefix(self, parts: Sequence[ast.expr], between: str, hops: int) -> TextPrefix | None:
        text = ""
        for number, part in enumerate(parts):
            found = self.prefix_of(part, hops - 1)
            if found is None and not number:
                return None
            text += (between if number else "") + (found.text if found is not None else "")
            if found is None or not found.complete or len(text) > LONGEST_TEXT:
                return TextPrefix(text[:LONGEST_TEXT], False)
        return TextPrefix(text, True)


def _operands(node: ast.BinOp, kind: type[ast.operator]) -> list[ast.expr]:
    """The operands of a chain such as `a + b + c`, without recursion: its syntax tree is as deep as it is long."""
    right: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, kind):
        right.append(left.right)
        left = left.left
    return [left, *reversed(right)]


ANY = "*"  # the source does not show which one, so all that the manifest allows

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_HOST = re.compile(r"https?://([^/?#\s]*)([/?#]?)")


def host_scope(url: TextPrefix | None) -> str:
    """The host of a URL, with its port if it has one."""
    match = _HOST.match(url.text) if url else None
    if match and url and match[1] and "@" not in match[1] and (match[2] or url.complete):
        try:
            destination_rule(match[1])
        except Malformed:
            return ANY
        return match[1]
    return ANY


def path_scope(found: TextPrefix | None) -> str:
    """The scope to declare for a path. If only its beginning is known, it is the directory."""
    if found is None or not found.text:
        return ANY
    text = found.text if found.complete else found.text.rpartition("/")[0]
    if not text.startswith(("/", "~", "${workdir}")):
        if found.text.startswith("/"):
            return ANY  # only the root is known
        text = f"${{workdir}}/{text}" if text else "${workdir}"
    try:
        return path_key(text) or ANY
    except Malformed:
        return ANY


def program_scope(program: ast.expr | None, values: ExpressionValues) -> str:
    """The program that a command starts with; the command is a list, or the program alone."""
    while isinstance(program, ast.BinOp) and isinstance(program.op, ast.Add):
        program = program.left
    program = values.followed(program)
    if isinstance(program, ast.List | ast.Tuple) and program.elts:
        program = program.elts[0]
    found = values.prefix_of(program)
    if found and found.complete:
        try:
            return binary(found.text)
        except Malformed:
            return ANY
    return ANY


def variable_scope(name: TextPrefix | None) -> str:
    """The name of a variable."""
    if name is not None and name.complete:
        try:
            return variable(name.text)
        except Malformed:
            return ANY
    return ANY


def is_secret(variable_name: str) -> bool:
    """Whether the name of a variable says that its value is a secret."""
    return bool(_SECRET.search(variable_name))
