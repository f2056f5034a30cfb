"""The arguments of a tool: which parameter is the context, and the JSON Schema of all others from their type hints.

pydantic is loaded when a schema or a validator is first asked for, not when a tool is declared.
"""

import ast
import inspect
import itertools
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from licet.core.canonical import canonical_json
from licet.declare.context import Context
from licet.declare.json_data import MOST_UNITS, PLAIN, TooLarge, check_bounded, is_finite, is_heavy, json_core
from licet.declare.sync_context import SyncContext

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_CONTEXTS: dict[str, type] = {"Context": Context, "SyncContext": SyncContext}
_DEFINITIONS = "#/$defs/"
_HOLD_SCHEMAS = ("properties", "patternProperties", "dependentSchemas")
MOST_ARGUMENTS = 1 << 20
MOST_COMPLAINTS = 8
_MOST_TOLD = 100  # problems with arguments; of more than that, each would cost more than it helps
_LONGEST_NAME = 80
_N, _I = b"NI"  # how NaN and Infinity begin; one byte is looked for in no time
_LONGEST_COMPLAINT = 200
_TOO_MANY = "expected fewer values in the arguments: they would delay other calls"
_NESTED = frozenset((dict, list, tuple))
_DEEPEST = 300  # what is nested deeper than that cannot be written as JSON here
_HOLD_VALUES = ("const", "default", "enum", "examples")
_SIMPLE = (str, int, float, bool, type(None), list, dict, Any)


def context_parameter(fn: Callable[..., Any]) -> str | None:
    """The name of the parameter that takes the context; `TypeError` if the signature is none a tool can have."""
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


class ArgumentSchema(Mapping[str, Any]):
    """The JSON Schema of a function's arguments, worked out when first looked at."""

    __slots__ = ("_context", "_fn", "_text")

    def __init__(self, fn: Callable[..., Any], context: str | None) -> None:
        self._fn = fn
        self._context = context
        self._text = ""

    def _read(self) -> dict[str, Any]:
        # Kept as text and read anew each time: what someone does to a copy does not reach the digest.
        self._text = self._text or _schema_text(self._fn, self._context)
        schema: dict[str, Any] = json.loads(self._text)
        return schema

    def __getitem__(self, key: str) -> Any:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self._read(),)


class InvalidArguments(ValueError):
    """Arguments that do not fit a tool's type hints: each with its name and what was expected, never its value."""


class Given(dict[str, Any]):
    """Arguments as hints have made them, with the JSON that they were made of: what says it all to another process."""

    __slots__ = ("anew", "sent")

    def __init__(self, arguments: dict[str, Any], sent: bytes, anew: frozenset[str] = frozenset()) -> None:
        super().__init__(arguments)
        self.sent = sent
        self.anew = anew  # parameters that a function makes a default for, perhaps another one each time


def validator(fn: Callable[..., Any], context: str | None) -> Callable[[object], dict[str, Any]]:
    """A function that turns what a caller sent into a tool's arguments, or raises `InvalidArguments`.

    Where hints make more of them than JSON can say, they are `Given`.
    """
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import PydanticSerializationError

    # Through JSON and strictly: a text that only looks like a number stays a text, so a rule on the one is a rule on
    # the other, and what the caller keeps a reference to is not what the tool gets.
    made: Any = stand_in(fn, context)
    adapter = TypeAdapter(made)
    parse = adapter.validator.validate_json
    anew = frozenset(one["name"] for one in parameters_of(adapter)[0] if "default_factory" in one["schema"])
    fixed = (one.default for one in inspect.signature(made).parameters.values() if one.default is not one.empty)
    rich = bool(anew) or not (all(map(_is_simple, made.__annotations__.values())) and all(map(is_plain, fixed)))
    encode = json_core().to_json

    def validate(given: object) -> dict[str, Any]:
        if type(given) is not dict and not isinstance(given, Mapping):
            raise InvalidArguments(f"expected arguments by name, found {type(given).__name__}")
        _check_size(given)
        try:
            plain = given if type(given) is dict else dict(given)
            check_bounded(plain, MOST_ARGUMENTS)
        except TooLarge:
            raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found more") from None
        except ValueError as error:
            raise InvalidArguments(f"expected arguments that JSON can carry, found {error}") from error
        try:
            text = encode(plain, inf_nan_mode="constants")
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise InvalidArguments("expected arguments that JSON can carry") from error
        if len(text) > MOST_ARGUMENTS:
            raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found {len(text)}")
        if is_heavy(text):
            raise InvalidArguments(_TOO_MANY)
        if (_N in text or _I in text) and not is_finite(text):
            raise InvalidArguments("expected numbers that JSON can carry: NaN and infinities are none")
        try:
            arguments: dict[str, Any] = parse(text, strict=True)
        except ValidationError as error:
            if error.error_count() > _MOST_TOLD:
                raise InvalidArguments(f"found {error.error_count()} values that do not fit") from None
            found = error.errors(include_url=False, include_input=False, include_context=False)
            raise InvalidArguments("; ".join(map(_complaint, found[:MOST_COMPLAINTS]))) from error
        return Given(arguments, text, anew) if rich else arguments

    return validate


