"""Tools from notebook cells: a worker gets their text, with what they name, or the call is refused with the reason."""

import linecache
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from licet import Tool
from licet.declare.decorator import NoSource, cell_of
from sandbox.levels import call, gate, needs_walls

NUMBERS = count()
HEAD = "from licet import Context, tool\n"
DECLARED = "@tool(needs=[], effect='read_only', sandbox='restricted')\n"


def ask(kind: str, value: str) -> str:
    """A cell with a tool that returns the value of an expression."""
    return f"{DECLARED}def ask() -> {kind}:\n    return {value}\n"


class Notebook:
    """Runs cells as a notebook does: under a name that is no file, whose text Python keeps."""

    def __init__(self) -> None:
        self.module = sys.modules["a_notebook"] = ModuleType("a_notebook")
        self.run(HEAD)

    def run(self, text: str, flags: int = 0) -> None:
        name = f"<cell {next(NUMBERS)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec", flags), vars(self.module))

    def tool(self) -> Tool:
        found = vars(self.module)["ask"]
        assert isinstance(found, Tool)
        return found


@pytest.fixture
def notebook() -> Any:
    yield Notebook()
    del sys.modules["a_notebook"]


SENT: dict[str, tuple[list[str], Any]] = {
    "alone": ([ask("int", "1")], 1),
    "a constant": (["MOST = {'a': (1, 2.5), 'b': {3}}", ask("list", "list(MOST['a'])")], [1, 2.5]),
    "imports": (
        ["import json as j, os.path\nfrom math import floor as down", ask("str", "j.dumps([down(1.5), os.path.sep])")],
        '[1, "/"]',
    ),
    "functions that call each other": (
        [
            "def even(n):\n    return n == 0 or odd(n - 1)",
            "def odd(n):\n    return n != 0 and even(n - 1)",
            ask("bool", "even(10)"),
        ],
        True,
    ),
    "a class, its base and its decorator": (
        [
            "from dataclasses import dataclass\nclass Base:\n    kind = 'b'",
            "@dataclass\nclass Box(Base):\n    value: int = 3",
            ask("list", "[Box().value, Box.kind]"),
        ],
        [3, "b"],
    ),
    "a decorated helper": (
        ["import functools\n@functools.cache\ndef half(n):\n    return n // 2", ask("int", "half(8)")],
        4,
    ),
    "a default and an annotation": (
        ["from typing import Any\nFIVE = 5", f"{DECLARED}def ask(n: int = FIVE) -> Any:\n    return n\n"],
        5,
    ),
    "a local name that is a global too": (
        ["df = object()", f"{DECLARED}def ask() -> int:\n    df = 2\n    return df\n"],
        2,
    ),
    "another tool": ([f"{DECLARED}def other() -> int:\n    return 4\n", ask("int", "other()")], 4),
    "async": ([f"{DECLARED}async def ask(ctx: Context) -> str:\n    return type(ctx).__name__\n"], "RemoteContext"),
    "the newest cell counts": (["def f():\n    return 1", "def f():\n    return 2", ask("int", "f()")], 2),
}

REFUSED = {
    "an object": (["df = object()", ask("str", "str(df)")], r"names `df` \(object\)"),
    "through a helper": (["df = object()\ndef f():\n    return df", ask("str", "str(f())")], "names `df`"),
    "a lambda": (["f = lambda: 1", ask("int", "f()")], "`f`, which is another name of"),
    "not defined": ([ask("int", "nowhere")], "names `nowhere`, which is not defined"),
    "a closure": (
        [f"def make():\n    {DECLARED}    def ask() -> int:\n        return 1\n    return ask\nask = make()"],
        "defined inside a function",
    ),
    "a large constant": (["MANY = list(range(50_000))", ask("int", "len(MANY)")], r"names `MANY` \(list\)"),
    "inside a block": (
        [f"if True:\n    {DECLARED}    def ask() -> int:\n        return 1\n"],
        "not found at the top of its cell",
    ),
}


@pytest.mark.parametrize("case", SENT)
@pytest.mark.sampled(6)
def test_a_tool_of_a_cell_runs_behind_walls(tmp_path: Path, notebook: Notebook, case: str) -> None:
    needs_walls()
    cells, expected = SENT[case]
    for text in cells:
        notebook.run(text)
    assert call(gate(tmp_path, "restricted", notebook.tool()), "ask").unwrap() == expected


def test_a_class_is_not_looked_for_in_the_text_of_a_command(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.13 the text after `python -c` is known under the name that methods of a dataclass have too."""
    monkeypatch.setitem(linecache.cache, "<string>", (9, None, ["import sys"], "<string>"))
    for text in SENT["a class, its base and its decorator"][0]:
        notebook.run(text)
    cell = cell_of(notebook.tool().fn)
    assert cell is not None
    assert "class Box" in cell.text


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_sent_is_refused_by_name(tmp_path: Path, notebook: Notebook, case: str) -> None:
    cells, said = REFUSED[case]
    for text in cells:
        notebook.run(text)
    with pytest.raises(NoSource, match=said):
        cell_of(notebook.tool().fn)


def test_the_refusal_reaches_the_caller(tmp_path: Path, notebook: Notebook) -> None:
    needs_walls()
    for text in REFUSED["an object"][0]:
        notebook.run(text)
    result = call(gate(tmp_path, "restricted", notebook.tool()), "ask")
    assert (result.code, result.reason) == ("not_available", "SANDBOX_UNAVAILABLE")
    assert "`ask` cannot be sent to another process: it names `df` (object)" in result.error


def test_the_digest_of_a_tool_covers_what_it_names(tmp_path: Path, notebook: Notebook) -> None:
    notebook.run("MOST = 1")
    notebook.run(ask("int", "MOST"))
    tool = notebook.tool()
    digests = [gate(tmp_path, "restricted", tool)._policy.tools["ask"].entry.tool_digest]
    notebook.run("MOST = 2")
    at = gate(tmp_path, "restricted", tool)
    digests.append(at._policy.tools["ask"].entry.tool_digest)
    assert len({*digests, tool.digest}) == 3


def test_a_gate_runs_the_text_that_was_there_when_it_was_built(tmp_path: Path, notebook: Notebook) -> None:
    needs_walls()
    notebook.run("MOST = 1")
    notebook.run(ask("int", "MOST"))
    at = gate(tmp_path, "restricted", notebook.tool())
    notebook.run("MOST = 2")
    assert call(at, "ask").unwrap() == 1


def test_an_error_names_the_line_of_the_cell(tmp_path: Path, notebook: Notebook) -> None:
    needs_walls()
    notebook.run(f"\n\n{DECLARED}def ask() -> int:\n    return 1 // 0\n")
    at = gate(tmp_path, "restricted", notebook.tool())
    assert ">:5)" in call(at, "ask").explain()
