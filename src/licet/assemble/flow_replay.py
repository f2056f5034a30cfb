"""What would another manifest have asked about, for the calls that a ledger has? For `licet flow replay`.

Each call is judged again, by what its session had been handed when it was made. Nothing runs. A ledger does not have
the words of the task, so they are given here, all at once; and a session that was opened again counts as one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.recorded_calls import RecordedCall, is_of_server, remembered
from licet.core.decision.flow_judgement import from_task, judge, readers_ceiling
from licet.core.decision.reach import Reach, reach_of
from licet.core.flow.indexed import Indexed
from licet.core.flow.judgement import Judgement, Unmet
from licet.core.flow.labels import ANY_READ, is_private, labels_of_result, secrets_of_result
from licet.core.flow.session_knowledge import Known, Reading
from licet.core.ledger.entry import AccessFact, AgentFact, FlowFact, ParentFact, ProgramsFact
from licet.core.policy.flow import Flow, ResultLabels
from licet.core.policy.keys import FLOW
from licet.core.policy.manifest import COMMANDS, Manifest, asked_tool
from licet.core.review.sensitive import holds_keys
from licet.guard.flow_steps import QUESTIONS, labels_of_mcp, with_readers

Would = Literal["pass", "ask", "deny", "watch", "not judged"]

_UNTRUSTED = ResultLabels()
_NO_ARGUMENTS = "its arguments were not recorded"


class Replayed(Struct, frozen=True):
    """One call under the other manifest."""

    receipt: str
    agent: str
    session: str
    tool: str
    time: str
    would: Would
    before: Literal["met", "unmet"] | None  # what was recorded when it was made; None if there was no `flow:`
    why: str = ""  # it is not judged
    unmet: tuple[Unmet, ...] = ()
    tainted_by: tuple[str, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether it would not have gone through by itself."""
        return self.would in ("ask", "deny")


class Replay(Struct, frozen=True):
    """All calls of a ledger under the other manifest, in the order in which they were made."""

    calls: tuple[Replayed, ...]
    without_task: tuple[str, ...]  # sessions whose task was not given
    unkept: int  # calls whose arguments and results were not recorded

    def count(self, *would: Would) -> int:
        """How many calls would have gone so."""
        return sum(call.would in would for call in self.calls)

    @property
    def sessions(self) -> int:
        """How many sessions there are; a delegate has one of its own."""
        return len({(call.agent, call.session) for call in self.calls})


def replayed(calls: Sequence[RecordedCall], manifest: Manifest, tasks: Mapping[str, Sequence[str]]) -> Replay:
    """Judge recorded calls under a manifest. `tasks` has the turns of the user by session; those of "" hold for all."""
    memories = _Memories(calls, tasks)
    found = []
    for call, is_judged in _in_order(calls):
        if is_judged:
            found.append(_judged(call, manifest, memories))
        else:
            memories.remember(call, manifest)
    said = {session for session, turns in tasks.items() if turns}
    silent = {call.entry.session for call in calls} - said if "" not in said else ()
    return Replay(tuple(found), tuple(sorted(silent)), sum(not call.has_bodies for call in calls))


def _in_order(calls: Sequence[RecordedCall]) -> Iterator[tuple[RecordedCall, bool]]:
    """Each call twice: when it was made, to be judged; and when its result was handed out, to be remembered.

    A call that waited for a person, or for another call, was made before its first entry: a result that was recorded
    after its time is one that it had not seen.
    """
    steps: list[tuple[int, int, RecordedCall, bool]] = []
    ended: list[RecordedCall] = []  # by the number of the receipt
    for call in sorted(calls, key=lambda one: one.number):
        made = call.began
        for earlier in reversed(ended):
            if earlier.number < call.began and earlier.entry.recorded <= call.entry.time:
                break
            made = min(made, earlier.number)
        ended.append(call)
        steps += [(made, 0, call, True), (call.number, 1, call, False)]
    steps.sort(key=lambda step: step[:2])
    return ((call, is_judged) for _, _, call, is_judged in steps)


class _Memories:
    """What each session knows. What a delegate reads is known to those above it at once."""

    def __init__(self, calls: Iterable[RecordedCall], tasks: Mapping[str, Sequence[str]]) -> None:
        self._tasks = tasks
        self._known: dict[tuple[str, str], Known] = {}
        self._parents: dict[tuple[str, str], tuple[str, str]] = {}
        self._receipts = {call.entry.id for call in calls}
        self._from_task: set[int] = set()
        for call in calls:
            if isinstance(call.entry.parent, ParentFact):
                self._parents[_name(call)] = (call.entry.parent.agent, call.entry.parent.session)

    def of(self, name: tuple[str, str]) -> Known:
        """What a session knows now. A delegate begins with what its parent knows."""
        if name not in self._known:
            parent = self._parents.get(name)
            if parent is not None and parent != name:
                self._known[name] = self.of(parent).child()
            else:
                known = self._known[name] = Known()
                for turn in (*self._tasks.get("", ()), *self._tasks.get(name[1], ())):
                    known.say(turn)
        return self._known[name]

    def for_call(self, call: RecordedCall) -> Known:
        """What the session of a call knows, with the reasons why it was tainted that are no result."""
        known = self.of(_name(call))
        flow = call.entry.flow
        for why in flow.tainted_by if isinstance(flow, FlowFact) else ():
            if why not in self._receipts:
                known.taint(why)
        if from_task(call.arguments or {}, known):
            self._from_task.add(call.number)
        return known

    def remember(self, call: RecordedCall, manifest: Manifest) -> None:
        """Remember what a call handed out, in its session and in those above it."""
        reading = _reading(call, manifest, from_task=call.number in self._from_task)
        name: tuple[str, str] | None = _name(call)
        seen = set()
        while name is not None and name not in seen:
            seen.add(name)
            known = self.of(name)
            if reading is not None:
                known.remember(reading)
            if call.ran and not call.is_kept:  # it may have returned anything
                known.taint(call.entry.id)
            elif not call.ran and call.entry.reason not in QUESTIONS:
                known.hear_of(Indexed(Reading(call.entry.id, call.entry.tool, None, is_untrusted=True)))
            name = self._parents.get(name)


