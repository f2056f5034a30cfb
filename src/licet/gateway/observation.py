"""`licet gateway --observe`: calls that the policy refuses are let through, for some time, and noted.

It is a flag of one command line. Nothing in a policy file or in the environment switches it on.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.expected_lock import existing_lock, lock_backends, lock_place, machine_places
from licet.assemble.gate import Backends, CommandGate
from licet.assemble.recording import CallRecording
from licet.assemble.review import Places
from licet.core.algebra.scope import visible
from licet.core.decision.decision import Ask, CapabilityGranted, Deny
from licet.core.decision.request import UNUSED, Ground, Reason
from licet.core.ledger.entry import ObservedFact
from licet.core.policy.addresses import common_ranges
from licet.core.policy.lock import FORMAT, BadLock, Lock, LockedServer, other_version
from licet.core.policy.manifest import Manifest
from licet.core.policy.manifest_fields import DECIDED_BY_CALL, Organisation
from licet.core.policy.servers import PROMPTS, RESOURCES, Server, servers_of
from licet.core.policy.terms import Admission, Natives, least_limits
from licet.core.policy.tool import spec_of
from licet.core.values import Origin
from licet.declare.arguments import checked_json
from licet.declare.plain_json import data_again
from licet.errors import Refused
from licet.gateway.limits import LONGEST_OBSERVED_RULE, MOST_OBSERVED_RULES, MOST_SUMMARY_LINES
from licet.gateway.running_server import ServerTool
from licet.guard.approvals_and_budgets import settle
from licet.guard.call import CallAdmission
from licet.guard.facts import Call
from licet.guard.grant import Grant, Observer
from licet.guard.registration import Registered, RegisteredTools
from licet.guard.result_parts import NOTHING
from licet.mcp.server_definitions import NotTaken, Setup, take
from licet.mcp.shown_names import without_clashes
from licet.policy_files.policy_source import meaning
from licet.policy_files.server_tools import is_other_server, refusal_of_name, with_server_tools

# The reasons with which a policy refuses before the tool runs. A frozen gate, a missing backend, a ledger that cannot
# be written, an error while deciding: all of these still refuse. `GovernedServers.ask` lifts three more: changed
# definitions, resources and prompts that are not listed, and structured content that does not fit.
LIFTED: frozenset[Reason] = frozenset(
    {
        *("UNKNOWN_TOOL", "TOOL_NOT_IN_BUNDLE", "TOOL_NOT_AVAILABLE", "INPUT_INVALID", "ARGUMENT_NOT_ALLOWED"),
        *("SIDE_EFFECT_EXCEEDED", "CONNECTOR_NOT_ALLOWED", "SANDBOX_NOT_DECLARED", "NATIVE_NOT_ALLOWED"),
        *("APPROVAL_REQUIRED", "BUDGET_EXCEEDED", "HOST_NOT_ALLOWED", "ADDRESS_NOT_ALLOWED", "PATH_NOT_REACHABLE"),
        *("SECRET_NOT_DECLARED", "BINARY_NOT_ALLOWED", "ENV_NOT_ALLOWED", "STORAGE_NOT_DECLARED"),
        *("FLOW_ORIGIN", "FLOW_SECRET", "FLOW_NOT_ASKED_FOR"),
    }
)

Report = Callable[[str], None]


class Observation(Struct, frozen=True):
    """What a gateway observes, and for how long."""

    manifest: Manifest  # the policy; a server without a lock counts as locked with what it offers now
    offered: Mapping[str, LockedServer]  # all that each server offers, also what is not in its lock
    seconds: float
    unpinned: tuple[str, ...] = ()  # servers that tell the model what no lock has
    is_open: bool = False  # servers run without walls
    meaning: tuple[object, ...] = ()  # of the policy as its files have it
    recording: CallRecording | None = None  # of what the calls use, for `licet learn`


def unobservable(above: Iterable[Organisation], *, is_open: bool) -> str:
    """Why a gateway must not only observe under these organisations; empty if it may.

    Destinations are kept by the walls of a server, and budgets are counted while it observes, too. What else an
    organisation says is decided by the checks that are lifted.
    """
    for one in above:
        for key in DECIDED_BY_CALL:
            if key in one.places:
                return f"{one.place(key)}: `{key}` holds here, and --observe would not keep it: leave out --observe"
        if is_open and one.layers:
            return f"{one.layers[0].origin}: `destinations` hold here, and --open would not keep them: leave out --open"
    return ""


async def observation(
    manifest: Manifest,
    seconds: float,
    *,
    is_open: bool,
    report: Report,
    workdir: Path | None = None,
    secrets_file: Path | None = None,
) -> Observation:
    """Ask each server what it offers, as `licet lock` does, and write nothing. Leaves out one that cannot."""
    places = Places.here(workdir)
    base = manifest.loaded or manifest  # before the tools of locked servers were added to it
    written = _written_lock(base, report)
    setup = Setup(
        lock_backends(secrets_file),
        places.workdir,
        places.home,
        machine_places(places.workdir, places.home),
        report,
        manifest.allow_degraded,
        tuple(common_ranges(manifest.private)),
        chooses=False,
    )
    locked: dict[str, LockedServer] = {}
    offered: dict[str, LockedServer] = {}
    unpinned: list[str] = []
    for name, server in servers_of(base.servers).items():
        known = written.get(name)
        if known is not None and is_other_server(server, known):
            report(f"{name}: it has another command than in licet.lock: `licet lock --update` is for that")
            known = None
        elif known is None:
            report(f"{name}: it is not in licet.lock: run `licet lock` before you use it without --observe")
        found = known
        try:
            origin = base.places.get(f"servers.{name}", base.origin)
            found = await take(_opened(server, is_open), origin, setup, before=known, times=1)
        except NotTaken as wrong:
            report("; ".join((f"{name}: {wrong}", *wrong.lines)))
        if found is not None:
            offered[name] = _with_others(known or found, found)
            if known is None or offered[name] != known:
                unpinned.append(name)
        if known is not None:
            locked[name] = _with_other_versions(known, found or known)
    offered = without_clashes(offered, manifest.gateway_names)  # type: ignore[arg-type]
    locked = {name: locked.get(name, found) for name, found in offered.items()}
    lock = Lock(format=FORMAT, manifests=base.lock.manifests if base.lock is not None else {}, servers=locked)
    policy = with_server_tools(replace(base, lock=lock, lock_problem=None, loaded=base))
    policy = policy.under(*manifest.organisations)
    return Observation(policy, offered, seconds, tuple(unpinned), is_open, meaning(manifest))


def _written_lock(manifest: Manifest, report: Report) -> Mapping[str, LockedServer]:
    """The servers of the lock on disk. While observing, it may be of an earlier version of the policy."""
    if manifest.lock is not None:
        return manifest.lock.servers
    if manifest.lock_problem is not None:
        report(str(manifest.lock_problem))
    try:
        lock = existing_lock(lock_place(Path(manifest.origin.file)))
    except BadLock:
        return {}
    return lock.servers if lock is not None else {}


def _opened(server: Server, is_open: bool) -> Server:
    return replace(server, sandbox="native") if is_open and not server.url else server


def _with_other_versions(locked: LockedServer, found: LockedServer) -> LockedServer:
    """A lock in which a version of the protocol that it does not have counts as locked with what is offered there."""
    missing = found.other_versions.keys() - locked.other_versions.keys()
    more = {version: other_version(locked, found.in_version(version)) for version in missing}
    return replace(locked, other_versions={**locked.other_versions, **more})


def _with_others(locked: LockedServer, found: LockedServer) -> LockedServer:
    """A lock with the tools, resources and prompts that a server offers besides those in it, in each version."""
    offered = _with_other_definitions(locked, found)
    versions = {}
    for version in (*locked.other_versions, *found.other_versions):
        there = found.in_version(version)
        if version in locked.other_versions:
            there = _with_other_definitions(locked.in_version(version), there)
        versions[version] = other_version(offered, there)
    return replace(offered, other_versions=versions)


def _with_other_definitions(locked: LockedServer, found: LockedServer) -> LockedServer:
    kinds = ("tools", "resources", "templates", "prompts")
    more = {
        kind: tuple(one for name, one in found.listed(kind).items() if name not in locked.listed(kind))
        for kind in kinds
    }
    return replace(
        locked,
        **{kind: (*getattr(locked, kind), *more[kind]) for kind in kinds},
        refused={**found.refused, **locked.refused},
    )


class Observed:
    """What the policy would have said about one call. The receipts of the call have it."""

    def __init__(self, observing: "Observing", call: Call) -> None:
        self._observing, self._call = observing, call
        self._fact = call.observed = ObservedFact(verdict="allow", walls=not observing.is_open)
        observing.calls += 1

    def note(self, reason: Reason, *rules: str, asked: bool = False) -> None:
        """Note a refusal, or a question to a person if `asked`."""
        before = self._fact
        if not before.reasons:
            self._observing.refused += 1
        if reason not in before.reasons:
            self._observing.by_reason[reason, self._call.tool] += 1
        more = [visible(rule)[:LONGEST_OBSERVED_RULE] for rule in rules][: MOST_OBSERVED_RULES - len(before.rules)]
        self._fact = self._call.observed = replace(
            before,
            verdict="ask" if asked and before.verdict in ("ask", "allow") else "deny",
            reasons=tuple(dict.fromkeys((*before.reasons, reason))),
            rules=(*before.rules, *more),
        )


# The call that the current task observes.
OBSERVED: ContextVar[Observed | None] = ContextVar("licet_observed", default=None)


class Observing(CallAdmission):
    """Observes the calls of one session until a time of the gate's monotonic clock.

    The policy is asked first, by the same steps as always. If it refuses, the call starts again under `instead`, which
    admits the tools that may be observed and holds nothing: their effects are those of a server's process, behind its
    own walls. Receipts of such a session all say that it observed.
    """

    def __init__(
        self, instead: RegisteredTools, until: float, *, is_open: bool, recorder: Observer | None = None
    ) -> None:
        self.instead, self.until = instead, until
        self.recorder = recorder  # gets what was refused and let through, as granted
        self.is_open = is_open  # servers run without walls
        self.calls = 0
        self.refused = 0  # calls that the policy would have refused or asked about
        self.by_reason: Counter[tuple[str, str]] = Counter()  # by reason and tool

    async def admit(self, call: Call, arguments: object) -> tuple[Registered, Grant]:
        """Admit a call by the steps that ask the policy of it; a refusal is noted."""
        if call.clock.monotonic() >= self.until:
            fix = "start it again: without `--observe`, or with `--observe --for` for another while"
            call.refuse("SESSION_ENDED", "this gateway only observed, and the time for that is over", fix)
        observed = Observed(self, call)
        OBSERVED.set(observed)  # of this task alone: each call has one
        session, reported_open = call.session, call.session.reported_open
        try:
            registered, grant = await super().admit(call, arguments)
        except Refused as refusal:
            asked = refusal.code == "APPROVAL_REQUIRED" or isinstance(refusal.decision, Ask)
            observed.note(refusal.code, *map(str, refusal.decision.rules), asked=asked)
            if refusal.code not in LIFTED or call.tool not in self.instead.tools:
                raise
            session.reported_open = reported_open  # by a grant that is dropped
            await self._start_again(call)
            admitted = await super().admit(call, arguments)
            if self.recorder is not None and refusal.decision.use is not None:
                event = CapabilityGranted(str(refusal.decision.use), call.tool, "", "observed")
                self.recorder(call.identity.stamped(event, call.clock.monotonic()))
            return admitted
        if self.is_open:
            registered = call.registered = _without_walls(registered, self.instead.tools[call.tool])
        return registered, grant

    async def check_runnable(self, call: Call, registered: Registered, grant: Grant) -> None:
        """Check that a call can run. Without walls, it needs no sandbox."""
        await super().check_runnable(call, replace(registered, unavailable="") if self.is_open else registered, grant)

    async def refuse_or_ask(self, call: Call, grant: Grant, decision: Ask | Deny) -> None:
        """Raise the refusal: nobody is asked about what runs anyway."""
        raise Refused(decision)

    def note_unrun(self, call: Call, why: tuple[Ground, ...]) -> None:
        """Note a call that runs no tool."""
        observed = Observed(self, call)
        if why:
            observed.note(why[0].reason, *map(str, why))

    async def _start_again(self, call: Call) -> None:
        """Put a call back to its start, under the policy that admits it."""
        if call.reservation is not None or call.bundle_reservations:
            await settle(call, NOTHING)  # a bundle had room and another budget had not
        call.policy, call.registered, call.grant = self.instead, None, None
        call.reservation, call.bundle_reservations = None, {}
        call.request, call.usage, call.approvals = call.session.request(call.tool), UNUSED, ()


def _without_walls(registered: Registered, instead: Registered) -> Registered:
    """A tool with its own limits and cost, and without its walls: its server has none, and its receipt says so."""
    own, other = registered.entry, instead.entry.sandbox
    entry = replace(own, sandbox=replace(own.sandbox, level=other.level, layers=other.layers))
    return replace(
        registered, reach=instead.reach, layers=instead.layers, walls=instead.walls, unavailable="", entry=entry
    )


def opening_lines(policy: str, duration: str, *, is_open: bool) -> Iterator[str]:
    """The lines that the gateway prints for the operator when it starts."""
    yield f"OBSERVING for {duration}: what {policy} refuses is let through and noted; only the walls are enforced"
    if is_open:
        yield "OPEN: servers run without walls, as ordinary programs of this user"


def closing_lines(observing: Observing) -> Iterator[str]:
    """The lines that the gateway prints for the operator when it ends."""
    yield f"observed {_calls(observing.calls)}: the policy would have refused {observing.refused}"
    counted = sorted(observing.by_reason.items(), key=lambda one: (-one[1], one[0]))
    for (reason, tool), number in counted[:MOST_SUMMARY_LINES]:
        yield f"  {number}x {reason}  {tool}"
    if more := sum(number for _, number in counted[MOST_SUMMARY_LINES:]):
        yield f"  and {more} more: see `licet receipts list --session`"


def _calls(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"


# The tools of servers while the gateway observes: a call holds nothing in licet itself. What it can touch is what the
# process of its server can: its walls are those of the policy, unless the operator has opened them.
_ORIGIN = Origin("licet gateway --observe", 0, 0)


class ObservedTool(ServerTool):
    """A tool of an MCP server that takes any arguments."""

    def validator(self) -> Callable[[object], dict[str, Any]]:
        return _any_object


def _any_object(given: object) -> dict[str, Any]:
    arguments: dict[str, Any] = data_again(checked_json(given))
    return arguments


def observed_policy(
    manifest: Manifest,
    servers: Mapping[str, Server],
    offered: Mapping[str, LockedServer],
    backends: Backends,
    *,
    workdir: Path | None,
    is_open: bool,
) -> RegisteredTools:
    """A policy that admits every tool, resource and prompt that these servers offer, without rules or budgets.

    The time limits are those of `manifest`.
    """
    tools: list[ObservedTool] = []
    natives: set[str] = set()
    for name, locked in offered.items():
        is_native = is_open or servers[name].kind == "native"
        for tool, definition in {**locked.in_all_versions("tools"), RESOURCES: {}, PROMPTS: {}}.items():
            if definition and (f"tools/{tool}" in locked.refused or refusal_of_name(name, tool)):
                continue
            full = f"{name}.{tool}"
            spec = spec_of(
                name=full,
                needs=[],
                effect="read_only",  # of what it holds here, which is nothing
                sandbox="native" if is_native else "isolated",
                description=str(definition.get("description", "")),
                schema={"type": "object"},
                origin=_ORIGIN,
            )
            natives |= {full} if is_native else set()
            tools.append(ObservedTool(spec, name, tool, definition=definition))
    instead = Manifest(
        agent=manifest.agent,
        origin=_ORIGIN,
        admissions={tool.name: (_admission(manifest, servers[tool.server], tool),) for tool in tools},
        natives=(Natives(frozenset(natives), _ORIGIN),),
        limits=manifest.limits,
        allow_degraded=manifest.allow_degraded,
        record=manifest.record,
        loaded=manifest.loaded or manifest,  # receipts have the digest of the policy
    )
    instead = instead.under(*manifest.organisations)
    return CommandGate(instead, tools, backends, workdir=workdir, on_misfit="deny").policy


def _admission(manifest: Manifest, server: Server, tool: ObservedTool) -> Admission:
    """How a tool is admitted: with the limits that the manifest and the workspace state for it."""
    entry = server.entry(tool.tool)
    limits: Mapping[str, int] = entry.limits if entry is not None else {}
    for admission in manifest.admissions.get(tool.name, ()):
        limits = least_limits(limits, admission.limits)
    return Admission(_ORIGIN, limits=limits)
