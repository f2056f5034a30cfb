"""Which imports of a module can be given, and the refusal of a module that asks for others before any of it runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from licet import Tool
from licet.wasm.module_imports import PARTS, asked_for, shown_name
from sandbox.levels import call, gate, needs_walls
from wasm_files import wasm

CALL = "func(op: string, args: string) -> result<string, string>"
NOTHING_ELSE = "a guest has WASI and the host function of licet, and nothing else"


def core(name: str, type_: str = "func() -> ()") -> Any:
    return asked_for("module", [{"name": name, "type": type_}])


def component(name: str, type_: str = "func()") -> Any:
    return asked_for("component", [{"name": name, "type": type_}])


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("fd_write", "standard streams"),
        ("args_get", "arguments"),
        ("environ_get", "environment"),
        ("path_open", "files"),
        ("fd_prestat_get", "files"),
        ("clock_time_get", "clock"),
        ("poll_oneoff", "waiting"),
        ("random_get", "random"),
        ("proc_exit", "exit"),
    ],
)
def test_functions_of_wasi_are_sorted_by_what_they_are_for(name: str, part: str) -> None:
    found = core(f"wasi_snapshot_preview1.{name}")
    assert (found.wasi, found.host, found.impossible) == ({part: (name,)}, (), ())


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("wasi:cli/stdout@0.2.9#get-stdout", "standard streams"),
        ("wasi:cli/terminal-stdin@0.2.0#get-terminal-stdin", "standard streams"),
        ("wasi:io/streams@0.2.3#[method]output-stream.write", "standard streams"),
        ("wasi:cli/environment@0.2.0#get-arguments", "arguments"),
        ("wasi:cli/environment@0.2.0#get-environment", "environment"),
        ("wasi:filesystem/preopens@0.2.0#get-directories", "files"),
        ("wasi:clocks/wall-clock@0.2.0#now", "clock"),
        ("wasi:io/poll@0.2.0#poll", "waiting"),
        ("wasi:random/insecure-seed@0.2.0#insecure-seed", "random"),
        ("wasi:cli/exit@0.2.0#exit", "exit"),
    ],
)
def test_interfaces_of_wasi_are_sorted_by_what_they_are_for(name: str, part: str) -> None:
    found = component(name)
    assert (found.wasi, found.host, found.impossible) == ({part: (name.partition("#")[0],)}, (), ())
    assert found.refusal() == ""


def test_the_host_function_can_be_given() -> None:
    assert core("licet.call", "func(i32, i32, i32, i32) -> (i32)").host == ("licet.call",)
    assert core("licet.take", "func(i32, i32) -> (i32)").host == ("licet.take",)
    assert component("call", CALL).host == ("call",)
    assert component("call", CALL.replace("op:", "o:")).host == ("call",)  # names of parameters do not matter


@pytest.mark.parametrize(
    ("found", "name", "why"),
    [
        (core("env.system"), "env.system", NOTHING_ELSE),
        (core("env.memory", "memory"), "env.memory", NOTHING_ELSE),
        (core("licet.shell"), "licet.shell", NOTHING_ELSE),
        (core("call"), "call", NOTHING_ELSE),
        (core("wasi_snapshot_preview1.fd_teleport"), "wasi_snapshot_preview1.fd_teleport", "no part of WASI"),
        (core("wasi_snapshot_preview1.fd_write", "memory"), "wasi_snapshot_preview1.fd_write", NOTHING_ELSE),
        (core("wasi_unstable.fd_write"), "wasi_unstable.fd_write", "an old version of WASI"),
        (core("licet.call", "func() -> ()"), "licet.call", "expected the type func(i32, i32, i32, i32) -> (i32)"),
        (component("call", "func(n: u32)"), "call", f"expected the type {CALL}, found func(n: u32)"),
        (component("wasi:http/outgoing-handler@0.2.0#handle"), "wasi:http/outgoing-handler@0.2.0", "`fetch`"),
        (component("wasi:cli/stdout@0.3.0#get-stdout"), "wasi:cli/stdout@0.3.0", "no part of WASI"),
        (component("wasi:nn/graph@0.2.0#load"), "wasi:nn/graph@0.2.0", "no part of WASI"),
        (component("acme:db/sql#query"), "acme:db/sql", NOTHING_ELSE),
        (component("acme:db/sql#row", "resource"), "acme:db/sql", NOTHING_ELSE),
        (component("plugin", "core module"), "plugin", NOTHING_ELSE),
    ],
)
def test_what_no_grant_can_give_is_named_with_the_reason(found: Any, name: str, why: str) -> None:
    assert [one.name for one in found.impossible] == [name]
    assert why in found.impossible[0].why
    assert found.refusal().startswith(f"it imports what no grant can give: `{name}` (")


def test_types_alone_need_nothing() -> None:
    assert component("acme:db/types#row", "type").impossible == ()
    assert component("acme:db/nothing", "interface").impossible == ()


def test_a_refusal_counts_what_it_does_not_name() -> None:
    many = [{"name": f"env.f{number}", "type": "func() -> ()"} for number in range(10)]
    assert asked_for("module", [*many, *many]).refusal().endswith("; and 7 more")


def test_sockets_may_be_imported() -> None:
    assert component("wasi:sockets/tcp@0.2.0#connect").wasi == {"sockets": ("wasi:sockets/tcp@0.2.0",)}
    assert core("wasi_snapshot_preview1.sock_send").wasi == {"sockets": ("sock_send",)}


@pytest.mark.parametrize("name", ["\x1b[2Jenv", "a\nb", "\u202eenv", "x" * 100_000])
def test_names_are_hostile_text(name: str) -> None:
    shown = core(f"env.{name}").refusal()
    assert shown.isprintable()
    assert "\u202e" not in shown
    assert len(shown) < 300
    assert shown_name("plain") == "plain"


def test_every_function_that_wasmtime_links_is_known() -> None:
    wasmtime = pytest.importorskip("wasmtime")
    linker = wasmtime.Linker(wasmtime.Engine())
    linker.define_wasi()
    store = wasmtime.Store(linker.engine)
    source = Path(__file__).parents[2] / "src" / "licet" / "wasm" / "module_imports.py"
    names = re.findall(r"\b(?:fd|path|args|environ|clock|proc|sock|random|poll|sched)_\w+", source.read_text("utf-8"))
    assert len(set(names)) == 46
    for name in names:
        linker.get(store, "wasi_snapshot_preview1", name)
        assert {*core(f"wasi_snapshot_preview1.{name}").wasi} <= set(PARTS)


# Through a gate -------------------------------------------------------------------------------------------------------

MARK = '(func (export "_start") unreachable)'  # fails otherwise than a refusal, if any of the module runs
SYSTEM = f'(module (import "env" "system" (func (param i32) (result i32))) (start $s) (func $s unreachable) {MARK})'
HTTP = """(component
  (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func))))
  (core module $m (func (export "f") unreachable)) (core instance $i (instantiate $m))
  (func (export "f") (canon lift (core func $i "f"))))"""


@pytest.mark.parametrize(
    ("text", "function", "said"),
    [
        (SYSTEM, None, f"guest.wasm cannot run: it imports what no grant can give: `env.system` ({NOTHING_ELSE})"),
        (HTTP, "f", "`wasi:http/outgoing-handler@0.2.0` (a guest has no HTTP of its own"),
    ],
)
def test_a_module_that_asks_for_the_impossible_is_refused_before_it_runs(
    tmp_path: Path, text: str, function: str | None, said: str
) -> None:
    needs_walls()
    file = tmp_path / "guest.wasm"
    file.write_bytes(wasm(text))
    (tmp_path / "work").mkdir()
    tool = Tool.wasm(str(file), function=function, capabilities={}, effect="read_only", cost_usd="0.01")
    result = call(gate(tmp_path / "work", "restricted", tool), "guest", {})
    assert (result.reason, result.layers) == ("TOOL_FAILED", ())
    assert said in result.error
    assert str(result.cost_usd) == "0"  # nothing of it ran
