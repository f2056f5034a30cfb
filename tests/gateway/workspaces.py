"""Workspaces with scripted servers: their files, a lock, and the backend of a gateway in this process."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from licet import load_manifest
from licet.assemble.server_process import expanded_command, packages_directory
from licet.backends.ledger.reader import LedgerReader
from licet.core.ledger.entry import LinkedEntry
from licet.core.policy.lock import Lock, LockedServer, OtherVersion, portable, write_lock
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import Server, servers_of
from licet.gateway.connection import Connection
from licet.gateway.gateway import gateway_servers
from licet.gateway.governed_servers import GovernedServers
from licet.mcp.jsonrpc import Message, read_message, write_message
from licet.mcp.shown_names import naming
from licet.packages.server_packages import launch_of, resolve

from .clients import Client
from .scripted_server import LEGACY, MODERN, tool
from .servers import command

AGENT = "agent.yaml"


class Workspace:
    """A directory with a policy for scripted servers, and a directory for the state of gateways.

    Each entry of `servers` is one of `licet.yaml` without `command`. Its `script` is what the server does, and its
    `locked` is what the lock says of it where that is something else.
    """

    def __init__(
        self, place: Path, state: Path, servers: Mapping[str, Mapping[str, Any]], capabilities: Mapping[str, Any],
        *, flow: Mapping[str, Any] | None = None, **shared: Any,
    ) -> None:  # fmt: skip
        self.place, self.state = place.resolve(), state
        self.reports: list[str] = []
        place.mkdir(parents=True, exist_ok=True)
        entries = {name: entry_of(about) for name, about in servers.items()}
        self._write("licet.yaml", {"servers": entries, **shared})
        self._write(
            AGENT, {"agent": "desk", "capabilities": dict(capabilities), **({"flow": dict(flow)} if flow else {})}
        )
        self.lock({name: {**about["script"], **about.get("locked", {})} for name, about in servers.items()})

    @property
    def manifest(self) -> Manifest:
        return load_manifest(self.place / AGENT)

    def lock(self, scripts: Mapping[str, Mapping[str, Any]]) -> None:
        """Lock each server as if it had the definitions of a script."""
        (self.place / "licet.lock").unlink(missing_ok=True)
        manifest = self.manifest
        locked = {name: self._locked(servers_of(manifest.servers)[name], script) for name, script in scripts.items()}
        lock = Lock(format=1, manifests={AGENT: manifest.digest}, servers=locked)
        (self.place / "licet.lock").write_bytes(write_lock(lock))

    def _locked(self, server: Server, script: Mapping[str, Any]) -> LockedServer:
        words = expanded_command(server, str(self.place), str(Path.home()))
        resolved = resolve(launch_of(words), packages_directory(), progress=lambda _: None, directory=self.place)
        lists: dict[str, Any] = {kind: tuple(script.get(kind, ())) for kind in ("resources", "templates", "prompts")}
        lists["tools"] = tuple(tool(given) for given in script.get("tools", ["echo"]))
        places = {"${workdir}": str(self.place)}
        return LockedServer(
            command=server.command,
            resolved=resolved,
            version=script.get("version", LEGACY[0]) if script.get("era") == "2025" else MODERN,
            volatile=script.get("volatile", {}),
            instructions=script.get("instructions", ""),
            claimed_version=script.get("claimed_version", ""),
            other_versions=msgspec.convert(script.get("other_versions", {}), dict[str, OtherVersion]),
            **_portable(lists, places),
        )

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        (self.place / name).write_text(json.dumps(content), encoding="utf-8")

    def backend(self, session: str = "g-test", **options: Any) -> GovernedServers:
        """The backend of one connection. What it reports is in `reports`."""
        return gateway_servers(
            self.manifest, self.state, session=session, report=self.reports.append, workdir=self.place, **options
        )

    @asynccontextmanager
    async def gateway(
        self,
        era: str = "2025",
        session: str = "g-test",
        secrets_file: Path | None = None,
        *,
        task: str = "",
        is_resumed: bool = False,
        **about: Any,
    ) -> AsyncIterator[Client]:
        """A client of a gateway in this process; it is open, and the servers run."""
        backend = self.backend(session, secrets_file=secrets_file, task=task, is_resumed=is_resumed)
        names = naming(self.manifest.servers, self.manifest.gateway_names or "")  # type: ignore[arg-type]
        async with connected(backend, names, era, **about) as client:
            yield client

    def entries(self) -> list[LinkedEntry]:
        """All entries of the ledger, in order; none before the first call."""
        if not (self.state / "ledger.sqlite").exists():
            return []
        with LedgerReader(self.state / "ledger.sqlite") as reader:
            return [msgspec.json.decode(row.body, type=LinkedEntry) for row in reader.entries()]

    def receipts(self, session: str = "") -> list[LinkedEntry]:
        """The receipts, of one session or of all."""
        found = [entry for entry in self.entries() if entry.kind == "receipt"]
        return [entry for entry in found if not session or entry.session == session]


def _portable(lists: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    return {kind: tuple(portable(one, places) for one in found) for kind, found in lists.items()}


def entry_of(about: Mapping[str, Any]) -> dict[str, Any]:
    words = about.get("command") or command(about["script"])
    return {"command": words, **{key: about[key] for key in about if key not in ("script", "locked", "command")}}


@asynccontextmanager
async def connected(backend: GovernedServers, names: Any, era: str, **about: Any) -> AsyncIterator[Client]:
    """A client that talks to a backend through a connection, in messages as they are on the wire."""

    def send(message: Message) -> None:
        client.take(msgspec.json.decode(write_message(message)))

    connection = Connection(backend, send, names=names)

    async def receive(message: dict[str, Any]) -> None:
        await connection.receive(read_message(msgspec.json.encode(message)))

    client = Client(receive, era, **about)
    try:
        await client.open()
        yield client
    finally:
        await connection.close()


def notes(entry: LinkedEntry) -> list[str]:
    """What a receipt notes about a result."""
    return [str(event.rule) for event in entry.events if event.kind == "ResultNoted"]
