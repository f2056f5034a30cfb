"""A program that lies where tools may write has its next start bring along a directory of its choice.

A program that a manifest names comes with the libraries beside it, and a name on the host's PATH leads through links:
whoever writes there puts a link to what it wants to read.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import CANARY, PYTHON, Programs, both_kinds, place
from licet import Refused
from licet.assemble.program import _ScriptWalls
from licet.assemble.script_interpreter import with_interpreter
from licet.guard.import_path import FoundProgram
from licet.ports import Command, Finished, Layers, Walls
from licet.sandbox.programs.runner import LocalProcesses

NAME = "mytest"


def program(path: Path, *lines: str) -> Path:
    """A script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def installed(where: Path) -> Path:
    """A foreign program that reads a secret among its own libraries."""
    (where / "lib").mkdir(parents=True)
    (where / "lib" / "secret").write_text(CANARY)
    return program(where / "bin" / NAME, f"cat {where}/lib/secret")


def named(kind: str, where: Path, *rules: str, anything: bool = False, path: str = "") -> Programs:
    """Programs of a call that may start one by name, found where it may write unless it is said otherwise."""
    own = (f"fs:read:{where}/in", f"fs:write:{where}/in", f"process:exec:{NAME}")
    return Programs(kind, (*own, *rules), anything=anything, path=path or f"{where}/in/venv/bin")


