"""What the documentation says is true: its Python runs, and its commands print what it shows."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import licet as licet_package
from licet.cli.app import licet
from licet.sandbox import probe
from walkthrough import Run, Typed, Written, compare, play, steps

ROOT = Path(__file__).parent.parent
PLAYED_MARK = "<!-- played: "
# A page that is played from an empty directory: its commands belong together.
PLAYED = sorted(page for page in (ROOT / "docs").rglob("*.md") if PLAYED_MARK in page.read_text("utf-8"))
BESIDES = {ROOT / "README.md", ROOT / "design" / "source-documents.md"}
PAGES = sorted({*BESIDES, *(ROOT / "docs").rglob("*.md")} - set(PLAYED))
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir())
RECEIPT = re.compile(r"r-[0-9a-f]{8,}-\d+")
GENERATED = re.compile(r"^<!-- generated: .*?^<!-- end -->", re.MULTILINE | re.DOTALL)
MOST_PAGES, MOST_WORDS, MOST_WORDS_OF_A_HOW_TO = 41, 54_900, 599
MOST_WORDS_BESIDES_TABLES = 60  # of a page of generated tables, which is looked up and not read
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


def folder_of(words: list[str]) -> Path:
    """The example that has the manifest which a command names."""
    named = (folder for folder in EXAMPLES if any((folder / word).is_file() for word in words))
    return next(named, ROOT / "examples" / "weather")


PYTHON = [(page.name, body) for page in PAGES for body in blocks(page, "python")]
COMMANDS = [(page.name, command, output) for page in PAGES for command, output in sessions(page)]


def python_of(page: Path) -> list[str]:
    """The Python files and blocks of a page that is played."""
    written = [step.text for step in steps(page) if isinstance(step, Written) and step.name.endswith(".py")]
    return written + [step.source for step in steps(page) if isinstance(step, Run)]


@pytest.mark.parametrize(("page", "body"), PYTHON, ids=[name for name, _ in PYTHON])
def test_the_python_of_a_page_runs(page: str, body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    exec(compile(body, page, "exec"), {"__name__": "example"})


@pytest.mark.parametrize(("page", "command", "output"), COMMANDS, ids=[command for _, command, _ in COMMANDS])
def test_a_command_of_a_page_prints_what_it_shows(
    page: str, command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(command)[1:]
    monkeypatch.chdir(folder_of(words))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = CliRunner().invoke(licet, words, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    said = result.output if words[0] == "call" else result.stdout  # a refused call is explained on stderr
    assert RECEIPT.sub("r", said).rstrip() == RECEIPT.sub("r", output).rstrip(), page


def test_the_pages_hold_examples_of_both_kinds() -> None:
    assert len(PYTHON) >= 4
    assert len(COMMANDS) >= 4


@pytest.mark.skipif(bool(probe.support().missing("restricted")), reason="no walls here")
@pytest.mark.parametrize("page", PLAYED, ids=[page.name for page in PLAYED])
def test_a_page_can_be_followed_from_an_empty_directory(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if f"{PLAYED_MARK}with namespaces" in page.read_text("utf-8") and not probe.support().namespaces:
        pytest.skip("no namespaces here")
    assert play(page, tmp_path, monkeypatch) >= 2


@pytest.mark.parametrize(
    ("shown", "said", "fits"),
    [
        ("fine\n", "fine\n", True),
        ("fine\n", "fine, too\n", False),
        ("until …\nend", "until noon\nend", True),
        ("until …\nend", "until noon\nor later\nend", False),
        ("until\n  …\nend", "until\nnoon\nor later\nend", True),
        ("r-00000000-1 then r-00000000-1", "r-9e0f2b41-1 then r-9e0f2b41-1", True),
        ("r-00000000-1 then r-00000000-1", "r-9e0f2b41-1 then r-9e0f2b41-2", False),
        ("known r-11111111-1", "known r-22222222-1", True),
        ("known r-11111111-1", "known r-33333333-1", False),
    ],
)
def test_an_output_fits_what_a_page_shows(shown: str, said: str, fits: bool) -> None:
    ids = {"r-11111111-1": "r-22222222-1"}
    if fits:
        compare(Typed("licet", shown), said, ids)
        assert ids.get("r-00000000-1", "r-9e0f2b41-1") == "r-9e0f2b41-1"
    else:
        with pytest.raises(AssertionError, match="the page shows"):
            compare(Typed("licet", shown), said, ids)


PUBLIC = {"licet", "licet.adapters", "licet.events", "licet.handles", "licet.ports", "licet.testing", "licet.tools"}


def internal_imports(source: str) -> list[str]:
    """The modules of licet that some Python imports and that are not public."""
    imported: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                imported += [alias.name for alias in names]
            case ast.ImportFrom(module=str(module)):
                imported += [f"licet.{alias.name}" for alias in node.names] if module == "licet" else [module]
    inner = [name for name in imported if name.startswith("licet.") and name not in PUBLIC]
    return [name for name in inner if name.removeprefix("licet.") not in licet_package.__all__]


def test_no_page_and_no_example_imports_internals() -> None:
    agents = [(path.name, path.read_text("utf-8")) for path in sorted((ROOT / "examples").rglob("*.py"))]
    written = [(page.name, source) for page in PLAYED for source in python_of(page)]
    assert [(name, found) for name, body in (*PYTHON, *agents, *written) for found in internal_imports(body)] == []
    assert len(agents) > 5


def test_no_page_names_an_internal_module() -> None:
    packages = (
        "assemble|backends|cli|clients|core|declare|gateway|guard|hooks|learn|lint|map|mcp|own_files|packages|"
        "policy_files|sandbox|source|wasm"
    )
    for page in [*PAGES, *PLAYED]:
        assert re.findall(rf"`licet\.(?:{packages})\b[^`]*`", page.read_text("utf-8")) == [], page.name


@pytest.mark.parametrize(
    "source", ["import licet.guard.call", "from licet.backends.http import HttpClient", "from licet import guard"]
)
def test_an_import_of_internals_is_noticed(source: str) -> None:
    assert len(internal_imports(source)) == 1


def test_the_navigation_has_every_page_once() -> None:
    def pages(entry: Any) -> Iterator[str]:
        match entry:
            case str():
                yield entry
            case dict() | list():
                for one in entry.values() if isinstance(entry, dict) else entry:
                    yield from pages(one)

    listed = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    found = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(found)


def words(page: Path) -> int:
    """The words of a page, code and tables included and generated parts left out, as `wc -w` counts them."""
    return len(GENERATED.sub("", page.read_text("utf-8")).split())


def test_there_is_little_to_read() -> None:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    long = {page.name: words(page) for page in pages if page.parent.name == "how-to"}
    tables = [page for page in pages if page.parent.name == "hooks"]
    assert max(map(words, tables)) <= MOST_WORDS_BESIDES_TABLES
    assert len(pages) - len(tables) <= MOST_PAGES
    assert sum(map(words, pages)) <= MOST_WORDS
    assert {name: number for name, number in long.items() if number > MOST_WORDS_OF_A_HOW_TO} == {}


def test_words_of_a_page_are_counted_without_generated_parts(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One two\n\n<!-- generated: x -->\nnot these\n<!-- end -->\nthree `four`\n", "utf-8")
    assert words(page) == 5  # with `#`


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its headings, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.*)", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_of_pages_lead_somewhere() -> None:
    pages = [page for folder in ("docs", "design", "examples") for page in (ROOT / folder).rglob("*.md")]
    pages += ROOT.glob("*.md")
    broken, seen = [], 0
    for page in (*pages, ROOT / "benchmarks" / "README.md"):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if link.startswith("http"):
                continue
            file, _, anchor = link.partition("#")
            target, seen = (page.parent / file if file else page), seen + 1
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((page.name, link))
    assert broken == []
    assert seen > 50
