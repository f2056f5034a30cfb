"""Programs that are functions, for tests: the same limits and the same answers, and nothing is started."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from licet.guard.ports import Command, Finished, Walls

Program = Callable[[Command], Awaitable[Finished]]


class MemoryProcesses:
    """Programs by real path, and the names that lead to them."""

    def __init__(self, programs: Mapping[str, Program], names: Mapping[str, str] | None = None) -> None:
        self._programs = dict(programs)
        self._names = dict(names or {})
        self.ran: list[Command] = []

    def find(self, name: str) -> str | None:
        """The real path of a program by name or path, or None."""
        path = self._names.get(name, name)
        return path if path in self._programs else None

    async def run(self, command: Command, walls: Walls) -> Finished:
        """Run a function in the place of a program; `OSError` if there is none."""
        command = walls.around(command)
        if not command.binary.startswith("/"):
            raise ValueError(f"expected the absolute path of a program, found `{command.binary}`")
        if any("\0" in part for part in (*command.argv, *command.environment, *command.environment.values())):
            raise ValueError("expected arguments and variables without NUL and lone surrogates")
        if command.binary not in self._programs:
            raise FileNotFoundError(2, "No such file or directory", command.binary)
        self.ran.append(command)
        finished = Finished(-9, b"", b"", timed_out=True)
        with suppress(TimeoutError):
            finished = await asyncio.wait_for(self._programs[command.binary](command), command.seconds)
        cap = command.output_bytes
        return replace(
            finished,
            stdout=finished.stdout[:cap],
            stderr=finished.stderr[:cap],
            truncated=max(len(finished.stdout), len(finished.stderr)) > cap,
        )
