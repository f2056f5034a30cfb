"""Runs a compiled module in a worker: each call gets a fresh instance, its limits, and the host function.

Nothing of one call is left for the next: memory, globals and files of WASI belong to the instance. A command gets its
arguments as JSON on standard input, and its standard output is the result. A function gets them as its parameters.

The host function of a guest: an operation by name with a JSON object, answered by the handle of the call.

Runs in a worker. Each operation goes through the same remote handle as in a Python tool, so the host decides. Bytes are
`text` where they are UTF-8, and `base64` otherwise; a guest may send either.
"""

import base64
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import wasmtime
from msgspec import to_builtins
from wasmtime import component as components

from licet.declare.context import OPERATIONS, SyncContext, SyncStore, method_of
from licet.errors import Refused
from licet.sandbox.bridge.wire import Closed
from licet.sandbox.bridge.worker_context import HostClient, RemoteContext, SyncHandle
from licet.wasm import component_values
from licet.wasm.compiler import new_engine, new_store
from licet.wasm.limits import CLOCK_REST_SECONDS, LAST_WORDS, NEARLY_FULL, STACK_BYTES, TABLE_ELEMENTS, TICK

Json = Mapping[str, Any]
_NOBODY = {"session_id": "", "agent": "", "workdir": ""}  # a guest is not told who calls


class HostCalls:
    """The operations that a guest can ask for during one call, and the last refusal."""

    def __init__(self, host: HostClient) -> None:
        self._context: SyncContext = SyncHandle(RemoteContext(host, _NOBODY))
        self.last_refusal: Refused | None = None  # of the last operation, if it was refused

    def answer(self, op: str, args: str | bytes) -> tuple[bool, str]:
        """Whether the operation was done, and its answer or error, as JSON."""
        self.last_refusal = None
        try:
            return True, answer_text(self._answered(op, args))
        except Closed:  # the host has ended the call
            raise
        except Refused as refused:
            self.last_refusal = refused
            return False, _error("Refused", str(refused), code=refused.code)
        except KeyError as missing:
            return False, _error("ValueError", f"`{op}` lacks its argument {missing}")
        except OSError as wrong:
            return False, _error(type(wrong).__name__, wrong.strerror or str(wrong), errno=wrong.errno)
        except Exception as wrong:
            return False, _error(type(wrong).__name__, str(wrong))

    def _answered(self, op: str, args: str | bytes) -> Json:
        operation = OPERATIONS.get(op)
        if operation is None:
            raise ValueError(f"unknown operation `{op[:100]}`, expected one of {', '.join(OPERATIONS)}")
        given = json.loads(args)
        if not isinstance(given, dict):
            raise TypeError(f"expected a JSON object as the arguments of `{op}`")
        if op in _WRITTEN_OUT:
            return _WRITTEN_OUT[op](self._context, given)
        act = method_of(self._context, operation, given.get("kind"))
        needed = [given[name] for name in (*operation.texts, *operation.values)]
        found = act(*needed, *(given.get(name) for name in operation.optional))
        if isinstance(found, bytes):
            return _content(found)
        return {"value": found} if operation.result == "value" else {}


