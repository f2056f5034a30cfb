"""`ctx.process`: programs that a call may start, each behind walls with the grant of the call.

This module decides which program may start. What it can do then is limited by the walls alone: a list of programs is
no boundary, because many programs can start others.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NoReturn

from msgspec.structs import replace

from licet.core.algebra.rules import InvalidUse, Use, path_text, use_of_path
from licet.core.algebra.scope import TOP, inside
from licet.core.decision.request import Reason
from licet.core.policy.layer import seconds
from licet.errors import Refused
from licet.guard.execution import (
    AFTER_REPLACING,
    Command,
    Ending,
    Finished,
    Processes,
    Running,
    Sandbox,
    SandboxUnavailable,
    Streams,
    Walls,
    give_secrets,
    limit_name,
)
from licet.guard.grant import Grant
from licet.guard.handles.secrets_and_kv import Placeholders
from licet.guard.held_paths import held_paths
from licet.guard.limits import FILES_OF_A_RUN, FILES_OF_A_START, MOST_EXIT_CODES, OUTPUT_BYTES
from licet.guard.meter import Exceeded
from licet.guard.ports import Unavailable
from licet.guard.redaction.redact import Redactor, in_turn

# The message for each limit.
_LIMITS: Mapping[Reason, str] = {
    "LIMIT_TIME": "ran for longer than it may",
    "LIMIT_CPU": "used more time of the processor than it may",
    "LIMIT_MEMORY": "failed with nearly all the memory in use that it may have",
    "LIMIT_PROCESSES": "failed with as many processes as it may have",
    "LIMIT_FILE_SIZE": "wrote a larger file than it may",
    "LIMIT_DISK": "failed with as much in scratch as it may have",
    "LIMIT_PATHS": "failed, as the call had made as many files and directories as it may",
    "LIMIT_OUTPUT": "wrote more than is kept of it",
}


class ScopedProcesses:
    """`ctx.process` of one call. Names of programs were looked up on the host's PATH when the gate was built."""

    __slots__ = (
        *("_binaries", "_environ", "_grant", "_output_bytes", "_placeholders", "_processes", "_sandbox"),
        *("_seconds", "_workdir"),
    )

    def __init__(
        self,
        grant: Grant,
        processes: Processes | None,
        sandbox: Sandbox | None,
        *,
        binaries: Mapping[str, str],
        environ: Mapping[str, str] | None = None,
        placeholders: Placeholders | None = None,
        workdir: str = "/",
        seconds: float = 30.0,
        output_bytes: int = OUTPUT_BYTES,
    ) -> None:
        self._grant = grant
        self._processes = processes
        self._sandbox = sandbox
        self._binaries = binaries
        self._environ = {} if environ is None else environ
        self._placeholders = placeholders
        self._workdir = workdir
        self._seconds = seconds
        self._output_bytes = output_bytes

    async def spawn(
        self,
        name: str,
        args: Iterable[str] = (),
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> Finished:
        """Run a program until it ends. Its environment has only declared variables."""
        use, command, walls = await self._prepared(name, args, env, cwd, timeout)
        command = replace(command, stdin=stdin.encode() if isinstance(stdin, str) else bytes(stdin))
        return await self._ran(use, command, walls)

    async def _ran(self, use: Use, command: Command, walls: Walls) -> Finished:
        try:
            async with self._grant.meter.files(FILES_OF_A_RUN):
                finished = await self._backend(use).run(command, walls)
        except Exceeded as over:
            self._grant.exceeded(over, use)
        except (SandboxUnavailable, Unavailable, OSError) as wrong:
            self._not_run(use, wrong)
        self._record(use, Ending(finished.exit_code, finished.reason, finished.detail))
        placed = self._placeholders.placed if self._placeholders is not None else None
        return await _redacted(finished, placed, self._output_bytes) if placed else finished

    async def _run_chosen(self, binary: str, args: Iterable[str], cwd: str) -> Finished:
        """As `spawn`, for a program that licet has chosen for a tool: no rule has to allow it, and a deny counts."""
        use = self._chosen(binary)
        directory = self._directory(cwd)
        self._grant.check_standing()
        walls = await self._walls(use)
        argv = (binary, *_texts(args))
        found = self._backend(use).find(binary)
        if found is None:
            self._grant.refuse("BACKEND_MISSING", f"there is no program called {binary} here", use)
        command = Command(found, argv, self._declared(), directory, b"", self._seconds, self._output_bytes)
        return await self._ran(use, command, walls)

    def _chosen(self, binary: str) -> Use:
        """The use of a program by its absolute path; refused if a rule denies it by its path or its name."""
        use = Use(f"process:exec:{binary}")
        for one in (use, Use(f"process:exec:{os.path.realpath(binary)}"), *self._base_names([use])):
            if self._grant.capabilities.verdict(one) is False:
                self._grant.check(one)
        return use

    def _within(self, timeout: object, use: Use) -> float:
        """How long a program may run: the caller's timeout, but no longer than the call."""
        if timeout is None:
            return self._seconds
        try:
            return min(seconds(timeout, "timeout"), self._seconds)
        except ValueError as wrong:
            self._grant.refuse("INPUT_INVALID", str(wrong), use)

    @asynccontextmanager
    async def _started(
        self, name: str, args: Iterable[str], streams: Streams, env: Mapping[str, str] | None, cwd: str | None
    ) -> AsyncIterator[Running]:
        """As `spawn`, but with pipes to the running program. The `subprocess` module of a worker uses it."""
        use, command, walls = await self._prepared(name, args, env, cwd)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._grant.meter.files(FILES_OF_A_START))
                running = await stack.enter_async_context(self._backend(use).start(command, walls, streams))
            except Exceeded as over:
                self._grant.exceeded(over, use)
            except (SandboxUnavailable, Unavailable, OSError) as wrong:
                self._not_run(use, wrong)
            yield running
        if running.ending is not None:
            self._record(use, running.ending)

    def _record(self, use: Use, ending: Ending) -> None:
        """Add the end of a program to the receipt."""
        if len(self._grant.ended) < MOST_EXIT_CODES:
            self._grant.ended += (ending.returncode,)
        if ending.limit == "CLOSED_FILE_REPLACED":
            self._grant.limited(ending.limit, f"{use.target} was ended: {ending.detail}", use, AFTER_REPLACING)
        elif ending.limit:
            what, fix = _LIMITS[ending.limit], f"the limit is {limit_name(ending.limit)}"
            self._grant.limited(ending.limit, f"{use.target} {what}", use, fix)

    async def _prepared(
        self,
        name: str,
        args: Iterable[str],
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
        timeout: object = None,
    ) -> tuple[Use, Command, Walls]:
        """Check everything about a program, before it is started."""
        use, binary, called = self._program(name)
        argv = (called, *_texts(args))
        within = self._within(timeout, use)
        given = self._given(env)
        directory = self._directory(cwd)
        self._grant.check_standing()
        walls = await self._walls(use)
        environment = self._declared()
        for variable, value in given.items():
            # Last, so that no secret is fetched for a program that is refused.
            environment[variable] = await self._placeholders.resolve(value) if self._placeholders else value
        return use, Command(binary, argv, environment, directory, b"", within, self._output_bytes), walls

    def _not_run(self, use: Use, wrong: Exception) -> NoReturn:
        if isinstance(wrong, SandboxUnavailable):
            self._grant.refuse("SANDBOX_UNAVAILABLE", f"{use.target} cannot be run: {wrong}", use, place=wrong.place)
        if isinstance(wrong, OSError):
            self._grant.refuse("BACKEND_MISSING", f"{use.target} could not be started: {wrong.strerror}", use)
        self._grant.refuse("BACKEND_MISSING", f"{use.target} could not be run here", use, str(wrong))

    def check_startable(self, name: str) -> None:
        """Refuse a program that may not be started or is not there; nothing is recorded of one that can be."""
        self._startable(name)

    def _program(self, name: str) -> tuple[Use, str, str]:
        """The granted use, the file to run, and the name for `argv[0]`."""
        found = self._startable(name)
        self._grant.check(found[0])
        return found

    def _startable(self, name: str) -> tuple[Use, str, str]:
        try:
            asked = Use(f"process:exec:{name}")
        except InvalidUse as wrong:
            self._grant.invalid("BINARY_NOT_ALLOWED", wrong)
        called, grant = asked.target, self._grant.capabilities
        if not (grant.has(asked) or self._held_by_path()):
            self._grant.check(asked)  # refuses without looking for the file
        real, failed = self._found(called)
        uses = [asked]
        if real is not None and real != called:
            uses.append(Use(f"process:exec:{real}"))
        for use in (*uses, *self._base_names(uses)):
            if grant.verdict(use) is False:
                self._grant.check(use)
        granted = next((use for use in uses if grant.has(use)), asked)
        if not grant.has(granted):
            self._grant.check(granted)
        self._backend(granted)
        if real is None:  # after the check: only who may run it learns that it is missing
            self._grant.refuse("BACKEND_MISSING", failed or f"there is no program called {called} here", asked)
        return granted, real, called

    def _held_by_path(self) -> bool:
        """Whether the grant has programs by path: then the file of a name must be found before the check."""
        rules = self._grant.capabilities.allow
        return any(rule.domain == "process" and str(rule.key).startswith("/") for rule in rules)

    def _found(self, name: str) -> tuple[str | None, str]:
        """The file of a program, or None and the error of the backend, if there was one."""
        if name in self._binaries:
            return self._binaries[name], ""
        if self._processes is None:
            return None, ""
        try:
            return self._processes.find(name), ""
        except Exception as error:  # its text may contain anything, so only the type is shown
            return None, f"the backend failed to find {name}: {type(error).__name__}"

    def _backend(self, use: Use) -> Processes:
        return self._grant.backend(self._processes, use)

    def _base_names(self, uses: list[Use]) -> list[Use]:
        # A deny of a name also applies to a path with that name.
        names = {os.path.basename(use.target) for use in uses if "/" in use.target}
        return [Use(f"process:exec:{name}") for name in sorted(names)]

    def _given(self, env: Mapping[str, str] | None) -> dict[str, str]:
        """Check the variables that the caller sets. A rule must name each: under `*` a caller could set LD_PRELOAD."""
        given = {}
        named = self._named()
        for name, value in dict(env or {}).items():
            try:
                use = Use(f"env:read:{name}")
            except InvalidUse as wrong:
                self._grant.invalid("ENV_NOT_ALLOWED", wrong)
            self._grant.check(use)
            if use.target not in named:
                self._grant.refuse(
                    "ENV_NOT_ALLOWED", f"{use.target} is not named: `*` sets no variable of a child", use,
                    f"name `{use.target}` in the tool's `env` and under `capabilities.env`",
                )  # fmt: skip
            (given[use.target],) = _texts((value,))
        return given

    def _declared(self) -> dict[str, str]:
        declared = {}
        for name in sorted(self._named()):
            if name in self._environ:
                self._grant.check(Use(f"env:read:{name}"))
                declared[name] = self._environ[name]
        return declared

    def _named(self) -> set[str]:
        return {rule.key for rule in self._grant.capabilities.allow if rule.domain == "env" and rule.key != TOP}

    def _directory(self, cwd: object) -> str:
        """The real path of the working directory of the child; the call must be allowed to read it.

        If none is named, it is that of the call, as soon as the walls show it: the call may also only write there.
        """
        if cwd is None:
            home = os.path.realpath(self._workdir)
            uses = (use_of_path(action, home) for action in ("read", "write"))
            return home if any(map(self._grant.capabilities.has, uses)) or self._holds_below(home) else "/"
        sent = ""
        try:
            sent = path_text(cwd)
            use = use_of_path("read", sent, self._workdir)
            self._grant.check(use)
            real = use_of_path("read", os.path.realpath(use.target))
            if real != use:
                self._grant.check(real)
        except InvalidUse as wrong:
            self._grant.invalid("PATH_NOT_REACHABLE", wrong)
        except Refused as refusal:  # it must not show a directory of the host, or the target of a link
            raise refusal.repeating(self._grant.redacted(sent)) from refusal.__cause__
        return real.target

    def _holds_below(self, directory: str) -> bool:
        """Whether something below a directory is granted. Then the walls show the directory with only that in it."""
        held = held_paths(self._grant.capabilities)
        paths = [path for path in (*held.allowed("read"), *held.allowed("write")) if os.path.lexists(path)]
        reals = {*map(os.path.realpath, paths)} - {directory}
        return any(inside(real, (directory,)) for real in reals)

    async def _walls(self, use: Use) -> Walls:
        text, place = "no sandbox is configured", None
        if self._sandbox is not None:
            try:
                walls = self._sandbox.walls(self._grant)
                await give_secrets(walls, self._secret)
            except SandboxUnavailable as missing:
                text, place = str(missing), missing.place
            else:
                self._grant.programs = walls.layers
                return walls
        self._grant.refuse("SANDBOX_UNAVAILABLE", f"{use.target} cannot be run: {text}", use, place=place)

    async def _secret(self, reference: str) -> str:
        """A secret that the walls keep outside; the call must hold it."""
        if self._placeholders is None:
            raise SandboxUnavailable("the keys of `stand_ins` cannot be read: this call has no secrets")
        return await self._placeholders.get(reference)


