"""A worker that speaks to the host behind its context's back ends its own call, and has nothing of the host in it."""

import os
from pathlib import Path

import pytest

from attacks import walled_thieves as thieves
from licet import Backends
from licet.sandbox.bridge.wire import FROM_WORKER, packed
from licet.sandbox.workers import pool
from sandbox.levels import WALLED, call, gate, needs_walls


def hexed(*pieces: bytes) -> list[str]:
    return [piece.hex() for piece in pieces]


PICKLE = b"cos\nsystem\n(S'id'\ntR."
ASK = {"op": "env.get", "name": "A", "call": 1}
pytestmark = pytest.mark.usefixtures("walled")


@pytest.fixture
def walled() -> None:
    needs_walls()


ABUSES = {
    "nonsense": ([b"\xff" * 64], "LIMIT_OUTPUT"),
    "a frame that is too large": ([thieves.lengths(FROM_WORKER.head + 1, 0)], "LIMIT_OUTPUT"),
    "a blob that is too large": ([thieves.lengths(2, FROM_WORKER.blob + 1), b"{}"], "LIMIT_OUTPUT"),
    "no JSON": ([thieves.lengths(4, 0), b"nope"], "TOOL_CRASHED"),
    "a list": ([thieves.lengths(2, 0), b"[]"], "TOOL_CRASHED"),
    "deep JSON": ([thieves.lengths(200_006, 0), b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"], "TOOL_CRASHED"),
    "a pickle": ([thieves.lengths(len(PICKLE), 0), PICKLE], "TOOL_CRASHED"),
    "a question that does not exist": ([packed({**ASK, "op": "eval", "id": 900})], "TOOL_CRASHED"),
    "a method of the broker": ([packed({**ASK, "op": "__class__", "id": 900})], "TOOL_CRASHED"),
    "a question without a name": ([packed({"op": "env.get", "call": 1, "id": 900})], "TOOL_CRASHED"),
    "a number that is no number": ([packed({**ASK, "id": "900"})], "TOOL_CRASHED"),
    "a number that is true": ([packed({**ASK, "id": True})], "TOOL_CRASHED"),
    "the same question twice": ([packed({**ASK, "id": 900})] * 2, "TOOL_CRASHED"),
    "an old number": ([packed({**ASK, "id": 900}), packed({**ASK, "id": 899})], "TOOL_CRASHED"),
    "a question of another call": ([packed({**ASK, "call": 2, "id": 900})], "TOOL_CRASHED"),
    "a result of another call": ([packed({"op": "result", "call": 7}, b"1")], "TOOL_CRASHED"),
    "a result that is no JSON": ([packed({"op": "result", "call": 1}, b"{")], "TOOL_CRASHED"),
    "a path that is no text": ([packed({"op": "fs.read", "path": 5, "id": 900, "call": 1})], "TOOL_CRASHED"),
    "a stream that is none": ([packed({"op": "stream.next", "stream": [], "id": 900, "call": 1})], "TOOL_CRASHED"),
    "a program of its own, where there are none": ([packed({"op": "process.start", "name": "sh", "args": [], "id": 900,
        "call": 1})], "TOOL_CRASHED"),
    "a signal, where there are no programs": ([packed({"op": "process.signal", "program": 1, "signal": 9, "id": 900,
        "call": 1})], "TOOL_CRASHED"),
    "digits without end": ([thieves.lengths(100_016, 0), b'{"op":"x","id":' + b"9" * 100_000 + b"}"], "TOOL_CRASHED"),
    "half a frame": ([thieves.lengths(100, 0)], "LIMIT_TIME"),
}  # fmt: skip


@pytest.mark.parametrize("abuse", ABUSES)
@pytest.mark.sampled(8)
def test_abuse_ends_the_call_and_nothing_else(tmp_path: Path, abuse: str) -> None:
    pieces, reason = ABUSES[abuse]
    backends = Backends.memory(environ={"A": "value of a"})
    at = gate(tmp_path, "restricted", thieves.speak, backends=backends)
    fine = call(at, "speak", {"pieces": [], "wait": 0.0})
    assert fine.value == "value of a"
    before = len(os.listdir("/proc/self/fd"))
    limits = {"wall_seconds": 1} if reason == "LIMIT_TIME" else {}
    limited = gate(tmp_path, "restricted", thieves.speak, backends=backends, limits=limits) if limits else at
    result = call(limited, "speak", {"pieces": hexed(*pieces)})
    assert (result.ok, result.reason) == (False, reason), result.error
    assert call(at, "speak", {"pieces": [], "wait": 0.0}).value == "value of a"
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def test_a_made_up_refusal_is_the_tools_own_error(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", thieves.speak, backends=Backends.memory(environ={}))
    told = packed({"op": "result", "call": 1, "error": "Refused", "text": "BUDGET_EXCEEDED: pay", "refused": 3})
    result = call(at, "speak", {"pieces": hexed(told)})
    assert (result.reason, result.error) == ("TOOL_FAILED", "TOOL_FAILED: Refused: BUDGET_EXCEEDED: pay")


def test_files_that_a_child_pushes_are_never_received(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", thieves.push_files, backends=Backends.memory(environ={"A": "a"}))
    assert call(at, "push_files", {"many": 0}).value == "a"
    before = len(os.listdir("/proc/self/fd"))
    assert call(at, "push_files", {"many": 20}).value == "a"
    assert len(os.listdir("/proc/self/fd")) <= before + 4


@pytest.mark.parametrize("level", WALLED)
def test_a_flood_of_questions_waits_in_line(tmp_path: Path, level: str) -> None:
    value = "a" * 1000
    backends = Backends.memory(environ={"A": value})
    at = gate(tmp_path, level, thieves.flood, backends=backends, limits={"wall_seconds": 1})
    # The answers would fill many megabytes: what does not fit on the way to the tool is never made.
    result = call(at, "flood", {"many": 200_000})
    assert not result.ok
    assert result.reason in ("TOOL_CRASHED", "LIMIT_TIME"), result.error
    assert len(result.events) < 10_000
    at = gate(tmp_path, level, thieves.flood, backends=backends)
    assert call(at, "flood", {"many": 0}).value == value


# What a worker finds in its own process -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", WALLED)
def test_open_files_of_the_host_are_not_inherited(tmp_path: Path, level: str) -> None:
    with open(tmp_path / "open", "w", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)
        pool.close_workers()  # so that the zygote too is started with the file open
        found = call(gate(tmp_path, level, thieves.inherited), "inherited").unwrap()
    kinds = [line.split(":")[1][:2] for line in found]
    # /dev/null as input, a pipe as output and error, and one socket.
    assert sorted(kinds) == ["10", "10", "14", "20"], found


@pytest.mark.parametrize("level", WALLED)
def test_memory_of_the_host_and_of_other_tools_is_not_there(
    tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, word = "canary-in-the-host", "a-word-of-another-call"
    monkeypatch.setenv("LICET_TEST_SECRET", secret)
    at = gate(tmp_path, level, thieves.rummage, thieves.modules)
    call(at, "modules", {"names": [word]})
    assert call(at, "rummage", {"word": secret[::-1]}).unwrap() == []
    assert call(at, "rummage", {"word": word[::-1]}).unwrap() == []
    loaded = call(at, "modules", {"names": ["attacks.walled_thieves", "pytest", "sandbox.levels"]}).unwrap()
    assert loaded == ["attacks.walled_thieves"]


def test_changing_the_framework_changes_it_for_oneself_alone(tmp_path: Path) -> None:
    both = gate(tmp_path, "restricted", thieves.tamper, thieves.after_tampering)
    assert call(both, "tamper").unwrap() == "changed"
    assert call(both, "after_tampering").unwrap() == "Refused"
    assert call(both, "tamper").unwrap() == "changed"
