"""What the documentation says is true: its Python runs, and its commands print what it shows."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from licet.surfaces.cli.app import licet

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EXAMPLE = ROOT / "examples" / "weather"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text("utf-8")) if found == language]


def sessions(page: Path) -> list[tuple[str, str]]:
    """The `licet` commands of a page, each with the output that the page shows for it."""
    found = []
    for body in blocks(page, "console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("licet "):
                found.append((command, output))
    return found


PYTHON = [(page.name, body) for page in PAGES for body in blocks(page, "python")]
COMMANDS = [(page.name, command, output) for page in PAGES for command, output in sessions(page)]


@pytest.mark.parametrize(("page", "body"), PYTHON, ids=[name for name, _ in PYTHON])
def test_the_python_of_a_page_runs(page: str, body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(body, page, "exec"), {"__name__": "example"})


@pytest.mark.parametrize(("page", "command", "output"), COMMANDS, ids=[command for _, command, _ in COMMANDS])
def test_a_command_of_a_page_prints_what_it_shows(
    page: str, command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLE)
    result = CliRunner().invoke(licet, shlex.split(command)[1:], catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    assert result.stdout.rstrip() == output.rstrip(), page


def test_the_pages_hold_examples_of_both_kinds() -> None:
    assert len(PYTHON) >= 4
    assert len(COMMANDS) >= 4
