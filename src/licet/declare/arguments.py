"""Finds the context parameter of a tool, and validates the arguments of a call by the type hints.

pydantic is imported when a validator is first used, not when a tool is declared.
"""

import ast
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from licet.declare.argument_schema import stand_in, type_hints
from licet.declare.context import Context
from licet.declare.patience import leave_loop
from licet.declare.plain_json import (
    MOST_UNITS,
    PLAIN,
    DataTooLarge,
    check_bounded,
    is_finite,
    is_heavy,
    json_core,
    plain_data,
)
from licet.declare.sync_context import SyncContext
from licet.declare.union_cost import explodes

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_CONTEXTS: dict[str, type] = {"Context": Context, "SyncContext": SyncContext}
MOST_ARGUMENTS = 1 << 20
MOST_COMPLAINTS = 8
_MOST_LISTED = 100  # errors; if there are more, only their number is reported, because each takes time
_LONGEST_NAME = 80
_N, _I = b"NI"  # the first bytes of NaN and Infinity; searching for one byte is fast
_LONGEST_COMPLAINT = 200
_MOST_IN_LOOP = 10_000  # units of arguments that are checked in the event loop
_MOST_TYPED = 40_000  # units of arguments that are converted one by one: these take up to ten times as long
_TOO_MANY = "expected fewer values in the arguments: they would delay other calls"
_NESTED = frozenset((dict, list, tuple))
_DEEPEST = 300  # levels of nesting; more cannot be written as JSON here
_SIMPLE = (str, int, float, bool, type(None), list, dict, Any)


def context_parameter(fn: Callable[..., Any]) -> str | None:
    """The name of the context parameter, or None; `TypeError` if a tool cannot have this signature."""
    found: list[str] = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind not in _BY_NAME:
            raise TypeError(
                f"`{fn.__name__}` takes `{parameter}` by position or under any name: "
                "each argument of a tool is passed by a name of its own"
            )
        if parameter.annotation is parameter.empty and parameter.name in ("ctx", "context"):
            raise TypeError(f"`{fn.__name__}` has `{parameter.name}` without a type: write `{parameter.name}: Context`")
        if _is_context(_resolved(fn, parameter.annotation)):
            found.append(parameter.name)
    if len(found) > 1:
        raise TypeError(f"`{fn.__name__}` takes the context twice: keep one of `{'`, `'.join(found)}`")
    return found[0] if found else None


class InvalidArguments(ValueError):
    """Arguments do not fit the type hints of a tool. The text names them and what was expected, never a value."""


class ValidatedArguments(dict[str, Any]):
    """Converted arguments, with the JSON from which another process can convert them again."""

    __slots__ = ("anew", "sent")

    def __init__(self, arguments: dict[str, Any], sent: bytes, anew: frozenset[str] = frozenset()) -> None:
        super().__init__(arguments)
        self.sent = sent
        self.anew = anew  # parameters with a `default_factory`, which may make another value each time


def validator(fn: Callable[..., Any], context: str | None) -> Callable[[object], dict[str, Any]]:
    """A function that checks and converts the arguments of a call, or raises `InvalidArguments`.

    The result is a `ValidatedArguments` if a type hint makes a value that JSON cannot express.
    """
    from pydantic import TypeAdapter, ValidationError

    # Through JSON, so that the tool gets a copy. Strictly, so that a text that looks like a number stays a text, and a
    # rule on the sent value also holds for the converted one.
    made: Any = stand_in(fn, context)
    adapter = TypeAdapter(made)
    parse = adapter.validator.validate_json
    anew = frozenset(one["name"] for one in parameters_of(adapter)[0] if "default_factory" in one["schema"])
    fixed = (one.default for one in inspect.signature(made).parameters.values() if one.default is not one.empty)
    typed = any(hint not in _SIMPLE for hint in made.__annotations__.values())
    too_many = explodes(adapter.core_schema)
    rich = bool(anew) or not (all(map(_is_simple, made.__annotations__.values())) and all(map(is_plain, fixed)))

    def validate(given: object) -> dict[str, Any]:
        text = checked_json(given)
        if typed and is_heavy(text, _MOST_TYPED):
            raise InvalidArguments(_TOO_MANY)
        if too_many is not None and too_many(plain_data(text)):
            raise InvalidArguments("expected less nesting: there are too many ways to read it")
        try:
            arguments: dict[str, Any] = parse(text, strict=True)
        except ValidationError as error:
            if error.error_count() > _MOST_LISTED:
                raise InvalidArguments(f"found {error.error_count()} values that do not fit") from None
            found = error.errors(include_url=False, include_input=False, include_context=False)
            raise InvalidArguments("; ".join(map(_complaint, found[:MOST_COMPLAINTS]))) from error
        return ValidatedArguments(arguments, text, anew) if rich else arguments

    return validate


