"""Checks data against a JSON Schema that was written as data: of a WASM tool, or of the tools of an MCP server."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from licet.declare.arguments import InvalidArguments, checked_json
from licet.declare.plain_json import data_again

LARGEST_PATTERN = 1 << 19  # bytes after compiling; `\PL{200}` takes ten times that, a readable pattern far less
_MOST_WRONG = 5  # complaints that one message has


class UnusableSchema(ValueError):
    """A JSON Schema that cannot be used: it is wrong, or it refers to another document."""


def schema_check(schema: Mapping[str, Any]) -> Callable[[Any], str]:
    """A function that says what is wrong with data, by a JSON Schema; empty if nothing is.

    No other document is fetched for it. A schema that cannot be used is wrong for all data.
    """
    try:
        return compiled_schema(schema)
    except UnusableSchema as wrong:
        broken = f"the JSON Schema cannot be used: {wrong}"
        return lambda _: broken


def compiled_schema(schema: Mapping[str, Any]) -> Callable[[Any], str]:
    """As `schema_check`, but a schema that cannot be used raises `UnusableSchema`."""
    import jsonschema_rs

    try:
        check = jsonschema_rs.validator_for(
            dict(schema),
            retriever=_no_other_schema,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=LARGEST_PATTERN),
        )
    except (ValueError, jsonschema_rs.ValidationError) as wrong:
        raise UnusableSchema(str(wrong).splitlines()[0][:200]) from None

    def wrong_with(data: Any) -> str:
        errors = zip(check.iter_errors(data), range(_MOST_WRONG), strict=False)
        return "; ".join(_complaint(error) for error, _ in errors)

    return wrong_with


def schema_validator(schema: Mapping[str, Any]) -> Callable[[object], dict[str, Any]]:
    """A function that checks arguments against a JSON Schema; a schema that cannot be used refuses every call."""
    check = cache(lambda: schema_check(schema))  # when it is first called: a server may have hundreds of tools

    def validate(given: object) -> dict[str, Any]:
        arguments: dict[str, Any] = data_again(checked_json(given))
        if wrong := check()(arguments):
            raise InvalidArguments(wrong)
        return arguments

    return validate


def _no_other_schema(address: str) -> Any:
    raise ValueError(f"it refers to another document: {address[:100]}")


def _complaint(error: Any) -> str:
    place = ".".join(map(str, error.instance_path))
    return f"{place}: {error.message}"[:300] if place else error.message[:300]