def _check_size(given: Mapping[str, Any]) -> None:
    """Refuse plain data that is surely too much, level by level and before anything is made of it."""
    left, units, level = MOST_ARGUMENTS, MOST_UNITS, [*given.values()]
    for _ in range(_DEEPEST):
        left -= sum(map(len, [value for value in level if type(value) is str or type(value) is bytes]))
        inner = [value for value in level if type(value) in _NESTED]
        values = sum(map(len, inner))
        left -= 2 * values  # each of them, and what stands between it and the next
        units -= values + 4 * len(inner)
        if left < 0:
            raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found more")
        if units < 0:
            raise InvalidArguments(_TOO_MANY)
        if not inner:
            return
        level = [*itertools.chain.from_iterable(inner), *itertools.chain.from_iterable(map(dict.values, _dicts(inner)))]


def _dicts(values: list[Any]) -> list[dict[Any, Any]]:
    return [value for value in values if type(value) is dict]


def _is_simple(hint: Any) -> bool:
    """Whether values of a type are exactly what their JSON says."""
    if hint in _SIMPLE:
        return True
    origin, held = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return all(type(word) in _SIMPLE for word in held)
    if origin is dict:
        return held[0] is str and _is_simple(held[1])
    return origin in (list, typing.Union, types.UnionType) and all(map(_is_simple, held))


def is_plain(value: Any) -> bool:
    """Whether a value is what its JSON says, so that nothing has to be made of it again."""
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
    """What pydantic knows of the parameters of a function, and the definitions that they refer to."""
    schema, known = adapter.core_schema, {}
    if schema["type"] == "definitions":
        known = {held["ref"]: held for held in schema["definitions"]}
        schema = schema["schema"]
    return schema["arguments_schema"]["arguments_schema"], known


def _complaint(error: Any) -> str:
    where = _cut(".".join(_cut(str(part), _LONGEST_NAME) for part in error["loc"]), _LONGEST_COMPLAINT)
    match error["type"]:
        case "missing_keyword_only_argument":
            said = "is required"
        case "unexpected_keyword_argument":
            said = "is not an argument of this tool"
        case _:
            said = _cut(error["msg"][:1].lower() + error["msg"][1:], _LONGEST_COMPLAINT)
    return f"`{where}` {said}" if where else said


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _resolved(fn: Callable[..., Any], annotation: Any) -> Any:
    """An annotation as a type; what names nothing known yet, as a syntax tree."""
    try:
        return _hints(fn, {"it": annotation})["it"]
    except Exception:  # evaluating a hint runs whatever it says; the schema will tell what is wrong with it
        return _tree(annotation) if isinstance(annotation, str) else annotation


def _hints(fn: Callable[..., Any], annotations: dict[str, Any]) -> dict[str, Any]:
    def holder() -> None: ...

    holder.__annotations__ = annotations
    return typing.get_type_hints(holder, globalns=inspect.unwrap(fn).__globals__, include_extras=True)


