"""Builds what `licet gateway` runs: the gate, the servers behind it, and the session of one connection."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.expected_lock import machine_places
from licet.assemble.gate import Backends, CommandGate, stored_approvals, workers_of
from licet.assemble.review import Places
from licet.assemble.server_process import (
    ServerError,
    ServerPlan,
    check_code,
    expanded_command,
    locked_program,
    placed_secrets,
    started,
)
from licet.assemble.states import Place, state_at
from licet.backends.http import HttpClient
from licet.core.algebra.rules import InvalidUse, use_of_path
from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.foreseen import is_needed, process_misfits
from licet.core.decision.reach import Reach
from licet.core.policy.lock import LockedServer, NamedPlaces
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import Server, servers_of
from licet.declare import Tool
from licet.gateway.governed_servers import AsksServers, GovernedServers
from licet.gateway.observation import Observation, Observing, observed_policy
from licet.gateway.policy_changes import PolicyChanges
from licet.gateway.questions import ClientApprover
from licet.gateway.running_server import RunningServer, Start, reach_of, server_tools, tools_of, walls_of
from licet.guard.gate import BareGate
from licet.guard.session import Session
from licet.mcp.http_link import remote_link
from licet.mcp.link import Link, PipeLink
from licet.mcp.shown_names import Naming, naming
from licet.packages.locked_tools import is_pinned, pinned_here
from licet.policy_files.policy_source import PolicyRefused, PolicySource, meaning
from licet.policy_files.server_tools import is_other_server
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.supervisor_client import Supervisor
from licet.sandbox.programs.walls import ProgramWalls

Report = Callable[[str], None]


class InvalidSession(ValueError):
    """A text that is no session id."""


def new_session() -> str:
    """The id of a session for one connection."""
    return f"g-{secrets.token_hex(6)}"


def gateway_servers(
    manifest: Manifest,
    state: Place,
    *,
    session: str,
    report: Report,
    workdir: Path | None = None,
    secrets_file: Path | None = None,
    own_tools: Sequence[Tool] | None = None,
    observed: Observation | None = None,
    ready: Supervisor | None = None,
    task: str = "",
    is_resumed: bool = False,
    source: PolicySource | None = None,
    own_tools_of: Callable[[Manifest], Sequence[Tool]] | None = None,
) -> GovernedServers:
    """What one connection serves: the tools of servers or, if they are given, those of the workspace.

    With `observed`, of the same manifest, the policy is not enforced for a while. `ready` is a supervisor that was
    started in advance, for the first server. `task` is what the user said. A conversation that `is_resumed` counts as
    one that has read text of others, and so does one that is told what no lock pins. Without a `source` the policy
    stays as it is; otherwise it is loaded again when a file of it changes, and `own_tools_of` then gives the tools of
    the workspace. Raises `ServerError`, `RegistrationRefused` or `InvalidSession`.
    """
    places = Places.here(workdir)
    named = machine_places(places.workdir, places.home) if own_tools is None else {}
    behind = _declared(manifest, own_tools, named, report) if observed is None else _offered(observed, named)
    walls = ProgramWalls(HttpClient())
    asks = AsksServers(workers_of(walls))
    approver = ClientApprover(stored_approvals(state), lambda tool: _through_client(gate, tool))
    processes = LocalProcesses(ready=ready)
    backends = Backends.of(
        state_at(state), secrets_file=secrets_file, sandbox=asks, approver=approver, processes=processes
    )
    recording = observed.recording if observed is not None else None
    observers = [recording] if recording is not None else []
    gate = CommandGate(behind.manifest, behind.tools, backends, workdir=workdir, on_misfit="deny", observers=observers)
    made = _Assembly(gate, backends, places, named, report, observed)
    servers = made.known_servers(behind)
    observing = _observing(gate, observed, servers, backends, workdir) if observed is not None else None
    governed = asks.servers = made.governed = GovernedServers(
        _session(gate, session, observing, task, _tainted(observed, is_resumed=is_resumed)),
        servers,
        behind.locked,
        places=named,
        names=behind.names,
        report=report,
        may_know_root=made.may_know_root,
        observing=observing,
    )
    if gate.policy.flow is None and (tainted := _tainted(observed, is_resumed=is_resumed)):
        governed.is_tainted(tainted)
    governed.add(made.running(servers, behind).values())
    if source is not None:
        change = partial(made.change, behind, own_tools_of)
        governed.policy_changes = changes = PolicyChanges(source, gate, governed.session, manifest, change, report)
        gate.outdated = changes.is_due
    return governed


class _Behind(Struct, frozen=True):
    """The servers, tools and locks that a policy gives a gateway."""

    manifest: Manifest
    servers: Mapping[str, Server]
    tools: Sequence[Tool]
    locked: Mapping[str, LockedServer]
    names: Naming


def _declared(manifest: Manifest, own_tools: Sequence[Tool] | None, named: NamedPlaces, report: Report) -> _Behind:
    """What a policy declares, without the servers that cannot be started; `ServerError` if that is none."""
    if own_tools is not None:
        manifest = pinned_here(manifest)
        return _Behind(manifest, {}, own_tools, _locked(manifest), "whole")
    servers = servers_of(manifest.servers)
    lacking = not_locked(manifest, servers)
    if lacking and len(lacking) == len(servers):
        raise ServerError("; ".join(lacking.values()))
    for why in lacking.values():
        report(why)
    names = naming(manifest.servers, manifest.gateway_names)  # type: ignore[arg-type]
    manifest = pinned_here(manifest)
    servers = {name: server for name, server in servers.items() if name not in lacking}
    return _Behind(manifest, servers, server_tools(manifest, named), _locked(manifest), names)


def _offered(observed: Observation, named: NamedPlaces) -> _Behind:
    """What is observed: all that the servers offer, whatever the policy says of it."""
    manifest, servers = observed.manifest, servers_of(observed.manifest.servers)
    names = naming(manifest.servers, manifest.gateway_names)  # type: ignore[arg-type]
    servers = {name: servers[name] for name in observed.offered}
    return _Behind(manifest, servers, server_tools(manifest, named), observed.offered, names)


def _locked(manifest: Manifest) -> Mapping[str, LockedServer]:
    return manifest.lock.servers if manifest.lock is not None else {}


class _Assembly:
    """Makes what stands behind one gate: at the start of a gateway, and again when its policy has changed."""

    governed: GovernedServers

    def __init__(
        self,
        gate: CommandGate,
        backends: Backends,
        places: Places,
        named: NamedPlaces,
        report: Report,
        observed: Observation | None,
    ) -> None:
        self._gate, self._backends, self._places, self._named = gate, backends, places, named
        self._report, self._observed = report, observed
        self._is_open = bool(observed and observed.is_open)
        self._reaches: dict[str, Reach] = {}  # of the servers of which something is used
        self._made: dict[str, tuple[tuple[object, ...], RunningServer]] = {}  # with what it was made from

    def known_servers(self, behind: _Behind) -> dict[str, Server]:
        """The servers, each with the roots that it may know of, under the policy in force; `ServerError` as above."""
        gate, observed, servers = self._gate, self._observed, behind.servers
        # While observing, every server is used; otherwise those of which something is admitted, or may be called.
        admitted = [name for name in servers if observed or any(one.reach is not None for one in tools_of(gate, name))]
        reaches = {name: reach_of(gate, servers[name], self._places) for name in admitted}
        _report_misfits(gate, reaches, servers, self._report, refuse=observed is None)
        self._reaches = reaches
        return {name: _with_known_roots(server, reaches.get(name), self._places) for name, server in servers.items()}

    def may_know_root(self, server: str, path: str) -> bool:
        """Whether a server may be told of a directory."""
        return _may_know(self.governed.servers[server], self._reaches.get(server), path)

    def running(self, servers: Mapping[str, Server], behind: _Behind) -> dict[str, RunningServer]:
        """The servers of which something may be called. One whose process would be the same stays the same object."""
        gate, made = self._gate, {}
        for name, server in servers.items():
            if self._observed is None and not any(one.ready for one in tools_of(gate, name)):
                continue
            locked, declared = behind.manifest.lock, behind.servers[name]
            pinned = locked.servers.get(name) if locked is not None else None
            parts = (server, declared, pinned, *walls_of(self._reaches[name]))
            if name in self._made and self._made[name][0] == parts:
                made[name] = self._made[name]
            else:
                made[name] = parts, self._running(server, pinned, declared.client.capabilities)
        self._made = made
        return {name: server for name, (_, server) in made.items()}

    def _running(self, server: Server, pinned: LockedServer | None, announces: Mapping[str, Any]) -> RunningServer:
        gate, governed, name = self._gate, self.governed, server.name
        start = Start(gate, server, self._places)
        reach = lambda: self._reaches[name]  # noqa: E731
        return RunningServer(
            server,
            pinned,
            _links(gate, start, reach, self._backends, self._places, self._report, is_open=self._is_open),
            governed.messages,
            self._report,
            places=self._named,
            offers_changed=governed.offers_changed,
            announces=announces,
            stands=start.stands,
            frozen=lambda: gate.frozen,
            withdrawn=lambda: bool(gate.policy.unusable),
            switching=lambda: governed.switching,
        )

    async def change(
        self, first: _Behind, own_tools_of: Callable[[Manifest], Sequence[Tool]] | None, manifest: Manifest
    ) -> None:
        """Put another policy in force, or the first one again, and serve the servers that it names."""
        self.governed.switching = True
        try:
            behind, servers = await asyncio.to_thread(self._changed, first, own_tools_of, manifest)
            self.governed.switch(servers, behind.locked, self.running(servers, behind), behind.names)
        finally:
            self.governed.switching = False

    def _changed(
        self, first: _Behind, own_tools_of: Callable[[Manifest], Sequence[Tool]] | None, manifest: Manifest
    ) -> tuple[_Behind, dict[str, Server]]:
        if self._observed is not None:
            if meaning(manifest) != self._observed.meaning:
                why = "it is not the policy any more that this gateway began to observe"
                raise PolicyRefused(why, "start it again", manifest)
            behind = first
        else:
            behind = _declared(
                manifest, None if own_tools_of is None else own_tools_of(manifest), self._named, self._report
            )
        self._gate.replace(behind.manifest, behind.tools)
        return behind, self.known_servers(behind)


def _observing(
    gate: BareGate, observed: Observation, servers: Mapping[str, Server], backends: Backends, workdir: Path | None
) -> Observing:
    is_open = observed.is_open
    instead = observed_policy(gate.manifest, servers, observed.offered, backends, workdir=workdir, is_open=is_open)
    until = gate.clock.monotonic() + observed.seconds
    return Observing(instead, until, is_open=is_open, recorder=observed.recording)


def _session(gate: BareGate, name: str, observing: Observing | None, task: str, tainted: str) -> Session:
    try:
        session = gate.session(name, task=task, tainted=tainted if gate.policy.flow is not None else "")
    except ValueError as wrong:
        raise InvalidSession(str(wrong)) from None
    if observing is not None:
        session.admission = observing
    return session


def _tainted(observed: Observation | None, *, is_resumed: bool) -> str:
    """Why the model may have read text of others before its first call; empty if it has not."""
    if is_resumed:
        return "the session was named, so its conversation may be resumed"
    if observed is not None and observed.unpinned:
        return f"definitions and instructions that no lock pins: {', '.join(observed.unpinned)}"
    return ""


def not_locked(manifest: Manifest, servers: Mapping[str, Server]) -> Mapping[str, str]:
    """Why servers are not started, as far as that is known before: the lock must pin what the workspace now states."""
    found: dict[str, str] = {}
    for name, server in servers.items():
        locked = manifest.lock.servers.get(name) if manifest.lock is not None else None
        if locked is None:
            needs_secrets = server.secrets or server.stand_ins or server.headers
            line = f"licet lock{' --secrets FILE' if needs_secrets else ''}"
            found[name] = f"the server `{name}` is not in licet.lock: run `{line}`, review it, and start again"
        elif is_other_server(server, locked):
            found[name] = f"the server `{name}` has another command than in licet.lock: `licet lock --update` shows it"
        elif not server.url and not is_pinned(locked):
            found[name] = f"the server `{name}` is not in licet.lock for this platform: run `licet lock --update` here"
    return found


def _report_misfits(
    gate: BareGate, reaches: Mapping[str, Reach], servers: Mapping[str, Server], report: Report, *, refuse: bool
) -> None:
    """Report the tools that are not shown because they do not fit, and the grants of which a server gets nothing.

    A server that cannot start so raises `ServerError`, unless `refuse` is false.
    """
    for name, reach in reaches.items():
        missing = process_misfits(reach)
        if refuse and (needed := [one for one in missing if is_needed(one, servers[name])]):
            raise ServerError(f"the server `{name}` cannot be started: {'; '.join(map(str, needed))}")
        if missing:
            report(f"{name}: the manifest allows only a part of its grants: {'; '.join(map(str, missing))}")
    for misfit in gate.policy.misfits:
        report(str(misfit))
    for name, registered in gate.policy.tools.items():
        if registered.reach is not None and registered.unavailable:
            report(f"{name}: {registered.unavailable}")


def _through_client(gate: BareGate, tool: str) -> bool:
    """Whether a yes of the client approves calls of a tool: a bundle of it may say that it does not."""
    registered = gate.policy.tools.get(tool)
    if registered is None or registered.reach is None:  # what a server asks of the client
        return gate.policy.manifest.approvals.through_client
    return registered.reach.approvals.through_client


def _links(
    gate: BareGate,
    start: Start,
    reach: Callable[[], Reach],
    ports: Backends,
    places: Places,
    report: Report,
    *,
    is_open: bool = False,
) -> Callable[[], AbstractAsyncContextManager[Link]]:
    server = start.server

    def schema_of(tool: str) -> Mapping[str, Any]:
        lock = gate.policy.manifest.lock
        locked = lock.servers.get(server.name) if lock is not None else None
        schema = locked.in_all_versions("tools").get(tool, {}).get("inputSchema") if locked is not None else None
        return schema if isinstance(schema, dict) else {}

    if server.url:
        tell = lambda line: report(f"{server.name}: {line}")  # noqa: E731
        return lambda: remote_link(server, reach(), ports, report=tell, schema_of=schema_of)

    @asynccontextmanager
    async def link() -> AsyncIterator[Link]:
        manifest = gate.policy.manifest
        locked = manifest.lock.servers.get(server.name) if manifest.lock is not None else None
        if locked is None or locked.resolved is None:
            raise ServerError(f"the server `{server.name}` is not in licet.lock: run `licet lock`")
        await asyncio.to_thread(check_code, server, locked.code, places.workdir, places.home)
        program = await locked_program(server, locked.resolved, places.workdir, places.home)
        command = expanded_command(server, places.workdir, places.home)
        held = await asyncio.to_thread(start.reach)
        placed = await placed_secrets(server, held, ports)
        plan = ServerPlan(replace(server, sandbox="native") if is_open else server, held, program, command)
        async with started(plan, ports, placed, places.workdir) as running:
            streams = running.handed()
            pipes = PipeLink(
                *streams,
                redactor=placed.redactor,
                log=lambda line: report(f"{server.name} wrote: {line}"),
            )
            try:
                yield pipes
            finally:
                await pipes.close()

    return link


def _with_known_roots(server: Server, reach: Reach | None, places: Places) -> Server:
    """A server whose `client.roots` are real directories that it may read; none of them if it may read none."""
    listed = CapabilitySet(f"fs:read:{root}" for root in server.client.roots).expand(places.workdir, places.home)
    held = (listed & reach.grant).allow if reach is not None else ()
    return replace(server, client=replace(server.client, roots=tuple(rule.scope for rule in held)))


def _may_know(server: Server, reach: Reach | None, path: str) -> bool:
    """Whether a server may be told of a directory: it is in `client.roots`, and the server may read it."""
    if reach is None or not path.startswith("/") or os.path.normpath(path) != path:
        return False
    if not inside(path, server.client.roots):
        return False
    try:
        return reach.grant.has(use_of_path("read", path))
    except InvalidUse:
        return False
