"""`licet receipts list --denied-use` and `summary`: denied uses inside calls, also in successful ones."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from effort import LONG
from kept_calls import run
from licet import Backends, Context, Gate, Refused, load_manifest, tool
from licet.backends.ledger.writer import SqliteLedger
from licet.guard.limits import REFUSED

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MANIFEST = """agent: {agent}
capabilities:
  tools: [probe, other, flood]
  max_side_effect_class: full
  native: [probe, other, flood]
  fs_reach: {{read: ["/srv/notes"]}}
  destinations: {{allow: ["api.example.com"]}}
"""
NEEDS = ["fs:read:*", "network:*:*"]


async def _tried(ctx: Context, uses: list[str]) -> int:
    """Try to read each path or URL, and continue after each refusal."""
    refused = 0
    for use in uses:
        try:
            await (ctx.fetch(use) if ":" in use else ctx.fs.read(use))
        except Refused:
            refused += 1
        except OSError:
            pass
    return refused


@tool(needs=NEEDS, effect="read_only", sandbox="native")
async def probe(ctx: Context, uses: list[str]) -> int:
    """Try uses."""
    return await _tried(ctx, uses)


@tool(needs=NEEDS, effect="read_only", sandbox="native")
async def other(ctx: Context, uses: list[str]) -> int:
    """Try uses under another name."""
    return await _tried(ctx, uses)


@tool(needs=NEEDS, effect="read_only", sandbox="native")
async def flood(ctx: Context) -> int:
    """Cause more refusals than a receipt can list, and the searched one last."""
    return await _tried(ctx, [f"/{number}/{'x' * 3000}" for number in range(REFUSED // 2000)] + ["/etc/shadow"])


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("desk", "probe", {"uses": ["/srv/notes/a"]}),
    ("desk", "probe", {"uses": ["/etc/passwd", "/srv/notes/a", "/etc/passwd"]}),
    ("desk", "other", {"uses": ["https://api.stripe.com/v1", "https://evil.test/", "/home/x"]}),
    ("desk", "probe", {"uses": ["gopher://nowhere"]}),
    ("lab", "probe", {"uses": ["/etc/hosts"]}),
    ("lab", "nobody", {}),
]


class Clock:
    """A clock that advances by six hours with each call."""

    calls = 0

    def now(self) -> datetime:
        return START + timedelta(hours=6 * self.calls)

    def monotonic(self) -> float:
        return 0.0


def make(folder: Path, calls: list[tuple[str, str, dict[str, Any]]]) -> Path:
    folder.mkdir()
    ledger, clock = SqliteLedger(folder / "state" / "ledger.sqlite"), Clock()
    backends = Backends.memory(files={"/srv/notes/a": b"Rain"}, ledger=ledger, clock=clock)
    gates = {}
    for agent in ("desk", "lab"):
        (folder / f"{agent}.yaml").write_text(MANIFEST.format(agent=agent))
        gates[agent] = Gate(load_manifest(folder / f"{agent}.yaml"), [probe, other, flood], backends)

    async def each() -> None:
        for agent, name, arguments in calls:
            clock.calls += 1
            await gates[agent].session("main").call(name, arguments)

    asyncio.run(each())
    ledger.close()
    return folder / "state"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("denied") / "made", CALLS)


def document(state: Path, *words: str) -> Any:
    result = run(state, "receipts", *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def numbers(state: Path, *words: str) -> list[int]:
    """The numbers of the listed calls, from 1, by the hour of their day."""
    found = document(state, "list", *words)["receipts"]
    return [int((datetime.fromisoformat(one["time"]) - START) / timedelta(hours=6)) for one in found]


def test_denied_uses_of_a_call_that_succeeded_are_found(made: Path) -> None:
    assert numbers(made, "--verdict", "allow") == [5, 4, 3, 2, 1]
    assert numbers(made, "--denied-use", "--verdict", "allow") == [5, 4, 3, 2]
    (found,) = document(made, "list", "--denied-use", "fs:read:/etc/passwd")["receipts"]
    assert found["denied_uses"] == [{"capability": "fs:read:/etc/passwd", "reason": "PATH_NOT_REACHABLE", "count": 2}]
    assert (found["verdict"], found["other_uses"]) == ("allow", 0)


@pytest.mark.parametrize(
    ("filters", "which"),
    [
        (["--denied-use"], [6, 5, 4, 3, 2]),
        (["--denied-use", "--limit", "2"], [6, 5]),
        (["--denied-use", "*"], [6, 5, 4, 3, 2]),
        (["--denied-use", "fs"], [5, 3, 2]),
        (["--denied-use", "fs:read:/etc"], [5, 2]),
        (["--denied-use", "fs:read:/et"], []),
        (["--denied-use", "fs:write:*"], []),
        (["--denied-use", "fs:read:/srv"], []),
        (["--denied-use", "network:*"], [4, 3]),
        (["--denied-use", "*stripe*"], [3]),
        (["--denied-use", "network:https:get@api.stripe.com"], [3]),
        (["--denied-use", "tool:call:*"], [6]),
        (["--denied-use", "tool:call:nobody"], [6]),
        (["--denied-use", "--tool", "other"], [3]),
        (["--denied-use", "fs", "--agent", "lab"], [5]),
        (["--denied-use", "fs", "--session", "side"], []),
        (["--denied-use", "fs", "--until", "2026-03-02T00:00:01"], [2]),
        (["--denied-use", "--since", "2026-03-02T12:00"], [6, 5, 4]),
        (["--capability", "fs:read:/srv"], [2, 1]),
        (["--capability", "fs:read:/"], [5, 3, 2, 1]),
        (["--capability", "network:*:*.stripe.com"], [3]),
        (["--capability", "network:read:evil.test", "--tool", "other"], [3]),
        (["--capability", "network:write:*"], []),
        (["--denied-use", "--capability", "fs:read:/srv"], []),
        (["--denied-use", "--capability", "fs:read:/etc"], [5, 2]),
        (["--denied-use", "fs:read:/etc/hosts", "--capability", "fs:read:/etc"], [5]),
    ],
    ids=lambda given: " ".join(map(str, given)),
)
def test_receipts_are_found_by_what_was_denied_inside(made: Path, filters: list[str], which: list[int]) -> None:
    assert numbers(made, *filters) == which


def test_the_text_names_what_was_denied_below_each_receipt(made: Path) -> None:
    result = run(made, "receipts", "list", "--denied-use", "network:https")
    heading, line, *uses = result.stdout.splitlines()
    assert heading.split()[:3] == ["time", "agent", "tool"]
    assert line.split()[2:5] == ["desk", "other", "allow"]
    assert uses == [
        "    denied network:https:get@api.stripe.com:443  HOST_NOT_ALLOWED",
        "    denied network:https:get@evil.test:443  HOST_NOT_ALLOWED",
    ]


def test_granted_uses_are_found_by_capability_too(made: Path) -> None:
    found = document(made, "list", "--capability", "fs:read:/srv/notes")["receipts"]
    assert [one["granted_uses"] for one in found] == [
        [{"capability": "fs:read:/srv/notes/a", "reason": "", "count": 1}]
    ] * 2
    told = run(made, "receipts", "list", "--capability", "fs:read:/srv/notes", "--limit", "1").stdout
    assert told.splitlines()[-1].strip() == "granted fs:read:/srv/notes/a"


@pytest.mark.skipif(not LONG, reason="takes long: LICET_LONG=1")
def test_a_flood_of_refusals_hides_nothing(tmp_path: Path) -> None:
    state = make(tmp_path / "flooded", [("desk", "flood", {}), ("desk", "probe", {"uses": []})])
    (found,) = document(state, "list", "--denied-use", "fs:read:/etc/shadow")["receipts"]
    assert (found["tool"], found["verdict"], found["denied_uses"]) == ("flood", "allow", [])
    assert found["other_uses"] > 0
    text = run(state, "receipts", "list", "--denied-use", "fs:read:/etc/shadow").stdout
    assert text.splitlines()[-1] == f"    and {found['other_uses']} more"
    day = document(state, "summary")["days"][-1]
    assert day["denied_uses"] == REFUSED // 2000 + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--denied-use", ""], "expected a pattern"),
        (["--denied-use", "fs:read:/\udcff"], "expected a pattern"),
        (["--capability", "nonsense"], "nonsense"),
        (["--capability", "fs:read:relative"], "relative"),
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["list", "summary"])
def test_a_filter_that_makes_no_sense_ends_with_2(made: Path, command: str, words: list[str], said: str) -> None:
    result = run(made, "receipts", command, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


# summary -------------------------------------------------------------------------------------------------------------


def test_a_summary_counts_per_day_and_agent(made: Path) -> None:
    told = {(one.pop("day"), one.pop("agent")): one for one in document(made, "summary")["days"]}
    assert list(told) == [("2026-03-03", "lab"), ("2026-03-02", "desk"), ("2026-03-02", "lab"), ("2026-03-01", "desk")]
    assert told["2026-03-02", "desk"] == {
        "calls": 3,
        "allow": 3,
        "ask": 0,
        "deny": 0,
        "calls_with_denied_uses": 3,
        "allowed_with_denied_uses": 3,
        "denied_uses": 6,
        "most_denied": [
            {"capability": "fs:read:/etc/passwd", "reason": "PATH_NOT_REACHABLE", "count": 2},
            {"capability": "network:*:<malformed>", "reason": "HOST_NOT_ALLOWED", "count": 1},
            {"capability": "network:https:get@api.stripe.com:443", "reason": "HOST_NOT_ALLOWED", "count": 1},
            {"capability": "network:https:get@evil.test:443", "reason": "HOST_NOT_ALLOWED", "count": 1},
            {"capability": "fs:read:/home/x", "reason": "PATH_NOT_REACHABLE", "count": 1},
        ],
    }
    lab = told["2026-03-03", "lab"]
    assert (lab["deny"], lab["calls_with_denied_uses"], lab["allowed_with_denied_uses"]) == (1, 1, 0)
    first = told["2026-03-01", "desk"]
    assert (first["calls"], first["denied_uses"], first["most_denied"]) == (1, 0, [])


@pytest.mark.parametrize(
    ("filters", "which"),
    [
        (["--denied-use", "network"], [("2026-03-02", "desk", 3)]),
        (["--capability", "fs:read:/etc"], [("2026-03-02", "desk", 2), ("2026-03-02", "lab", 1)]),
        (["--agent", "lab"], [("2026-03-03", "lab", 1), ("2026-03-02", "lab", 1)]),
        (["--tool", "other"], [("2026-03-02", "desk", 3)]),
        (["--since", "2026-03-03"], [("2026-03-03", "lab", 1)]),
        (["--denied-use", "secret"], []),
    ],
    ids=lambda given: " ".join(map(str, given)),
)
def test_a_summary_is_filtered_like_a_list(made: Path, filters: list[str], which: list[tuple[str, str, int]]) -> None:
    found = document(made, "summary", *filters)["days"]
    assert [(one["day"], one["agent"], one["denied_uses"]) for one in found] == which


def test_a_summary_is_a_table_with_what_was_denied_most(made: Path) -> None:
    heading, *lines = run(made, "receipts", "summary", "--denied-use", "fs").stdout.splitlines()
    assert heading.split()[:6] == ["day", "agent", "calls", "allowed", "asked", "denied"]
    assert lines[0].split() == ["2026-03-02", "desk", "3", "3", "0", "0", "2", "2", "3"]
    assert lines[1:3] == [
        "    denied 2x fs:read:/etc/passwd  PATH_NOT_REACHABLE",
        "    denied fs:read:/home/x  PATH_NOT_REACHABLE",
    ]


def test_a_summary_says_how_much_it_leaves_out(tmp_path: Path) -> None:
    uses = [f"/etc/{name}" for name in "abcdefgh"]
    state = make(tmp_path / "many", [("desk", "probe", {"uses": uses})])
    (found,) = document(state, "summary")["days"]
    assert found["denied_uses"] == 8
    lines = run(state, "receipts", "summary").stdout.splitlines()
    assert lines[-1] == "    and 3 more"
    assert len(lines) == 2 + 5 + 1


@pytest.mark.parametrize("command", ["list", "summary"])
def test_a_changed_receipt_is_not_shown(made: Path, tmp_path: Path, command: str) -> None:
    with closing(sqlite3.connect(made / "ledger.sqlite")) as whole:
        (tmp_path / "state").mkdir()
        with closing(sqlite3.connect(tmp_path / "state" / "ledger.sqlite")) as copy, copy:
            whole.backup(copy)
            copy.execute(
                "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), '/etc/passwd', '/srv/passwd') AS BLOB)"
            )
    result = run(tmp_path / "state", "receipts", command, "--denied-use", "fs")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "was changed" in result.stderr
