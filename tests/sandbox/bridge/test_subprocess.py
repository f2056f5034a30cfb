"""`subprocess` and its like at `isolated`: unmodified code starts what is granted, behind walls, and nothing else."""

import os
from pathlib import Path
from typing import Any

import pytest

from licet import Gate, Result
from licet.sandbox.bridge import operations
from licet.sandbox.workers import pool
from sandbox import program_tools as tools
from sandbox.levels import call, gate, local_backends, needs_walls

PROGRAMS = ("/bin/sh", "cat", "echo", "env", "pwd", "sleep", "no-such-program-anywhere")
PATIENCE = {"wall_seconds": 120, "cpu_seconds": 100}


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


def starting(
    place: Path, level: str = "isolated", granted: tuple[str, ...] = PROGRAMS, secrets: tuple[str, ...] = ()
) -> Gate:
    (place / "in").mkdir(exist_ok=True)
    (place / "out").mkdir(exist_ok=True)
    for folder in ("in", "out"):
        (place / folder / "file").write_text("read")
    own = place / "own"
    own.write_text("#!/bin/sh\necho own\n")
    own.chmod(0o755)
    grants = [f"process:exec:{name}" for name in (*granted, str(own))]
    grants += [f"fs:read:{place}/in", f"fs:read:{own}", "env:read:GIVEN", "env:read:KEPT"]
    grants += [f"secret:read:{name}" for name in secrets]
    backends = local_backends(place / "state", environ={"KEPT": "of the host", "SECRET": "s"})
    every = (tools.start, tools.start_in_a_loop, tools.start_without, tools.start_again)
    return gate(
        place, level, *every, backends=backends, limits=PATIENCE, effect="read_only", grants=grants,
        sandbox={"allow_degraded": True},
    )  # fmt: skip


def denied(result: Result) -> list[str]:
    return [event.reason for event in result.events if event.reason]


WORKS: dict[str, Any] = {
    "communicate": [0, "in", ""],
    "much_both_ways": True,
    "output_and_errors": [3, "out\n", "err\n"],
    "errors_among_output": "out\nerr\n",
    "nothing_is_kept": [4, None],
    "inherited_streams_lead_nowhere": [5],
    "a_failure_is_raised": 6,
    "into_a_file": [0, 200004, "end\n"],
    "out_of_a_file": "in a file",
    "one_into_another": ["through both\n", 0, 0],
    "line_by_line": [["one\n", "two\n"], None, 0],
    "in_time": "late",
    "kill": [None, -9, True],
    "terminate": [None, -15, True],
    "asked_to_end": ["ready\n", 7],
    "a_signal_that_cannot_be_sent": 22,
    "a_signal_to_what_has_ended": "gone",
    "by_a_shell": "3\n",
    "by_os_system": [8, 9],
    "by_os_popen": "popen\n",
    "by_posix_spawn": ["spawned\n", True, 9, 0],
    "side_by_side": ["0", "1", "2", "3", "4", "5"],
    "its_environment": [["KEPT=of the host"], ["GIVEN=given", "KEPT=kept"], ["KEPT=kept"]],
    "a_relative_path": "own\n",
}


@pytest.mark.parametrize("secrets", [(), ("KEY",)], ids=["", "that may hold secrets"])
@pytest.mark.parametrize("way", WORKS)
@pytest.mark.sampled(4)
def test_programs_that_are_granted_are_started(tmp_path: Path, way: str, secrets: tuple[str, ...]) -> None:
    before = children()
    result = call(starting(tmp_path, secrets=secrets), "start", {"way": way})
    assert result.unwrap() == WORKS[way]
    assert denied(result) == []
    assert children() - before <= {zygote()}


def test_only_so_many_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_RUNNING", 3)
    assert call(starting(tmp_path), "start", {"way": "too_many"}).unwrap() == [3, "BlockingIOError"]


LOOP: dict[str, Any] = {
    "communicate": ["in", 0],
    "shell": ["out\n", 3],
    "kill": -9,
    "together": ["0", "1", "2", "3", "4"],
    "late": "late",
}


@pytest.mark.parametrize("secrets", [(), ("KEY",)], ids=["", "that may hold secrets"])
@pytest.mark.parametrize("way", LOOP)
@pytest.mark.sampled(2)
def test_programs_are_started_from_a_loop(tmp_path: Path, way: str, secrets: tuple[str, ...]) -> None:
    assert call(starting(tmp_path, secrets=secrets), "start_in_a_loop", {"way": way}).unwrap() == LOOP[way]


