"""Rules on arguments in a manifest: JSON Schema keywords and `scope`. A keyword nobody knows would never match."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from licet.backends.shape_parts import nearest
from licet.backends.shapes import Located
from licet.core.argument_scopes import DESCENDS
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


def _unknown(schema: Any, origin: Origin, known: list[Problem], *, certain: bool = True) -> Iterator[Problem]:
    """`certain`: the value must fit this schema, so a `scope` in it is a rule; below `not` or `anyOf` it may not."""
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key not in _KNOWN:
            hint = nearest(key, _KNOWN, known)
            yield Problem(origin, f"the keyword `{key}`", "a JSON Schema keyword that licet enforces, or `scope`", hint)
        elif key == "scope" and value not in _SCOPES:
            hint = nearest(str(value), _SCOPES, known)
            yield Problem(origin, f"the scope `{value}`", f"one of {', '.join(_SCOPES)}", hint)
        elif key == "scope" and not certain:
            found, expected = (
                "`scope` inside another keyword",
                f"it at the argument itself, or below {', '.join(DESCENDS)}",
            )
            yield Problem(origin, found, expected)
        else:
            inner = certain and key in DESCENDS
            several = value.values() if key in _NAMED and isinstance(value, Mapping) else value
            for one in [value] if key in _ONE else several if key in (*_SEVERAL, *_NAMED) else ():
                yield from _unknown(one, origin, known, certain=inner)


def _uncompilable(schema: Mapping[str, Any], origin: Origin) -> Iterator[Problem]:
    try:
        _validator(schema)
    except ValueError as error:
        yield Problem(origin, str(error).splitlines()[0], "a sound JSON Schema; patterns without look-around")


def argument_check(rules: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """A function that says what is wrong with arguments by a tool's rules, or nothing; never their values."""
    validators = {name: _validator(schema) for name, schema in rules.items()}

    def check(arguments: Mapping[str, Any]) -> str:
        wrong = [name for name, held in validators.items() if name in arguments and not held.is_valid(arguments[name])]
        return "; ".join(f"`{name}` is outside what the manifest allows" for name in wrong)

    return check


def _validator(schema: Any) -> Any:
    import jsonschema_rs

    # Patterns run in linear time, whatever the value; a format that nobody checks would be a rule that never matches.
    return jsonschema_rs.Draft202012Validator(
        _with_types(_without_scope(json.loads(json.dumps(schema, default=dict)))),  # rules come frozen
        pattern_options=jsonschema_rs.RegexOptions(),
        validate_formats=True,
        ignore_unknown_formats=False,
    )


def _without_scope(schema: Any) -> Any:
    """The schema as JSON Schema knows it; `scope` is ours, and is a keyword only where a schema stands."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {}
    for key, value in schema.items():
        if key in _ONE:
            plain[key] = _without_scope(value)
        elif key in _SEVERAL and isinstance(value, list):
            plain[key] = [_without_scope(one) for one in value]
        elif key in _NAMED and isinstance(value, Mapping):
            plain[key] = {name: _without_scope(one) for name, one in value.items()}
        elif key != "scope":
            plain[key] = value
    return plain


# JSON Schema lets a keyword pass whatever it does not speak of: `maximum` a text, `pattern` a number. A rule that was
# written for numbers would then let through the same number as a text, which some type hints take just as well.
_SPEAKS_OF = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
    "object": ("properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"),
}


def _with_types(schema: Any) -> Any:
    """The schema, where each says what its keywords speak of; null, which stands for nothing given, may pass."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {key: _inner_types(key, value) for key, value in schema.items()}
    spoken = [kind for kind, words in _SPEAKS_OF.items() if any(word in schema for word in words)]
    return plain if "type" in schema or not spoken else {**plain, "type": [*spoken, "null"]}


def _inner_types(key: str, value: Any) -> Any:
    if key in _ONE:
        return _with_types(value) if key != "not" else value  # a type inside a negation would let more through
    if key in _SEVERAL and isinstance(value, list):
        return [_with_types(one) for one in value]
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _with_types(one) for name, one in value.items()}
    return value
