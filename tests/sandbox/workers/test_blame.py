"""What a receipt blames is not the tool's to choose; and where nothing of a tool could run, the call is refused."""

import threading
from pathlib import Path
from typing import Any

import pytest

from licet.guard.execution import SandboxUnavailable
from licet.sandbox import grant_paths
from licet.sandbox.kernel import landlock
from licet.sandbox.workers import pool, zygote_client
from licet.sandbox.workers.worker import NO_WALLS, OUT_OF_MEMORY
from sandbox import ending_tools as ending
from sandbox.levels import WALLED, call, gate, needs_walls


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


@pytest.mark.parametrize("level", WALLED)
@pytest.mark.parametrize("code", [OUT_OF_MEMORY, NO_WALLS])
def test_a_tool_cannot_end_with_the_code_of_something_else(tmp_path: Path, level: str, code: int) -> None:
    result = call(gate(tmp_path, level, ending.leave), "leave", {"code": code})
    assert (result.reason, result.code) == ("TOOL_CRASHED", "execution_failed")
    assert f"ended with code {code}" in result.error


def test_a_tool_that_keeps_all_memory_still_ends_at_its_limit(tmp_path: Path) -> None:
    result = call(gate(tmp_path, "restricted", ending.fill, limits={"memory_mb": 256}), "fill")
    assert result.reason == "LIMIT_MEMORY", result.error


def test_a_worker_that_cannot_build_its_walls_refuses_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(source: Any) -> grant_paths.Rules:
        return [*grant_paths.base_rules(source), ("no such path\0", landlock.READ, None)]

    monkeypatch.setattr(pool, "base_rules", impossible)
    result = call(gate(tmp_path, "restricted", ending.leave), "leave", {"code": 0})
    assert result.reason == "SANDBOX_UNAVAILABLE", result.error
    assert "a wall could not be built" in result.error


STARTS = {
    "a library is missing": ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
    "nothing is said": ("raise SystemExit(0)", "ended at once"),
}


@pytest.mark.parametrize("case", STARTS)
def test_without_a_process_that_workers_come_from_the_call_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    start, said = STARTS[case]
    at = gate(tmp_path, "restricted", ending.leave)
    pool.close_workers()
    with monkeypatch.context() as patch:
        patch.setattr(zygote_client, "_START", start)
        result = call(at, "leave", {"code": 0})
    pool.close_workers()
    assert result.reason == "SANDBOX_UNAVAILABLE", result.error
    assert "the process that workers come from ended at once" in result.error
    assert said in result.error


def test_the_reason_is_known_after_the_file_with_it_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    exited, ended = zygote_client.Zygote._zygote_exited, threading.Event()

    def noticed(zygote: zygote_client.Zygote) -> None:
        exited(zygote)
        ended.set()

    monkeypatch.setattr(zygote_client.Zygote, "_zygote_exited", noticed)
    monkeypatch.setattr(zygote_client, "_START", "import no_such_library")
    zygote = zygote_client.Zygote([])
    assert ended.wait(300)
    with pytest.raises(SandboxUnavailable, match="No module named 'no_such_library'"):
        zygote.spawn(lambda _: b"", zygote_client.Watched(1, 1))
    zygote.close()
