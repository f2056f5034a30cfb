"""The gate of a session of a coding agent: its policy as it is accepted now, with the agent's tools.

Gates are kept between events, as long as no file has changed that they were made from. The policy must be accepted:
an agent can write files, so one that merely lies in the project counts for nothing.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from licet.assemble.acceptance import state_of
from licet.assemble.gate import Backends, CommandGate, standing_approvals
from licet.assemble.limits import RUN_SECONDS
from licet.assemble.program import RunsPrograms
from licet.assemble.review import state_directory
from licet.assemble.states import BadState, DirectoryState, State, read_state
from licet.backends.approvals.requests import ApprovalStore
from licet.backends.http import HttpClient
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Approvals, StandingApproval
from licet.declare import Tool
from licet.errors import LicetError
from licet.guard.held_paths import HeldPaths, Protect, ProtectedPath
from licet.guard.ports import StandingApprovals
from licet.guard.session import Session
from licet.hooks.agent_tools import RunsInAgent, admit_built_in, agent_tools
from licet.hooks.agents.dialect import Dialect
from licet.hooks.limits import MOST_GATES
from licet.hooks.policy_choice import Choice, NoPolicy, hooks_directory
from licet.hooks.set_aside import LineRecords, Watched, search
from licet.hooks.switches import closed_to_agents, closed_with_links
from licet.policy_files.load import load_manifest
from licet.policy_files.policy_paths import home_directory, policy_root
from licet.policy_files.policy_source import SeenFiles, meaning
from licet.policy_files.trust import acceptance, lock_state
from licet.sandbox.programs.walls import OF_A_RUN, ProgramWalls


class _HooksGate(CommandGate):
    """A gate that closes what configures coding agents, also where it lies below a directory that lines may write."""

    narrows = True

    def __init__(self, *given: Any, start: str, records: LineRecords, **named: Any) -> None:
        self._start, self._records = start, records
        self.watched = Watched()
        super().__init__(*given, **named)

    def _protect_in(self, workdir: str) -> Protect:
        protect = super()._protect_in(workdir)

        def with_switches(manifest: Manifest, tools: Sequence[Tool]) -> Sequence[ProtectedPath]:
            held = HeldPaths(manifest.expand(workdir, home_directory()).ceiling)
            self._records.settle()  # what a line has just made is not there by right
            roots = tuple(path for path in held.allowed("write") if os.path.isdir(path))
            found = search(roots)
            closed = (
                *closed_to_agents(workdir, self._start, held.allowed("write")),
                *closed_with_links(found.paths, workdir),
            )
            self.watched = Watched(roots, tuple(one.path for one in closed), found.is_complete)
            return (*protect(manifest, tools), *closed)

        return with_switches


class _StandingHere(Struct, frozen=True):
    """Standing approvals of a policy that holds in many directories: `${workdir}` in one is that of the session."""

    store: StandingApprovals
    workdir: str

    def find(self, id: str | None, manifest: str, approvals: Approvals) -> StandingApproval:  # noqa: A002
        found = self.store.find(id, manifest, approvals)
        deletes = CapabilitySet(found.deletes).expand(self.workdir, home_directory())
        return replace(found, deletes=tuple(map(str, deletes.allow)))

    def stands(self, approval: StandingApproval) -> bool:
        return self.store.stands(approval)


class AgentGate(Struct, eq=False):
    """A gate with what it was made from."""

    gate: _HooksGate
    backends: Backends
    approvals: ApprovalStore
    seen: SeenFiles  # as they were before the policy was loaded
    meaning: tuple[object, ...]  # of its policy
    sessions: dict[tuple[str, str], Session] = field(default_factory=dict)  # by name and subagent
    users: int = 0  # events and lines under way that have found it
    retired: bool = False  # whether another gate has taken its place

    def close_unused(self) -> None:
        """Close its stores, if nothing finds it any more and nothing is under way that has."""
        if self.retired and not self.users:
            self.backends.close()


_HELD: ContextVar[list[AgentGate] | None] = ContextVar("held gates", default=None)


class AgentGates:
    """The gates of sessions, by policy, working directory, agent and the agent's start. For one event loop."""

    def __init__(self) -> None:
        self._gates: dict[_Key, AgentGate] = {}

    def find(self, choice: Choice, dialect: Dialect, start: str) -> AgentGate:
        """The gate for a session that was started in a directory. Raises `NoPolicy` if its policy cannot be used."""
        key = _key(choice, dialect, start)
        found = self._gates.get(key)
        if found is None or not found.seen.are_same():
            seen = SeenFiles.of(choice.policy)
            try:
                manifest = accepted_manifest(Path(choice.policy))
            except NoPolicy:
                self._retire(key)
                raise
            if found is not None and found.meaning == meaning(manifest):
                found.seen = seen
            else:
                self._retire(key)
                found = self._made(choice, dialect, start, seen, manifest)
        self._gates.pop(key, None)
        self._gates[key] = found  # the last one used is the last one to go
        if (held := _HELD.get()) is not None:
            found.users += 1
            held.append(found)
        while len(self._gates) > MOST_GATES:
            self._retire(next(iter(self._gates)))
        return found

    def renew(self, choice: Choice, dialect: Dialect, start: str) -> None:
        """Forget the gate of a session if there is more now that configures agents, as a person has put it there."""
        key = _key(choice, dialect, start)
        if (found := self._gates.get(key)) is not None:
            line_records().settle()
            watched = found.gate.watched
            if not frozenset(watched.known).issuperset(search(watched.roots).paths):
                self._retire(key)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every gate open that is found meanwhile, until this ends."""
        held: list[AgentGate] = []
        before = _HELD.set(held)
        try:
            yield
        finally:
            _HELD.reset(before)
            for one in held:
                one.users -= 1
                one.close_unused()

    def forget(self, session: str) -> None:
        """Forget what a session has read and what its person has said, since it has ended."""
        for made in self._gates.values():
            for key in [one for one in made.sessions if one[0] == session]:
                del made.sessions[key]
            made.gate.memories.end((made.gate.manifest.agent, session))

    def _retire(self, key: "_Key") -> None:
        if (gone := self._gates.pop(key, None)) is not None:
            gone.retired = True
            gone.close_unused()

    def close(self) -> None:
        """Close the stores of all gates."""
        for made in self._gates.values():
            made.backends.close()
        self._gates.clear()

    def _made(self, choice: Choice, dialect: Dialect, start: str, seen: SeenFiles, manifest: Manifest) -> AgentGate:
        path, said = Path(choice.policy), meaning(manifest)
        state, people = _states(choice, path)
        # A shell line may run for hours, as it would without licet: only the policy limits time.
        limits = {"wall_seconds": RUN_SECONDS, **manifest.limits}
        manifest = replace(manifest, limits=limits, loaded=manifest.loaded or manifest)
        tools = agent_tools(manifest, dialect.name, dialect.tools.values())
        # A person agrees to the policy, so that is asked in one place, whatever directory a session is in. Receipts and
        # budgets are those of the directory.
        approvals, http = people.approvals(), HttpClient()
        standing = _StandingHere(standing_approvals(people), choice.workdir)
        sandbox = RunsInAgent(RunsPrograms(ProgramWalls(http, defaults=OF_A_RUN, names_hosts=True)))
        backends = Backends.of(state, approver=approvals, standing=standing, http=http, sandbox=sandbox)
        gate = _HooksGate(
            admit_built_in(manifest, tools),
            tools,
            backends,
            workdir=choice.workdir,
            on_misfit="deny",
            start=start,
            records=line_records(),
        )
        return AgentGate(gate, backends, approvals, seen, said)


_Key = tuple[str, str, str, str, str]


def _key(choice: Choice, dialect: Dialect, start: str) -> _Key:
    return choice.policy, choice.workdir, choice.state, dialect.name, start


def _states(choice: Choice, policy: Path) -> tuple[State, State]:
    """Where receipts and budgets of a session are, and where people answer.

    Never what a variable says: the environment of an agent may come from settings of a project, and an agent writes
    these. `licet hooks state` keeps the address of a database where no grant writes.
    """
    if choice.state:
        try:
            named = read_state(choice.state)
        except BadState as wrong:
            raise NoPolicy(
                f"the state of the hooks cannot be used: {wrong}; `licet hooks state` names another"
            ) from None
        return named, named
    root = Path(choice.workdir) if choice.is_default else policy_root(policy)
    return DirectoryState(state_directory(root)), DirectoryState(state_of(policy))


def line_records() -> LineRecords:
    """Which shell lines of this user run."""
    return LineRecords(hooks_directory() / "lines")


def accepted_manifest(path: Path) -> Manifest:
    """The policy at a path, if this user has accepted it and its lock as they are now. Raises `NoPolicy`."""
    how = f"`licet trust {shlex.quote(str(path))}`, at a terminal"
    if (real := os.path.realpath(path)) != os.path.abspath(path):
        raise NoPolicy(
            f"the policy {path} is reached through a link, to {real}: `licet hooks install` takes the real path"
        )
    try:
        manifest = load_manifest(path)
        answer = acceptance(path, manifest.digest, lock_state(manifest))
    except (LicetError, OSError) as wrong:
        raise NoPolicy(f"the policy {path} cannot be used: {str(wrong).splitlines()[0]}") from None
    if answer.answer != "accepted":
        raise NoPolicy(f"{answer.why}: a person reviews and accepts {answer.to_review} with {how}")
    return manifest
