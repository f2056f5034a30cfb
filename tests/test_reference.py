"""The pages of docs/reference are what scripts/reference.py makes of the code."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = str(ROOT / "scripts")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    sys.path.insert(0, SCRIPTS)
    try:
        made: dict[str, str] = runpy.run_path(f"{SCRIPTS}/reference.py")["pages"]()
    finally:
        sys.path.remove(SCRIPTS)
    return made


def test_the_reference_is_what_the_script_writes(pages: dict[str, str]) -> None:
    kept = {path.name: path.read_text("utf-8") for path in (ROOT / "docs" / "reference").iterdir()}
    assert sorted(kept) == sorted(pages)
    for name, text in pages.items():
        assert kept[name] == text, f"run `make reference`: docs/reference/{name} is another text"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("grammar.md", ["`network:https:get@api.example.com`", "expected an absolute path", "`SECRET_NOT_DECLARED`"]),
        ("codes.md", ["`LIMIT_HEADERS`", "`execution_failed`", "`ApprovalRemembered`"]),
        ("cli.md", ["## licet gateway", "### licet receipts verify", "--no-time-limit"]),
        ("api.md", ["### `licet.Gate`", "`await call_many(", "### `licet.handles.FileSystem`"]),
        ("schema.md", ["`capabilities.approvals.delete`", "`servers.NAME.command`", "## Personality"]),
    ],
)
def test_each_page_has_what_it_is_for(pages: dict[str, str], page: str, words: list[str]) -> None:
    for word in words:
        assert word in pages[page]
