"""Compiles a module to native code, in a worker of its own behind walls, and describes it: imports, exports, memory.

A module comes from anyone, and a compiler is a large program: a module that breaks it reaches nothing.

Reads from a module how much memory it declares, also of the modules inside a component, which wasmtime does not say.

It runs in the worker that compiled the module, after wasmtime has checked it.

How wasmtime is set up, the same where a module is compiled and where it runs. Imports wasmtime: for workers only.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import wasmtime
import wasmtime.component

from licet.wasm import component_values
from licet.wasm.limits import MOST_PARTS, STACK_BYTES, TABLE_ELEMENTS

_HEADER = 8  # bytes
_MEMORY_SECTION = 5
_COMPONENT_PARTS = (1, 4)  # sections of a component that hold a core module, and another component
_IS_COMPONENT = 4, b"\x0d\0\x01\0"
_PAGE = 1 << 16
_MOST = (1 << 53) - 1  # JSON has no larger integers


def memory_of(data: bytes) -> tuple[int, int]:
    """The bytes of all memories at the start, and the most that they can grow to; 0 if there is no such limit."""
    least, most, unlimited = 0, 0, False
    for low, high in _memories(memoryview(data)):
        least += low
        most += high or 0
        unlimited = unlimited or high is None
    return min(least, _MOST), 0 if unlimited else min(most, _MOST)


def _memories(data: memoryview) -> Iterator[tuple[int, int | None]]:
    """The least and the most bytes of each memory."""
    waiting = [data]  # instead of recursion: components can be nested deeply
    while waiting:
        part = waiting.pop()
        is_component = bytes(part[_IS_COMPONENT[0] : _HEADER]) == _IS_COMPONENT[1]
        for kind, body in _sections(part):
            if is_component and kind in _COMPONENT_PARTS:
                waiting.append(body)
            elif not is_component and kind == _MEMORY_SECTION:
                yield from _limits(body)


def _sections(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = _HEADER
    while at < len(data):
        size, begin = _number(data, at + 1)
        yield data[at], data[begin : begin + size]
        at = begin + size


def _limits(body: memoryview) -> Iterator[tuple[int, int | None]]:
    count, at = _number(body, 0)
    for _ in range(count):
        flags = body[at]
        low, at = _number(body, at + 1)
        high = None
        if flags & 1:
            high, at = _number(body, at)
        page = _PAGE
        if flags & 8:  # pages of another size, as a power of two
            power, at = _number(body, at)
            page = 1 << power
        yield low * page, None if high is None else high * page


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned integer in LEB128, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:  # the highest bit says that more follows
            return value, at
        shift += 7


def new_engine() -> wasmtime.Engine:
    """An engine that counts fuel and can be interrupted. Threads and shared memory stay off: a guest has one thread."""
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.max_wasm_stack = STACK_BYTES
    config.wasm_threads = False
    config.wasm_multi_memory = False
    config.wasm_gc = False  # its heap would be a second memory besides the one that is limited
    config.cranelift_opt_level = "speed"
    return wasmtime.Engine(config)


def new_store(engine: wasmtime.Engine, *, fuel: int, memory_bytes: int) -> wasmtime.Store:
    """A store for one call, with its limits. It traps at the next tick of the engine's epoch."""
    store = wasmtime.Store(engine)
    store.set_fuel(fuel)
    store.set_epoch_deadline(1)
    store.set_limits(
        memory_size=memory_bytes,
        table_elements=TABLE_ELEMENTS,
        instances=MOST_PARTS,
        tables=MOST_PARTS,
        memories=MOST_PARTS,
    )
    return store


OUTPUT = "compiled"  # the file in the scratch directory of the worker; `cache` takes it from there
_CORE, _COMPONENT = b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"


class NoModule(Exception):
    """A file that is neither a WASM module nor a component that wasmtime can compile."""


def compile_file(source: str) -> dict[str, Any]:
    """Compile a file into `OUTPUT` in the scratch directory, and describe it."""
    with open(source, "rb") as file:
        data = file.read()
    read = hashlib.sha256(data).hexdigest()
    engine = new_engine()
    try:
        if data.startswith(_CORE):
            module = wasmtime.Module(engine, data)
            described, code = _module(module), module.serialize()
        elif data.startswith(_COMPONENT):
            component = wasmtime.component.Component(engine, data)
            described, code = _component(component, engine), component.serialize()
        else:
            raise NoModule("it does not begin as a WASM module or component of a known version")
    except wasmtime.WasmtimeError as wrong:
        raise NoModule(_one_line(str(wrong))) from None
    with open(os.path.join(os.environ["TMPDIR"], OUTPUT), "wb") as file:
        file.write(code)
    least, most = memory_of(data)
    return {**described, "memory_bytes": least, "memory_most_bytes": most, "sha256": read}


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())[:500]


def _module(module: wasmtime.Module) -> dict[str, Any]:
    return {
        "kind": "module",
        "imports": [
            {"name": f"{item.module}.{item.name}", "module": item.module, "type": _core_type(item.type)}
            for item in module.imports
        ],
        "exports": [{"name": item.name, "type": _core_type(item.type)} for item in module.exports],
    }


def _core_type(type_: object) -> str:
    if isinstance(type_, wasmtime.FuncType):
        return f"func({', '.join(map(str, type_.params))}) -> ({', '.join(map(str, type_.results))})"
    if isinstance(type_, wasmtime.MemoryType):
        return "memory"
    if isinstance(type_, wasmtime.TableType):
        return "table"
    if isinstance(type_, wasmtime.GlobalType):
        return "global"
    return "other"


def _component(component: wasmtime.component.Component, engine: wasmtime.Engine) -> dict[str, Any]:
    type_ = component.type
    return {
        "kind": "component",
        "imports": [{"name": name, "type": text} for name, text, _ in _items(type_.imports(engine), engine)],
        "exports": [
            {"name": name, "type": text, **({} if arguments is None else {"arguments": arguments})}
            for name, text, arguments in _items(type_.exports(engine), engine)
        ],
    }


def _items(named: Mapping[str, Any], engine: wasmtime.Engine) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """The functions of a component, also those in its interfaces: name, type, and JSON Schema of the arguments."""
    for name, item in named.items():
        type_ = item.ty
        if isinstance(type_, wasmtime.component.FuncType):
            yield name, component_values.function_text(type_), _arguments(type_)
        elif isinstance(type_, wasmtime.component.ComponentInstanceType):
            inner = list(_items(type_.exports(engine), engine))
            yield from ((f"{name}#{of}", text, arguments) for of, text, arguments in inner)
            if not inner:
                yield name, "interface", None
        elif isinstance(type_, wasmtime.component.ModuleType):
            yield name, "core module", None
        elif isinstance(type_, wasmtime.component.ResourceType):
            yield name, "resource", None
        else:
            yield name, "type", None


def _arguments(type_: wasmtime.component.FuncType) -> dict[str, Any] | None:
    try:
        shown = {name: component_values.schema(one) for name, one in type_.params}
    except component_values.Unfit:
        return None
    required = [name for name, one in type_.params if not isinstance(one, wasmtime.component.OptionType)]
    return {"type": "object", "properties": shown, "required": required, "additionalProperties": False}
