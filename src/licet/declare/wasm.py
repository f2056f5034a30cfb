"""The declaration of a WebAssembly module as a tool. The module is read and hashed here, and never run or compiled.

A gate runs it in a worker: with a fresh instance for each call, and with no more than the grant of the call.

The description and the JSON Schema of tools that run Python written by a model.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed, visible
from licet.core.algebra.scope import name as checked_name
from licet.core.policy.tool import ToolCapabilities, ToolSpec, spec_of
from licet.core.values import Origin, data_json
from licet.declare.arguments import SchemaText
from licet.declare.context import Available, availability_check
from licet.declare.json_schema import UnusableSchema, check_usable
from licet.declare.limits import LARGEST_MODULE, LONGEST_FUNCTION
from licet.own_files import FileTooLarge, NotRegular, read_regular, size_text

# The names are those that the guest loads: a test compares them.
MODULES = (
    "abc argparse array ast asyncio base64 binascii bisect calendar cmath codecs collections colorsys "
    "concurrent.futures configparser contextlib contextvars copy csv dataclasses datetime decimal difflib dis "
    "doctest email enum errno filecmp fileinput fnmatch fractions functools gc getopt gettext glob graphlib gzip "
    "hashlib heapq hmac html http importlib inspect io ipaddress itertools json keyword linecache locale logging "
    "math mimetypes numbers operator optparse os pathlib pickle platform plistlib pprint pydoc queue quopri "
    "random re reprlib sched secrets shlex shutil sqlite3 stat statistics string stringprep struct symtable sys "
    "tarfile textwrap time timeit token tokenize tomllib traceback types typing unicodedata unittest urllib uuid "
    "warnings wave weakref xml zipfile zlib zoneinfo"
)

DESCRIPTION = f"""Run Python 3.14 and return its result, what it printed, and its error.
The result is the value of the last expression, or of the variable `result`. Values that are not JSON are returned as \
their repr.
The argument `data` is the variable `data`. Each call starts afresh: variables and imports do not stay.
Only the standard library is there; no packages, threads, processes or sockets. These modules can be imported:
{MODULES}
What touches the world is blocking (no await) and works as far as the policy allows; a refusal is a PermissionError.
- Files: open(), pathlib and os as usual, or ctx.fs.read(path), read_bytes, write(path, data), exists, list, stat, \
mkdir, delete, rename. What is written to a file is there when it is closed.
- HTTP: fetch(url, method="GET", headers=…, json=…, body=…, params=…, timeout=…) returns an answer with status, ok, \
text, content, headers, url and json().
- ctx.kv.get(key), set(key, value), delete, list: values that stay between calls.
- ctx.env.get(name).
Paths are relative to the working directory. A directory that may not be listed looks empty to glob and os.walk.
stdout and stderr are cut after 256 KB each. asyncio.run and top-level await work for coroutines."""

ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "Python source. End it with the expression to return."},
        "data": {"description": "Any JSON value, which the code finds as `data`.", "default": None},
    },
    "required": ["code"],
    "additionalProperties": False,
}


PYTHON = "licet:python"  # in place of a file: the Python that licet builds, which runs source that a model wrote
ANY_OBJECT = {"type": "object"}
_LEVELS = ("restricted", "isolated")
_MAGIC = b"\0asm"
_A_MODULE = "a WebAssembly module"
_WHERE = "a path is relative to the directory of the Python file that declares the tool"
_COMPILE = "compile the program for WebAssembly, such as for the target `wasm32-wasip1`"
# The beginnings of files that people name by mistake, with what the file is and what to do.
_MISTAKEN = (
    (b"version https://git-lfs", "a pointer of Git LFS", "fetch the file with `git lfs pull`"),
    (b"\x7fELF", "a program for Linux", _COMPILE),
    (b"MZ", "a program for Windows", _COMPILE),
    (b"\xcf\xfa\xed\xfe", "a program for macOS", _COMPILE),
    (b"\x1f\x8b", "compressed with gzip", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first"),
    (b"PK\x03\x04", "a ZIP archive", "unpack it, and name the module"),
)
_TEXT_FORM = ("the text form of a module", "convert it with `wat2wasm` or `wasm-tools parse`")


class WasmModule(Struct, frozen=True):
    """The module of a tool: its file, the hash that it had when it was declared, and the export that is called."""

    file: str  # absolute, or `PYTHON`
    sha256: str  # hexadecimal; empty for `PYTHON`
    function: str | None = None  # None for a WASI command


def read_module(file: str, directory: str, function: str | None = None) -> WasmModule:
    """Read and hash a module, whose path may be relative to a directory; `Malformed` if it is none."""
    if file == PYTHON:
        return WasmModule(PYTHON, "")
    path = os.path.abspath(os.path.join(directory, file))
    try:
        data = read_regular(path, LARGEST_MODULE)
    except FileNotFoundError:
        raise _no_module(file, f"there is no file {path}", f"build the module first; {_WHERE}") from None
    except FileTooLarge:
        fix = "remove debug sections, such as with `wasm-tools strip`"
        raise _no_module(file, f"it is larger than {size_text(LARGEST_MODULE)}", fix) from None
    except NotRegular as wrong:
        raise _no_module(file, f"it is {wrong.strerror}", "name the file of the module") from None
    except (OSError, ValueError) as wrong:  # a path with a NUL is a ValueError
        reason = (getattr(wrong, "strerror", None) or str(wrong)).lower()
        raise _no_module(file, f"it cannot be read: {reason}", _WHERE) from None
    if not data.startswith(_MAGIC):
        raise _no_module(file, *_other_kind(data))
    return WasmModule(path, hashlib.sha256(data).hexdigest(), function)


def _no_module(file: str, why: str, fix: str) -> Malformed:
    return Malformed(_shown(file), f"{_A_MODULE} ({visible(why)})", visible(fix))


def _other_kind(data: bytes) -> tuple[str, str]:
    """What a file is that is no module, and what to do about it."""
    for beginning, kind, fix in _MISTAKEN:
        if data.startswith(beginning):
            return f"it is {kind}", fix
    if data.lstrip().startswith((b"(module", b"(component", b";;")):
        kind, fix = _TEXT_FORM
        return f"it is {kind}", fix
    begins = f"it begins with the bytes {data[:4].hex(' ')}" if data else "it is empty"
    return f"{begins}, and a module begins with {_MAGIC.hex(' ')}", _COMPILE


def wasm_spec(
    *,
    file: object,
    name: str | None = None,
    description: str = "",
    arguments: Mapping[str, Any] | None = None,
    function: str | None = None,
    sandbox: str | None = None,
    origin: Origin | None = None,
    **declared: Any,
) -> ToolSpec:
    """Check a declaration: all of it but the file, so that `source` lacks its hash. Raises `Malformed` or `TypeError`.

    `declared` is the rest of what `spec_of` takes.
    """
    path = path_of(file)
    if path == PYTHON:
        description, arguments, function = _of_python(description, arguments, function)
    if sandbox is not None and sandbox not in _LEVELS:
        fix = "a module never runs in the process of the host" if sandbox == "native" else ""
        raise Malformed(_shown(sandbox), "`restricted` or `isolated` as `sandbox` of a WebAssembly module", fix)
    if function is not None and not (isinstance(function, str) and 0 < len(function) <= LONGEST_FUNCTION):
        fix = "leave `function` out for a WASI command"
        raise Malformed(_shown(function), "the name of an exported function as `function`", fix)
    schema = _schema(ANY_OBJECT if arguments is None else arguments)
    # Without a level here, a manifest that states `native` for its tools would have the module run natively.
    level = _LEVELS[0] if sandbox is None else sandbox
    own: dict[str, Any] = {"description": description, "sandbox": level, "schema": schema, "origin": origin}
    spec = spec_of(name=_name_from(path) if name is None else name, **own, **declared)
    called = "" if function is None else f"#{function}"
    return replace(spec, parameters=parameters_of(schema), signature=signature_of(schema), source=called)


def _of_python(description: str, arguments: object, function: object) -> tuple[str, Mapping[str, Any], None]:
    """The description and arguments of a tool that runs model-written Python. Only the description can be another."""
    for name, given in (("arguments", arguments), ("function", function)):
        if given is not None:
            raise Malformed(_shown(given), f"no `{name}` for `{PYTHON}`", "it takes `code` and `data`")
    return description or DESCRIPTION, ARGUMENTS, None


def _name_from(file: str) -> str:
    """The name of a tool that has none of its own: `word-count.wasm` is `word_count`."""
    try:
        if file == PYTHON:
            return "python"
        return checked_name(Path(file).stem.replace("-", "_").replace(".", "_"))
    except Malformed as wrong:
        raise Malformed(_shown(file), f"a file whose name is {wrong.expected}", "give the tool a `name=`") from None


def parameters_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the arguments that a JSON Schema lists."""
    return tuple(schema.get("properties", ()))