@both_kinds
@pytest.mark.parametrize("beside", ["lib", "lib64", "libexec"])
@pytest.mark.sampled(3)
def test_a_link_beside_the_program(kind: str, beside: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    program(
        where / "in" / "venv" / "bin" / NAME, f"cat {where}/out/secret", f"ln -s {where}/out {where}/in/venv/{beside}"
    )
    assert named("open", where).run(NAME).stdout_bytes.decode() == CANARY
    (where / "in" / "venv" / beside).unlink()
    for _ in range(2):  # the first one plants it, from behind the walls
        assert named(kind, where).run(NAME).stdout_bytes == b""
        assert (where / "in" / "venv" / beside).is_symlink()


@both_kinds
def test_a_link_that_somebody_else_has_put_beside_it(kind: str, tmp_path: Path) -> None:
    # Nobody may write there, but the link leads to another place than the one beside the program.
    where = place(tmp_path)
    found = program(where / "tools" / "bin" / NAME, f"cat {where}/out/secret")
    (where / "tools" / "lib").symlink_to(where / "out")
    assert named("open", where, path=str(found.parent)).run(NAME).stdout_bytes.decode() == CANARY
    assert named(kind, where, path=str(found.parent)).run(NAME).stdout_bytes == b""


@both_kinds
def test_what_the_grant_covers_beside_the_program_is_there(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    (where / "in" / "venv" / "lib").mkdir(parents=True)
    (where / "in" / "venv" / "lib" / "module").write_text("fine")
    program(where / "in" / "venv" / "bin" / NAME, f"cat {where}/in/venv/lib/module")
    assert named(kind, where).run(NAME).stdout_bytes == b"fine"


@both_kinds
@pytest.mark.parametrize("folder", [False, True], ids=["the program", "its directory"])
def test_a_link_in_the_place_of_the_program(kind: str, folder: bool, tmp_path: Path) -> None:
    where = place(tmp_path)
    foreign = installed(where / "out" / "x")
    own = where / "in" / "venv" / "bin" / NAME
    planted, target = (own.parent, foreign.parent) if folder else (own, foreign)
    planted.parent.mkdir(parents=True)
    planted.symlink_to(target)
    assert named("open", where).run(NAME).stdout_bytes.decode() == CANARY
    with pytest.raises(Refused, match="through a link that a tool may have put there") as refusal:
        named(kind, where).run(NAME)
    assert refusal.value.code == "SANDBOX_UNAVAILABLE"
    assert str(where / "out") not in str(refusal.value)
    # Where any program may be started this one may too, but it is not the one that the manifest names.
    ended = named(kind, where, anything=True).run(NAME)
    assert (ended.stdout_bytes, ended.exit_code != 0) == (b"", True)


@both_kinds
def test_a_link_that_no_tool_can_write_is_the_operators(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    foreign = installed(where / "out" / "x")
    (where / "bin").mkdir()
    (where / "bin" / NAME).symlink_to(foreign)
    assert named(kind, where, path=f"{where}/bin").run(NAME).stdout_bytes.decode() == CANARY


@both_kinds
def test_the_file_behind_a_planted_link_has_what_the_manifest_gives_it_by_its_path(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    foreign = installed(where / "out" / "x")
    own = where / "in" / "venv" / "bin" / NAME
    own.parent.mkdir(parents=True)
    own.symlink_to(foreign)
    assert named(kind, where, f"process:exec:{foreign}").run(NAME).stdout_bytes.decode() == CANARY


@both_kinds
def test_a_link_to_a_program_of_the_system_still_works(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    own = where / "in" / "venv" / "bin" / NAME
    own.parent.mkdir(parents=True)
    own.symlink_to("/bin/sh")
    assert named(kind, where).run(NAME, "-c", "echo fine").stdout_bytes == b"fine\n"


@both_kinds
def test_another_program_of_the_same_name(kind: str, tmp_path: Path) -> None:
    # Any may be started, and one is named: whoever picks another of that name would pick what lies beside it.
    where = place(tmp_path)
    foreign = installed(where / "out" / "x")
    assert named("open", where, anything=True).run(str(foreign)).stdout_bytes.decode() == CANARY
    assert named(kind, where, anything=True).run(str(foreign)).stdout_bytes == b""


# Scripts, of which `licet run` starts the interpreter


def scripts(kind: str, where: Path, *rules: str, path: str = "") -> Programs:
    """The same as `named`, with the walls of `licet run`."""
    programs = named(kind, where, *rules, path=path)
    sandbox: Any = programs.handle._sandbox
    if kind != "open":
        walls = sandbox.walls(programs.grant)
        sandbox.walls = lambda _: _ScriptWalls(walls, programs.grant.reach)
    return programs


@both_kinds
@pytest.mark.parametrize("folder", [False, True], ids=["the script", "its directory"])
def test_a_link_in_the_place_of_a_script(kind: str, folder: bool, tmp_path: Path) -> None:
    where = place(tmp_path)
    foreign = program(where / "out" / "bin" / NAME, f": {CANARY}", 'cat "$0"')
    own = where / "in" / "venv" / "bin" / NAME
    planted, target = (own.parent, foreign.parent) if folder else (own, foreign)
    planted.parent.mkdir(parents=True)
    planted.symlink_to(target)
    assert CANARY in scripts("open", where).run(NAME).stdout
    with pytest.raises(Refused, match="through a link that a tool may have put there") as refusal:
        scripts(kind, where).run(NAME)
    assert refusal.value.code == "SANDBOX_UNAVAILABLE"
    # Its own path, a grant to read it, and a link of the operator do start it.
    assert CANARY in scripts(kind, where, f"process:exec:{foreign}").run(NAME).stdout
    assert CANARY in scripts(kind, where, f"fs:read:{where}/out").run(NAME).stdout
    (where / "bin").symlink_to(foreign.parent)
    assert CANARY in scripts(kind, where, path=f"{where}/bin").run(NAME).stdout


def test_a_link_that_led_elsewhere_when_the_interpreter_was_found(tmp_path: Path) -> None:
    # Python's libraries lie beside it: a link that changes in between would name those of another directory.
    where = place(tmp_path)
    link = where / "in" / "python3"
    link.symlink_to(where / "out" / "bin" / "python3")
    reach = named("open", where, f"process:exec:{link}", f"process:exec:{PYTHON}").grant.reach
    command = Command(FoundProgram(PYTHON, (str(link),), str(link)), (str(link),), {}, "/", b"", 1, 1)
    runtime = with_interpreter(command, reach).runtime
    assert PYTHON in runtime
    assert [path for path in runtime if path.startswith(str(where))] == []


# Between the check and the walls


class _Exchanging(LocalProcesses):
    """Somebody puts a link in the place of a path when a program was found, or when its walls were planned."""

    def __init__(self, folder: Path, exchanged: Path, foreign: Path, *, planned: bool) -> None:
        super().__init__(str(folder))
        self._exchanged, self._foreign, self._planned = exchanged, foreign, planned

    async def run(self, command: Command, walls: Walls) -> Finished:
        if not self._planned:
            self.exchange()
        return await super().run(command, _Exchanged(walls, self.exchange) if self._planned else walls)

    def exchange(self) -> None:
        os.rename(self._exchanged, f"{self._exchanged}.before")
        os.symlink(self._foreign, self._exchanged)


class _Exchanged:
    def __init__(self, walls: Walls, exchange: Callable[[], None]) -> None:
        self._walls, self._exchange = walls, exchange

    @property
    def layers(self) -> Layers:
        return self._walls.layers

    def around(self, command: Command) -> Command:
        inside = self._walls.around(command)
        self._exchange()
        return inside


@both_kinds
@pytest.mark.parametrize("anything", [True, False], ids=["any program", "this program"])
@pytest.mark.parametrize("planned", [False, True], ids=["when it was found", "when its walls were planned"])
@pytest.mark.parametrize("folder", [False, True], ids=["the program", "its directory"])
@pytest.mark.sampled(6)
def test_exchanging_the_program(kind: str, anything: bool, planned: bool, folder: bool, tmp_path: Path) -> None:
    for number, walls in enumerate(("open", kind)):
        (tmp_path / str(number)).mkdir()
        where = place(tmp_path / str(number))
        foreign = program(where / "out" / "bin" / NAME, f"echo {CANARY}")
        own = program(where / "in" / "bin" / NAME, "echo own")
        exchanged, target = (own.parent, foreign.parent) if folder else (own, foreign)
        programs = named(walls, where, anything=anything)
        programs.handle._processes = _Exchanging(own.parent, exchanged, target, planned=planned)
        if walls == "open":
            assert programs.run(NAME).stdout_bytes.decode() == f"{CANARY}\n"
            continue
        with pytest.raises(Refused, match="was replaced by another file") as refusal:
            programs.run(NAME)
        assert refusal.value.code == "SANDBOX_UNAVAILABLE"
