"""The shell of one line of a coding agent, as the step *run* of its call: behind the walls of the policy.

The gate of the hooks has decided the call, and its own ports know nothing of this line. So the call gets ports of its
own, for this one run: a sandbox that starts the shell, programs with the descriptors of the agent's shell, and the
variables that came with the line.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.program import AttachedProcesses, RunsPrograms
from licet.backends.secrets import ChainSecrets, EnvironmentSecrets
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import Reach
from licet.core.policy.layer import permits
from licet.guard.execution import Command, Finished, Layers, ToolCall, Walls, give_secrets
from licet.guard.facts import Call
from licet.guard.grant import Grant
from licet.guard.handles.processes import run_chosen
from licet.guard.ports import Ports
from licet.sandbox.programs.supervisor_client import Supervisor
from licet.sandbox.programs.terminal_streams import AttachedStreams
from licet.sandbox.programs.walls import OF_A_RUN, STATE, ProgramWalls, limits_of
from licet.sandbox.scratch import SessionScratch


class ShellProgram(Struct, frozen=True):
    """One shell, started once. `words` makes its arguments from the directory for its state."""

    path: str
    words: Callable[[str], Sequence[str]]
    directory: str  # where it starts; the policy must let it be read
    reads_only: bool  # nothing outside of scratch can be changed, whatever the policy allows


def ports_of_line(
    call: Call,
    program: ShellProgram,
    scratch: SessionScratch,
    attached: AttachedStreams,
    ended: list[Finished],
    *,
    variables: Mapping[str, str],
    unnamed: Mapping[str, str],
    ready: Supervisor | None = None,
) -> Ports:
    """The ports of an open call, with those that run its line.

    Of `variables` the shell gets those that the policy names, and all of `unnamed`. Keys that the walls place may be
    among them. How it ends is appended to `ended`.
    """
    given = () if call.ports.secrets is None else (call.ports.secrets,)
    walls = ProgramWalls(call.ports.http, defaults=OF_A_RUN, names_hosts=True, lasting=scratch, caches=True)
    return replace(
        call.ports,
        sandbox=RunsShell(walls, program, scratch, call.session.gate.workdir),
        processes=AttachedProcesses(ended, attached, ready, unnamed),
        environ=variables,
        secrets=ChainSecrets(*given, EnvironmentSecrets(variables)),
    )


def scratch_bytes(reach: Reach) -> int:
    """How much a session may keep in scratch."""
    return limits_of(reach, OF_A_RUN)["scratch_mb"] << 20


class RunsShell(RunsPrograms):
    """The sandbox of a call that is a shell line: it starts the shell, and nothing else."""

    def __init__(self, programs: ProgramWalls, program: ShellProgram, scratch: SessionScratch, workdir: str) -> None:
        super().__init__(programs, workdir)
        self._program, self._scratch = program, scratch

    def walls(self, held: Grant) -> Walls:
        if self._program.reads_only:
            held.reach = _reading(held.reach)
        walls = super().walls(held)
        return _ShellWalls(walls, self._program, self._scratch.state if walls.layers.missing else STATE)

    def run(self, level: Any, call: ToolCall, context: Any) -> Awaitable[Any]:
        return self._exit_code(context)

    async def _exit_code(self, context: Any) -> int:
        # The walls give it its arguments: only they know where its state will be.
        ended = await run_chosen(context.process, self._program.path, (), self._program.directory)
        return ended.exit_code


def _reading(reach: Reach) -> Reach:
    """The same reach without all that changes anything."""
    grant = reach.grant & permits("read_only")
    return replace(reach, grant=grant, effect="read_only", free_deletes=CapabilitySet())


class _ShellWalls:
    """The walls of a shell, which tell it where its state is."""

    def __init__(self, walls: Walls, program: ShellProgram, state: str) -> None:
        self._walls, self._program, self._state = walls, program, state

    @property
    def layers(self) -> Layers:
        return self._walls.layers

    async def take_secrets(self, value: Callable[[str], Awaitable[str]]) -> None:
        await give_secrets(self._walls, value)

    def around(self, command: Command) -> Command:
        argv = (command.argv[0], *self._program.words(self._state))
        return self._walls.around(replace(command, argv=argv))
