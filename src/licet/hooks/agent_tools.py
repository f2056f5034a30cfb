"""The tools of a coding agent as tools of a gate: what each needs, and what one call of it touches.

The agent runs most of them itself, in its own process and without walls. So licet decides about the paths, files and
URLs in the arguments before the call, and hands them back resolved. A shell line is different: it runs behind walls.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.rules import Use, use_of_path, use_of_url
from licet.core.algebra.scope import Malformed, inside, visible
from licet.core.algebra.scope import name as checked_name
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import Reach
from licet.core.policy.layer import ELEVATED, EffectClass, Level
from licet.core.policy.manifest import COMMAND_NEEDS, Manifest, command_needs
from licet.core.policy.terms import Admission
from licet.core.policy.tool import ToolSpec
from licet.declare import Tool
from licet.declare.arguments import InvalidArguments
from licet.declare.plain_json import data_again, plain_json
from licet.guard.execution import Layers, LayersOfTools, Sandbox, SandboxUnavailable, ToolCall, Walls
from licet.hooks.agent_event import AgentEvent, AgentTool, Unreadable
from licet.hooks.agents.dialect import Dialect
from licet.hooks.limits import PAYLOAD_BYTES

IN_AGENT = "none: the coding agent runs it"  # in place of walls, in receipts

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "shell": COMMAND_NEEDS,
    "read": ("fs:read:*",),
    "search": ("fs:read:*",),
    "write": ("fs:read:*", "fs:write:*"),
    "delete": ("fs:read:*",),
    "patch": ("fs:read:*", "fs:write:*"),
    "fetch": ("network:http:get@*", "network:https:get@*"),
    "service": ("fs:read:*",),
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {"patch": ("fs:delete:*",), "delete": ("fs:delete:*",)}
_EFFECTS: Mapping[str, EffectClass] = {"write": "write_limited", "delete": "full", "patch": "full"}
_WILD = frozenset("*?[{")
_TOUCHING = frozenset({"read", "search", "write", "delete", "patch", "fetch"})
_PATH_WORDS = ("path", "file", "dir", "folder", "uri", "url", "target")
_PATH_STARTS = ("/", "~", "..", "\\\\", "file:")
NAMED_ONLY = ("service", "code")  # kinds of tools that a policy must name


class AgentBuiltin(Tool):
    """A built-in tool of a coding agent, or one that a policy names below the agent's name."""

    in_lock = False  # the agent's own program has it

    row: AgentTool | None
    agent: str
    is_shell_line: bool  # it runs behind walls, which `flow:` can narrow
    reads_as_checked: bool  # the agent reads the one file or directory that was checked: `flow.sources` can label it

    def __init__(self, spec: ToolSpec, agent: str, row: AgentTool | None) -> None:
        super().__init__(_run_by_the_agent, spec)
        kind = row.kind if row is not None else "plain"
        vars(self).update(agent=agent, row=row, is_shell_line=kind == "shell", reads_as_checked=kind == "read")

    def validator(self) -> Callable[[object], dict[str, Any]]:
        return _as_given

    def parameter_names(self) -> dict[str, str | None]:
        return {name: name for name in (self.spec.schema or {}).get("properties", {})}


async def _run_by_the_agent() -> None:
    raise RuntimeError("the coding agent runs this tool itself")


def _as_given(given: object) -> dict[str, Any]:
    """The arguments as they came: what they must be is known to the agent, and differs between its versions."""
    if not isinstance(given, Mapping):
        raise InvalidArguments("expected the arguments of a call: an object")
    try:
        text = plain_json(dict(given))
    except ValueError as error:
        raise InvalidArguments("expected arguments that JSON can carry") from error
    if len(text) > PAYLOAD_BYTES:
        raise InvalidArguments(f"expected at most {PAYLOAD_BYTES} bytes of arguments, found {len(text)}")
    arguments: dict[str, Any] = data_again(text)
    return arguments


def tool_name(agent: str, tool: str) -> str:
    """The name of an agent's tool in policies and receipts."""
    return f"{agent}.{tool}"


def built_in_spec(agent: str, row: AgentTool, max_effect: EffectClass) -> ToolSpec:
    """What a built-in tool declares. A shell line, and a patch that deletes, need the class that the policy has."""
    effect = max_effect if row.kind == "shell" else _EFFECTS.get(row.kind, "read_only")
    if effect in ELEVATED and max_effect not in ELEVATED:
        effect = "write_limited"
    return ToolSpec(
        tool_name(agent, row.name),
        CapabilitySet(_NEEDS.get(row.kind, ())),
        effect,
        "isolated",
        description=row.about,
        schema={"type": "object", "properties": {name: {} for name in _arguments_of(row)}},
        optional=CapabilitySet(_OPTIONAL.get(row.kind, ()) if effect in ELEVATED else ()),
    )


