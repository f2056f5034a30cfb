"""`licet lint` on tool files and their helpers, against `ast.parse` of the same files. Packages are not read.

Both run in one process, from the files on disk to the findings. The processor time counts, since the machine may be
busy.
"""

import ast
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Effort, Row, VerdictError, at_most, duration
from licet.lint.linter import Lint, Report
from licet.source.source_files import Project, python_files

__all__ = ["measure"]

TARGET = at_most(4)
ROOT = Path(__file__).resolve().parent.parent

# A project of ordinary size: tools that call helpers, which call others.
_TOOL = '''
@tool(capabilities={{"fs_reach": {{"read": ["${{workdir}}/notes"]}}}}, effect="read_only", sandbox="isolated")
def read_{n}(name: str, limit: int = {n}) -> dict[str, object]:
    """Read note {n}."""
    found = helpers.load(ROOT / name, limit)
    lines = [line.strip() for line in found.splitlines() if line and not line.startswith("#")]
    return {{"name": name, "lines": lines[:limit], "words": sum(len(line.split()) for line in lines)}}
'''
_HELPER = '''
def load_{n}(path: Path, limit: int) -> str:
    """The text of a note, from its cache if it is there."""
    if path in CACHE and len(CACHE[path]) < limit:
        return CACHE[path]
    text = path.read_text(encoding="utf-8")
    parts = {{key: value for key, _, value in (line.partition(":") for line in text.splitlines())}}
    CACHE[path] = "\\n".join(f"{{key.title()}}: {{value.strip()}}" for key, value in parts.items() if value)
    return CACHE[path][:limit] if limit else {after}
'''


def measure(effort: Effort) -> list[Row]:
    """One row for the tools of this repository, and one for a project with many helpers."""
    own = [str(ROOT / "examples"), str(ROOT / "src" / "licet" / "tools")]
    rows = [_row("lint, examples and ready-made tools", own, effort, most=0)]
    with tempfile.TemporaryDirectory() as folder:
        _project(Path(folder))
        rows.append(_row("lint, 40 tools and 200 helpers", [folder], effort, most=0))
    return rows


def _project(folder: Path) -> None:
    head = "from pathlib import Path\n\n"
    tools = "".join(_TOOL.format(n=n) for n in range(40))
    (folder / "tools.py").write_text(f'{head}import helpers\nfrom licet import tool\n\nROOT = Path("notes")\n{tools}')
    last = 199
    helpers = "".join(
        _HELPER.format(n=n, after=f"load_{n + 1}(path, limit)" if n < last else "text") for n in range(200)
    )
    (folder / "helpers.py").write_text(f"{head}CACHE: dict[Path, str] = {{}}\n{helpers}\nload = load_0\n")


def _row(what: str, paths: list[str], effort: Effort, most: int) -> Row:
    project, report = _linted(paths)
    if report.count("error") > most or not report.tools:
        raise VerdictError(f"{what}: {report.count('error')} errors, {len(report.tools)} tools")
    files = [Path(file.path) for file in project.files]
    best = {"lint": float("inf"), "parse": float("inf")}
    for _ in range(effort.processes):
        started = time.process_time()
        for path in files:
            ast.parse(path.read_bytes())
        middle = time.process_time()
        _linted(paths)
        best["parse"] = min(best["parse"], middle - started)
        best["lint"] = min(best["lint"], time.process_time() - middle)
    shown = duration(best["lint"] * 1e9), duration(best["parse"] * 1e9)
    return Row(what, "ast.parse", *shown, best["lint"] / best["parse"], TARGET)


def _linted(paths: list[str]) -> tuple[Project, Report]:
    project = Project(str)
    lint = Lint(project)
    for path in python_files(paths):
        lint.add_file(path)
    return project, lint.report()
