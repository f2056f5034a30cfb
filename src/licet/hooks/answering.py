"""Answers the events of coding agents: which policy holds, what it says about the call, and how that is told.

Before a call, the path is that of any tool: the call is opened up to its recorded decision, and what it touches is
checked. Then the agent runs it, and its next event closes it; or licet does both, for a shell line. Every error before
a call is a refusal. An error after one, or at any other event, stops nobody.
"""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from licet.backends.approvals.agent_prompt import AgentPrompt
from licet.backends.secrets import variables_of
from licet.core.algebra.rules import InvalidUse
from licet.core.algebra.scope import Malformed, visible
from licet.core.decision.placing import inspection_of
from licet.core.decision.request import Ground, Reason
from licet.core.ledger.entry import AgentFact, Caller
from licet.errors import LicetError, Refused
from licet.guard.facts import Call
from licet.guard.open_call import close_reported, kept, never_ran, open_call, restored
from licet.guard.ports import ASKED_IN_AGENT
from licet.guard.result import Result, allowing_command, refusal_line
from licet.guard.session import Session, refuse_call, refuse_unread
from licet.hooks.agent_event import (
    AgentEvent,
    AgentTool,
    Answer,
    AskPerson,
    Printed,
    Refuse,
    Rewrite,
    Silent,
    Tell,
    Unreadable,
)
from licet.hooks.agent_gate import AgentGate, AgentGates, line_records
from licet.hooks.agent_servers import server_behind
from licet.hooks.agent_sessions import (
    AgentSession,
    AgentSessions,
    OpenCall,
    SessionUnusable,
    arguments_key,
    call_key,
    session_name,
)
from licet.hooks.agent_tools import Touch, closed_below, resolved, text_argument, tool_name, touches
from licet.hooks.agents import agent_named
from licet.hooks.agents.dialect import DECIDING, Dialect
from licet.hooks.heard_prompts import READS_ALONE, is_typed, may_be_of_person
from licet.hooks.limits import (
    HOOK_SECONDS,
    MOST_GATES,
    MOST_SEARCHED,
    REASON_CHARACTERS,
    SESSION_IDLE_SECONDS,
    WORD_BYTES,
)
from licet.hooks.policy_choice import NoPolicy, choose, read_policies
from licet.hooks.ready_supervisors import ReadySupervisors
from licet.hooks.resident import Variables
from licet.hooks.set_aside import Watched, set_aside
from licet.hooks.shell_line import REFUSED, LineSignals, LineStreams, NotAsLine, rewritten, run_line, shell_path
from licet.hooks.skills import why_not_loaded
from licet.hooks.switches import CONFIGURES, is_closed, make_missing
from licet.hooks.tickets import AgentShell, BadTicket, NoTicket, Ticket, Tickets, digest_of, expiry
from licet.hooks.unread_event import UNREAD, UnderWay, claimed
from licet.hooks.upkeep import UNUSED, Upkeep
from licet.policy_files.policy_paths import home_directory
from licet.sandbox.scratch import end_session, remove_stale
from licet.sandbox.streams import write_all

_EVERYTHING = (
    "fs:*:*",
    "network:*:*",
    "process:*:*",
    "env:*:*",
    "secret:*:*",
    "storage:*:*",
    "tool:*:*",
    "connector:*:*",
)

_UNDER_WAY: ContextVar[UnderWay] = ContextVar("the event that is answered")


