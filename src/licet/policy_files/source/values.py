"""The texts that expressions of a function begin with, as far as a file says: literals, constants, joined paths.

Work is bounded: each name is followed once, a few steps far, and long texts are cut.
"""

import ast
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from licet.policy_files.source.names import LONGEST_CHAIN, Function
from licet.policy_files.source.text import SourceText

_HOPS = 8  # from an expression to the literal that it stands for
_LONGEST = 1000  # characters of a text
_PLACES = {"pathlib.Path.home": "~", "pathlib.Path.cwd": "${workdir}", "os.getcwd": "${workdir}"}
_SAME_TEXT = ("str", "os.path.expanduser", "os.path.abspath", "os.fspath")
_JOINING = ("pathlib.Path", "pathlib.PurePath", "os.path.join")


class Beginning(Struct, frozen=True):
    """The text that an expression begins with, and whether that is all of it."""

    text: str
    whole: bool

    @property
    def is_url(self) -> bool:
        """Whether it is the beginning of a web address."""
        return self.text.startswith(("http://", "https://"))


class SourceNames:
    """What the imported names and the constants of a module stand for."""

    def __init__(self, text: SourceText) -> None:
        self.imported: dict[str, str] = {}
        for node in text.nodes:
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        top = alias.name if alias.asname else alias.name.partition(".")[0]
                        self.imported[alias.asname or top] = top
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    self.imported |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
        self.constants = _assigned(text.tree.body)

    def dotted(self, node: ast.AST) -> str:
        """The full name of an expression such as `sp.run`, or nothing."""
        tail: list[str] = []
        while isinstance(node, ast.Attribute) and len(tail) < LONGEST_CHAIN:
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.imported.get(node.id, node.id), *reversed(tail)])


class FunctionValues:
    """What the expressions of one function stand for, as far as its text tells."""

    def __init__(self, function: Function, module: SourceNames) -> None:
        self.module = module
        nodes = list(ast.walk(function))
        self._calls = [node for node in nodes if isinstance(node, ast.Call)]
        self._names = {**module.constants, **_assigned(nodes)}
        arguments = function.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self._names.pop(one.arg, None)
        self._known: dict[str, Beginning | None] = {}

    @cached_property
    def has_urls(self) -> bool:
        """Whether some call in the function is given a web address that begins with a literal."""
        given = (self.beginning(argument) for call in self._calls for argument in call.args[:2])
        return any(found is not None and found.is_url for found in given)

    def followed(self, node: ast.expr | None) -> ast.expr | None:
        """What a name is bound to, if it is bound once; anything else stays what it is."""
        for _ in range(_HOPS):
            if not isinstance(node, ast.Name) or node.id not in self._names:
                break
            node = self._names[node.id]
        return node

    def is_text(self, node: ast.expr) -> bool:
        """Whether an expression is a text, rather than a path that is made of one."""
        return isinstance(self.followed(node), ast.Constant | ast.JoinedStr)

    def beginning(self, node: ast.expr | None, hops: int = _HOPS) -> Beginning | None:
        """The text that a value begins with, or None if nothing is known about it."""
        if not hops:
            return None
        match node:
            case ast.Constant(value=str(text)):
                return Beginning(text[:_LONGEST], len(text) <= _LONGEST)
            case ast.JoinedStr(values=values):
                return self._joined(values, "", hops)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.beginning(value, hops - 1)
            case ast.BinOp(op=ast.Add() | ast.Div() as op):
                return self._joined(_operands(node, type(op)), "/" if isinstance(op, ast.Div) else "", hops)
            case ast.Name(id=name) if name in self._names:
                if name not in self._known:
                    self._known[name] = None  # while it is looked at: it may be bound to itself
                    self._known[name] = self.beginning(self._names[name], hops - 1)
                return self._known[name]
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                found = self.beginning(value, hops - 1)
                return Beginning(found.text.partition("{")[0], False) if found else None
            case ast.Call(func=func, args=arguments):
                return self._made(self.module.dotted(func), arguments, hops)
        return None

    def _made(self, name: str, arguments: Sequence[ast.expr], hops: int) -> Beginning | None:
        if name in _PLACES:
            return Beginning(_PLACES[name], True)
        if name in _SAME_TEXT and arguments:
            return self.beginning(arguments[0], hops - 1)
        return self._joined(arguments, "/", hops) if name in _JOINING and arguments else None

    def _joined(self, parts: Sequence[ast.expr], between: str, hops: int) -> Beginning | None:
        text = ""
        for number, part in enumerate(parts):
            found = self.beginning(part, hops - 1)
            if found is None and not number:
                return None
            text += (between if number else "") + (found.text if found is not None else "")
            if found is None or not found.whole or len(text) > _LONGEST:
                return Beginning(text[:_LONGEST], False)
        return Beginning(text, True)


def _operands(node: ast.BinOp, kind: type[ast.operator]) -> list[ast.expr]:
    """The operands of a chain such as `a + b + c`, which is nested as deep as it is long."""
    right: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, kind):
        right.append(left.right)
        left = left.left
    return [left, *reversed(right)]


def _assigned(body: Sequence[ast.AST]) -> dict[str, ast.expr]:
    """Names that some statements bind once, and to what."""
    found: dict[str, list[ast.expr]] = {}
    for node in body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                found.setdefault(name, []).append(value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}
