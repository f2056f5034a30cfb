"""The tables in docs/gateway.md: the methods that the gateway follows, and the servers that it was tried with."""

import re
from pathlib import Path
from typing import Any

import yaml

from licet.backends.packages import launch_of
from licet.surfaces.gateway.methods import HANDSHAKE_VERSIONS, METHODS, MODERN_VERSIONS, VERSIONS

PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"
PEERS: dict[str, Any] = yaml.safe_load(
    PAGE.parents[1].joinpath("tests", "peers", "gateway", "peers.yaml").read_text(encoding="utf-8")
)
SPANS = {VERSIONS: "all", HANDSHAKE_VERSIONS: "to 2025-11-25", MODERN_VERSIONS: "2026-07-28"}


def span(versions: tuple[str, ...]) -> str:
    return SPANS.get(versions) or (versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}")


def test_the_page_lists_every_method_and_what_governs_it() -> None:
    rows = [f"| {one.sender} | `{one.name}` | {span(one.versions)} | {one.governed} |" for one in METHODS]
    listed = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(("| client |", "| server |"))
    ]
    assert listed == rows


def section(title: str) -> list[str]:
    """The lines of a part of the page that are in tables or lists."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    # A list item may go on in the next line.
    lines = re.sub(r"\n  (?=\S)", " ", text).splitlines()
    return [line for line in lines if line.startswith(("| ", "- "))]


def test_the_page_lists_the_servers_and_clients_that_were_tried_and_what_differs() -> None:
    expected = ["| package | version | from | protocol | tried with |"]
    for about in PEERS["servers"].values():
        launch = launch_of(about["command"])
        source, clients = {"npm": "npm", "pypi": "PyPI"}[launch.kind], about.get("clients", "one client of each era")
        version = launch.version.removeprefix("==")
        era = {"2025": "2025-11-25", "2026": "2026-07-28"}[about["era"]]
        clients = "all clients" if clients == "all" else clients
        expected.append(f"| `{launch.package}` | {version} | {source} | {era} | {clients} |")
    expected += [f"- {why}" for why in PEERS["exceptions"]["always"].values()]
    expected += [f"- {one['why']}" for one in PEERS["exceptions"]["named"].values()]
    assert section("Tried with") == expected
    text = PAGE.read_text(encoding="utf-8")
    assert all(client in text for client in PEERS["clients"])
