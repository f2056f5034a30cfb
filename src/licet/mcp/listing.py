"""Collects the definitions of a server: its tools, resources, resource templates and prompts, from all pages.

A server can make a list as long as it likes, and change it while it is read. Everything is bounded. A definition that
cannot be used is left out with the reason, and costs no other one: it does not fit the protocol, it is too long, or
several have its name. A list that does not end is an error.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.core.policy.lock import LockedServer, NamedPlaces, portable
from licet.mcp.broken_lists import Unreadable, broken_list
from licet.mcp.exchange import UpstreamError
from licet.mcp.jsonrpc import METHOD_NOT_FOUND
from licet.mcp.limits import (
    LONGEST_CURSOR,
    LONGEST_NAME,
    MOST_DEFINITION_BYTES,
    MOST_DEFINITIONS,
    MOST_LEFT_OUT,
    MOST_LISTS_BYTES,
    MOST_PAGES,
    MOST_TIMES,
    SETTLE_SECONDS,
)
from licet.mcp.upstream import Opened, Upstream
from licet.policy_files.server_tools import shape_problem

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}")


class BadListing(Exception):
    """The definitions of a server cannot be used; the text says which and why."""


class Definitions(Struct, frozen=True):
    """The definitions of a server as it sent them, in its order."""

    tools: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    left_out: Mapping[str, str] = {}  # `tools/NAME` -> why


def as_locked(found: Definitions, places: NamedPlaces) -> LockedServer:
    """Definitions as a lock has them: without `_meta`, and with directories of this machine by name."""

    def named(listed: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        kept = ({key: value for key, value in one.items() if key != "_meta"} for one in listed)
        return tuple(portable(one, places) for one in kept)

    return LockedServer(
        tools=named(found.tools),
        resources=named(found.resources),
        templates=named(found.templates),
        prompts=named(found.prompts),
        refused=found.left_out,
    )


def claimed_version(opened: Opened) -> str:
    """The version that a server says of itself; empty if that is no version."""
    version = opened.server.get("version")
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else ""


class _List(NamedTuple):
    kind: str  # as a lock has it
    capability: str
    method: str
    key: str  # of the items in a result
    name: str  # the key that tells items apart


_LISTS = (
    _List("tools", "tools", "tools/list", "tools", "name"),
    _List("resources", "resources", "resources/list", "resources", "uri"),
    _List("templates", "resources", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    _List("prompts", "prompts", "prompts/list", "prompts", "name"),
)


class _Room:
    """What is left of the limits."""

    def __init__(self) -> None:
        self.pages, self.items, self.bytes = MOST_PAGES, MOST_DEFINITIONS, MOST_LISTS_BYTES

    def take(self, method: str, items: int, size: int) -> None:
        self.pages, self.items, self.bytes = self.pages - 1, self.items - items, self.bytes - size
        for left, most, what in (
            (self.pages, MOST_PAGES, "pages"),
            (self.items, MOST_DEFINITIONS, "definitions"),
            (self.bytes, MOST_LISTS_BYTES, "bytes"),
        ):
            if left < 0:
                raise BadListing(f"`{method}`: more than {most} {what}")


async def definitions(upstream: Upstream, opened: Opened, *, seconds: float) -> Definitions:
    """All definitions of a server, read within so many seconds. Raises `BadListing`, and what `request` raises.

    Servers of 2025 may add tools after they were opened, and say so. Then the lists are read again.
    """
    try:
        async with asyncio.timeout(seconds):
            for _ in range(MOST_TIMES):
                upstream.changed.clear()
                found = await _read_all(upstream, opened, seconds)
                if not _may_change(opened) or not await _has_changed(upstream):
                    return found
    except TimeoutError:
        raise BadListing(f"the definitions did not come within {seconds:g} s") from None
    raise BadListing(f"the lists changed each of the {MOST_TIMES} times that they were read")


def _may_change(opened: Opened) -> bool:
    """Whether the server has said that its lists may change. Servers of 2026 need not: they open with full lists."""
    capabilities = [opened.capabilities.get(kind.capability) for kind in _LISTS]
    return opened.era == "2025" and any(isinstance(one, dict) and one.get("listChanged") for one in capabilities)


async def _has_changed(upstream: Upstream) -> bool:
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            return await upstream.changed.wait()
    except TimeoutError:
        return False


async def _read_all(upstream: Upstream, opened: Opened, seconds: float) -> Definitions:
    room = _Room()
    lists: dict[str, tuple[dict[str, Any], ...]] = {}
    left_out: dict[str, str] = {}
    for kind in _LISTS:
        if kind.capability in opened.capabilities:
            found = await _read(upstream, kind, room, seconds)
            lists[kind.kind] = await asyncio.to_thread(_usable, kind, found, left_out)
    return Definitions(**lists, left_out=left_out)


async def _read(upstream: Upstream, kind: _List, room: _Room, seconds: float) -> list[Any]:
    found: list[Any] = []
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    while True:
        try:
            answer = await upstream.request(
                kind.method,
                params,
                seconds=seconds,
                most=MOST_LISTS_BYTES,
                mend=partial(broken_list, key=kind.key, name=kind.name),
            )
        except UpstreamError as wrong:
            if wrong.code == METHOD_NOT_FOUND and not params:  # a server with resources may have no templates
                return []
            raise
        items = answer.data.get(kind.key)
        if not isinstance(items, list):
            raise BadListing(f"`{kind.method}`: expected a list under `{kind.key}`")
        room.take(kind.method, len(items), len(answer.text))
        found += items
        cursor = answer.data.get("nextCursor")
        if cursor is None:
            return found
        if not isinstance(cursor, str) or len(cursor) > LONGEST_CURSOR:
            raise BadListing(f"`{kind.method}`: `nextCursor` is not a short text")
        if cursor in cursors:
            raise BadListing(f"`{kind.method}`: the cursor `{visible(cursor[:100])}` comes a second time")
        cursors.add(cursor)
        params = {"cursor": cursor}


def _usable(kind: _List, items: list[Any], left_out: dict[str, str]) -> tuple[dict[str, Any], ...]:
    """The definitions that can be used. The others are entered in `left_out`."""
    times = Counter(name for name in (_name(kind, item) for item in items) if name)
    found, more = [], 0
    for number, item in enumerate(items, start=1):
        name = _name(kind, item)
        if isinstance(item, Unreadable):
            why = item.why
        else:
            why = _problem(kind, item) if name else f"no text under `{kind.name}`"
        if not why and times[name] > 1:
            why = f"{times[name]} definitions have this `{kind.name}`"
        if not why:
            found.append(item)
        elif len(left_out) < MOST_LEFT_OUT:
            left_out[f"{kind.kind}/{_label(name, number, times)}"] = why
        else:
            more += 1
    if more:
        left_out[f"{kind.kind}/{_unlike('…', times)}"] = f"{more} more definitions cannot be used"
    return tuple(found)


def _label(name: str, number: int, names: Container[str]) -> str:
    """What a definition that is left out is called: its name, or what can be shown of it."""
    shown = _shown(name) or f"number {number}"
    return shown if shown == name else _unlike(shown, names)


def _unlike(label: str, names: Container[str]) -> str:
    """A label that is no name of the list: a definition counts as left out if it has the name of an entry."""
    while label in names:
        label += "…"
    return label


def _name(kind: _List, item: object) -> str:
    if isinstance(item, Unreadable):
        return item.name
    name = item.get(kind.name) if isinstance(item, dict) else None
    return name if isinstance(name, str) else ""


def _problem(kind: _List, item: dict[str, Any]) -> str:
    if len(item[kind.name]) > LONGEST_NAME:
        return f"its `{kind.name}` has more than {LONGEST_NAME} characters"
    if len(msgspec.json.encode(item)) > MOST_DEFINITION_BYTES:
        return f"it has more than {MOST_DEFINITION_BYTES >> 10} KiB"
    return shape_problem(kind.kind, item) or (hidden_from_models(item) if kind.kind == "tools" else "")


HIDDEN = "its server hides it from models"


def hidden_from_models(tool: Mapping[str, Any]) -> str:
    """Why a tool is not for models; empty if it is.

    A server that shows pages of its own (MCP Apps) has tools for these pages alone, such as the button with which a
    person agrees. A host must not list a tool for the model whose visibility is stated without `model`. The flat key is
    that of drafts of the extension, and the last one that of the Apps SDK.
    """
    meta = tool.get("_meta")
    if not isinstance(meta, dict):
        return ""
    page = meta.get("ui")
    stated = {
        "ui.visibility": page.get("visibility") if isinstance(page, dict) else None,
        "ui/visibility": meta.get("ui/visibility"),
    }
    for key, audience in stated.items():
        if audience is not None and not (isinstance(audience, list) and "model" in audience):
            return f"{HIDDEN} (`_meta` `{key}` is stated without `model`)"
    if meta.get("openai/visibility") not in (None, "public"):
        return f"{HIDDEN} (`_meta` `openai/visibility` is not `public`)"
    return ""


def _shown(name: str) -> str:
    return visible(name) if len(name) <= 100 else f"{visible(name[:100])}…"
