"""Runs one piece of Python source: the entry of the component. A fresh instance serves each call.

componentize-py imports this module once, when the component is built, and stores the memory of the interpreter. So
everything that can be imported is imported here, and everything that must differ between calls is renewed in `run`.
"""

import ast
import asyncio
import builtins
import encodings
import gc
import importlib
import inspect
import io
import json
import linecache
import mimetypes
import os
import pkgutil
import random
import sys
import tempfile
import types
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any
from zoneinfo import _common as zone_data

import wit_world  # type: ignore[import-not-found] # componentize-py makes both
from componentize_py_types import Err  # type: ignore[import-not-found]

from . import absent, file_system
from .absent import MODULES
from .host_context import Context
from .outcome import FILE, Output, answer_text, error_text, stream

_ZONES = os.path.join(os.path.dirname(__file__), "zones")  # before `__file__` is replaced below
_VALUE = "_value_of_the_last_expression"
_ALWAYS = ("data", "ctx", "fetch")
_LAST_ANSWER = '{"result":null,"stdout":"","stderr":"","error":"%s: the result could not be returned"}'


def _load() -> None:
    """Import the modules, all of their submodules, and the private modules that the library imports when needed."""
    for name in MODULES:
        _load_below(importlib.import_module(name))
    _load_below(encodings)
    for name in sorted(sys.stdlib_module_names):
        if name[:1] == "_" and name[:2] != "__":
            _try_import(name)


def _load_below(package: types.ModuleType) -> None:
    for found in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
        last = found.name.rpartition(".")[2]
        if last != "__main__" and not last.startswith("test") and (module := _try_import(found.name)):
            _load_below(module)


def _try_import(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # a part of another system
        return None


def _install_zones() -> None:
    """Let `zoneinfo` find its data in memory: one packed file, which is read when the component is built."""
    with open(_ZONES, "rb") as packed:
        places, data = json.loads(packed.readline()), packed.read()

    def load_tzdata(key: str) -> Any:
        if key not in places:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        begin, end = places[key]
        return io.BytesIO(data[begin:end])

    zoneinfo.reset_tzpath(to=[])
    zone_data.load_tzdata = load_tzdata
    zoneinfo.available_timezones = lambda: {*places}


def _ask(op: str, args: str) -> tuple[bool, str]:
    try:
        return True, wit_world.call(op, args)
    except Err as problem:
        problem.with_traceback(None)  # a frame in it holds the error: a cycle that would keep files open
        return False, str(problem.value)


def _renew() -> None:
    """Make what came with the stored memory differ between calls. The seed of `hash` is the one thing that cannot."""
    random.seed(os.urandom(32))
    vars(uuid).update(_node=None, _last_timestamp=None)


def _compiled(source: str) -> types.CodeType:
    """The code, changed so that it keeps the value of its last expression."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    tree: ast.Module = compile(
        source, FILE, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        target = ast.copy_location(ast.Name(_VALUE, ast.Store()), last)
        tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
    code: types.CodeType = compile(tree, FILE, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


def _evaluated(source: str, names: dict[str, Any]) -> Any:
    code = _compiled(source)
    pending = eval(code, names)  # noqa: S307 - to run code is the purpose, and the instance is the wall
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(pending)
    value = names.get(_VALUE)
    if value is None:  # no expression, or one such as `print(…)`
        value = names.get("result")
    return asyncio.run(value) if inspect.iscoroutine(value) else value


class _Run:
    """One call."""

    def __init__(self) -> None:
        self.outputs = {"stdout": Output("stdout"), "stderr": Output("stderr")}
        self.error: str | None = None
        self.limit: str | None = None
        self.result: object = None

    def run(self, request: str) -> str:
        sys.stdout = sys.__stdout__ = stream(self.outputs["stdout"])  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = stream(self.outputs["stderr"])  # type: ignore[misc]
        sys.unraisablehook = self._unraisable
        self._guarded(lambda: self._start(request))
        self._guarded(FILES.close_all)
        try:
            return self._answer()
        except MemoryError:
            self.result, self.error, self.limit = None, "MemoryError: the result is too large", "memory"
            RESERVE.clear()
            return self._answer()

    def _answer(self) -> str:
        return answer_text(self.result, self.outputs, self.error, self.limit)

    def _start(self, request: str) -> None:
        _renew()
        asked = json.loads(request)
        FILES.directory = str(asked.get("workdir") or ".")
        module = types.ModuleType("__main__")
        sys.modules["__main__"], sys.argv = module, [FILE]
        vars(module).update(zip(_ALWAYS, (asked.get("data"), CTX, CTX.fetch), strict=True))
        self.result = _evaluated(asked["code"], vars(module))

    def _guarded(self, step: Callable[[], object]) -> None:
        try:
            step()
        except SystemExit as end:
            if end.code not in (None, 0):
                self._failed(end)
        except MemoryError as problem:
            RESERVE.clear()
            if not problem.args:  # otherwise the parser says so of code that is too deep
                self.limit = "memory"
            self._failed(problem)
        except BaseException as problem:
            self._failed(problem)

    def _failed(self, problem: BaseException) -> None:
        if self.error is None:
            self.result = None
            self.error = error_text(problem)
            BaseException.with_traceback(problem, None)  # its frames may hold much memory

    def _unraisable(self, found: Any) -> None:
        """An error in a finalizer: a file that could not be written when it was closed at the end of its life."""
        if isinstance(found.exc_value, OSError):
            self._failed(found.exc_value)
        else:
            sys.stderr.write(f"{found.err_msg or 'an error was ignored'}:\n{error_text(found.exc_value)}\n")


class WitWorld(wit_world.WitWorld):  # type: ignore[misc]
    """What the component exports."""

    def run(self, request: str) -> str:
        one = _Run()
        try:
            return one.run(request)
        except BaseException as problem:  # the code changed what the runner needs
            return _LAST_ANSWER % type(problem).__name__


_load()
for _module in (*sys.modules.values(),):
    if not str(getattr(_module, "__file__", None) or "/python/").startswith("/python/"):
        _module.__file__ = "<runner>"  # so that `inspect` does not look for it
for _name in ("copyright", "credits", "license"):
    vars(builtins).pop(_name, None)  # they read files to show themselves
RESERVE = bytearray(1 << 20)  # freed when memory is short, so that there is enough to say so
CTX = Context(_ask)
FILES = file_system.HostFiles(CTX)
mimetypes.init(files=[])
tempfile.tempdir = "."  # otherwise it looks for one, and the host would be asked
_install_zones()
vars(uuid)["_GETTERS"] = [vars(uuid)["_random_getnode"]]
absent.install(CTX)
file_system.install(FILES)
linecache.updatecache = lambda filename, module_globals=None: []  # the library has no source files here
WitWorld.run(None, '{"code": "import json\\nprint(json.dumps([1, \'a\']))\\n{}[1]"}')  # type: ignore[arg-type]
sys.modules.pop("__main__", None)
gc.collect()
gc.freeze()  # so that a collection during a call touches only what the call made
