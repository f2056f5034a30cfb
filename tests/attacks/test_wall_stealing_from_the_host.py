"""A tool behind walls cannot reach the process that started it, its files, or what other tools left behind."""

import os
from pathlib import Path

import pytest

from attacks import walled_thieves as thieves
from licet import Gate
from licet.sandbox.workers import pool
from sandbox.levels import WALLED, call, gate, needs_walls

SECRET = "canary-in-the-host"

# What each brings without walls, where it is the same process or one of the same user.
ATTACKS = {
    "environment": SECRET,
    "environment of the host": "got",
    "environment of its own start": "got",
    "memory of the host": "got",
    "command line of the host": "got",
    "files of the host": "got",
    "root of the host": SECRET,
    "processes": "got",
    "signal": "got",
    "read a file": SECRET,
    "write a file": "got",
    "link a file": "got",
    "follow a link to a file": SECRET,
    "list its directory": "got",
    "change its mode": "got",
    "a socket": "got",
    "scratch of others": "got",
    "attach": "",
    "seize": "",
    "read memory": "got",
    "take a file": "",
}


def arguments(what: str, place: Path) -> dict[str, object]:
    path = place / "secret"
    path.write_text(SECRET)
    return {"what": what, "pid": os.getpid(), "path": str(path)}


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    needs_walls()
    monkeypatch.setenv("LICET_TEST_SECRET", SECRET)
    scratch = tmp_path / "scratch" / "1"
    scratch.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(scratch))
    return tmp_path


@pytest.mark.parametrize("what", [what for what, brings in ATTACKS.items() if brings])
@pytest.mark.sampled(7)
def test_without_walls_it_works(at: Path, what: str) -> None:
    result = call(gate(at, "native", thieves.steal), "steal", arguments(what, at))
    assert str(result.unwrap()).startswith("got")
    assert ATTACKS[what] in str(result.value)


@pytest.mark.parametrize("level", WALLED)
@pytest.mark.parametrize("what", ATTACKS)
@pytest.mark.sampled(10)
def test_behind_walls_it_does_not(at: Path, what: str, level: str) -> None:
    result = call(gate(at, level, thieves.steal), "steal", arguments(what, at))
    value = str(result.unwrap())
    assert SECRET not in value
    if what == "environment":
        assert "LICET_TEST_SECRET" not in value
    else:
        assert value in ("no: PermissionError", "no: OSError"), value


@pytest.mark.parametrize("level", WALLED)
def test_open_files_of_the_host_are_not_inherited(at: Path, level: str) -> None:
    with open(at / "open", "w", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)

        pool.close_workers()  # so that the zygote too is started with the file open
        found = call(gate(at, level, thieves.inherited), "inherited").unwrap()
    kinds = [line.split(":")[1][:2] for line in found]
    # /dev/null as input, a pipe as output and error, and one socket.
    assert sorted(kinds) == ["10", "10", "14", "20"], found


@pytest.mark.parametrize("level", WALLED)
def test_memory_of_the_host_and_of_other_tools_is_not_there(at: Path, level: str) -> None:
    gates: list[Gate] = [gate(at, level, thieves.steal, thieves.rummage, thieves.modules)]
    call(gates[0], "steal", {"what": "environment", "pid": 1, "path": "/a-word-of-another-call"})
    assert call(gates[0], "rummage", {"word": SECRET[::-1]}).unwrap() == []
    assert call(gates[0], "rummage", {"word": "/a-word-of-another-call"[::-1]}).unwrap() == []
    loaded = call(gates[0], "modules", {"names": ["attacks.walled_thieves", "pytest", "sandbox.levels"]}).unwrap()
    assert loaded == ["attacks.walled_thieves"]


def test_changing_the_framework_changes_it_for_oneself_alone(at: Path) -> None:
    both = gate(at, "restricted", thieves.tamper, thieves.after_tampering)
    assert call(both, "tamper").unwrap() == "changed"
    assert call(both, "after_tampering").unwrap() == "Refused"
    assert call(both, "tamper").unwrap() == "changed"
