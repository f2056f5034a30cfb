"""The table of methods in docs/gateway.md is the one that the gateway follows."""

from pathlib import Path

from licet.surfaces.gateway.methods import HANDSHAKE_VERSIONS, METHODS, MODERN_VERSIONS, VERSIONS

PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"
SPANS = {VERSIONS: "all", HANDSHAKE_VERSIONS: "to 2025-11-25", MODERN_VERSIONS: "2026-07-28"}


def span(versions: tuple[str, ...]) -> str:
    return SPANS.get(versions) or (versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}")


def test_the_page_lists_every_method_and_what_governs_it() -> None:
    rows = [f"| {one.sender} | `{one.name}` | {span(one.versions)} | {one.governed} |" for one in METHODS]
    listed = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(("| client |", "| server |"))
    ]
    assert listed == rows
