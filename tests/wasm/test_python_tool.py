"""`licet.tools.python` through a gate: results, files, requests, limits, and nothing left for the next call."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from effort import LONG
from licet import Backends, Gate, Result, load_manifest
from licet.backends.memory import Answer
from licet.sandbox.workers.pool import pool
from licet.tools import python
from licet.wasm.python.build import runner
from loopback import serving
from pins import pinned
from sandbox.levels import local_backends, needs_walls

MANY = 1000 if LONG else 60


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    needs_walls()
    pytest.importorskip("wasmtime")
    pytest.importorskip("componentize_py")
    runner()


def analyst(folder: Path, *, effect: str = "read_only", backends: Backends | None = None, **capabilities: Any) -> Gate:
    content = {
        "agent": "analyst",
        "version": "1.0",
        "capabilities": {
            "tools": {"python": {"side_effect_class": effect}},
            "max_side_effect_class": effect,
            "approvals": {"write": "manifest"},
            **capabilities,
        },
    }
    (folder / "agent.yaml").write_text(json.dumps(content))
    parts = local_backends(folder.parent / "state") if backends is None else backends
    return Gate(pinned(load_manifest(folder / "agent.yaml")), [python], parts, workdir=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    (made / "data").mkdir(parents=True)
    (made / "data" / "rain.csv").write_text("day,mm\nmon,3\ntue,5\n")
    return made


def run(gate: Gate, *codes: str, data: Any = None) -> list[Result]:
    async def all_of_them() -> list[Result]:
        async with gate.session("s") as session:
            return [await session.call("python", {"code": code, "data": data}) for code in codes]

    return asyncio.run(all_of_them())


READS: Any = {"fs_reach": {"read": ["${workdir}/data"]}}
SUM = """
import csv
with open('data/rain.csv') as file:
    rows = list(csv.DictReader(file))
sum(int(row['mm']) for row in rows)
"""


@pytest.mark.parametrize(
    ("code", "data", "expected"),
    [
        ("sum(data)", [1, 2, 3], 6),
        (SUM, None, 8),
        ("from pathlib import Path\nPath('data/rain.csv').resolve().name", None, "rain.csv"),
        ("result = 5\nprint('done')", None, 5),
        ("import os\nos.path.basename(os.getcwd())", None, "work"),
        ("import os\nos.listdir('data')", None, ["rain.csv"]),
    ],
)
def test_code_computes_and_reads_what_is_granted(folder: Path, code: str, data: Any, expected: Any) -> None:
    [result] = run(analyst(folder, **READS), code, data=data)
    assert (result.error, result.value["error"], result.value["result"]) == ("", None, expected)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("open('/etc/hostname').read()", "PermissionError: PATH_NOT_REACHABLE"),
        ("open('data/rain.csv', 'a').write('x')", "PermissionError: SIDE_EFFECT_EXCEEDED"),
        ("import os\nos.remove('data/rain.csv')", "PermissionError: SIDE_EFFECT_EXCEEDED"),
        ("fetch('http://127.0.0.1:9/')", "PermissionError: HOST_NOT_ALLOWED"),
        ("ctx.secrets.get('desk/token')", "SECRET_NOT_DECLARED"),
        ("ctx.process.spawn('true')", "BINARY_NOT_ALLOWED"),
        ("ctx.env.get('HOME')", "ENV_NOT_ALLOWED"),
        ("open('data/none.csv')", "No such file or directory: 'data/none.csv'"),
        ("x = 1\nfile = open('data/rain.csv', 'w')", 'File "<code>", line 2'),
    ],
)
def test_what_is_not_granted_is_an_error_of_the_code(folder: Path, code: str, said: str) -> None:
    [result] = run(analyst(folder, **READS), code)
    assert result.ok
    assert said in result.value["error"]
    assert (folder / "data" / "rain.csv").read_text().endswith("tue,5\n")


def test_files_are_written_where_the_manifest_allows_it(folder: Path) -> None:
    gate = analyst(folder, effect="write_limited", fs_reach={"write": ["${workdir}/data"]})
    [result] = run(gate, "with open('data/new.txt', 'w') as file:\n    file.write('Grüße')")
    assert (result.error, result.value["error"]) == ("", None)
    assert (folder / "data" / "new.txt").read_text("utf-8") == "Grüße"


def test_a_request_is_sent_where_the_manifest_allows_it(folder: Path) -> None:
    with serving(lambda exchange: Answer.json({"mm": 4})) as server:
        gate = analyst(folder, destinations={"allow": [f"127.0.0.1:{server.port}"]})
        [result] = run(gate, f"fetch('http://127.0.0.1:{server.port}/rain').json()['mm']")
    assert (result.error, result.value["error"], result.value["result"]) == ("", None, 4)


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("while True: pass", {"fuel": 2_000_000_000}, "LIMIT_FUEL"),
        ("while True: pass", {"cpu_seconds": 1}, "LIMIT_CPU"),
        ("x = []\nwhile True: x.append('a' * 1_000_000)", {"memory_mb": 64}, "LIMIT_MEMORY"),
        ("import re\nre.match('(a+)+$', 'a' * 40 + 'b')", {"fuel": 2_000_000_000}, "LIMIT_FUEL"),
        ("import time\ntime.sleep(30)", {"wall_seconds": 1}, "LIMIT_TIME"),
    ],
)
def test_each_limit_ends_its_own_call(folder: Path, code: str, limits: dict[str, int], reason: str) -> None:
    ended, after = run(analyst(folder, limits=limits), code, "1 + 1")
    assert (ended.reason, after.value["result"]) == (reason, 2)


def test_nothing_of_one_call_is_visible_to_the_next_and_many_calls_grow_nothing(folder: Path) -> None:
    first = "import builtins, json, sys, os\nbuiltins.left = json.left = 1\nsys.modules['left'] = os"
    looks = "import builtins, json, sys, os\n[hasattr(builtins, 'left'), hasattr(json, 'left'), 'left' in sys.modules]"
    draws = (
        "import random, secrets, uuid\n[random.random(), secrets.token_hex(4), str(uuid.uuid4()), str(uuid.uuid1())]"
    )

    async def many() -> tuple[list[dict[int, int]], list[Any], list[Any]]:
        async with analyst(folder).session("s") as session:

            async def one(code: str) -> Any:
                return (await session.call("python", {"code": code})).unwrap()["result"]

            sizes, seen, drawn = [], [], []
            await one("[0] * 100_000 and None")
            for number in range(MANY):
                await one(first)
                seen.append(await one(looks))
                drawn.append(tuple(await one(draws)))
                if number in (MANY // 2, MANY - 1):
                    sizes.append(memory_of_workers())
            return sizes, seen, drawn

    sizes, seen, drawn = asyncio.run(many())
    assert seen == [[False, False, False]] * MANY
    assert all(len(set(column)) == MANY for column in zip(*drawn, strict=True))
    served = sizes[0].keys() & sizes[1].keys()
    assert served
    assert [pid for pid in served if sizes[1][pid] > sizes[0][pid] * 1.1] == []


def memory_of_workers() -> dict[int, int]:
    """The resident memory of each worker, in pages, by its process."""
    zygote = pool._zygote
    assert zygote is not None
    pids = [worker.pid for worker in zygote.workers.values() if worker.pid]
    there = [pid for pid in pids if os.path.exists(f"/proc/{pid}/statm")]
    return {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in there}
