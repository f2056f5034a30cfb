"""The ports that run tools and programs (`Sandbox`, `Processes`), and how a tool ends: its value as JSON, or its error.

A tool's error is an object with code of its own, which may lie, raise or never end. `raised` reads the error and runs
nothing of it but `__str__`.

A Ctrl-C of the operator is told from a `KeyboardInterrupt` that a tool raised by itself. Both leave a receipt; the
first is raised to the caller, because it is meant for the program, and the second is an error of the tool.
"""

import dis
import functools
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import CodeType, TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from licet.core.decision.request import Reason
from licet.core.policy.layer import Level
from licet.core.values import Origin
from licet.declare import Tool
from licet.declare.plain_json import check_bounded, plain_json, with_typed_bytes
from licet.guard.limits import LONGEST_ERROR, MOST_FRAMES

SUPERVISED_CALLS = "supervised calls"  # the layer that keeps a grant whole where there are no namespaces


class Layers(Struct, frozen=True):
    """Walls by name: those in force, and those that are missing because another one does without, or by permission."""

    in_force: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing that the grant denies is possible behind these walls."""
        return not self.missing or SUPERVISED_CALLS in self.in_force


class Streams(Struct, frozen=True):
    """The streams of a program that are pipes. The others are empty input, or discarded output."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    joined: bool = False  # stderr goes where stdout goes


class Ending(Struct, frozen=True):
    """How a program ended: its exit code, and what ended it: a limit, or its walls, with their `detail`."""

    returncode: int
    limit: Reason | Literal[""]
    detail: str = ""


class Running(Protocol):
    """A running program. It ends when its context manager exits."""

    @property
    def ending(self) -> Ending | None:
        """How it ended, after the context manager exited; None if it did not end by itself."""

    def handed(self) -> tuple[int, ...]:
        """Our ends of the requested pipes, in the order of the streams; the caller closes them."""

    def signal(self, number: int) -> None:
        """Send it a signal; without effect if it has ended."""

    async def ended(self) -> int:
        """Wait until it and all its children have ended. The exit code is negative after a signal or a timeout."""


class Used(Struct, frozen=True):
    """The exit code of a program, and what it and its children used: CPU time in sum, memory of the largest process."""

    returncode: int
    cpu_seconds: float
    memory_bytes: int


class Watch(Protocol):
    """The part that stays outside while a program runs behind walls."""

    @property
    def files(self) -> tuple[int, ...]:
        """Open files that the launcher gets; the caller closes them after the start."""

    async def started(self) -> Exception | None:
        """Wait until the program runs; return the error if the walls or the program could not be started."""

    async def ended(self) -> Exception | None:
        """Clean up after the program and its children have ended, or were never started; return the same error."""

    @property
    def has_jobs(self) -> bool:
        """Whether somebody in the session of the program lets it go on when it has stopped."""

    def limit(self, used: Used) -> Reason | Literal[""]:
        """The limit that probably ended the program, or an empty text. To be called after `ended`."""

    @property
    def detail(self) -> str:
        """Why the walls ended the program, in words, or an empty text."""


# Processes and walls -------------------------------------------------------------------------------------------------


class SandboxUnavailable(Exception):
    """This machine does not support a level. The text names what is missing, and how to get it."""

    def __init__(self, text: str = "", place: Origin | None = None) -> None:
        super().__init__(text)
        self.place = place  # in a policy, if that asks for what cannot be


# Whether a terminal among the streams of a program was made for it alone, and controls its session. It has what is
# typed there from the start, or once it has stopped because it wants to read; or it leads the session alone: then
# nothing stops it, as nobody could let it go on.
OwnedTerminal = Literal["", "foreground", "background", "alone"]


class Command(Struct, frozen=True):
    """One program to run: its file, arguments, complete environment, and limits."""

    binary: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    stdin: bytes
    seconds: float
    output_bytes: int
    watch: Watch | None = None
    own_terminal: OwnedTerminal = ""
    runtime: tuple[str, ...] = ()  # what it is made of besides its binary, such as a package: readable without a grant


