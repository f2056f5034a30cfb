"""`Tool.wasm`: the tool that it makes, what it refuses, and that a module is read but never run or compiled."""

import copy
import hashlib
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import licet
from licet import CapabilitySet, Malformed, Tool, ToolCapabilities
from licet.declare.arguments import InvalidArguments
from licet.declare.decorator import WasmTool
from licet.declare.limits import LARGEST_MODULE
from licet.declare.wasm import WasmModule
from wasm_files import EMPTY, wasm

WORDS: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "most": {"type": ["integer", "null"], "default": 3}, "more": True},
    "required": ["text"],
}
HERE = Path(__file__).resolve()


def write(folder: Path, name: str = "word-count.v2.wasm", data: bytes = EMPTY) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path)


# What is declared -----------------------------------------------------------------------------------------------------


def test_a_tool_carries_its_declaration_and_its_module(file: str) -> None:
    made = Tool.wasm(
        file,
        description="Count words.",
        arguments=WORDS,
        function="count",
        needs=["fs:read:/notes"],
        optional=["env:read:LANG"],
        effect="read_only",
        sandbox="isolated",
        cost_usd="0.01",
    )
    assert isinstance(made, Tool)
    assert type(made) is WasmTool
    assert made.module == WasmModule(file, hashlib.sha256(EMPTY).hexdigest(), "count")
    assert made.spec.source == f"sha256:{made.module.sha256}#count"  # another function is another tool
    assert (made.name, made.description, made.effect, made.sandbox) == (
        "word_count_v2",
        "Count words.",
        "read_only",
        "isolated",
    )
    assert made.needs == CapabilitySet(["fs:read:/notes"])
    assert made.optional == CapabilitySet(["env:read:LANG"])
    assert made.schema == WORDS
    assert made.spec.parameters == ("text", "most", "more")
    assert made.spec.signature == "text: string, most: integer | null = 3, more: any"
    assert (made.is_async, made.context_parameter, made.reuse, made.spec.reuse) == (False, None, True, False)
    assert made.available is None
    assert made.in_lock
    assert repr(made) == "<tool word_count_v2: fs:read:/notes, env:read:LANG (optional); read_only, isolated>"


def test_the_defaults_are_a_command_that_takes_any_object_at_the_tightest_level(file: str) -> None:
    made = Tool.wasm(file, capabilities=ToolCapabilities(env=["LANG"]), name="other")
    assert (made.name, made.sandbox, made.module.function, made.description) == ("other", "restricted", None, "")
    assert made.schema == {"type": "object"}
    assert made.spec.parameters == ()
    assert made.parameter_names() == {}
    assert made.validator()({"any": [1, {"of": None}]}) == {"any": [1, {"of": None}]}
    assert made.needs == CapabilitySet(["env:read:LANG"])


def test_a_tool_says_where_it_is_declared(file: str) -> None:
    made = Tool.wasm(
        file,
        needs=[],
    )
    assert made.spec.origin is not None
    assert Path(made.spec.origin.file) == HERE
    assert HERE.read_text(encoding="utf-8").splitlines()[made.spec.origin.line - 1] == "    made = Tool.wasm("


def test_a_real_module_is_declared_without_wasmtime(tmp_path: Path) -> None:
    data = wasm('(module (func (export "run") (result i32) i32.const 7))')
    (tmp_path / "seven.wasm").write_bytes(data)
    (tmp_path / "kit.py").write_text(
        "import sys\nfrom licet import Tool\n"
        'seven = Tool.wasm("seven.wasm", needs=[], function="run", arguments={"type": "object"})\n'
        'print(seven.module.sha256, sorted({"wasmtime", "pydantic", "jsonschema_rs"} & sys.modules.keys()))\n'
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "kit.py")], check=True, capture_output=True, text=True, cwd="/"
    )
    assert done.stdout == f"{hashlib.sha256(data).hexdigest()} []\n"


def test_a_file_is_found_next_to_the_python_file_or_else_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "here").mkdir()
    inner = write(tmp_path / "kit", "a.wasm")
    current = write(tmp_path / "here", "a.wasm", EMPTY + b"\0\1\0")
    monkeypatch.chdir(tmp_path / "here")
    source = 'from licet import Tool\na = Tool.wasm("a.wasm", needs=[])\n'
    (tmp_path / "kit" / "tools.py").write_text(source)
    for code, found in ((str(tmp_path / "kit" / "tools.py"), inner), ("<a cell>", current)):
        names: dict[str, Any] = {}
        exec(compile(source, code, "exec"), names)
        assert names["a"].module.file == found, code
    assert Tool.wasm(Path(inner), needs=[]).module.file == inner


