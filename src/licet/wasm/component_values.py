"""Values of components as JSON, by their types: for the arguments and results of exported functions.

A record is an object, a tuple a list, an option its value or null, an enum a text, flags a list of texts, a variant
`{"case": value}` or `"case"`, and `list<u8>` base64. Resources, streams and futures have no JSON.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from wasmtime import component as types

_INTEGERS: Mapping[type, tuple[int, int]] = {
    **{getattr(types, f"S{bits}"): (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{getattr(types, f"U{bits}"): (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}


class Unfit(Exception):
    """A value that does not fit its type, or a type that JSON does not have."""


class Failed(Exception):
    """A function returned the error case of its result; `value` is what it says, as JSON."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(value if isinstance(value, str) else repr(value))


def schema(type_: object) -> dict[str, Any]:
    """The JSON Schema of a type."""
    if isinstance(type_, types.OptionType):
        return {"anyOf": [schema(type_.payload), {"type": "null"}]}
    if isinstance(type_, types.VariantType):
        return {"anyOf": [_case_schema(name, payload) for name, payload in type_.cases]}
    if isinstance(type_, types.ResultType):
        return {"anyOf": [_case_schema(name, payload) for name, payload in (("ok", type_.ok), ("err", type_.err))]}
    if isinstance(type_, types.RecordType):
        fields = dict(type_.fields)
        required = [name for name, field in fields.items() if not isinstance(field, types.OptionType)]
        shown = {name: schema(field) for name, field in fields.items()}
        return {"type": "object", "properties": shown, "required": required, "additionalProperties": False}
    if isinstance(type_, types.TupleType):
        items = [schema(element) for element in type_.elements]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(type_, types.ListType):
        if isinstance(type_.element, types.U8):
            return {"type": "string", "contentEncoding": "base64"}
        return {"type": "array", "items": schema(type_.element)}
    if isinstance(type_, types.EnumType):
        return {"enum": type_.names}
    if isinstance(type_, types.FlagsType):
        return {"type": "array", "items": {"enum": type_.names}, "uniqueItems": True}
    if type(type_) in _INTEGERS:
        least, most = _INTEGERS[type(type_)]
        return {"type": "integer", "minimum": least, "maximum": most}
    plain: dict[type, str] = {types.Bool: "boolean", types.String: "string", types.F32: "number", types.F64: "number"}
    if type(type_) in plain:
        return {"type": plain[type(type_)]}
    if isinstance(type_, types.Char):
        return {"type": "string", "minLength": 1, "maxLength": 1}
    raise Unfit(f"{_name(type_)} has no JSON")


def _case_schema(name: str, payload: object) -> dict[str, Any]:
    if payload is None:
        return {"const": name}
    return {"type": "object", "properties": {name: schema(payload)}, "required": [name], "additionalProperties": False}


def from_json(type_: object, value: object, at: str = "") -> Any:
    """A value of a type, from JSON. Raises `Unfit`."""
    if isinstance(type_, types.OptionType):
        return _option(type_, value, at)
    if isinstance(type_, types.VariantType | types.ResultType):
        return _variant(type_, value, at)
    if isinstance(type_, types.RecordType):
        record = types.Record()
        given = _expect(value, dict, "an object", at)
        if unknown := given.keys() - {name for name, _ in type_.fields}:
            raise Unfit(f"{_at(at)} has no field `{min(unknown)}`")
        for name, field in type_.fields:
            if name not in given and not isinstance(field, types.OptionType):
                raise Unfit(f"{_at(at)} lacks `{name}`")
            setattr(record, name, from_json(field, given.get(name), f"{at}.{name}"))
        return record
    if isinstance(type_, types.TupleType):
        given = _expect(value, list, "a list", at)
        if len(given) != len(type_.elements):
            raise Unfit(f"{_at(at)} must have {len(type_.elements)} values")
        return tuple(from_json(one, item, f"{at}[]") for one, item in zip(type_.elements, given, strict=True))
    if isinstance(type_, types.ListType):
        element = type_.element
        if isinstance(element, types.U8):
            return _from_base64(_expect(value, str, "base64 as a text", at), at)
        return [from_json(element, item, f"{at}[]") for item in _expect(value, list, "a list", at)]
    if isinstance(type_, types.EnumType):
        return _one_of(value, type_.names, at)
    if isinstance(type_, types.FlagsType):
        return {_one_of(item, type_.names, at) for item in _expect(value, list, "a list of names", at)}
    return _plain(type_, value, at)


def _plain(type_: object, value: object, at: str) -> Any:
    if type(type_) in _INTEGERS:
        least, most = _INTEGERS[type(type_)]
        if not least <= _expect(value, int, "a whole number", at) <= most:
            raise Unfit(f"{_at(at)} must be from {least} to {most}")
        return value
    if isinstance(type_, types.F32 | types.F64):
        try:
            return float(_expect(value, int | float, "a number", at))
        except OverflowError:
            raise Unfit(f"{_at(at)} is too large") from None
    if isinstance(type_, types.Bool):
        return _expect(value, bool, "true or false", at)
    if isinstance(type_, types.String):
        return _expect(value, str, "a text", at)
    if isinstance(type_, types.Char):
        if len(_expect(value, str, "one character", at)) != 1:
            raise Unfit(f"{_at(at)} must be one character")
        return value
    raise Unfit(f"{_at(at)} is {_name(type_)}, which has no JSON")