class Answering:
    """Answers events, and runs shell lines. One object serves all agents of a user, in one event loop."""

    def __init__(
        self,
        sessions: AgentSessions,
        gates: AgentGates,
        tickets: Tickets,
        ready: ReadySupervisors | None = None,
    ) -> None:
        self._sessions, self._gates, self._tickets, self._ready = sessions, gates, tickets, ready
        self._told: dict[str, list[str]] = {}  # what a session is told at its begin
        self._upkeep = Upkeep(sessions, self._opened)
        self._seen: dict[str, float] = {}  # when each session had its last event here

    async def hook(self, agent: str, event: str, payload: bytes, directory: str, client: int = 0) -> Printed:
        """The answer to one event, in the dialect of the agent. Raises only for an agent that is not known."""
        dialect = agent_named(agent)
        decides, state = _decides(dialect, event), UnderWay(time.monotonic() + HOOK_SECONDS)
        before = _UNDER_WAY.set(state)
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                state.event = dialect.read(event, payload)
                with self._gates.held():
                    answer = await self._answer(dialect, state.event, directory, client)
            return dialect.printed(event, answer)
        except TimeoutError:
            why = f"licet had no answer within {HOOK_SECONDS:g} seconds"
        except asyncio.CancelledError:  # the agent does not wait any longer
            if decides:
                await self._record(dialect, event, payload, directory, state, "the agent waited no longer")
            raise
        except Exception as error:
            why = str(error) or type(error).__name__
        finally:
            _UNDER_WAY.reset(before)
        reason = f"licet refuses this call: {visible(why.splitlines()[0] if why else 'error')[:REASON_CHARACTERS]}"
        if not decides:
            return Printed()
        return dialect.failure(event, reason + await self._record(dialect, event, payload, directory, state, why))

    async def _record(
        self, dialect: Dialect, event: str, payload: bytes, directory: str, state: UnderWay, why: str
    ) -> str:
        """Record a call that was refused before anything was decided, if a policy holds; says which receipt it has.

        If its session is not known, the policy is that of the hook's directory: for the receipt alone.
        """
        known = dialect.events.get(event)
        if state.is_recorded or (known is not None and known.moment != "before a call"):
            return ""
        about = claimed(dialect.name, payload, state.event)
        code: Reason = "DECISION_FAILED" if state.event is not None else "INPUT_INVALID"
        with suppress(Exception), self._gates.held():
            session = self._sessions.find(dialect.name, about.session) if about.session else None
            if session is None:
                choice = choose(directory, read_policies())
                session = AgentSession(dialect.name, UNREAD, directory, choice, name=session_name(dialect.name, UNREAD))
            _, opened = self._opened(session, dialect)
            fact = AgentFact(name=dialect.name, version=session.version, event=event[:WORD_BYTES])
            result = await refuse_unread(opened, about.tool, about.digest, Ground(code, visible(why)), fact)
            return f"; receipt {result.receipt}" if result.receipt else ""
        return ""

    async def _answer(self, dialect: Dialect, event: AgentEvent, directory: str, client: int) -> Answer:
        now = time.time()
        session = self._session(event, directory)
        if event.plan is not None and not event.subagent:
            self._sessions.mark(session, "plan", on=event.plan)
        if event.moment == "session begins" or session.began >= now:
            await self.tidy()
        match event.moment:
            case "before a call":
                return await self._before_call(dialect, session, event)
            case "after a call":
                await self._after_call(dialect, session, event)
            case "prompt":
                await self._say(dialect, session, event, client)
            case "session begins":
                return await self._begins(dialect, session)
            case "session ends":
                await self._ends(session)
            case _:
                pass
        return Silent()

    # Sessions ---------------------------------------------------------------------------------------------------------

    def _session(self, event: AgentEvent, directory: str) -> AgentSession:
        """The session of an event. Its first event settles which policy holds."""
        found = self._sessions.find(event.agent, event.session)
        if found is not None:
            self._seen[found.place] = time.monotonic()
            return found
        is_told = os.path.isabs(event.directory) and not agent_named(event.agent).start
        start = event.directory if is_told or not os.path.isabs(directory) else directory
        new = AgentSession(
            event.agent,
            event.session,
            os.path.realpath(start),
            None,
            name=session_name(event.agent, event.session),
            version=event.version,
            began=time.time(),
        )
        try:
            choice = choose(start, read_policies())
            if told := line_records().settle():
                self._told[new.place] = told
            make_missing(choice.workdir, new.start)
            new = replace(new, choice=choice)
        except NoPolicy as why:
            new = replace(new, why=str(why))
        return self._sessions.begin(new)

    def _opened(self, session: AgentSession, dialect: Dialect, subagent: str = "") -> tuple[AgentGate, Session]:
        """The gate and the licet session of an agent's session, or of a subagent in it. Raises `NoPolicy`."""
        if session.choice is None:
            raise NoPolicy(session.why or "no policy holds for this session")
        made = self._gates.find(session.choice, dialect, session.start)
        if (opened := made.sessions.get((session.name, subagent))) is None:
            opened = made.gate.session(session.name, tainted=READS_ALONE if made.gate.policy.flow is not None else "")
            if subagent:  # all that it reads is known to the session at once: not every agent says when one has ended
                opened = opened.delegate(agent=_agent_name(subagent), allow=_EVERYTHING)
            said = f"{dialect.name} {session.version}".strip()
            opened.caller = Caller(client=f"{said[:200]} (claimed)")
            while len(made.sessions) >= MOST_GATES:
                made.sessions.pop(next(iter(made.sessions)))
            made.sessions[session.name, subagent] = opened
        return made, opened

    async def _begins(self, dialect: Dialect, session: AgentSession) -> Answer:
        """Say what would refuse every call of the session. What ended sessions have left is removed."""
        await asyncio.to_thread(remove_stale)
        told = self._told.pop(session.place, [])
        try:
            if not self._opened(session, dialect)[0].gate.watched.is_complete:
                told.append(UNSEARCHED)
        except NoPolicy as why:
            told = [f"every call will be refused: {why}", *told]
        return Tell("\n".join(f"licet: {one}" for one in told)) if told else Silent()

    async def tidy(self) -> None:
        """Close the calls of all sessions whose end nobody has reported for an hour, and forget old sessions."""
        with suppress(Exception), self._gates.held():
            await self._upkeep.look()

    async def _ends(self, session: AgentSession) -> None:
        """Close the calls whose end nobody has reported."""
        await self._upkeep.close_all(session)
        self._gates.forget(session.name)
        self._seen.pop(session.place, None)
        await asyncio.to_thread(end_session, scratch_name(session.agent, session.name))

    async def _say(self, dialect: Dialect, session: AgentSession, event: AgentEvent, client: int) -> None:
        """Add a prompt to the task, if its person has written it."""
        if not may_be_of_person(event) or session.choice is None or self._sessions.has(session, "prompted"):
            return
        made, opened = self._opened(session, dialect)
        if (flow := made.gate.policy.flow) is None:
            return
        if flow.prompt_is_task or await asyncio.to_thread(is_typed, client, dialect.headless, event.prompt):
            await opened.say(event.prompt)

    async def end_all(self) -> None:
        """End all sessions, as their agents would, and forget them and their tickets: no agent has hooks any more."""
        for session in list(self._sessions.every()):
            with suppress(Exception), self._gates.held():
                await self._ends(session)
        for directory in (self._sessions.directory, self._tickets.directory):
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    # Before a call ----------------------------------------------------------------------------------------------------

    async def _before_call(self, dialect: Dialect, session: AgentSession, event: AgentEvent) -> Answer:
        row = dialect.tools.get(event.tool)
        if row is not None and row.prompts:
            self._sessions.mark(session, "prompted")  # from now on a prompt may be one that the model has planned
        if row is not None and row.kind == "shell" and session.choice is not None:
            self._gates.renew(session.choice, dialect, session.start)
        made, opened = self._opened(session, dialect, event.subagent)
        await self._upkeep.close_old(session)
        fact = AgentFact(
            name=event.agent,
            version=event.version or session.version,
            call=event.call,
            subagent=event.subagent,
            event=event.event,
        )
        if dialect.may_be_mcp(event.tool) and (behind := server_behind(dialect, session, event, row)) is not None:
            if behind.is_gateway:  # it decides about the call, and records it
                return Silent()
            ground = Ground("TOOL_NOT_AVAILABLE", behind.why)
            _UNDER_WAY.get().begin()
            refused = await refuse_call(opened, behind.name, event.arguments, ground, agent=fact)
            return Refuse(_reason(refused, behind.why))
        name = tool_name(event.agent, event.tool)
        asker = AgentPrompt(made.approvals) if dialect.asks else made.approvals
        _UNDER_WAY.get().begin()
        call = await open_call(opened, opened.admission, name, event.arguments, agent=fact, approver=asker)
        if isinstance(call, Result):
            return Refuse(_reason(call))
        try:
            found = tuple(touches(dialect, row, event, home_directory())) if row is not None else ()
            await _check(call, found, made.gate.workdir)
            if row is not None and row.skill:
                _check_skill(call, event.arguments.get(row.skill), session.start, made)
            asked = any(ASKED_IN_AGENT in agreed.by for agreed in call.approvals)
            arguments = _handed_back(event.arguments, found)
            key, line = call_key(event.call, time.time()), row is not None and row.kind == "shell"
            if row is not None and line:
                arguments = self._rewritten(made, session, dialect, event, row, key)
                if self._ready is not None:
                    self._ready.prepare()
            if arguments != event.arguments or asked:
                call.coding_agent = replace(fact, rewritten=arguments != event.arguments, asked=asked)
            digests = tuple(dict.fromkeys(arguments_key(event.tool, one) for one in (event.arguments, arguments)))
            self._sessions.keep(
                session, OpenCall(key, event.tool, digests, event.call, event.subagent, time.time(), line, kept(call))
            )
        except BaseException as error:
            unreadable = isinstance(error, InvalidUse | Malformed | Unreadable)
            why = error if isinstance(error, Refused) else str(error) or type(error).__name__
            result = await never_ran(call, why, "INPUT_INVALID" if unreadable else "DECISION_FAILED")
            if not isinstance(error, Exception):
                raise
            own = isinstance(error, NotAsLine | NoTicket | Unreadable)
            return Refuse(_reason(result, str(error) if own else ""))
        if asked:
            questions = asker.asked if isinstance(asker, AgentPrompt) else []
            rules = [rule for question in questions for rule in question.rules]
            text = _question(name, rules, [line for question in questions for line in question.unmet])
            return AskPerson(text, arguments if arguments != event.arguments else None)
        if arguments == event.arguments:
            return Silent()
        # Walls take the place of the agent's question, where the mode would have asked or run. An agent that names no
        # mode asks unless it was told to ask nothing.
        may_allow = event.would_ask or event.would_run or not (dialect.modes or self._sessions.has(session, "plan"))
        return Rewrite(arguments, allow=line and may_allow)

    def _rewritten(
        self, made: AgentGate, session: AgentSession, dialect: Dialect, event: AgentEvent, row: AgentTool, key: str
    ) -> dict[str, Any]:
        """The arguments with a line that runs the same text behind walls. Raises `NoTicket` or `NotAsLine`."""
        text = text_argument(event.arguments, row.text)
        given = event.arguments.get(row.directory) if row.directory else None
        base = home_directory() if dialect.expands_home else ""
        directory = resolved(given if isinstance(given, str) and given else ".", event.directory, base)[1]
        choice = session.choice
        assert choice is not None  # noqa: S101 - the call was opened under its policy
        shell = AgentShell(shell_path(dialect.line_program[0], event.shell), dialect.keeps)
        ticket = Ticket(
            agent=event.agent,
            session=session.name,
            text_digest=digest_of(text),
            shell=shell,
            directory=directory,
            policy=choice.policy,
            policy_digest=made.gate.policy.digest,
            workdir=choice.workdir,
            reads_only=event.reads_only or self._sessions.has(session, "plan"),
            call=msgspec.json.encode(_LineOf(session.id, key)),
            expires=expiry(),
        )
        name = self._tickets.issue(ticket)
        line = rewritten(
            text,
            name,
            client_words(),
            shell,
            self._tickets.directory_link(name),
            other_shells=dialect.other_shells,
            ends_shell=dialect.ends_shell,
        )
        return {**event.arguments, row.text: line}

    # Shell lines ------------------------------------------------------------------------------------------------------

    async def line(
        self,
        ticket: str,
        text: str,
        directory: str,
        streams: tuple[int, int, int],
        variables: Variables,
        signals: AsyncIterator[int],
    ) -> int:
        """Run the line of a ticket; returns its exit code. Cancelling this ends everything that the line started."""
        with self._gates.held():
            return await self._line(ticket, text, streams, variables, signals)

    async def _line(
        self,
        ticket: str,
        text: str,
        streams: tuple[int, int, int],
        variables: Variables,
        signals: AsyncIterator[int],
    ) -> int:
        try:
            found = self._tickets.redeem(ticket, text)
        except BadTicket as wrong:
            if wrong.ticket is not None:  # it cannot be used again
                with suppress(Exception):
                    await never_ran(self._call_of(wrong.ticket)[0], UNUSED)
            return await _not_run(streams, str(wrong))
        try:
            call, watched = self._call_of(found)
        except (LicetError, LookupError) as wrong:
            return await _not_run(streams, f"the line was not run: {wrong}")
        passed = LineSignals()
        pump = asyncio.create_task(_pass_on(signals, passed))
        try:
            values = await variables(_named_variables(call))
            async with _searched(ticket, watched, streams[2]):
                return await run_line(
                    call,
                    ticket,
                    found,
                    text,
                    LineStreams(*streams),
                    values,
                    tickets=self._tickets,
                    ready=self._ready.take() if self._ready is not None else None,
                    signals=passed,
                )
        except SessionUnusable as wrong:
            await never_ran(call, str(wrong))
            return await _not_run(streams, f"the line was not run: {wrong}")
        finally:
            pump.cancel()
            if self._ready is not None:
                self._ready.prepare()

    def _call_of(self, ticket: Ticket) -> tuple[Call, Watched]:
        """The open call of a ticket, which no other process can run any more, and what its line may not leave."""
        about = msgspec.json.decode(ticket.call, type=_LineOf)
        session = self._sessions.find(ticket.agent, about.session)
        taken = self._sessions.take(session, about.key) if session is not None else None
        if session is None or taken is None:
            raise LookupError("its call is not open any more")
        made, opened = self._opened(session, agent_named(ticket.agent), taken.subagent)
        return restored(opened, taken.kept), made.gate.watched

    def is_needed(self) -> bool:
        """Whether a session is open whose next event will come to this process."""
        oldest = time.monotonic() - SESSION_IDLE_SECONDS
        self._seen = {place: seen for place, seen in self._seen.items() if seen > oldest}
        return bool(self._seen)

    async def close(self) -> None:
        """Close the stores of all gates, and end what was started ahead."""
        self._gates.close()
        if self._ready is not None:
            await self._ready.close()

    # After a call -----------------------------------------------------------------------------------------------------

    async def _after_call(self, dialect: Dialect, session: AgentSession, event: AgentEvent) -> None:
        """Close the call whose end an event reports. Shell lines are left: licet sees their end itself.

        An agent reports a line in the background as soon as it has started it, maybe before its ticket is used.
        """
        found = self._reported(session, event)
        if found is None:  # a call that was not seen before
            return
        _, opened = self._opened(session, dialect, found.subagent)
        if found.by_licet:
            if opened.memory is not None and event.result is not None:  # licet does not see what a line prints
                # Each process that opens this session taints it, so that none has to be told.
                opened.be_given(f"the output of {tool_name(event.agent, event.tool)}", event.result)
            return
        taken = self._sessions.take(session, found.key)
        if taken is None:
            return
        call = restored(opened, taken.kept)
        if not taken.call and isinstance(call.coding_agent, AgentFact):
            others = self._equal_calls(session, event)
            call.coding_agent = replace(call.coding_agent, in_order=any(others))
        await close_reported(call, failed=event.failed, result=event.result)

    def _reported(self, session: AgentSession, event: AgentEvent) -> OpenCall | None:
        """The open call that an event reports the end of: by its id, else the oldest that is equal."""
        if event.call:
            calls = (self._sessions.look(session, key) for key in self._sessions.open_calls(session))
            named = (one for one in calls if one is not None and one.call)
            return next((one for one in named if (one.call, one.tool) == (event.call, event.tool)), None)
        return next(self._equal_calls(session, event), None)

    def _equal_calls(self, session: AgentSession, event: AgentEvent) -> Iterator[OpenCall]:
        """The open calls of the same tool and arguments, the oldest first."""
        wanted = arguments_key(event.tool, event.arguments)
        for key in self._sessions.open_calls(session):
            found = self._sessions.look(session, key)
            is_same = found is not None and (found.tool, found.subagent) == (event.tool, event.subagent)
            if found is not None and is_same and wanted in found.arguments:
                yield found


