"""The generated parts of docs/ are what scripts/reference.py makes of the code."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from licet.hooks.agents import AGENTS

ROOT = Path(__file__).parent.parent
SCRIPTS = str(ROOT / "scripts")


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    sys.path.insert(0, SCRIPTS)
    try:
        return runpy.run_path(f"{SCRIPTS}/reference.py")
    finally:
        sys.path.remove(SCRIPTS)


@pytest.fixture(scope="module")
def parts(reference: dict[str, Any]) -> dict[str, dict[str, str]]:
    made: dict[str, dict[str, str]] = reference["parts"]()
    return made


def test_the_pages_have_what_the_script_writes(reference: dict[str, Any], parts: dict[str, dict[str, str]]) -> None:
    filled: Callable[[str, str, dict[str, str]], str] = reference["filled"]
    for page, made in parts.items():
        kept = (ROOT / "docs" / page).read_text("utf-8")
        assert kept == filled(page, kept, made), f"run `make reference`: docs/{page} has another text"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("algebra.md", ["`network:https:get@api.example.com`", "expected an absolute path", "`SECRET_NOT_DECLARED`"]),
        ("reference/codes.md", ["`LIMIT_HEADERS`", "`execution_failed`", "`ApprovalRemembered`"]),
        ("commands.md", ["Usage: licet gateway", "Usage: licet receipts verify", "--no-time-limit"]),
        ("reference/api.md", ["### `licet.Gate`", "`await call_many(", "`await ctx.fetch(url", "### `licet.ports.Kv`"]),
        ("manifest.md", ["`capabilities.approvals.delete`", "`servers.NAME.command`", "`safety.network.allow`"]),
        ("gateway.md", ["| `resources/read` |", "`mcp-server-git`"]),
        ("lint.md", ["`LIC101`"]),
        (
            "hooks/claude.md",
            ["`claude.Bash`", "`PreToolUse`", "`./.claude/settings.local.json`", "with `@` in a prompt"],
        ),
        ("hooks/codex.md", ["`codex.write_stdin` | types into a shell line that is running; **hooks are not told**"]),
        ("hooks/gemini.md", ["`prompt`, `url`", "exit code 1; a time-out"]),
        ("hooks/cursor.md", ["**not tried**", '`"failClosed": true`']),
    ],
)
def test_each_page_has_what_it_is_for(parts: dict[str, dict[str, str]], page: str, words: list[str]) -> None:
    for word in words:
        assert word in "".join(parts[page].values())


def test_the_page_of_an_agent_has_each_of_its_tools_and_events(parts: dict[str, dict[str, str]]) -> None:
    for name, dialect in AGENTS.items():
        made = parts[f"hooks/{name}.md"]["hooks"]
        assert [tool for tool in dialect.tools if f"| `{name}.{tool}` |" not in made] == []
        assert [event for event in dialect.events if f"`{event}`" not in made] == []
        assert [place.path for place in dialect.places if f"| `{place.path}` |" not in made] == []
        assert [one for one in dialect.unseen if one[1:] not in made] == []


@pytest.mark.parametrize(
    "text",
    ["no part", "<!-- generated: other -->\n<!-- end -->\n", 2 * "<!-- generated: one -->\n<!-- end -->\n"],
    ids=["none", "another", "twice"],
)
def test_a_part_that_is_not_marked_once_stops_the_script(reference: dict[str, Any], text: str) -> None:
    with pytest.raises(SystemExit, match="mark each part once"):
        reference["filled"]("page.md", text, {"one": "text\n"})
