"""Runs a function of licet itself once, in a worker behind walls: for untrusted input.

It blocks, so it is for threads. The worker may read the interpreter, libraries and licet, and the files that are named
here; it writes to its scratch directory alone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from licet.declare.plain_json import plain_data, plain_json
from licet.guard.execution import SandboxUnavailable
from licet.sandbox.bridge.wire import FROM_WORKER, BrokenWire, Closed, Wire, packed
from licet.sandbox.grant_paths import base_rules
from licet.sandbox.kernel import landlock
from licet.sandbox.limits import ERRAND_EXIT_SECONDS
from licet.sandbox.workers.pool import pool
from licet.sandbox.workers.tool_source import ToolSource, import_path
from licet.sandbox.workers.worker import NO_WALLS
from licet.sandbox.workers.zygote_client import Watched, WorkerExit, WorkerProcess

T = TypeVar("T")


class ErrandFailed(Exception):
    """The function raised, or its worker ended without an answer; `kind` is the name of the exception's type."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)


def run_errand(
    module: str,
    function: str,
    arguments: Mapping[str, Any],
    finish: Callable[[str, Any], T],
    *,
    walls: Mapping[str, Any],
    read: Sequence[str],
    seconds: float,
    limits: Mapping[str, int],
    scratch_bytes: int,
) -> T:
    """Run a function of licet with JSON arguments, and call `finish` with the scratch directory and the result.

    `walls` is the part of a worker's specification that says which walls it builds. Raises `ErrandFailed`, or
    `SandboxUnavailable` if no worker can be started.
    """
    rules = [*base_rules(ToolSource(module, function, {})), *((path, landlock.READ_FILE, None) for path in read)]
    fixed = {
        **walls,
        "module": module,
        "qualname": function,
        "modules": {},
        "path": import_path(),
        "cell": None,
        "guest": None,
        "files": 0,
        "bytecode": True,
        "async": False,
        "context": None,
        "reuse": True,  # it waits after its answer, so that its scratch directory is there for `finish`
        "late": False,
        "connects": False,
        "programs": None,
        "directory": "",
        "result_bytes": FROM_WORKER.blob,
        "limits": dict(limits),
        "rules": rules,
    }
    watched = Watched(scratch_bytes, threads=256)
    zygote, worker = pool.spawn(lambda scratch: packed({**fixed, "scratch": scratch}), watched)
    began = time.monotonic()
    try:
        zygote.watch(worker)
        end = worker.end
        end.settimeout(seconds)
        wire = Wire(end, FROM_WORKER)
        wire.send({"call": 1, "plain": True}, plain_json(dict(arguments)))
        frame = wire.receive()
        if "error" in frame.head:
            raise ErrandFailed(str(frame.head["error"]), str(frame.head.get("text", "")))
        return finish(worker.scratch, plain_data(frame.blob))
    except (Closed, BrokenWire) as gone:
        if time.monotonic() - began >= seconds:
            raise ErrandFailed("TimedOut", f"it took longer than {seconds:.0f} seconds") from None
        exit_ = _exit_of(worker)
        if exit_ is not None and exit_.start_error:
            raise SandboxUnavailable(exit_.start_error) from None
        if exit_ is not None and exit_.why == NO_WALLS:
            raise SandboxUnavailable("a wall could not be built in the process that does it") from None
        raise ErrandFailed("Ended", f"its process ended without an answer ({gone})") from None
    finally:
        zygote.end(worker)


def _exit_of(worker: WorkerProcess) -> WorkerExit | None:
    """How a worker ended; the thread that listens to the zygote may learn it a moment later. None if it does not."""
    until = time.monotonic() + ERRAND_EXIT_SECONDS
    while worker.exit is None and time.monotonic() < until:
        time.sleep(0.01)
    return worker.exit
