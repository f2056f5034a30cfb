"""Finds the parts of an annotation that do more than name types: calls, and the values in `Annotated`."""

import ast

_LONGEST = 1000  # characters of an annotation in quotes


def evaluated_in(annotation: ast.expr) -> list[ast.expr]:
    """What an annotation evaluates besides naming types."""
    if isinstance(annotation, ast.Name):
        return []
    found: list[ast.expr] = []
    waiting: list[ast.expr] = [annotation]
    while waiting:
        match waiting.pop():
            case ast.Name() | ast.Attribute():
                pass
            case ast.BinOp(left=left, right=right):
                waiting += (left, right)
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                waiting += elts
            case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal")):
                pass
            case ast.Subscript(
                value=ast.Name(id="Annotated") | ast.Attribute(attr="Annotated"), slice=ast.Tuple(elts=[first, *values])
            ):
                waiting.append(first)
                found += values
            case ast.Subscript(value=value, slice=inner):
                waiting += (value, inner)
            case ast.Constant(value=str(text)) as quoted if "(" in text or "Annotated" in text:
                waiting += _unquoted(quoted, text)
            case ast.Constant():
                pass
            case other:
                found.append(other)
    return found


def _unquoted(quoted: ast.Constant, text: str) -> list[ast.expr]:
    """The expression in an annotation that is a string, at the place of the string."""
    if len(text) > _LONGEST:
        return []
    try:
        inner = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for part in ast.walk(inner):
        ast.copy_location(part, quoted)
    return [] if isinstance(inner, ast.Constant) else [inner]