def _spec_under(manifest: Manifest, agent: str, row: AgentTool) -> ToolSpec:
    """What a built-in tool declares under a policy. A shell line needs the secrets that are placed for it, too."""
    spec = replace(built_in_spec(agent, row, manifest.max_effect), origin=manifest.origin)
    return replace(spec, needs=CapabilitySet(command_needs(manifest))) if row.kind == "shell" else spec


def _arguments_of(row: AgentTool) -> list[str]:
    """The arguments that a policy can have rules on: those that name what the call touches."""
    named = (*row.paths, *row.patterns, *row.urls, *row.undecided, row.text, row.directory)
    return list(dict.fromkeys(filter(None, named)))


def agent_tools(manifest: Manifest, agent: str, rows: Iterable[AgentTool]) -> list[AgentBuiltin]:
    """The tools that a session of this agent may call: its built-in ones, and those that the policy declares."""
    known = {tool_name(agent, row.name): row for row in rows}
    found = [AgentBuiltin(_spec_under(manifest, agent, row), agent, row) for row in known.values()]
    own = (spec for name, spec in manifest.tools.items() if name.startswith(f"{agent}.") and name not in known)
    return [*found, *(AgentBuiltin(replace(spec, sandbox=spec.sandbox or "isolated"), agent, None) for spec in own)]


def admit_built_in(manifest: Manifest, tools: Iterable[AgentBuiltin]) -> Manifest:
    """The manifest with an admission for each built-in tool, unless it has one. A deny of the tool still counts.

    What hands data to a service, or runs code that nothing here looks into, is admitted by name alone.
    """
    own = (tool.name for tool in tools if tool.row is not None and tool.row.kind not in NAMED_ONLY)
    added = {name: (Admission(manifest.origin),) for name in own if name not in manifest.admissions}
    return replace(manifest, admissions={**manifest.admissions, **added}, loaded=manifest.loaded or manifest)


# What a call touches --------------------------------------------------------------------------------------------------


class Touch(Struct, frozen=True):
    """One thing that a call touches: the uses that must be granted, and where the argument is, if it is handed back."""

    uses: tuple[Use, ...]
    argument: str = ""  # handed back as `resolved`
    given: str = ""
    resolved: str = ""
    tree: str = ""  # a directory whose files are all read


def touches(dialect: Dialect, row: AgentTool, event: AgentEvent, home: str) -> Iterator[Touch]:
    """Everything that a call touches, besides what a shell line does behind its walls.

    Raises `Unreadable`, `InvalidUse` or `Malformed` for arguments that do not say it.
    """
    base = home if dialect.expands_home else ""
    if row.kind in _TOUCHING and (unknown := unknown_path(row, event.arguments)):
        raise Unreadable(f"`{row.name}` has `{visible(unknown)}`, which may name a file, and which licet does not know")
    match row.kind:
        case "read" | "search" | "write" | "delete" | "service":
            yield from path_touches(row, event.arguments, event.directory, base)
        case "patch":
            if dialect.patched_files is None:
                raise Unreadable(f"`{row.name}` is a patch of a kind that licet cannot read")
            files = dialect.patched_files(text_argument(event.arguments, row.text))
            for number, file in enumerate(files):
                if file.action != "delete":
                    yield file_touch("write", file.path, event.directory, base)
                if file.action == "delete" or [one.action for one in files[number + 1 : number + 2]] == ["move"]:
                    yield file_touch("delete", file.path, event.directory, base)  # a move deletes the old name
        case "fetch":
            for url in dialect.urls(row, event.arguments):
                yield Touch((use_of_url("GET", url),))
        case _:
            pass


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """An argument that must be a text. Raises `Unreadable`."""
    found = arguments.get(name)
    if not isinstance(found, str):
        raise Unreadable(f"expected `{name}` to be a text")
    return found


def path_touches(row: AgentTool, arguments: Mapping[str, Any], directory: str, home: str) -> Iterator[Touch]:
    """What the paths in the arguments of a call touch. Raises `InvalidUse` or `Malformed` for what is no path."""
    action = row.kind if row.kind in ("write", "delete") else "read"
    named = {argument: arguments[argument] for argument in row.paths if arguments.get(argument) is not None}
    missing = next((argument for argument in row.paths if argument not in (*named, *row.optional)), "")
    if missing or not (named or row.here or row.kind == "service"):
        where = f"`{missing}`" if missing else "any argument that licet knows"
        raise Unreadable(f"`{row.name}` has no path in {where}")
    if row.here and not named:
        named = {"": "."}
    bases = []
    for argument, given in named.items():
        every = given if isinstance(given, list) and given else [given]
        for path in every:
            if not isinstance(path, str) or not path:
                raise Unreadable(f"expected `{argument}` to be a path")
            touch = _touch(row, action, argument, path, directory, home)
            if given is not path and path != touch.resolved:  # only a whole argument is handed back
                raise Unreadable(f"expected the paths in `{argument}` to be resolved: no link, no `..`, from the root")
            bases.append(path)
            yield touch if given is path else replace(touch, argument="")
    for argument in row.patterns:
        given = arguments.get(argument)
        if isinstance(given, str) and given:
            for base in bases:
                start = resolved(_before_wildcards(given), resolved(base, directory, home)[0], home)[0]
                yield Touch(tuple(_uses("read", start)), tree=start if row.kind == "search" else "")


