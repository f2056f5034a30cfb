"""Components: functions with typed values, in interfaces and alone, and commands; values as JSON and back."""

from pathlib import Path
from typing import Any

import pytest

from licet import Result, Tool
from sandbox.levels import call, gate, needs_walls
from wasm_files import wasm

# Each function gives back what it gets, through the memory of the module where its type needs that.
TEXT = """
(component
  (core module $code
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (global.set $next (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.get $next)
      (global.set $next (i32.add (global.get $next) (local.get 3))))
    (func (export "one") (param i32) (result i32) (local.get 0))
    (func (export "long") (param i64) (result i64) (local.get 0))
    (func (export "real") (param f64) (result f64) (local.get 0))
    (func (export "pair") (param i32 i32) (result i32)
      (i32.store (i32.const 16) (local.get 0)) (i32.store (i32.const 20) (local.get 1)) (i32.const 16))
    (func (export "checked") (param i32) (result i32)
      (if (i32.lt_u (local.get 0) (i32.const 10))
        (then (i32.store8 (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (local.get 0)))
        (else (i32.store8 (i32.const 16) (i32.const 1)) (i32.store (i32.const 20) (i32.const 64))
          (i32.store (i32.const 24) (i32.const 9))))
      (i32.const 16))
    (data (i32.const 64) "too large")
    (func (export "nothing"))
    (func (export "run") (result i32) (i32.const 0))
    (func (export "fail") (result i32) (i32.const 1))
    (func (export "trap") unreachable))
  (core instance $core (instantiate $code))
  (type $point (record (field "x" s32) (field "y" s32)))
  (export $Point "point" (type $point))
  (type $colour (enum "red" "green" "blue"))
  (export $Colour "colour" (type $colour))
  (type $marks (flags "bold" "wide" "small"))
  (export $Marks "marks" (type $marks))
  (func (export "small") (param "value" u8) (result u8) (canon lift (core func $core "one")))
  (func (export "signed") (param "value" s32) (result s32) (canon lift (core func $core "one")))
  (func (export "long") (param "value" u64) (result u64) (canon lift (core func $core "long")))
  (func (export "real") (param "value" f64) (result f64) (canon lift (core func $core "real")))
  (func (export "truth") (param "value" bool) (result bool) (canon lift (core func $core "one")))
  (func (export "letter") (param "value" char) (result char) (canon lift (core func $core "one")))
  (func (export "text") (param "value" string) (result string)
    (canon lift (core func $core "pair") (memory (core memory $core "memory")) (realloc (core func $core "realloc"))))
  (func (export "bytes") (param "value" (list u8)) (result (list u8))
    (canon lift (core func $core "pair") (memory (core memory $core "memory")) (realloc (core func $core "realloc"))))
  (func (export "numbers") (param "value" (list u32)) (result (list u32))
    (canon lift (core func $core "pair") (memory (core memory $core "memory")) (realloc (core func $core "realloc"))))
  (func (export "texts") (param "value" (list string)) (result (list string))
    (canon lift (core func $core "pair") (memory (core memory $core "memory")) (realloc (core func $core "realloc"))))
  (func (export "both") (param "value" (tuple u32 u32)) (result (tuple u32 u32))
    (canon lift (core func $core "pair") (memory (core memory $core "memory"))))
  (func (export "point-of") (param "value" $Point) (result $Point)
    (canon lift (core func $core "pair") (memory (core memory $core "memory"))))
  (func (export "colour-of") (param "value" $Colour) (result $Colour) (canon lift (core func $core "one")))
  (func (export "marks-of") (param "value" $Marks) (result $Marks) (canon lift (core func $core "one")))
  (func (export "maybe") (param "value" (option u32)) (result (option u32))
    (canon lift (core func $core "pair") (memory (core memory $core "memory"))))
  (func (export "checked") (param "value" u32) (result (result u32 (error string)))
    (canon lift (core func $core "checked") (memory (core memory $core "memory"))))
  (func (export "nothing") (canon lift (core func $core "nothing")))
  (func (export "trap") (canon lift (core func $core "trap")))
  (func $run (result (result)) (canon lift (core func $core "%s")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command))
)
"""


