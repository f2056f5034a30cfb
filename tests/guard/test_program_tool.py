"""The tool behind `licet run` has a schema and a validator written by hand. They must equal those of its type hints."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from licet.assemble.program import _SCHEMA, ProgramTool, _program
from licet.declare import Tool, tool
from licet.declare.arguments import MOST_ARGUMENTS, InvalidArguments

HINTED: Tool = tool(needs=(), name="run")(_program)
OWN = ProgramTool(_program, HINTED.spec)
TAKEN: list[dict[str, Any]] = [
    {"command": []},
    {"command": ["true"]},
    {"command": ["sh", "-c", "echo NaN Infinity \u00e9 \U0001f600 \x00 '\""]},
    {"command": ["a" * (MOST_ARGUMENTS - len('{"command":[""]}'))]},
]
REFUSED: dict[str, object] = {
    "nothing": {},
    "no mapping": ["true"],
    "another name": {"commands": ["true"]},
    "one more": {"command": ["true"], "shell": True},
    "one text": {"command": "true"},
    "null": {"command": None},
    "a number": {"command": ["sleep", 1]},
    "a list in it": {"command": [["true"]]},
    "a null in it": {"command": ["true", None]},
    "not a number": {"command": [float("nan")]},
    "bytes that are no text": {"command": ["\udcff"]},
    "too long": {"command": ["a" * MOST_ARGUMENTS]},
}


def test_the_schema_is_that_of_the_type_hints() -> None:
    assert dict(_SCHEMA) == HINTED.schema


def test_the_definition_has_the_same_digest() -> None:
    assert replace(HINTED.spec, schema=_SCHEMA).digest == HINTED.digest


@pytest.mark.parametrize("given", TAKEN, ids=lambda given: str(given)[:40])
def test_arguments_that_fit_the_type_hints_are_accepted(given: dict[str, Any]) -> None:
    assert HINTED.validator()(given) == given
    taken = OWN.validator()(given)
    assert taken == given
    assert taken["command"] is not given["command"]  # what the caller keeps is not what the tool gets


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_arguments_that_do_not_fit_the_type_hints_are_refused(given: object) -> None:
    for tool_ in (HINTED, OWN):
        with pytest.raises(InvalidArguments):
            tool_.validator()(given)


RUN = """
import sys
from pathlib import Path
from licet import load_manifest, run
from licet.assemble.program import program_gate
from licet.sandbox.programs.terminal_streams import AttachedStreams

gate = program_gate(load_manifest("agent.yaml"), Path("state"), [], attached=AttachedStreams())
assert [tool.name for tool in gate.tools] == ["run"]
run(gate, "run", {"command": ["true"]})
print(*sys.modules)
"""


def test_licet_run_does_not_load_pydantic_or_the_worker_engine(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("{agent: a, capabilities: {process: {allowed_binaries: ['true']}}}")
    command = [sys.executable, "-I", "-c", RUN]
    ran = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    loaded = set(ran.stdout.split())
    assert "licet.guard.call" in loaded
    assert loaded & {"pydantic", "jsonschema_rs", "licet.sandbox.workers.engine", "licet.source.project"} == set()
