"""Builds a gate that runs: picks its backends, and the directory where they keep their state.

- `Backends` is the set of backends; `Backends.local` are those of this machine, `Backends.memory` those of tests.
- `Gate` is `BareGate` with all that depends on this machine: directories, installed packages, protected paths.

A gate for a command whose policy cannot be used: it refuses and records what the command would have called.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from msgspec import field

from licet.assemble.backend_parts import (
    LocalParts,
    MemoryParts,
    check_names,
    check_part,
    secrets_from,
)
from licet.assemble.never_writable import protect_in
from licet.assemble.review import Places, state_directory, straight
from licet.assemble.states import BadState, DatabaseState, DirectoryState, Place, State, read_state, state_at
from licet.backends.approvals.requests import ApprovalStore
from licet.backends.approvals.standing import StoredStanding
from licet.backends.budgets import MemoryBudgets
from licet.backends.files.local import LocalFiles
from licet.backends.freezes import MemoryFreezes
from licet.backends.http import HttpClient
from licet.backends.kept_calls import MemoryKeptCalls
from licet.backends.memory import MemoryLedger, SystemClock
from licet.backends.secrets import read_approver_key
from licet.core.decision.request import Ground
from licet.core.policy.connector import Installed
from licet.core.policy.manifest import Manifest
from licet.declare import Tool
from licet.errors import Refused
from licet.guard.execution import Sandbox
from licet.guard.facts import in_opening
from licet.guard.freezing import OperatorKey
from licet.guard.gate import BareGate
from licet.guard.grant import Observer
from licet.guard.handles.secrets_and_kv import getter
from licet.guard.held_paths import Protect
from licet.guard.import_path import WritableImports
from licet.guard.ports import (
    Approver,
    ArgumentRules,
    Budgets,
    Clock,
    Freezes,
    KeptCalls,
    Ledger,
    Ports,
)
from licet.guard.registration import OnMisfit, Packages, Registered, RegisteredTools
from licet.guard.result import Result
from licet.packages.locked_tools import changed_tools
from licet.policy_files.checks import argument_check
from licet.policy_files.organisation import under_organisation
from licet.sandbox.grant_paths import search_ahead
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls

if TYPE_CHECKING:
    from licet.backends.approvals.terminal import TerminalApprover
    from licet.backends.approvals.waiting import Announce, WaitingApprover

_OPENED = {"ledger", "budgets", "freezes", "clock"}  # if all are those of a state, calls are opened in one step


# Backends that only some gates need are imported where they are picked: `licet run` starts a program and no worker.


class Backends(Ports, frozen=True, kw_only=True):
    """The backends of a gate: files, network, secrets, storage, programs, ledger, budgets, approver and others.

        backends = Backends.local(secrets=my_vault)  # this machine, with secrets from a function of yours
        backends = Backends.memory(files={"/srv/a": "text"})  # everything in memory, for tests

    Each part can be replaced by name. A part that is None refuses the calls that need it. `Backends()` has no backend
    for any capability, only a ledger, budgets and a clock in memory. See docs/calls.md.
    """

    ledger: Ledger | None = field(default_factory=MemoryLedger)
    budgets: Budgets | None = field(default_factory=MemoryBudgets)
    kept_calls: KeptCalls | None = field(default_factory=MemoryKeptCalls)
    sandbox: Sandbox | None = field(default_factory=lambda: workers_of())
    freezes: Freezes | None = field(default_factory=MemoryFreezes)
    clock: Clock | None = field(default_factory=SystemClock)
    argument_rules: ArgumentRules | None = argument_check

    @classmethod
    def local(
        cls,
        path: str | Path | None = None,
        *,
        secrets_file: str | Path | None = None,
        wait_for_approval: bool = False,
        **parts: Unpack[LocalParts],
    ) -> "Backends":
        """Files, network, environment, programs and storage of this machine; `path` is the state directory.

        Secrets come from the environment, or first from a file of `NAME=value` lines. `secrets=` takes other sources,
        which are searched in order: paths, mappings of variables, backends, functions. Requests for approval are
        answered with `licet approvals`, unless another `approver` is given. A call that needs approval is refused, and
        succeeds when it is repeated after the approval; with `wait_for_approval` it waits for the answer instead.
        """
        check_names(parts)
        state = DirectoryState(Path(path) if path is not None else state_directory(Path.cwd()))
        return cls._at(state, secrets_file, wait_for_approval, parts)

    @classmethod
    def postgres(
        cls,
        dsn: str,
        *,
        directory: str | Path | None = None,
        secrets_file: str | Path | None = None,
        wait_for_approval: bool = False,
        **parts: Unpack[LocalParts],
    ) -> "Backends":
        """As `local`, with the stores of a state that many nodes share in a PostgreSQL database.

            backends = Backends.postgres("postgresql://licet@db.example.com/licet?password=secret:db/licet")

        The address never has a password: it names a secret, which the sources of `secrets` have. `directory` is where
        this node keeps its own keys; by default a directory for this database, below that of all states.
        """
        check_names(parts)
        state = read_state(dsn, None if directory is None else Path(directory))
        if not isinstance(state, DatabaseState):
            raise BadState("expected the address of a database: postgresql://USER@HOST/NAME")
        return cls._at(state, secrets_file, wait_for_approval, parts)

    @classmethod
    def of(
        cls,
        place: State,
        /,
        *,
        secrets_file: str | Path | None = None,
        wait_for_approval: bool = False,
        **parts: Unpack[LocalParts],
    ) -> "Backends":
        """`local` or `postgres`, as a state says."""
        check_names(parts)
        return cls._at(place, secrets_file, wait_for_approval, parts)

    @classmethod
    def _at(
        cls, state: State, secrets_file: str | Path | None, wait_for_approval: bool, parts: Mapping[str, Any]
    ) -> "Backends":
        given: dict[str, Any] = dict(parts)
        if secrets_file is not None and "secrets" in given:
            raise TypeError("`secrets_file=` and `secrets=` were both given: put `Path(…)` into the list of `secrets=`")
        if wait_for_approval and "approver" in given:
            raise TypeError(
                "`wait_for_approval=` and `approver=` were both given: an approver decides itself how long it waits"
            )
        sources = given.pop("secrets", [os.environ] if secrets_file is None else [Path(secrets_file), os.environ])
        secrets, files = secrets_from(sources) if sources is not None else (None, [])
        if secrets is not None:
            state = state.with_secrets(getter(secrets))
        kept = [state.directory, *files]
        http = given.get("http") or HttpClient()
        ledger = state.ledger()
        own: dict[str, Any] = {
            "files": LocalFiles(),
            "http": http,
            "sandbox": given.get("sandbox") or workers_of(ProgramWalls(http)),
            "secrets": secrets,
            "kv": state.kv(),
            "ledger": ledger,
            "budgets": state.budgets(None if "ledger" in given else ledger),
            "processes": LocalProcesses(),
            "environ": os.environ,
            "approver": waiting_approver(state) if wait_for_approval else state.approvals(),
            "standing": state.standing(),
            "kept_calls": state.kept_calls(ledger),
            "freezes": state.freezes(),
            "state": tuple(dict.fromkeys(str(way) for place in kept for way in (straight(place), place.resolve()))),
        }
        if not given.keys() & _OPENED and (opening := state.opening()) is not None:
            own["opening"] = opening
            if not wait_for_approval and "approver" not in given:
                own["approver"] = state.opening_approvals()
        return cls(**{**own, **given})

    @classmethod
    def memory(cls, **parts: Unpack[MemoryParts]) -> "Backends":
        """Memory backends, for tests. `files`, `http`, `secrets` and `processes` take a mapping of their contents.

        As in `licet.testing.MemoryGate`, every name has an address, and a program is a function or its output.
        """
        check_names(parts)
        from licet.backends.files.memory import MemoryFiles
        from licet.backends.kv import MemoryKv
        from licet.backends.memory import MemoryHttp, everywhere
        from licet.backends.secrets import MemorySecrets
        from licet.sandbox.programs.function_programs import MemoryProcesses, NoWalls, memory_programs

        given: dict[str, Any] = dict(parts)
        own: dict[str, Any] = {
            "files": MemoryFiles(),
            "http": MemoryHttp({}),
            "secrets": MemorySecrets(),
            "kv": MemoryKv(),
            "processes": MemoryProcesses({}),
            "environ": {},
        }
        twins: dict[str, Callable[[Any], Any]] = {
            "files": MemoryFiles,
            "http": lambda routes: MemoryHttp(routes, everywhere),
            "secrets": MemorySecrets,
            "processes": memory_programs,
        }
        for name, twin in twins.items():
            held = given.get(name)
            if isinstance(held, Mapping) or (name == "http" and inspect.isroutine(held)):  # the contents, no backend
                given[name] = twin(held)
        if isinstance(given.get("processes", own["processes"]), MemoryProcesses):
            own["sandbox"] = workers_of(NoWalls())
        return cls(**{**own, **given})

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_part(name, getattr(self, name))

    def close(self) -> None:
        """End workers, close files, and sign a checkpoint of the ledger. The next call opens what it needs again.

        A process that ends does this by itself. Connections belong to their event loop, and end with it.
        """
        for part in (self.sandbox, self.kv, self.budgets, self.approver, self.kept_calls, self.freezes, self.ledger):
            end = getattr(part, "close", None)
            if callable(end):
                end()

    def __enter__(self) -> "Backends":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def workers_of(programs: Any = None) -> Sandbox:  # `ProgramWalls`, or `NoWalls` around functions
    from licet.sandbox.native import InProcess
    from licet.wasm.guest_workers import WasmWorkers

    return WasmWorkers(InProcess(), programs)


class Gate(BareGate):
    """Runs tools under a manifest: every call goes through it, and every use is checked.

        gate = Gate(load_manifest("agent.yaml"), tools=[read_note], backends=Backends.local())
        async with gate.session("s-42") as session:
            result = await session.call("read_note", {"name": "oslo"})

    See docs/calls.md.
    """

    _imports: ClassVar[WritableImports] = "refuse"

    def __init__(
        self,
        manifest: Manifest,
        tools: Iterable[Tool] = (),
        backends: Ports | None = None,
        *,
        workdir: str | Path | None = None,
        pin: str | None = None,
        on_misfit: OnMisfit = "refuse",
        observers: Sequence[Observer] = (),
        unchecked_imports: bool = False,
        strict: bool = False,
        standing_approval: str | None = None,
    ) -> None:
        """Check every tool against the manifest, or raise `RegistrationRefused` with all misfits.

        A grant to write a directory from which this process imports modules is refused too, unless
        `unchecked_imports` accepts the risk. With `strict`, so is a tool of an agent framework with text in its
        arguments that is neither tied nor declared free. `pin` is the digest that the manifest must have.
        `standing_approval` is the id of a standing approval of deletes, as `licet trust` prints it: without one that
        counts now, `approvals.delete: manifest` asks once a session.
        """
        if not isinstance(manifest, Manifest):
            raise TypeError(
                "expected a manifest: `load_manifest(…)` reads its file, `Manifest.from_data(…)` takes a dict"
            )
        if isinstance(tools, Tool):
            raise TypeError(f"expected a list of tools: `Gate(manifest, [{tools.name}])`")
        places = Places.here(workdir)
        super().__init__(
            manifest,
            tools,
            Backends() if backends is None else backends,
            protect=self._protect_in(places.workdir),
            packages=_packages_in(places),
            changed=_changed,
            narrow=self._narrow,
            workdir=places.workdir,
            home=places.home,
            pin=pin,
            on_misfit=on_misfit,
            observers=observers,
            imports="accept" if unchecked_imports else self._imports,
            strict=strict,
            standing_approval=standing_approval,
        )

    def _protect_in(self, workdir: str) -> Protect:
        """The function that lists what no grant may write here."""
        return protect_in(workdir)

    @staticmethod
    def _narrow(manifest: Manifest) -> Manifest:
        """The manifest as it holds on this machine, at the start and at each `reload`."""
        return under_organisation(manifest)

    def thaw(self, *ids: str, key: OperatorKey | str | Path | None = None) -> None:
        """End freezes; all that are in force, if none is named. Where the state has operators, `key` is one of theirs.

        It is a file with a private key, or an object that signs. Raises `ActRefused` without that key, and if there is
        no such freeze.
        """
        super().thaw(*ids, key=read_approver_key(Path(key)) if isinstance(key, str | Path) else key)

    @classmethod
    def load(
        cls,
        path: str | Path,
        backends: Ports | None = None,
        *,
        workdir: str | Path | None = None,
        pin: str | None = None,
        on_misfit: OnMisfit = "refuse",
        observers: Sequence[Observer] = (),
        unchecked_imports: bool = False,
        strict: bool = False,
        standing_approval: str | None = None,
    ) -> Self:
        """Build a gate from a manifest file and the tools that its `from:` entries name, on this machine's backends.

            gate = Gate.load("research.yaml")

        The tools are imported here, as `licet call` imports them: each must declare what its source says, and what
        the lock has, or `ManifestError` or `Refused` is raised.
        """
        from licet.assemble.importing import imported_tools
        from licet.policy_files.load import load_manifest

        manifest = load_manifest(path)
        return cls(
            manifest,
            imported_tools(manifest),
            Backends.local() if backends is None else backends,
            workdir=workdir,
            pin=pin,
            on_misfit=on_misfit,
            observers=observers,
            unchecked_imports=unchecked_imports,
            strict=strict,
            standing_approval=standing_approval,
        )


def _packages_in(places: Places) -> Packages:
    """Return the function that a gate calls to find the installed distributions of its connectors."""

    def packages(manifest: Manifest, tools: Sequence[Tool]) -> tuple[Mapping[str, str], Mapping[str, Installed]]:
        if not manifest.definitions and not any(tool.spec.named_connectors for tool in tools):
            return {}, {}  # reading the list of installed packages is slow, and only connectors need it
        from licet.packages.distributions import installed_versions, packages_of

        workdir, home = places.workdir, places.home
        return installed_versions(manifest, workdir, home), packages_of(tools, manifest, workdir, home)

    return packages


def _changed(manifest: Manifest, tools: Sequence[Tool]) -> Sequence[Ground]:
    """Why a gate refuses its tools: they differ from the lock, or from the source that the policy files name."""
    if not any(tool.name in manifest.sources for tool in tools):
        return changed_tools(manifest, tools)
    from licet.assemble.importing import differing_tools  # reading source is slow to load

    return [*changed_tools(manifest, tools), *differing_tools(manifest, tools)]


class CommandGate(Gate):
    """The gate of a licet command. Directories that a grant may write are removed from the import path.

    That is possible because the import path of a command is its own. A `Gate` in a user's program refuses such a grant.
    A command also finds the standing approval of its policy by itself; a program names it.
    """

    _imports = "drop"
    _finds_standing = True
    outdated: Callable[[], bool] | None = None  # whether files of the policy have changed, where somebody looks

    def reload(self, manifest: Manifest) -> None:
        """Decide later calls by this manifest. A running call keeps its own; earlier approvals are void."""
        super().reload(manifest)
        for registered in self.policy.tools.values():
            reach = registered.reach
            if reach is not None and not registered.unavailable and _reaches_files(registered):
                search_ahead(reach)

    def replace(self, manifest: Manifest, tools: Iterable[Tool]) -> None:
        """Decide later calls by this manifest and with these tools, as `reload` does with the same tools."""
        with self._loading:
            self.tools = tuple(tools)
            self.reload(manifest)

    def is_outdated(self) -> bool:
        return self.outdated is not None and self.outdated()


def _reaches_files(registered: Registered) -> bool:
    """Whether the kernel needs file rules for a tool: it is isolated, or starts programs."""
    reach = registered.reach
    if reach is None:
        return False
    return reach.level == "isolated" or any(rule.domain == "process" for rule in reach.grant.allow)


def run(
    gate: BareGate,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    session: str = "main",
    purpose: str | None = None,
    task: str = "",
    id: str | None = None,  # noqa: A002
) -> Result:
    """Call one tool and wait for the result, in scripts without an event loop. `task` is what the user said.

    With an `id`, a call that comes again within 24 hours gets the result of the first one, and runs nothing.
    """

    async def named() -> str:
        return session

    return run_in(gate, tool, arguments, named, purpose=purpose, task=task, id=id)


def run_in(
    gate: BareGate,
    tool: str,
    arguments: Mapping[str, Any] | None,
    find: Callable[[], Awaitable[str]],
    *,
    purpose: str | None = None,
    task: str = "",
    id: str | None = None,  # noqa: A002
) -> Result:
    """As `run`, in a session that is found in the time of the call."""

    async def call() -> Result:
        with in_opening(gate.policy, tool):
            async with gate.session(await find(), task=task) as opened:
                return await opened.call(tool, arguments, purpose=purpose, id=id)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call())
    raise RuntimeError("an event loop is running: write `await session.call(…)` instead of `licet.run(…)`")


def stored_approvals(state: Place) -> ApprovalStore:
    """The approvals stored in a state. Refusals name it if a command would not find it by itself."""
    return state_at(state).approvals()


def standing_approvals(state: Place) -> StoredStanding:
    """The standing approvals in a state."""
    return state_at(state).standing()


def waiting_approver(state: Place, announce: "Announce | None" = None) -> "WaitingApprover":
    """An approver that stores each request, passes it to `announce`, and holds the call until it is answered."""
    from licet.backends.approvals.waiting import WaitingApprover

    return WaitingApprover(stored_approvals(state), announce)


def terminal_approver(
    state: Place, behind: Approver | None = None, *, held: Callable[[], AbstractContextManager[None]] = nullcontext
) -> "TerminalApprover":
    """An approver at the terminal. Without a terminal, or for signed approvals, `behind` or the store is asked.

    `held` keeps others from the terminal while it asks.
    """
    from licet.backends.approvals.terminal import TerminalApprover

    return TerminalApprover(behind or stored_approvals(state), held=held)


class RefusingGate(CommandGate):
    """The gate of a command whose policy cannot be used, such as one that differs from its lock.

    Every call is refused with the reasons that the policy was refused for, and recorded.
    """

    def __init__(self, refused: Refused, manifest: Manifest, backends: Ports, *, workdir: str | Path | None) -> None:
        self._grounds = refused.decision.rules
        super().__init__(manifest, (), backends, workdir=workdir)

    def _reload(self, manifest: Manifest) -> None:
        why = self._grounds[0].text
        self._policy = RegisteredTools(manifest, manifest.digest, {}, unusable=why, grounds=self._grounds)
        self.manifest = manifest
