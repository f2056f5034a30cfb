"""What `licet check` says about servers and their manifest, and which secrets of a server are redacted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from licet.assemble.locking import ceiling_of_grants
from licet.assemble.servers import placed_secrets
from licet.core.decision.server_process import process_reach
from licet.core.origin import Origin
from licet.core.policy.servers import server_of
from licet.guard.ports import Ports
from licet.surfaces.cli.app import licet

REMOTE = {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "KEY"}, "tools": {"*": {}}}
LOCAL = {"command": ["serve"], "secrets": {"TOKEN": "KEY"}, "tools": {"*": {}}}
NATIVE = {**LOCAL, "sandbox": "native"}
UNCOVERED = (
    "that the server `s` gets less than its grants: `server s` needs secret:read:KEY, which the manifest does not allow"
)
SESSION = "only budgets of a session, and tools of MCP servers"


def checked(place: Path, server: dict[str, Any], capabilities: dict[str, Any], **shared: Any) -> list[dict[str, Any]]:
    content = {"agent": "a", "capabilities": {"tools": ["s.t"], **capabilities}, "servers": {"s": server}, **shared}
    (place / "licet.yaml").write_text(json.dumps(content))
    result = CliRunner().invoke(licet, ["check", str(place / "licet.yaml"), "--json"])
    found: list[dict[str, Any]] = json.loads(result.stdout)["problems"]
    return found


@pytest.mark.parametrize(("secrets", "is_covered"), [([], False), (["OTHER"], False), (["KEY"], True)])
@pytest.mark.parametrize("server", [REMOTE, LOCAL, NATIVE], ids=["remote", "local", "native"])
def test_the_ceiling_must_cover_every_secret_of_a_server(
    tmp_path: Path, server: dict[str, Any], secrets: list[str], is_covered: bool
) -> None:
    native = ["s"] if "sandbox" in server else []
    capabilities = {"secrets": secrets, "destinations": {"allow": ["mcp.example.com"]}, "native": native}
    found = [one for one in checked(tmp_path, server, capabilities) if one["found"] == UNCOVERED]
    assert bool(found) is not is_covered


BUDGETS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"budget": {"max_calls_per_session": 5}}, True),
    ({"budget": {"max_cost_usd": 5}}, True),
    ({"tools": {"s.t": {"max_calls": 1}}}, True),
    ({"budget": {"max_calls_per_day": 5}}, False),
    ({"budget": {"max_calls_per_session": 5, "max_calls_per_day": 50}}, False),
    ({"budget": {"max_calls_per_session": 5, "max_cost_usd_per_day": 50}}, False),
    ({"tools": [], "bundles": ["b"]}, True),
    ({"tools": [], "bundles": ["b"], "budget": {"max_calls_per_day": 5}}, False),
    ({"tools": ["own"], "budget": {"max_calls_per_session": 5}}, False),
]


@pytest.mark.parametrize(("capabilities", "is_warned"), BUDGETS)
def test_budgets_of_a_session_alone_are_a_warning_for_tools_of_servers(
    tmp_path: Path, capabilities: dict[str, Any], is_warned: bool
) -> None:
    bundles = {"b": {"tools": ["s.t"], "budget": {"max_calls_per_session": 3}}} if "bundles" in capabilities else {}
    found = [one for one in checked(tmp_path, LOCAL, capabilities, bundles=bundles) if one["found"] == SESSION]
    assert [one["severity"] for one in found] == (["warning"] if is_warned else [])


def test_a_secret_of_several_lines_is_redacted_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n  9w0BAQEFAASCBKcwggSj  \nab\n-----END KEY-----\n"
    server = server_of("s", {"command": ["serve"], "secrets": {"TOKEN": "KEY"}})
    reach = process_reach(
        ceiling_of_grants(server, Origin("f", 1, 1), "/srv", "/home/x"), server, (), ("/srv", "/home/x")
    )

    async def get(reference: str) -> str:
        return key

    redactor = asyncio.run(placed_secrets(server, reach, Ports(secrets=get))).redactor
    for line in key.splitlines():
        is_short = line == "ab"  # would be redacted from ordinary words
        assert (line.strip() in redactor.text(f"loaded {line}")) is is_short
