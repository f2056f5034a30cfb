"""`NAME = Tool.wasm(…)` read from source: what is found, what is a problem, and that the running tool says the same."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from licet.core.policy.tool import ToolSpec
from licet.core.values import Problem
from licet.source import declarations
from licet.source.declarations import Modules, SourceTools, find_tool, read_tools
from licet.source.project import project_modules
from wasm_files import EMPTY

HASH = f"sha256:{hashlib.sha256(EMPTY).hexdigest()}"
HEAD = "from licet import Tool\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.wasm").write_bytes(EMPTY)
    return tmp_path


def read(folder: Path, source: str) -> SourceTools:
    (folder / "file.py").write_text(source, encoding="utf-8")
    return read_tools(folder / "file.py", "file.py")


# What is found --------------------------------------------------------------------------------------------------------

FOUND: dict[str, str] = {
    "the front door": 'from licet import Tool\nx = Tool.wasm("a.wasm", needs=["env:read:A"])\n',
    "another name": 'from licet import Tool as T\nx = T.wasm("a.wasm", needs=["env:read:A"])\n',
    "the module": 'import licet\nx = licet.Tool.wasm("a.wasm", needs=["env:read:A"])\n',
    "the module by another name": 'import licet as l\nx = l.Tool.wasm("a.wasm", needs=["env:read:A"])\n',
    "the inner module": 'from licet.declare import Tool\nx = Tool.wasm("a.wasm", needs=["env:read:A"])\n',
    "a star": 'from licet import *\nx = Tool.wasm("a.wasm", needs=["env:read:A"])\n',
    "an annotation": HEAD + 'x: Tool = Tool.wasm("a.wasm", needs=["env:read:A"])\n',
    "the file by name": HEAD + 'x = Tool.wasm(file="a.wasm", needs=["env:read:A"])\n',
    "constants": HEAD + 'F = "a.wasm"\nN = ["env:read:A"]\nx = Tool.wasm(F, needs=N)\n',
    "a condition": HEAD + 'if True:\n    x = Tool.wasm("a.wasm", needs=["env:read:A"])\n',
    "keys": HEAD + 'x = Tool.wasm("a.wasm", capabilities={"env": ["A"]}, available=lambda s: True)\n',
    "a type": "from licet import *\nx = Tool.wasm('a.wasm', capabilities=ToolCapabilities(env=['A']))\n",
}


@pytest.mark.parametrize("source", FOUND.values(), ids=FOUND)
def test_a_declaration_is_found(folder: Path, source: str) -> None:
    found = read(folder, source)
    assert list(map(str, found.problems)) == []
    (spec,) = found.specs
    assert (spec.name, spec.source, spec.sandbox) == ("a", HASH, "restricted")
    assert list(map(str, spec.needs)) == ["env:read:A"]
    assert found.functions == {"a": "x"}


WHOLE = """
from licet import Tool, tool

@tool(needs=[])
def first() -> None: ...

x = Tool.wasm(
    "a.wasm",
    name="count",
    description="Count.",
    arguments={"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer", "default": 1}}},
    function="count",
    needs=["fs:read:/notes"],
    optional=["env:read:LANG"],
    effect="read_only",
    sandbox="isolated",
    connector="github",
    cost_usd="0.5",
)

