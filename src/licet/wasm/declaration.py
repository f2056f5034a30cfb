"""A declaration for a WASM module, ready to paste, from what the module imports and exports.

Names in a module are hostile text, also where they are written into Python or YAML: everything is escaped.
"""

import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import Malformed
from licet.core.algebra.scope import name as checked_name
from licet.declare.wasm import PYTHON
from licet.sandbox.workers.pool import DEFAULTS
from licet.wasm.cache import Described
from licet.wasm.module_imports import Asked

START = "_start"
_RUN = re.compile(r"wasi:cli/run@0\.2\.\d+#run")
_CORE_TYPE = re.compile(r"func\(([^()]*)\) -> \(([^()]*)\)")
_CORE_NUMBERS: Mapping[str, dict[str, Any]] = {
    "i32": {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1},
    "i64": {"type": "integer"},
    "f32": {"type": "number"},
    "f64": {"type": "number"},
}
_LONGEST_NAME = 512  # characters of a function that can be declared
_LARGEST = (1 << 53) - 1  # of an integer that the JSON of a declaration can have
_USUAL_MEMORY_MB = DEFAULTS["memory_mb"]
_WIDTH = 110
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class Declaration(Struct, frozen=True):
    """How a module would be called, and the lines that declare it and allow it."""

    function: str | None  # None for a command
    functions: tuple[str, ...]  # that `function=` can name
    command: bool
    needs: tuple[str, ...]  # what to know before it is declared
    python: tuple[str, ...]
    manifest: tuple[str, ...]


def python_declaration(asked: Asked) -> Declaration:
    """The declaration of the Python that licet has built, which is not declared by its file."""
    lines = [line for line in _python(PYTHON, "python", None, None, asked) if "description" not in line]
    return Declaration("run", ("run",), False, tuple(_needs(asked, 0)), tuple(lines), tuple(_manifest("python", 0)))


