"""Checks data against the JSON Schemas of MCP servers, as `licet.lock` has them."""

from collections.abc import Callable, Mapping
from typing import Any

from licet.policy_files.argument_rules import LARGEST_PATTERN

_MOST_WRONG = 5  # complaints that one message has


def schema_check(schema: Mapping[str, Any]) -> Callable[[Any], str]:
    """A function that says what is wrong with data, by a JSON Schema of a server; empty if nothing is.

    No other document is fetched for it. A schema that cannot be used is wrong for all data.
    """
    import jsonschema_rs

    try:
        check = jsonschema_rs.validator_for(
            dict(schema),
            retriever=_no_other_schema,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=LARGEST_PATTERN),
        )
    except (ValueError, jsonschema_rs.ValidationError) as wrong:
        broken = f"the server's schema cannot be used: {str(wrong).splitlines()[0][:200]}"
        return lambda _: broken

    def wrong_with(data: Any) -> str:
        errors = zip(check.iter_errors(data), range(_MOST_WRONG), strict=False)
        return "; ".join(_complaint(error) for error, _ in errors)

    return wrong_with


def _no_other_schema(address: str) -> Any:
    raise ValueError(f"it refers to another document: {address[:100]}")


def _complaint(error: Any) -> str:
    place = ".".join(map(str, error.instance_path))
    return f"{place}: {error.message}"[:300] if place else error.message[:300]
