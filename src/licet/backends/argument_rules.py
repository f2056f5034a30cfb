"""Rules on arguments in a manifest: JSON Schema keywords and `scope`. A keyword nobody knows would never match."""

from collections.abc import Iterator, Mapping
from typing import Any

from licet.backends.shape_parts import nearest
from licet.backends.shapes import Located
from licet.core.domain import DOMAINS
from licet.core.origin import Origin, Problem

# Where a keyword holds further schemas: itself one, a list of them, or a mapping to them.
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties",)
_WORDS = (
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "minContains"),
    *("maxContains", "required", "minProperties", "maxProperties", "title", "description", "scope"),
)
_KNOWN = (*_WORDS, *_ONE, *_SEVERAL, *_NAMED)
_SCOPES = (
    "network",
    *(f"fs:{action}" for action in DOMAINS["fs"].actions if action != "*"),
    "process",
    "secret",
    "env",
)


def argument_problems(args: Located[Any] | None, known: list[Problem]) -> Iterator[Problem]:
    """Everything in a tool's argument rules that would silently not be enforced, beside what is known already."""
    if args is None:
        return
    for name, held in args.value.items():
        if not isinstance(held.value, dict):
            yield Problem(held.origin, f"no mapping for `{name}`", "JSON Schema keywords, such as `{enum: [a, b]}`")
            continue
        problems = list(_unknown(held.value, held.origin, known))
        yield from problems
        if not problems:
            yield from _uncompilable(held.value, held.origin)


def _unknown(schema: Any, origin: Origin, known: list[Problem]) -> Iterator[Problem]:
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key not in _KNOWN:
            hint = nearest(key, _KNOWN, known)
            yield Problem(origin, f"the keyword `{key}`", "a JSON Schema keyword that licet enforces, or `scope`", hint)
        elif key == "scope" and value not in _SCOPES:
            hint = nearest(str(value), _SCOPES, known)
            yield Problem(origin, f"the scope `{value}`", f"one of {', '.join(_SCOPES)}", hint)
        elif key in _ONE:
            yield from _unknown(value, origin, known)
        elif key in _SEVERAL and isinstance(value, list):
            for one in value:
                yield from _unknown(one, origin, known)
        elif key in _NAMED and isinstance(value, Mapping):
            for one in value.values():
                yield from _unknown(one, origin, known)


def _uncompilable(schema: Mapping[str, Any], origin: Origin) -> Iterator[Problem]:
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for({key: value for key, value in schema.items() if key != "scope"})
    except ValueError as error:
        yield Problem(origin, str(error).splitlines()[0], "a sound JSON Schema")
