"""Everyone who asks or answers a handle keeps to the list of operations: names, arguments, and what is async."""

import asyncio
import inspect
import json
import typing
from collections.abc import Callable
from typing import Any

import pytest

from licet import handles
from licet.declare.context import OPERATIONS, Operation, method_of
from licet.sandbox.bridge import operations as host
from licet.sandbox.bridge.worker_context import HostReply, RemoteContext
from licet.wasm.python.guest import host_context as guest

# Arguments that are sent as bytes beside the others, or as another argument.
AS_BYTES = {"data": {"text"}, "json": {"json"}, "body": {"body", "text"}, "stdin": {"stdin"}, "value": {"value"}}
SAMPLES: dict[str, Any] = {
    "path": "/a",
    "source": "/a",
    "target": "/b",
    "limit": 3,
    "data": b"x",
    "url": "http://a.test/",
    "method": "PUT",
    "headers": {"A": "b"},
    "json": None,
    "body": b"x",
    "timeout": 1.0,
    "max_bytes": 9,
    "redirects": False,
    "reference": "R",
    "key": "k",
    "value": [1],
    "ttl_seconds": 5,
    "prefix": "p",
    "name": "N",
    "args": ["a"],
    "stdin": "x",
    "env": {"A": "b"},
    "cwd": "/",
    "amount": "1",
}
ENDED = {"exit_code": 0, "stdout": 0, "truncated": False, "timed_out": False, "reason": ""}
ANSWER = {"status": 200, "url": "http://a.test/", "headers": [], **ENDED}


def arguments(operation: Operation) -> tuple[str, ...]:
    return (*operation.texts, *operation.values, *operation.optional)


def told(context: type, operation: Operation) -> Callable[..., Any]:
    """The method as a protocol tells it."""
    handle, _, name = operation.method.rpartition(".")
    if operation.method == "fetch":
        handle, name = "fetch", "__call__"
    if not handle:
        return typing.cast("Callable[..., Any]", getattr(context, name))
    protocol = typing.get_type_hints(inspect.getattr_static(context, handle).fget)["return"]
    return typing.cast("Callable[..., Any]", getattr(protocol, name))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("context", [handles.Context, handles.SyncContext])
def test_the_protocols_take_what_the_list_says(context: type, name: str) -> None:
    operation, method = OPERATIONS[name], told(context, OPERATIONS[name])
    _, *taken = inspect.signature(method).parameters
    first = (*operation.texts, *operation.values)
    assert tuple(taken[: len(first)]) == first
    assert set(taken) - {"default"} == set(arguments(operation))  # a default is not sent
    assert inspect.iscoroutinefunction(method) is (context is handles.Context and not operation.at_once)


PAIRS = [
    (getattr(handles, name.removeprefix("Sync")), getattr(handles, name)) for name in handles.__all__ if "Sync" in name
]


@pytest.mark.parametrize(("known", "twin"), PAIRS, ids=[twin.__name__ for _, twin in PAIRS])
def test_a_sync_protocol_is_the_async_one_without_await(known: type, twin: type) -> None:
    methods, twins = (
        {name: one for name, one in vars(each).items() if inspect.isfunction(one)} for each in (known, twin)
    )
    methods.pop("stream", None)  # async alone
    assert {name for name in vars(known) if name in methods or isinstance(vars(known)[name], property)} <= set(
        vars(twin)
    )
    for name, method in methods.items():
        if name.startswith("_") and name != "__call__":
            continue
        assert inspect.getdoc(twins[name]) == inspect.getdoc(method), name
        one, other = inspect.signature(method), inspect.signature(twins[name])
        assert one.parameters == other.parameters, name
        assert str(one.return_annotation) == str(other.return_annotation).replace("Sync", ""), name


class Recorder:
    """The host, which notes what it is asked."""

    def __init__(self) -> None:
        self.op, self.sent = "", set[str]()

    def ask_now(self, op: str, blob: bytes = b"", **fields: Any) -> HostReply:
        self.op, self.sent = (
            op,
            {name for name, value in fields.items() if value is not None} | ({"text"} if blob else set()),
        )
        value = ("file", 1, 0.0, 0o644) if op == "fs.stat" else None
        return HostReply({"value": value, **ANSWER}, b"[]" if op.endswith(".list") else b"", ())

    async def ask(self, op: str, blob: bytes = b"", **fields: Any) -> HostReply:
        return self.ask_now(op, blob, **fields)

    def call(self, op: str, args: str) -> tuple[bool, str]:
        """The same for a guest."""
        self.op, self.sent = op, {*json.loads(args)}
        value = {"fs.stat": {"kind": "file"}, "fs.list": [], "kv.list": []}.get(op)
        return True, json.dumps({"value": value, **ANSWER, "stdout": ""})


async def asked(context: object, name: str, recorder: Recorder) -> None:
    operation = OPERATIONS[name]
    needed = [SAMPLES[one] for one in (*operation.texts, *operation.values)]
    found = method_of(context, operation, None)(*needed, **{one: SAMPLES[one] for one in operation.optional})
    if inspect.isawaitable(found):
        await found
    assert recorder.op == name
    others = {one for one in arguments(operation) if SAMPLES[one] is not None}
    expected = {one for one in others if one not in AS_BYTES}
    assert expected <= recorder.sent
    assert recorder.sent - expected <= {"text", "body", "value", "stdin"} & set().union(*AS_BYTES.values())


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_worker_and_a_guest_ask_what_the_list_says(name: str) -> None:
    recorder = Recorder()
    remote: Any = recorder
    asyncio.run(asked(RemoteContext(remote, {"session_id": "", "agent": "", "workdir": ""}), name, recorder))
    asyncio.run(asked(guest.Context(recorder.call), name, recorder))


def test_the_host_answers_the_list_and_what_only_walls_need() -> None:
    walls = {"fs.open", "stream.open", "stream.next", "stream.close", "process.start", "connect"}
    written = {*host._WRITTEN_OUT, *host._WRITTEN_OUT_NOW}
    assert written - set(OPERATIONS) == walls | {"kv.of", "process.signal"}
    own = {name for name, operation in OPERATIONS.items() if operation.result == "own"}
    assert written & set(OPERATIONS) == own | {"fs.write", "kv.set"}  # whose bytes are beside the question
