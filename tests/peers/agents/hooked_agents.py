"""Real coding agents with the hooks that `licet hooks install` writes, as an ordinary user with an empty home."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from ordinary_user import NOBODY
from peers.agents.conftest import Place
from peers.agents.played_model import Script, Step
from peers.agents.real_agents import PATIENCE, Agent, Session, bare_environment, owned, program, run_agent, settled
from peers.agents.walled_agents import completed, sure

CLIENT = "resident_client.py"
AGENT_USER = NOBODY if os.getuid() == 0 else os.getuid()  # who runs the agents


class Hooked(Struct, frozen=True):
    """One agent whose hooks are installed, in a project of its own."""

    licet: str
    agent: Agent
    place: Place

    @property
    def policy(self) -> Path:
        """The policy that the installation has written."""
        return self.place.project / ".licet" / "licet.yaml"

    def run(
        self,
        calls: Sequence[Step],
        *,
        scripts: Sequence[Script] = (),
        words: Sequence[str] | None = None,
        environment: Mapping[str, str] = {},
        agent: Agent | None = None,
    ) -> Session:
        """Run one session of the agent, or of a variant of it."""
        here = self.place
        return run_agent(
            agent or self.agent, here.project, here.home, calls, scripts=scripts, words=words, environment=environment
        )

    def says(self, *words: str) -> str:
        """What licet prints for a command."""
        code, out, err = settled([self.licet, *words], self.place.project, bare_environment(self.place.home))
        assert code == 0, (words, out, err)
        return out

    def receipts(self) -> list[dict[str, Any]]:
        """The receipts of the project, the oldest first."""
        found: list[dict[str, Any]] = json.loads(self.says("receipts", "list", "--limit", "500", "--json"))["receipts"]
        return found[::-1]

    def allow(self, **adds: Sequence[str]) -> None:
        """Add entries to lists of the policy, and accept it."""
        completed(self.policy, **adds)
        self.trust()

    def trust(self) -> None:
        """Accept the policy, and agree to deletes, at a terminal."""
        environment = bare_environment(self.place.home)
        at_terminal([self.licet, "trust"], self.place.project, environment, "y\ny\n")

    def write(self, path: Path, text: str) -> Path:
        """Write a file of who runs the agent."""
        owned(path.parent, path, text)
        return path

    def add_server(self, path: Path, name: str, command: Sequence[str]) -> None:
        """Add an MCP server to a file of the agent, as a person would."""
        text = path.read_text("utf-8") if path.exists() else ""
        if path.suffix == ".toml":
            added = f"\n[mcp_servers.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
            self.write(path, text + added)
            return
        document = json.loads(text or "{}")
        if path.name == "opencode.json":
            document.setdefault("mcp", {})[name] = {"type": "local", "command": list(command)}
        else:
            more = {"type": "local", "tools": ["*"]} if path.name == "mcp-config.json" else {}
            document.setdefault("mcpServers", {})[name] = {"command": command[0], "args": list(command[1:]), **more}
        self.write(path, json.dumps(document))


def installed(licet: str, agent: Agent, place: Place) -> Hooked:
    """Install the hooks of an agent for the user and the project."""
    program(agent)  # skips where there is none
    environment = bare_environment(place.home)
    sure([licet, "hooks", "install", "--agent", agent.name, "--yes"], place.project, environment)
    made = Hooked(licet, agent, place)
    made.trust()
    return made


def at_terminal(command: Sequence[str], project: Path, environment: Mapping[str, str], typed: str) -> str:
    """Run a command at a terminal of its own, at which a person has typed this; returns what it shows."""
    ours, theirs = os.openpty()
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    try:
        os.write(ours, typed.encode())
        with subprocess.Popen(
            command, cwd=project, env=dict(environment), stdin=theirs, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True, **user,  # type: ignore[call-overload]
        ) as started:  # fmt: skip
            out, _ = started.communicate(timeout=PATIENCE)
        assert started.returncode == 0, out
        return str(out)
    finally:
        os.close(ours)
        os.close(theirs)


def end_residents(user: int, home: Path) -> int:
    """Kill the residents of a home; returns how many there were."""
    return sum(1 for process in residents(user, home) if _sent(process, signal.SIGKILL))


@contextmanager
def pause_residents(user: int, home: Path) -> Iterator[int]:
    """Stop the residents of a home meanwhile: who asks them waits."""
    paused = [process for process in residents(user, home) if _sent(process, signal.SIGSTOP)]
    try:
        yield len(paused)
    finally:
        for process in paused:
            _sent(process, signal.SIGCONT)


def _sent(process: int, number: signal.Signals) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def with_client(hooked: "Hooked", text: str) -> Iterator[None]:
    """Put another program in the place of our client; without a text there is none."""
    (client,) = Path(hooked.licet).parent.parent.glob(f"lib/python*/site-packages/licet/hooks/{CLIENT}")
    ours = client.read_bytes()
    try:
        client.unlink()
        if text:
            client.write_text(text)
        yield
    finally:
        client.write_bytes(ours)


def residents(user: int, home: Path) -> Iterator[int]:
    """The residents of a home, by their process."""
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            variables = (process / "environ").read_bytes().split(b"\0")
            is_of_user = process.stat().st_uid == user
        except OSError:
            continue
        is_resident = b"licet.hooks.resident" in words and f"HOME={home}".encode() in variables
        if is_of_user and is_resident:
            yield int(process.name)
