"""Attacks by WASM modules: out of their directories, on the compiled code, and on what reads and compiles them."""

import asyncio
import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

from licet import Result, Tool
from licet.core.policy.layer import EffectClass
from licet.declare.wasm import WasmModule
from licet.policy_files.policy_paths import data_root
from licet.sandbox import probe
from licet.sandbox.workers.engine import run_errand
from licet.sandbox.workers.pool import close_workers
from licet.wasm.cache import compiled, locked, note_of
from sandbox.levels import call, gate, local_backends, needs_walls
from wasm import modules
from wasm_files import wasm

LIMITS = {"fuel": 200_000_000, "memory_mb": 64}
SECRET = "the content of a file outside"
Level = Literal["restricted", "isolated"]
SUCCESS, BAD_DESCRIPTOR, FAILED = "0", "8", "29"  # error numbers of WASI


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is granted, one next to it that is not, and a cache of this test's own."""
    needs_walls()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("code", "granted", "granted/inner", "granted/free", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "granted" / "note.txt").write_text("granted")
    (tmp_path / "granted" / "inner" / "private.txt").write_text(SECRET)
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    (tmp_path / "granted" / "link").symlink_to(tmp_path / "outside" / "secret.txt")
    (tmp_path / "granted" / "directory").symlink_to(tmp_path / "outside")
    (tmp_path / "granted" / "upward").symlink_to("..")


def run(folder: Path, data: bytes, level: Level, *, write: bool = False, **more: Any) -> Result:
    """One call of a command that may reach `granted`, without `granted/inner`."""
    (folder / "code" / "guest.wasm").write_bytes(data)
    kinds = ("read", "write") if write else ("read",)
    effect: EffectClass = "write_limited" if write else "read_only"
    needs = [f"fs:{kind}:{folder}/granted" for kind in kinds]
    file = str(folder / "code" / "guest.wasm")
    tool = Tool.wasm(file, name="guest", needs=needs, effect=effect, sandbox=level)
    limits = {**LIMITS, **more.pop("limits", {})}
    denied = [f"fs:{kind}:{folder}/granted/inner" for kind in kinds]
    at = gate(
        folder,
        level,
        tool,
        backends=local_backends(folder / "state"),
        limits=limits,
        effect=effect,
        deny=denied,
        **more,
    )
    return call(at, "guest", {})


# Directories ----------------------------------------------------------------------------------------------------------


def test_a_file_of_the_grant_is_read_directly_at_isolated(tmp_path: Path) -> None:
    assert run(tmp_path, modules.opens("note.txt"), "isolated").value == f"{SUCCESS} granted"


PATHS = [
    "../outside/secret.txt", "inner/../../outside/secret.txt", "./././../outside/secret.txt", "link",
    "directory/secret.txt", "upward/outside/secret.txt", "inner/private.txt", "/etc/hostname", "//etc/hostname",
    "note.txt\0", "../outside/secret.txt\0note.txt", "/proc/self/environ", "..", "", b"\xff\xfe", "a" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ascii(path)[:30])
@pytest.mark.sampled(6)
def test_no_path_leads_out_of_the_grant(tmp_path: Path, path: str | bytes) -> None:
    result = run(tmp_path, modules.opens(path), "isolated")
    number, _, text = str(result.value).partition(" ")
    assert (result.error, number.isdigit(), number != SUCCESS, text) == ("", True, True, "")


@pytest.mark.parametrize("directory", [0, 3, 5, 100])
@pytest.mark.sampled(2)
def test_no_other_directory_is_open(tmp_path: Path, directory: int) -> None:
    """Descriptors 3 and 4 are the grant by its two names, and at restricted not even these."""
    level: Level = "restricted" if directory == 3 else "isolated"
    result = run(tmp_path, modules.opens("note.txt", directory=directory), level)
    number = str(result.value).strip()
    assert (result.error, number.isdigit(), number != SUCCESS) == ("", True, True)


def test_at_restricted_no_directory_is_open(tmp_path: Path) -> None:
    assert str(run(tmp_path, modules.PREOPENED, "restricted").value) == BAD_DESCRIPTOR