def signature_of(schema: Mapping[str, Any]) -> str:
    """The arguments with their types and defaults, as text."""
    listed = schema.get("properties", {}).items()
    return ", ".join(f"{name}: {_type_text(held)}" for name, held in listed)


def _type_text(held: object) -> str:
    """A schema of one argument as text: `string`, `integer = 1`, `string | null`; `any` if it has no type."""
    if not isinstance(held, Mapping):
        return "any"
    kinds = held.get("type", "any")
    text = " | ".join(kinds) if isinstance(kinds, list) else str(kinds)
    return f"{text} = {json.dumps(held['default'], ensure_ascii=False)}" if "default" in held else text


def path_of(file: object) -> str:
    """The path of a module as text; `Malformed` if it is none."""
    try:
        path = os.fspath(file)  # type: ignore[call-overload]
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise Malformed(_shown(file), "the path of a WebAssembly module as text, such as `count.wasm`")
    return path


def _schema(arguments: object) -> SchemaText:
    """The JSON Schema of the arguments, as a copy that does not change; `Malformed` if it cannot be used."""
    example = '`{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}`'
    expected = "a JSON Schema of an object as `arguments`"
    if not isinstance(arguments, Mapping) or arguments.get("type") != "object":
        raise Malformed(_shown(arguments), expected, f"such as {example}")
    try:
        data_json(dict(arguments))  # raises if it is no JSON, and so has no digest
        text = json.dumps(dict(arguments))
    except (ValueError, TypeError, RecursionError) as wrong:
        raise Malformed(_shown(arguments), f"{expected}, as JSON ({wrong})", f"such as {example}") from None
    if arguments not in (ANY_OBJECT, ARGUMENTS):  # these are known to be good
        try:
            check_usable(json.loads(text))
        except UnusableSchema as wrong:
            raise Malformed(_shown(arguments), f"{expected} ({visible(str(wrong))})", f"such as {example}") from None
    return SchemaText(text)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def declared_module(
    caller: FrameType,
    file: object,
    *,
    function: str | None = None,
    capabilities: ToolCapabilities | Mapping[str, Any] | None = None,
    available: object = None,
    **declared: Any,
) -> tuple[ToolSpec, WasmModule, Available | None]:
    """Check the declaration of a module by the code that calls `Tool.wasm`, and read its file."""
    if isinstance(capabilities, ToolCapabilities):
        capabilities = capabilities.as_mapping()
    code = caller.f_code.co_filename
    origin = Origin(code, caller.f_lineno, 1)
    try:
        # Code that was typed at a prompt or in a notebook has no file: then the current directory counts.
        module = read_module(path_of(file), os.path.dirname(code) if os.path.isfile(code) else "", function)
        spec = wasm_spec(file=file, function=function, capabilities=capabilities, origin=origin, **declared)
        check = availability_check(available)
    except (Malformed, TypeError) as error:
        error.add_note(f"in the declaration `Tool.wasm({_shown(repr(file))})` ({origin})")
        raise
    if module.file != PYTHON:  # like all of licet, that is not part of the digest of a tool
        spec = replace(spec, source=f"sha256:{module.sha256}{spec.source}")
    return spec, module, check
