"""The headers that carry a message of MCP over HTTP.

Since 2026-07-28 the method, the name of the tool and some arguments are repeated in headers, so that intermediaries
need not parse the body. Servers refuse a request whose headers say something else than its body.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from licet.core.algebra.domains import TOKEN
from licet.guard.handles.messages import Pairs

MOST_BYTES = 32_768  # of the headers that repeat arguments; servers accept hardly more
ANNOTATION = "x-mcp-header"  # in the schema of an argument: the header that repeats it
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TYPES = ("string", "integer", "boolean")


class BadHeaders(Exception):
    """A request cannot be sent, because its headers cannot be written."""


def modern_version(params: Mapping[str, Any]) -> str:
    """The version that a request states in `_meta`, since 2026-07-28; empty for older ones."""
    meta = params.get("_meta")
    version = meta.get(_VERSION_KEY) if isinstance(meta, Mapping) else None
    return version if isinstance(version, str) else ""


def modern_headers(method: str, params: Mapping[str, Any], schema: Mapping[str, Any]) -> Pairs:
    """The headers of a request since 2026-07-28. `schema` is that of the arguments of the tool that is called."""
    pairs = [("MCP-Protocol-Version", modern_version(params)), ("Mcp-Method", method)]
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        pairs.append(("Mcp-Name", header_text(name)))
    arguments = params.get("arguments")
    if method == "tools/call" and isinstance(arguments, Mapping):
        pairs += _argument_headers(schema, arguments)
    if sum(len(key) + len(value) for key, value in pairs) > MOST_BYTES:
        raise BadHeaders(f"the name and the arguments that headers repeat have more than {MOST_BYTES} bytes")
    return tuple(pairs)


def header_text(text: str) -> str:
    """A text as the value of a header: as it is if it is plain ASCII, else in base64.

    >>> header_text("search"), header_text("größe")
    ('search', '=?base64?Z3LDtsOfZQ==?=')
    """
    if not text or (_PLAIN.fullmatch(text) and not _ENCODED.fullmatch(text)):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode('ascii')}?="


def _argument_headers(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for path, header, kind in annotated(schema):
        if not isinstance(header, str) or not TOKEN.fullmatch(header) or kind not in _TYPES or header.lower() in seen:
            raise BadHeaders(f"the tool's schema has an invalid `{ANNOTATION}` at `{'.'.join(path)}`")
        seen.add(header.lower())
        value = _at(arguments, path)
        if isinstance(value, bool):
            yield f"Mcp-Param-{header}", "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield f"Mcp-Param-{header}", header_text(str(value))


def annotated(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The arguments that headers repeat: the path through `properties`, the name of the header, the type."""
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) and len(path) < 20 else ():
        if isinstance(inner, Mapping):
            if ANNOTATION in inner:
                yield (*path, name), inner[ANNOTATION], inner.get("type")
            yield from annotated(inner, (*path, name))


def _at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = arguments
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
