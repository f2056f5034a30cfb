"""The gate of `licet run`: one tool, which starts one program with the input and output of this process.

The flags of `licet run`, such as `--allow-read .`: the manifest that they are, and the approval that typing them is.

The flags become the text of a manifest, which the loader reads like any other; `--save` writes the same text. Next to a
policy the flags only narrow it, and approve nothing.
"""

import json
import os
import shlex
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.backend_parts import LocalParts
from licet.assemble.gate import Backends, CommandGate, Gate
from licet.assemble.limits import RUN_SECONDS
from licet.assemble.review import Places, straight
from licet.assemble.states import Place, state_at
from licet.backends.http import HttpClient
from licet.core.algebra.domains import TCP, place_text
from licet.core.algebra.rules import capability
from licet.core.algebra.scope import TOP, Malformed, binary, host_key, inside, path_key, variable, visible
from licet.core.decision.reach import Reach
from licet.core.late_pattern import late_pattern
from licet.core.policy.layer import EVERY_DOMAIN, Level
from licet.core.policy.manifest import PROGRAM, Manifest, admit_commands, command_needs
from licet.core.policy.tool import ToolSpec
from licet.core.values import COMMAND_LINE
from licet.declare import Context, Tool, tool
from licet.declare.arguments import MOST_ARGUMENTS, InvalidArguments
from licet.declare.plain_json import data_again, plain_json
from licet.guard.execution import Command, Finished, Layers, SandboxUnavailable, ToolCall, Walls, give_secrets
from licet.guard.import_path import FoundProgram
from licet.guard.ports import Answer, Answered, Approver, Question
from licet.policy_files.load import read_made
from licet.sandbox.programs.program_files import SYSTEM
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.supervisor_client import Supervisor
from licet.sandbox.programs.terminal_streams import AttachedStreams
from licet.sandbox.programs.walls import OF_A_RUN, ProgramWalls

if TYPE_CHECKING:
    from licet.policy_files.trusted_paths import TrustedPaths

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
    state: Place,
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
    walls = ProgramWalls(http, held=held, defaults=OF_A_RUN, names_hosts=True, caches=True)
    places = Places.here(workdir)
    sandbox, processes = RunsPrograms(walls, places.workdir), AttachedProcesses(ended, attached, ready)
    parts: LocalParts = {"http": http, "processes": processes, "sandbox": sandbox}
    if approver is not None:
        parts["approver"] = approver
    backends = Backends.of(state_at(state), secrets_file=secrets_file, **parts)
    limits = {"wall_seconds": RUN_SECONDS, **policy.limits}
    policy = replace(policy, limits=limits, loaded=policy.loaded or policy)
    if name is None:
        policy = admit_commands(policy, PROGRAM)
        needs = command_needs(policy)
        spec = tool(needs=needs, name=PROGRAM, effect=policy.max_effect, sandbox="isolated")(_program).spec
        # a refusal points to the manifest, which is all that its reviewer reads
        spec = replace(spec, origin=policy.origin)
    else:
        spec = _spec(policy, name)
    return _ProgramGate(policy, [ProgramTool(_program, replace(spec, schema=_SCHEMA))], backends, workdir=workdir)


class _ProgramGate(CommandGate):
    """The gate of `licet run`."""

    narrows = True


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


