"""Shell lines of coding agents, behind walls: the line that the agent runs instead, and the run of the text in it.

`rewritten` makes a line that shows the whole text to a person, and runs a client of licet with it and a ticket.
`run_line` then runs the text: in the shell that the agent has, where that shell is, with its descriptors. What lasts as
long as the agent's session lies behind the walls: scratch, and where the agent keeps a whole shell, that shell's state.
Nothing that a line has written is run by the agent's shell; it is told a directory alone, by a link that licet makes.

What differs from the bare line: what it leaves running in the background ends with it.
"""

import asyncio
import os
import pwd
import shlex
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress

from msgspec import Struct

from licet.assemble.shell_program import ShellProgram, ports_of_line, scratch_bytes
from licet.core.algebra.rules import InvalidUse, use_of_path
from licet.core.algebra.scope import visible
from licet.core.decision.decision import CapabilityDenied
from licet.core.decision.placing import inspection_of
from licet.core.decision.reach import Reach
from licet.core.decision.refused_deletes import refused_delete, refused_deletes_line
from licet.core.decision.request import REASON_OF_DOMAIN
from licet.core.late_pattern import late_pattern
from licet.errors import LicetError
from licet.guard.execution import Finished, ended_by, limit_name
from licet.guard.facts import Call
from licet.guard.grant import Grant
from licet.guard.open_call import never_ran, run_open
from licet.guard.result import Result
from licet.hooks.limits import LONGEST_LINE, MOST_STATE_BYTES, REFUSALS_SHOWN, SCRATCH_LOOK_SECONDS
from licet.hooks.tickets import AgentShell, Ticket, Tickets
from licet.own_files import open_regular, read_most
from licet.sandbox.programs.supervisor_client import Supervisor
from licet.sandbox.programs.terminal_streams import AttachedStreams
from licet.sandbox.scratch import SessionScratch, session_scratch
from licet.sandbox.streams import write_all

REFUSED = 125  # as `licet run`
LATE = 124

_KILL = 9
_ENDED = "licet_ended"  # a variable in shells
_CURRENT = "shell"  # in the state of a session: what the last line has left
_COMPLETE = b"# complete\n"
_LONGEST_PATH = 4096  # bytes
_SHELLS = ("bash", "dash", "ksh", "sh", "zsh")  # those that read a line as it is written here
# What ends or changes a quoted text in some shell: `'` and what PowerShell takes for it, and in fish a backslash that
# stands before one, at the end, or before another.
_QUOTES = late_pattern("(?:['\u2018-\u201b]|\\\\(?=['\u2018-\u201b\\\\]|\\Z)|(?<=\\\\)\\\\)+")


class NotAsLine(LicetError):
    """A text that no rewritten line can carry, so the call is refused."""


def shell_path(named: str, own: str | None = None, user: int | None = None) -> str:
    """The shell that an agent runs lines with: a path, a name of the system's, or that of its user, `$SHELL`.

    `own` is what the agent says of the last; else it is the login shell of the user. Raises `NotAsLine` for a shell
    that may read a line in another way than it is quoted here.
    """
    if named == "$SHELL":
        named = _login_shell(os.getuid() if user is None else user) if own is None else own
        if os.path.basename(named) not in _SHELLS:
            advice = "set another with `chsh -s /bin/bash`" if own is None else "start the agent with `SHELL=/bin/bash`"
            raise NotAsLine(
                f"the agent runs lines with `{visible(named)}`, which may read them in another way: {advice} "
                f"(or {', '.join(one for one in _SHELLS if one != 'bash')})"
            )
    places = (
        [named] if os.path.isabs(named) else [f"{place}/{named}" for place in ("/bin", "/usr/bin", "/usr/local/bin")]
    )
    return next((path for path in places if os.access(path, os.X_OK)), "/bin/sh")


