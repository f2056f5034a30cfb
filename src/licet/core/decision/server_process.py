"""What the process of an MCP server holds under a manifest: `servers.NAME.grants`, as far as the ceiling allows it."""

from collections.abc import Iterable, Iterator

from msgspec import UNSET
from msgspec.structs import replace

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import use_of_url
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny
from licet.core.decision.foreseen import foreseen
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import REASON_OF_DOMAIN, Ground, Request
from licet.core.decision.validate import misfit_grounds
from licet.core.origin import Problem
from licet.core.policy.commands import admit_commands
from licet.core.policy.effects import EffectClass, permits
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import PROMPTS, RESOURCES, Server, ServerToolEntry, servers_of, tool_parts
from licet.core.policy.terms import least_limits
from licet.core.policy.tool import ToolSpec

_CPU_SECONDS = 10**8  # a server ends with its gateway, not by its processor time


def process_name(server: Server) -> str:
    """The name of a server's process in decisions. No tool can have it, since names have no spaces."""
    return f"server {server.name}"


def process_reach(
    manifest: Manifest, server: Server, tools: Iterable[Reach], directories: tuple[str, str] | None = None
) -> Reach:
    """What the process of a server holds: its grants, variables and secrets, as far as the manifest allows them.

    `tools` are those of the server that this agent may call. `directories` are the working and the home directory, if
    they are filled in in the manifest.

    The process only reads if none of the tools writes. It removes and renames files only if a tool does and a standing
    approval covers that: a server starts before anybody is asked.
    """
    tools = tuple(tools)
    writes = any(tool.effect not in (None, "read_only") for tool in tools)
    reach = _process_reach(manifest, server, "write_limited" if writes else "read_only", directories)
    if not any(tool.delete_approval == "manifest" for tool in tools):
        return reach
    # Not its whole grant at this class: DELETE requests ask, and a server can ask nobody.
    deleting = _process_reach(manifest, server, "full", directories)
    if deleting.standing is None:  # the process would delete more than the approval covers
        return reach
    return replace(reach, delete_approval="manifest", free_deletes=deleting.free_deletes)


def _process_reach(
    manifest: Manifest, server: Server, effect: EffectClass, directories: tuple[str, str] | None
) -> Reach:
    name = process_name(server)
    held = server.holds if directories is None else server.holds.expand(*directories)
    origin = manifest.places.get(f"servers.{server.name}", manifest.origin)
    spec = ToolSpec(name, held, effect, "isolated", origin=origin)
    limits = {**least_limits(manifest.limits, server.limits), "cpu_seconds": _CPU_SECONDS}
    admitted = admit_commands(replace(manifest, limits=limits), name).declare([spec])
    reach = reach_of(admitted, name)
    assert reach is not None  # noqa: S101 - it was admitted above
    return reach


def process_misfits(reach: Reach) -> tuple[Ground, ...]:
    """The grants, variables and secrets of a server of which the manifest leaves nothing.

    The process holds the overlap of its grants and the ceiling, so that agents with less can share a server. Only a
    secret that is not allowed keeps it from starting: `is_needed`.
    """
    ceiling = reach.manifest.ceiling
    uncovered = {str(rule): rule for rule in reach.spec.needs.allow if not CapabilitySet((rule,)) & ceiling}
    known = {ground.capability: ground for ground in misfit_grounds(reach)}
    return tuple(known.get(text) or _uncovered(reach, text, rule.domain) for text, rule in uncovered.items())


def is_needed(misfit: Ground, server: Server) -> bool:
    """Whether a server cannot start without what a misfit is about: a secret, or the host of a remote one."""
    return bool(server.url) or misfit.reason == REASON_OF_DOMAIN["secret"]


def _uncovered(reach: Reach, rule: str, domain: str) -> Ground:
    text = f"`{reach.spec.name}` needs {rule}, which the manifest does not allow"
    return Ground(REASON_OF_DOMAIN[domain], text, reach.manifest.origin, "", rule)


def remote_misfits(server: Server, reach: Reach) -> tuple[Ground, ...]:
    """Why a remote server cannot be reached under a manifest: its host, its address or a secret is not allowed."""
    asked = Request(reach.spec.name, (use_of_url("GET", server.url),))
    answer = foreseen(decide(asked, reach.manifest), reach.manifest)
    return process_misfits(reach) or (answer.rules if isinstance(answer, Deny) else ())


def server_grant_problems(manifest: Manifest, workdir: str, home: str) -> Iterator[Problem]:
    """The misfits of each server of which this agent may call a tool, with real directories filled in.

    The host of a remote server is not among them: each of its tools needs it, so it is a misfit of the tools. A grant
    that none of the tools uses is not among them either: another agent shares the server, and its tools use it.
    """
    manifest = manifest.expand(workdir, home)
    servers = servers_of(manifest.servers)
    for server in servers.values():
        parts = (tool_parts(name, servers) for name in manifest.admissions)
        tools = [part[1] for part in parts if part is not None and part[0] == server.name]
        if not tools:
            continue
        granted = CapabilitySet(server.grants).expand(workdir, home)
        used = [_used(manifest, server, tool, granted, workdir, home) for tool in tools]
        unused = {str(rule) for rule in granted.allow if not any(CapabilitySet((rule,)) & one for one in used)}
        reach = process_reach(manifest, server, (), (workdir, home))
        for ground in process_misfits(reach):
            if server.url and ground.reason in ("HOST_NOT_ALLOWED", "ADDRESS_NOT_ALLOWED"):
                continue
            if ground.capability in unused:
                continue
            place = manifest.places.get(f"servers.{server.name}", manifest.origin)
            found = f"that the server `{server.name}` gets less than its grants: {ground.text}"
            expected = f"a server whose grants fit the agent `{manifest.agent}`"
            yield Problem(place, found, expected, ground.fix, "error" if is_needed(ground, server) else "warning")


def _used(
    manifest: Manifest, server: Server, tool: str, granted: CapabilitySet, workdir: str, home: str
) -> CapabilitySet:
    """What one tool of a server can use of its grants: what it says it needs, or else what its class permits."""
    spec = manifest.tools.get(f"{server.name}.{tool}")
    entry = ServerToolEntry(effect="read_only") if tool in (RESOURCES, PROMPTS) else server.entry(tool)
    if entry is None:
        return CapabilitySet()
    effect = entry.effect if spec is None else spec.effect
    needs = granted if entry.needs is UNSET else CapabilitySet((*entry.needs, *entry.optional)).expand(workdir, home)
    return needs if effect is None else needs & permits(effect, CapabilitySet(("network:tcp:*",)))
