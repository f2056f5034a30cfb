"""Compiles a module to native code, in a worker of its own behind walls, and describes it: imports, exports, memory.

A module comes from anyone, and a compiler is a large program: a module that breaks it reaches nothing.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import wasmtime
import wasmtime.component

from licet.sandbox.wasi import component_values
from licet.sandbox.wasi.memories import memory_of
from licet.sandbox.wasi.settings import new_engine

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


def _core_type(type_: Any) -> str:
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


def _arguments(type_: Any) -> dict[str, Any] | None:
    try:
        shown = {name: component_values.schema(one) for name, one in type_.params}
    except component_values.Unfit:
        return None
    required = [name for name, one in type_.params if not isinstance(one, wasmtime.component.OptionType)]
    return {"type": "object", "properties": shown, "required": required, "additionalProperties": False}
