"""Finds the context parameter of a tool, and validates the arguments of a call by the type hints.

pydantic is imported when a validator is first used, not when a tool is declared.

The JSON Schema of a tool's arguments, from the type hints of its function.

pydantic is imported when a schema is first used, not when a tool is declared.

Validated arguments as plain data, for the rules of the manifest, for approvers and for digests.

The type hints of a function can trim and convert what was sent, fill in defaults, and accept a value under an alias.
Rules must be checked against the values that the function gets, under the names that were sent. If a name cannot be
traced to one parameter, a rule on it is refused.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import types
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from licet.core.policy.argument_ties import ALSO
from licet.core.values import data_json
from licet.declare.check_cost import explodes, leave_loop
from licet.declare.context import Context, SyncContext
from licet.declare.plain_json import (
    MOST_UNITS,
    PLAIN,
    DataTooLarge,
    check_bounded,
    data_again,
    is_finite,
    is_heavy,
    is_short_and_plain,
    json_core,
    plain_data,
    plain_json,
)

if TYPE_CHECKING:
    from pydantic_core.core_schema import (
        ArgumentsParameter,
        ArgumentsV3Parameter,
        DataclassField,
        ModelField,
        TypedDictField,
    )

_DEFINITIONS = "#/$defs/"
_HOLD_SCHEMAS = ("properties", "patternProperties", "dependentSchemas")
_HOLD_VALUES = ("const", "default", "enum", "examples")


class SchemaText(Mapping[str, Any]):
    """A JSON Schema that is kept as text and parsed each time, so that a changed copy cannot change the digest."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def _read(self) -> dict[str, Any]:
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


class ArgumentSchema(SchemaText):
    """The JSON Schema of a function's arguments, computed when it is first used."""

    __slots__ = ("_context", "_fn")

    def __init__(self, fn: Callable[..., Any], context: str | None) -> None:
        super().__init__("")
        self._fn = fn
        self._context = context

    def _read(self) -> dict[str, Any]:
        self._text = self._text or _schema_text(self._fn, self._context)
        return super()._read()


def type_hints(fn: Callable[..., Any], annotations: dict[str, Any]) -> dict[str, Any]:
    def holder() -> None: ...

    holder.__annotations__ = annotations
    return typing.get_type_hints(holder, globalns=inspect.unwrap(fn).__globals__, include_extras=True)


def _schema_text(fn: Callable[..., Any], context: str | None) -> str:
    """The schema as JSON, without anything that depends on where the function is defined."""
    with explained(fn):
        schema = _Tidy(_generate(stand_in(fn, context))).schema
        data_json(schema)  # raises if it is no JSON, and so has no digest (infinities)
        return json.dumps(schema)


@contextmanager
def explained(fn: Callable[..., Any]) -> Iterator[None]:
    """Raise a `TypeError` that says what to write, where type hints have no JSON Schema."""
    try:
        yield
    except NameError as error:
        fix = "import it in the module itself, not in a function and not behind `if TYPE_CHECKING:`"
        raise TypeError(f"the type hints of `{fn.__name__}` cannot be resolved: {error}; {fix}") from error
    except Exception as error:
        line = str(error).partition("\n")[0]
        fix = "use types that JSON can carry, or pydantic models of them"
        raise TypeError(f"the arguments of `{fn.__name__}` have no JSON Schema: {line}; {fix}") from error


def stand_in(fn: Callable[..., Any], context: str | None) -> Callable[..., Any]:
    """A function with the same parameters as keywords, without the context, and with annotations resolved to types."""
    signature = inspect.signature(fn)
    taken = [parameter for name, parameter in signature.parameters.items() if name != context]
    written = {
        parameter.name: parameter.annotation for parameter in taken if parameter.annotation is not parameter.empty
    }
    hints = type_hints(fn, written)

    def arguments(**given: object) -> dict[str, Any]:
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
        """Sort defaults that are sets, since their order differs between processes."""

        ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012

        def encode_default(self, dft: Any) -> Any:
            return super().encode_default(_ordered(dft))

    return TypeAdapter(stand_in).json_schema(schema_generator=InOrder)


