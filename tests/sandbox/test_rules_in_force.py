"""What a receipt says of the access that the kernel enforces: the rules in force, as texts and under a digest."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import needs_namespaces, needs_walls, without_namespaces
from kept_calls import run
from licet import Backends, Gate, Manifest
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.memory import MemoryLedger
from licet.core.decision.reach import reach_of
from licet.core.values import data_digest
from licet.guard.grant import LISTS, NO_PROGRAMS, access
from licet.guard.limits import MOST_CHARACTERS, MOST_PROGRAMS, MOST_TEXTS
from licet.sandbox import probe
from licet.sandbox.grant_paths import program_access
from licet.sandbox.native import InProcess
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers.engine import Workers
from licet.sandbox.workers.pool import close_workers
from sandbox import access_tools as tools
from sandbox.levels import call, gate

HTTP = Backends.memory().http
KINDS = [
    pytest.param(probe.support, marks=needs_namespaces, id="namespaces"),
    pytest.param(without_namespaces, marks=needs_walls, id="no-namespaces"),
]
SHELL = os.path.realpath("/bin/sh")


def made(folder: Path, level: str, support: Any = probe.support, ledger: Any = None, **capabilities: Any) -> Gate:
    """A gate over a directory with a secret in it."""
    data = folder / "data"
    if not data.exists():
        data.mkdir()
        (data / "notes").write_text("n")
        (data / ".env").write_text("e")
    parts = Backends.memory(
        processes=LocalProcesses(os.defpath),
        sandbox=Workers(InProcess(), ProgramWalls(HTTP, support)),
        ledger=ledger or MemoryLedger(),
    )
    granted = {
        "grants": [f"fs:read:{data}", "network:https:api.example.com", "process:exec:/bin/sh", f"process:exec:{SHELL}"],
        "deny": [f"fs:*:{data}/.env"],
        "sandbox": {"allow_degraded": True},
    }
    every = (tools.opened, tools.spawned, tools.by_library)
    return gate(folder, level, *every, backends=parts, unchecked_imports=True, **{**granted, **capabilities})


def receipt(at: Gate) -> dict[str, Any]:
    ledger = at.ports.ledger
    assert isinstance(ledger, MemoryLedger)
    found: dict[str, Any] = json.loads(ledger.rows[-1].body)["sandbox"]
    return found


def check_digest(told: dict[str, Any]) -> None:
    """Whoever has the whole lists can compute the digest."""
    lists = {name: told[name] for name in LISTS}
    assert {name: len(texts) for name, texts in lists.items()} == told["counts"]
    assert data_digest(lists) == told["digest"]


@needs_walls
def test_an_isolated_worker_records_what_it_could_touch(tmp_path: Path) -> None:
    at, data = made(tmp_path, "isolated"), tmp_path / "data"
    result = call(at, "opened", {"paths": [f"{data}/notes", f"{data}/.env", "/etc/passwd"]})
    assert result.unwrap() == [True, False, False]
    told = receipt(at)["access"]
    check_digest(told)
    assert told["direct"] is True
    assert set(told["granted"]) >= {f"fs:read:{data}", "process:exec:/bin/sh"}
    assert [text for text in told["granted"] if text.startswith("network:") and text.endswith("api.example.com")]
    assert told["closed"] == [f"fs:*:{data}/.env"]
    assert f"read {data}/notes" in told["rules"]
    assert not [
        rule
        for rule in told["rules"] + told["runtime"]
        if rule.endswith((f" {data}", ".env", "/etc/passwd", " /etc", " /"))
    ]
    assert "connect through the host alone, as granted" in told["rules"]
    assert result.access is not None
    assert result.access.document() == told


@needs_walls
def test_a_restricted_worker_records_that_it_has_no_access_of_its_own(tmp_path: Path) -> None:
    at, data = made(tmp_path, "restricted"), tmp_path / "data"
    assert call(at, "opened", {"paths": [f"{data}/notes"]}).unwrap() == [False]
    told = receipt(at)["access"]
    check_digest(told)
    assert (told["direct"], told["granted"], told["closed"]) == (False, [], [])
    assert told["rules"] == ["connect nowhere"]
    assert not [rule for rule in told["runtime"] if str(data) in rule]
    others = [rule for rule in told["runtime"] if "/dev/null" not in rule and "${scratch}" not in rule]
    assert {rule.split()[0] for rule in others} == {"read"}


def test_a_native_tool_has_no_rules_of_the_kernel(tmp_path: Path) -> None:
    at = made(tmp_path, "native")
    call(at, "opened", {"paths": []})
    assert receipt(at)["access"] is None


@needs_walls
def test_a_call_that_did_not_run_has_none(tmp_path: Path) -> None:
    at = made(tmp_path, "isolated")
    call(at, "opened", {"no": "such argument"})
    assert receipt(at)["access"] is None


@needs_walls
def test_the_rules_are_those_of_the_worker_that_ran(tmp_path: Path) -> None:
    """What lies around a deny is granted one by one, when a worker is made: a receipt never tells another's rules."""
    at, data = made(tmp_path, "isolated"), tmp_path / "data"
    call(at, "opened", {"paths": []})
    digests = set()
    for number in range(4):
        (data / f"new-{number}").write_text("x")
        if number == 2:
            close_workers()  # the next one is made now
        paths = [f"{data}/new-{one}" for one in range(number + 1)]
        could = call(at, "opened", {"paths": paths}).unwrap()
        told = receipt(at)["access"]
        check_digest(told)
        digests.add(told["digest"])
        assert [f"read {path}" in told["rules"] for path in paths] == could
    assert len(digests) > 1