def checked_json(given: object) -> bytes:
    """The JSON of arguments; `InvalidArguments` if they are no mapping, too large, or nothing that JSON can carry."""
    if type(given) is not dict and not isinstance(given, Mapping):
        raise InvalidArguments(f"expected arguments by name, found {type(given).__name__}")
    if _check_size(given) > _MOST_IN_LOOP:
        leave_loop()
    try:
        plain = given if type(given) is dict else dict(given)
        check_bounded(plain, MOST_ARGUMENTS)
    except DataTooLarge:
        raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found more") from None
    except ValueError as error:
        raise InvalidArguments(f"expected arguments that JSON can carry, found {error}") from error
    try:
        text: bytes = json_core().to_json(plain, inf_nan_mode="constants")
    except (ValueError, RecursionError) as error:
        raise InvalidArguments("expected arguments that JSON can carry") from error
    if len(text) > MOST_ARGUMENTS:
        raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found {len(text)}")
    if is_heavy(text):
        raise InvalidArguments(_TOO_MANY)
    if (_N in text or _I in text) and not is_finite(text):
        raise InvalidArguments("expected numbers that JSON can carry: NaN and infinities are none")
    return text


def _check_size(given: Mapping[str, Any]) -> int:
    """Refuse data that is too large, level by level, before it is converted to JSON. Returns its units."""
    left, units, level = MOST_ARGUMENTS, MOST_UNITS, [*given.values()]
    for _ in range(_DEEPEST):
        left -= sum(map(len, [value for value in level if type(value) is str or type(value) is bytes]))
        inner = [value for value in level if type(value) in _NESTED]
        values = sum(map(len, inner))
        left -= 2 * values  # one byte for each value, and one for the comma
        units -= values + 4 * len(inner)
        if left < 0:
            raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found more")
        if units < 0:
            raise InvalidArguments(_TOO_MANY)
        if not inner:
            break
        level = [*itertools.chain.from_iterable(inner), *itertools.chain.from_iterable(map(dict.values, _dicts(inner)))]
    return MOST_UNITS - units


def _dicts(values: list[Any]) -> list[dict[Any, Any]]:
    return [value for value in values if type(value) is dict]


def _is_simple(hint: Any) -> bool:
    """Whether values of a type equal their JSON."""
    if hint in _SIMPLE:
        return True
    origin, held = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return all(type(word) in _SIMPLE for word in held)
    if origin is dict:
        return held[0] is str and _is_simple(held[1])
    return origin in (list, typing.Union, types.UnionType) and all(map(_is_simple, held))


def is_plain(value: Any) -> bool:
    """Whether a value equals its JSON, so that a worker need not convert it again."""
    kind = type(value)
    if kind in PLAIN:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not (type(item) in PLAIN or is_plain(item)):
                return False
        return True
    if kind is list:
        return all(map(is_plain, value))
    return kind is float and isfinite(value)


def parameters_of(adapter: Any) -> tuple[list[Any], dict[str, Any]]:
    """The pydantic schema of the parameters of a function, and the definitions that it refers to."""
    schema, known = adapter.core_schema, {}
    if schema["type"] == "definitions":
        known = {held["ref"]: held for held in schema["definitions"]}
        schema = schema["schema"]
    return schema["arguments_schema"]["arguments_schema"], known


def _complaint(error: Any) -> str:
    where = _cut(".".join(_cut(str(part), _LONGEST_NAME) for part in error["loc"]), _LONGEST_COMPLAINT)
    match error["type"]:
        case "missing_keyword_only_argument":
            problem = "is required"
        case "unexpected_keyword_argument":
            problem = "is not an argument of this tool"
        case _:
            problem = _cut(error["msg"][:1].lower() + error["msg"][1:], _LONGEST_COMPLAINT)
    return f"`{where}` {problem}" if where else problem


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _resolved(fn: Callable[..., Any], annotation: Any) -> Any:
    """An annotation as a type, or as a syntax tree if it names something that is not defined yet."""
    try:
        return type_hints(fn, {"it": annotation})["it"]
    except Exception:  # evaluating a hint can raise anything; making the schema reports the error
        return _tree(annotation) if isinstance(annotation, str) else annotation


def _tree(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _is_context(annotation: Any) -> bool:
    match annotation:
        # A name imported under `if TYPE_CHECKING:` cannot be resolved, so compare the name itself.
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _CONTEXTS
        case ast.BinOp(left=left, right=right, op=ast.BitOr()):
            return _is_context(left) or _is_context(right)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            arms = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            arms = arms[:1] if name == "Annotated" else arms
            return name in ("Annotated", "Optional", "Union") and any(map(_is_context, arms))
        case ast.Constant(value=str(text)) | typing.ForwardRef(__forward_arg__=text):
            return _is_context(_tree(text))
    origin, held = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _is_context(held[0])
    if origin in (typing.Union, types.UnionType):
        return any(map(_is_context, held))
    return any(kind in getattr(annotation, "__mro__", ()) for kind in _CONTEXTS.values())
