"""Definitions of MCP servers that clients accept or reject. The peers show what the official SDK says to each."""

from typing import Any

SCHEMA = {"type": "object"}
SMALLEST: dict[str, dict[str, Any]] = {
    "tools": {"name": "t", "inputSchema": SCHEMA},
    "resources": {"name": "r", "uri": "file:///r"},
    "templates": {"name": "r", "uriTemplate": "file:///{r}"},
    "prompts": {"name": "p"},
}
_ANY: list[dict[str, Any]] = [
    {"name": 7},
    {"name": None},
    {"title": 7},
    {"title": {"hostile": 1}},
    {"description": ["hostile"]},
    {"icons": {}},
    {"icons": "hostile"},
    {"icons": [{}]},
    {"icons": [{"src": 7}]},
    {"icons": [{"src": "https://a/b", "sizes": "hostile"}]},
    {"icons": [{"src": "https://a/b", "theme": "hostile"}]},
    {"icons": [{"src": "https://a/b", "mimeType": 1}]},
]
# The kind of a definition, and what it has besides the smallest one. ... leaves a key out.
BAD: list[tuple[str, dict[str, Any]]] = [
    *((kind, changes) for kind in SMALLEST for changes in _ANY),
    *((kind, {"name": ...}) for kind in SMALLEST),
    ("tools", {"inputSchema": ...}),
    ("tools", {"inputSchema": None}),
    ("tools", {"inputSchema": {}}),
    ("tools", {"inputSchema": True}),
    ("tools", {"inputSchema": {"type": "string"}}),
    ("tools", {"inputSchema": {"type": ["object"]}}),
    ("tools", {"inputSchema": {"type": "object", "properties": []}}),
    ("tools", {"inputSchema": {"type": "object", "properties": {"hostile": True}}}),
    ("tools", {"inputSchema": {"type": "object", "required": "hostile"}}),
    ("tools", {"inputSchema": {"type": "object", "required": [1]}}),
    ("tools", {"inputSchema": {"type": "object", "$schema": 7}}),
    ("tools", {"outputSchema": []}),
    ("tools", {"outputSchema": True}),
    ("tools", {"annotations": []}),
    ("tools", {"annotations": {"title": 7}}),
    ("tools", {"annotations": {"readOnlyHint": "hostile"}}),
    ("tools", {"annotations": {"destructiveHint": {}}}),
    ("resources", {"uri": ...}),
    ("resources", {"uri": "hostile"}),
    ("resources", {"uri": "http://"}),
    ("resources", {"mimeType": 7}),
    ("resources", {"size": "hostile"}),
    ("resources", {"size": 1.5}),
    *(("resources", {"size": size}) for size in (1e300, -1e300)),
    ("resources", {"annotations": {"audience": ["hostile"]}}),
    ("resources", {"annotations": {"audience": "user"}}),
    ("resources", {"annotations": {"priority": 2}}),
    ("resources", {"annotations": {"priority": "hostile"}}),
    ("resources", {"annotations": {"lastModified": 7}}),
    ("templates", {"uriTemplate": ...}),
    ("templates", {"uriTemplate": 7}),
    ("templates", {"uriTemplate": "file:///{"}),
    ("templates", {"mimeType": []}),
    ("prompts", {"arguments": {}}),
    ("prompts", {"arguments": ["hostile"]}),
    ("prompts", {"arguments": [{}]}),
    ("prompts", {"arguments": [{"name": 7}]}),
    ("prompts", {"arguments": [{"name": "a", "required": "hostile"}]}),
    ("prompts", {"arguments": [{"name": "a", "description": 7}]}),
]
# The SDK for Python takes these, the one for TypeScript does not.
BAD_IN_JAVASCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("resources", {"size": size}) for size in (2**53, -(2**53), 2.0**53, 10**390)
]
GOOD: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in SMALLEST),
    *(
        (kind, {"title": "T", "description": "", "icons": [{"src": "data:image/png;base64,", "sizes": ["any"]}]})
        for kind in SMALLEST
    ),
    *((kind, {"vendor": {"x": 1}, "_meta": {"y": 2}}) for kind in SMALLEST),
    ("tools", {"inputSchema": {**SCHEMA, "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}}),
    ("tools", {"inputSchema": {**SCHEMA, "$schema": "http://json-schema.org/draft-07/schema#", "$defs": {"a": True}}}),
    ("tools", {"outputSchema": SCHEMA, "annotations": {"readOnlyHint": True, "title": "T", "vendor": 1}}),
    ("resources", {"uri": "memo://insights", "size": 7, "mimeType": "text/plain"}),
    ("resources", {"uri": "note://internal/\u65e5"}),
    ("resources", {"annotations": {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2026-01-01"}}),
    ("resources", {"size": 7.0}),
    ("resources", {"size": 2**53 - 1}),
    ("resources", {"annotations": {"priority": 1}}),
    ("templates", {"uriTemplate": "a://{+path}/{?q,r}", "mimeType": "text/plain"}),
    ("prompts", {"arguments": []}),
    ("prompts", {"arguments": [{"name": "a", "required": True, "description": "d"}]}),
]


def whole(kind: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The definition that a case is about."""
    return {key: value for key, value in {**SMALLEST[kind], **changes}.items() if value is not ...}
