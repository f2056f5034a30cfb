"""Finds the text that an expression begins with, from literals, constants and joined paths in the source.

Work is bounded: names are followed for a few steps only, each name is evaluated once, and long texts are cut.
"""

import ast
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

_HOPS = 8  # names and operators from an expression to a literal
_LONGEST = 1000  # characters of a text
_PLACES = {"pathlib.Path.home": "~", "pathlib.Path.cwd": "${workdir}", "os.getcwd": "${workdir}"}
_SAME_TEXT = ("str", "os.path.expanduser", "os.path.abspath", "os.fspath", "urllib.request.Request")
_JOINING = ("pathlib.Path", "pathlib.PurePath", "os.path.join")


class TextPrefix(Struct, frozen=True):
    """The text that an expression begins with. `complete` is whether this is the whole text."""

    text: str
    complete: bool


class ExpressionValues:
    """The values of expressions in one scope, as far as the source shows them.

    `names` has the expression of each name that is bound once, and `dotted` gives the full name of an expression.
    """

    def __init__(self, names: Mapping[str, ast.expr], dotted: Callable[[ast.AST], str]) -> None:
        self._names, self._dotted = names, dotted
        self._prefixes: dict[str, TextPrefix | None] = {}

    def followed(self, node: ast.expr | None) -> ast.expr | None:
        """The expression that a name is bound to, if it is bound once; any other expression is returned as it is."""
        for _ in range(_HOPS):
            if not isinstance(node, ast.Name) or node.id not in self._names:
                break
            node = self._names[node.id]
        return node

    def prefix_of(self, node: ast.expr | None, hops: int = _HOPS) -> TextPrefix | None:
        """The text that the value of an expression begins with; None if nothing is known about it."""
        if not hops:
            return None
        match node:
            case ast.Constant(value=str(text)):
                return TextPrefix(text[:_LONGEST], len(text) <= _LONGEST)
            case ast.JoinedStr(values=values):
                return self._joined_prefix(values, "", hops)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.prefix_of(value, hops - 1)
            case ast.BinOp(op=ast.Add() | ast.Div() as op):
                return self._joined_prefix(_operands(node, type(op)), "/" if isinstance(op, ast.Div) else "", hops)
            case ast.Name(id=name) if name in self._names:
                if name not in self._prefixes:
                    self._prefixes[name] = None  # during the evaluation, since a name may be bound to itself
                    self._prefixes[name] = self.prefix_of(self._names[name], hops - 1)
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
            if found is None or not found.complete or len(text) > _LONGEST:
                return TextPrefix(text[:_LONGEST], False)
        return TextPrefix(text, True)


def _operands(node: ast.BinOp, kind: type[ast.operator]) -> list[ast.expr]:
    """The operands of a chain such as `a + b + c`, without recursion: its syntax tree is as deep as it is long."""
    right: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, kind):
        right.append(left.right)
        left = left.left
    return [left, *reversed(right)]