@pytest.mark.parametrize(
    ("path", "made"), [("free/new.txt", True), ("../outside/new.txt", False), ("inner/new.txt", False)]
)
def test_a_file_is_made_only_where_the_grant_permits_it(tmp_path: Path, path: str, made: bool) -> None:
    result = run(tmp_path, modules.opens(path, create=True), "isolated", write=True)
    assert (result.error, str(result.value).strip() == SUCCESS) == ("", made)
    assert (tmp_path / "granted" / path).exists() is made


def test_a_guest_makes_no_files_without_number(tmp_path: Path) -> None:
    """The standard input of a command is a file too, and counts."""
    names = [f"free/{number}" for number in range(6)]
    free = run(tmp_path, modules.creates(names), "isolated", write=True, limits={"written_paths": 7})
    assert str(free.value).split() == [SUCCESS] * 6
    held = run(tmp_path, modules.creates(names), "isolated", write=True, limits={"written_paths": 5})
    assert str(held.value).split() == [SUCCESS] * 4 + [FAILED] * 2


def test_a_grant_to_read_makes_no_file(tmp_path: Path) -> None:
    assert run(tmp_path, modules.opens("new.txt", create=True), "isolated").ok
    assert not (tmp_path / "granted" / "new.txt").exists()


def test_the_code_of_a_tool_is_not_written_by_it(tmp_path: Path) -> None:
    """Its own module lies in a directory that is granted, and stays as it is."""
    data = modules.asks("fs.write", json.dumps({"path": str(tmp_path / "code" / "guest.wasm"), "text": "x"}))
    (tmp_path / "code" / "guest.wasm").write_bytes(data)
    needs = [f"fs:write:{tmp_path}/code"]
    tool = Tool.wasm(str(tmp_path / "code" / "guest.wasm"), name="guest", needs=needs, effect="write_limited")
    result = call(gate(tmp_path, "restricted", tool, backends=local_backends(tmp_path / "state")), "guest", {})
    assert result.value["code"] == "PATH_NOT_REACHABLE"
    assert (tmp_path / "code" / "guest.wasm").read_bytes() == data


# The network ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("descriptor", [0, 3, 4, 100])
@pytest.mark.sampled(2)
def test_there_is_no_socket(tmp_path: Path, descriptor: int) -> None:
    """Standard input, the granted directory, and what is not there: none is a socket."""
    body = f"(call $say_number (call $sock_accept (i32.const {descriptor}) (i32.const 0) (i32.const 512)))"
    result = run(tmp_path, modules.command(body), "isolated")
    assert (result.error, str(result.value).isdigit(), str(result.value) != SUCCESS) == ("", True, True)


# Compiled code --------------------------------------------------------------------------------------------------------

ADD = '(module (func (export "f") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))'
MUL = ADD.replace("i32.add", "i32.mul")


def calculated(folder: Path, text: str) -> Result:
    (folder / "code" / "f.wasm").write_bytes(wasm(text))
    tool = Tool.wasm(str(folder / "code" / "f.wasm"), name="f", function="f", capabilities={}, effect="read_only")
    return call(gate(folder, "restricted", tool, limits=LIMITS), "f", {"a": 3, "b": 4})


def compiled_files(folder: Path) -> list[Path]:
    return sorted(Path(data_root(), "wasm", "compiled").glob("*.cwasm"))


def swap(one: Path, other: Path) -> None:
    data = other.read_bytes()
    one.chmod(0o600)
    one.write_bytes(data)


def cut(one: Path, other: Path) -> None:
    one.chmod(0o600)
    with one.open("r+b") as file:
        file.truncate(1000)


def flip(one: Path, other: Path) -> None:
    one.chmod(0o600)
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 1
    one.write_bytes(data)


def link(one: Path, other: Path) -> None:
    one.unlink()
    one.symlink_to(other)


def open_note(one: Path, other: Path) -> None:
    one.with_suffix(".json").chmod(0o666)


def nest_note(one: Path, other: Path) -> None:
    one.with_suffix(".json").write_text("[" * 100_000)


def hard_link(one: Path, other: Path) -> None:
    os.link(one, one.parent / "second name")


def open_to_all(one: Path, other: Path) -> None:
    one.chmod(0o666)


def pipe(one: Path, other: Path) -> None:
    one.unlink()
    os.mkfifo(one)


def spoil_note(one: Path, other: Path) -> None:
    one.with_suffix(".json").write_text('{"format": 1}')


