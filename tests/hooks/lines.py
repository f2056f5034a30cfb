"""Shell lines behind real walls, and the same lines bare: what both print, their exit codes, and where they end."""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet import Backends, Gate, Manifest, tool
from licet.core.policy.manifest import admit_commands, command_needs
from licet.guard.facts import Call
from licet.guard.open_call import kept, open_call, restored
from licet.hooks.shell_line import LineStreams, run_line
from licet.hooks.tickets import AgentShell, Ticket, Tickets, digest_of, expiry

TOOL = "claude.Bash"
PATH = "/usr/local/bin:/usr/bin:/bin"


def policy(**more: Any) -> dict[str, Any]:
    """A policy for an agent that works in one directory."""
    capabilities = {
        "tools": [TOOL],
        "max_side_effect_class": "full",
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}"]},
        "deny": ["fs:*:${workdir}/.env"],
        "process": {"allowed_binaries": ["*"]},
        "env": ["PATH", "LANG", "GIVEN"],
        "approvals": {"write": "manifest", "delete": "manifest"},
        "budget": {"max_calls_per_day": 10_000},
        "limits": {"wall_seconds": 300, **more.pop("limits", {})},
    }
    return {"agent": "coder", "capabilities": {**capabilities, **more}}


async def _shell(command: str) -> int:
    """Run a shell line."""
    raise NotImplementedError


class Ended(Struct, frozen=True):
    """What came of a line."""

    stdout: bytes
    stderr: bytes
    code: int
    directory: str = ""  # where the agent's shell goes afterwards


class Desk:
    """A project with a policy, the tickets of its user, and a session of an agent."""

    def __init__(self, place: Path, data: Mapping[str, Any] | None = None) -> None:
        self.project, self.state = place / "project", place / "state"
        self.project.mkdir(exist_ok=True)
        self.tickets = Tickets(self.state / "tickets")
        self._data = data or policy()
        self.session = f"claude/{place.name}-{os.getpid()}"
        self.shell = AgentShell("/bin/bash")
        self.variables = {"PATH": PATH, "TERM": "dumb", "GIVEN": "given", "SECRET": "secret"}

    def gate(self) -> Gate:
        """A gate like that of the hooks, in any process."""
        manifest = Manifest.from_data(self._data)
        manifest = admit_commands(manifest, TOOL)
        spec = tool(needs=command_needs(manifest), name=TOOL, effect=manifest.max_effect, sandbox="isolated")(_shell)
        return Gate(
            manifest,
            [spec],
            Backends.local(self.state, approver=lambda _: "approved"),
            workdir=self.project,
            unchecked_imports=True,
        )

    async def opened(self, text: str, directory: Path | None = None, **ticket: Any) -> tuple[str, Ticket]:
        """Decide a line, as a hook does, and issue its ticket."""
        gate = self.gate()
        session = gate.session(ticket.get("session", self.session))
        call = await open_call(session, session.admission, TOOL, {"command": text})
        assert isinstance(call, Call), call
        given: dict[str, Any] = {
            "agent": "claude",
            "session": self.session,
            "text_digest": digest_of(text),
            "shell": self.shell,
            "directory": str(directory or self.project),
            "policy": "licet.yaml",
            "policy_digest": gate.policy.digest,
            "workdir": str(self.project),
            "call": kept(call),
            "expires": expiry(),
        }
        made = Ticket(**{**given, **ticket})
        return self.tickets.issue(made), made

    async def redeemed(self, name: str, text: str, streams: LineStreams, **more: Any) -> int:
        """Run the line of a ticket, as another process does."""
        ticket = self.tickets.redeem(name, text)
        call = restored(self.gate().session(ticket.session), ticket.call)
        variables = more.pop("variables", self.variables)
        return await run_line(call, name, ticket, text, streams, variables, tickets=self.tickets, **more)

    async def walled(self, text: str, directory: Path | None = None, stdin: bytes = b"", **ticket: Any) -> Ended:
        """A line behind walls, from its decision to its end."""
        name, _ = await self.opened(text, directory, **ticket)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            code = await self.redeemed(name, text, LineStreams(given.fileno(), out.fileno(), err.fileno()))
            out.seek(0)
            err.seek(0)
            link = self.tickets.directory_link(name)
            now = os.readlink(link) if os.path.islink(link) else str(directory or self.project)
            return Ended(out.read(), err.read(), code, now)

    def run(self, text: str, directory: Path | None = None, stdin: bytes = b"", **ticket: Any) -> Ended:
        """The same, in a loop of its own."""
        return asyncio.run(self.walled(text, directory, stdin, **ticket))