@pytest.mark.parametrize("support", KINDS)
@pytest.mark.parametrize(
    ("level", "name"), [("native", "spawned"), ("isolated", "spawned"), ("isolated", "by_library")]
)
@pytest.mark.sampled(3)
def test_programs_record_what_they_could_touch(tmp_path: Path, support: Any, level: str, name: str) -> None:
    at, data = made(tmp_path, level, support), tmp_path / "data"
    arguments = {"programs": ["/bin/sh", "/bin/sh"]} if name == "spawned" else {"program": "/bin/sh"}
    assert call(at, name, arguments).unwrap() == ([3, 3] if name == "spawned" else 3)
    around = receipt(at)["programs"]["access"]
    assert (around["more"], around["digest"]) == (0, None)
    (told,) = around["sets"]
    check_digest(told)
    assert f"fs:read:{data}" in told["granted"]
    assert told["closed"] == [f"fs:*:{data}/.env"]
    spaces = support().namespaces
    assert (f"hide {data}/.env" in told["rules"]) is spaces
    assert (f"read+execute {data}" in told["rules"]) is spaces
    assert (f"read+execute {data}/notes" in told["rules"]) is not spaces
    assert "connect through the egress proxy alone, as granted" in told["rules"]


@needs_namespaces
def test_programs_with_other_files_have_rules_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    names = [str(folder / f"sh-{number}") for number in range(MOST_PROGRAMS + 2)]
    for name in names:
        shutil.copy(SHELL, name)
    at = made(tmp_path, "native", grants=[f"process:exec:{name}" for name in names])
    assert set(call(at, "spawned", {"programs": names}).unwrap()) == {3}
    around = receipt(at)["programs"]["access"]
    assert len({told["digest"] for told in around["sets"]}) == MOST_PROGRAMS
    assert (around["more"], around["digest"][:7]) == (2, "sha256:")
    for told, name in zip(around["sets"], names, strict=False):
        check_digest(told)
        assert f"read+execute {name}" in told["runtime"]


def test_long_lists_are_cut_counted_and_under_the_digest() -> None:
    texts = [f"fs:read:/data/{number}" for number in range(5000)]
    one = access(texts, (), texts, ())
    other = access(texts, (), [*texts[:-1], "fs:read:/data/other"], ())
    assert (one.granted, one.rules) == (tuple(texts[:MOST_TEXTS]),) * 2
    assert one.counts == (5000, 0, 5000, 0)
    assert (one.rules, one.counts) == (other.rules, other.counts)
    assert one.digest != other.digest
    wide = access(["x" * 5000] * 3, (), (), ())
    assert sum(map(len, wide.granted)) <= MOST_CHARACTERS
    assert wide.counts == (3, 0, 0, 0)