@pytest.mark.parametrize(
    "change", [swap, cut, flip, link, hard_link, open_to_all, open_note, nest_note, pipe, spoil_note]
)
def test_a_compiled_file_that_was_changed_is_compiled_again(
    tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    assert calculated(tmp_path, MUL).value == 12
    [other] = compiled_files(tmp_path)
    assert calculated(tmp_path, ADD).value == 7
    [one] = set(compiled_files(tmp_path)) - {other}
    change(one, other)
    assert calculated(tmp_path, ADD).value == 7
    assert stat.S_IMODE(one.lstat().st_mode) == 0o400
    assert one.lstat().st_nlink == 1


@pytest.mark.parametrize("change", [swap, cut, lambda one, other: one.unlink()], ids=["swapped", "cut", "deleted"])
def test_a_running_gate_does_not_look_at_the_file_again(tmp_path: Path, change: Callable[[Path, Path], None]) -> None:
    """It has a copy in memory that nobody can change: also for workers that start later."""
    assert calculated(tmp_path, MUL).value == 12
    [other] = compiled_files(tmp_path)
    (tmp_path / "code" / "f.wasm").write_bytes(wasm(ADD))
    tool = Tool.wasm(str(tmp_path / "code" / "f.wasm"), name="f", function="f", capabilities={}, effect="read_only")
    at = gate(tmp_path, "restricted", tool, limits=LIMITS)
    assert call(at, "f", {"a": 3, "b": 4}).value == 7
    [one] = set(compiled_files(tmp_path)) - {other}
    change(one, other)
    assert call(at, "f", {"a": 3, "b": 4}).value == 7
    close_workers()
    assert call(at, "f", {"a": 3, "b": 4}).value == 7


@pytest.mark.parametrize("name", ["cwasm", "json", "lock"])
def test_a_directory_in_the_place_of_a_file_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    assert calculated(tmp_path, ADD).value == 7
    [one] = compiled_files(tmp_path)
    one.with_suffix(f".{name}").unlink()
    one.with_suffix(f".{name}").mkdir()
    result = calculated(tmp_path, ADD)
    assert result.reason == "SANDBOX_UNAVAILABLE"
    assert "compiled code cannot be kept in" in result.error


def test_a_cache_of_another_kind_is_refused(tmp_path: Path) -> None:
    directory = Path(data_root(), "wasm")
    directory.mkdir(parents=True)
    (directory / "compiled").write_text("")
    result = calculated(tmp_path, ADD)
    assert result.reason == "SANDBOX_UNAVAILABLE"
    assert "compiled modules cannot be kept in" in result.error


def test_a_module_that_changed_after_it_was_declared_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "code" / "f.wasm").write_bytes(wasm(ADD))
    tool = Tool.wasm(str(tmp_path / "code" / "f.wasm"), name="f", function="f", capabilities={}, effect="read_only")
    (tmp_path / "code" / "f.wasm").write_bytes(wasm(MUL))
    result = call(gate(tmp_path, "restricted", tool, limits=LIMITS), "f", {"a": 3, "b": 4})
    assert result.reason == "SANDBOX_UNAVAILABLE"
    assert "has changed since the tool was declared" in result.error


# Modules that are none ------------------------------------------------------------------------------------------------

