"""`licet receipts` and `licet explain` on calls with entries that were written while they ran."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kept_calls import run
from licet.backends.ledger.writer import SqliteLedger
from licet.core.ledger.entry import Entry, EventFact, Unsound, read_entry

TIME = "2026-03-01T12:00:00.000000Z"
CALL = EventFact(kind="CapabilityGranted", capability="tool:call:agent", reason="", rule="")
REQUEST = EventFact(
    kind="RequestMade", capability="network:https:get@api.github.com", rule="GET /repos/x → 200, 1234 bytes"
)
PLACED = EventFact(kind="KeyPlaced", capability="secret:read:github/token", rule="api.github.com")
KEPT = EventFact(kind="KeyKept", capability="secret:read:github/token", rule="in the query")
MORE = EventFact(kind="RequestMade", rule="9 more of these, which are not listed", count=9)
SENT = "tried to send the key github/token to evil.example"
EVIL = EventFact(
    kind="CapabilityDenied",
    capability="network:https:post@evil.example",
    reason="SECRET_NOT_DECLARED",
    rule=SENT,
)
HOST = EventFact(
    kind="CapabilityDenied", capability="network:https:get@other.example", reason="HOST_NOT_ALLOWED", rule="no rule"
)


def entry(kind: Any, *events: EventFact, id: str = "r-1-1") -> Entry:  # noqa: A002
    return Entry(
        kind=kind,
        id=id,
        agent="desk",
        session="s",
        tool="agent",
        time=TIME,
        manifest="sha256:0",
        events=events,
    )


ENDED = (
    entry("decision", CALL),
    entry("progress", PLACED, REQUEST),
    entry("progress", EVIL, HOST),
    entry("receipt", CALL, PLACED, REQUEST, EVIL, HOST, KEPT, MORE),
)
OPEN = tuple(replace(one, id="r-1-2") for one in ENDED[:3])
QUIET = (entry("decision", CALL, id="r-1-3"), entry("receipt", CALL, id="r-1-3"))


@pytest.fixture
def state(store_path: Path) -> Path:
    ledger = SqliteLedger(store_path / "state" / "ledger.sqlite")
    for one in (*ENDED, *OPEN, *QUIET):
        asyncio.run(ledger.record(one))
    ledger.close()
    return store_path / "state"


def document(state: Path, *words: str) -> Any:
    result = run(state, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("receipt", ["r-1-1", "r-1-2"])
def test_what_a_program_did_is_told_in_plain_words(state: Path, receipt: str) -> None:
    text = run(state, "receipts", "show", receipt).stdout
    said = [line.removeprefix("  event").strip() for line in text.splitlines() if line.startswith("  event")]
    assert (
        said
        == [
            "granted tool:call:agent",
            "key github/token first placed at api.github.com",
            "GET api.github.com /repos/x → 200, 1234 bytes",
            f"denied network:https:post@evil.example  SECRET_NOT_DECLARED: {SENT}",
            "denied network:https:get@other.example  HOST_NOT_ALLOWED: no rule",
            "stand-in of github/token went on as it is, in the query",
            "requests  9 more of these, which are not listed",
        ][: 7 if receipt == "r-1-1" else 5]
    )


def test_all_entries_of_a_call_are_shown(state: Path) -> None:
    text = run(state, "receipts", "show", "r-1-1").stdout
    places = [line.split()[1:] for line in text.splitlines() if line.startswith("  entry")]
    assert [" ".join(words[:-1]) for words in places] == [
        "1 (decision), number 1 of its session,",
        "2 (progress, one of 2), number 2 of its session,",
        "3 (progress, one of 2), number 3 of its session,",
        "4 (receipt), number 4 of its session,",
    ]
    found = document(state, "receipts", "show", "r-1-1")
    assert [one["number"] for one in (found["decision"], *found["progress"], found["receipt"])] == [1, 2, 3, 4]
    assert "progress" not in document(state, "receipts", "show", "r-1-3")


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ([], ["r-1-3", "r-1-2", "r-1-1"]),
        (["--reason", "SECRET_NOT_DECLARED"], ["r-1-2", "r-1-1"]),
        (["--reason", "PATH_NOT_REACHABLE"], []),
        (["--reason", "SECRET_NOT_DECLARED", "--denied-use", "network:https:get"], []),
        (["--reason", "SECRET_NOT_DECLARED", "--denied-use", "network:*@evil.example"], ["r-1-2", "r-1-1"]),
        (["--denied-use"], ["r-1-2", "r-1-1"]),
        (["--denied-use", "--limit", "1"], ["r-1-2"]),
        (["--denied-use", "--verdict", "deny"], []),
        (["--capability", "network:*:other.example"], ["r-1-2", "r-1-1"]),
        (["--denied-use", "fs"], []),
    ],
)
def test_refused_requests_are_found_also_of_a_call_that_still_runs(
    state: Path, words: list[str], ids: list[str]
) -> None:
    assert [one["id"] for one in document(state, "receipts", "list", *words)["receipts"]] == ids


def test_a_call_that_still_runs_is_listed_with_what_it_was_refused(state: Path) -> None:
    text = run(state, "receipts", "list", "--denied-use").stdout
    assert text.count("denied network:https:post@evil.example  SECRET_NOT_DECLARED") == 2
    (_, running, _) = document(state, "receipts", "list")["receipts"]
    assert (running["id"], running["reason"]) == ("r-1-2", "no receipt (yet)")
    assert [one["reason"] for one in running["denied_uses"]] == ["SECRET_NOT_DECLARED", "HOST_NOT_ALLOWED"]


def test_explain_tells_what_a_running_call_was_refused(state: Path) -> None:
    text = run(state, "explain", "r-1-2").stdout
    assert "refused       denied network:https:post@evil.example" in text
    assert "no receipt (yet)" in text


def test_several_entries_of_a_running_call_are_no_second_call(state: Path) -> None:
    found = document(state, "receipts", "verify")
    assert (found["ok"], found["entries"], found["unknown"]) == (True, 9, ["r-1-2"])


@pytest.mark.parametrize(
    ("made", "number"),
    [((ENDED[1], *ENDED), 1), ((*ENDED, ENDED[1]), 5), ((*QUIET, *ENDED[1:]), 3)],
    ids=["before the decision", "after the receipt", "without a decision"],
)
def test_an_entry_in_the_wrong_place_is_found(store_path: Path, made: tuple[Entry, ...], number: int) -> None:
    ledger = SqliteLedger(store_path / "state" / "ledger.sqlite")
    for one in made:
        asyncio.run(ledger.record(one))
    ledger.close()
    result = run(store_path / "state", "receipts", "verify", "--json")
    finding = json.loads(result.stdout)["finding"]
    assert (result.exit_code, finding["kind"], finding["entry"]) == (1, "order", number)


def test_a_pack_has_what_was_written_while_the_call_ran(state: Path) -> None:
    pack = state / "evidence.json"
    exported = run(state, "receipts", "export", "r-1-1", "-o", str(pack))
    assert exported.exit_code == 0, exported.output
    found = document(state, "receipts", "verify", str(pack))
    assert [one["kind"] for one in found["entries"]] == ["decision", "progress", "progress", "receipt"]


def test_an_older_licet_takes_a_kind_that_it_does_not_know_for_a_change(state: Path) -> None:
    """As this one does with a kind of the next: it shows nothing false, and says which entry it is."""
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
        ((body,),) = db.execute("SELECT body FROM entries WHERE number = 2").fetchall()
    with pytest.raises(Unsound, match="kind"):
        read_entry(body.replace(b'"kind":"progress"', b'"kind":"prospect"'))