def unknown_path(row: AgentTool, arguments: Mapping[str, Any]) -> str:
    """An argument that the tool's row does not have, and that may name a path or an address; empty if there is none.

    A version of the agent that is newer than the row may read it.
    """
    known = {*row.paths, *row.patterns, *row.urls, *row.undecided, *row.data, row.text, row.directory}
    others = ((name, value) for name, value in arguments.items() if name not in known)
    return next((name for name, value in others if _may_be_path(name, value)), "")


def _may_be_path(name: str, value: object) -> bool:
    match value:
        case str():
            return bool(value) and (any(word in name.lower() for word in _PATH_WORDS) or value.startswith(_PATH_STARTS))
        case list():
            return any(_may_be_path(name, one) for one in value)
        case dict():
            return any(_may_be_path(f"{name}.{key}", one) or _may_be_path("", key) for key, one in value.items())
        case _:
            return False


def _touch(row: AgentTool, action: str, argument: str, given: str, directory: str, home: str) -> Touch:
    named, real = resolved(given, directory, home)
    uses = tuple(dict.fromkeys(use for path in (named, real) for use in _uses(action, path)))
    return Touch(uses, argument, given, real, real if row.kind == "search" and os.path.isdir(real) else "")


def _uses(action: str, path: str) -> Iterator[Use]:
    yield use_of_path(action, path)


def resolved(given: str, directory: str, home: str) -> tuple[str, str]:
    """A path that an agent was given: as it is named from the agent's directory, and with all links resolved."""
    if home and (given == "~" or given.startswith("~/")):
        given = home + given[1:]
    named = os.path.normpath(os.path.join(directory, given))
    # `a/../b` through a link is not what `normpath` says: the kernel's answer is that of the real path.
    return named, os.path.realpath(os.path.join(directory, given))


def _before_wildcards(pattern: str) -> str:
    parts = []
    for part in pattern.split("/"):
        if _WILD & set(part):
            break
        parts.append(part)
    else:
        return pattern
    return "/".join(parts) or ("/" if pattern.startswith("/") else ".")


def file_touch(action: str, given: str, directory: str, home: str) -> Touch:
    """What one file of a patch is."""
    named, real = resolved(given, directory, home)
    return Touch(tuple(dict.fromkeys(use for path in (named, real) for use in _uses(action, path))))


def closed_below(reach: Reach, tree: str) -> str:
    """A path below a directory that is there, and that the call may not read; empty if there is none."""
    held = reach.grant
    for rule in held.deny:
        is_below = rule.domain == "fs" and rule.key != tree and inside(rule.key, (tree,))
        if is_below and os.path.lexists(rule.key) and not held.has(use_of_path("read", rule.key)):
            return rule.key
    return ""


def is_tool_name(text: str) -> bool:
    """Whether a text from an agent can be the name of a tool."""
    try:
        return bool(checked_name(text))
    except Malformed:
        return False


class RunsInAgent:
    """The sandbox of a gate of a coding agent: shell lines run behind walls, everything else in the agent."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner

    def layers(self, level: Level) -> tuple[str, ...]:
        """The walls of a level."""
        return self._inner.layers(level)

    def tool_layers(self, tool: Tool, level: Level, *, allow_degraded: bool) -> Layers:
        """The walls around a tool: none, where the agent runs it."""
        if not isinstance(tool, AgentBuiltin) or (tool.row is not None and tool.row.kind == "shell"):
            if isinstance(self._inner, LayersOfTools):
                return self._inner.tool_layers(tool, level, allow_degraded=allow_degraded)
            return Layers(self._inner.layers(level))
        return Layers((IN_AGENT,))

    def walls(self, held: Any) -> Walls:
        """The walls of a child process."""
        return self._inner.walls(held)

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Run a shell line."""
        if not isinstance(call.tool, AgentBuiltin) or call.tool.row is None or call.tool.row.kind != "shell":
            raise SandboxUnavailable("the coding agent runs this tool itself")
        return self._inner.run(level, call, context)
