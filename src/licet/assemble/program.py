"""A gate around one program that has this process's input and output: what stands behind `licet run`."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from licet.assemble.gate import Backends, CommandGate, Gate
from licet.backends.http import HttpClient
from licet.core.policy.commands import COMMAND_NEEDS, admit_commands
from licet.core.policy.effects import Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.declare import Context, Tool, tool
from licet.declare.arguments import MOST_ARGUMENTS, InvalidArguments
from licet.declare.plain_json import data_again, plain_json
from licet.guard.execution import Command, Finished, SandboxUnavailable, ToolCall, Walls
from licet.sandbox.programs.attached import AttachedStreams
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.supervisor_client import Supervisor
from licet.sandbox.programs.walls import ProgramWalls

_NAME = "run"
_SCHEMA = {
    "additionalProperties": False,
    "properties": {"command": {"items": {"type": "string"}, "type": "array"}},
    "required": ["command"],
    "type": "object",
}


class UnknownTool(LookupError):
    """A name that no tool of the manifest has."""


def program_gate(
    policy: Manifest,
    state: Path,
    ended: list[Finished],
    *,
    name: str | None = None,
    attached: AttachedStreams,
    workdir: Path | None = None,
    ready: Supervisor | None = None,
    held: set[str] | None = None,
) -> Gate:
    """A gate whose one tool starts a `command`, with all that the manifest allows, or with what the tool `name` holds.

    It has the streams that are `attached`. How programs ended is put into `ended`; the first has the supervisor that is
    `ready`, if one is. `held` collects the directories across which programs cannot move files. `UnknownTool` if the
    manifest has no tool of that name.
    """
    http = HttpClient()
    sandbox, processes = _RunsHere(ProgramWalls(http, held=held)), _Attached(ended, attached, ready)
    backends = Backends.local(state, http=http, processes=processes, sandbox=sandbox)
    if name is None:
        policy = admit_commands(policy, _NAME)
        spec = tool(needs=COMMAND_NEEDS, name=_NAME, effect=policy.max_effect, sandbox="isolated")(_program).spec
        spec = replace(spec, origin=policy.origin)  # the manifest is all that its reviewer has to look at
    else:
        spec = _spec(policy, name)
    return CommandGate(policy, [ProgramTool(_program, replace(spec, schema=_SCHEMA))], backends, workdir=workdir)


def _spec(policy: Manifest, name: str) -> ToolSpec:
    """What the manifest or the source of a tool declares about it."""
    from licet.assemble.importing import imported_tools

    source = {name: policy.sources[name]} if name in policy.sources else {}
    for known in imported_tools(replace(policy, sources=source)):
        return known.spec
    if name not in policy.tools:
        raise UnknownTool(f"the manifest knows no tool `{name}`")
    return policy.tools[name]


class ProgramTool(Tool):
    """A tool whose one argument is a `command`, read here: to load what reads type hints takes longer than all else."""

    def validator(self) -> Callable[[object], dict[str, Any]]:
        """What the type hints of `_program` would be made into."""
        return _arguments


def _arguments(given: object) -> dict[str, Any]:
    command = given["command"] if isinstance(given, Mapping) and given.keys() == {"command"} else None
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise InvalidArguments("expected `command` alone: a list of texts")
    try:
        text = plain_json({"command": command})
    except ValueError as error:  # half of a surrogate pair, which is how Python writes bytes that are no text
        raise InvalidArguments("expected arguments that JSON can carry") from error
    if len(text) > MOST_ARGUMENTS:
        raise InvalidArguments(f"expected at most {MOST_ARGUMENTS} bytes of arguments, found {len(text)}")
    arguments: dict[str, Any] = data_again(text)
    return arguments


class _Attached(LocalProcesses):
    """Programs with the input and output of this process."""

    def __init__(self, ended: list[Finished], attached: AttachedStreams, ready: Supervisor | None) -> None:
        super().__init__(ready=ready)
        self._ended, self._attached = ended, attached

    async def run(self, command: Command, walls: Walls) -> Finished:
        """Run a program, and remember how it ended."""
        finished = await self.run_attached(command, walls, self._attached)
        self._ended.append(finished)
        return finished


class _RunsHere:
    """Runs one function of licet itself, which does nothing but start a program; the program is behind walls."""

    def __init__(self, programs: ProgramWalls) -> None:
        self._programs = programs

    def layers(self, level: Level) -> tuple[str, ...]:
        """Nothing is around a function of licet itself; what is around the program is told once one was started."""
        self._programs.layers()  # or it says why there can be no walls
        return ()

    def walls(self, held: Any) -> Walls:
        """The walls of the program."""
        return self._programs.walls(held)

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Start the program."""
        if call.tool.fn is not _program:
            raise SandboxUnavailable("only programs are run here")
        work: Awaitable[Any] = _program(context, **call.arguments)
        return work


async def _program(ctx: Context, command: list[str]) -> int:
    """A command, with the input and output of the terminal."""
    program, *arguments = command
    ended = await ctx.process.spawn(program, arguments)
    return ended.exit_code