@tool(needs=[])
def last() -> None: ...
"""


def test_a_declaration_says_what_the_running_tool_says(folder: Path) -> None:
    found = read(folder, WHOLE)
    names: dict[str, Any] = {"__name__": "whole"}
    exec(compile(WHOLE, str(folder / "file.py"), "exec"), names)
    running: ToolSpec = names["x"].spec
    assert [spec.name for spec in found.specs] == ["first", "count", "last"]  # in the order of the source
    spec = found.specs[1]
    for part in ToolSpec.__struct_fields__:
        if part != "origin":
            assert getattr(spec, part) == getattr(running, part), part
    assert spec.digest == running.digest
    assert spec.parameters == ("text", "n")
    assert spec.signature == "text: string, n: integer = 1"
    assert spec.origin is not None
    assert running.origin is not None
    assert (spec.origin.line, spec.origin.column) == (running.origin.line, 5)


def test_a_reference_finds_it_also_through_another_module(folder: Path) -> None:
    (folder / "kit").mkdir()
    (folder / "kit" / "b.wasm").write_bytes(EMPTY)
    (folder / "kit" / "__init__.py").write_text("from kit.inner import it as other\n")
    (folder / "kit" / "inner.py").write_text(HEAD + 'it = Tool.wasm("b.wasm", needs=[])\n')
    for reference in ("kit.inner:it", "kit:other"):
        found = find_tool(reference, [folder], name="b")
        assert isinstance(found, ToolSpec), found
        assert found.source == HASH


def test_a_module_that_changes_is_read_again_though_the_source_stays(folder: Path) -> None:
    before = read(folder, HEAD + 'x = Tool.wasm("a.wasm", needs=[])\n').specs[0]
    (folder / "a.wasm").write_bytes(EMPTY + b"\0\1\0")
    after = read_tools(folder / "file.py", "file.py").specs[0]
    assert before.source == HASH != after.source


def test_one_review_reads_each_module_once(folder: Path) -> None:
    (folder / "file.py").write_text(
        HEAD + 'x = Tool.wasm("a.wasm", needs=[])\ny = Tool.wasm("a.wasm", name="y", needs=[])'
    )
    modules = Modules()
    first = modules.read(folder / "file.py", "file.py")
    os.unlink(folder / "a.wasm")
    assert modules.read(folder / "file.py", "file.py") is first


# Problems -------------------------------------------------------------------------------------------------------------

CALL = 'x = Tool.wasm("a.wasm", '
PROBLEMS: dict[str, tuple[str, str]] = {
    "neither": (
        CALL + "name='a')",
        "file.py:2:5: error: found `x`, which does not say what it touches, expected `capabilities=` or `needs=`",
    ),
    "both": (CALL + "needs=[], capabilities={})", "error: found both `capabilities=` and `needs=` on `x`"),
    "native": (CALL + "needs=[], sandbox='native')", "file.py:2:43: error: found `native`, expected `restricted` or"),
    "no schema": (CALL + "needs=[], arguments={'text': 'string'})", "a JSON Schema of an object as `arguments`"),
    "an unknown argument": (CALL + "needs=[], reuse=True)", "error: found `reuse=` in `Tool.wasm` of `x`"),
    "a misspelt argument": (CALL + "neds=[])", "did you mean `needs`?"),
    "an argument twice": (CALL + "needs=[], file='a.wasm')", "found `file=` twice in `Tool.wasm` of `x`"),
    "arguments by position": (CALL + "'name', needs=[])", "found `'name'` without a name in `Tool.wasm` of `x`"),
    "stars": (CALL + "**more)", "found `**` of `more` in `Tool.wasm` of `x`"),
    "no file": ("x = Tool.wasm(needs=[])", "found `Tool.wasm` of `x` without a file"),
    "a number as file": ("x = Tool.wasm(5, needs=[])", "the path of a WebAssembly module as text"),
    "a computed file": ("x = Tool.wasm(where(), needs=[])", "found `file=` of `x` given by a call, `where()`"),
    "a computed file by name": ("x = Tool.wasm(file=where(), needs=[])", "found `file=` of `x` given by a call"),
    "computed needs": (CALL + "needs=where())", "found `needs=` of `x` given by a call, `where()`"),
    "a name bound twice": (CALL + "needs=[])\nx = 5", "found `x` bound 2 times in this file"),
    "Tool bound twice": ("Tool = 5\n" + CALL + "needs=[])", "a name that this file binds more than once"),
    "Tool.wasm replaced": ("Tool.wasm = print\n" + CALL + "needs=[])", "a name that this file binds more than once"),
    "licet.Tool replaced": (
        "import licet\nlicet.Tool = 5\nx = licet.Tool.wasm('a.wasm', needs=[])",
        "a name that this file binds more than once",
    ),
    "licet.Tool.wasm replaced": (
        "import licet\nlicet.Tool.wasm = 5\nx = licet.Tool.wasm('a.wasm', needs=[])",
        "a name that this file binds more than once",
    ),
    "a missing module": (
        "x = Tool.wasm('no.wasm', needs=[])",
        "file.py:2:15: error: found `no.wasm`, expected a WebAssembly module (there is no file ",
    ),
    "the source itself": (
        "x = Tool.wasm('file.py', needs=[])",
        "error: found `file.py`, expected a WebAssembly module (it begins with the bytes 66 72 6f 6d",
    ),
    "a second tool of a name": (CALL + "needs=[])\ny = Tool.wasm('a.wasm', needs=[])", "a second tool called `a`"),
}


@pytest.mark.parametrize(("line", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_names_its_place(folder: Path, line: str, problem: str) -> None:
    found = read(folder, HEAD + line + "\n")
    assert problem in "\n".join(map(str, found.problems))
    assert all(one.origin.line > 1 for one in found.problems)
    assert len(found.specs) == (1 if "second tool" in problem else 0)


BY_HAND = {
    "in a function": "def f():\n    return Tool.wasm('a.wasm', needs=[])",
    "in a class": "class C:\n    x = Tool.wasm('a.wasm', needs=[])",
    "in a list": "x = [Tool.wasm('a.wasm', needs=[])]",
    "for two names": "x = y = Tool.wasm('a.wasm', needs=[])",
    "not called": "make = Tool.wasm",
}


@pytest.mark.parametrize("source", BY_HAND.values(), ids=BY_HAND)
def test_a_declaration_that_is_not_read_is_a_warning(folder: Path, source: str) -> None:
    found = read(folder, HEAD + source + "\n")
    assert found.specs == ()
    (problem,) = found.problems
    assert (problem.severity, problem.found) == ("warning", "`Tool.wasm` used by hand")
    assert problem.expected == "`NAME = Tool.wasm(…)` at the top level of a module"


def test_using_the_class_otherwise_is_no_problem(folder: Path) -> None:
    source = (
        HEAD + "def names(tools: list[Tool]) -> list[str]:\n    return [t.name for t in tools if type(t) is Tool]\n"
    )
    assert read(folder, source) == SourceTools((), (), {})


def test_a_named_pipe_does_not_stop_a_review(folder: Path) -> None:
    os.mkfifo(folder / "pipe.wasm")
    (problem,) = read(folder, HEAD + 'x = Tool.wasm("pipe.wasm", needs=[])\n').problems
    assert "it is a named pipe, not a regular file" in problem.expected


def test_a_review_reads_a_limited_amount_of_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "MOST_WASM_BYTES_IN_REVIEW", 3 * len(EMPTY))
    lines = []
    for number in range(5):
        (folder / f"m{number}.wasm").write_bytes(EMPTY)
        lines += [
            f"x{number}{again} = Tool.wasm('m{number}.wasm', name='n{number}{again}', needs=[])" for again in "ab"
        ]
    found = read(folder, HEAD + "\n".join(lines))
    assert [spec.name for spec in found.specs] == ["n0a", "n0b", "n1a", "n1b", "n2a", "n2b"]
    assert "of WebAssembly modules in one review" in found.problems[0].expected


def test_a_module_that_a_tool_loads_is_a_file_of_the_project(folder: Path) -> None:
    (folder / "kit.py").write_text(HEAD + 'import helper\nx = Tool.wasm("a.wasm", needs=[])\n')
    (folder / "helper.py").write_text(HEAD + 'y = Tool.wasm("below/b.wasm", needs=[])\n')
    project = project_modules(["kit:x"], [folder])
    assert project.wasm == (str(folder / "a.wasm"), str(folder / "below" / "b.wasm"))
    closed = dict(project.closed())
    assert {path: closed[path] for path in project.wasm} == dict.fromkeys(project.wasm, False)


def test_a_reference_to_a_broken_declaration_is_its_problem(folder: Path) -> None:
    (folder / "kit.py").write_text(HEAD + 'x = Tool.wasm("no.wasm", needs=[])\n')
    found = find_tool("kit:x", [folder])
    assert isinstance(found, Problem)
    assert found.found == "`no.wasm`"