class Finished(Struct, frozen=True):
    """How a program ended. `truncated` is set if its output was cut."""

    exit_code: int  # negative: the signal that ended it
    stdout_bytes: bytes
    stderr_bytes: bytes
    truncated: bool = False
    timed_out: bool = False
    # The limit that ended it or cut its output, such as `LIMIT_CPU`; or its walls: `CLOSED_FILE_REPLACED`.
    reason: Reason | Literal[""] = ""
    detail: str = ""  # which file it was, and what the program did with it

    @property
    def stdout(self) -> str:
        """The output as text; bytes that are not UTF-8 are replaced by U+FFFD."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """The error output as text; bytes that are not UTF-8 are replaced by U+FFFD."""
        return self.stderr_bytes.decode(errors="replace")


class Walls(Protocol):
    """The walls around a child process."""

    @property
    def layers(self) -> Layers:
        """The walls around the child, for the receipt. Some may be missing only if the manifest permits it."""

    def around(self, command: Command) -> Command:
        """The command that starts the same program inside the walls."""


@runtime_checkable
class TakesSecrets(Protocol):
    """Walls of programs whose keys stay outside: these get stand-ins. Other walls do not have this method."""

    async def take_secrets(self, value: Callable[[str], Awaitable[str]]) -> None:
        """Take what is needed from the secrets of the call, by reference; to be awaited before `around`.

        Raises `SandboxUnavailable`, with the reason for a person, if a key cannot be placed.
        """


async def give_secrets(walls: Walls, value: Callable[[str], Awaitable[str]]) -> None:
    """Let walls take the secrets that they place, if they place any; see `TakesSecrets`."""
    if isinstance(walls, TakesSecrets):
        await walls.take_secrets(value)


class Processes(Protocol):
    """Runs programs. They inherit nothing, and end with everything that they started."""

    def find(self, name: str) -> str | None:
        """The real path of a program by name, on the host's PATH, or None."""

    async def run(self, command: Command, walls: Walls) -> Finished:
        """Run a program behind walls until it ends or its time is up."""

    def start(self, command: Command, walls: Walls, streams: Streams) -> AbstractAsyncContextManager[Running]:
        """Start a program behind walls, with pipes. Leaving the context ends it and everything that it started."""


class Pausable(Protocol):
    """A clock that can be stopped for a while."""

    def pause(self) -> None:
        """Stop the clock."""

    def resume(self) -> None:
        """Continue it, after as many calls as there were of `pause`."""


class ToolCall(Struct, frozen=True):
    """A tool with its validated arguments, its deadline, and the limits of the manifest."""

    tool: Tool
    arguments: dict[str, Any]
    seconds: float
    limits: Mapping[str, int] = {}
    deadline: Pausable | None = None  # paused while a person is asked


class Sandbox(Protocol):
    """Runs tools at a level."""

    def layers(self, level: Level) -> tuple[str, ...]:
        """The walls of a level, for the receipt; `SandboxUnavailable` if this machine does not support it."""

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Run a tool at a level. Its error is raised; one from behind walls as `Raised`.

        `Stopped` if the tool was ended; `SandboxUnavailable` only if nothing of it ran.
        """

    def walls(self, held: Any) -> Walls:
        """The walls of a child process with this grant; `SandboxUnavailable` if there are none here."""


@runtime_checkable
class LayersOfTools(Protocol):
    """A sandbox whose layers depend on the tool too."""

    def tool_layers(self, tool: Tool, level: Level, *, allow_degraded: bool) -> Layers:
        """The walls around a tool at a level, and those that are missing where the manifest permits it.

        `SandboxUnavailable` if this machine does not support it.
        """


@runtime_checkable
class Warms(Protocol):
    """A sandbox that can start processes before the first call."""

    async def warm(self, level: Level, call: ToolCall, context: Any) -> None:
        """Start what calls of this tool need. Nothing of the tool's grant is used."""


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Taken from `type` and `BaseException`, so that a tool's class cannot override them.
_class_name: Any = type.__dict__["__name__"]
_traceback: Any = BaseException.__dict__["__traceback__"]

# The key of the manifest that states each limit.
LIMIT_KEYS: Mapping[Reason, str] = {
    "LIMIT_TIME": "wall_seconds",
    "LIMIT_CPU": "cpu_seconds",
    "LIMIT_MEMORY": "memory_mb",
    "LIMIT_FILES": "open_files",
    "LIMIT_PROCESSES": "processes",
    "LIMIT_FILE_SIZE": "file_mb",
    "LIMIT_DISK": "scratch_mb",
    "LIMIT_OUTPUT": "output_kb",
    "LIMIT_HOST_MEMORY": "host_memory_mb",
    "LIMIT_HOST_FILES": "host_files",
    "LIMIT_WAITING": "waiting_kb",
    "LIMIT_HEADERS": "request_headers",
    "LIMIT_PATHS": "written_paths",
    "LIMIT_FUEL": "fuel",
}


# What a person can do when a closed file was replaced while a program ran.
AFTER_REPLACING = (
    "the program may have changed that file, and it stays: look at it before you, git or anything else uses it, "
    "and start the program again"
)


