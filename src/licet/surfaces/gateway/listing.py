"""Collects the definitions of a server: its tools, resources, resource templates and prompts, from all pages.

A server can make a list as long as it likes, and change it while it is read. Everything is bounded, and what cannot be
told apart (two tools of one name, a cursor that comes again) is an error.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import Struct

from licet.core.policy.lock import LockedServer, NamedPlaces, portable
from licet.surfaces.gateway.jsonrpc import METHOD_NOT_FOUND
from licet.surfaces.gateway.upstream import Opened, Upstream, UpstreamError

MOST_PAGES = 100  # of all lists together
MOST_ITEMS = 10_000
MOST_BYTES = 16 << 20
MOST_CURSOR = 10_000  # characters
SETTLE_SECONDS = 0.3  # in which a server may say that its lists changed after all
MOST_TIMES = 5  # that the lists are read

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}")


class BadListing(Exception):
    """The definitions of a server cannot be used; the text says which and why."""


class Definitions(Struct, frozen=True):
    """The definitions of a server as it sent them, in its order."""

    tools: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()


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
    )


def claimed_version(opened: Opened) -> str:
    """The version that a server says of itself; empty if that is no version."""
    version = opened.server.get("version")
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else ""


class _List(NamedTuple):
    capability: str
    method: str
    key: str  # of the items in a result
    name: str  # the key that tells items apart


_LISTS = (
    _List("tools", "tools/list", "tools", "name"),
    _List("resources", "resources/list", "resources", "uri"),
    _List("resources", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    _List("prompts", "prompts/list", "prompts", "name"),
)


class _Room:
    """What is left of the limits."""

    def __init__(self) -> None:
        self.pages, self.items, self.bytes = MOST_PAGES, MOST_ITEMS, MOST_BYTES

    def take(self, method: str, items: int, size: int) -> None:
        self.pages, self.items, self.bytes = self.pages - 1, self.items - items, self.bytes - size
        for left, most, what in (
            (self.pages, MOST_PAGES, "pages"),
            (self.items, MOST_ITEMS, "definitions"),
            (self.bytes, MOST_BYTES, "bytes"),
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
    lists = [
        await _read(upstream, kind, room, seconds) if kind.capability in opened.capabilities else () for kind in _LISTS
    ]
    return Definitions(*lists)


async def _read(upstream: Upstream, kind: _List, room: _Room, seconds: float) -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    while True:
        try:
            answer = await upstream.request(kind.method, params, seconds=seconds)
        except UpstreamError as wrong:
            if wrong.code == METHOD_NOT_FOUND and not params:  # a server with resources may have no templates
                return ()
            raise
        items = answer.data.get(kind.key)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise BadListing(f"`{kind.method}`: expected a list of objects under `{kind.key}`")
        room.take(kind.method, len(items), len(answer.text))
        found += items
        cursor = answer.data.get("nextCursor")
        if cursor is None:
            break
        if not isinstance(cursor, str) or len(cursor) > MOST_CURSOR:
            raise BadListing(f"`{kind.method}`: `nextCursor` is not a short text")
        if cursor in cursors:
            raise BadListing(f"`{kind.method}`: the cursor `{cursor[:100]}` comes a second time")
        cursors.add(cursor)
        params = {"cursor": cursor}
    _check_names(kind, found)
    return tuple(found)


def _check_names(kind: _List, items: list[dict[str, Any]]) -> None:
    names: set[str] = set()
    for item in items:
        name = item.get(kind.name)
        if not isinstance(name, str) or not name:
            raise BadListing(f"`{kind.method}`: a definition without `{kind.name}`")
        if name in names:
            raise BadListing(f"`{kind.method}`: `{name[:100]}` is defined twice")
        names.add(name)