WHOLE = modules.WILD
BROKEN = {
    "only its header": b"\0asm\x01\0\0\0",
    "truncated": WHOLE[: len(WHOLE) // 2],
    "cut by a byte": WHOLE[:-1],
    "another version": b"\0asm\x63\0\0\0" + WHOLE[8:],
    "a section that is longer than the file": b"\0asm\x01\0\0\0\x01\xff\xff\xff\xff\x0f",
    "noise": b"\0asm\x01\0\0\0" + bytes(range(256)) * 20,
    "no component": b"\0asm\x0d\0\x01\0" + b"\x07\x01",
    "an unknown import": wasm('(module (import "env" "system" (func)) (func (export "_start")))'),
    "an import with a name that draws": wasm(
        '(module (import "\\1b[2J" "\\1b]0;x\\07" (func)) (func (export "_start")))'
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_module_that_is_none_costs_its_own_call(tmp_path: Path, name: str) -> None:
    result = run(tmp_path, BROKEN[name], "restricted")
    assert (result.ok, result.reason) == (False, "TOOL_FAILED")
    assert "\x1b" not in result.error
    assert calculated(tmp_path, ADD).value == 7


def test_what_is_compiled_lies_where_no_grant_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the directory for temporary files, which a grant may hold; and the compiler says what it read."""
    read: list[str] = []
    real = run_errand

    def watched(module: str, function: str, arguments: Any, finish: Any, **more: Any) -> Any:
        read.append(arguments["source"])
        other = tmp_path / "other.wasm"
        other.write_bytes(wasm(MUL))
        return real(module, function, {"source": str(other)}, finish, **{**more, "read": [str(other)]})

    monkeypatch.setattr("licet.wasm.cache.run_errand", watched)
    result = calculated(tmp_path, ADD.replace("(module", '(module (@custom "copied" "")'))
    assert result.reason == "TOOL_FAILED"
    assert "another file was compiled" in result.error
    assert read[0].startswith(data_root())


def test_a_module_that_compiles_for_long_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls wait outside of the threads that handles use, and it is compiled once for all of them."""
    begun: list[str] = []
    released = threading.Event()
    real = compiled

    def slow(module: Any, *rest: Any) -> Any:
        begun.append(module.file)
        if module.file.endswith("slow.wasm"):
            released.wait(60)
        return real(module, *rest)

    monkeypatch.setattr("licet.wasm.compile_queue.compiled", slow)
    tools = []
    for name, text in (("slow", ADD), ("quick", MUL)):
        file = tmp_path / "code" / f"{name}.wasm"
        file.write_bytes(wasm(text.replace("(module", f'(module (@custom "{name}" "")')))
        tools.append(Tool.wasm(str(file), function="f", capabilities={}, effect="read_only"))
    at = gate(tmp_path, "restricted", *tools, limits={**LIMITS, "wall_seconds": 5})

    async def scene() -> tuple[int, list[Result]]:
        async with at.session("s") as session:
            waiting = [asyncio.create_task(session.call("slow", {"a": 3, "b": 4})) for _ in range(40)]
            quick = await session.call("quick", {"a": 3, "b": 4})
            released.set()
            return quick.value, await asyncio.gather(*waiting)

    quick, slow_ones = asyncio.run(scene())
    assert quick == 12
    assert [one.value for one in slow_ones] == [7] * 40
    assert len(begun) == 2


def test_a_module_of_a_hundred_megabytes_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    file = tmp_path / "code" / "large.wasm"
    with file.open("wb") as large:
        large.write(b"\0asm\x01\0\0\0")
        large.truncate(100 << 20)
    with pytest.raises(Exception, match="larger than 64 MiB"):
        Tool.wasm(str(file), capabilities={}, effect="read_only")


def test_waiting_for_a_process_that_compiles_the_same_module_has_the_deadline_of_the_call(tmp_path: Path) -> None:
    """Another process may hold the lock for ever. The call ends in its time, and has not run; other modules go on."""
    tools = []
    for name, text in (("stuck", ADD), ("stuck_too", ADD), ("also", ADD), ("quick", MUL)):
        file = tmp_path / "code" / f"{name}.wasm"
        file.write_bytes(wasm(text.replace("(module", f'(module (@custom "{name}" "")')))
        tools.append(Tool.wasm(str(file), function="f", capabilities={}, effect="read_only"))
    stuck = tools[:3]
    with ExitStack() as held:
        for one in stuck:
            held.enter_context(locked(_compiled_file(one.module)))
        at = gate(tmp_path, "restricted", *tools, limits={**LIMITS, "wall_seconds": 1})

        async def scene() -> list[Result]:
            async with at.session("s") as session:
                names = [one.name for one in stuck] * 2
                waiting = [asyncio.create_task(session.call(name, {"a": 3, "b": 4})) for name in names]
                assert (await session.call("quick", {"a": 3, "b": 4})).value == 12
                return await asyncio.gather(*waiting)

        for result in asyncio.run(scene()):
            assert result.reason == "LIMIT_TIME"
            assert not result.cost_usd
            assert "for another process that builds or compiles it" in result.error
    assert call(at, "stuck", {"a": 3, "b": 4}).value == 7


def _compiled_file(module: WasmModule) -> Path:
    """Where the compiled form of a module is kept: compiled elsewhere, to see its name."""
    made = Path(compiled(module, probe.support().walls_in_spec()).file)
    made.unlink()
    note_of(made).unlink()
    return made
