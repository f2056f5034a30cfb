"""The component of the Python runner, from the cache of this machine, and a host that is a dictionary of files."""

import base64
import functools
import importlib.util
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import wasmtime
from wasmtime import component

from licet.sandbox import probe
from licet.wasm.cache import compiled
from licet.wasm.compiler import new_engine, new_store
from licet.wasm.python.build import runner

FUEL = 20_000_000_000
MEMORY = 256 * 1024 * 1024

Answer = dict[str, Any]


def refused(code: str, text: str) -> dict[str, Any]:
    return {"code": code, "kind": "Refused", "text": f"{code}: {text}"}


class Refusal(Exception):
    """What the fake host answers with an error."""


class FakeHost:
    """A host with a few files below the working directory, which answers for `https://allowed.test` alone."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = dict(files or {})
        self.values: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, store: Any, op: str, args: str) -> component.Variant:
        asked = json.loads(args)
        self.asked.append((op, asked))
        answer: Callable[..., dict[str, Any]] = getattr(self, op.replace(".", "_"))
        try:
            return component.Variant("ok", json.dumps(answer(**asked)))
        except Refusal as refusal:
            return component.Variant("err", json.dumps(refusal.args[0]))

    def _path(self, path: str) -> str:
        plain = os.path.normpath(path)
        if plain.startswith(("/", "..")):
            raise Refusal(refused("PATH_NOT_REACHABLE", f"not permitted for {path}"))
        return plain

    def _found(self, path: str) -> bytes:
        if (plain := self._path(path)) not in self.files:
            missing = {"code": "", "kind": "FileNotFoundError", "errno": 2}
            raise Refusal({**missing, "text": "No such file or directory"})
        return self.files[plain]

    def _is_directory(self, path: str) -> bool:
        plain = self._path(path)
        return plain == "." or any(name.startswith(f"{plain}/") for name in self.files)

    def fs_read(self, path: str, limit: int | None = None) -> dict[str, Any]:
        if self._is_directory(path):
            raise Refusal({"code": "", "kind": "IsADirectoryError", "text": "Is a directory"})
        content = self._found(path)
        try:
            return {"text": content.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(content).decode()}

    def fs_write(self, path: str, **content: str) -> dict[str, Any]:
        sent = content["text"].encode() if "text" in content else base64.b64decode(content["base64"])
        self.files[self._path(path)] = sent
        return {}

    def fs_exists(self, path: str) -> dict[str, Any]:
        return {"value": self._path(path) in self.files or self._is_directory(path)}

    def fs_stat(self, path: str) -> dict[str, Any]:
        directory = self._is_directory(path)
        size = 0 if directory else len(self._found(path))
        return {"value": {"size": size, "is_dir": directory, "is_file": not directory, "modified": 1700000000.5}}

    def fs_list(self, path: str) -> dict[str, Any]:
        start = "" if (plain := self._path(path)) == "." else f"{plain}/"
        below = [name.removeprefix(start) for name in self.files if name.startswith(start)]
        return {"value": sorted({name.partition("/")[0] for name in below})}

    def fs_mkdir(self, path: str) -> dict[str, Any]:
        self.files[f"{self._path(path)}/.kept"] = b""
        return {}

    def fs_delete(self, path: str) -> dict[str, Any]:
        self._found(path)
        del self.files[self._path(path)]
        return {}

    def fs_rename(self, source: str, target: str) -> dict[str, Any]:
        content = self._found(source)
        del self.files[self._path(source)]
        self.files[self._path(target)] = content
        return {}

    def fetch(self, url: str, method: str = "GET", **sent: Any) -> dict[str, Any]:
        if not url.startswith("https://allowed.test/"):
            raise Refusal(refused("HOST_NOT_ALLOWED", f"{url} is not in the declared allowedHosts"))
        if url.endswith("/bytes"):
            return {"status": 200, "url": url, "headers": [], "base64": "/wA="}
        status = 404 if url.endswith("/missing") else 200
        echoed = json.dumps({"method": method, **sent})
        return {"status": status, "url": url, "headers": [["Content-Type", "application/json"]], "text": echoed}

    def kv_get(self, key: str, kind: str = "") -> dict[str, Any]:
        return {"value": self.values.get(kind + key)}

    def kv_set(self, key: str, value: Any, kind: str = "", ttl_seconds: int | None = None) -> dict[str, Any]:
        self.values[kind + key] = value
        return {}

    def kv_delete(self, key: str, kind: str = "") -> dict[str, Any]:
        return {"value": self.values.pop(kind + key, None) is not None}

    def kv_list(self, prefix: str, kind: str = "") -> dict[str, Any]:
        return {"value": sorted(key for key in self.values if key.startswith(kind + prefix))}

    def env_get(self, name: str) -> dict[str, Any]:
        if name == "SECRET":
            raise Refusal(refused("ENV_NOT_ALLOWED", f"{name} is not in the tool's declared env"))
        return {"value": {"CITY": "Oslo"}.get(name)}

    def secrets_get(self, reference: str) -> dict[str, Any]:
        return {"value": f"value of {reference}"}

    def secrets_ref(self, reference: str) -> dict[str, Any]:
        return {"value": f"«{reference}»"}

    def process_spawn(self, name: str, args: list[str], stdin: str = "", **options: Any) -> dict[str, Any]:
        said = " ".join((name, *args, stdin))
        ended = {"truncated": False, "timed_out": False, "reason": ""}
        return {"exit_code": 3, "stdout": said, "stderr": "", **ended}

    def charge(self, amount: str) -> dict[str, Any]:
        return {}


@functools.cache
def shared_runner() -> "Runner":
    """The runner of this process; a test that asks for it is skipped where it cannot be built."""
    if importlib.util.find_spec("componentize_py") is None:
        pytest.skip("componentize-py is not installed: pip install 'licet[wasm-build]'")
    return Runner()


class Runner:
    """Runs each piece of code in a fresh instance."""

    def __init__(self) -> None:
        support = probe.support()
        missing = support.missing("restricted")
        if missing:
            pytest.skip(f"nothing is compiled without walls here: {missing[0]}")
        self._engine = new_engine()
        made = compiled(runner().module, support.walls_in_spec())
        self._component = component.Component.deserialize_file(self._engine, made.file)

    def __call__(
        self, code: str, data: Any = None, host: FakeHost | None = None, *, fuel: int = FUEL, memory: int = MEMORY
    ) -> Answer:
        linker = component.Linker(self._engine)
        linker.add_wasip2()
        with linker.root() as root:
            root.add_func("call", host or FakeHost())
        with new_store(self._engine, fuel=fuel, memory_bytes=memory) as store:
            store.set_wasi(wasmtime.WasiConfig())  # no arguments, environment, directories or streams
            run = linker.instantiate(store, self._component).get_func(store, "run")
            assert run is not None
            answer = run(store, json.dumps({"code": code, "data": data}))
            run.post_return(store)
        return dict(json.loads(answer))
