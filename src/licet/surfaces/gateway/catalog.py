"""What one client is shown: definitions under their shown names, in one page if possible, and who is behind a name."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Raw

from licet.core.algebra.scope import visible
from licet.surfaces.gateway.backend import Backend, Offered, ShownTool
from licet.surfaces.gateway.eras import ProtocolError, definition_for
from licet.surfaces.gateway.jsonrpc import INVALID_PARAMS
from licet.surfaces.gateway.names import Naming, shown_name, shown_names
from licet.surfaces.gateway.shown_lists import before_variables

ListKind = Literal["tools", "resources", "resourceTemplates", "prompts"]
Items = Sequence[ShownTool] | Sequence[Offered]
MOST_ITEMS = 5_000  # definitions in one page: the SDKs of clients read the first page alone
MOST_BYTES = 4 << 20  # of the definitions in one page


class Catalog:
    """The lists of a backend as a client of one protocol version sees them. Raises `Clash` for equal shown names."""

    def __init__(self, backend: Backend, how: Naming, version: str) -> None:
        self._backend = backend
        self._how = how
        self._version = version
        self._sources: Mapping[ListKind, Callable[[], Items]] = {
            "tools": backend.tools,
            "resources": backend.resources,
            "resourceTemplates": backend.templates,
            "prompts": backend.prompts,
        }
        self._listings: dict[ListKind, _Listing] = {}
        self._listing("tools")
        self._listing("prompts")

    def page(self, kind: ListKind, cursor: object) -> dict[str, Any]:
        """One page of definitions. A cursor is good as long as the list stays as it is."""
        return self._listing(kind).page(cursor)

    @property
    def has_resources(self) -> bool:
        return bool(self._backend.resources() or self._backend.templates())

    @property
    def has_prompts(self) -> bool:
        return bool(self._backend.prompts())

    def tool(self, shown: str) -> str | None:
        """The full name of a tool, or None if none is shown under this name."""
        return self._listing("tools").behind.get(shown)

    def hidden_tool(self, shown: str) -> str:
        """The full name of the hidden tool that would be shown under this name; empty unless there is just one."""
        known = [full for full in self._backend.hidden() if self._how == "whole" or "." in full.strip(".")]
        found = [full for full in known if shown in (full, shown_name(full, self._how))]
        return found[0] if len(found) == 1 else ""

    def prompt(self, shown: str) -> tuple[str, str]:
        """The server of a prompt, and its name there."""
        full = self._listing("prompts").behind.get(shown)
        if full is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no prompt `{visible(shown[:200])}`")
        server, _, name = full.partition(".")
        return server, name

    def server_of(self, uri: str) -> str:
        """The server that a URI or a URI template belongs to.

        It is the one that lists it, else the one with a template that starts like it, else the only one with resources.
        A URI of two servers is refused: if the first one won, it could answer in the place of the other.
        """
        resources, templates = self._backend.resources(), self._backend.templates()
        everyone = {item.server for item in (*resources, *templates)}
        written = [(item.server, str(item.definition.get("uriTemplate", ""))) for item in templates]
        servers = (
            {item.server for item in resources if item.definition.get("uri") == uri}
            or {server for server, template in written if template == uri}
            or {server for server, template in written if uri.startswith(before_variables(template))}
            or (everyone if len(everyone) == 1 else set())
        )
        if len(servers) == 1:
            return servers.pop()
        found = f"is offered by {' and by '.join(sorted(servers))}" if servers else "is offered by no server"
        raise ProtocolError(INVALID_PARAMS, f"resource `{visible(uri[:200])}` {found}")

    def _listing(self, kind: ListKind) -> "_Listing":
        items, listing = self._sources[kind](), self._listings.get(kind)
        if listing is None or listing.items is not items:
            listing = self._listings[kind] = _Listing(kind, items, self._how, self._version, listing)
        return listing


class _Listing:
    """One list as this client sees it. What is in the list `before` it, too, is not written again."""

    def __init__(self, kind: ListKind, items: Items, how: Naming, version: str, before: "_Listing | None") -> None:
        self.kind = kind
        self.items = items
        self.behind: dict[str, str] = {}  # shown name -> `server.name`, of tools and prompts, also of those not listed
        if kind in ("tools", "prompts"):
            self.behind = shown_names(map(_full_name, items), how)
        written = before.written if before is not None else {}
        # By the identity of the definition, which stays the same.
        self.written: dict[int, tuple[ShownTool | Offered, Raw]] = {
            id(item.definition): written.get(id(item.definition)) or (item, _json(kind, item, how, version))
            for item in items
        }
        self._texts = [self.written[id(item.definition)][1] for item in items if item.listed]
        starts = _page_starts(self._texts)
        self._ends = dict(zip(starts, [*starts[1:], len(self._texts)], strict=True))
        digest = sha256(b"\n".join(self._texts)).hexdigest()[:16] if len(starts) > 1 else ""
        self._starts = {f"{kind}-{digest}-{start}": start for start in starts[1:]}
        self._cursors = {start: cursor for cursor, start in self._starts.items()}

    def page(self, cursor: object) -> dict[str, Any]:
        start = 0 if cursor is None else self._starts.get(cursor) if isinstance(cursor, str) else None
        if start is None:
            raise ProtocolError(INVALID_PARAMS, "`cursor` is not of this list, or the list has changed: list again")
        end = self._ends[start]
        page: dict[str, Any] = {self.kind: self._texts[start:end]}
        following = self._cursors.get(end)
        return {**page, "nextCursor": following} if following else page


def _json(kind: ListKind, item: ShownTool | Offered, how: Naming, version: str) -> Raw:
    definition = definition_for(kind, item.definition, version)
    if kind in ("tools", "prompts"):
        definition["name"] = shown_name(_full_name(item), how)
    return Raw(msgspec.json.encode(definition))


def _page_starts(texts: Sequence[Raw]) -> list[int]:
    starts, size = [0], 0
    for number, text in enumerate(texts):
        size += memoryview(text).nbytes
        if number > starts[-1] and (number - starts[-1] >= MOST_ITEMS or size > MOST_BYTES):
            starts.append(number)
            size = memoryview(text).nbytes
    return starts


def _full_name(item: ShownTool | Offered) -> str:
    return item.name if isinstance(item, ShownTool) else f"{item.server}.{item.definition.get('name', '')}"
