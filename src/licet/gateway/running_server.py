"""One server while the gateway runs: started, compared with its lock, restarted when it ends.

What is locked counts as offered until the server has said otherwise, so nothing but a call of this server waits for it.
A definition that differs from the lock is not shown any more, and its calls are refused; so is all of a server that
cannot be started. A tool that is not in the lock is reported, and neither shown nor called. Calls that are under way
when a server ends fail once; the gateway repeats none of them.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Literal

from msgspec.structs import replace

from licet.assemble.review import Places
from licet.core.decision.decision import Happened, ResultNoted, ServerAnswered, ServerAsked
from licet.core.decision.foreseen import process_reach
from licet.core.decision.reach import Reach
from licet.core.policy.flow import ResultLabels
from licet.core.policy.keys import FLOW
from licet.core.policy.lock import KINDS, Definition, LockedServer, NamedPlaces, changed, local, shortened
from licet.core.policy.manifest import Manifest, every_key_file
from licet.core.policy.servers import PROMPTS, RESOURCES, Server, servers_of, tool_parts
from licet.core.policy.terms import StandingApproval, private_of
from licet.core.policy.tool import ToolSpec
from licet.declare import Context, Tool
from licet.declare.json_schema import schema_validator
from licet.gateway.client import ClientCall
from licet.gateway.limits import (
    HEALTHY_SECONDS,
    LONGEST_REPORT,
    LOOK_AGAIN_SECONDS,
    RESTART_PAUSES,
    SETTING_SECONDS,
    STANDING_SECONDS,
    START_SECONDS,
)
from licet.guard.execution import Pausable
from licet.guard.flow_steps import value_of_mcp
from licet.guard.gate import BareGate
from licet.guard.grant import Grant
from licet.guard.limits import FREEZE_LOOK_SECONDS
from licet.guard.ports import Unavailable
from licet.guard.registration import Registered
from licet.mcp.exchange import TimedOut, UpstreamError
from licet.mcp.jsonrpc import Id
from licet.mcp.link import Gone, Link
from licet.mcp.listing import BadListing, Definitions, as_locked, claimed_version, definitions
from licet.mcp.protocol import ASKED
from licet.mcp.upstream import Era, Opened, Peer, Upstream, era_of, locked_in_era
from licet.policy_files.server_tools import running_version

_WITHOUT = "the standing approval of deletes has ended; it is started again without it"
COMPARED = ("tools", "prompts")  # the definitions that are refused if they differ

Links = Callable[[], AbstractAsyncContextManager[Link]]
Report = Callable[[str], None]


class NotRunning(Exception):
    """A server cannot be asked now; the text says why."""


class ServerTool(Tool):
    """A tool of an MCP server. Its arguments are checked against the schema in the lock."""

    in_lock = False  # its definition is, below its server
    uses_handles = False  # its server's process acts by itself

    server: str
    tool: str
    _schema: dict[str, Any]
    _is_open_world: bool

    def __init__(
        self,
        spec: ToolSpec,
        server: str,
        tool: str,
        places: NamedPlaces | None = None,
        definition: Definition | None = None,
    ) -> None:
        super().__init__(_run_by_its_server, spec)
        hints = (definition or {}).get("annotations")
        # A lock names directories, such as `${workdir}`. Clients are shown the real ones, and servers expect them.
        vars(self).update(
            server=server,
            tool=tool,
            _schema=local(dict(spec.schema or {}), places or {}),
            _is_open_world=isinstance(hints, Mapping) and hints.get("openWorldHint") is True,
        )

    def remembered(self, value: object) -> object:
        """What a session remembers of a result. Resources and prompts have no form of their own for data."""
        return value if self.tool in (RESOURCES, PROMPTS) else value_of_mcp(value)

    def hinted(self, labels: ResultLabels) -> ResultLabels:
        """The labels of a result of which the server itself says that others wrote it: hints only lower.

        That is about the result as a whole. A field that the operator names keeps its label.
        """
        if not self._is_open_world or labels.label == "ack":
            return labels
        return replace(labels, label="untrusted")

    def validator(self) -> Callable[[object], dict[str, Any]]:
        return schema_validator(self._schema)

    def parameter_names(self) -> dict[str, str | None]:
        return {name: name for name in (self.spec.schema or {}).get("properties", {})}


async def _run_by_its_server(ctx: Context) -> None:  # with a context, so that what is noted gets into the receipt
    raise RuntimeError("a server's tool is run by its server")


def server_tools(manifest: Manifest, places: NamedPlaces | None = None) -> list[Tool]:
    """The tools of all servers of a manifest that the lock has and `servers:` declares.

    `places` are the directories of this machine, by the names that the lock has for them.
    """
    servers, locked = servers_of(manifest.servers), manifest.lock.servers if manifest.lock is not None else {}
    found: list[Tool] = []
    for name, spec in manifest.tools.items():
        parts = tool_parts(name, servers)
        if parts is not None:
            server, tool = parts
            definition = locked[server].in_all_versions("tools").get(tool) if server in locked else None
            found.append(ServerTool(spec, server, tool, places, definition))
    return found


class Start:
    """What the process of a server holds at its next start, and the standing approval that it runs under."""

    def __init__(self, gate: BareGate, server: Server, places: Places) -> None:
        self._gate, self._places = gate, places
        self.server = server
        self._standing: StandingApproval | None = None

    def reach(self) -> Reach:
        """What it holds if it is started now."""
        self._gate.renew_standing()
        reach = reach_of(self._gate, self.server, self._places)
        self._standing = reach.standing
        return reach

    def stands(self) -> bool:
        """Whether what it was started under has neither ended nor been withdrawn."""
        return self._standing is None or self._gate.stands(self._standing)


def tools_of(gate: BareGate, server: str) -> list[Registered]:
    """The tools of a server."""
    return [one for name, one in gate.policy.tools.items() if name.startswith(f"{server}.")]


def reach_of(gate: BareGate, server: Server, places: Places) -> Reach:
    """What the process of a server holds: what the tools hold together that can be called now."""
    reaches = [one.reach for one in tools_of(gate, server.name) if one.ready and one.reach is not None]
    return process_reach(gate.policy.manifest, server, reaches, (places.workdir, places.home))


def walls_of(reach: Reach) -> tuple[object, ...]:
    """What the walls of a server's process are made of. They are fixed at its start: if this changes, it is another."""
    manifest = reach.manifest
    keys = {name: value for name, value in manifest.values.items() if name != FLOW.name}  # of no process
    private = private_of(manifest, reach.bundles)
    own = reach.grant, reach.permitted, reach.effect, reach.level, reach.free_deletes
    return (*own, manifest.limits, manifest.allow_degraded, private, every_key_file(manifest), keys)