def answer_text(answer: Json) -> str:
    """An answer as JSON that has a UTF-8 form, also if a file name in it has none."""
    text = json.dumps(answer, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(answer)
    return text


def _error(kind: str, text: str, code: str = "", errno: int | None = None) -> str:
    more = {} if errno is None else {"errno": errno}
    return answer_text({"code": code, "kind": kind, "text": text, **more})


def _bytes_of(given: Json) -> bytes | None:
    if "base64" in given:
        return base64.b64decode(given["base64"], validate=True)
    text = given.get("text")
    return None if text is None else str(text).encode()


def _content(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _write(ctx: SyncContext, given: Json) -> Json:
    data = _bytes_of(given)
    if data is None:
        raise KeyError("text")
    ctx.fs.write(given["path"], data)
    return {}


def _fetch(ctx: SyncContext, given: Json) -> Json:
    named = ("headers", "json", "timeout", "max_bytes", "redirects")
    options = {name: given[name] for name in named if given.get(name) is not None}
    body = _bytes_of(given)
    if body is not None:
        options["body"] = body
    answer: Any = ctx.fetch(given["url"], given.get("method") or "GET", **options)
    headers = [list(pair) for pair in answer.headers.pairs]
    return {"status": answer.status, "url": answer.url, "headers": headers, **_content(answer.content)}


def _store(ctx: SyncContext, given: Json) -> SyncStore:
    return ctx.kv if given.get("kind") is None else ctx.kv.of(given["kind"])


def _set(ctx: SyncContext, given: Json) -> Json:
    _store(ctx, given).set(given["key"], given["value"], given.get("ttl_seconds"))
    return {}


def _spawn(ctx: SyncContext, given: Json) -> Json:
    more = {name: given[name] for name in ("args", "stdin", "env", "cwd", "timeout") if given.get(name) is not None}
    ended = ctx.process.spawn(given["name"], **more)
    named = ("exit_code", "stdout", "stderr", "truncated", "timed_out", "reason")
    return {name: getattr(ended, name) for name in named}


# The other operations are a method with its arguments.
_WRITTEN_OUT: Mapping[str, Callable[[SyncContext, Json], Json]] = {
    "fs.write": _write,
    "fs.stat": lambda ctx, given: {"value": to_builtins(ctx.fs.stat(given["path"]))},
    "fs.list": lambda ctx, given: {"value": ctx.fs.list(given.get("path", "."))},
    "fetch": _fetch,
    "kv.set": _set,
    "kv.list": lambda ctx, given: {"value": _store(ctx, given).list(given.get("prefix", ""))},
    "process.spawn": _spawn,
}


INITIALIZE = "_initialize"
START, RUN = "_start", "run"  # what a command exports: a core module, and the interface `wasi:cli/run` of a component
_RUN_INTERFACE = "wasi:cli/run@0.2."
_NO_MEMORY = ("exceeds memory limits", "Cannot allocate memory")  # in the cause of an error
_STDIN = "stdin"


class GuestStopped(Exception):
    """A guest reached a limit; `reason` is the code of the limit."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        super().__init__(text)


class Trap(Exception):
    """A guest trapped, or ended with an exit code that is not 0; `printed` is what it wrote last."""

    def __init__(self, text: str, printed: str = "") -> None:
        self.printed = printed
        super().__init__(text)


class Guest:
    """A compiled module, and the calls of it that this worker serves, one after another.

    Its code is the open file, if there is one.
    """

    def __init__(self, spec: Mapping[str, Any], files: Sequence[int], host: HostClient) -> None:
        self._spec, self._host = spec, host
        self._is_command = spec["function"] is None and not spec["python"]
        self.environment: Mapping[str, str] = {}  # of the next call
        self._engine = new_engine()
        self._clock = _CpuClock(self._engine, spec["cpu_seconds"])
        self._calls = HostCalls(host)
        self._answer = b""  # of the last host call of a core module, until it is taken
        self._memory: Any = None  # of the running core module
        compiled = f"/proc/self/fd/{files[0]}" if files else spec["compiled"]
        load = self._load_component if spec["kind"] == "component" else self._load_module
        self._instance: Callable[[wasmtime.Store, dict[str, Any]], Any] = load(compiled)

    def __call__(self, /, **arguments: object) -> Any:
        """Run one call in a fresh instance, and return its result as plain data."""
        self._calls, self._answer = HostCalls(self._host), b""
        store = new_store(self._engine, fuel=self._spec["fuel"], memory_bytes=self._spec["memory_bytes"])
        output = _Output(self._spec["output_bytes"], self._engine, kept=self._is_command)
        with self._input(arguments) as stdin:
            store.set_wasi(self._wasi(output, stdin))
            value = None
            try:
                with self._clock.running():
                    value = self._instance(store, arguments)
            except wasmtime.ExitTrap as ended:
                if ended.code:
                    raise self._cause_of(ended, output, store) from None
            except (wasmtime.WasmtimeError, wasmtime.Trap) as wrong:
                raise self._cause_of(wrong, output, store) from None
            finally:
                self._answer, self._memory = b"", None
                store.close()  # now, and not when the traceback of an error is gone
        output.check()  # it may have ended before it could be interrupted
        return output.value() if self._is_command else value

    # Core modules -----------------------------------------------------------------------------------------------------

    def _load_module(self, compiled: str) -> Callable[[wasmtime.Store, dict[str, Any]], Any]:
        module = wasmtime.Module.deserialize_file(self._engine, compiled)
        linker = wasmtime.Linker(self._engine)
        linker.define_wasi()
        i32 = wasmtime.ValType.i32()
        linker.define_func("licet", "call", wasmtime.FuncType([i32] * 4, [i32]), self._call, access_caller=True)
        linker.define_func("licet", "take", wasmtime.FuncType([i32] * 2, [i32]), self._take, access_caller=True)
        ready = linker.instantiate_pre(module)
        named = {item.name: item.type for item in module.exports}
        type_ = named.get(self._spec["function"])
        kinds = [str(kind) for kind in type_.params] if isinstance(type_, wasmtime.FuncType) else []

        def run(store: wasmtime.Store, arguments: dict[str, Any]) -> Any:
            exports = ready.instantiate(store).exports(store)
            self._memory = exports.get("memory")
            name = self._spec["function"] or START
            function = exports.get(name)
            if not isinstance(function, wasmtime.Func):
                functions = [one for one, item in exports.items() if isinstance(item, wasmtime.Func)]
                raise Trap(f"it exports no function `{name}`; it has {', '.join(functions) or 'none'}")
            if self._is_command:
                return function(store)
            initialize = exports.get(INITIALIZE)  # of a library: constructors and the like
            if isinstance(initialize, wasmtime.Func):
                initialize(store)
            return function(store, *_numbers(kinds, arguments, self._spec["parameters"]))

        return run

    def _call(self, caller: wasmtime.Caller, op: int, op_size: int, args: int, args_size: int) -> int:
        """The host function of core modules: the length of the answer, negative if it is an error."""
        memory = _memory_of(caller)
        named = bytes(memory.read(caller, *_span(op, op_size))).decode(errors="replace")
        done, text = self._calls.answer(named, bytes(memory.read(caller, *_span(args, args_size))))
        self._answer = text.encode()
        return len(self._answer) if done else -len(self._answer)

    def _take(self, caller: wasmtime.Caller, to: int, most: int) -> int:
        """Copy the last answer into the memory of the guest: the number of bytes, at most `most`."""
        taken, self._answer = self._answer[: most & 0xFFFFFFFF], b""
        _memory_of(caller).write(caller, taken, to & 0xFFFFFFFF)
        return len(taken)

    # Components -------------------------------------------------------------------------------------------------------

    def _load_component(self, compiled: str) -> Callable[[wasmtime.Store, dict[str, Any]], Any]:
        component = components.Component.deserialize_file(self._engine, compiled)
        linker = components.Linker(self._engine)
        linker.add_wasip2()
        with linker.root() as root:
            root.add_func("call", self._component_call)
        names = tuple(component.type.exports(self._engine))

        def run(store: wasmtime.Store, arguments: dict[str, Any]) -> Any:
            instance = linker.instantiate(store, component)
            if self._spec["python"]:
                return self._python(instance, store, arguments)
            function = _exported(instance, store, self._spec["function"], names)
            type_ = function.type(store)
            if self._is_command:
                ended = function(store)
                if isinstance(ended, components.Variant) and ended.tag == "err":
                    raise Trap("it ended with an error")
                return None
            given = [component_values.from_json(one, _needed(name, one, arguments), name) for name, one in type_.params]
            return component_values.result_to_json(type_.result, function(store, *given))

        return run

    def _python(self, instance: components.Instance, store: wasmtime.Store, arguments: dict[str, Any]) -> Any:
        """Run source that a model wrote: see `licet.wasm.python`."""
        function = instance.get_func(store, "run")
        if function is None:
            raise Trap("the Python that runs the code has no function `run`")
        ended: dict[str, Any] = json.loads(function(store, json.dumps({**arguments, "workdir": self._spec["workdir"]})))
        if ended.pop("limit", None) == "memory":
            raise GuestStopped("LIMIT_MEMORY", f"it needed more than {self._spec['memory_bytes'] >> 20} MB of memory")
        return ended

    def _component_call(self, store: object, op: str, args: str) -> Any:
        done, text = self._calls.answer(op, args)
        return components.Variant("ok" if done else "err", text)

    # What surrounds a call --------------------------------------------------------------------------------------------

    def _wasi(self, output: "_Output", stdin: str | None) -> wasmtime.WasiConfig:
        wasi = wasmtime.WasiConfig()
        wasi.argv = [self._spec["name"]]
        wasi.env = sorted(self.environment.items())
        for path, guest_path, writable in self._spec["preopens"]:
            with contextlib.suppress(wasmtime.WasmtimeError):  # a directory that was removed meanwhile
                wasi.preopen_dir(path, guest_path, writable)
        if stdin is not None:
            wasi.stdin_file = stdin
        wasi.stdout_custom = output.stdout
        wasi.stderr_custom = output.stderr
        return wasi

    @contextlib.contextmanager
    def _input(self, arguments: dict[str, Any]) -> Iterator[str | None]:
        """A file with the arguments of a command, for its standard input."""
        if not self._is_command:
            yield None
            return
        path = os.path.join(os.environ["TMPDIR"], _STDIN)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(arguments, file, ensure_ascii=False)
        try:
            yield path
        finally:
            os.unlink(path)

    def _cause_of(self, wrong: Exception, output: "_Output", store: wasmtime.Store) -> Exception:
        """Why a guest ended: a limit, a refusal that it did not handle, or a trap."""
        # The last line alone: those before it have names from the module, which may be anything.
        cause, spec = _cause(str(wrong)), self._spec
        output.check()
        if cause == "all fuel consumed by WebAssembly":
            return GuestStopped("LIMIT_FUEL", f"it used its {spec['fuel']} units of fuel")
        if cause == "call stack exhausted":
            return GuestStopped("LIMIT_STACK", f"it recursed too deeply, for a stack of {STACK_BYTES >> 20} MB")
        if cause == "interrupt":
            return GuestStopped("LIMIT_CPU", f"it used more than {spec['cpu_seconds']} seconds of CPU time")
        full = "unreachable" in cause and self._is_full(store)  # as programs end that get no more memory
        if full or any(text in cause for text in _NO_MEMORY):
            return GuestStopped("LIMIT_MEMORY", f"it needed more than {spec['memory_bytes'] >> 20} MB of memory")
        if "exceeds table limits" in cause:
            return GuestStopped("LIMIT_MEMORY", f"it needed a table of more than {TABLE_ELEMENTS} elements")
        if self._calls.last_refusal is not None:
            return self._calls.last_refusal
        if isinstance(wrong, wasmtime.ExitTrap):
            cause = f"it ended with exit code {wrong.code}"
        return Trap(cause, output.last_words())

    def _is_full(self, store: wasmtime.Store) -> bool:
        if not isinstance(self._memory, wasmtime.Memory):
            return False
        return self._memory.data_len(store) >= int(self._spec["memory_bytes"] * NEARLY_FULL)


class _Output:
    """What a guest writes: standard output, kept as the result of a command, and standard error, for the operator."""

    def __init__(self, most: int, engine: wasmtime.Engine, *, kept: bool) -> None:
        self._most, self._flooded = most, False
        self._engine, self._is_kept = engine, kept
        self._kept: list[bytes] = []
        self._size = 0
        self._last = b""

    def stdout(self, data: bytes) -> None:
        if not self._fits(data):
            return
        if self._is_kept:
            self._kept.append(data)
        else:
            _print(1, data)

    def stderr(self, data: bytes) -> None:
        if self._fits(data):
            self._last = (self._last + data)[-LAST_WORDS:]
            _print(2, data)

    def _fits(self, data: bytes) -> bool:
        self._size += len(data)
        if self._size > self._most:
            self._flooded = True
            self._kept.clear()
            self._engine.increment_epoch()  # traps at the next loop or call of the guest
        return not self._flooded

    def check(self) -> None:
        """Raise `GuestStopped` if more was written than may be."""
        if self._flooded:
            raise GuestStopped("LIMIT_OUTPUT", f"it wrote more than {self._most >> 20} MB")

    def value(self) -> Any:
        """The result of a command: its output as JSON if it is JSON, otherwise as text."""
        text = b"".join(self._kept).decode(errors="replace")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text

    def last_words(self) -> str:
        """The last lines of standard error. The host removes secrets from them, and then takes one for an error."""
        cut = len(self._last) == LAST_WORDS  # then the first line may begin with the second half of a secret
        return (self._last.partition(b"\n")[2] if cut else self._last).decode(errors="replace")


def _print(stream: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # what does not fit into the pipe to the host is dropped
        os.write(stream, data)


class _CpuClock:
    """Interrupts a call that has used its CPU time. Waiting for the host costs none.

    Its thread looks every few milliseconds while there are calls, and sleeps after a second without any.
    """

    def __init__(self, engine: wasmtime.Engine, seconds: int) -> None:
        self._engine, self._seconds = engine, seconds
        self._until: float | None = None  # the CPU time at which the running call is over its limit
        self._sleeping = False
        self._wake = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count what this process uses until the context ends."""
        self._until = time.process_time() + self._seconds
        if self._sleeping:
            self._wake.set()
        try:
            yield
        finally:
            self._until = None

    def _watch(self) -> None:
        unused = 0.0
        while True:
            time.sleep(TICK)
            until = self._until
            if until is not None and time.process_time() > until:
                self._engine.increment_epoch()
            unused = unused + TICK if until is None else 0.0
            if unused > CLOCK_REST_SECONDS:
                self._sleeping = True
                if self._until is None:  # no call began meanwhile, and the next one sees that this thread sleeps
                    self._wake.wait()
                self._sleeping, unused = False, 0.0
                self._wake.clear()


def _span(start: int, size: int) -> tuple[int, int]:
    """The beginning and end of a piece of memory. Both numbers are unsigned, and wasmtime gives them signed."""
    begin = start & 0xFFFFFFFF
    return begin, begin + (size & 0xFFFFFFFF)


def _memory_of(caller: wasmtime.Caller) -> wasmtime.Memory:
    memory = caller.get("memory")
    if not isinstance(memory, wasmtime.Memory):
        raise Trap("it calls the host, but exports no `memory`")
    return memory


def _numbers(kinds: Sequence[str], arguments: Mapping[str, Any], names: Sequence[str]) -> list[int | float]:
    """The arguments of a core function, in the order of the declared parameters, or as they were sent."""
    order = [name for name in names if name in arguments] or list(arguments)
    if len(order) != len(kinds):
        raise component_values.Unfit(f"the function takes {len(kinds)} arguments, found {len(order)}")
    given: list[int | float] = []
    for name, kind in zip(order, kinds, strict=True):
        value = arguments[name]
        whole = kind in ("i32", "i64")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise component_values.Unfit(f"`{name}` must be a {'whole ' if whole else ''}number, an {kind}")
        bits = 31 if kind == "i32" else 63
        if whole and not -(1 << bits) <= value < (1 << bits):
            raise component_values.Unfit(f"`{name}` does not fit into an {kind}")
        given.append(value if whole else float(value))
    return given


def _needed(name: str, type_: object, arguments: Mapping[str, Any]) -> Any:
    if name not in arguments and not isinstance(type_, components.OptionType):
        raise component_values.Unfit(f"`{name}` is missing")
    return arguments.get(name)


def _exported(instance: components.Instance, store: wasmtime.Store, name: str | None, names: Sequence[str]) -> Any:
    """An exported function: by name, as `interface#name`, or the one that a command has."""
    inside = name
    interface = ""
    if name is None:
        interface = next((one for one in names if one.startswith(_RUN_INTERFACE)), "")
        inside = RUN
    elif "#" in name:
        interface, _, inside = name.partition("#")
    index = instance.get_export_index(store, interface) if interface else None
    found = instance.get_export_index(store, str(inside), index)
    function = None if found is None or (interface and index is None) else instance.get_func(store, found)
    if function is None:
        raise Trap(f"it exports no function `{name or _RUN_INTERFACE}`; it has {', '.join(names) or 'none'}")
    return function


def _cause(text: str) -> str:
    """The cause of a trap, without the addresses of its backtrace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "it trapped").removeprefix("wasm trap: ")
