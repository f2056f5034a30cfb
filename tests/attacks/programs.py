"""Real programs behind the handle, with walls that let everything through: what is stopped, the handle stops."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from guard.grants import grant
from licet.guard.handles.processes import ScopedProcesses
from licet.ports import Command, Layers
from licet.sandbox.programs.runner import LocalProcesses


class NoWalls:
    """Walls that let everything through."""

    layers = Layers()

    def around(self, command: Command) -> Command:
        """The command as it is."""
        return command


class Open:
    """A sandbox with such walls."""

    def layers(self, level: str) -> tuple[str, ...]:
        """Nothing is in force."""
        return ()

    async def run(self, level: str, call: Any, context: Any) -> Any:
        """Tools do not run here."""
        raise NotImplementedError

    def walls(self, held: Any) -> NoWalls:
        """Walls that let everything through."""
        return NoWalls()


def programs(*rules: str, path: str = "/usr/bin:/bin", environ: Mapping[str, str] | None = None, **given: Any) -> Any:
    """The handle of a call that holds some rules; its names are pinned now."""
    local = LocalProcesses(path)
    names = [rule.removeprefix("process:exec:") for rule in rules if rule.startswith("process:exec:")]
    pinned = {name: found for name in names if (found := local.find(name))}
    return ScopedProcesses(grant(rules), local, Open(), binaries=pinned, environ=environ, **given)


def alive(process: int) -> bool:
    """Whether a process still runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def spawned(handle: ScopedProcesses, *args: Any, **given: Any) -> Any:
    """What comes back from a program."""
    return asyncio.run(handle.spawn(*args, **given))
