"""The JSON Schema of a tool's arguments, from the type hints of its function.

pydantic is imported when a schema is first used, not when a tool is declared.
"""

import inspect
import itertools
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from licet.core.canonical import canonical_json
from licet.core.policy.argument_ties import ALSO

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
        canonical_json(schema)  # raises if there is no canonical form, and so no digest (infinities, huge numbers)
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

        def get_argument_name(self, argument: Any) -> str:
            return sent_name(argument)

        def model_field_schema(self, schema: Any) -> dict[str, Any]:
            return _also_named(super().model_field_schema(schema), schema.get("validation_alias"))

        def dataclass_field_schema(self, schema: Any) -> dict[str, Any]:
            return _also_named(super().dataclass_field_schema(schema), schema.get("validation_alias"))

        def typed_dict_field_schema(self, schema: Any) -> dict[str, Any]:
            return _also_named(super().typed_dict_field_schema(schema), schema.get("validation_alias"))

    schema = TypeAdapter(made).json_schema(by_alias=False, schema_generator=ByFields)
    for one in parameters:
        name, held = sent_name(one), schema["properties"]
        held[name] = _also_named(held[name], [[one["name"]], *_choices(one.get("alias"))])
    return schema


def sent_name(parameter: Any) -> str:
    """The name of a parameter in the JSON Schema of its function."""
    alias = parameter.get("alias")
    return alias if isinstance(alias, str) else str(parameter["name"])


def _also_named(schema: dict[str, Any], alias: Any) -> dict[str, Any]:
    return schema if alias is None else {**schema, ALSO: [str(part) for choice in _choices(alias) for part in choice]}


def _choices(alias: Any) -> list[list[Any]]:
    """The aliases in a schema of pydantic, each as a path: a name, a path, or several paths."""
    if alias is None or isinstance(alias, str):
        return [] if alias is None else [[alias]]
    return list(alias) if isinstance(alias[0], list) else [alias]


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