def service_alone() -> Answering:
    """What answers events and runs lines in a process that ends after one."""
    return Answering(AgentSessions(), AgentGates(), Tickets())


def service() -> Answering:
    """The same for a process that stays, and starts ahead what lines need."""
    return Answering(AgentSessions(), AgentGates(), Tickets(), ReadySupervisors())


def client_words() -> tuple[str, ...]:
    """The words that start licet's client in a line. They name this interpreter and this licet, and no directory."""
    return sys.executable, "-I", "-S", str(Path(__file__).with_name("resident_client.py"))


def scratch_name(agent: str, session: str) -> str:
    """What the scratch of an agent's session is called."""
    return f"{agent}/{session}"


class _LineOf(Struct, frozen=True):
    """Which open call a ticket is for."""

    session: str  # as the agent names it
    key: str


async def _pass_on(signals: AsyncIterator[int], line: LineSignals) -> None:
    async for number in signals:
        line.send(number)


def _named_variables(call: Call) -> list[str]:
    """The variables that are asked of a line's client: those that its policy names, and those with keys to be placed.

    The shell gets the former alone.
    """
    if call.grant is None:
        return ["TERM"]
    reach = call.grant.reach
    keys = (name for one in inspection_of(reach).stand_ins for name in variables_of(one.secret) if one.secret)
    named = (rule.key for rule in reach.grant.allow if rule.domain == "env" and rule.key)
    return list(dict.fromkeys(("TERM", *named, *keys)))