def _login_shell(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_shell or "/bin/sh"
    except KeyError:  # a user without an entry, as in containers
        return "/bin/sh"


# The line that the agent runs ----------------------------------------------------------------------------------------


def rewritten(
    text: str,
    ticket: str,
    client: Sequence[str],
    shell: AgentShell,
    back: str = "",
    *,
    other_shells: bool = False,
    ends_shell: bool = False,
) -> str:
    """The line that an agent runs instead of a text. Raises `NotAsLine`.

    `client` are the words that start licet's client. `back` is `Tickets.directory_link` of the ticket, for a shell that
    keeps its directory: after the line it goes there, if licet has made that link. `other_shells` and `ends_shell` are
    those of the agent's dialect.
    """
    quoted = _quoted_anywhere(text) if other_shells else _quoted(text)
    line = f"{'exec ' if ends_shell else ''}{shlex.join(client)} line {ticket} {quoted}"
    if shell.keeps != "nothing":
        go = f"{_builtin(shell)}cd -P {shlex.quote(back)} 2>/dev/null || :"
        line = f"{line}; {_ENDED}=$?; {go}; (exit ${_ENDED})"
    if len(line.encode()) > LONGEST_LINE:
        raise NotAsLine(f"the line is too long to be put behind walls: at most {LONGEST_LINE} bytes with its quotes")
    return line


def _quoted(text: str) -> str:
    """A text as one word of any POSIX shell."""
    _check_text(text)
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_anywhere(text: str) -> str:
    """The same; fish reads it as the same word, and PowerShell as several, without running any of it."""
    _check_text(text)
    return "'" + _QUOTES.sub(lambda found: "'\"" + found[0].replace("\\", "\\\\") + "\"'", text) + "'"


def _check_text(text: str) -> None:
    if "\0" in text:
        raise NotAsLine("the line has a NUL character, which no shell can be given")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotAsLine("the line has half of a surrogate pair, which is no text") from None


def _builtin(shell: AgentShell) -> str:
    """What makes a shell use its own `cd`, and not a function of its user."""
    return "builtin " if os.path.basename(shell.path) in ("bash", "zsh") else "command "


# The shell behind walls -----------------------------------------------------------------------------------------------


class _Kept(Struct, frozen=True):
    """The files of one line in the state of its session: names below that directory."""

    directory: str
    shell: str


def shell_words(
    text: str, shell: AgentShell, state: str, kept: _Kept, *, has_state: bool, passing: Sequence[str] = ()
) -> list[str]:
    """The arguments of the shell that runs a text, and then writes down what lasts.

    The text is read by `eval` where something follows it, as agents do it themselves: an error of its syntax, an `exit`
    or an `exec` then has its own effect. In these cases nothing is written, and what the line before has left stays.
    """
    if shell.keeps == "nothing":
        return ["-c", "--", text]
    before, save = "", ""
    if shell.keeps == "shell":
        before = f". {shlex.quote(f'{state}/{_CURRENT}')} >/dev/null 2>&1; " if has_state else ""
        save = _save(shell, shlex.quote(f"{state}/{kept.shell}"), passing)
    command = f"{_builtin(shell)}pwd -P >|{shlex.quote(f'{state}/{kept.directory}')} || :"
    evaluated = _quoted(f" {text}" if text.startswith("-") else text)
    return ["-c", f"{before}eval {evaluated}\n{{ {_ENDED}=$?; {save}{command}; (exit ${_ENDED}); }} 2>/dev/null"]


# Their values are of one shell alone.
_PASSING = f"PWD SHLVL _ RANDOM SRANDOM SECONDS LINENO BASH_ARGV0 {_ENDED}"
# The commands that print the state of a shell for `.`: options last, since they change how the rest is read. Not in a
# substitution, where bash clears one of them.
_STATE_OF = {
    "bash": f"unset -v {_PASSING} || :; declare -p; declare -f; declare -Fx; alias -p; shopt -p || :; set +o",
    "zsh": "typeset -px; functions; alias -L; set +o",
}
_STATE_OF_OTHERS = (
    'export -p; alias | while IFS= read -r licet_alias; do echo "alias $licet_alias"; done; '
    'for o in a b C f u e; do case $- in *$o*) echo "set -$o";; *) echo "set +$o";; esac; done'
)


def _save(shell: AgentShell, file: str, passing: Sequence[str]) -> str:
    forget = f"unset -v {' '.join(passing)} || :; " if passing else ""  # each line has stand-ins of its own
    state = _STATE_OF.get(os.path.basename(shell.path), _STATE_OF_OTHERS)
    return f"( {{ {forget}{state}; echo '# complete'; }} >|{file} ); "


# The run --------------------------------------------------------------------------------------------------------------


class LineStreams(Struct, frozen=True):
    """The descriptors of the agent's shell. The caller owns them, and may close them when `run_line` has returned."""

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2


class LineSignals:
    """Passes signals that a client of a line gets on to the line; those that come before it runs are kept for it."""

    def __init__(self) -> None:
        self._send: Callable[[int], None] | None = None
        self._waiting: list[int] = []

    def send(self, number: int) -> None:
        """Pass a signal on, in the thread of the loop. A Ctrl-C goes to all that the line has started."""
        if self._send is None:
            self._waiting.append(number)
        else:
            self._send(number)

    def lead_to(self, send: Callable[[int], None]) -> None:
        """Pass signals on to this function from now on."""
        self._send = send
        for number in self._waiting:
            send(number)
        self._waiting.clear()


async def run_line(
    call: Call,
    name: str,
    ticket: Ticket,
    text: str,
    streams: LineStreams,
    variables: Mapping[str, str],
    *,
    tickets: Tickets,
    ready: Supervisor | None = None,
    signals: LineSignals | None = None,
) -> int:
    """Run the text of a redeemed ticket and close its call; returns the exit code for the agent's shell.

    `call` is the open call of the ticket, and `name` its id. Of `variables` the shell gets those that the policy names,
    and `TERM`. `ready` is a supervisor that was started in advance. Cancelling this ends the line with all that it has
    started. Nothing is kept of the line but what its session keeps. What licet has to say goes to `stderr`.
    """
    attached = AttachedStreams((streams.stdin, streams.stdout, streams.stderr), own_terminal=True)
    if signals is not None:
        signals.lead_to(attached.signal_soon)
    line = _Line(call, name, ticket, text, attached)
    in_time = False
    try:
        code = await line.run(variables, tickets, ready)
        in_time = not line.was_cut
    finally:
        # In a thread: the agent may read slowly. It goes on if this task is cancelled meanwhile.
        await asyncio.shield(asyncio.to_thread(attached.finish, wait=in_time))
    if attached.lost:
        line.says.append(attached.lost)
    if line.says:
        said = "".join(f"licet: {one}\n" for one in line.says).encode()
        await asyncio.to_thread(_write, streams.stderr, said)
    return code or (1 if attached.lost else 0)


def _write(stream: int, text: bytes) -> None:
    with suppress(OSError):
        write_all(stream, text)


class _Line:
    """One line while it runs."""

    def __init__(self, call: Call, name: str, ticket: Ticket, text: str, attached: AttachedStreams) -> None:
        self._call, self._ticket, self._text, self._attached = call, ticket, text, attached
        self._name = name
        self._kept = _Kept(f"{name}.directory", f"{name}.shell")
        self._ended: list[Finished] = []
        self.says: list[str] = []  # what licet tells of it
        self.was_cut = False  # it was ended: its output may be that of a process that writes no more

    async def run(self, variables: Mapping[str, str], tickets: Tickets, ready: Supervisor | None) -> int:
        ticket, call, most = self._ticket, self._call, 0
        with ExitStack() as stack:
            scratch: SessionScratch | None = None
            if call.grant is not None:
                most = scratch_bytes(call.grant.reach)
                held = session_scratch(f"{ticket.agent}/{ticket.session}", most)
                try:
                    scratch = await asyncio.to_thread(stack.enter_context, held)
                except asyncio.CancelledError:
                    await never_ran(call, "its client ended before the line was run")
                    raise
                except OSError as wrong:
                    return await self._refused(f"the scratch of the session cannot be used: {wrong.strerror or wrong}")
            if scratch is None:
                return await self._refused("its call has no grant")
            has_state = os.path.lexists(os.path.join(scratch.state, _CURRENT))
            reach = call.grant.reach if call.grant is not None else None
            passing = [one.name for one in inspection_of(reach).stand_ins] if reach is not None else []
            program = ShellProgram(
                ticket.shell.path,
                lambda state: shell_words(
                    self._text, ticket.shell, state, self._kept, has_state=has_state, passing=passing
                ),
                ticket.directory,
                ticket.reads_only,
            )
            unnamed = {name: variables[name] for name in ("TERM",) if name in variables}
            call.ports = ports_of_line(
                call, program, scratch, self._attached, self._ended, variables=variables, unnamed=unnamed, ready=ready
            )
            try:
                async with self._bounded(scratch, most):
                    result = await run_open(call)
            finally:
                self._keep(scratch, tickets)
            return self._code(result)

    async def _refused(self, why: str) -> int:
        await never_ran(self._call, why, "SANDBOX_UNAVAILABLE")
        self.says.append(why)
        return REFUSED

    @asynccontextmanager
    async def _bounded(self, scratch: SessionScratch, most: int) -> AsyncIterator[None]:
        """End the line if its session has more in scratch than it may."""
        watching = asyncio.create_task(self._watch(scratch, most))
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self, scratch: SessionScratch, most: int) -> None:
        pause = SCRATCH_LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            if await asyncio.to_thread(scratch.exceeds, most):
                self.was_cut = True
                self.says.append(f"the line was ended: its session has too much in scratch, {limit_name('LIMIT_DISK')}")
                self._attached.signal_soon(_KILL)
                return
            pause = max(SCRATCH_LOOK_SECONDS, 20 * (time.monotonic() - began))

    def _keep(self, scratch: SessionScratch, tickets: Tickets) -> None:
        """Take what the shell has written down. All of it may be of anything that ran in the line, so it is data."""
        state = scratch.state
        with suppress(OSError):
            if self._call.grant is not None and self._ticket.shell.keeps != "nothing":
                found = _last_directory(os.path.join(state, self._kept.directory), self._call.grant)
                if found is not None and found != os.path.realpath(self._ticket.directory):
                    tickets.tell_directory(self._name, found)
        with suppress(OSError):
            written = os.path.join(state, self._kept.shell)
            if _is_complete(written):
                os.rename(written, os.path.join(state, _CURRENT))
        for name in (self._kept.directory, self._kept.shell):
            with suppress(OSError):
                os.unlink(os.path.join(state, name))

    def _code(self, result: Result) -> int:
        """The exit code, and what has to be told beside it."""
        finished = self._ended[-1] if self._ended else None
        if result.reason == "LIMIT_TIME" or (finished is not None and finished.timed_out):
            self.was_cut = True
            self.says.append(f"the line ran for longer than it may ({limit_name('LIMIT_TIME')}), and was ended")
            return LATE
        if finished is None or not result.ok:
            how = "ended" if self._call.was_cut and self._call.running else "not run"
            self.says.append(f"the line was {how}: {result.error}" if finished is None else result.error)
            self.says += _receipt(result)
            return REFUSED
        if finished.reason:
            self.says.append(f"the line ended {ended_by(finished.reason, finished.detail)}")
        code = finished.exit_code
        reach = self._call.registered.reach if self._call.registered is not None else None
        self.says += _met(result, reach)
        return code if code >= 0 else 128 - code


