"""The stores of these tests: files lie in memory, and tables in a real server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from licet.backends.approvals.requests import ApprovalStore
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_approvals import PostgresApprovals

Opened = Callable[[Callable[[], float]], ApprovalStore]


@pytest.fixture
def tmp_path(store_path: Path) -> Path:
    return store_path


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    named: str = request.param
    return named


@pytest.fixture
def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """A function that opens one and the same store, each time as another process or node would."""
    databases: list[Database] = []
    nodes: list[str] = []

    async def enrolled(name: str) -> bool:
        return name in nodes

    def on_server(clock: Callable[[], float]) -> ApprovalStore:
        databases.append(Database(url))
        node = Node.of(tmp_path / f"node-{len(nodes)}")
        nodes.append(node.public)
        return PostgresApprovals(databases[-1], node, enrolled, clock)

    if kind == "sqlite":
        yield lambda clock: SqliteApprovals(tmp_path / "state" / "approvals.sqlite", clock)
    else:
        url: str = request.getfixturevalue("postgres")
        yield on_server
    for database in databases:
        database.close()
