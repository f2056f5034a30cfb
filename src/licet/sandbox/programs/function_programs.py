"""Programs that are Python functions, for tests: with the same limits and results as real ones."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from licet.guard.execution import Command, Ending, Finished, Layers, Running, Streams, Walls
from licet.sandbox.programs.supervisor_client import Pipes
from licet.sandbox.streams import Receiver, Sender

Program = Callable[[Command], Awaitable[Finished]]
ProgramFunction = Callable[[Command], "Finished | str | bytes | Awaitable[Finished | str | bytes]"]


class MemoryProcesses:
    """Programs by real path, and names for them."""

    in_memory = True

    def __init__(self, programs: Mapping[str, Program], names: Mapping[str, str] | None = None) -> None:
        self._programs = dict(programs)
        self._names = dict(names or {})
        self.ran: list[Command] = []

    def find(self, name: str) -> str | None:
        """The real path of a program by name or path, or None."""
        path = self._names.get(name, name)
        return path if path in self._programs else None

    async def run(self, command: Command, walls: Walls) -> Finished:
        """Call the function of a program. Raises `OSError` if there is none."""
        program, command = self._program(walls.around(command))
        finished = await _in_time(program, command)
        cap = command.output_bytes
        truncated = max(len(finished.stdout_bytes), len(finished.stderr_bytes)) > cap
        return replace(
            finished,
            stdout_bytes=finished.stdout_bytes[:cap],
            stderr_bytes=finished.stderr_bytes[:cap],
            truncated=truncated,
            reason=finished.reason or ("LIMIT_OUTPUT" if truncated else ""),
        )

    @asynccontextmanager
    async def start(self, command: Command, walls: Walls, streams: Streams) -> AsyncIterator[Running]:
        """A program with pipes: its function is called when the input has ended, and then the output is written."""
        program, command = self._program(walls.around(command))
        running = _RunningFunction(program, command, streams)
        try:
            yield running
        finally:
            await running.stop()
            running.left()

    def _program(self, command: Command) -> tuple[Program, Command]:
        if not command.binary.startswith("/"):
            raise ValueError(f"expected the absolute path of a program, found `{command.binary}`")
        if any("\0" in part for part in (*command.argv, *command.environment, *command.environment.values())):
            raise ValueError("expected arguments and variables without NUL and lone surrogates")
        if command.binary not in self._programs:
            raise FileNotFoundError(2, "No such file or directory", command.binary)
        self.ran.append(command)
        return self._programs[command.binary], command


class NoWalls:
    """The walls of programs that are functions: there is nothing to put around one."""

    layers = Layers(("no walls: a test",))

    def load_code(self) -> None:
        """Nothing is needed."""

    def walls(self, held: object) -> Walls:
        """The same for every grant."""
        return self

    def around(self, command: Command) -> Command:
        """The command itself."""
        return command


def memory_programs(given: Mapping[str, ProgramFunction | str | bytes]) -> MemoryProcesses:
    """Programs by name or path, each a function or what it prints."""
    paths = {name: name if name.startswith("/") else f"/usr/bin/{name}" for name in given}
    return MemoryProcesses({paths[name]: _program(found) for name, found in given.items()}, paths)


def _program(given: ProgramFunction | str | bytes) -> Program:
    async def program(command: Command) -> Finished:
        found = given(command) if callable(given) else given
        ended = await found if inspect.isawaitable(found) else found
        if isinstance(ended, Finished):
            return ended
        return Finished(0, ended.encode() if isinstance(ended, str) else ended, b"")

    return program


async def _in_time(program: Program, command: Command) -> Finished:
    with suppress(TimeoutError):
        return await asyncio.wait_for(program(command), command.seconds)
    return Finished(-9, b"", b"", timed_out=True, reason="LIMIT_TIME")


class _RunningFunction:
    """The function of a program, between pipes."""

    def __init__(self, program: Program, command: Command, streams: Streams) -> None:
        self._streams = streams
        self._pipes = Pipes()
        self._ends = [
            self._pipes.pipe() if wanted else None for wanted in (streams.stdin, streams.stdout, streams.stderr)
        ]
        self._signal = 0
        self.ending: Ending | None = None
        self._ended: Ending | None = None
        self._task = asyncio.ensure_future(self._run(program, command))

    async def _run(self, program: Program, command: Command) -> Ending:
        stdin, *outputs = self._ends
        if stdin is not None:
            taken = Receiver(stdin[0], 1 << 30)
            try:
                await taken.done
            finally:
                taken.stop()
            command = replace(command, stdin=bytes(taken.data))
        finished = await _in_time(program, command)
        said = [finished.stdout_bytes, finished.stderr_bytes]
        if self._streams.joined:
            said = [finished.stdout_bytes + finished.stderr_bytes, b""]
        senders = [Sender(end[1], data, self._pipes.shut) for end, data in zip(outputs, said, strict=True) if end]
        try:
            await asyncio.gather(*(sender.done for sender in senders))
        finally:
            for sender in senders:
                sender.stop()
        return Ending(finished.exit_code, finished.reason, finished.detail)

    def handed(self) -> tuple[int, ...]:
        """Our ends of the requested pipes, which the caller closes."""
        near = [end[1 if number == 0 else 0] for number, end in enumerate(self._ends) if end is not None]
        return tuple(self._pipes.give(fd) for fd in near)

    def signal(self, number: int) -> None:
        """End it: a function handles no signals."""
        self._signal = number
        self._task.cancel()

    async def ended(self) -> int:
        """Wait for the exit code."""
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._ended = self._task.result()
            return self._ended.returncode
        for end in self._ends[1:]:
            if end is not None:
                self._pipes.shut(end[1])
        self._ended = Ending(-self._signal, "")
        return self._ended.returncode

    def left(self) -> None:
        """Set `ending`."""
        self.ending = self._ended

    async def stop(self) -> None:
        """End it if it still runs."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._pipes.close()
