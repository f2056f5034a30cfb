"""A Python tool whose file, or an import of it, also declares a WebAssembly module."""

import importlib
import sys
from pathlib import Path

import pytest

from sandbox.levels import WALLED, call, gate, needs_walls
from wasm_files import write_wasm

WASM = """
from licet import Tool

count = Tool.wasm("count.wasm", capabilities={}, effect="read_only")
"""
PYTHON = """
@tool(capabilities={}, effect="read_only")
def add(a: int, b: int) -> int:
    return a + b
"""
FILES = {
    "in one file": {"beside_one": f"from licet import tool\n{WASM}{PYTHON}"},
    "in a module that it imports": {
        "beside_two": f"from licet import tool\nimport beside_wasm\n{PYTHON}",
        "beside_wasm": WASM,
    },
}


@pytest.mark.parametrize("level", WALLED)
@pytest.mark.parametrize("case", FILES)
def test_a_tool_next_to_a_wasm_tool_runs(
    case: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_walls()
    write_wasm(tmp_path / "count.wasm")
    for name, text in FILES[case].items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    name = next(iter(FILES[case]))
    try:
        tool = importlib.import_module(name).add
        result = call(gate(tmp_path, level, tool), "add", {"a": 1, "b": 2})
        assert result.value == 3
    finally:
        for name in FILES[case]:
            sys.modules.pop(name, None)
