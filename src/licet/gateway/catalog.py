"""What one client is shown: locked definitions of what its agent may call, read and use, and who is behind a name.

`ShownLists` makes the lists of a session; tools of a workspace, for `licet serve`, are in them. A `Catalog` is these
lists as a client of one protocol version sees them: under their shown names, in one page if possible.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from licet.core.algebra.scope import visible
from licet.core.policy.lock import LockedServer, NamedPlaces, local
from licet.core.policy.servers import PROMPTS, RESOURCES
from licet.declare import Tool
from licet.gateway.client import Changed
from licet.gateway.limits import MOST_PAGE_BYTES, MOST_PAGE_ITEMS
from licet.gateway.running_server import RunningServer
from licet.guard.registration import RegisteredTools
from licet.mcp.jsonrpc import INVALID_PARAMS, ProtocolError
from licet.mcp.protocol import definition_for
from licet.mcp.shown_names import Naming, shown_name, shown_names
from licet.mcp.upstream import Era, locked_in_era
from licet.policy_files.server_tools import shape_problem


class ShownTool(Struct, frozen=True):
    """A tool that this agent may call."""

    name: str  # `server.tool`
    definition: dict[str, Any]  # the locked one
    listed: bool = True  # False while its server does not offer it as it was locked, or it cannot run here


class Offered(Struct, frozen=True):
    """A resource, template or prompt that this agent may use."""

    server: str
    definition: dict[str, Any]  # the locked one
    listed: bool = True  # as of a tool


def own_definition(tool: Tool) -> dict[str, Any]:
    """The definition of a tool of the workspace. Its annotations come from its declaration."""
    effect = tool.effect or "destructive"
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.schema) or {"type": "object"},
        "annotations": {"readOnlyHint": effect == "read_only", "destructiveHint": effect in ("full", "destructive")},
    }


def own_result(value: object, *, cut: str = "") -> dict[str, Any]:
    """The result of a tool of the workspace: its value as text, and as it is if it is an object.

    A result that was cut is a piece of text, and says so with the line `cut`.
    """
    if cut:
        return {"content": [{"type": "text", "text": f"{value}"}, {"type": "text", "text": cut}], "isError": True}
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    return {**result, "structuredContent": value} if isinstance(value, dict) else result


def error_result(line: str) -> dict[str, Any]:
    """A tool result that says one line to the model, and that the call failed."""
    return {"content": [{"type": "text", "text": line}], "isError": True}


def too_long(limit: int) -> str:
    """One line for the model about a result with more bytes than its tool may return."""
    return (
        f"LIMIT_OUTPUT: the result is longer than the {limit / 1024:,.0f} KiB that this tool may return "
        "(`limits.output_kb` in the policy), and was cut: ask for less at once"
    )


_T = TypeVar("_T")
# A client is told of changed templates as of changed resources.
_TOLD: Mapping[str, Changed] = {
    "tools": "tools", "resources": "resources", "templates": "resources", "prompts": "prompts"
}  # fmt: skip


class ShownLists:
    """Makes each list once, and again when the policy or what a server offers has changed. It waits for no server.

    A list is the same object until something in it changes, and is in a fixed order. What a server turns out not to
    offer stays in it, and is not listed any more.
    With `all_listed`, resources and prompts are shown also if `servers.NAME` does not list them.
    """

    def __init__(
        self,
        policy: Callable[[], RegisteredTools],
        locked: Mapping[str, LockedServer],
        places: NamedPlaces,
        *,
        all_listed: bool = False,
    ) -> None:
        self._policy, self._places, self._all_listed = policy, dict(places), all_listed
        self._lock = dict(locked)
        self._era: Era | Literal[""] = ""  # of the client
        self._locked = self._lock  # what the servers were locked as in that era
        self.running: Mapping[str, RunningServer] = {}
        self.unavailable: Mapping[str, str] = {}  # tools of the workspace that say that they cannot run here, and why
        self._lists: dict[str, tuple[tuple[object, object], Sequence[Any]]] = {}
        self._own_definitions: dict[str, tuple[Tool, dict[str, Any]]] = {}
        self._definitions: dict[tuple[str, str, str], dict[str, Any]] = {}

    def use(self, locked: Mapping[str, LockedServer]) -> None:
        """Take another lock. Definitions of servers that it has as before stay the same objects."""
        self._take(locked, self._era)

    def speak(self, era: Era | Literal[""]) -> None:
        """Show what the servers offer in the era of the client, where they were locked in it."""
        if era != self._era:
            self._take(self._lock, era)
            self._lists.clear()

    def _take(self, lock: Mapping[str, LockedServer], era: Era | Literal[""]) -> None:
        in_era = {name: locked_in_era(locked, era) for name, locked in lock.items()}
        same = {name for name, locked in in_era.items() if self._locked.get(name) == locked}
        self._definitions = {key: made for key, made in self._definitions.items() if key[0] in same}
        self._lock, self._era, self._locked = dict(lock), era, in_era

    def changes(self) -> list[Changed]:
        """Make the lists again, and name those that are others now."""
        before = {kind: _listed(kept[1]) for kind, kept in self._lists.items()}
        self._lists.clear()
        shown = {"tools": self.tools, "resources": self.resources, "templates": self.templates, "prompts": self.prompts}
        changed = [_TOLD[kind] for kind, found in before.items() if _listed(shown[kind]()) != found]
        return list(dict.fromkeys(changed))

    def tools(self) -> Sequence[ShownTool]:
        """The tools that this agent may call, by name."""
        return self._kept("tools", self._tools)

    def hidden(self) -> Iterator[str]:
        """The tools that the policy or a lock knows, and that are not shown."""
        shown = {tool.name for tool in self.tools()}
        policy = self._policy()
        locked = (f"{name}.{tool}" for name, one in self._locked.items() for tool in one.in_all_versions("tools"))
        yield from sorted({*policy.tools, *policy.manifest.admissions, *locked} - shown)

    def resources(self) -> Sequence[Offered]:
        """The resources that this agent may read."""
        return self._kept("resources", lambda: self._offered("resources", RESOURCES))

    def templates(self) -> Sequence[Offered]:
        """The templates of resources that this agent may read."""
        return self._kept("templates", lambda: self._offered("templates", RESOURCES))

    def prompts(self) -> Sequence[Offered]:
        """The prompts that this agent may use."""
        return self._kept("prompts", lambda: self._offered("prompts", PROMPTS))

    def _is_listed(self, server: str, kind: str, name: str) -> bool:
        one = self.running[server]
        return one.offers(kind, name) if self._all_listed else one.is_shown(kind, name)

    def is_template(self, server: str, uri: str) -> bool:
        """Whether the client is shown this template of a server."""
        return any(one.server == server and one.definition.get("uriTemplate") == uri for one in self.templates())

    def definition(self, server: str, kind: str, name: str) -> dict[str, Any]:
        """A locked definition, with the directories of this machine."""
        kept = self._definitions.get((server, kind, name))
        if kept is None:  # once: each call needs its definition
            source = self._locked.get(server)
            found = local(source.listed(kind).get(name, {}), self._places) if source is not None else {}
            kept = self._definitions[server, kind, name] = {key: found[key] for key in found if key != "_meta"}
        return kept

    def _own(self, name: str, tool: Tool) -> dict[str, Any]:
        kept = self._own_definitions.get(name)
        if kept is None or kept[0] is not tool:
            kept = self._own_definitions[name] = tool, own_definition(tool)
        return kept[1]

    def instructions(self) -> str:
        """What the servers in use tell models, as it was locked, each as the words of its server."""
        texts = {name: self._locked[name].instructions for name in sorted(self.running) if name in self._locked}
        told = {name: local(text, self._places) for name, text in texts.items() if text}
        return "\n\n".join(told_by(name, text) for name, text in told.items())

    def _kept(self, kind: str, make: Callable[[], Sequence[_T]]) -> Sequence[_T]:
        policy, unavailable = self._policy(), self.unavailable
        kept = self._lists.get(kind)
        if kept is None or kept[0][0] is not policy or kept[0][1] is not unavailable:
            kept = self._lists[kind] = (policy, unavailable), make()
        found: Sequence[_T] = kept[1]
        return found

    def _tools(self) -> Sequence[ShownTool]:
        found = []
        for name, registered in sorted(self._policy().tools.items()):
            server, _, tool = name.partition(".")
            if not registered.ready:
                continue
            if server not in self.running:
                found.append(ShownTool(name, self._own(name, registered.tool), name not in self.unavailable))
            elif tool not in (RESOURCES, PROMPTS) and self._is_locked(server, tool):
                is_listed = self._is_listed(server, "tools", tool)
                found.append(ShownTool(name, self.definition(server, "tools", tool), is_listed))
        return found

    def _is_locked(self, server: str, tool: str) -> bool:
        """Whether a tool is in the lock as the client sees it: another version of the protocol may have others."""
        locked = self._locked.get(server)
        return locked is not None and tool in locked.listed("tools") and f"tools/{tool}" not in locked.refused

    def _offered(self, kind: str, tool: str) -> Sequence[Offered]:
        found = []
        for name, one in sorted(self.running.items()):
            registered, source = self._policy().tools.get(f"{name}.{tool}"), self._locked.get(name)
            if registered is None or not registered.ready or source is None:
                continue
            listed = one.server.shows_prompt if kind == "prompts" else one.server.shows_resource
            for item, definition in source.listed(kind).items():
                known = before_variables(item) if kind == "templates" else item
                if f"{kind}/{item}" in source.refused or shape_problem(kind, definition):
                    continue
                if self._all_listed or listed(known):
                    found.append(Offered(name, self.definition(name, kind, item), self._is_listed(name, kind, item)))
        return found


def _listed(items: Sequence[Any]) -> list[int]:
    """What a client is shown of a list. A definition is the same object as long as its server is locked with it."""
    return [id(item.definition) for item in items if item.listed]


def told_by(server: str, text: str, verb: str = "says") -> str:
    """A server's words, marked line by line, so that no line looks like one of licet or of another server."""
    return "\n".join((f"The MCP server `{server}` {verb}:", *(f"> {line}" for line in text.splitlines())))