def test_a_module_that_changes_changes_the_digest_and_the_tool_keeps_what_it_read(tmp_path: Path) -> None:
    file = write(tmp_path)
    before = Tool.wasm(file, needs=[])
    same = Tool.wasm(file, needs=[])
    write(tmp_path, data=EMPTY + b"\0\1\0")
    after = Tool.wasm(file, needs=[])
    assert before.digest == same.digest != after.digest
    assert before.module == same.module
    moved = Tool.wasm(write(tmp_path, "other.wasm"), name=before.name, needs=[])
    assert moved.digest == before.digest  # its content counts, not its place


def test_every_change_of_a_declaration_changes_the_digest(file: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "as it was": {},
        "needs": {"needs": ["env:read:A"]},
        "description": {"description": "Other."},
        "arguments": {"arguments": WORDS},
        "name": {"name": "other"},
        "sandbox": {"sandbox": "isolated"},
        "effect": {"effect": "read_only"},
    }
    digests = {what: Tool.wasm(file, **{"needs": [], **given}).digest for what, given in changes.items()}
    assert len(set(digests.values())) == len(digests), digests


def test_a_changed_schema_does_not_change_the_tool(file: str) -> None:
    given = json.loads(json.dumps(WORDS))
    made = Tool.wasm(file, needs=[], arguments=given)
    digest = made.digest
    given["properties"]["text"]["type"] = "integer"
    made.schema["properties"]["text"]["type"] = "integer"
    assert made.spec.digest == digest
    assert made.schema == WORDS


# A tool as an object --------------------------------------------------------------------------------------------------