def _tree(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _is_context(annotation: Any) -> bool:
    match annotation:
        # Behind `if TYPE_CHECKING:` the name is all there is.
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


def _schema_text(fn: Callable[..., Any], context: str | None) -> str:
    """The schema as JSON, without anything that depends on where the function is defined."""
    try:
        schema = _Tidy(_generate(stand_in(fn, context))).schema
        canonical_json(schema)  # what has no canonical form (infinities, huge numbers) would have no digest
        return json.dumps(schema)
    except NameError as error:
        fix = "import it in the module itself, not in a function and not behind `if TYPE_CHECKING:`"
        raise TypeError(f"the type hints of `{fn.__name__}` cannot be resolved: {error}; {fix}") from error
    except Exception as error:
        said = str(error).partition("\n")[0]
        fix = "use types that JSON can carry, or pydantic models of them"
        raise TypeError(f"the arguments of `{fn.__name__}` have no JSON Schema: {said}; {fix}") from error


def stand_in(fn: Callable[..., Any], context: str | None) -> Callable[..., Any]:
    """A function with the same parameters by name, but the context, and with their types instead of text."""
    signature = inspect.signature(fn)
    taken = [parameter for name, parameter in signature.parameters.items() if name != context]
    written = {
        parameter.name: parameter.annotation for parameter in taken if parameter.annotation is not parameter.empty
    }
    hints = _hints(fn, written)

    def arguments(**given: Any) -> dict[str, Any]:
        return given

    arguments.__annotations__ = {parameter.name: hints.get(parameter.name, Any) for parameter in taken}
    by_name = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=arguments.__annotations__[parameter.name])
        for parameter in taken
    ]
    vars(arguments)["__signature__"] = signature.replace(parameters=by_name, return_annotation=dict[str, Any])
    return arguments


def _generate(stand_in: Any) -> dict[str, Any]:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class InOrder(GenerateJsonSchema):
        """Defaults that are sets come out sorted: their own order differs from process to process."""

        ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012

        def encode_default(self, dft: Any) -> Any:
            return super().encode_default(_ordered(dft))

    return TypeAdapter(stand_in).json_schema(schema_generator=InOrder)


def _ordered(value: Any) -> Any:
    match value:
        case set() | frozenset():
            return sorted(map(_ordered, value), key=lambda item: (type(item).__name__, repr(item)))
        case dict():
            return {key: _ordered(item) for key, item in value.items()}
        case list() | tuple():
            return list(map(_ordered, value))
        case _:
            return value


class _Tidy:
    """A schema without what was made up from places and names: titles, and definitions named after their module."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._definitions = schema.pop("$defs", {})
        self._names: dict[str, str] = {}
        self._kept: dict[str, Any] = {}
        self.schema = self._tidy(schema)
        if self._kept:
            self.schema["$defs"] = self._kept

    def _tidy(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._tidy(item) for item in node]
        if not isinstance(node, dict):
            return node
        return {key: self._value(key, value) for key, value in node.items() if key != "title"}

    def _value(self, key: str, value: Any) -> Any:
        if key in _HOLD_VALUES:
            return value
        if key in _HOLD_SCHEMAS:  # the keys of these are names of the author's choosing, `title` among them
            return {name: self._tidy(held) for name, held in value.items()}
        if key == "required":  # a set; parameters in another order are the same tool
            return sorted(value)
        if key == "$ref":
            return self._reference(value)
        if key == "discriminator":
            mapping = {word: self._reference(target) for word, target in value.get("mapping", {}).items()}
            return {**value, "mapping": mapping}
        return self._tidy(value)

    def _reference(self, target: str) -> str:
        key = target.removeprefix(_DEFINITIONS)
        if key not in self._names:
            # Of two that share a name pydantic writes `package__module__Name`.
            plain = key.rpartition("__")[2] or key
            taken = self._names.values()
            name = next(name for n in itertools.count(1) if (name := plain if n == 1 else f"{plain}{n}") not in taken)
            self._names[key] = name
            self._kept[name] = self._tidy(self._definitions[key])
        return _DEFINITIONS + self._names[key]