@asynccontextmanager
async def _searched(name: str, watched: Watched, stderr: int) -> AsyncIterator[None]:
    """Set aside what a line leaves that would configure an agent, however it ends."""
    with ExitStack() as stack:
        try:
            searched = stack.enter_context(line_records().of_line(name, watched))
        except OSError as wrong:
            raise SessionUnusable(f"no record of it can be kept: {wrong.strerror}") from None
        try:
            yield
        finally:
            told = await asyncio.shield(asyncio.to_thread(set_aside, watched))
            searched()
            await asyncio.to_thread(_say, stderr, "".join(f"licet: {one}\n" for one in told).encode())


async def _not_run(streams: tuple[int, int, int], why: str) -> int:
    text = f"licet: {visible(why)}\n".encode()
    await asyncio.to_thread(_say, streams[2], text)
    return REFUSED


def _say(stream: int, text: bytes) -> None:
    with suppress(OSError):
        write_all(stream, text)


async def _check(call: Call, found: Iterable[Touch], workdir: str) -> None:
    """Check every use of a call, as the handles of a tool do. Raises `Refused`."""
    grant = call.grant
    assert grant is not None  # noqa: S101 - the call is open
    for touch in found:
        for use in touch.uses:
            await grant.permit(use)
            if use.action in ("write", "delete") and is_closed(use.target, workdir):
                grant.refuse("PATH_NOT_REACHABLE", f"write not permitted for {visible(use.target)}: {CONFIGURES}", use)
        if touch.tree and (closed := closed_below(grant.reach, touch.tree)):
            text = f"{visible(touch.tree)} holds {visible(closed)}, which may not be read"
            fix = "search with a shell line: it runs behind walls, which hide that file"
            grant.refuse("PATH_NOT_REACHABLE", text, fix=fix)