class ServerCall:
    """A call that a server works on: what the server asks and does during it, for the receipt of the call."""

    def __init__(
        self, server: str, client: ClientCall | None, grant: Grant | None, deadline: Pausable | None = None
    ) -> None:
        self.server, self.client, self.deadline = server, client, deadline
        self.asks = 0
        self.over = False
        self._grant = grant
        self._open: dict[int, tuple[str, asyncio.Task[object] | None]] = {}  # questions without an answer, by number

    def note(self, text: str) -> None:
        """Note something about the result."""
        self.happened(ResultNoted, rule=text)

    def happened(self, kind: type[Happened], about: str = "", reason: str = "", rule: str = "", count: int = 0) -> None:
        """Record an event; `about` is a capability, if the event is not about the call itself."""
        if self._grant is not None:
            self._grant.note_about(kind, about, reason, rule, count)

    def asked(self, name: str, what: str) -> int:
        """Record a question before anybody is asked, and return its number in this call."""
        self.asks += 1
        self._open[self.asks] = name, asyncio.current_task()
        self.happened(ServerAsked, capability(self.server, name), rule=what, count=self.asks)
        return self.asks

    def answered(self, number: int, reason: str, text: str) -> None:
        """Record what the server gets, once."""
        if number in self._open:
            name, _ = self._open.pop(number)
            self.happened(ServerAnswered, capability(self.server, name), reason, text, number)

    def end(self) -> None:
        """Withdraw the questions that have no answer: after the call, no receipt would have it."""
        self.over = True
        for number, (_, task) in list(self._open.items()):
            self.answered(number, "INTERRUPTED", "the call ended before the answer")
            if task is not None:
                task.cancel()


def capability(server: str, name: str) -> str:
    """What a server uses that asks the client, in receipts. No tool can have this name."""
    return f"client:{name}:{server}"