def _option(type_: types.OptionType, value: object, at: str) -> Any:
    inner = None if value is None else from_json(type_.payload, value, at)
    if not _is_tagged(type_):
        return inner
    return types.Variant("none") if value is None else types.Variant("some", inner)


def _variant(type_: types.VariantType | types.ResultType, value: object, at: str) -> Any:
    cases = _cases(type_)
    name, given = (value, None) if isinstance(value, str) else _single(value, at)
    _one_of(name, list(cases), at)
    payload = cases[name]
    inner = None if payload is None else from_json(payload, given, f"{at}.{name}")
    return types.Variant(name, inner) if _is_tagged(type_) else inner


def _single(value: object, at: str) -> tuple[str, Any]:
    given: dict[str, Any] = _expect(value, dict, "the name of a case, or an object with it as its only key", at)
    if len(given) != 1:
        raise Unfit(f"{_at(at)} must have one key, the name of a case")
    return next(iter(given.items()))


def to_json(type_: object, value: Any) -> Any:
    """A value of a type as JSON."""
    if isinstance(type_, types.OptionType):
        inner = value.payload if isinstance(value, types.Variant) else value
        missing = isinstance(value, types.Variant) and value.tag == "none"
        return None if inner is None or missing else to_json(type_.payload, inner)
    if isinstance(type_, types.VariantType | types.ResultType):
        name, inner = _case_of(type_, value)
        payload = _cases(type_)[name]
        return name if payload is None else {name: to_json(payload, inner)}
    if isinstance(type_, types.RecordType):
        return {name: to_json(field, getattr(value, name)) for name, field in type_.fields}
    if isinstance(type_, types.TupleType):
        return [to_json(one, item) for one, item in zip(type_.elements, value, strict=True)]
    if isinstance(type_, types.ListType):
        if isinstance(type_.element, types.U8):
            return base64.b64encode(value).decode()
        element = type_.element
        return [to_json(element, item) for item in value]
    if isinstance(type_, types.FlagsType):
        return sorted(value)
    return value


def result_to_json(type_: object, value: object) -> Any:
    """What a function returned, as JSON. The error case of a result is raised as `Failed`."""
    if type_ is None:
        return None
    if not isinstance(type_, types.ResultType):
        return to_json(type_, value)
    name, inner = _case_of(type_, value)
    payload = _cases(type_)[name]
    shown = None if payload is None else to_json(payload, inner)
    if name == "err":
        raise Failed(shown)
    return shown


def _cases(type_: types.VariantType | types.ResultType) -> dict[str, Any]:
    if isinstance(type_, types.ResultType):
        return {"ok": type_.ok, "err": type_.err}
    return dict(type_.cases)


def _is_tagged(type_: types.ValType) -> bool:
    """Whether wasmtime wraps the value, because its class alone would not tell the case."""
    classes: set[type] = set()
    type_.add_classes(classes)
    return types.Variant in classes


def _case_of(type_: types.VariantType | types.ResultType, value: object) -> tuple[str, Any]:
    if isinstance(value, types.Variant):
        return value.tag, value.payload
    for name, payload in _cases(type_).items():
        classes: set[type] = set()
        if payload is not None:
            payload.add_classes(classes)
        if isinstance(value, tuple(classes)) if classes else value is None:
            return name, value
    raise Unfit("a value of no known case")


def _expect(value: object, kind: Any, what: str, at: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Unfit(f"{_at(at)} must be {what}")
    return value


def _one_of(value: object, names: list[str], at: str) -> str:
    if value not in names:
        raise Unfit(f"{_at(at)} must be one of {', '.join(names)}")
    return str(value)


def _from_base64(text: str, at: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Unfit(f"{_at(at)} must be base64") from None


def _at(at: str) -> str:
    return f"`{at.lstrip('.')}`" if at else "the value"


_NAMES: Mapping[type, Callable[[Any], str]] = {
    types.ListType: lambda one: f"list<{_name(one.element)}>",
    types.OptionType: lambda one: f"option<{_name(one.payload)}>",
    types.TupleType: lambda one: f"tuple<{', '.join(map(_name, one.elements))}>",
    types.ResultType: lambda one: f"result<{_or_none(one.ok)}, {_or_none(one.err)}>",
    types.RecordType: lambda one: "record {" + ", ".join(f"{key}: {_name(field)}" for key, field in one.fields) + "}",
    types.EnumType: lambda one: "enum {" + ", ".join(one.names) + "}",
    types.FlagsType: lambda one: "flags {" + ", ".join(one.names) + "}",
    types.VariantType: lambda one: "variant {" + ", ".join(name for name, _ in one.cases) + "}",
}


def _or_none(type_: object) -> str:
    return "_" if type_ is None else _name(type_)


def _name(type_: object) -> str:
    named = _NAMES.get(type(type_))
    return named(type_) if named is not None else type(type_).__name__.lower()


def function_text(type_: types.FuncType) -> str:
    """The type of a function, as WIT has it."""
    shown = ", ".join(f"{name}: {_name(one)}" for name, one in type_.params)
    return f"func({shown})" + (f" -> {_name(type_.result)}" if type_.result is not None else "")
