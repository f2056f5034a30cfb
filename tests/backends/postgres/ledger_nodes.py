"""Nodes of one state in PostgreSQL, for tests of its ledger: each with a directory and connections of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.backends.secrets import check_signature, generated_key
from licet.core.ledger.entry import Checkpoint, Entry, Row
from licet.core.ledger.verify import Outcome, verify
from postgres_server import server

ROWS = """
SELECT number, id, kind, agent, session, sequence, tool, verdict, time, entries.hash, body
FROM licet.places JOIN licet.entries USING (agent, session, sequence) ORDER BY number
"""


def entry(name: str, session: str = "s", kind: Any = "receipt") -> Entry:
    return Entry(
        kind=kind, id=name, agent="a", session=session, tool="t", time="2026-01-01T00:00:00.000000Z", manifest=""
    )


class Team:
    """The nodes of one state; the first one begins its ledger, and has its key."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.nodes = url, folder, list[PostgresLedger]()
        self.databases = list[Database]()

    async def add(self, **given: Any) -> PostgresLedger:
        """Another node, which is enrolled."""
        ledger = self.stranger(**given)
        if len(self.nodes) > 1:
            await self.nodes[0].enrol(ledger.node.public)
        return ledger

    def stranger(self, url: str = "", at: str = "", **given: Any) -> PostgresLedger:
        directory = self.folder / (at or f"node{len(self.nodes)}")
        self.databases.append(Database(url or self.url))
        self.nodes.append(PostgresLedger(self.databases[-1], Node.of(directory), directory, **given))
        return self.nodes[-1]

    async def sql(self, *statements: str) -> Any:
        connection = await asyncpg.connect(self.url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetch(statements[-1])
        finally:
            await connection.close()

    async def rows(self) -> list[Row]:
        """The entries that have a place, in order."""
        return [Row(*one) for one in await self.sql(ROWS)]

    async def verified(self) -> Outcome:
        """What verification says once everything has its place."""
        await self.nodes[0].sequencer.place_now()
        key = (await self.sql("SELECT key FROM licet.ledger"))[0]["key"]
        heads = [Checkpoint(*one) for one in await self.sql("SELECT size, body, signature FROM licet.heads ORDER BY 1")]
        return verify(await self.rows(), heads, key=key, check=check_signature)

    def close(self) -> None:
        for one in self.nodes:
            one.close()
        for database in self.databases:
            database.close()


class StoreNodes:
    """Nodes of one state for tests of other stores: which of them are enrolled is said here, and by no ledger."""

    def __init__(self, url: str) -> None:
        self.url, self.enrolled, self.databases = url, set[str](), list[Database]()

    def node(self, *, is_enrolled: bool = True) -> tuple[Database, Node]:
        """Another node, with connections of its own."""
        node = Node(generated_key())
        if is_enrolled:
            self.enrolled.add(node.public)
        self.databases.append(Database(self.url))
        return self.databases[-1], node

    async def is_enrolled(self, public: str) -> bool:
        return public in self.enrolled

    async def sql(self, *statements: str) -> Any:
        """Run statements as the administrator; the value that the last one returns."""
        return await server().sql(*statements, database=urlsplit(self.url).path.removeprefix("/"))

    def close(self) -> None:
        for database in self.databases:
            database.close()


@asynccontextmanager
async def team(url: str, folder: Path, count: int = 1, **given: Any) -> AsyncIterator[Team]:
    found = Team(url, folder)
    for _ in range(count):
        await found.add(**given)
    try:
        yield found
    finally:
        await asyncio.to_thread(found.close)


async def write(ledger: PostgresLedger, names: Sequence[str], session: str = "s") -> None:
    await asyncio.gather(*(ledger.record(entry(name, session)) for name in names))