@pytest.mark.parametrize("name", ["start", "start_in_a_loop"])
def test_what_is_not_granted_says_why_and_what_would_allow_it(tmp_path: Path, name: str) -> None:
    way = {"way": "starts", "path": "ls"} if name == "start" else {"way": "refused"}
    refused = call(starting(tmp_path), name, way)
    assert refused.unwrap().startswith("no: PermissionError 13: BINARY_NOT_ALLOWED: ls ")
    assert "name it under `process` in the tool's capabilities and in the manifest" in refused.unwrap()
    assert denied(refused) == ["BINARY_NOT_ALLOWED"]


def test_a_shell_that_is_not_granted_runs_nothing(tmp_path: Path) -> None:
    at = starting(tmp_path, granted=("cat",))
    for way in ("by_a_shell", "by_os_system", "by_os_popen", "by_posix_spawn"):
        refused = call(at, "start", {"way": way})
        assert refused.unwrap().startswith("no: PermissionError 13: BINARY_NOT_ALLOWED: /bin/sh ")


def test_what_is_granted_and_not_there_is_not_found(tmp_path: Path) -> None:
    said = call(starting(tmp_path), "start", {"way": "starts", "path": "no-such-program-anywhere"}).unwrap()
    assert said.startswith("no: FileNotFoundError 2: ")


def test_a_program_starts_inside_of_what_is_granted(tmp_path: Path) -> None:
    at = starting(tmp_path)
    for way in ("a_directory", "changed_directory"):
        assert call(at, "start", {"way": way, "path": f"{tmp_path}/in"}).unwrap() == f"{tmp_path}/in"
        said = call(at, "start", {"way": way, "path": f"{tmp_path}/out"}).unwrap()
        assert said.startswith("no: PermissionError 13: PATH_NOT_REACHABLE: ")
    assert call(at, "start", {"way": "a_directory", "path": f"{tmp_path}/in/none"}).unwrap().startswith("no: FileNot")


def test_a_program_is_behind_walls_with_the_grant_of_the_call(tmp_path: Path) -> None:
    at = starting(tmp_path)
    assert call(at, "start", {"way": "reads", "path": f"{tmp_path}/in/file"}).unwrap() == [0, "read"]
    assert call(at, "start", {"way": "reads", "path": f"{tmp_path}/out/file"}).unwrap() == [1, ""]
    result = call(at, "start", {"way": "communicate"})
    assert result.programs is not None
    assert "seccomp" in result.programs.in_force


@pytest.mark.parametrize("way", ["with_open_files", "with_a_function", "with_a_user", "with_a_mask"])
def test_what_cannot_be_given_to_a_program_is_refused(tmp_path: Path, way: str) -> None:
    said = call(starting(tmp_path), "start", {"way": way}).unwrap()
    assert said.startswith("no: PermissionError 13: ")
    assert "cannot be given to a program behind walls" in said


def test_the_kernel_refuses_whoever_goes_around(tmp_path: Path) -> None:
    assert call(starting(tmp_path), "start", {"way": "around_the_shim"}).unwrap().startswith("no: PermissionError 1: ")


@pytest.mark.parametrize("way", ["communicate", "by_a_shell"])
def test_where_no_programs_are_granted_the_refusal_is_recorded(tmp_path: Path, way: str) -> None:
    result = call(starting(tmp_path), "start_without", {"way": way})
    assert result.unwrap().startswith("no: PermissionError 13: BINARY_NOT_ALLOWED: ")
    assert denied(result) == ["BINARY_NOT_ALLOWED"]


AROUND = [("isolated", "start_without", "around_the_shim")]
AROUND += [("restricted", "start", way) for way in ("communicate", "by_a_shell", "around_the_shim")]


@pytest.mark.parametrize(("level", "name", "way"), AROUND)
def test_what_does_not_pass_the_shim_is_answered_by_the_kernel(tmp_path: Path, level: str, name: str, way: str) -> None:
    result = call(starting(tmp_path, level), name, {"way": way})
    assert result.unwrap().startswith("no: PermissionError 1: ")
    assert denied(result) == []


def test_what_is_left_running_ends_with_the_call(tmp_path: Path) -> None:
    at = starting(tmp_path)
    assert call(at, "start", {"way": "communicate"}).ok
    before, files = children(), len(os.listdir("/proc/self/fd"))
    assert call(at, "start", {"way": "left_running"}).unwrap() == "left"
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) <= files + 4


def test_a_process_that_stays_starts_programs_in_each_call(tmp_path: Path) -> None:
    at = starting(tmp_path)
    assert [call(at, "start_again").unwrap() for _ in range(3)] == ["again\n"] * 3


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def zygote() -> str:
    """The one process of ours that stays; its workers are its own children."""
    return str(pool.pool._zygote._process.pid) if pool.pool._zygote is not None else ""