def declaration(file: str, stem: str, module: Described, asked: Asked) -> Declaration | None:
    """The declaration of a module in a file; None if it exports nothing that can be called."""
    schemas = dict(callables(module))
    is_command = command_of(module) is not None
    if not schemas and not is_command:
        return None
    # A function of its own is more likely meant than one of an interface.
    function = None if is_command else min(schemas, key=lambda name: ("#" in name, list(schemas).index(name)))
    name = _tool_name(stem)
    memory = -(-module.memory_bytes // (1 << 20))
    return Declaration(
        function,
        tuple(schemas),
        is_command,
        tuple(_needs(asked, memory)),
        tuple(_python(file, name, function, schemas.get(function or ""), asked)),
        tuple(_manifest(name, memory)),
    )


def command_of(module: Described) -> str | None:
    """The export that makes a module a command: `_start`, or `run` of `wasi:cli/run`."""
    for one in module.exports:
        is_run = _RUN.fullmatch(one["name"]) if module.kind == "component" else one["name"] == START
        if is_run and str(one["type"]).startswith("func("):
            return str(one["name"])
    return None


def callables(module: Described) -> Iterator[tuple[str, dict[str, Any]]]:
    """The functions that `function=` can name, each with the JSON Schema of its arguments."""
    for one in module.exports:
        name, type_ = str(one["name"]), str(one["type"])
        if len(name) > _LONGEST_NAME or not type_.startswith("func(") or _is_internal(name) or _RUN.fullmatch(name):
            continue
        if module.kind == "component":
            if "arguments" in one:
                yield name, _declarable(one["arguments"])
        elif (schema := _core_schema(type_)) is not None:
            yield name, schema


def _is_internal(name: str) -> bool:
    """Whether an export is for the runtime: starting, memory of the component model, methods of resources."""
    own = name.rpartition("#")[2]
    return own in ("_start", "_initialize") or own.startswith(("__", "cabi_", "[")) or "post_" in own


def _core_schema(type_: str) -> dict[str, Any] | None:
    """The arguments of a function that takes and returns numbers; their names are not known."""
    found = _CORE_TYPE.fullmatch(type_)
    taken, given = ([one for one in part.split(", ") if one] for part in found.groups()) if found else ([], ["?"])
    if any(one not in _CORE_NUMBERS for one in (*taken, *given)):
        return None
    properties = {_letter(place): _CORE_NUMBERS[one] for place, one in enumerate(taken)}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _letter(place: int) -> str:
    return chr(ord("a") + place) if place < 26 else f"a{place}"


def _declarable(schema: Any) -> Any:
    """A schema without bounds that JSON cannot hold exactly: those of 64-bit integers."""
    if isinstance(schema, dict):
        kept = {key: _declarable(value) for key, value in schema.items()}
        for bound in ("minimum", "maximum"):
            if isinstance(kept.get(bound), int) and abs(kept[bound]) > _LARGEST:
                del kept[bound]
        return kept
    return [_declarable(item) for item in schema] if isinstance(schema, list) else schema


def _tool_name(stem: str) -> str:
    name = stem.replace("-", "_").replace(".", "_")
    try:
        return checked_name(name)
    except Malformed:
        return "guest"


def _needs(asked: Asked, memory: int) -> Iterator[str]:
    """What a module would need, one line each."""
    if "files" in asked.wasi:
        yield "files: it can open them only at `isolated`, in directories of its grant; at `restricted` it finds none"
    if "environment" in asked.wasi:
        yield "environment: it sees the variables of its grant (`env:read:NAME`), and no others"
    if asked.host:
        yield "host function: `needs=` lists what it may ask for, such as files, hosts, secrets"
    if "sockets" in asked.wasi:
        yield "sockets: it imports them, and each use fails; the host function has `fetch`"
    if memory > _USUAL_MEMORY_MB:
        yield f"memory: it starts with {memory} MB, and a call has {_USUAL_MEMORY_MB} unless the manifest says more"
    if not (asked.host or {"files", "environment"} & asked.wasi.keys()):
        yield "nothing: it only computes"


def _python(
    file: str, name: str, function: str | None, schema: Mapping[str, Any] | None, asked: Asked
) -> Iterator[str]:
    yield "from licet import Tool"
    yield ""
    yield f"{_variable(name)} = Tool.wasm("
    yield f"    {_literal(file)},"
    yield f"    name={_literal(name)},"
    yield '    description="…",'
    if schema is not None:
        yield from _written("    arguments=", dict(schema))
    if function is not None:
        yield f"    function={_literal(function)},"
    note = '  # such as "fs:read:${workdir}/notes", "network:https:get@api.example.com"'
    yield f"    needs=[],{note if asked.host or 'files' in asked.wasi else ''}"
    yield '    effect="read_only",'
    yield '    sandbox="restricted",'
    yield ")"


def _manifest(name: str, memory: int) -> Iterator[str]:
    key = name if _PLAIN_KEY.fullmatch(name) and name.lower() not in _YAML_WORDS else f'"{name}"'
    yield "tools:"
    yield f'  {key}: {{from: "tools:{_variable(name)}"}}  # the declaration is in tools.py'
    yield "capabilities:"
    yield f"  tools: [{key}]"
    if memory > _USUAL_MEMORY_MB:
        yield f"  limits: {{memory_mb: {memory}}}"


def _variable(name: str) -> str:
    return name if name.isidentifier() and not keyword.iskeyword(name) else "guest"


def _written(prefix: str, value: Any, indent: int = 4) -> Iterator[str]:
    """A value as Python source, on one line if it fits."""
    plain = _literal(value)
    if len(prefix) + len(plain) < _WIDTH or not isinstance(value, dict | list) or not value:
        yield f"{prefix}{plain},"
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    pad = " " * (indent + 4)
    yield f"{prefix}{opening}"
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, item in items:
        yield from _written(f"{pad}{_literal(key)}: " if isinstance(value, dict) else pad, item, indent + 4)
    yield f"{' ' * indent}{closing},"


def _literal(value: Any) -> str:
    """A value as Python source on one line, in ASCII."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    text = ascii(value)
    is_plain = isinstance(value, str) and '"' not in value and "'" not in value
    return f'"{text[1:-1]}"' if is_plain else text
