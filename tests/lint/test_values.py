"""A name of the table counts as a use wherever it is a value, and so does the import of a module that only does I/O."""

from pathlib import Path

import pytest
import yaml

from licet.lint.linter import Lint, Report
from licet.policy_files.policy_paths import shown_path
from licet.source.source_files import Project

HERE = Path(__file__).parent
CASES: dict[str, dict[str, str]] = yaml.safe_load((HERE / "values.yaml").read_text("utf-8"))
SILENT: dict[str, str] = yaml.safe_load((HERE / "silent.yaml").read_text("utf-8"))


def linted(module: str, body: str, level: str, capabilities: str = "{}") -> Report:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    Path("tools.py").write_text(
        f"from licet import tool\n{module}\n"
        f'@tool(capabilities={capabilities}, effect="full", sandbox="{level}")\n'
        f'def t(p: str = "x") -> str:\n    """T."""\n{lines}    return p\n'
    )
    lint = Lint(Project(shown_path))
    lint.add_file("tools.py")
    return lint.report()


def said(report: Report) -> list[str]:
    return [f"{one.severity} {one.code}" for one in report.findings]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_a_use_that_is_no_plain_call_is_found(name: str) -> None:
    case = CASES[name]
    # What only the import says does not count here.
    native = [one for one in said(linted(**case, level="native")) if one != "error LIC305"]
    assert any(one.startswith("error LIC") and one[9] in "123" for one in native), native
    walled = said(linted(**case, level="isolated"))
    assert any(one.partition(" ")[2][:4] in ("LIC1", "LIC2", "LIC3") for one in walled), walled


@pytest.mark.parametrize("level", ["native", "isolated", "restricted"])
@pytest.mark.parametrize("name", SILENT)
def test_what_names_nothing_that_is_done_is_no_finding(name: str, level: str) -> None:
    found = linted(SILENT[name], "pass", level).findings
    assert [one for one in found if "t" in one.tools and one.code < "LIC4"] == []


ONLY_IO = {
    "import subprocess": "process",
    "import subprocess as s": "process",
    "from multiprocessing import Pool": "process",
    "import socket": "network",
    "from urllib import request": "network",
    "import urllib.request": "network",
    "import http.client": "network",
    "from requests.api import get": "network",
    "import httpx": "network",
    "from aiohttp.client import ClientSession": "network",
    "import ftplib, json": "network",
    "import smtplib": "network",
    "try:\n    import httpx\nexcept ImportError:\n    httpx = None": "network",
    "import shutil": "fs",
    "from shutil import which": "fs",
    "X = __import__('subprocess')": "process",
    "import importlib\nX = importlib.import_module('http.client')": "network",
}
DECLARED = {
    "process": '{"process": {"allowed_binaries": ["git"]}}',
    "network": '{"network": {"allowed_hosts": ["a.example.com"]}}',
    "fs": '{"fs_reach": {"read": ["/srv"]}}',
}


@pytest.mark.parametrize("text", ONLY_IO)
def test_an_import_that_can_only_do_input_and_output_is_an_error_at_native(text: str) -> None:
    assert "error LIC305" in said(linted(text, "pass", "native"))
    assert "error LIC305" in said(linted("", text, "native"))
    assert said(linted(text, "pass", "isolated")) == said(linted(text, "pass", "restricted")) == []


@pytest.mark.parametrize("text", ONLY_IO)
def test_such_an_import_is_a_warning_if_the_tool_declares_some_of_it(text: str) -> None:
    found = said(linted(text, "pass", "native", DECLARED[ONLY_IO[text]]))
    assert "warning LIC305" in found
    assert "error LIC305" not in found


def test_a_module_of_the_project_with_the_name_of_a_library_is_no_such_import() -> None:
    Path("httpx.py").write_text("X = 1\n")
    assert said(linted("import httpx", "pass", "native")) == []


def test_an_import_in_a_helper_counts_with_the_way_to_it() -> None:
    Path("helper.py").write_text("import subprocess\n")
    [finding] = linted("import helper", "pass", "native").findings
    assert (finding.code, finding.origin.file) == ("LIC305", "helper.py")
    assert [hop.name for hop in finding.way] == ["import tools", "import helper"]


@pytest.mark.parametrize(
    ("level", "severity"), [("native", "error"), ("isolated", "warning"), ("restricted", "warning")]
)
def test_a_name_as_a_value_weighs_by_the_level(level: str, severity: str) -> None:
    [finding] = linted("import os\nT = [os.remove]", "pass", level).findings
    assert (finding.severity, finding.code, finding.rule) == (severity, "LIC101", "fs:delete:*")
    assert "`os.remove` as a value, which deletes files" in str(finding)


def test_a_raw_request_to_a_host_that_the_source_does_not_show_is_compared() -> None:
    declared = '{"network": {"allowed_hosts": ["a.example.com"]}}'
    assert said(linted("import requests", "requests.get(p)", "isolated", declared)) == []
    assert "error LIC102" in said(linted("import requests", "requests.get(p)", "isolated"))