class RunningServer:
    """Keeps one server running from `start` to `close`. `links` starts its process, or connects to it.

    It is told of the client capabilities `announces`. `stands` says whether the standing approval of deletes, under
    which `links` started it last, still counts: once it does not, the server is started again, without it. `frozen`
    says why people have stopped its agent, and `withdrawn` why no policy is in force: its process ends, and another one
    is started when neither says anything any more, and the policy is not `switching`.
    """

    def __init__(
        self,
        server: Server,
        locked: LockedServer | None,
        links: Links,
        peer: Peer,
        report: Report,
        *,
        places: NamedPlaces | None = None,
        offers_changed: Callable[[], None] = lambda: None,
        announces: Mapping[str, Any] | None = None,
        stands: Callable[[], bool] = lambda: True,
        frozen: Callable[[], str] = lambda: "",
        withdrawn: Callable[[], bool] = lambda: False,
        switching: Callable[[], bool] = lambda: False,
    ) -> None:
        self.server = server
        self._stands, self._frozen, self._withdrawn, self._switching = stands, frozen, withdrawn, switching
        self._is_stopped = False  # whether it waits for the end of a freeze, or for a policy
        self._is_halted = False  # whether its process ends for such a reason
        self._lapsed = asyncio.Event()  # the approval does not count any more
        self.locked = locked  # None if nothing is compared
        self.opened: Opened | None = None
        self.live: LockedServer | None = None  # what it offers now
        self.different: Mapping[str, Mapping[str, str]] = {}  # kind -> name -> what changed
        self._links, self._peer, self._report = links, peer, report
        self._places = dict(places or {})
        self._offers_changed = offers_changed
        self._upstream: Upstream | None = None
        self._is_up = False  # the process of now, or its last one, was opened and compared
        self.announces = dict(server.client.capabilities if announces is None else announces)
        self._problem = "it has not been started"
        self._failed = False  # it could not be started
        self._unclear = ""  # why its definitions are not known any more
        self._subscribed: set[str] = set()  # URIs, also for its next process
        self._settled = asyncio.Event()  # set: calls need not wait; cleared while changed definitions are compared
        self._task: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self._last = 0
        self._calls: dict[int, ServerCall] = {}  # by numbers that no client chooses
        self.asks_alone = 0  # while none of its calls ran, since the last one began
        self.refused_alone = 0

    def start(self, era: Era | Literal[""] = "") -> None:
        """Start it, once, in the era of its client if it was locked in it. Later calls do nothing."""
        if self._task is None:
            if self.locked is not None:
                there = locked_in_era(self.locked, era)
                self._report_era(self.locked, there, era)
                self.locked = there
            self._task = asyncio.create_task(self._keep(), name=f"licet server {self.server.name}")

    def _report_era(self, locked: LockedServer, there: LockedServer, era: Era | Literal[""]) -> None:
        """Say what is not served in this era, and that it may not be able to ask: older locks know one era alone."""
        for key, why in there.refused.items():
            if key not in locked.refused:
                self._tell(f"{self.server.name}: {key} is left out: {why}")
        asks = self.announces.keys() & set(ASKED.values())
        if era == "2025" != era_of(locked.version) and not locked.other_versions and asks:
            self._tell(
                f"{self.server.name}: it was locked in protocol {locked.version} alone, and may not be able to ask a "
                "client of an older one: `licet lock --update` also asks it in an older one, if it knows one"
            )

    async def settled(self) -> None:
        """Wait until it has said what it offers, or failed to; if its standing approval has ended, without that."""
        if self._upstream is not None and not self._stands():
            self._settled.clear()
            self._upstream = None  # nothing more is asked of the process that may delete
            self._lapsed.set()
        if self._is_stopped and not self._why_stopped():
            self._settled.clear()  # it is started again
        await self._settled.wait()

    def upstream(self) -> Upstream:
        """The connection to ask it with. Raises `NotRunning`."""
        if self._upstream is None:
            raise NotRunning(f"the server `{self.server.name}` is not running: {self._problem}")
        return self._upstream

    def refusal_of(self, kind: str, name: str) -> str:
        """Why one of its tools, resources or prompts is not used as it is now; empty if it is."""
        what = self.different.get(kind, {}).get(name)
        whose = f"`{shortened(name)}` of the server `{self.server.name}`"
        if self.locked is not None and (why := self.locked.refused.get(f"{kind}/{name}")):
            return f"{whose} is left out: {why}"
        if self._unclear:
            return f"the server `{self.server.name}` says that its lists changed, but not how"
        if what is None:
            return ""
        return f"{whose} {what}, unlike in licet.lock: review it with `licet lock --update`"

    def offers(self, kind: str, name: str) -> bool:
        """Whether it offers a tool, resource or prompt now; as long as it has not said, whether it could be started."""
        if self._failed:
            return False
        return self.live is None or name in self.live.listed(kind)

    def is_shown(self, kind: str, name: str) -> bool:
        """Whether a client is shown something of the lock: it is offered, and as it was locked.

        Resources are not compared: their sizes and dates change.
        """
        is_same = kind not in COMPARED or not self.refusal_of(kind, name)
        return is_same and self.offers(kind, name)

    async def subscribe(self, uri: str, *, seconds: float) -> None:
        """Be told when a resource is updated, also by the processes after this one. Raises as `Upstream` does."""
        await self.upstream().subscribe(uri, seconds=seconds)
        self._subscribed.add(uri)

    async def unsubscribe(self, uri: str, *, seconds: float) -> None:
        """Be told no longer."""
        self._subscribed.discard(uri)
        await self.upstream().unsubscribe(uri, seconds=seconds)

    @property
    def subscribed(self) -> frozenset[str]:
        """The resources of which updates are wanted."""
        return frozenset(self._subscribed)

    def take_subscriptions(self, before: "RunningServer") -> None:
        """Be told of what the server before this one was asked for, as far as it is shown."""
        self._subscribed |= {uri for uri in before.subscribed if self.server.shows_resource(uri)}

    async def drop_subscriptions(self) -> None:
        """Be told of no resource any more."""
        for uri in tuple(self._subscribed):
            with suppress(NotRunning, Gone, TimedOut, UpstreamError):
                await self.unsubscribe(uri, seconds=SETTING_SECONDS)

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # Calls that it works on -------------------------------------------------------------------------------------------

    @contextmanager
    def working_on(self, call: ServerCall) -> Iterator[int]:
        """Keep a call while it runs. What the server may ask outside of calls is counted anew."""
        self.asks_alone = 0
        self._last += 1
        number = self._last
        self._calls[number] = call
        try:
            yield number
        finally:
            del self._calls[number]
            call.end()

    @property
    def calls(self) -> list[ServerCall]:
        """The calls that it works on, the oldest first."""
        return list(self._calls.values())

    def call_with(self, number: Id | None) -> ServerCall | None:
        """The call that it asks for: the one with this number or else, if it did not say, its oldest one."""
        found = self._calls.get(number) if isinstance(number, int) else None
        return found or next(iter(self._calls.values()), None)

    # Its life ---------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        loop, tries = asyncio.get_running_loop(), 0
        while True:
            await self._until_let_go()
            began, self._is_up = loop.time(), False
            try:
                await self._live_once()
            except Exception as wrong:  # whatever it is, it costs this server alone
                self._problem = str(wrong)[:LONGEST_REPORT] or type(wrong).__name__
            finally:
                self._upstream = None
                if not (self._lapsed.is_set() or self._is_halted):
                    self._settled.set()
            if self._lapsed.is_set():  # its calls wait until it runs again
                self._lapsed.clear()
                self._report(f"{self.server.name}: {self._problem}")
                continue
            if self._is_halted or self._why_stopped():
                self._is_halted = False  # if there is no reason any more, its calls wait until it runs again
                continue
            self._set(failed=not self._is_up)
            tries = 0 if loop.time() - began > HEALTHY_SECONDS else tries + 1
            pause = RESTART_PAUSES[min(tries, len(RESTART_PAUSES)) - 1] if tries else RESTART_PAUSES[0]
            self._report(f"{self.server.name}: {self._problem}; it is started again in {pause:g} s")
            await asyncio.sleep(pause)

    def _set(self, *, failed: bool = False, unclear: str = "") -> None:
        before, self._failed, self._unclear = (self._failed, self._unclear), failed, unclear
        if before != (failed, unclear):
            self._offers_changed()

    async def _live_once(self) -> None:
        async with self._links() as link:
            upstream = Upstream(self.server.name, link, self._peer, self.announces)
            try:
                version = self.locked.version if self.locked is not None else ""
                self.opened = await upstream.open(era_of(version), seconds=START_SECONDS)
                self._check_claim(self.opened)
                await self._look(upstream)
                for uri in self._subscribed:
                    with suppress(UpstreamError):
                        await upstream.subscribe(uri, seconds=START_SECONDS)
                self._upstream, self._problem, self._is_up = upstream, "it has ended", True
                self._set()
                self._settled.set()
                watching = asyncio.create_task(self._watch(upstream))
                standing = asyncio.create_task(self._until_lapsed())
                stopping = asyncio.create_task(self._until_stopped())
                ending = asyncio.create_task(upstream.ended())
                try:
                    await asyncio.wait((ending, standing, stopping), return_when=asyncio.FIRST_COMPLETED)
                    self._problem = f"it has ended ({ending.result()})" if ending.done() else _WITHOUT
                finally:
                    for task in (watching, standing, stopping, ending):
                        task.cancel()
            finally:
                self._upstream = None
                await upstream.close()

    async def _until_lapsed(self) -> None:
        """Wait until the standing approval that it was started under has ended, or was withdrawn."""
        while not self._lapsed.is_set():
            if not await asyncio.to_thread(self._stands):
                self._settled.clear()
                self._lapsed.set()
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lapsed.wait(), STANDING_SECONDS)

    async def _until_stopped(self) -> None:
        """Wait until its agent was frozen, or has no policy, and its calls had the time to end for that reason."""
        while True:
            while not self._why_stopped():
                await asyncio.sleep(FREEZE_LOOK_SECONDS)
            is_frozen = self._why_frozen()
            await asyncio.sleep(1.5 * FREEZE_LOOK_SECONDS)
            if is_frozen or self._why_stopped():  # a policy that is back by then was a file of which half was written
                self._settled.clear()
                self._is_halted = True
                return

    async def _until_let_go(self) -> None:
        """Wait as long as its agent is frozen, or has no policy."""
        if why := self._why_stopped():
            self._is_stopped, self._problem = True, why
            self._report(f"{self.server.name}: {self._problem}")
            self._settled.set()  # calls are refused
            while self._why_stopped():
                await asyncio.sleep(FREEZE_LOOK_SECONDS)
            self._settled.clear()
            self._is_stopped = False
        while self._switching():
            await asyncio.sleep(FREEZE_LOOK_SECONDS)

    def _why_stopped(self) -> str:
        if why := self._why_frozen():
            return f"it is frozen: {why}"
        return "it is stopped until its policy can be used" if self._withdrawn() else ""

    def _why_frozen(self) -> str:
        try:
            return self._frozen()
        except Unavailable as broken:  # it may be frozen, and all of its calls are refused
            return str(broken)

    def _check_claim(self, opened: Opened) -> None:
        """Refuse a server that claims another version than it did when connector lists were applied to it."""
        if self.locked is None or not self.server.uses_connectors:
            return
        if running_version(self.server, self.locked).source != "claimed":
            return
        now, locked = (one or "none" for one in (claimed_version(opened), self.locked.claimed_version))
        if now != locked:
            text = f"it claims version {now} of itself, and {locked} in licet.lock"
            raise BadListing(f"{text}: review it with `licet lock --update`")

    async def _watch(self, upstream: Upstream) -> None:
        """Compare its definitions again whenever it says that they changed. Its calls wait for that."""
        while True:
            await upstream.changed.wait()
            self._settled.clear()
            upstream.changed.clear()
            try:
                is_clear = await self._is_clear(upstream)
            finally:
                self._settled.set()
            while not is_clear:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                is_clear = await self._is_clear(upstream)

    async def _is_clear(self, upstream: Upstream) -> bool:
        """Look at what it offers now. Its tools are refused as long as that is not known."""
        try:
            await self._look(upstream)
        except (UpstreamError, TimedOut, BadListing) as wrong:
            self._set(unclear=str(wrong)[:LONGEST_REPORT])
            self._tell(f"{self.server.name}: its lists changed, and cannot be read: {wrong}")
            return False
        except Gone:
            return True
        self._set()
        return True

    async def _look(self, upstream: Upstream) -> None:
        assert self.opened is not None  # noqa: S101 - it was opened first
        found = await definitions(upstream, self.opened, seconds=START_SECONDS)
        live, changes = await asyncio.to_thread(self._compared, found)  # up to megabytes of the server's texts
        before, self.live = self.live, live
        self.different = {
            kind: {name: what for name, what in named.items() if name in live.listed(kind)}
            for kind, named in changes.items()
        }
        for kind, named in changes.items():
            for name, what in named.items():
                self._tell(f"{self.server.name}: {kind[:-1]} `{shortened(name)}` {what}, unlike in licet.lock")
        for key, why in live.refused.items():
            if self.locked is None or key not in self.locked.refused:
                self._tell(f"{self.server.name}: {key} is left out: {why}")
        if before is None or before != live:
            self._offers_changed()

    def _compared(self, found: Definitions) -> tuple[LockedServer, Mapping[str, Mapping[str, str]]]:
        """What it offers now, and what of each kind differs from the lock."""
        live = as_locked(found, self._places)
        if self.locked is None:
            return live, {}
        changes = {kind: changed(self.locked, live, kind) for kind in KINDS}
        return live, {
            kind: {name: what[:LONGEST_REPORT] for name, what in named.items()} for kind, named in changes.items()
        }

    def _tell(self, text: str) -> None:
        text = text[:LONGEST_REPORT]
        if text not in self._told and len(self._told) < 1000:
            self._told.add(text)
            self._report(text)
