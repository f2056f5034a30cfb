"""What the gateway does with a result of a server before anybody sees it.

Links to resources that the agent may not read are removed, structured content must fit the locked schema, and hidden
characters are noted, or written visibly. Everything else stays as it came.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from licet.core.algebra.scope import visible
from licet.core.policy.lock import Definition, hidden_in, shown
from licet.core.policy.servers import Server
from licet.declare.json_schema import NO_FIT, TOO_LONG, SchemaCheck
from licet.declare.patience import patiently
from licet.declare.plain_json import is_heavy, json_core
from licet.guard.execution import FailedText, JsonText, Stopped
from licet.surfaces.gateway.methods import VERSIONS, find
from licet.surfaces.gateway.refusals import quoted

Note = Callable[[str], None]
_RESULT = ("resultType", "ttlMs", "cacheScope", "_meta")  # of the protocol; the connection writes its own


async def checked_result(
    method: str, text: bytes, data: dict[str, Any], server: Server, definition: Definition, hidden: str, note: Note
) -> JsonText:
    """The JSON of a result as the client will get it. Raises `Stopped` if it does not fit the locked schema."""
    changed = {key: value for key, value in data.items() if key in _known_keys(method)}
    if dropped := sorted(data.keys() - changed.keys() - set(_RESULT)):
        note(f"keys of the result that are not in the protocol were left out: {', '.join(dropped)[:200]}")
    if method == "tools/call":
        changed["content"] = _content(changed.get("content", []), server, note)
        await _check_structured(changed, definition, note)
    elif method == "resources/read":
        changed["contents"] = [one for one in _listed(changed.get("contents")) if _may_read(one, server, note)]
    elif method == "prompts/get":
        changed["messages"] = [_message(one, server, note) for one in _listed(changed.get("messages"))]
    if found := hidden_in(changed):
        note(f"hidden characters in the result: {', '.join(found[:20])}")
        if hidden == "show":
            changed = await asyncio.to_thread(shown, changed)  # a megabyte takes a third of a second
    made = text if changed == data else msgspec.json.encode(changed)
    return FailedText(made) if method == "tools/call" and changed.get("isError") is True else JsonText(made)


def logged(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A log message of a server: with its name, and without hidden characters. A long one does not get here."""
    logger, data = f"{server}: {visible(str(params.get('logger') or '')[:100])}".rstrip(": "), params.get("data")
    return {**params, "logger": logger, **({"data": shown(data)} if "data" in params else {})}


def cut_result(value: Any, line: str) -> dict[str, Any]:
    """The result of a tool that returned too much: the texts at its beginning, as text, and a line about the rest.

    `value` is the beginning of its JSON. A block that is no text, or does not begin in it, is left out.
    """
    try:
        text = value.encode() if isinstance(value, str) else b""
        found = {} if is_heavy(text) else json_core().from_json(text, allow_partial="trailing-strings")
    except ValueError:
        found = {}
    blocks = _listed(found.get("content")) if isinstance(found, dict) else []
    texts = [one["text"] for one in blocks if isinstance(one, dict) and one.get("type") == "text" and "text" in one]
    content = [{"type": "text", "text": one} for one in texts if isinstance(one, str)]
    return {"content": [*content, {"type": "text", "text": line}], "isError": True}


def _known_keys(method: str) -> frozenset[str]:
    row = find(method, "request", "client", VERSIONS[-1])
    return row.result if row is not None else frozenset()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _content(value: Any, server: Server, note: Note) -> list[Any]:
    return [_block(one, server, note) for one in _listed(value)]


def _message(value: Any, server: Server, note: Note) -> Any:
    if not isinstance(value, dict):
        return value
    content = value.get("content")
    if isinstance(content, list):
        return {**value, "content": _content(content, server, note)}
    return {**value, "content": _block(content, server, note)} if isinstance(content, dict) else value


def _block(block: Any, server: Server, note: Note) -> Any:
    """One block of content; a text takes the place of a link to a resource that may not be read."""
    if not isinstance(block, dict) or block.get("type") not in ("resource", "resource_link"):
        return block
    about = block.get("resource") if block["type"] == "resource" else block
    uri = about.get("uri") if isinstance(about, Mapping) else None
    if isinstance(uri, str) and server.shows_resource(uri):
        return block
    note(f"a link to a resource was removed: {str(uri)[:200]}")
    return {"type": "text", "text": f"[removed: a resource that `servers.{server.name}.resources` does not list]"}


def _may_read(content: Any, server: Server, note: Note) -> bool:
    uri = content.get("uri") if isinstance(content, Mapping) else None
    if isinstance(uri, str) and server.shows_resource(uri):
        return True
    note(f"contents of another resource were removed: {str(uri)[:200]}")
    return False


async def _check_structured(result: dict[str, Any], definition: Definition, note: Note) -> None:
    schema, failed = definition.get("outputSchema"), result.get("isError") is True
    if not isinstance(schema, dict) or (failed and "structuredContent" not in result):
        return
    if "structuredContent" not in result:
        raise Stopped("TOOL_CRASHED", "the server's result has no structured content, which its locked schema demands")
    check = _compiled(msgspec.json.encode(schema, order="sorted"))
    wrong = await patiently(check.wrong_with, result["structuredContent"])
    if wrong and failed:
        del result["structuredContent"]
        note("structured content of an error, which does not fit the locked schema, was left out")
    elif wrong in (NO_FIT, TOO_LONG):
        raise Stopped("TOOL_CRASHED", f"the server's structured content {wrong}")
    elif wrong:
        raise Stopped(
            "TOOL_CRASHED", f"the server's structured content does not fit its locked schema: {quoted(wrong)}"
        )


@lru_cache(maxsize=1000)
def _compiled(schema: bytes) -> SchemaCheck:
    return SchemaCheck(msgspec.json.decode(schema))