def test_what_a_text_says_cannot_act_on_a_terminal_or_break_a_receipt() -> None:
    one = access(["fs:read:/\x1b[2J", "fs:read:/\udcff"], (), (), ())
    assert one.granted == ("fs:read:/\\u001b[2J", "fs:read:/\\udcff")


def test_further_programs_are_chained_in_their_order() -> None:
    several = [access([str(number)], (), (), ()) for number in range(MOST_PROGRAMS + 2)]
    forth, back = NO_PROGRAMS, NO_PROGRAMS
    for one in several:
        forth = forth.with_program(one).with_program(one) if one in several[:3] else forth.with_program(one)
    for one in (*several[:MOST_PROGRAMS], *several[:-3:-1]):
        back = back.with_program(one)
    assert forth.sets == back.sets == tuple(several[:MOST_PROGRAMS])
    assert forth.more == back.more == 2
    assert forth.digest != back.digest


@needs_walls
def test_show_tells_the_rules_and_verify_covers_them(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    at, data = made(tmp_path, "isolated", ledger=ledger), tmp_path / "data"
    result = call(at, "opened", {"paths": [f"{data}/notes"]})
    ledger.close()
    told = run(tmp_path / "state", "receipts", "show", result.receipt).stdout
    assert result.access is not None
    for line in (
        f"  access        granted fs:read:{data}",
        f"  access        closed fs:*:{data}/.env",
        f"  access        read {data}/notes",
        f"  access        and what it runs from; digest of all rules {result.access.digest}",
    ):
        assert line in told.splitlines()
    document = json.loads(run(tmp_path / "state", "receipts", "show", result.receipt, "--json").stdout)
    assert document["receipt"]["sandbox"]["access"] == result.access.document()
    assert document["decision"]["sandbox"]["access"] is None
    assert run(tmp_path / "state", "receipts", "verify").exit_code == 0
    with closing(sqlite3.connect(tmp_path / "state" / "ledger.sqlite")) as db, db:
        changed = "CAST(replace(CAST(body AS TEXT), '/data/notes', '/data/votes') AS BLOB)"
        db.execute(f"UPDATE entries SET body = {changed}")
    assert run(tmp_path / "state", "receipts", "verify").exit_code == 1


@needs_walls
def test_show_says_plainly_that_a_restricted_tool_had_no_access(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    result = call(made(tmp_path, "restricted", ledger=ledger), "opened", {"paths": []})
    ledger.close()
    told = run(tmp_path / "state", "receipts", "show", result.receipt).stdout
    assert "  access        none of its own: everything but what it runs from goes through handles\n" in told


PRIVATE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a bundle leaves none": ({"bundle": []}, []),
    "a bundle leaves a part": ({"bundle": ["10.1.0.0/16", "192.168.0.0/16"]}, ["private 10.1.0.0/16"]),
    "nothing narrows": ({}, ["private 10.0.0.0/8"]),
}


@pytest.mark.parametrize(("stated", "expected"), PRIVATE.values(), ids=PRIVATE)
def test_private_ranges_are_what_all_lists_have_in_common(stated: dict[str, Any], expected: list[str]) -> None:
    bundle = {"tools": ["t"], **({"private": stated["bundle"]} if stated else {})}
    spec = {"needs": ["network:*:*"], "effect": "read_only", "sandbox": "restricted"}
    own = {"bundles": ["b"], "destinations": {"allow": ["*"]}, "private": ["10.0.0.0/8"]}
    manifest = Manifest.from_data({"agent": "a", "capabilities": own}, {"bundles": {"b": bundle}, "tools": {"t": spec}})
    reach = reach_of(manifest.expand("/srv", "/home/a"), "t")
    assert reach is not None
    mounts: dict[str, list[str]] = {"read": [], "write": [], "hide": [], "hold": []}
    told = program_access(reach, {"mounts": mounts, "network": True, "scratch": [""]}, (), ())
    assert [text for text in told.rules if text.startswith("private ")] == expected
