"""The table of methods names the same messages, in the same versions, as the tables of the official SDK."""

import json
import subprocess
from typing import Any

import pytest

from licet.mcp.protocol import ASKABLE, METHODS

from .test_sdk_clients import python_of

# What the SDK has per direction. Requests inside input-required results are in no table of it.
SCRIPT = """
import json
from mcp_types import methods as m
tables = {"client request": m.CLIENT_REQUESTS, "client notification": m.CLIENT_NOTIFICATIONS,
          "server request": m.SERVER_REQUESTS, "server notification": m.SERVER_NOTIFICATIONS}
print(json.dumps({name: sorted(table) for name, table in tables.items()}))
print(json.dumps(sorted(m.INPUT_REQUIRED_METHODS)))
"""


@pytest.fixture(scope="module")
def printed() -> list[Any]:
    command = [python_of("LICET_MCP2_PYTHON"), "-c", SCRIPT]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize("sender", ["client", "server"])
@pytest.mark.parametrize("kind", ["request", "notification"])
def test_the_table_is_complete(printed: list[Any], sender: str, kind: str) -> None:
    rows = [row for row in METHODS if (row.sender, row.kind) == (sender, kind)]
    ours = {(row.name, version) for row in rows for version in row.versions}
    assert ours == {tuple(row) for row in printed[0][f"{sender} {kind}"]}


def test_the_same_requests_can_be_answered_by_a_question(printed: list[Any]) -> None:
    assert sorted(ASKABLE) == printed[1]
