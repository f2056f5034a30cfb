"""The tools of MCP servers as declarations: what `licet.lock` says a server offers, and what `servers:` says about it.

A tool that the lock has and no entry of `servers.NAME.tools` covers is not declared, so every call of it is refused.
The digest of a manifest does not depend on the lock: the lock pins the manifest, not the other way round.

What MCP demands of the definition of a tool, resource, template or prompt, in the protocol of 2025 and of 2026.

The SDKs of clients reject a whole list for one definition that does not fit. So such a definition is left out.
Only the keys that clients are shown are judged. One schema may differ between the eras, `outputSchema`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from licet.core.algebra.scope import NAME_PATTERN
from licet.core.late_pattern import late_pattern
from licet.core.policy.connector import Installed
from licet.core.policy.flow_terms import asked_words
from licet.core.policy.lock import Definition, LockedServer
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import (
    EVERY,
    PROMPTS,
    RESOURCES,
    Server,
    ServerToolEntry,
    annotated_effect,
    host_rule,
    servers_of,
    stricter,
    tool_parts,
)
from licet.core.policy.terms import Admission, Natives
from licet.core.policy.tool import ToolSpec, spec_of
from licet.core.values import Origin
from licet.declare.plain_json import json_core
from licet.policy_files.limits import MOST_EXACT

Text = str | UnsetType  # not null: SDKs for TypeScript reject it
Flag = bool | UnsetType


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
_INVALID_VALUE = late_pattern(r"Invalid enum value .*(?= - at `\$)", re.DOTALL)  # it quotes the server
_SCHEME = late_pattern(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TEMPLATE = late_pattern(r"(?:[^{}]|\{[^{}]+\})+")


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


_PSEUDO = {
    RESOURCES: ("uri", "Read a resource of this server."),
    PROMPTS: ("name", "Get a prompt of this server."),
}


def with_server_tools(manifest: Manifest) -> Manifest:
    """The manifest with the tools of its locked servers declared and, where it names them, admitted."""
    servers = servers_of(manifest.servers)
    if manifest.lock is None:
        return replace(manifest, withheld=_withheld(manifest, servers), loaded=manifest.loaded or manifest)
    specs: dict[str, ToolSpec] = {}
    admissions = dict(manifest.admissions)
    natives: set[str] = set()
    for server in servers.values():
        locked = manifest.lock.servers.get(server.name)
        if locked is None or is_other_server(server, locked):
            continue
        version = running_version(server, locked)
        for spec, entry in _specs(server, locked, manifest):
            specs[spec.name] = replace(spec, package=version)
            natives |= {spec.name} if server.kind == "native" else set()
            if spec.name in admissions:
                admissions[spec.name] = (*admissions[spec.name], _terms(entry, spec.origin or manifest.origin))
    listed = tuple(
        Natives(one.names | {name for name in natives if name.partition(".")[0] in one.names}, one.origin, one.key)
        for one in manifest.natives
    )
    declared = manifest.declare(specs.values())
    return replace(declared, admissions=admissions, natives=listed, withheld=_withheld(declared, servers))


def _withheld(manifest: Manifest, servers: Mapping[str, Server]) -> Mapping[str, str]:
    """Why tools of servers are not declared though the manifest names them, for `check`, `surface` and receipts."""
    found: dict[str, str] = {}
    for name in manifest.admissions:
        parts = tool_parts(name, servers) if name not in manifest.tools else None
        if parts is not None:
            server, tool = servers[parts[0]], parts[1]
            locked = manifest.lock.servers.get(server.name) if manifest.lock is not None else None
            found[name] = _why_withheld(server, tool, locked)
    return found


def _why_withheld(server: Server, tool: str, locked: LockedServer | None) -> str:
    if locked is None:
        return f"the server `{server.name}` is not in licet.lock: run `licet lock`"
    if is_other_server(server, locked):
        return f"the server `{server.name}` has another command than in licet.lock: see `licet lock --update`"
    if tool in (RESOURCES, PROMPTS):
        return f"`servers.{server.name}.{tool}` lists none"
    if why := locked.refused.get(f"tools/{tool}") or refusal_of_name(server.name, tool):
        return f"it is left out: {why}"
    definition = locked.in_all_versions("tools").get(tool)
    if definition is None:
        return f"the server `{server.name}` did not offer it when it was locked"
    if why := shape_problem("tools", definition):
        return f"it is left out: {why}"
    return f"no entry of `servers.{server.name}.tools` is for it"


def is_other_server(server: Server, locked: LockedServer) -> bool:
    """Whether the lock is about another command or address than the workspace now has."""
    return tuple(server.command) != locked.command or server.url != locked.url


def running_version(server: Server, locked: LockedServer) -> Installed:
    """The version of a server that connector lists are about: of the locked package, or what it claims of itself."""
    resolved = locked.resolved if not server.url else None
    if resolved is not None and resolved.kind in ("npm", "pypi", "distribution"):
        return Installed(f"{resolved.kind} {resolved.name}", resolved.version, "locked")
    return Installed(server.name, locked.claimed_version, "claimed")


def _specs(server: Server, locked: LockedServer, manifest: Manifest) -> Iterator[tuple[ToolSpec, ServerToolEntry]]:
    for name, definition in locked.in_all_versions("tools").items():
        entry = server.entry(name)
        refused = f"tools/{name}" in locked.refused or refusal_of_name(server.name, name)
        if entry is not None and not refused and not shape_problem("tools", definition):
            yield _spec(server, name, entry, definition, manifest), entry
    for name, wanted in ((RESOURCES, server.resources), (PROMPTS, server.prompts)):
        if wanted:
            argument, description = _PSEUDO[name]
            schema = {
                "type": "object",
                "properties": {argument: {"type": "string"}, "arguments": {"type": "object"}},
                "required": [argument],
                "additionalProperties": False,
            }
            entry = ServerToolEntry(effect="read_only")
            yield _spec(server, name, entry, {"description": description, "inputSchema": schema}, manifest), entry


def refusal_of_name(server: str, tool: str) -> str:
    """Why a server's tool cannot be used because of its name; empty if it can."""
    if tool in (RESOURCES, PROMPTS):
        return f"licet has a tool `{server}.{tool}`, which reads the {tool} of the server"
    if not tool or not re.fullmatch(NAME_PATTERN, f"{server}.{tool}"):
        return "its full name is no valid name: 1 to 128 letters, digits, `_`, `.`, `/` or `-`"
    return ""