def _check_skill(call: Call, named: Any, start: str, made: AgentGate) -> None:
    """Refuse a skill whose file a tool may have written. Raises `Refused`."""
    assert call.grant is not None  # noqa: S101 - the call is open
    if why := why_not_loaded(named, start, made.gate.watched, made.gate.policy.manifest.ceiling):
        call.grant.refuse("PATH_NOT_REACHABLE", f"the skill {visible(str(named))} is not loaded: {visible(why)}")


def _handed_back(arguments: Mapping[str, Any], found: Iterable[Touch]) -> dict[str, Any]:
    """The arguments with every path as it was resolved: what was checked is what the agent opens."""
    changed = {touch.argument: touch.resolved for touch in found if touch.argument and touch.given != touch.resolved}
    return {**arguments, **{name: path for name, path in changed.items() if name in arguments}}


def _reason(result: Result, own: str = "") -> str:
    """Why a call is refused: for the model, with the line that decided, and what a person can do.

    `own` is what the hooks themselves say of a call that they cannot decide about, or cannot rewrite.
    """
    line = refusal_line(result)
    line = f"{line}: {visible(own)}" if own and visible(own) not in line else line
    receipt = f"receipt {result.receipt}" if result.receipt else "no receipt"
    rules = _rules(result)
    place = next((str(rule.origin) for rule in rules if rule.origin and rule.origin.line), "")
    where, fixes = f" ({place})" if place else "", _fixes(rules)
    allowing = f"; a person allows it with `licet allow {result.receipt}`" if allowing_command(result) else ""
    return f"licet refuses this call: {line[:REASON_CHARACTERS]}{where}{fixes}; {receipt}{allowing}"


