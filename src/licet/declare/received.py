"""Validated arguments as plain data, for the rules of the manifest, for approvers and for digests.

The type hints of a function can trim and convert what was sent, fill in defaults, and accept a value under an alias.
Rules must be checked against the values that the function gets, under the names that were sent. If a name cannot be
traced to one parameter, a rule on it is refused.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from licet.declare.argument_schema import explained, schema_by_fields, sent_name, stand_in
from licet.declare.arguments import ValidatedArguments, is_plain, parameters_of
from licet.declare.plain_json import data_again, plain_data, plain_json

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


def _is_renamed(schema: Any, known: dict[str, Any], seen: set[str], *, by_name: bool = False) -> bool:
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


def _text(key: Any) -> str:
    return key if type(key) is str else next(iter(plain_data(plain_json({key: None}))))
