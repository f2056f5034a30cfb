"""The host function of a guest: an operation by name with a JSON object, answered by the handle of the call.

Runs in a worker. Each operation goes through the same remote handle as in a Python tool, so the host decides. Bytes are
`text` where they are UTF-8, and `base64` otherwise; a guest may send either.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import to_builtins

from licet.errors import Refused
from licet.sandbox.bridge.client import HostClient
from licet.sandbox.bridge.context import RemoteContext, SyncHandle
from licet.sandbox.workers.wire import Closed

Json = Mapping[str, Any]
_NOBODY = {"session_id": "", "agent": "", "workdir": ""}  # a guest is not told who calls


class HostCalls:
    """The operations that a guest can ask for during one call, and the last refusal."""

    def __init__(self, host: HostClient) -> None:
        self._context: Any = SyncHandle(RemoteContext(host, _NOBODY))
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
        act = _OPERATIONS.get(op)
        if act is None:
            raise ValueError(f"unknown operation `{op[:100]}`, expected one of {', '.join(_OPERATIONS)}")
        given = json.loads(args)
        if not isinstance(given, dict):
            raise TypeError(f"expected a JSON object as the arguments of `{op}`")
        return act(self._context, given)


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


def _write(ctx: Any, given: Json) -> Json:
    data = _bytes_of(given)
    if data is None:
        raise KeyError("text")
    ctx.fs.write(given["path"], data)
    return {}


def _fetch(ctx: Any, given: Json) -> Json:
    named = ("headers", "json", "timeout", "max_bytes", "redirects")
    options = {name: given[name] for name in named if given.get(name) is not None}
    body = _bytes_of(given)
    if body is not None:
        options["body"] = body
    answer = ctx.fetch(given["url"], given.get("method") or "GET", **options)
    headers = [list(pair) for pair in answer.headers.pairs]
    return {"status": answer.status, "url": answer.url, "headers": headers, **_content(answer.content)}


def _store(ctx: Any, given: Json) -> Any:
    return ctx.kv if given.get("kind") is None else ctx.kv.of(given["kind"])


def _set(ctx: Any, given: Json) -> Json:
    _store(ctx, given).set(given["key"], given["value"], given.get("ttl_seconds"))
    return {}


def _spawn(ctx: Any, given: Json) -> Json:
    more = {name: given[name] for name in ("args", "stdin", "env", "cwd", "timeout") if given.get(name) is not None}
    ended = ctx.process.spawn(given["name"], **more)
    named = ("exit_code", "stdout", "stderr", "truncated", "timed_out", "reason")
    return {name: getattr(ended, name) for name in named}


def _done(act: Callable[[Any, Json], object]) -> Callable[[Any, Json], Json]:
    def run(ctx: Any, given: Json) -> Json:
        act(ctx, given)
        return {}

    return run


def _value(act: Callable[[Any, Json], object]) -> Callable[[Any, Json], Json]:
    return lambda ctx, given: {"value": act(ctx, given)}


_OPERATIONS: Mapping[str, Callable[[Any, Json], Json]] = {
    "fs.read": lambda ctx, given: _content(ctx.fs.read_bytes(given["path"], given.get("limit"))),
    "fs.write": _write,
    "fs.exists": _value(lambda ctx, given: ctx.fs.exists(given["path"])),
    "fs.stat": _value(lambda ctx, given: to_builtins(ctx.fs.stat(given["path"]))),
    "fs.list": _value(lambda ctx, given: ctx.fs.list(given.get("path", "."))),
    "fs.mkdir": _done(lambda ctx, given: ctx.fs.mkdir(given["path"])),
    "fs.delete": _done(lambda ctx, given: ctx.fs.delete(given["path"])),
    "fs.rename": _done(lambda ctx, given: ctx.fs.rename(given["source"], given["target"])),
    "fetch": _fetch,
    "secrets.get": _value(lambda ctx, given: ctx.secrets.get(given["reference"])),
    "secrets.ref": _value(lambda ctx, given: ctx.secrets.ref(given["reference"])),
    "kv.get": _value(lambda ctx, given: _store(ctx, given).get(given["key"])),
    "kv.set": _set,
    "kv.delete": _value(lambda ctx, given: _store(ctx, given).delete(given["key"])),
    "kv.list": _value(lambda ctx, given: _store(ctx, given).list(given.get("prefix", ""))),
    "env.get": _value(lambda ctx, given: ctx.env.get(given["name"])),
    "process.spawn": _spawn,
    "charge": _done(lambda ctx, given: ctx.charge(given["amount"])),
}
OPERATIONS = tuple(_OPERATIONS)
