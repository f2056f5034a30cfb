"""Which values in the arguments of a call have a rule with `scope`."""

from typing import Any

import pytest

from licet.core.decision.arguments import Tied, tied

READ, WRITE = {"scope": "fs:read"}, {"scope": "fs:write"}


@pytest.mark.parametrize(
    ("rule", "value", "found"),
    [
        (READ, "/a", [("fs:read", "/a")]),
        (READ, ["/a", "/b"], [("fs:read", "/a"), ("fs:read", "/b")]),
        (READ, 7, [("fs:read", 7)]),
        (READ, None, []),
        ({"maxLength": 9}, "/a", []),
        (True, "/a", []),
        ({"items": READ}, ["/a", None, "/b"], [("fs:read", "/a"), ("fs:read", "/b")]),
        ({"items": READ}, "/a", []),
        ({"prefixItems": [READ, WRITE]}, ["/a", "/b", "/c"], [("fs:read", "/a"), ("fs:write", "/b")]),
        ({"prefixItems": [READ], "items": WRITE}, ["/a", "/b"], [("fs:read", "/a"), ("fs:write", "/b")]),
        ({"prefixItems": [READ, WRITE]}, ["/a"], [("fs:read", "/a")]),
        ({"properties": {"to": WRITE, "by": READ}}, {"to": "/a", "more": "/b"}, [("fs:write", "/a")]),
        ({"properties": {"to": {"items": READ}}}, {"to": ["/a"]}, [("fs:read", "/a")]),
        ({"properties": {"to": WRITE}}, ["/a"], []),
        ({**READ, "items": WRITE}, ["/a"], [("fs:read", "/a"), ("fs:write", "/a")]),
    ],
    ids=str,
)
def test_a_value_with_a_scope_is_found_at_any_depth(rule: Any, value: object, found: list[tuple[str, object]]) -> None:
    assert list(tied({"path": rule}, {"path": value})) == [Tied("path", *one) for one in found]


def test_only_arguments_that_are_given_are_looked_at() -> None:
    assert list(tied({"from": READ, "to": WRITE}, {"to": "/a", "other": "/b"})) == [Tied("to", "fs:write", "/a")]