async def _redacted(finished: Finished, placed: Redactor, most: int) -> Finished:
    """The output of a program without the placed secrets. Labels may make it longer, so it is cut again."""
    clean = [
        await in_turn(placed.work(written, cut=finished.truncated and len(written) >= most))
        for written in (finished.stdout_bytes, finished.stderr_bytes)
    ]
    longer = any(len(text) > most for text in clean)
    cut = finished.truncated or longer
    return replace(finished, stdout_bytes=clean[0][:most], stderr_bytes=clean[1][:most], truncated=cut)


def _texts(values: Iterable[Any]) -> list[str]:
    """Check that values are texts without NUL, where a system call would cut them."""
    found = []
    for value in values:
        if not issubclass(type(value), str):
            raise TypeError(f"expected text, found {type(value).__name__}")
        text = str.__str__(value)
        if "\0" in text:
            raise ValueError("expected text without NUL")
        found.append(text)
    return found


def started(
    processes: ScopedProcesses,
    name: str,
    args: Iterable[str],
    streams: Streams,
    env: Mapping[str, str] | None,
    cwd: str | None,
) -> AbstractAsyncContextManager[Running]:
    """A running program with raw pipes, for the broker, which redacts them. A function, so that no tool finds it."""
    return processes._started(name, args, streams, env, cwd)  # noqa: SLF001 - of the class above


def run_chosen(processes: ScopedProcesses, binary: str, args: Iterable[str], cwd: str) -> Awaitable[Finished]:
    """Run a program that licet has chosen for a tool, such as the shell of a shell tool, until it ends.

    Nothing has to allow it: the decision about the call was the decision about the program. A function, so that no tool
    finds it.
    """
    return processes._run_chosen(binary, args, cwd)  # noqa: SLF001 - of the class above
