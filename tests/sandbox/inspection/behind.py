"""Programs behind real walls that look into HTTPS, with keys that a test chooses, and servers that they meet there."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import pytest

from guard.grants import grant
from licet.backends.http import HttpClient
from licet.core.policy.inspection import Inspection
from licet.guard.execution import Command, Finished, TakesSecrets
from licet.guard.grant import Grant
from licet.sandbox.inspection import shown
from licet.sandbox.inspection.authority import Authority
from licet.sandbox.inspection.inspected import Inspecting
from licet.sandbox.programs import proxy, walls
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls

PYTHON = os.path.realpath(sys.executable)
HOST = "met.test"
SITE = next(path for path in sys.path if path.endswith("site-packages"))


class Names(HttpClient):
    """The network of this machine, where one more name leads to loopback."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        return ("127.0.0.1",) if host == HOST else tuple(await super().resolve(host, port))


class Keys(NamedTuple):
    """The stand-ins of a program, as a test has chosen them."""

    environment: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}


class Tunnels(proxy.Egress):
    """A proxy that ends no TLS, so that a program meets the certificates of the test's own server."""

    def __init__(self, held: Grant, http: Any, *, inspecting: Inspecting | None = None, **given: Any) -> None:
        super().__init__(held, http, **given)


async def no_value(reference: str) -> str:
    raise AssertionError(f"nobody asks for {reference}")


class Inspected:
    """Programs with stand-ins. `places` reads the keys, as `read_keys` does."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        rules: Sequence[str] = (),
        *,
        inspect: tuple[str, ...] = (f"{HOST}:1",),
        keys: Keys | None = None,
        places: Callable[..., Awaitable[Keys]] | None = None,
        environment: Mapping[str, str] | None = None,
        lasting: Any = None,
        **given: Any,
    ) -> None:
        async def read_keys(inspection: Inspection, value: Any, read_file: Any) -> Keys:
            return keys or Keys()

        monkeypatch.setattr(shown, "read_keys", places or read_keys)
        monkeypatch.setattr(proxy, "Egress", Tunnels)
        monkeypatch.setattr(walls, "inspection_of", lambda _: Inspection(inspect))
        self.grant = grant(["process:exec:*", *rules], private=["127.0.0.0/8"], **given)
        self.walls = ProgramWalls(Names(), lasting=lasting).walls(self.grant)
        self.environment = {"PATH": "/usr/bin:/bin", **(environment or {})}

    async def authority(self) -> Authority:
        """The authority of the programs, whose secrets are taken now."""
        assert isinstance(self.walls, TakesSecrets)
        await self.walls.take_secrets(no_value)
        found: Authority = self.walls._inspecting.authority  # type: ignore[attr-defined]
        return found

    def again(self, rules: Sequence[str]) -> "Inspected":
        """The same keys and authority for programs with other rules."""
        found = copy(self)
        found.grant = grant(["process:exec:*", *rules], private=["127.0.0.0/8"])
        found.walls = ProgramWalls(Names()).walls(found.grant)
        found.walls._inspecting = self.walls._inspecting  # type: ignore[attr-defined]
        return found

    async def run(self, *command: str, directory: str = "/") -> Finished:
        """Run a program to its end; its secrets were taken."""
        processes = LocalProcesses("/usr/bin:/bin")
        binary = processes.find(command[0])
        assert binary is not None
        started = Command(binary, command, self.environment, directory, b"GET / HTTP/1.0\r\n\r\n", 60.0, 1 << 20)
        return await processes.run(started, self.walls)

    def said(self, *command: str, directory: str = "/") -> str:
        """All that a program prints."""

        async def run() -> str:
            await self.authority()
            ended = await self.run(*command, directory=directory)
            return (ended.stdout_bytes + ended.stderr_bytes).decode()

        return asyncio.run(run())

    def python(self, code: str) -> str:
        """What some Python prints."""
        return self.said(PYTHON, "-I", "-S", "-c", f"import os, sys\n{code}")