def _question(name: str, rules: Sequence[Ground], unmet: Sequence[str]) -> str:
    """What a person is asked in the agent, which shows the call itself: why, by which lines, and what settles it.

    `unmet` says where values come from, line by line.
    """
    why = "; ".join(dict.fromkeys([*map(str, rules), *unmet])) or "its policy wants a person to agree"
    return f"licet asks you about this call of {visible(name)}: {visible(why)[:REASON_CHARACTERS]}{_fixes(rules)}"


def _fixes(rules: Iterable[Ground]) -> str:
    """The command after which the rules ask no more, where the policy itself leaves it to a person at a terminal."""
    asking = (rule.fix for rule in rules if rule.reason == "APPROVAL_REQUIRED")
    fixes = dict.fromkeys(fix for fix in asking if "standing approval" in fix and "set `" not in fix)
    return f"; to settle it: {visible('; '.join(fixes))[:REASON_CHARACTERS]}" if fixes else ""


def _rules(result: Result) -> tuple[Ground, ...]:
    """The rules that decided about a refused call."""
    try:
        result.unwrap()
    except Refused as refused:
        return tuple(refused.decision.rules)
    return ()


def _decides(dialect: Dialect, event: str) -> bool:
    """Whether an answer to an event may stop a call; for an event that is not known, too."""
    known = dialect.events.get(event)
    return known is None or known.moment in DECIDING


def _agent_name(subagent: str) -> str:
    """The id of a subagent as the name of a delegate."""
    return session_name("subagent", subagent).replace("/", "-")


UNSEARCHED = (
    f"more than {MOST_SEARCHED} directories may be written: not in all of them it is found what configures agents"
)