class AttachedProcesses(LocalProcesses):
    """Programs with given streams, such as the input and output of this process, and some more `variables`."""

    def __init__(
        self,
        ended: list[Finished],
        attached: AttachedStreams,
        ready: Supervisor | None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(ready=ready)
        self._ended, self._attached, self._variables = ended, attached, variables

    async def run(self, command: Command, walls: Walls) -> Finished:
        environment = {**self._variables, **command.environment}
        command = replace(command, environment=environment, own_terminal=self._attached.own_terminal())
        finished = await self.run_attached(command, walls, self._attached)
        self._ended.append(finished)
        return finished


class RunsPrograms:
    """The sandbox of `licet run`: the function of licet that starts the program has no walls, the program has.

    The program holds the repository to which the `.git` of `workdir` leads, too.
    """

    def __init__(self, programs: ProgramWalls, workdir: str | None = None) -> None:
        self._programs, self._workdir = programs, workdir

    def layers(self, level: Level) -> tuple[str, ...]:
        """None: this function of licet has no walls. Those of the program are reported when it is started."""
        self._programs.layers()  # raises if there can be no walls
        return ()

    def walls(self, held: Any) -> Walls:
        if self._workdir is not None:
            held.reach = with_linked_repository(held.reach, self._workdir)
        return _ScriptWalls(self._programs.walls(held), held.reach)

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        if call.tool.fn is not _program:
            raise SandboxUnavailable("only programs are run here")
        return self.start(call, context)

    def start(self, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Start the program of a call; returns its exit code when it has ended."""
        work: Awaitable[Any] = _program(context, **call.arguments)
        return work


def with_linked_repository(reach: Reach, workdir: str) -> Reach:
    """The same reach, with the repository that a `.git` file in the working directory leads to."""
    if not os.path.isfile(os.path.join(workdir, ".git")):  # most projects have a directory of that name, or none
        return reach
    from licet.assemble.repository_grant import with_repository

    return with_repository(reach, workdir)


class _ScriptWalls:
    """The walls of a program, which may be a script."""

    def __init__(self, walls: Walls, reach: Reach) -> None:
        self._walls, self._reach = walls, reach

    @property
    def layers(self) -> Layers:
        return self._walls.layers

    async def take_secrets(self, value: Callable[[str], Awaitable[str]]) -> None:
        await give_secrets(self._walls, value)

    def around(self, command: Command) -> Command:
        binary = command.binary
        # Of the system, its interpreter is there too, and readable. A virtual environment has links to that one.
        if inside(binary, SYSTEM) and inside(binary.path if isinstance(binary, FoundProgram) else binary, SYSTEM):
            return self._walls.around(command)
        from licet.assemble.script_interpreter import (
            with_interpreter,  # most programs are of the system, and no scripts
        )

        return self._walls.around(with_interpreter(command, self._reach))


async def _program(ctx: Context, command: list[str]) -> int:
    """Run a command with the input and output of the terminal."""
    program, *arguments = command
    ended = await ctx.process.spawn(program, arguments)
    return ended.exit_code


AGENT = "command-line"  # in receipts and budgets of runs without a policy
BY = "command line"  # who approved, in receipts
NARROWED = ("fs", "network", "env", "socket")  # the domains that flags are about
HTTPS = 443  # programs reach HTTPS through a tunnel, so this is the port that most of them need
_PLACE = late_pattern(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?")
_EVERYTHING = ("*", "/")
_UNSET = "is the variable that it was to come from empty?"


class BadFlag(ValueError):
    """A flag with a value that no rule can express."""

    def __init__(self, flag: str, text: str) -> None:
        super().__init__(text)
        self.flag = flag


class Flags(Struct, frozen=True):
    """The values of the flags, as they were typed."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    net: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    socket: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.read, self.write, self.net, self.env, self.socket))


class Typed(Struct, frozen=True):
    """Flags with their values understood: real paths, the rules of hosts, names of variables."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    net: tuple[str, ...]  # rules, such as `network:tcp:api.example.com:443`
    env: tuple[str, ...]
    words: tuple[str, ...]  # the flags with these values, for the receipt
    typed: tuple[str, ...] = ()  # the values of --allow-write, as they were typed
    socket: tuple[str, ...] = ()  # paths

    @property
    def missing(self) -> Iterator[Path]:
        """The paths to write that do not exist."""
        return (Path(path) for path in self.write if not os.path.lexists(path))


def understood(flags: Flags, places: Places) -> Typed:
    """Read the values of flags; relative paths start at the current directory. Raises `BadFlag`."""
    read = tuple(dict.fromkeys(_path("--allow-read", value, places) for value in flags.read))
    write = tuple(dict.fromkeys(_path("--allow-write", value, places) for value in flags.write))
    net = dict(_connection(value) for value in flags.net)
    env = dict.fromkeys(_variable(value) for value in flags.env)
    socket = tuple(dict.fromkeys(_socket(value, places) for value in flags.socket))
    named = (("read", read), ("write", write), ("net", net), ("env", env), ("socket", socket))
    words = tuple(f"--allow-{name}={value}" for name, values in named for value in values)
    # A program gets the variables that its policy names, and `*` names none: so they are listed.
    names = filter(_is_variable, sorted(os.environ)) if "*" in env else env
    # Without PATH, `make` and compilers do not find the programs that they start; without TERM, `less` and `git log`
    # do not know the terminal that the program has.
    unnamed = ("PATH", "TERM") if "TERM" in os.environ and any(map(os.isatty, range(3))) else ("PATH",)
    return Typed(read, write, tuple(net.values()), tuple(dict.fromkeys((*unnamed, *names))), words, flags.write, socket)


def _path(flag: str, value: str, places: Places) -> str:
    _check(flag, value)
    if value in _EVERYTHING:
        return "/"
    root, _, rest = value.partition("/")
    if root[:1] == "~":
        if root != "~" or not places.home:
            instead = "write out the home directory, or `./` before a name that begins with `~`"
            raise BadFlag(
                flag, f"`{visible(value)}` begins with `~`, and only `~/` of a user with a home is known: {instead}"
            )
        value = os.path.join(places.home, rest)
    path = str(straight(Path.cwd() / value))
    try:
        path_key(path)
    except Malformed as wrong:
        expected = "a path without `${`" if "${" in path else wrong.expected
        text = f"no rule can name `{visible(path)}`: expected {expected}; allow the directory above it"
        raise BadFlag(flag, text) from None
    return path


def _socket(value: str, places: Places) -> str:
    """The path of one socket. It must be there: a path with a slip of the pen would be a rule about nothing."""
    path = _path("--allow-socket", value, places)
    if not stat.S_ISSOCK(_mode(path)):
        raise BadFlag("--allow-socket", f"found `{visible(value)}`, expected the path of a unix socket that is there")
    return path


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


def _connection(value: str) -> tuple[str, str]:
    """The place that a value of `--allow-net` names, and its rule."""
    flag = "--allow-net"
    _check(flag, value)
    parts = _PLACE.fullmatch(value)
    try:
        key = host_key(parts[1] if parts else value)
    except Malformed as wrong:
        raise BadFlag(flag, str(wrong)) from None
    if parts is None:
        raise BadFlag(flag, f"found `{visible(value)}`, expected HOST or HOST:PORT")
    port = int(parts[2]) if parts[2] else None if key == TOP else HTTPS
    if port is not None and not 0 < port < 1 << 16:
        raise BadFlag(flag, f"found `{visible(value)}`, expected a port from 1 to 65535")
    return place_text(key, port), str(capability("network", TCP, key, port))


def _variable(value: str) -> str:
    flag = "--allow-env"
    _check(flag, value)
    try:
        return value if value == "*" else variable(value)
    except Malformed as wrong:
        raise BadFlag(flag, str(wrong)) from None


def _is_variable(name: str) -> bool:
    try:
        return bool(variable(name))
    except Malformed:
        return False


def _check(flag: str, value: str) -> None:
    """Refuse no value, and another flag that was taken for one."""
    if not value:
        everything = "everything is written `*`"
        is_socket = flag == "--allow-socket"
        raise BadFlag(flag, f"expected a value; {_UNSET if is_socket else everything}")
    if value[0] == "-":
        raise BadFlag(
            flag, f"expected a value, found `{visible(value)}`; a name that begins with `-` is written `./-…`"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadFlag(flag, f"expected UTF-8 text, found `{visible(value)}`") from None


def manifest_text(typed: Typed, program: str, places: Places) -> str:
    """The manifest that the flags are; `program` is what the command starts. Raises `BadFlag`."""
    effect = "full" if typed.write or typed.socket else "write_limited" if typed.net else "read_only"
    lines = [f"agent: {AGENT}", "capabilities:", f"  max_side_effect_class: {effect}"]
    if typed.read or typed.write:
        lines.append("  fs_reach:")
    for key, paths in (("read", typed.read), ("write", typed.write)):
        lines += [f"    {key}:", *(f"      - {_quoted(_spelled(path, places))}" for path in paths)] if paths else []
    rules = (*typed.net, *(f"socket:connect:{_spelled(path, places)}" for path in typed.socket))
    for key, values in (("grants", rules), ("env", typed.env)):
        lines += [f"  {key}:", *(f"    - {_quoted(value)}" for value in values)] if values else []
    lines += ["  process:", "    allowed_binaries:", f"      - {_quoted(_program_path(program, places))}"]
    if typed.write or rules:
        lines.append(f"  approvals: {{write: manifest, delete: {'manifest' if typed.write else 'session'}}}")
    if effect == "full":
        lines.append("  budget: {max_cost_usd: 0}  # a class that deletes needs a budget, and a command costs nothing")
    return "\n".join((*lines, ""))


def closed_to(typed: Typed, places: Places) -> "TrustedPaths":
    """What other programs run or trust below the paths to write: closed to a run with flags alone."""
    from licet.policy_files.trusted_paths import TrustedPaths, names_trusted  # long lists, for runs that write alone

    # Not `.`: a project may have such a name itself.
    named = [_path("--allow-write", value, places) for value in typed.typed if names_trusted(value)]
    closed = TrustedPaths(typed.write, places.workdir, places.home, named)
    if closed.unclosed:
        text = "it, or something in it, is what other programs run or trust, and cannot be closed to the command"
        raise BadFlag("--allow-write", f"{visible(closed.unclosed[0])}: {text}: name other directories to write")
    return closed


def opened_by_flag(closed: dict[str, str]) -> dict[str, str]:
    """The reasons as a person reads them in a hint: with the flag that opens the path."""
    return {path: f"{why}; {flag} opens it" if (flag := opening_flag(path)) else why for path, why in closed.items()}


def opening_flag(path: str) -> str:
    """The flag that opens a closed path; empty if a link is there or on the way.

    A program may have made it: the flag would open what it leads to.
    """
    return flag_of_path("write", path) if os.path.realpath(path) == path else ""


def flag_of_path(action: str, path: str) -> str:
    """The flag that allows to read or write a path, as it is typed here."""
    here = os.getcwd()
    name = os.path.relpath(path, here) if inside(path, (here,)) else path
    return f"`--allow-{action} {visible(shlex.quote(f'./{name}' if name[0] in '-~' else name))}`"


def saved_text(text: str, typed: Typed, program: str, closed: Mapping[str, str], places: Places) -> str:
    """The same manifest as a file to keep, with what the flags `closed`.

    The arguments of the command are left out: they may be secret.
    """
    notes = [f"# From: {visible(shlex.join(['licet', 'run', *typed.words, '--', program]))}"]
    if typed.write:
        notes += [
            "# Typing --allow-write approved renames and deletes for that run alone. A file approves none: agree to",
            "# them in `licet trust`, at a terminal; without that it deletes only what it has made itself.",
        ]
    denies = [
        f"    - {_quoted(f'fs:{action}:{_spelled(path, places)}')}" + f"  # {why}" * (action == "write")
        for path, why in closed.items()
        for action in ("write", "delete")
    ]
    return "\n".join((*notes, text + "".join(f"{line}\n" for line in ("  deny:", *denies) if denies)))


def _program_path(program: str, places: Places) -> str:
    try:
        name = _spelled(program, places) if "/" in program else program
        binary(name)
    except Malformed as wrong:
        raise BadFlag("CMD", f"no rule can name this program: {wrong}") from None
    return name


def _spelled(path: str, places: Places) -> str:
    """A path below the working directory or the home with the name of that directory, as files have it."""
    for name, directory in (("${workdir}", places.workdir), ("~", places.home)):
        if directory not in ("", "/") and (path == directory or path.startswith(f"{directory}/")):
            return name + path.removeprefix(directory)
    return path


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def made_manifest(text: str, written: Sequence[str] = (), trusted: dict[str, str] | None = None) -> Manifest:
    """Load the manifest that flags are. Policy in the `written` paths is closed to it, and so are the `trusted` ones.

    Raises `BadFlag`.
    """
    policy = read_made(text, COMMAND_LINE, os.getcwd(), written, trusted)
    if policy.manifest is None:
        wrong = next(problem for problem in policy.problems if problem.severity == "error")
        raise BadFlag("flags", f"found {wrong.found}, expected {wrong.expected}" + f"; {wrong.hint}" * bool(wrong.hint))
    return policy.manifest


def narrowed(policy: Manifest, made: Manifest) -> Manifest:
    """A policy that allows only what flags allow, too. Its class, approvals, limits and digest stay."""
    silent = EVERY_DOMAIN - {*NARROWED}
    layers = tuple(
        replace(layer, kind="delegation", title=COMMAND_LINE, silent=silent)
        for layer in made.layers
        if layer.kind == "manifest"
    )
    return replace(policy, layers=(*policy.layers, *layers), loaded=policy.loaded or policy)


class TypedApproval:
    """Answers for the person who typed the flags: the run may do what they say, and nothing else is asked."""

    def __init__(self, made: Manifest) -> None:
        self._digest = made.digest

    async def ask(self, question: Question) -> Answer | Answered:
        """Approve the run under this manifest. A single act, or another manifest, is nobody's to approve here."""
        about = question.approval
        mine = about.manifest == self._digest and not about.use and not question.signed
        return Answered("approved", (BY,)) if mine else "absent"