def test_a_tool_is_pickled_and_copied_by_the_name_that_its_module_gives_it(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Tool.wasm(file, needs=[], name="not_its_variable")
    monkeypatch.setitem(globals(), "its_variable", kept)
    assert copy.copy(kept) is copy.deepcopy(kept) is kept
    assert pickle.loads(pickle.dumps(kept)) is kept
    nameless = Tool.wasm(file, needs=[])
    assert copy.copy(nameless) is nameless
    with pytest.raises((pickle.PicklingError, AttributeError), match="word_count_v2"):
        pickle.dumps(nameless)


def test_a_module_runs_only_through_a_gate(file: str) -> None:
    made = Tool.wasm(file, needs=[])
    for call in (made, made.fn):
        with pytest.raises(RuntimeError, match="`word_count_v2` cannot be called directly: a WASM module runs only"):
            call(text="x")


@pytest.mark.parametrize("attribute", ["module", "spec", "anything"])
def test_a_tool_cannot_be_changed(file: str, attribute: str) -> None:
    made = Tool.wasm(file, needs=[])
    with pytest.raises(AttributeError, match=f"a Tool cannot be changed: {attribute}"):
        setattr(made, attribute, None)


ARGUMENTS: dict[str, tuple[object, str]] = {
    "fits": ({"text": "a", "most": None}, ""),
    "more than is listed": ({"text": "a", "else": 1}, ""),
    "a wrong type": ({"text": 5}, "text: 5 is not of type"),
    "one is missing": ({}, '"text" is a required property'),
    "no mapping": ([], "expected arguments by name, found list"),
    "not JSON": ({"text": float("nan")}, "NaN and infinities are none"),
}


@pytest.mark.parametrize(("given", "wrong"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_checked_by_the_schema(file: str, given: object, wrong: str) -> None:
    made = Tool.wasm(file, needs=[], arguments=WORDS)
    assert made.parameter_names() == {"text": "text", "most": "most", "more": "more"}
    if not wrong:
        assert made.validator()(given) == given
        return
    with pytest.raises(InvalidArguments) as refused:
        made.validator()(given)
    assert wrong in str(refused.value)


# What is refused ------------------------------------------------------------------------------------------------------


def fifo(folder: Path) -> str:
    os.mkfifo(folder / "pipe.wasm")
    return str(folder / "pipe.wasm")


def folder_itself(folder: Path) -> str:
    (folder / "dir.wasm").mkdir()
    return str(folder / "dir.wasm")


def large(folder: Path) -> str:
    with open(folder / "large.wasm", "wb") as opened:
        opened.write(EMPTY)
        opened.truncate(LARGEST_MODULE + 1)
    return str(folder / "large.wasm")


def content(data: bytes) -> Callable[[Path], str]:
    return lambda folder: write(folder, "it.wasm", data)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
FILES: dict[str, tuple[Callable[[Path], str], str, str]] = {
    "a missing file": (lambda folder: str(folder / "no.wasm"), "there is no file", "build the module first"),
    "a directory": (folder_itself, "it is a directory, not a regular file", "name the file of the module"),
    "a named pipe": (fifo, "it is a named pipe, not a regular file", "name the file of the module"),
    "a device": (lambda _: "/dev/zero", "it is a device, not a regular file", "name the file of the module"),
    "a path below a file": (lambda folder: write(folder) + "/x.wasm", "not a directory", "relative to the directory"),
    "a NUL": (lambda folder: str(folder / "a\0.wasm"), "null", "relative to the directory"),
    "too large": (large, "it is larger than 64 MiB", "wasm-tools strip"),
    "empty": (content(b""), "it is empty, and a module begins with 00 61 73 6d", "compile the program"),
    "cut off": (content(b"\0as"), "it begins with the bytes 00 61 73", "compile the program"),
    "the text form": (content(b"\n(module)"), "it is the text form of a module", "wat2wasm"),
    "a component as text": (content(b"(component)"), "it is the text form of a module", "wat2wasm"),
    "a program": (content(b"\x7fELF\2\1"), "it is a program for Linux", "wasm32-wasip1"),
    "a pointer of Git LFS": (content(LFS), "it is a pointer of Git LFS", "git lfs pull"),
    "compressed": (content(b"\x1f\x8b\x08"), "it is compressed with gzip", "unpack it first"),
}


@pytest.mark.parametrize(("make", "found", "fix"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_module_is_refused(tmp_path: Path, make: Callable[[Path], str], found: str, fix: str) -> None:
    file = make(tmp_path)
    with pytest.raises(Malformed) as refused:
        Tool.wasm(file, needs=[], name="it")
    assert found in str(refused.value)
    assert fix in str(refused.value)
    assert refused.value.expected.startswith("a WebAssembly module (")
    (note,) = refused.value.__notes__
    assert note.startswith("in the declaration `Tool.wasm(")
    assert f"{HERE}:" in note


OBJECT = '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}'
DECLARATIONS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "neither": ({}, TypeError, "does not say what it touches: give `capabilities=` or `needs=`"),
    "both": ({"needs": [], "capabilities": {}}, TypeError, "says twice what it touches"),
    "native": (
        {"needs": [], "sandbox": "native"},
        Malformed,
        "found `native`, expected `restricted` or `isolated` as `sandbox` of a WebAssembly module; a module never runs",
    ),
    "no level": ({"needs": [], "sandbox": "nativ"}, Malformed, "expected `restricted` or `isolated` as `sandbox`"),
    "no function": ({"needs": [], "function": ""}, Malformed, "leave `function` out for a WASI command"),
    "a long function": ({"needs": [], "function": "a" * 600}, Malformed, "the name of an exported function"),
    "a number as function": ({"needs": [], "function": 5}, Malformed, "the name of an exported function"),
    "no schema": ({"needs": [], "arguments": "text"}, Malformed, OBJECT),
    "the properties alone": ({"needs": [], "arguments": {"text": "string"}}, Malformed, OBJECT),
    "a schema of a list": ({"needs": [], "arguments": {"type": "array"}}, Malformed, "a JSON Schema of an object"),
    "an unknown type": (
        {"needs": [], "arguments": {"type": "object", "properties": {"a": {"type": "str"}}}},
        Malformed,
        '("str" is not valid',
    ),
    "another document": (
        {"needs": [], "arguments": {"type": "object", "$ref": "https://a.test/b"}},
        Malformed,
        "it refers to another document: https://a.test/b",
    ),
    "no JSON": ({"needs": [], "arguments": {"type": "object", "default": {1, 2}}}, Malformed, "as JSON ("),
    "a wrong rule": ({"needs": ["nothing"]}, Malformed, "nothing"),
    "a wrong name": ({"needs": [], "name": "a b"}, Malformed, "a name of 1 to 128"),
    "no check": ({"needs": [], "available": 5}, TypeError, "`available` must be True, False, or a function"),
}


@pytest.mark.parametrize(("given", "kind", "text"), DECLARATIONS.values(), ids=DECLARATIONS)
def test_a_wrong_declaration_is_refused(file: str, given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as refused:
        Tool.wasm(file, **given)
    assert text in str(refused.value)
    assert re.fullmatch(rf"in the declaration `Tool\.wasm\('.+\)` \({HERE}:\d+\)", refused.value.__notes__[0])


def test_a_file_whose_name_is_no_name_needs_another(tmp_path: Path) -> None:
    file = write(tmp_path, "my tool.wasm")
    with pytest.raises(Malformed, match="give the tool a `name=`"):
        Tool.wasm(file, needs=[])
    assert Tool.wasm(file, needs=[], name="mine").name == "mine"


@pytest.mark.parametrize("file", [5, None, b"a.wasm", ""])
def test_what_is_no_path_is_refused(file: Any) -> None:
    with pytest.raises(Malformed, match="the path of a WebAssembly module as text"):
        Tool.wasm(file, needs=[])


def test_all_arguments_of_a_declaration_are_those_of_a_function_and_of_a_module() -> None:
    of_function = set(inspect.signature(licet.tool).parameters) - {"misplaced", "reuse"}
    assert set(inspect.signature(Tool.wasm).parameters) == {*of_function, "file", "arguments", "function"}