@pytest.fixture(autouse=True)
def _walls() -> None:
    needs_walls()


def called(folder: Path, function: str | None, arguments: dict[str, Any], run: str = "run") -> Result:
    (folder / "c.wasm").write_bytes(wasm(TEXT % run))
    tool = Tool.wasm(str(folder / "c.wasm"), name="c", function=function, capabilities={}, effect="read_only")
    return call(gate(folder, "restricted", tool), "c", arguments)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        ("small", 255),
        ("signed", -(2**31)),
        ("long", 2**64 - 1),
        ("real", 0.5),
        ("truth", True),
        ("letter", "ü"),
        ("text", "Grüße \U0001f600"),
        ("text", ""),
        ("bytes", "/w8A"),
        ("numbers", [1, 2, 3]),
        ("texts", ["a", "", "bc"]),
        ("both", [1, 2]),
        ("point-of", {"x": 1, "y": -2}),
        ("colour-of", "blue"),
        ("marks-of", ["bold", "small"]),
        ("checked", 3),
    ],
)
@pytest.mark.sampled(10)
def test_a_value_comes_back_as_it_was_sent(tmp_path: Path, function: str, value: Any) -> None:
    result = called(tmp_path, function, {"value": value})
    assert (result.error, result.value) == ("", value)


def test_an_option_is_its_value_or_null(tmp_path: Path) -> None:
    # The function gives back the two numbers of its option: whether it has a value, and the value.
    assert called(tmp_path, "maybe", {"value": 5}).value == 5
    assert called(tmp_path, "maybe", {"value": None}).value is None
    assert called(tmp_path, "maybe", {}).value is None


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("small", {"value": 256}, "`value` must be from 0 to 255"),
        ("small", {"value": "1"}, "`value` must be a whole number"),
        ("small", {"value": True}, "`value` must be a whole number"),
        ("small", {}, "`value` is missing"),
        ("text", {"value": 1}, "`value` must be a text"),
        ("letter", {"value": "ab"}, "`value` must be one character"),
        ("bytes", {"value": "%%"}, "`value` must be base64"),
        ("numbers", {"value": [1, -1]}, "`value[]` must be from 0 to 4294967295"),
        ("both", {"value": [1]}, "`value` must have 2 values"),
        ("point-of", {"value": {"x": 1}}, "`value` lacks `y`"),
        ("point-of", {"value": {"x": 1, "y": 2, "z": 3}}, "`value` has no field `z`"),
        ("colour-of", {"value": "pink"}, "`value` must be one of red, green, blue"),
        ("marks-of", {"value": ["odd"]}, "`value` must be one of bold, wide, small"),
        ("checked", {"value": 10}, "too large"),
        ("trap", {}, "unreachable"),
        ("missing", {}, "it exports no function `missing`"),
        ("no:such/interface#run", {}, "it exports no function"),
    ],
)
@pytest.mark.sampled(10)
def test_what_does_not_fit_fails_with_the_reason(tmp_path: Path, function: str, arguments: Any, said: str) -> None:
    result = called(tmp_path, function, arguments)
    assert result.reason == "TOOL_FAILED"
    assert said in result.error


def test_a_function_without_a_result_gives_null(tmp_path: Path) -> None:
    assert (called(tmp_path, "nothing", {}).ok, called(tmp_path, "nothing", {}).value) == (True, None)


def test_a_command_runs_and_says_whether_it_failed(tmp_path: Path) -> None:
    assert called(tmp_path, None, {}).value == ""
    failed = called(tmp_path, None, {}, run="fail")
    assert failed.error == "TOOL_FAILED: Trap: it ended with an error"


def test_a_function_of_an_interface_has_its_name(tmp_path: Path) -> None:
    assert called(tmp_path, "wasi:cli/run@0.2.0#run", {}).value is None
