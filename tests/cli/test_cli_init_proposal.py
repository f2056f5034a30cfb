"""`licet init` on files without tools: it proposes declarations, and writes them only with `--write`."""

import ast
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from licet.cli.app import licet
from licet.source.declarations import read_tools

OLD = '''"""Tools from before."""
from __future__ import annotations

import os

import requests

raise SystemExit("this file was imported")


def fetch_weather(city: str) -> dict:
    """Today's forecast."""
    key = os.environ["WEATHER_API_KEY"]
    return requests.get(f"https://api.weather.gov/points/{city}", headers={"X-Key": key}).json()


def save(name: str, text: str) -> None:
    with open(f"reports/{name}", "w") as file:
        file.write(text)


def add(a: int, b: int) -> int:
    return a + b
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "old.py").write_text(OLD)
    return tmp_path


def init(*words: str) -> Result:
    return CliRunner().invoke(licet, ["init", *words], catch_exceptions=False)


def test_a_proposal_is_printed_and_nothing_is_written(folder: Path) -> None:
    result = init("old.py")
    assert result.exit_code == 1
    assert "no tool" in result.stderr
    assert message("init_proposal.licet_init_old_py_write") in result.stderr
    assert [path.name for path in folder.iterdir()] == ["old.py"]
    assert (folder / "old.py").read_text() == OLD
    assert message("init_proposal.network_allowed_hosts_api_weather") in result.stdout
    assert '+        "secrets": ["WEATHER_API_KEY"],' in result.stdout
    assert message("init_proposal.fs_reach_write_reports_open") in result.stdout


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the program `patch`")
def test_the_printed_diff_is_a_patch_of_the_file(folder: Path) -> None:
    printed = init("old.py").stdout
    (folder / "copy.py").write_text(OLD)
    subprocess.run(["patch", "copy.py"], input=printed, text=True, check=True, capture_output=True)
    assert init("old.py", "--write").exit_code == 0
    assert (folder / "copy.py").read_text() == (folder / "old.py").read_text()


def test_init_accepts_the_declarations_that_write_has_added(folder: Path) -> None:
    result = init("old.py", "--write")
    assert (result.exit_code, (folder / ".licet").exists()) == (0, False)
    source = read_tools("old.py")
    assert source.problems == ()
    specs = {spec.name: spec for spec in source.specs}
    assert list(specs) == ["fetch_weather", "save", "add"]
    assert specs["fetch_weather"].needs.has("secret:read:WEATHER_API_KEY")
    assert (specs["save"].effect, specs["save"].sandbox) == ("write_limited", "isolated")
    assert (specs["add"].effect, specs["add"].sandbox) == ("read_only", "restricted")
    assert init("old.py").exit_code == 0
    assert CliRunner().invoke(licet, ["check"]).exit_code == 0


def test_the_file_says_that_every_declaration_is_a_guess(folder: Path) -> None:
    init("old.py", "--write")
    text = (folder / "old.py").read_text()
    assert text.count(message("init_proposal.guessed_licet_init")) == text.count("@tool(") == 3
    assert ast.parse(text).body[1].__class__ is ast.ImportFrom  # `__future__` stays first


def test_a_second_write_finds_nothing_to_do() -> None:
    init("old.py", "--write")
    result = init("old.py", "--write")
    assert (result.exit_code, "nothing to write" in result.stderr) == (1, True)


def test_json_says_what_was_seen_and_where() -> None:
    said: dict[str, Any] = json.loads(init("old.py", "--json").stdout)
    (proposal,) = said["proposals"]
    assert [one["function"] for one in proposal["functions"]] == ["fetch_weather", "save", "add"]
    assert proposal["functions"][0]["seen"] == [
        {"line": 13, "call": "os.environ", "scope": "WEATHER_API_KEY"},
        {"line": 14, "call": "requests.get", "scope": "api.weather.gov"},
    ]
    assert proposal["functions"][2]["capabilities"] == {}


def test_a_file_that_has_another_tool_already_gets_a_name_that_is_free(folder: Path) -> None:
    (folder / "old.py").write_text("from langchain import tool\n\ndef f() -> int:\n    return 1\n")
    init("old.py", "--write")
    text = (folder / "old.py").read_text()
    assert "import licet\n" in text
    assert "@licet.tool(" in text
    assert [spec.name for spec in read_tools("old.py").specs] == ["f"]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffdef f(): ...\n",
        "\x0c\ndef f(): ...\n",
        "x = 1\r\ndef f(): ...\r\n",
        "# -*- coding: utf-8 -*-\ndef f(): ...",
        "def f(): ...",
    ],
    ids=["a byte order mark", "a form feed", "other line ends", "a stated encoding", "no last line end"],
)
def test_lines_are_counted_as_python_counts_them(text: str, folder: Path) -> None:
    (folder / "old.py").write_bytes(text.encode())
    assert init("old.py", "--write").exit_code == 0
    after = (folder / "old.py").read_bytes().decode()
    assert [spec.name for spec in read_tools("old.py").specs] == ["f"]
    assert ("\r\n" in text) == ("@tool(" in after and ")\r\ndef f()" in after)


@pytest.mark.parametrize("data", [b"x = 1\n", b"def _f(): ...\n", b"class A:\n    def f(self): ...\n"])
def test_a_file_without_guesses_has_the_same_problem_as_before(data: bytes, folder: Path) -> None:
    (folder / "old.py").write_bytes(data)
    result = init("old.py")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message("init_proposal.decorate_function_tool") in result.stderr
    assert init("old.py", "--write").exit_code == 1
    assert (folder / "old.py").read_bytes() == data


def test_only_the_file_without_tools_gets_proposals(folder: Path) -> None:
    new = "from licet import tool\n@tool(capabilities={}, effect='read_only', sandbox='restricted')\ndef g(): ...\n"
    (folder / "new.py").write_text(f"{new}def plain(): ...\n")
    assert init("new.py", "old.py").exit_code == 1
    assert init("new.py", "old.py", "--write").exit_code == 0
    assert (folder / "new.py").read_text() == f"{new}def plain(): ...\n"
    assert init("new.py", "old.py").exit_code == 0


REFUSED = """import os

def several(*args: str) -> str:
    return os.sep

def named(**kw: str) -> str:
    return os.sep

def placed(a: str, /) -> str:
    return a

def untyped(ctx, a: str) -> str:
    return a

def lines(a: str):
    yield a

def fine(a: str) -> list[str]:
    return list((lambda: (yield a))())
"""


def test_functions_that_no_tool_can_be_are_not_proposed(folder: Path) -> None:
    (folder / "odd.py").write_text(REFUSED)
    assert init("odd.py", "--write").exit_code == 0
    text = (folder / "odd.py").read_text()
    assert [one.name for one in read_tools(folder / "odd.py").specs] == ["fine"]
    exec(compile(text, "odd.py", "exec"), {"__name__": "odd"})