def _receipt(result: Result) -> Sequence[str]:
    return (f"`licet receipts show {result.receipt}` says why",) if result.receipt else ()


def _met(result: Result, reach: Reach | None) -> list[str]:
    """What was refused, since many programs do not say it, and a line of an agent often ends with 0 all the same."""
    deletes = refused_deletes_line(result.events, reach)
    refused = [event for event in result.events if isinstance(event, CapabilityDenied) and not refused_delete(event)]
    found = list(dict.fromkeys(visible(f"{one.capability} was refused") for one in refused))
    more = [f"{len(found) - REFUSALS_SHOWN} more were refused"] if len(found) > REFUSALS_SHOWN else []
    if any(one.reason in REASON_OF_DOMAIN.values() for one in refused) and result.receipt:
        more.append(f"a person can allow it with `licet allow {result.receipt}`")
    lines = [*([deletes] if deletes else []), *found[:REFUSALS_SHOWN], *more]
    return [*lines, *(_receipt(result) if lines else ())]


def _last_directory(file: str, grant: Grant) -> str | None:
    """The directory that a shell has written down, if the agent's shell may go there; None otherwise.

    It must be a real path, so that each link on the way was resolved before the policy was asked.
    """
    try:
        with open_regular(file, links=False) as opened:
            raw = read_most(opened, _LONGEST_PATH + 2)
        path = raw.removesuffix(b"\n").decode()
        is_plain = path.startswith("/") and len(raw) <= _LONGEST_PATH and path == visible(path)
        if not is_plain or os.path.realpath(path) != path or not stat.S_ISDIR(os.lstat(path).st_mode):
            return None
        return path if grant.capabilities.has(use_of_path("read", path)) else None
    except (OSError, ValueError, InvalidUse):
        return None


def _is_complete(file: str) -> bool:
    """Whether the state of a shell was written to its end."""
    with open_regular(file, links=False) as opened:
        size = os.fstat(opened).st_size
        return size <= MOST_STATE_BYTES and os.pread(opened, 64, max(0, size - 64)).endswith(_COMPLETE)
