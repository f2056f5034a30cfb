"""What passes of content: blocks of results, prompts and sampling, contents of resources, and what these are made of.

One table for both directions. A key that it does not have is left out, at every level down to a value that is data:
text, arguments of a call, structured content. So nothing passes in `_meta` of a part, which no person and no policy has
seen. What passes in `_meta` of whole messages is in `META` of `mcp/protocol.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from licet.core.algebra.scope import visible
from licet.mcp.limits import MOST_KEYS_NAMED

# The keys of a part, each with the part that its value is, or that each item of its list is. `data` is taken as it is,
# and the values of all others are texts, numbers and the like, or lists of these.
Part = Mapping[str, str]


def _part(keys: str, **parts: str) -> Part:
    return {**dict.fromkeys(keys.split(), ""), **parts}


BLOCKS: Mapping[str, Part] = {
    "text": _part("type text", annotations="annotations"),
    "image": _part("type data mimeType", annotations="annotations"),
    "audio": _part("type data mimeType", annotations="annotations"),
    "resource": _part("type", resource="contents", annotations="annotations"),
    "resource_link": _part("type uri name title description mimeType size", icons="icons", annotations="annotations"),
}
# A result or a prompt has no block inside of another one, so whoever looks at its blocks has seen all of them.
SAMPLING_BLOCKS: Mapping[str, Part] = {
    **BLOCKS,
    "tool_use": _part("type id name", input="data"),
    "tool_result": _part("type toolUseId isError", structuredContent="data", content="blocks"),
}
PARTS: Mapping[str, Part] = {
    "annotations": _part("audience priority lastModified"),
    "icons": _part("src mimeType sizes theme"),
    "contents": _part("uri mimeType text blob"),
    "message": _part("role", content="blocks"),
    "samplingMessage": _part("role", content="samplingBlocks"),
    "completion": _part("values total hasMore"),
    "tool": _part(
        "name title description", inputSchema="data", outputSchema="data", icons="icons", annotations="hints"
    ),
    "hints": _part("title readOnlyHint destructiveHint idempotentHint openWorldHint"),
    "toolChoice": _part("mode"),
    "modelPreferences": _part("costPriority speedPriority intelligencePriority", hints="modelHint"),
    "modelHint": _part("name"),
    "argument": _part("name value"),
    "context": _part("", arguments="data"),
}

# The parameters and the result of sampling that are made of parts.
SAMPLING_PARTS: Mapping[str, str] = {
    "messages": "samplingMessage",
    "tools": "tool",
    "toolChoice": "toolChoice",
    "modelPreferences": "modelPreferences",
    "content": "samplingBlocks",
}

_OF_PARTS = (dict, list, type(None))
_DETAILS = PARTS.keys() - {"contents"}  # without these, a part is still what it is
_OF_NO_PART = ("", "data")
_NONE: frozenset[str] = frozenset()
_BLOCKS = {"blocks": BLOCKS, "samplingBlocks": SAMPLING_BLOCKS}
_PLAIN_BLOCKS, _PLAIN_PARTS = (
    {name: frozenset(key for key, part in keys.items() if not part) for name, keys in table.items()}
    for table in (SAMPLING_BLOCKS, PARTS)
)
_PLAIN_TYPES = frozenset((str, int, float, bool, type(None)))

Note = Callable[[str], None]


class Content:
    """Takes what the table does not have out of content, and remembers its keys."""

    def __init__(self) -> None:
        self.left_out: dict[str, None] = {}

    def part(self, kind: str, value: Any) -> Any:
        """A part, or a list of such parts, with the keys of the table; the same object if it has no others."""
        if isinstance(value, list):
            parts = [part for each in value for part in self._item(kind, each)]
            return value if len(parts) == len(value) and all(map(_is, parts, value)) else parts
        if not isinstance(value, dict):
            return value
        if (blocks := _BLOCKS.get(kind)) is not None:
            kind = str(value.get("type"))
            keys, plain = blocks.get(kind), _PLAIN_BLOCKS[kind] if kind in blocks else _NONE
        else:
            keys, plain = PARTS[kind], _PLAIN_PARTS[kind]
        is_plain = value.keys() <= plain and _PLAIN_TYPES.issuperset(map(type, value.values()))
        return value if is_plain else self._kept(keys, value)  # most blocks are plain: no loop for these

    def _item(self, kind: str, value: Any) -> Iterator[Any]:
        """An item of a list of parts: a list in the list, or a text, is none."""
        if isinstance(value, dict):
            yield self.part(kind, value)
        elif kind in _BLOCKS:
            yield self._removed("no object")
        else:
            self.left_out[f"an item of `{kind}` that is no object"] = None

    def _removed(self, what: str) -> dict[str, Any]:
        self.left_out[f"content of the type {what}"] = None
        return {"type": "text", "text": "[removed: content of a type that the gateway does not know]"}

    def _kept(self, keys: Part | None, value: dict[str, Any]) -> dict[str, Any]:
        if keys is None:  # of a type that the table does not have
            return self._removed(str(value.get("type"))[:40])
        changed: dict[str, Any] = {}
        for key, inner in value.items():
            kind = keys.get(key)
            if kind is None or not _fits(kind, inner):
                self.left_out[key] = None
            else:
                changed[key] = self.part(kind, inner) if kind not in _OF_NO_PART else inner
        is_same = len(changed) == len(value) and all(changed[key] is value[key] for key in value)
        return value if is_same else changed

    def told(self) -> Iterator[str]:
        """What was left out, for a receipt. `_meta` always is, so it needs no words."""
        if keys := [key for key in self.left_out if key != "_meta"]:
            named = ", ".join(visible(key[:60]) for key in keys[:MOST_KEYS_NAMED])
            yield f"keys of content that are not in the protocol were left out: {named}"


def _fits(kind: str, value: object) -> bool:
    if not kind:
        return type(value) in _PLAIN_TYPES or (isinstance(value, list) and _PLAIN_TYPES.issuperset(map(type, value)))
    return kind not in _DETAILS or isinstance(value, _OF_PARTS)


def _is(one: object, two: object) -> bool:
    return one is two


def passed(kind: str, value: Any, note: Note | None = None) -> Any:
    """A part of a message as it may pass. What was left out is noted."""
    content = Content()
    made = content.part(kind, value)
    if note is not None:
        for line in content.told():
            note(line)
    return made
