"""Definitions that the SDKs of clients reject are found, and those that they accept are not."""

from typing import Any

import pytest

from definitions import BAD, BAD_IN_JAVASCRIPT, GOOD, whole
from licet.policy_files.server_tools import is_object_schema, shape_problem


@pytest.mark.parametrize(("kind", "changes"), [*BAD, *BAD_IN_JAVASCRIPT], ids=str)
def test_what_a_client_rejects_is_found(kind: str, changes: dict[str, Any]) -> None:
    why = shape_problem(kind, whole(kind, changes))
    assert why.startswith("it does not fit the MCP schema: ")
    assert "hostile" not in why  # nothing of the server is quoted
    assert len(why) < 200


@pytest.mark.parametrize(("kind", "changes"), GOOD, ids=str)
def test_what_every_client_accepts_is_kept(kind: str, changes: dict[str, Any]) -> None:
    assert shape_problem(kind, whole(kind, changes)) == ""


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, True),
        ({"type": "array"}, False),
        ({}, False),
        ({"type": "object", "properties": {"a": True}}, False),
        ({"type": "object", "required": True}, False),
        (None, False),
    ],
)
def test_only_some_schemas_of_results_are_for_clients_of_2025(schema: Any, expected: bool) -> None:
    assert is_object_schema(schema) is expected