def _spec(server: Server, name: str, entry: ServerToolEntry, definition: Definition, manifest: Manifest) -> ToolSpec:
    places = manifest.places
    ways = (f"servers.{server.name}.tools.{name}", f"servers.{server.name}.tools.{EVERY}", f"servers.{server.name}")
    origin = next((places[way] for way in ways if way in places), manifest.origin)
    annotations = definition.get("annotations")
    least = annotated_effect(annotations if isinstance(annotations, Mapping) else {})
    schema = definition.get("inputSchema")
    return spec_of(
        name=f"{server.name}.{name}",
        needs=needs_of(server, entry),
        optional=[*implied_by(server, entry), *entry.optional],
        effect=None if entry.effect is None else stricter(entry.effect, least),
        sandbox="native" if server.kind == "native" else "isolated",
        connector=server.connector,
        cost_usd=entry.cost_usd,
        description=str(definition.get("description", "")),
        schema=schema if isinstance(schema, dict) else {"type": "object"},
        origin=origin,
    )


def needs_of(server: Server, entry: ServerToolEntry) -> list[str]:
    """What one tool of a server touches. A tool of a remote server needs the host of the server."""
    if server.url:
        return [host_rule(server.url), *(entry.needs if entry.needs is not UNSET else ())]
    return [] if entry.needs is UNSET else list(entry.needs)


def implied_by(server: Server, entry: ServerToolEntry) -> list[str]:
    """What a tool without `needs` may touch: all that the process of its server holds, which the ceiling may narrow."""
    return [] if server.url or entry.needs is not UNSET else list(server.grants)


def _terms(entry: ServerToolEntry, origin: Origin) -> Admission:
    """What the workspace says about the calls of a tool, besides the manifest's own terms."""
    args: Mapping[str, Any] = entry.args
    return Admission(
        origin,
        args=args,
        approval=entry.approval,
        limits=entry.limits,
        approval_origin=origin,
        asked_by=asked_words(entry.asked_by),
    )