def before_variables(uri: str) -> str:
    """A URI template up to its first variable."""
    return uri.partition("{")[0]


ListKind = Literal["tools", "resources", "resourceTemplates", "prompts"]
Items = Sequence[ShownTool] | Sequence[Offered]


class Catalog:
    """The lists of a session as a client of one protocol version sees them. Raises `Clash` for equal shown names."""

    def __init__(self, lists: ShownLists, how: Naming, version: str) -> None:
        self._lists = lists
        self._how = how
        self._version = version
        self._sources: Mapping[ListKind, Callable[[], Items]] = {
            "tools": lists.tools,
            "resources": lists.resources,
            "resourceTemplates": lists.templates,
            "prompts": lists.prompts,
        }
        self._listings: dict[ListKind, _Listing] = {}
        self._listing("tools")
        self._listing("prompts")

    def page(self, kind: ListKind, cursor: object) -> dict[str, Any]:
        """One page of definitions. A cursor is good as long as the list stays as it is."""
        return self._listing(kind).page(cursor)

    @property
    def has_resources(self) -> bool:
        return bool(self._lists.resources() or self._lists.templates())

    @property
    def has_prompts(self) -> bool:
        return bool(self._lists.prompts())

    def tool(self, shown: str) -> str | None:
        """The full name of a tool, or None if none is shown under this name."""
        return self._listing("tools").behind.get(shown)

    def hidden_tool(self, shown: str) -> str:
        """The full name of the hidden tool that would be shown under this name; empty unless there is just one."""
        known = [full for full in self._lists.hidden() if self._how == "whole" or "." in full.strip(".")]
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
        resources, templates = self._lists.resources(), self._lists.templates()
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
        if number > starts[-1] and (number - starts[-1] >= MOST_PAGE_ITEMS or size > MOST_PAGE_BYTES):
            starts.append(number)
            size = memoryview(text).nbytes
    return starts


def _full_name(item: ShownTool | Offered) -> str:
    return item.name if isinstance(item, ShownTool) else f"{item.server}.{item.definition.get('name', '')}"
