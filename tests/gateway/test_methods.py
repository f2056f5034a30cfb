"""The table of methods: complete, without contradictions, and the same as what a connection handles."""

import pytest

from licet.mcp.protocol import HANDSHAKE_VERSIONS, METHODS, VERSIONS, Kind, Sender, find, kept

from .scripted_backend import Scene

TOPICS = {
    "start", "tools", "resources", "templates", "prompts", "completions", "progress", "cancellation", "logging",
    "list-changed", "subscriptions", "sampling", "elicitation", "roots",
}  # fmt: skip


def test_each_message_of_each_version_has_one_row() -> None:
    keys = [(row.name, row.kind, row.sender, version) for row in METHODS for version in row.versions]
    assert len(keys) == len(set(keys))
    assert {row.topic for row in METHODS} == TOPICS
    assert all(row.versions == tuple(v for v in VERSIONS if v in row.versions) for row in METHODS)


def test_a_connection_handles_every_request_of_a_client_that_is_in_the_table_and_no_other() -> None:
    connection = Scene().connection
    rows = {row.name for row in METHODS if (row.kind, row.sender) == ("request", "client")}
    assert {*connection._handlers, *connection._at_once} == rows


@pytest.mark.parametrize(
    ("name", "kind", "sender", "versions"),
    [
        ("initialize", "request", "client", HANDSHAKE_VERSIONS),
        ("server/discover", "request", "client", ("2026-07-28",)),
        ("elicitation/create", "request", "server", ("2025-06-18", "2025-11-25")),
        ("elicitation/create", "input", "server", ("2026-07-28",)),
        ("tools/call", "request", "server", ()),
        ("tools/call", "notification", "client", ()),
        ("tasks/get", "request", "client", ()),
        ("tasks/list", "request", "client", ()),
        ("notifications/tasks/status", "notification", "server", ()),
        ("vendor/method", "request", "client", ()),
    ],
)
def test_a_message_is_known_in_its_versions_alone(
    name: str, kind: Kind, sender: Sender, versions: tuple[str, ...]
) -> None:
    assert tuple(version for version in VERSIONS if find(name, kind, sender, version)) == versions


def test_what_the_table_does_not_name_is_told_apart() -> None:
    assert kept({"a": 1, "b": 2, "c": 3}, frozenset("ac")) == ({"a": 1, "c": 3}, ["b"])
