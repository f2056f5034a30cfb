"""The gate of `licet run`: one tool, which starts one program with the input and output of this process."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from licet.assemble.gate import Backends, CommandGate, Gate
from licet.assemble.parts import LocalParts
from licet.backends.http import HttpClient
from licet.core.algebra.scope import inside
from licet.core.decision.reach import Reach
from licet.core.policy.commands import COMMAND_NEEDS, PROGRAM, admit_commands
from licet.core.policy.effects import Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.declare import Context, Tool, tool
from licet.declare.arguments import MOST_ARGUMENTS, InvalidArguments
from licet.declare.plain_json import data_again, plain_json
from licet.guard.execution import Command, Finished, Layers, SandboxUnavailable, ToolCall, Walls
from licet.guard.links import FoundProgram
from licet.guard.people import Approver
from licet.sandbox.programs.attached import AttachedStreams
from licet.sandbox.programs.files import SYSTEM
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.supervisor_client import Supervisor
from licet.sandbox.programs.walls import OF_A_RUN, ProgramWalls

_FOR_EVER = 10 * 365 * 86_400  # seconds
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
    approver: Approver | None = None,
    secrets_file: Path | None = None,
) -> Gate:
    """Make a gate whose one tool starts a `command`.

    The program may do all that the manifest allows; with `name`, only what that tool holds (`UnknownTool` if the
    manifest has no such tool). It uses the streams in `attached`. The results of programs are appended to `ended`. The
    first program uses the supervisor `ready`, if there is one. `held` collects the directories across which programs
    cannot move files. There is no limit of time, unless the policy states one.
    """
    http = HttpClient()
    walls = ProgramWalls(http, held=held, defaults=OF_A_RUN, names_hosts=True)
    sandbox, processes = RunsPrograms(walls), _Attached(ended, attached, ready)
    parts: LocalParts = {"http": http, "processes": processes, "sandbox": sandbox}
    if approver is not None:
        parts["approver"] = approver
    backends = Backends.local(state, secrets_file=secrets_file, **parts)
    limits = {"wall_seconds": _FOR_EVER, **policy.limits}
    policy = replace(policy, limits=limits, loaded=policy.loaded or policy)
    if name is None:
        policy = admit_commands(policy, PROGRAM)
        spec = tool(needs=COMMAND_NEEDS, name=PROGRAM, effect=policy.max_effect, sandbox="isolated")(_program).spec
        # a refusal points to the manifest, which is all that its reviewer reads
        spec = replace(spec, origin=policy.origin)
    else:
        spec = _spec(policy, name)
    return CommandGate(policy, [ProgramTool(_program, replace(spec, schema=_SCHEMA))], backends, workdir=workdir)


def _spec(policy: Manifest, name: str) -> ToolSpec:
    """The declaration of a tool, from the manifest or from its source."""
    from licet.assemble.importing import imported_tools

    source = {name: policy.sources[name]} if name in policy.sources else {}
    for known in imported_tools(replace(policy, sources=source)):
        return known.spec
    if name not in policy.tools:
        raise UnknownTool(f"the manifest knows no tool `{name}`")
    return policy.tools[name]


class ProgramTool(Tool):
    """A tool whose one argument is a `command`.

    It is validated here, because importing the code that reads type hints takes longer than everything else.
    """

    in_lock = False  # it is any command; a tool that it is run for was compared when it was read
    command_argument = "command"

    def validator(self) -> Callable[[object], dict[str, Any]]:
        return _arguments


def _arguments(given: object) -> dict[str, Any]:
    command = given["command"] if isinstance(given, Mapping) and given.keys() == {"command"} else None
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise InvalidArguments("expected `command` alone: a list of texts")
    try:
        text = plain_json({"command": command})
    except ValueError as error:  # a lone surrogate, which is how Python decodes bytes that are not text
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
        finished = await self.run_attached(command, walls, self._attached)
        self._ended.append(finished)
        return finished


class RunsPrograms:
    """The sandbox of `licet run`: the function of licet that starts the program has no walls, the program has."""

    def __init__(self, programs: ProgramWalls) -> None:
        self._programs = programs

    def layers(self, level: Level) -> tuple[str, ...]:
        """None: this function of licet has no walls. Those of the program are reported when it is started."""
        self._programs.layers()  # raises if there can be no walls
        return ()

    def walls(self, held: Any) -> Walls:
        return _ScriptWalls(self._programs.walls(held), held.reach)

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        if call.tool.fn is not _program:
            raise SandboxUnavailable("only programs are run here")
        work: Awaitable[Any] = _program(context, **call.arguments)
        return work


class _ScriptWalls:
    """The walls of a program, which may be a script."""

    def __init__(self, walls: Walls, reach: Reach) -> None:
        self._walls, self._reach = walls, reach

    @property
    def layers(self) -> Layers:
        return self._walls.layers

    def around(self, command: Command) -> Command:
        binary = command.binary
        # Of the system, its interpreter is there too, and readable. A virtual environment has links to that one.
        if inside(binary, SYSTEM) and inside(binary.path if isinstance(binary, FoundProgram) else binary, SYSTEM):
            return self._walls.around(command)
        from licet.assemble.scripts import with_interpreter

        return self._walls.around(with_interpreter(command, self._reach))


async def _program(ctx: Context, command: list[str]) -> int:
    """Run a command with the input and output of the terminal."""
    program, *arguments = command
    ended = await ctx.process.spawn(program, arguments)
    return ended.exit_code
