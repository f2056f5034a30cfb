"""The lists that a client is shown: what its agent may call, read and use, with the locked definitions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from licet.core.policy.lock import LockedServer, NamedPlaces, local
from licet.core.policy.servers import PROMPTS, RESOURCES
from licet.declare import Tool
from licet.guard.registration import RegisteredTools
from licet.policy_files.definition_shapes import shape_problem
from licet.surfaces.gateway.backend import Offered, ShownTool
from licet.surfaces.gateway.own_tools import own_definition
from licet.surfaces.gateway.running import RunningServer

_T = TypeVar("_T")


class ShownLists:
    """Makes each list once, and again when the policy or what a server offers has changed. It waits for no server.

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
        self._policy, self._locked, self._places, self._all_listed = policy, locked, dict(places), all_listed
        self.running: Mapping[str, RunningServer] = {}
        self._lists: dict[str, tuple[object, Sequence[Any]]] = {}
        self._own_definitions: dict[str, tuple[Tool, dict[str, Any]]] = {}
        self._definitions: dict[tuple[str, str, str], dict[str, Any]] = {}

    def changes(self) -> list[str]:
        """Make the lists again, and name those that are others now."""
        before = {kind: _listed(kept[1]) for kind, kept in self._lists.items()}
        self._lists.clear()
        shown = {"tools": self.tools, "resources": self.resources, "templates": self.templates, "prompts": self.prompts}
        changed = [kind for kind, found in before.items() if _listed(shown[kind]()) != found]
        return list(dict.fromkeys("resources" if kind == "templates" else kind for kind in changed))

    def tools(self) -> Sequence[ShownTool]:
        """The tools that this agent may call, by name."""
        return self._kept("tools", self._tools)

    def hidden(self) -> Iterator[str]:
        """The tools that the policy or a lock knows, and that are not shown."""
        shown = {tool.name for tool in self.tools()}
        policy = self._policy()
        locked = (f"{name}.{tool}" for name, one in self._locked.items() for tool in one.listed("tools"))
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
        policy = self._policy()
        kept = self._lists.get(kind)
        if kept is None or kept[0] is not policy:
            kept = self._lists[kind] = policy, make()
        found: Sequence[_T] = kept[1]
        return found

    def _tools(self) -> Sequence[ShownTool]:
        found = []
        for name, registered in sorted(self._policy().tools.items()):
            server, _, tool = name.partition(".")
            if not registered.ready:
                continue
            if server not in self.running:
                found.append(ShownTool(name, self._own(name, registered.tool)))
            elif tool not in (RESOURCES, PROMPTS):
                is_listed = self._is_listed(server, "tools", tool)
                found.append(ShownTool(name, self.definition(server, "tools", tool), is_listed))
        return found

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


def told_by(server: str, text: str) -> str:
    """A server's text for models, marked line by line, so that no line looks like one of licet or of another server."""
    return "\n".join((f"The MCP server `{server}` says:", *(f"> {line}" for line in text.splitlines())))


def before_variables(uri: str) -> str:
    """A URI template up to its first variable."""
    return uri.partition("{")[0]