def schema_by_fields(made: Any, parameters: list[Any]) -> dict[str, Any]:
    """The JSON Schema of what a function gets: its parameters as they are sent, and in these the names of fields.

    A field with aliases can be sent under several names, but it is read under one; `ALSO` has the others.
    """
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class ByFields(GenerateJsonSchema):
        ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012

        def get_argument_name(self, argument: "ArgumentsParameter | ArgumentsV3Parameter") -> str:
            return sent_name(argument)

        def model_field_schema(self, schema: "ModelField") -> dict[str, Any]:
            return _also_named(super().model_field_schema(schema), schema.get("validation_alias"))

        def dataclass_field_schema(self, schema: "DataclassField") -> dict[str, Any]:
            return _also_named(super().dataclass_field_schema(schema), schema.get("validation_alias"))

        def typed_dict_field_schema(self, schema: "TypedDictField") -> dict[str, Any]:
            return _also_named(super().typed_dict_field_schema(schema), schema.get("validation_alias"))

    schema = TypeAdapter(made).json_schema(by_alias=False, schema_generator=ByFields)
    for one in parameters:
        name, held = sent_name(one), schema["properties"]
        held[name] = _also_named(held[name], [[one["name"]], *_choices(one.get("alias"))])
    return schema


def sent_name(parameter: Mapping[str, Any]) -> str:
    """The name of a parameter in the JSON Schema of its function."""
    alias = parameter.get("alias")
    return alias if isinstance(alias, str) else str(parameter["name"])


def _also_named(schema: dict[str, Any], alias: object) -> dict[str, Any]:
    return schema if alias is None else {**schema, ALSO: [str(part) for choice in _choices(alias) for part in choice]}


def _choices(alias: Any) -> list[list[Any]]:
    """The aliases in a schema of pydantic, each as a path: a name, a path, or several paths."""
    if alias is None or isinstance(alias, str):
        return [] if alias is None else [[alias]]
    return list(alias) if isinstance(alias[0], list) else [alias]


def _ordered(value: object) -> Any:
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
    """Removes generated titles from a schema, and module names from the names of its definitions."""

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
        if key in _HOLD_SCHEMAS:  # their keys are names that the author chose, perhaps `title`
            return {name: self._tidy(held) for name, held in value.items()}
        if key == "required":  # sorted, so that the order of parameters does not change the digest
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
            # If two definitions share a name, pydantic calls them `package__module__Name`.
            plain = key.rpartition("__")[2] or key
            taken = self._names.values()
            name = next(name for n in itertools.count(1) if (name := plain if n == 1 else f"{plain}{n}") not in taken)
            self._names[key] = name
            self._kept[name] = self._tidy(self._definitions[key])
        return _DEFINITIONS + self._names[key]


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
    if is_short_and_plain(given):
        return _encoded(msgspec.json.encode, given)
    if _check_size(given) > _MOST_IN_LOOP:
        leave_loop()
    try:
        plain = given if type(given) is dict else dict(given)
        check_bounded(plain, MOST_ARGUMENTS)
    except DataTooLarge:
        raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found more") from None
    except ValueError as error:
        raise InvalidArguments(f"expected arguments that JSON can carry, found {error}") from error
    text = _encoded(partial(json_core().to_json, inf_nan_mode="constants"), plain)
    if len(text) > MOST_ARGUMENTS:
        raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found {len(text)}")
    if is_heavy(text):
        raise InvalidArguments(_TOO_MANY)
    if (_N in text or _I in text) and not is_finite(text):
        raise InvalidArguments("expected numbers that JSON can carry: NaN and infinities are none")
    return text


def _encoded(encode: Callable[[object], bytes], given: object) -> bytes:
    try:
        return encode(given)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments("expected arguments that JSON can carry") from error


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


def _is_simple(hint: object) -> bool:
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


def _complaint(error: Mapping[str, Any]) -> str:
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


def _resolved(fn: Callable[..., Any], annotation: object) -> Any:
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


def _is_context(annotation: object) -> bool:
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


_PLAIN = (str, int, float, bool, type(None))
_MANY = (list, tuple, set, frozenset, deque)
_LARGEST = 300  # the exponent of a decimal; no float, and so no rule, has a larger one
_NOT_SCHEMAS = ("cls", "config", "default", "metadata", "serialization")


