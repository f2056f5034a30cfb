"""What MCP demands of the definition of a tool, resource, template or prompt, in the protocol of 2025 and of 2026.

The SDKs of clients reject a whole list for one definition that does not fit. So such a definition is left out.
Only the keys that clients are shown are judged. One schema may differ between the eras, `outputSchema`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from licet.declare.plain_json import json_core

Text = str | UnsetType  # not null: SDKs for TypeScript reject it
Flag = bool | UnsetType
MOST_EXACT = 1 << 53  # larger integers are not exact in JavaScript


class _Icon(Struct, rename="camel"):
    src: str
    mime_type: Text = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Literal["dark", "light"] | UnsetType = UNSET


class _Described(Struct, rename="camel", kw_only=True):
    name: str
    title: Text = UNSET
    description: Text = UNSET
    icons: list[_Icon] | UnsetType = UNSET


class _ObjectSchema(Struct):
    """The schema of an object, as the protocol of 2025 demands it. That of 2026 leaves more open."""

    type: Literal["object"]
    properties: dict[str, dict[str, Any]] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    schema: Text = msgspec.field(default=UNSET, name="$schema")


class _AnySchema(Struct):
    schema: Text = msgspec.field(default=UNSET, name="$schema")


class _Hints(Struct, rename="camel"):
    title: Text = UNSET
    read_only_hint: Flag = UNSET
    destructive_hint: Flag = UNSET
    idempotent_hint: Flag = UNSET
    open_world_hint: Flag = UNSET


class _Annotations(Struct, rename="camel"):
    audience: list[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    last_modified: Text = UNSET


class _Tool(_Described, rename="camel", kw_only=True):
    input_schema: _ObjectSchema
    output_schema: _AnySchema | UnsetType = UNSET
    annotations: _Hints | UnsetType = UNSET


class _Resource(_Described, rename="camel", kw_only=True):
    uri: str
    mime_type: Text = UNSET
    annotations: _Annotations | UnsetType = UNSET
    size: int | float | UnsetType = UNSET


class _Template(_Described, rename="camel", kw_only=True):
    uri_template: str
    mime_type: Text = UNSET
    annotations: _Annotations | UnsetType = UNSET


class _Argument(Struct, rename="camel"):
    name: str
    title: Text = UNSET
    description: Text = UNSET
    required: Flag = UNSET


class _Prompt(_Described, rename="camel", kw_only=True):
    arguments: list[_Argument] | UnsetType = UNSET


_SHAPES: Mapping[str, Any] = {"tools": _Tool, "resources": _Resource, "templates": _Template, "prompts": _Prompt}
_INVALID_VALUE = re.compile(r"Invalid enum value .*(?= - at `\$)", re.DOTALL)  # it quotes the server
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TEMPLATE = re.compile(r"(?:[^{}]|\{[^{}]+\})+")


def shape_problem(kind: str, definition: Mapping[str, Any]) -> str:
    """Why clients may reject a definition of one of the `KINDS` of a lock; empty if they accept it.

    >>> shape_problem("tools", {"name": "echo", "inputSchema": {}})
    'it does not fit the MCP schema: Object missing required field `type` - at `$.inputSchema`'
    """
    try:
        wrong = _wrong_value(msgspec.convert(definition, _SHAPES[kind]))
    except msgspec.ValidationError as misfit:
        wrong = _INVALID_VALUE.sub("a value that is not allowed", str(misfit))
    return f"it does not fit the MCP schema: {wrong}" if wrong else ""


def _wrong_value(found: Any) -> str:
    if any(not _SCHEME.match(icon.src) for icon in found.icons or ()):
        return "`src` of an icon is no URI"
    if isinstance(found, _Resource) and not _is_uri(found.uri):
        return "`uri` is no URI"
    if isinstance(found, _Resource) and found.size is not UNSET and not _is_exact(found.size):
        return "`size` is no integer, or too large a one"
    if isinstance(found, _Template) and not _TEMPLATE.fullmatch(found.uri_template):
        return "`uriTemplate` is no URI template"
    return ""


def _is_exact(number: float) -> bool:
    """Whether a number is an integer to every reader; `1e300` is one to some, and to others none."""
    return -MOST_EXACT < number < MOST_EXACT and number == int(number)


def is_object_schema(schema: object) -> bool:
    """Whether a schema is one that the protocol of 2025 takes for the results of a tool."""
    try:
        msgspec.convert(schema, _ObjectSchema)
    except msgspec.ValidationError:
        return False
    return True


def _is_uri(text: str) -> bool:
    """Whether it is a URI, also for the parser that the SDK for Python has used until 2025."""
    if not _SCHEME.match(text):
        return False
    try:
        json_core().Url(text)
    except ValueError:
        return False
    return True