def ended_by(reason: Reason, detail: str) -> str:
    """What ended a program, in words for a person: a limit of the manifest, or its walls."""
    if reason in LIMIT_KEYS:
        return f"at a limit of the policy: {limit_name(reason)}"
    return f"by its walls: {detail}; {AFTER_REPLACING}"


def limit_name(reason: Reason) -> str:
    """The key of a limit, as written in a manifest."""
    return f"`limits.{LIMIT_KEYS[reason]}`"


class JsonText(bytes):
    """The result of a tool as JSON that another process wrote, and that has not been parsed yet."""

    __slots__ = ()


class FailedText(JsonText):
    """The same, of a tool that says in its result that it failed."""

    __slots__ = ()


class Stopped(Exception):
    """A tool was ended from outside, or ended without an answer: the reason, and a text for the model.

    If it was not even begun, `ran` is false: the call then had no effect, and costs nothing.
    """

    def __init__(self, reason: Reason, text: str, *, ran: bool = True) -> None:
        self.reason: Reason = reason
        self.ran = ran
        super().__init__(text)


class Raised(Exception):
    """What a tool raised: the name of the exception's type, its text, and where it was raised.

    All of it comes from the tool, and may be false. A worker reports only the line in the tool's file; for a tool in
    this process there is an `origin`. `forbidden` marks a permission error, which a wall may have caused; `loading` one
    that was raised while the module of the tool was loaded behind walls, before the tool itself ran. `printed` are the
    last lines that a WASM module wrote to its standard error, of which one belongs to the error.
    """

    def __init__(
        self,
        kind: str,
        text: str,
        line: int = 0,
        forbidden: bool = False,
        origin: Origin | None = None,
        loading: bool = False,
        printed: str = "",
    ) -> None:
        self.kind = kind
        self.printed = printed
        self.line = line
        self.forbidden = forbidden
        self.origin = origin
        self.loading = loading
        super().__init__(text)


def raised(error: BaseException) -> Raised:
    """Read an error. This runs its `__str__`, which may hang: call it where the tool runs."""
    try:
        text = str.__str__(str(error))[:LONGEST_ERROR]
    except BaseException:  # the class is the tool's own: it may raise anything
        text = ""
    return Raised(class_name(type(error)), text, origin=_origin(error))


def result_text(value: object) -> bytes:
    """The JSON of what a tool returned, at every level the same; `TypeError` if it has none."""
    kind = type(value)
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        raise TypeError("it returned a generator: return a list")
    try:
        has_bytes = check_bounded(value)
    except ValueError as error:
        raise TypeError(f"it returned what JSON cannot carry: {error}") from None
    value = with_typed_bytes(value) if has_bytes else value
    try:
        return plain_json(value)
    except ValueError as error:  # its text may show the value
        raise TypeError(f"it returned what JSON cannot carry: {class_name(kind)}") from error


def class_name(kind: type) -> str:
    """The real name of a class, also if its metaclass overrides `__name__`."""
    name: str = _class_name.__get__(kind)
    return name


def _origin(error: BaseException) -> Origin | None:
    """The innermost line outside of licet that an error came from.

    No source file is opened: the tool may have compiled its code under any file name.
    """
    trace, last, frames = _traceback.__get__(error), None, 0
    while trace is not None and frames < MOST_FRAMES:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_OURS):
            last = name, trace.tb_lineno or 1
        trace, frames = trace.tb_next, frames + 1
    return Origin(*last, 1) if last is not None else None


def is_from_operator(error: KeyboardInterrupt) -> bool:
    """Whether a signal caused it: it was raised in the main thread, and not by a `raise` in the tool's code."""
    if type(error) is not KeyboardInterrupt or threading.current_thread() is not threading.main_thread():
        return False
    last: TracebackType | None = _traceback.__get__(error)
    handler, codes = _handler_code(), set[CodeType]()
    while last is not None:
        codes.add(last.tb_frame.f_code)
        if last.tb_next is None:
            break
        last = last.tb_next
    # A signal handler in Python, such as that of `asyncio.run`, also has a `raise`.
    return handler in codes or last is None or not _is_raise(last)


def _handler_code() -> CodeType | None:
    """The code of the SIGINT handler; None if the handler is not written in Python."""
    handler: object = signal.getsignal(signal.SIGINT)
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


def _is_raise(trace: TracebackType) -> bool:
    """Whether the line that an error came from was a `raise` statement."""
    code = trace.tb_frame.f_code.co_code
    return dis.opname[code[trace.tb_lasti]] == "RAISE_VARARGS"