def exact(arguments: dict[str, Any]) -> dict[str, Any]:
    """The complete data of arguments, for approvers and digests."""
    shown, sent = arguments, {}
    if isinstance(arguments, ValidatedArguments) and (arguments.anew or not all(map(is_plain, arguments.values()))):
        # The JSON of other types can be incomplete: stars for a secret, nothing for an excluded field. So use what was
        # sent; the tool that converts it has a digest of its own. A default that is made anew each time is left out,
        # because an approval could not match it.
        sent = plain_data(arguments.sent)
        unsent = arguments.keys() - sent.keys() - arguments.anew
        shown = {name: arguments[name] for name in unsent if is_plain(arguments[name])}
    return {**data_again(plain_json(shown)), **sent}


def received(value: Any, *, by_fields: bool = False) -> Any:
    """A value that a function gets, converted back to the form in which it would be sent.

    With `by_fields`, parts of models have the names of their fields, not their aliases.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, Mapping):
        return {_text(key): received(item, by_fields=by_fields) for key, item in value.items()}
    if isinstance(value, _MANY):
        return [received(item, by_fields=by_fields) for item in value]
    if hasattr(value, "get_secret_value"):  # its JSON is only stars
        return received(value.get_secret_value(), by_fields=by_fields)
    fields = getattr(type(value), "__pydantic_fields__", None)
    if fields is not None:
        if getattr(type(value), "__pydantic_root_model__", False):
            return received(value.root, by_fields=by_fields)
        more = getattr(value, "__pydantic_extra__", None) or {}
        held = {
            name if by_fields else field.validation_alias or name: getattr(value, name)
            for name, field in fields.items()
        }
        return received({**more, **held}, by_fields=by_fields)
    if dataclasses.is_dataclass(value):
        named = [field.name for field in dataclasses.fields(value)]
        return {name: received(getattr(value, name), by_fields=by_fields) for name in named}
    return plain_data(plain_json(value))


def parameter_names(fn: Callable[..., Any], context: str | None) -> dict[str, str | None]:
    """By sent name: the parameter that takes the value; None if a rule on the name would not see all of it."""
    from pydantic import TypeAdapter

    made: Any = stand_in(fn, context)
    return dict(_names(*parameters_of(TypeAdapter(made))))


def tied_schema(fn: Callable[..., Any], context: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The JSON Schema of `received(…, by_fields=True)`, and by argument in it: the parameter that takes the value."""
    from pydantic import TypeAdapter

    with explained(fn):
        made: Any = stand_in(fn, context)
        parameters, _ = parameters_of(TypeAdapter(made))
        return schema_by_fields(made, parameters), {sent_name(one): one["name"] for one in parameters}


def _names(parameters: list[Any], known: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    for parameter in parameters:
        name, sent = parameter["name"], parameter.get("alias", parameter["name"])
        if not isinstance(sent, str):
            for choice in sent if isinstance(sent[0], list) else [sent]:
                yield str(choice[0]), None
        else:
            yield sent, None if _is_renamed(parameter["schema"], known, set()) else name


def _is_renamed(schema: object, known: dict[str, Any], seen: set[str], *, by_name: bool = False) -> bool:
    """Whether a value in a schema can be sent under a name that `received` does not restore."""
    if isinstance(schema, list | tuple):
        return any(_is_renamed(part, known, seen, by_name=by_name) for part in schema)
    if not isinstance(schema, dict):
        return False
    target = schema.get("schema_ref")
    if target in known and target not in seen:
        seen.add(target)
        return _is_renamed(known[target], known, seen)
    alias = schema.get("validation_alias")
    if alias is not None and (by_name or not isinstance(alias, str) or schema["type"] != "model-field"):
        return True
    config = schema.get("config")
    if isinstance(config, dict):
        by_name = bool(config.get("validate_by_name") or config.get("populate_by_name"))
    inner = (part for key, part in schema.items() if key not in _NOT_SCHEMAS)
    return any(_is_renamed(part, known, seen, by_name=by_name) for part in inner)


def _number(value: Decimal) -> int | float | str:
    """A decimal as an int or float; as text, which rules on numbers refuse, if neither is exact."""
    if not value.is_finite() or value.adjusted() > _LARGEST:
        return str(value)
    number = int(value) if value == value.to_integral_value() else float(value)
    return number if Decimal(repr(number)) == value else str(value)


def _text(key: object) -> str:
    return key if type(key) is str else next(iter(plain_data(plain_json({key: None}))))
