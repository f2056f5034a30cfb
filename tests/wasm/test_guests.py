"""WASM tools through a gate: arguments and results, the host function, the environment, limits, and what is left."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Result, Tool
from licet.backends.memory import MemoryLedger
from licet.sandbox import probe
from licet.sandbox.native import InProcess
from licet.sandbox.workers.engine import Workers
from licet.sandbox.workers.pool import pool
from licet.wasm.guest import answer_text
from licet.wasm.guest_workers import WasmWorkers
from loopback import serving
from sandbox.levels import call, gate, local_backends, needs_walls
from wasm import modules
from wasm_files import wasm

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
LIMITS = {"fuel": 200_000_000, "memory_mb": 32, "cpu_seconds": 5}


@pytest.fixture(autouse=True)
def _walls() -> None:
    needs_walls()


def declare(folder: Path, data: bytes, name: str = "guest", **more: Any) -> Tool:
    """A tool made of these bytes."""
    (folder / f"{name}.wasm").write_bytes(data)
    stated = {"capabilities": {}, "effect": "read_only", **more}
    return Tool.wasm(str(folder / f"{name}.wasm"), name=name, **stated)


def once(folder: Path, data: bytes, given: Any = None, **more: Any) -> Result:
    """One call of such a tool."""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "work").mkdir(exist_ok=True)
    backends, limits = more.pop("backends", None), more.pop("limits", LIMITS)
    tool = declare(folder / "code", data, **more)
    return call(gate(folder / "work", "restricted", tool, backends=backends, limits=limits), "guest", given or {})


# Arguments and results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("add", {"a": 1, "b": -(2**63)}, 1 - 2**63),
        ("less", {"a": 5, "b": 2}, 3),
        ("less", {"b": 2, "a": 5}, 3),  # in the order of the schema
        ("half", {"x": 3}, 1.5),
        ("half", {"x": 0.5}, 0.25),
    ],
)
def test_a_function_gets_its_arguments_as_numbers(tmp_path: Path, function: str, arguments: Any, expected: Any) -> None:
    more = {} if function == "half" else {"arguments": NUMBERS}
    result = once(tmp_path, modules.WILD, arguments, function=function, **more)
    assert (result.error, result.value) == ("", expected)


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("add", {"a": 1}, "takes 2 arguments, found 1"),
        ("add", {"a": 1, "b": 2.5}, "`b` must be a whole number, an i64"),
        ("add", {"a": 1, "b": 2**63}, "`b` does not fit into an i64"),
        ("add", {"a": True, "b": 1}, "`a` must be a whole number"),
        ("half", {"x": "1"}, "`x` must be a number"),
        ("nothing", {}, "it exports no function `nothing`; it has "),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(tmp_path: Path, function: str, arguments: Any, said: str) -> None:
    result = once(tmp_path, modules.WILD, arguments, function=function)
    assert (result.ok, result.reason) == (False, "TOOL_FAILED")
    assert said in result.error


@pytest.mark.parametrize("value", [{"text": "Grüße"}, {}, {"deep": [1, [2, {"a": None}]]}, {"long": "x" * 100_000}])
def test_a_command_reads_json_and_its_output_is_the_result(tmp_path: Path, value: Any) -> None:
    assert once(tmp_path, modules.ECHO, value).value == value


def test_output_that_is_no_json_is_a_text(tmp_path: Path) -> None:
    texts = modules.Texts()
    assert once(tmp_path, modules.command(f"(call $say {texts('not { json')})", texts)).value == "not { json"


def test_a_command_that_fails_says_its_exit_code_and_last_words(tmp_path: Path) -> None:
    texts = modules.Texts()
    body = f"(call $write (i32.const 2) {texts('no such thing')}) (call $proc_exit (i32.const 3))"
    result = once(tmp_path, modules.command(body, texts))
    assert result.error == "TOOL_FAILED: Trap: it ended with exit code 3: no such thing"
    assert once(tmp_path, modules.command("(call $proc_exit (i32.const 0))")).ok


@pytest.mark.parametrize(("line", "said"), [("." * 900, f": {'.' * 900}"), ("." * 20_000, "")])
def test_last_words_are_whole_lines(tmp_path: Path, line: str, said: str) -> None:
    """Of a line that was cut at its beginning, nothing is said: it may begin with half a secret."""
    texts = modules.Texts()
    body = f"(call $write (i32.const 2) {texts(line)}) (call $proc_exit (i32.const 3))"
    error = once(tmp_path, modules.command(body, texts)).error
    assert error == f"TOOL_FAILED: Trap: it ended with exit code 3{said}"


def test_each_call_has_a_fresh_instance_and_many_leave_nothing(tmp_path: Path) -> None:
    tool = declare(tmp_path, modules.COUNTER, function="count")
    other = declare(tmp_path, modules.RANDOM, name="number")

    async def many() -> list[list[Any]]:
        async with gate(tmp_path, "restricted", tool, other, limits=LIMITS).session("s") as session:
            return [[(await session.call(name, {})).value for _ in range(20)] for name in ("guest", "number")]

    counted, random = asyncio.run(many())
    assert counted == [1] * 20
    assert len(set(random)) == 20


def test_a_module_that_has_to_be_initialized_is(tmp_path: Path) -> None:
    assert once(tmp_path, modules.REACTOR, function="ready").value == 7


# The host function ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("fs.read", {"path": "notes.txt"}, {"text": "hello"}),
        ("fs.read", {"path": "bytes"}, {"base64": "/w=="}),
        ("fs.list", {}, {"value": ["agent.yaml", "bytes", "notes.txt"]}),
        ("fs.exists", {"path": "nothing"}, {"value": False}),
        ("fs.write", {"path": "new.txt", "text": "x"}, {}),
        ("env.get", {"name": "COLOUR"}, {"value": "green"}),
        ("kv.set", {"key": "a", "value": [1]}, {}),
        ("kv.get", {"key": "missing"}, {"value": None}),
    ],
)
def test_an_operation_is_answered_by_the_handle(tmp_path: Path, op: str, args: Any, expected: Any) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("hello")
    (tmp_path / "work" / "bytes").write_bytes(b"\xff")
    needs = ["fs:read:${workdir}", "fs:write:${workdir}", "env:read:COLOUR", "storage:*:session"]
    backends = local_backends(tmp_path / "state", environ={"COLOUR": "green"})
    more = {"capabilities": None, "needs": needs, "effect": "write_limited", "backends": backends}
    result = once(tmp_path, modules.asks(op, json.dumps(args)), **more)
    assert (result.error, result.value) == ("", expected)


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("fs.read", {"path": "/etc/hostname"}, {"code": "PATH_NOT_REACHABLE", "kind": "Refused"}),
        ("fs.read", {"path": "nothing"}, {"code": "", "kind": "FileNotFoundError", "errno": 2}),
        ("fs.read", {}, {"code": "", "kind": "ValueError"}),
        ("fs.read", [], {"code": "", "kind": "TypeError"}),
        ("fetch", {"url": "http://127.0.0.1:1/"}, {"code": "HOST_NOT_ALLOWED", "kind": "Refused"}),
        ("env.get", {"name": "SECRET"}, {"code": "ENV_NOT_ALLOWED", "kind": "Refused"}),
        ("process.spawn", {"name": "true"}, {"code": "BINARY_NOT_ALLOWED", "kind": "Refused"}),
        ("no.such", {}, {"code": "", "kind": "ValueError"}),
        ("__class__", {}, {"code": "", "kind": "ValueError"}),
    ],
)
def test_an_operation_that_fails_says_why(tmp_path: Path, op: str, args: Any, expected: Any) -> None:
    more = {"capabilities": None, "needs": ["fs:read:${workdir}"], "backends": local_backends(tmp_path / "state")}
    result = once(tmp_path, modules.asks(op, json.dumps(args)), **more)
    said = dict(result.value)
    assert said.pop("text")
    assert said == expected


def test_a_refusal_that_a_guest_does_not_handle_is_the_reason_of_the_call(tmp_path: Path) -> None:
    texts = modules.Texts()
    asked = f"(drop (call $ask {texts('fs.read')} {texts(json.dumps({'path': '/etc/hostname'}))})) unreachable"
    more = {"capabilities": None, "needs": ["fs:read:${workdir}"], "backends": local_backends(tmp_path / "state")}
    result = once(tmp_path, modules.command(asked, texts), **more)
    assert result.reason == "PATH_NOT_REACHABLE"


def test_a_guest_has_the_environment_of_its_grant_and_no_other(tmp_path: Path) -> None:
    backends = Backends.memory(environ={"COLOUR": "green", "TOKEN": "secret"})
    more = {"capabilities": {"env": ["COLOUR", "SHAPE"]}, "backends": backends}
    result = once(tmp_path, modules.ENVIRONMENT, **more)
    assert result.value.rstrip("\0") == "COLOUR=green"
    assert result.access is not None
    assert "variable COLOUR" in result.access.rules  # no handle was asked, so the receipt has it as a rule in force


def test_a_file_name_that_is_no_text_has_an_answer_too() -> None:
    for name in ("note", "Grüße", "\udcff"):
        answer = answer_text({"value": [name]})
        assert json.loads(answer.encode())["value"] == [name]


def test_first_calls_at_the_same_time_share_what_is_prepared(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", declare(tmp_path, modules.COUNTER, function="count"), limits=LIMITS)

    async def at_once() -> list[Any]:
        async with at.session("s") as session:
            return [result.value for result in await asyncio.gather(*(session.call("guest", {}) for _ in range(6)))]

    assert asyncio.run(at_once()) == [1] * 6
    assert len([prepared for prepared in pool._parked if prepared.in_force() and prepared.tool is at.tools[0]]) == 1


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", modules.ENDINGS)
def test_each_way_to_end_has_its_reason_and_costs_only_its_own_call(tmp_path: Path, name: str) -> None:
    ending = declare(tmp_path, modules.WILD, function=name)
    adding = declare(tmp_path, modules.WILD, name="adding", function="add")
    at = gate(tmp_path, "restricted", ending, adding, limits=LIMITS)
    for _ in range(2):
        assert call(at, "guest", {}).reason == (modules.ENDINGS[name][1] or "ALLOWED")
        assert call(at, "adding", {"a": 1, "b": 1}).value == 2


def test_fuel_ends_a_call_at_the_same_point_each_time(tmp_path: Path) -> None:
    texts = modules.Texts()
    step = f"(drop (call $ask {texts('kv.set')} {texts(json.dumps({'key': 'n', 'value': 'x'}))}))"
    counted = f"""(loop (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (if (i32.eqz (i32.rem_u (local.get $n) (i32.const 1000))) (then {step})) (br 0))"""
    tool = declare(tmp_path, modules.command(counted, texts), capabilities=None, needs=["storage:*:session"])
    at = gate(tmp_path, "restricted", tool, limits={**LIMITS, "fuel": 100_000})
    asked = []
    for _ in range(3):
        result = call(at, "guest", {})
        assert result.reason == "LIMIT_FUEL"
        assert result.error == "LIMIT_FUEL: it used its 100000 units of fuel"
        asked.append(sum(event.capability.startswith("storage:") for event in result.events))
    assert asked[0] > 3
    assert len(set(asked)) == 1


def test_cpu_time_ends_a_call_whatever_its_fuel(tmp_path: Path) -> None:
    limits = {"cpu_seconds": 1, "fuel": 10**15}
    assert once(tmp_path, modules.WILD, function="loop", limits=limits).reason == "LIMIT_CPU"


def test_a_guest_that_blocks_in_the_host_is_ended_at_the_deadline(tmp_path: Path) -> None:
    result = once(tmp_path, modules.SLEEP, limits={"wall_seconds": 1})
    assert result.reason == "LIMIT_TIME"


def test_a_flood_of_output_ends_its_own_call(tmp_path: Path) -> None:
    tool, adding = declare(tmp_path, modules.FLOOD), declare(tmp_path, modules.WILD, name="adding", function="add")
    at = gate(tmp_path, "restricted", tool, adding, limits={**LIMITS, "fuel": 10**12})
    assert call(at, "guest", {}).reason == "LIMIT_OUTPUT"
    assert call(at, "adding", {"a": 1, "b": 1}).value == 2


def test_output_that_is_too_long_is_never_a_shorter_result(tmp_path: Path) -> None:
    """A command that ends right after its last write is over its limit before it can be interrupted."""
    write = "(call $say (i32.const 65536) (i32.const 65536))"
    assert once(tmp_path, modules.command(write * 257)).reason == "LIMIT_OUTPUT"
    assert len(once(tmp_path, modules.command(write * 4)).value) == 4 << 16


def test_a_name_in_a_module_is_no_reason(tmp_path: Path) -> None:
    named = """(module (func $inner (export "all fuel consumed by WebAssembly") unreachable)
        (func (export "f") (call $inner)))"""
    result = once(tmp_path, wasm(named), function="f")
    assert result.reason == "TOOL_FAILED"
    assert result.error == "TOOL_FAILED: Trap: wasm `unreachable` instruction executed"


def test_a_guest_that_fails_with_much_memory_in_use_failed_for_its_own_reason(tmp_path: Path) -> None:
    texts = modules.Texts()
    body = "(drop (memory.grow (i32.const 500))) (call $proc_exit (i32.const 3))"
    assert once(tmp_path, modules.command(body, texts)).error == "TOOL_FAILED: Trap: it ended with exit code 3"


def test_a_guest_that_waits_for_an_answer_of_the_host_is_ended_at_the_deadline(tmp_path: Path) -> None:
    async def never(exchange: Any) -> Any:
        await asyncio.sleep(60)

    with serving(never) as server:
        needs = [f"network:http:127.0.0.1:{server.port}"]
        asking = modules.asks("fetch", json.dumps({"url": f"http://127.0.0.1:{server.port}/"}))
        backends = local_backends(tmp_path / "state")
        more = {"capabilities": None, "needs": needs, "backends": backends, "limits": {"wall_seconds": 1}}
        result = once(tmp_path, asking, **more)
    assert result.reason == "LIMIT_TIME"


def test_a_table_that_is_too_large_at_the_start_counts(tmp_path: Path) -> None:
    large = '(module (table 300000 funcref) (func (export "f")))'
    result = once(tmp_path, wasm(large), function="f")
    assert result.error == "LIMIT_MEMORY: it needed a table of more than 200000 elements"


def test_memory_that_a_module_starts_with_counts(tmp_path: Path) -> None:
    assert once(tmp_path, modules.command("", memory="4000")).reason == "LIMIT_MEMORY"


def test_calls_that_fail_with_much_memory_leave_enough_for_others(tmp_path: Path) -> None:
    """A trap keeps its instance alive as long as the error is: its worker serves no other call."""
    fill = "(drop (memory.grow (i32.const 700))) (memory.fill (i32.const 0) (i32.const 1) (i32.const 45000000))"
    functions = f'(func (export "fail") {fill} unreachable) (func (export "work") {fill})'
    data = wasm(f'(module (memory (export "memory") 1) {functions})')
    limits = {**LIMITS, "memory_mb": 64}
    tools = [declare(tmp_path, data, name=name, function=name) for name in ("fail", "work")]
    at = gate(tmp_path, "restricted", *tools, limits=limits)
    assert [call(at, name, {}).reason for name in ("fail", "work") * 6] == ["TOOL_FAILED", "ALLOWED"] * 6


# Layers ---------------------------------------------------------------------------------------------------------------

NOTHING = probe.Support(0, (), "this is a machine without walls")


def degraded(
    folder: Path,
    *,
    allowed: bool,
    level: str = "restricted",
    support: probe.Support = NOTHING,
    ledger: MemoryLedger | None = None,
) -> Result:
    tool = declare(folder, modules.WILD, function="add", sandbox=level)
    backends = Backends.memory(
        sandbox=WasmWorkers(InProcess(), support=lambda: support), ledger=ledger or MemoryLedger()
    )
    more: dict[str, Any] = {"sandbox": {"allow_degraded": allowed}}
    return call(gate(folder, level, tool, backends=backends, limits=LIMITS, **more), "guest", {"a": 1, "b": 2})


def test_the_layers_are_in_the_receipt(tmp_path: Path) -> None:
    result = once(tmp_path, modules.WILD, {"a": 1, "b": 2}, function="add")
    first, second, third, *walls = result.layers
    assert (first, second, third.partition("-")[0]) == ("handles", "process", "wasmtime")
    assert [wall.partition("-")[0] for wall in walls] == ["landlock", "seccomp", "hardening"]


def test_without_walls_of_the_kernel_a_tool_is_refused_unless_the_manifest_permits_it(tmp_path: Path) -> None:
    refused = degraded(tmp_path, allowed=False)
    assert refused.reason == "SANDBOX_UNAVAILABLE"
    assert "allow_degraded: true" in refused.error
    ledger = MemoryLedger()
    allowed = degraded(tmp_path, allowed=True, ledger=ledger)
    assert allowed.value == 3
    assert [layer.partition("-")[0] for layer in allowed.layers] == ["handles", "process", "wasmtime"]
    [receipt] = ledger.receipts
    assert receipt.sandbox.missing == ("landlock", "seccomp", "hardening")


def test_an_engine_of_python_functions_alone_runs_no_module(tmp_path: Path) -> None:
    backends = Backends.memory(sandbox=Workers(InProcess()))
    tool = declare(tmp_path, modules.WILD, function="add")
    result = call(gate(tmp_path, "restricted", tool, backends=backends), "guest", {"a": 1, "b": 2})
    assert (result.reason, result.value) == ("SANDBOX_UNAVAILABLE", None)


def test_isolated_needs_the_walls_of_the_kernel(tmp_path: Path) -> None:
    assert degraded(tmp_path, allowed=True, level="isolated").reason == "SANDBOX_UNAVAILABLE"


def test_on_a_system_that_has_no_such_walls_wasmtime_keeps_restricted_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("licet.wasm.cache.on_linux", lambda: False)
    assert degraded(tmp_path, allowed=False).value == 3
