"""A ledger of several nodes in a real database, and what an administrator of that database does to it."""

import os
from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import urlsplit

from licet.backends.ledger.state import new_ledger_id, write_last
from licet.backends.postgres.address import Connection
from licet.backends.postgres.batches import PURPOSE, batch_text
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node, node_entry
from licet.backends.postgres.verify_database import verify_database
from licet.backends.secrets import SigningKey, generated_key, ledger_key
from licet.core.ledger.entry import START, Checkpoint, Entry, Row, Tail, checkpoint_body, link, time_text
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify import Outcome
from postgres_server import fresh

START_TIME = datetime(2026, 3, 1, 14, tzinfo=UTC)
_APPEND = "SELECT * FROM licet.append_entries($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)"


class Team:
    """Two nodes that write, and one of them that gives places and signs heads."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.database, self.folder = address, Database(address), folder
        self.keys = str(folder / "ledger")
        self.nodes = [Node.of(folder / name) for name in ("one", "two")]
        self.key: SigningKey = ledger_key(f"{self.keys}.key", generated_key())
        Path(f"{self.keys}.pub").write_text(self.key.public + "\n")
        self.ledger, self.frontier, self.moment = new_ledger_id(), Frontier(), START_TIME
        self.tails: dict[tuple[str, str], Tail | Row] = {}
        self.waiting: list[Row] = []
        self.sql("INSERT INTO licet.ledger (id, key) VALUES ($1, $2)", self.ledger, self.key.public)
        self.write(*(self.enrolment(node) for node in self.nodes))
        self.place()

    def copied(self, folder: Path) -> "Team":
        """The same in another database and another directory; this one must be closed."""
        other = copy(self)
        other.address, other.folder = fresh(copied=urlsplit(self.address).path.removeprefix("/")), folder
        other.database, other.keys = Database(other.address), str(folder / "ledger")
        copytree(self.folder, folder, dirs_exist_ok=True)
        other.frontier, other.tails, other.waiting = self.frontier.copy(), dict(self.tails), list(self.waiting)
        return other

    def enrolment(self, node: Node, key: SigningKey | None = None) -> Entry:
        """The entry that enrols a node, signed with the key of the ledger, or with another one."""
        return node_entry("enrolment", [node.public], self.ledger, key or self.key, self.moment)

    def sql(self, query: str, *values: object) -> Any:
        """Run a statement as the administrator."""

        async def ran(connection: Connection) -> Any:
            return await connection.fetch(query, *values)

        return self.database.wait(ran, 10)

    def write(self, *entries: Entry, node: int | Node = 0) -> list[Row]:
        """Append entries as one batch of one node."""
        self.moment += timedelta(seconds=1)
        rows = []
        for entry in entries:
            tail = self.tails.get((entry.agent, entry.session), START)
            rows.append(link(entry, self.ledger, 0, tail, time_text(self.moment)))
            self.tails[entry.agent, entry.session] = rows[-1]
        who = self.nodes[node] if isinstance(node, int) else node
        lost = self.append(rows, who)
        assert not lost, lost
        self.waiting += rows
        return rows

    def append(self, rows: Sequence[Row], node: Node, signature: bytes | None = None, public: str | None = None) -> Any:
        """Give a batch to the database."""
        batch = os.urandom(16)
        text = batch_text(self.ledger, batch, b"".join(row.hash for row in rows))
        begun: set[tuple[str, str]] = set()
        previous: list[bytes | None] = []
        for row in rows:
            chain = row.agent, row.session
            before = self.sql(
                "SELECT hash FROM licet.entries WHERE agent=$1 AND session=$2 AND sequence=$3", *chain, row.sequence - 1
            )
            previous.append(None if chain in begun else before[0][0] if before else b"")
            begun.add(chain)
        columns = [
            [getattr(row, name) for row in rows] for name in ("id", "kind", "tool", "verdict", "time", "hash", "body")
        ]
        return self.sql(
            _APPEND,
            batch,
            node.public if public is None else public,
            node.sign(PURPOSE, text) if signature is None else signature,
            [row.agent for row in rows],
            [row.session for row in rows],
            [row.sequence for row in rows],
            previous,
            *columns,
        )

    def place(self) -> Checkpoint:
        """Give every waiting entry its place, and sign a head."""
        placed = self.waiting
        for number, row in enumerate(placed, self.frontier.size + 1):
            self.sql(
                "INSERT INTO licet.places VALUES ($1, $2, $3, $4, $5)",
                number, row.hash, row.agent, row.session, row.sequence,
            )  # fmt: skip
        self.frontier.extend(row.hash for row in placed)
        self.waiting = []
        return self.sign(self.key)

    def sign(self, key: SigningKey, *, remember: bool = True) -> Checkpoint:
        body = checkpoint_body(self.ledger, self.frontier.size, self.frontier.root, time_text(self.moment), key.public)
        checkpoint = Checkpoint(self.frontier.size, body, key.sign(body))
        self.sql(
            "INSERT INTO licet.heads VALUES ($1, $2, $3, $4, pg_current_xact_id())", *checkpoint, bytes(self.frontier)
        )
        if remember:
            write_last(f"{self.keys}.head", checkpoint, self.frontier)
        return checkpoint

    def verify(self, *kept: Checkpoint) -> Outcome:
        return verify_database(self.database, self.keys, self.key.public, kept)

    def close(self) -> None:
        self.database.close()


def entry(kind: str, number: int, session: str = "s-1", agent: str = "agent", **fields: Any) -> Entry:
    """An entry of a call."""
    time = time_text(START_TIME + timedelta(minutes=number))
    return Entry(kind, f"r-{session}-{number}", agent, session, "add", time, "sha256:00", **fields)  # type: ignore[arg-type]


def call(number: int, session: str = "s-1", agent: str = "agent", **fields: Any) -> list[Entry]:
    """The entries of one call."""
    return [entry(kind, number, session, agent, **fields) for kind in ("decision", "receipt")]


def filled(address: str, folder: Path) -> Team:
    """A ledger with three calls of two nodes in two sessions that have their places, and nothing that waits."""
    team = Team(address, folder)
    team.write(*call(1))
    team.write(*call(2, "s-2"), node=1)
    team.place()
    team.write(*call(3), node=1)
    team.place()
    return team
