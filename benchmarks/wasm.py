"""The cost of WASM tools: a tiny module, and Python that a model wrote, against a bare interpreter and native CPython.

The Python of `licet.tools.python` is built and compiled before the clock starts, as `licet wasm build` does.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Effort, Row, Timing, VerdictError, at_most, versus_floor
from licet import Backends, Gate, Session, Tool, load_manifest
from licet.sandbox import probe
from licet.sandbox.workers.pool import close_workers
from licet.tools import python

__all__ = ["measure"]

BARE, NATIVE = "python -I -S -c pass", "CPython"
TINY, PYTHON, COMPUTING = at_most(1 / 10), at_most(1), at_most(3)
AT_ONCE, SLICES = 32, 8
ADD = '(module (func (export "add") (param i64 i64) (result i64) (i64.add (local.get 0) (local.get 1))))'

# Programs that compute, each a function `work` whose result is compared: what a model writes to look at some data.
PROGRAMS = {
    "loops": "def work():\n t = 0\n for i in range(300_000): t += i * i % 7\n return t",
    "floats": "def work():\n x = 0.5\n for i in range(200_000): x = 3.9 * x * (1 - x)\n return round(x, 6) < 1",
    "calls": "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\ndef work(): return fib(21)",
    "dicts": "def work():\n d = {}\n for i in range(100_000): d[i % 999] = d.get(i % 999, 0) + i\n return len(d)",
    "texts": "def work(): return len(''.join(str(i) + 'x' for i in range(60_000)).split('x'))",
    "json": (
        "import json\nv = [{'a': i, 'b': [str(i)] * 3} for i in range(3000)]\n"
        "def work(): return len(json.dumps(json.loads(json.dumps(v))))"
    ),
    "sorting": "v = [i * 7919 % 100_003 for i in range(60_000)]\ndef work(): return sorted(v)[5]",
    "regex": (
        "import re\nt = 'the quick brown fox 123 jumps ' * 2000\n"
        "def work(): return len(re.findall(r'[a-z]+ [0-9]+', t))"
    ),
    "objects": (
        "class P:\n def __init__(self, x): self.x = x\n def next(self): return self.x + 1\n"
        "def work(): return sum(P(i).next() for i in range(60_000))"
    ),
}
_TIMED = """
import time
best = None
for _ in range(5):
    began = time.perf_counter_ns()
    value = work()
    took = time.perf_counter_ns() - began
    best = took if best is None else min(best, took)
result = [best, value]
"""


def measure(effort: Effort) -> list[Row]:
    """Every row about WASM tools."""
    if missing := probe.support().missing("restricted"):
        return [Row("WASM tools", BARE, target=TINY, note=missing[0])]
    with tempfile.TemporaryDirectory() as place:
        rows = asyncio.run(_measured(_gate(Path(place)), effort))
    close_workers()  # another part measures the memory of its own
    return rows


def _gate(place: Path) -> Gate:
    made = subprocess.run(
        [sys.executable, "-c", f"import sys, wasmtime; sys.stdout.buffer.write(wasmtime.wat2wasm({ADD!r}))"],
        check=True, capture_output=True,
    )  # fmt: skip
    (place / "add.wasm").write_bytes(made.stdout)
    tiny = Tool.wasm(str(place / "add.wasm"), name="tiny", function="add", capabilities={}, effect="read_only")
    tools = {"tiny": {}, "python": {"side_effect_class": "read_only"}}
    limits = {"wall_seconds": 600, "cpu_seconds": 600, "fuel": 10**14}
    path = place / "agent.yaml"
    path.write_text(json.dumps({"agent": "bench", "version": "1", "capabilities": {"tools": tools, "limits": limits}}))
    return Gate(load_manifest(path), [tiny, python], Backends.memory(), workdir=place)


async def _measured(gate: Gate, effort: Effort) -> list[Row]:
    times: dict[str, list[float]] = {"bare": [], "tiny": [], "python": []}
    computing: list[tuple[float, float]] = []
    async with gate.session("bench") as session:
        await _tiny(session, 3)
        await _python(session, 3)
        for _ in range(effort.processes):
            times["bare"] += [_spawned() for _ in range(SLICES)]
            times["tiny"] += [await _tiny(session, AT_ONCE) for _ in range(SLICES)]
            times["python"] += [await _python(session, AT_ONCE // 4) for _ in range(SLICES)]
            computing.append(await _computed(session))
    took = {name: Timing(min(found), median(found)) for name, found in times.items()}
    guest, native = ([pair[side] for pair in computing] for side in (0, 1))
    rows = [
        versus_floor("one call of a tiny WASM function, fresh instance", BARE, took["tiny"], took["bare"], TINY),
        versus_floor("model-written Python, fresh interpreter", BARE, took["python"], took["bare"], PYTHON),
    ]
    one, other = Timing(min(guest), median(guest)), Timing(min(native), median(native))
    return [*rows, versus_floor(f"model-written Python, {len(PROGRAMS)} programs", NATIVE, one, other, COMPUTING)]


async def _tiny(session: Session, many: int) -> float:
    began = time.perf_counter_ns()
    for number in range(many):
        _expect((await session.call("tiny", {"a": number, "b": 1})).value, number + 1)
    return (time.perf_counter_ns() - began) / many


async def _python(session: Session, many: int) -> float:
    began = time.perf_counter_ns()
    for number in range(many):
        result = await session.call("python", {"code": "data + 1", "data": number})
        _expect(result.value["result"] if result.ok else result, number + 1)
    return (time.perf_counter_ns() - began) / many


def _spawned() -> float:
    began = time.perf_counter_ns()
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return time.perf_counter_ns() - began


async def _computed(session: Session) -> tuple[float, float]:
    """The geometric means of all programs, in nanoseconds: in the guest, and in this interpreter."""
    guest, native = [], []
    for name, program in PROGRAMS.items():
        result = await session.call("python", {"code": program + _TIMED})
        took, value = result.value["result"] if result.ok else (0, result)
        names: dict[str, Any] = {}
        exec(program + _TIMED, names)
        here, expected = names["result"]
        if value != expected:
            raise VerdictError(f"{name} gives {value!r} in the guest, and {expected!r} here")
        guest.append(log(took))
        native.append(log(here))
    return exp(sum(guest) / len(guest)), exp(sum(native) / len(native))


def _expect(found: Any, expected: int) -> None:
    if found != expected:
        raise VerdictError(f"found {found!r}, expected {expected}")
