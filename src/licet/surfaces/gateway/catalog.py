"""What one client is shown: pages of definitions under their shown names, and who is behind a name or URI."""

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
PAGE = 100


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
            listing = self._listings[kind] = _Listing(kind, items, self._how, self._version)
        return listing


class _Listing:
    """One list as this client sees it, written once."""

    def __init__(self, kind: ListKind, items: Items, how: Naming, version: str) -> None:
        self.kind = kind
        self.items = items
        self.behind: dict[str, str] = {}  # shown name -> `server.name`, of tools and prompts
        definitions = [definition_for(kind, item.definition, version) for item in items]
        if kind in ("tools", "prompts"):
            names = [_full_name(item) for item in items]
            self.behind = shown_names(names, how)
            for definition, full in zip(definitions, names, strict=True):
                definition["name"] = shown_name(full, how)
        self._texts = [Raw(msgspec.json.encode(definition)) for definition in definitions]
        digest = sha256(b"\n".join(map(bytes, self._texts))).hexdigest()[:16]
        self._starts = {f"{kind}-{digest}-{start}": start for start in range(PAGE, len(definitions), PAGE)}
        self._cursors = {start: cursor for cursor, start in self._starts.items()}

    def page(self, cursor: object) -> dict[str, Any]:
        start = 0 if cursor is None else self._starts.get(cursor) if isinstance(cursor, str) else None
        if start is None:
            raise ProtocolError(INVALID_PARAMS, "`cursor` is not of this list, or the list has changed: list again")
        page: dict[str, Any] = {self.kind: self._texts[start : start + PAGE]}
        following = self._cursors.get(start + PAGE)
        return {**page, "nextCursor": following} if following else page


def _full_name(item: ShownTool | Offered) -> str:
    return item.name if isinstance(item, ShownTool) else f"{item.server}.{item.definition.get('name', '')}"