def _name(call: RecordedCall) -> tuple[str, str]:
    return call.entry.agent, call.entry.session


def _judged(call: RecordedCall, manifest: Manifest, memories: _Memories) -> Replayed:
    entry, flow = call.entry, FLOW.of(manifest)
    known = memories.for_call(call)
    before: Literal["met", "unmet"] | None = None
    if isinstance(entry.flow, FlowFact):
        before = "unmet" if entry.flow.unmet else "met"
    found = Replayed(entry.id, entry.agent, entry.session, entry.tool, entry.time, "not judged", before)
    reach = _reach(entry.tool, manifest)
    if not call.ran and entry.reason not in QUESTIONS:  # asked about: the rules before were met
        return replace(found, why=f"it was refused for another reason: {entry.reason}")
    if reach is None or not reach.admissions:
        return replace(found, why="the manifest does not admit this tool")
    if call.arguments is None:
        return replace(found, why=_NO_ARGUMENTS)
    narrows = reach.spec.name == COMMANDS and not flow.only_watches
    ceiling = readers_ceiling(flow, known.secrets_read) if narrows else None
    if ceiling is not None:  # a program is not asked about secrets: it holds less
        reach = with_readers(reach, ceiling)
    judgement = judge(reach, flow, call.arguments, known)
    return replace(found, would=_would(judgement, flow), unmet=judgement.unmet, tainted_by=judgement.tainted_by)


def _would(judgement: Judgement, flow: Flow) -> Would:
    if not judgement.unmet:
        return "pass"
    if not judgement.enforced:
        return "watch"
    return "ask" if flow.otherwise == "ask" else "deny"


def _reach(tool: str, manifest: Manifest) -> Reach | None:
    """The tool under the manifest, with the schema of its arguments as far as its source shows it."""
    name, manifest = asked_tool(tool, manifest)
    reach = reach_of(manifest, name)
    if reach is None or reach.spec.schema is not None or reach.spec.sketch is None:
        return reach
    return replace(reach, spec=replace(reach.spec, schema=reach.spec.sketch))


# What a call handed out, as `guard/flow_steps.py` remembers it --------------------------------------------------------


def _reading(call: RecordedCall, manifest: Manifest, *, from_task: bool) -> Reading | None:
    """What a session remembers of a call; None if it was handed nothing."""
    flow, entry = FLOW.of(manifest), call.entry
    arguments = call.arguments or {}
    uses = _read_uses(call, manifest)
    value = remembered(call, manifest) if call.is_kept else None
    labels = _UNTRUSTED
    if call.succeeded and call.is_kept:
        labels = labels_of_result(flow, entry.tool, arguments, uses)
        if is_of_server(entry.tool, manifest):
            labels = labels_of_mcp(labels)
    elif not call.ran:  # what it quotes is the caller's, or words of licet alone
        value = None
    secret = secrets_of_result(flow, entry.tool, uses) if call.ran else ()
    private = flow.guesses_secrets and is_private(uses, holds_keys)
    if value is None and not (secret or private):
        return None
    is_cut = call.ran and not call.is_kept  # then it may have held anything that its sources have
    return Reading(
        entry.id, entry.tool, value, arguments, labels, secret, from_task=from_task, private=private, is_cut=is_cut
    )


def _read_uses(call: RecordedCall, manifest: Manifest) -> tuple[str, ...]:
    """What a call has touched: the uses that handles saw, and the rules in force around what no handle sees."""
    if not call.ran:
        return ()
    entry, seen = call.entry, call.granted
    reach = _reach(entry.tool, manifest)
    rules = [str(rule) for rule in reach.grant.allow] if reach is not None else []
    found = [*ANY_READ, *rules] if seen is None else [*seen]
    found += [rule for rule in rules if rule.startswith("connector:")]
    if isinstance(entry.coding_agent, AgentFact) or is_of_server(entry.tool, manifest):
        found += rules
    programs = entry.sandbox.programs
    sets = programs.access.sets if isinstance(programs, ProgramsFact) and programs.access is not None else ()
    for one in (entry.sandbox.access, *sets):
        if isinstance(one, AccessFact) and one.direct:
            found += one.granted if one.counts.granted == len(one.granted) else ANY_READ
    if isinstance(programs, ProgramsFact) and not (programs.access is not None and sets and not programs.access.more):
        found += ANY_READ
    return tuple(dict.fromkeys(filter(None, found)))
