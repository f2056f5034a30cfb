"""`licet receipts` and `licet explain RECEIPT`, on a ledger of real calls."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import warm
from kept_calls import make, receipts, run
from licet.assemble.review import state_directory
from licet.backends.ledger.state import FORMAT, write_last
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.secrets import generated_key, ledger_key
from licet.backends.sqlite.file import SqliteFile
from licet.cli.app import licet
from licet.core.ledger.entry import Checkpoint, Entry, checkpoint_body
from licet.core.ledger.merkle import Frontier
from licet.guard.ports import LedgerUnavailable

DESK = Path(__file__).parents[2] / "examples" / "desk"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("receipts") / "made")


@pytest.fixture
def state(made: Path, tmp_path: Path) -> Path:
    """A copy of the ledger, byte for byte."""
    shutil.copytree(made, tmp_path / "state")
    return tmp_path / "state"


# list ----------------------------------------------------------------------------------------------------------------


def test_a_list_is_a_table_with_the_newest_first(made: Path) -> None:
    result = run(made, "receipts", "list")
    assert result.exit_code == 0
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == ["time", "agent", "tool", "verdict", "reason", "receipt"]
    assert [line.split()[1] for line in lines] == [f"{12 + hours}:00:00Z" for hours in range(6, 0, -1)]
    assert lines[-1].split()[2:6] == ["desk", "look", "allow", "ALLOWED"]
    assert [line.split()[-1] for line in lines] == [one["id"] for one in receipts(made)][::-1]
    assert "\x1b" not in result.stdout
    assert "nope\\u001b[2J" in lines[1]


@pytest.mark.parametrize(
    ("filters", "which"),
    [
        ([], [6, 5, 4, 3, 2, 1]),
        (["--agent", "desk"], [6, 5, 4, 3, 2, 1]),
        (["--agent", "des"], []),
        (["--session", "side"], [6]),
        (["--tool", "pay"], [4, 3]),
        (["--verdict", "deny"], [5, 4, 2]),
        (["--verdict", "allow", "--tool", "look"], [6, 1]),
        (["--since", "2026-03-01T17:00"], [6, 5]),
        (["--since", "2026-03-01T18:00+01:00", "--until", "2026-03-01 18:00Z"], [5]),
        (["--until", "2026-03-01T15:00:00"], [2, 1]),
        (["--until", "2026-03-01"], []),
        (["--since", "2026-03-01", "--limit", "2"], [6, 5]),
        (["--until", "5000w"], []),
    ],
    ids=lambda given: " ".join(map(str, given)) or "none",
)
def test_a_filter_leaves_what_fits(made: Path, filters: list[str], which: list[int]) -> None:
    result = run(made, "receipts", "list", "--json", *filters)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    everything = receipts(made)
    assert [one["id"] for one in found["receipts"]] == [everything[number - 1]["id"] for number in which]
    assert found["more"] == ("--limit" in filters)


@pytest.mark.parametrize("word", ["yesterday", "2026-13-01", "h", "9" * 30 + "w"])
def test_an_invalid_time_ends_with_2(made: Path, word: str) -> None:
    result = run(made, "receipts", "list", "--since", word)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is no time: expected 2026-01-31" in result.stderr


def test_a_list_that_is_cut_says_so(made: Path) -> None:
    result = run(made, "receipts", "list", "--limit", "5")
    assert len(result.stdout.splitlines()) == 6
    assert "there are more" in result.stderr
    assert "there are more" not in run(made, "receipts", "list", "--limit", "6").stderr


@pytest.mark.parametrize(
    "words",
    [["list"], ["show", "r-1-1"], ["verify", "--key", generated_key().public], ["head"], ["export", "r-1-1"]],
    ids=lambda words: words[0],
)
def test_without_a_ledger_every_command_says_where_none_is(tmp_path: Path, words: list[str]) -> None:
    result = run(tmp_path, "receipts", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "ledger.sqlite" in result.stderr
    assert list(tmp_path.iterdir()) == []
    told = json.loads(run(tmp_path, "receipts", *words, "--json").stdout)
    assert "ledger.sqlite" in told["error"]


def test_without_a_ledger_the_error_says_where_one_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for words in ["list"], ["verify", "--key", generated_key().public]:
        result = CliRunner().invoke(licet, ["receipts", *words])
        assert result.exit_code == 1
        assert (
            "go to the directory of the manifest, or name it with --manifest, or its state with --state"
            in result.stderr
        )


@pytest.mark.parametrize(
    "words",
    [["list", "--tool", "x\x1b[2J"], ["show", "\x1b[2J\u202e"], ["verify", "\x1b[2J"], ["export", "\x1b[2J\u202e"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_no_word_acts_on_the_terminal(made: Path, words: list[str]) -> None:
    result = run(made, "receipts", *words)
    assert re.findall(r"[^ -~\n]", result.output) == []


# show and explain ----------------------------------------------------------------------------------------------------


def test_a_receipt_shows_everything_about_its_call(made: Path) -> None:
    _, refused, paid, *_ = receipts(made)
    told = run(made, "receipts", "show", refused["id"]).stdout
    place = re.escape(str(made.parent / "desk.yaml"))
    for pattern in (
        rf"^{refused['id']}: denied, execution_failed$",
        r"^  tool +look$",
        r"^  agent +desk, session main$",
        r"^  time +2026-03-01T14:00:00\.000000Z",
        r"^  said +PATH_NOT_REACHABLE: read not permitted for /etc/passwd$",
        rf"^  because .*\({place}:2\)$",
        r"^  layers +native: handles, declared, not enforced$",
        r"^  event +budget set aside\n  event +granted tool:call:look\n  event +the tool is run$",
        rf"^  event +denied fs:read:/etc/passwd  PATH_NOT_REACHABLE: .*\({place}:2\)\n  event +budget settled$",
        r"^  arguments +sha256:[0-9a-f]{64}$",
        r"^  entry +3 \(decision\), number 3 of its session",
        r"^  entry +4 \(receipt\), number 4 of its session",
    ):
        assert re.search(pattern, told, re.MULTILINE), pattern
    told = run(made, "receipts", "show", paid["id"]).stdout
    assert "calls 2 → 3, of this tool 0 → 1, today 2 → 3, USD 0 → 0.25" in told
    assert "USD of this tool 0 → 0.25, USD today 0 → 0.25" in told
    assert "  cost          0.25 USD" in told


def test_a_receipt_as_json_is_both_of_its_entries(made: Path) -> None:
    first, *_, unknown, _ = receipts(made)
    both = json.loads(run(made, "receipts", "show", first["id"], "--json").stdout)
    assert [both[kind]["kind"] for kind in ("decision", "receipt")] == ["decision", "receipt"]
    alone = json.loads(run(made, "receipts", "show", unknown["id"], "--json").stdout)
    assert alone["decision"] is None
    assert alone["receipt"]["reason"] == "UNKNOWN_TOOL"


def test_bodies_are_shown_where_they_are_kept(tmp_path: Path) -> None:
    state = make(tmp_path / "full", "full")
    told = run(state, "receipts", "show", receipts(state)[0]["id"]).stdout
    assert re.search(r'^  arguments +\{"path":"/srv/notes/a"\}  \(sha256:', told, re.MULTILINE)
    assert re.search(r'^  result +"Rain"  \(sha256:', told, re.MULTILINE)


def test_an_unknown_receipt_is_an_error(made: Path) -> None:
    for words in (("receipts", "show", "r-00-1"), ("receipts", "export", "r-00-1"), ("explain", "r-00-1")):
        result = run(made, *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"there is no receipt `r-00-1` in {made}" in result.stderr
        assert "`licet receipts list` has those that are" in result.stderr
        assert "or its state with `--state DIR`" in result.stderr


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (1, 0, ["allowed: `look` may be called", "`look` is admitted (", "granted fs:read:/srv/notes/a"]),
        (
            2,
            1,
            ["denied: `look` may not fs:read:/etc/passwd", "desk.yaml:2)", "licet explain MANIFEST look fs:read:/etc"],
        ),
        (4, 1, ["denied: `pay` may not be called", "2 would exceed max_calls 1 of `pay` ("]),
        (5, 1, ["denied: `nope\\u001b[2J` may not be called", "is not known here ("]),
    ],
)
def test_a_receipt_is_explained(made: Path, number: int, code: int, said: list[str]) -> None:
    receipt = receipts(made)[number - 1]["id"]
    result = run(made, "explain", receipt)
    assert result.exit_code == code
    for text in (*said, f"  receipt       {receipt}"):
        assert text in result.stdout
    assert json.loads(run(made, "explain", receipt, "--json").stdout)["receipt"]["id"] == receipt


def test_a_manifest_without_a_tool_is_still_no_question(made: Path) -> None:
    result = run(made, "explain", "desk.yaml")
    assert result.exit_code == 2
    assert "Missing argument 'TOOL'" in result.stderr


# verify and head -----------------------------------------------------------------------------------------------------


def test_verify_reports_size_root_and_key_of_an_intact_ledger(made: Path) -> None:
    result = run(made, "receipts", "verify")
    assert result.exit_code == 0
    key = (made / "ledger.pub").read_text().strip()
    assert result.stdout.startswith("fine: 10 entries as they were written\n")
    assert re.search(r"^  size +10 entries, 10 of them signed", result.stdout, re.MULTILINE)
    assert re.search(r"^  root +sha256:[0-9a-f]{64}$", result.stdout, re.MULTILINE)
    assert f"  key       {key}\n" in result.stdout
    told = json.loads(run(made, "receipts", "verify", "--json").stdout)
    assert (told["ok"], told["entries"], told["signed"], told["key"]) == (True, 10, 10, key)
    assert told["checkpoints"] >= 1
    assert len(told["notes"]) == 2


def test_verify_reports_a_missing_file_with_the_last_checkpoint(state: Path) -> None:
    (state / "ledger.head").unlink()
    result = run(state, "receipts", "verify")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"wrong: entry 10: {state}/ledger.head is missing, which has the last checkpoint")
    (state / "ledger.key").unlink()  # a copy that is only read
    assert "ledger.head" not in run(state, "receipts", "verify").stdout


def test_a_ledger_that_was_removed_is_not_begun_again_and_an_empty_one_is_never_fine(state: Path) -> None:
    key = (state / "ledger.pub").read_text().strip()
    for name in ("ledger.sqlite", "ledger.head"):
        (state / name).unlink()
    ledger = SqliteLedger(state / "ledger.sqlite")
    with pytest.raises(LedgerUnavailable, match="has signed a ledger, and both"):
        asyncio.run(ledger.record(ENTRY))
    assert not (state / "ledger.sqlite").exists()
    asyncio.run(SqliteFile(state / "ledger.sqlite", FORMAT).write(lambda db: None))  # as an older licet left it
    for options in ([], ["--key", key]):
        for head in (None, _first_checkpoint(state)):
            if head is not None:
                (state / "ledger.head").write_bytes(head)
            result = run(state, "receipts", "verify", *options)
            assert (result.exit_code, result.stdout.splitlines()[0].partition(": there")[0]) == (1, "wrong: entry 1")
            assert "all entries were removed" in result.stdout
            (state / "ledger.head").unlink(missing_ok=True)


def _first_checkpoint(state: Path) -> bytes:
    """The checkpoint that is written before the first entry, signed with the same key."""
    key = ledger_key(str(state / "ledger.key"))
    body = checkpoint_body("0" * 32, 0, Frontier().root, "2026-03-01T12:00:00.000000Z", key.public)
    write_last(str(state / "first"), Checkpoint(0, body, key.sign(body)), Frontier())
    return (state / "first").read_bytes()


def entry_of(kind: Literal["decision", "receipt"], session: str, time: str) -> Entry:
    """An entry of a call with an id that all of them have."""
    return Entry(kind=kind, id="r-1-1", agent="desk", session=session, tool="look", time=time, manifest="sha256:0")


ENTRY = entry_of("decision", "s", "2026-03-01T12:00:00.000000Z")


def test_calls_with_the_same_id_are_reported_and_all_are_shown(tmp_path: Path) -> None:
    state, ledger = tmp_path / "state", SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    for entry in (
        ENTRY,
        entry_of("decision", "t", "2026-03-01T12:00:01.000000Z"),
        entry_of("receipt", "t", "2026-03-01T12:00:01.000000Z"),
    ):
        asyncio.run(ledger.record(entry))
    ledger.close()
    result = run(state, "receipts", "verify")
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong: entry 3 (r-1-1): its id is also that of another call, see entry 1")
    assert re.search(r"^  unknown +r-1-1 began, and has no receipt", result.stdout, re.MULTILINE)
    told = json.loads(run(state, "receipts", "verify", "--json").stdout)
    assert (told["finding"]["kind"], told["unknown"]) == ("twice", ["r-1-1"])
    shown = run(state, "receipts", "show", "r-1-1")
    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if line.startswith("r-1-1: ")] == [
        "r-1-1: allowed, and no receipt (yet): it still runs, or its process ended before the call did",
        "r-1-1: allowed",
    ]
    assert re.findall(r"session (\w)$", shown.stdout, re.MULTILINE) == ["s", "t"]
    first = json.loads(run(state, "receipts", "show", "r-1-1", "--json").stdout)
    assert (first["decision"]["session"], first["receipt"]) == ("s", None)
    assert [(one["decision"]["session"], one["receipt"]["session"]) for one in first["others"]] == [("t", "t")]
    assert run(state, "explain", "r-1-1").stdout.count("may be called") == 2
    listed = json.loads(run(state, "receipts", "list", "--json").stdout)["receipts"]
    assert [(one["session"], one["kind"]) for one in listed] == [("t", "receipt"), ("s", "decision")]


def test_verify_lists_calls_that_began_and_have_no_receipt(tmp_path: Path) -> None:
    state, ledger = tmp_path / "state", SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    for number in range(25):
        asyncio.run(ledger.record(replace(ENTRY, id=f"r-1-{number}")))
    ledger.close()
    result = run(state, "receipts", "verify")
    assert (result.exit_code, result.stdout.count("  unknown   r-1-")) == (0, 20)
    assert "  unknown   and 5 more calls: see `licet receipts list`\n" in result.stdout
    assert len(json.loads(run(state, "receipts", "verify", "--json").stdout)["unknown"]) == 25


@pytest.mark.parametrize("how", ["directory", "file", "copy"])
def test_a_ledger_is_verified_wherever_it_lies(state: Path, tmp_path: Path, how: str) -> None:
    key = (state / "ledger.pub").read_text().strip()
    (tmp_path / "elsewhere.pub").write_text(key)
    shutil.copy(state / "ledger.sqlite", tmp_path / "copy.db")
    place = {"directory": state, "file": state / "ledger.sqlite", "copy": tmp_path / "copy.db"}[how]
    for given in ("--key", key), ("--key", str(tmp_path / "elsewhere.pub")):
        words = ["receipts", "verify", str(place), *given]
        assert CliRunner().invoke(licet, words).exit_code == 0


def test_without_a_key_nothing_is_called_fine(state: Path) -> None:
    for said in "holds no public key", "is missing":
        (state / "ledger.pub").write_text("") if said.startswith("holds") else (state / "ledger.pub").unlink()
        result = run(state, "receipts", "verify")
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"ledger.pub {said}: name a public key with `--key" in result.stderr


@pytest.mark.parametrize("text", ["", "{}", "ed25519:short", "[1]", '{"checkpoint":{},"signature":"AA=="}'])
def test_a_file_without_checkpoints_ends_with_2(made: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoints.txt").write_text(text)
    result = run(made, "receipts", "verify", "--head", str(tmp_path / "checkpoints.txt"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "checkpoints.txt" in result.stderr


def test_a_checkpoint_is_one_line_that_verifies(made: Path, tmp_path: Path) -> None:
    printed = run(made, "receipts", "head")
    assert printed.exit_code == 0
    assert len(printed.stdout.splitlines()) == 1
    (tmp_path / "checkpoints.txt").write_text(printed.stdout + "\n" + printed.stdout)
    told = json.loads(run(made, "receipts", "verify", "--json", "--head", str(tmp_path / "checkpoints.txt")).stdout)
    assert told["ok"]
    assert len(told["notes"]) == 1  # only about the key, which is next to the ledger


def test_a_checkpoint_of_another_key_is_not_printed(made: Path) -> None:
    result = run(made, "receipts", "head", "--key", generated_key().public)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is not signed with ed25519:" in result.stderr
    assert f"run `licet receipts verify {made}/ledger.sqlite`" in result.stderr


# export --------------------------------------------------------------------------------------------------------------


def test_a_pack_is_the_same_each_time_and_can_be_checked_without_the_ledger(state: Path, tmp_path: Path) -> None:
    key = (state / "ledger.pub").read_text().strip()
    ids = [one["id"] for one in receipts(state)]
    first = run(state, "receipts", "export", ids[1], ids[3])
    assert first.exit_code == 0
    assert run(state, "receipts", "export", ids[3], ids[1], ids[3]).stdout == first.stdout
    (tmp_path / "pack.json").write_text(first.stdout)
    result = CliRunner().invoke(licet, ["receipts", "verify", str(tmp_path / "pack.json"), "--key", key])
    assert result.exit_code == 0
    assert re.findall(r"entry +(\d+): (\w+) (\S+), (\w+)", result.stdout) == [
        ("3", "decision", ids[1], "allow"),
        ("4", "receipt", ids[1], "deny"),
        ("7", "receipt", ids[3], "deny"),
    ]
    words = ["receipts", "verify", str(tmp_path / "pack.json"), "--key", key, "--json"]
    assert json.loads(CliRunner().invoke(licet, words).stdout)["checkpoint"]["key"] == key


def test_a_complete_session_is_exported(state: Path, tmp_path: Path) -> None:
    result = run(state, "receipts", "export", "--session", "main", "-o", str(tmp_path / "pack.json"))
    assert result.exit_code == 0
    told = json.loads(run(state, "receipts", "verify", str(tmp_path / "pack.json"), "--json").stdout)
    assert told["ok"]
    assert [one["sequence"] for one in told["entries"]] == list(range(1, 9))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "name receipts, or a session"),
        (["r-1-1", "--session", "main"], 2, "name receipts, or a session"),
        (["r-1-1"], 1, "there is no receipt `r-1-1`"),
        (["--session", "none"], 1, "there is no session `none`"),
        (["--session", "main", "--agent", "other"], 1, "there is no session `main`"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_refused_export_says_why(made: Path, words: list[str], code: int, said: str) -> None:
    result = run(made, "receipts", "export", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr


def test_nothing_is_exported_without_the_key_of_the_ledger(state: Path) -> None:
    (state / "ledger.key").unlink()
    result = run(state, "receipts", "export", "--session", "main")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "ledger.key is missing" in result.stderr
    assert not (state / "ledger.key").exists()


# From the first call to the proof ------------------------------------------------------------------------------------


def test_calls_of_the_command_line_leave_receipts_that_verify(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}

    def licet_of(*words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(warm.PROGRAM, words, cwd=DESK, env=environment)

    assert licet_of("call", "desk.yaml", "read_file", "path=notes/oslo.md").returncode == 0
    assert licet_of("call", "desk.yaml", "read_file", "path=/etc/passwd").returncode == 1
    listed = json.loads(licet_of("receipts", "list", "--json").stdout)["receipts"]
    assert [one["verdict"] for one in listed] == ["deny", "allow"]
    assert licet_of("explain", listed[0]["id"]).returncode == 1
    told = json.loads(licet_of("receipts", "verify", "--json").stdout)
    assert (told["ok"], told["entries"], told["signed"]) == (True, 4, 4)
    assert oct((next(tmp_path.rglob("ledger.key"))).stat().st_mode)[-3:] == "600"


# From another directory, and what is no ledger any more ---------------------------------------------------------------


@pytest.mark.parametrize("words", [["receipts", "list"], ["receipts", "verify"], ["approvals", "list"]])
def test_receipts_are_found_by_the_manifest_of_their_calls(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    desk, elsewhere = tmp_path / "desk", tmp_path / "elsewhere"
    for folder in (desk, elsewhere):
        folder.mkdir()
    (desk / "agent.yaml").write_text("agent: desk\n")
    shutil.copytree(made, state_directory(desk))
    monkeypatch.chdir(elsewhere)
    asked = CliRunner().invoke(licet, [*words, "--manifest", "../desk/agent.yaml"])
    assert asked.exit_code == 0, asked.output
    both = CliRunner().invoke(licet, [*words, "--manifest", "../desk/agent.yaml", "--state", "."])
    assert (both.exit_code, "not both" in both.stderr) == (2, True)
    assert CliRunner().invoke(licet, [*words, "--manifest", "none.yaml"]).exit_code == 2


def test_to_list_requests_makes_nothing(tmp_path: Path) -> None:
    state = tmp_path / "none"
    for words in ["list"], ["show", "a-1"], ["approve", "a-1", "--yes"], ["deny", "a-1"]:
        result = CliRunner().invoke(licet, ["approvals", *words, "--state", str(state)])
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"there is no directory {state}: give the state directory of the calls" in result.stderr
        assert not state.exists()


def test_without_calls_no_request_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    (tmp_path / "agent.yaml").write_text("agent: desk\n")
    for words in [], ["--manifest", "agent.yaml"]:
        result = CliRunner().invoke(licet, ["approvals", "list", *words])
        assert (result.exit_code, result.stderr) == (0, "no call waits for an answer\n")
    assert not (tmp_path / "xdg").exists()


@pytest.mark.who
@pytest.mark.parametrize("how", ["closed", "no name", "a file"])
@pytest.mark.parametrize(
    "words",
    [["receipts", "list"], ["receipts", "head"], ["receipts", "verify"], ["explain", "r-1-1"], ["approvals", "list"]],
    ids=" ".join,
)
def test_an_unreadable_state_directory_is_an_error(made: Path, tmp_path: Path, words: list[str], how: str) -> None:
    if how == "closed" and os.geteuid() == 0:
        pytest.skip("root looks into everything")
    state = tmp_path / "above" / ("x" * 300 if how == "no name" else "state")  # the kernel takes 255
    state.parent.mkdir()
    if how == "closed":
        shutil.copytree(made, state)
        state.parent.chmod(0)
    elif how == "a file":
        state.write_text("")
    try:
        result = run(state, *words)
    finally:
        state.parent.chmod(0o700)
    assert (result.exit_code, result.stdout) == (1, "")
    said = {"closed": "Permission denied", "no name": "File name too long", "a file": "Not a directory"}[how]
    absent = how == "a file" and words[0] != "approvals"
    assert (
        (f"there is no ledger at {state}" in result.stderr)
        if absent and words[-1] != "verify"
        else said in result.stderr
    )


def test_a_ledger_that_was_overwritten_is_no_pack(state: Path) -> None:
    (state / "ledger.sqlite").write_bytes(b"x" * 10_000)
    result = run(state, "receipts", "verify")
    assert result.exit_code == 1
    assert "ledger.sqlite cannot be read: file is not a database" in result.stderr
    assert "pack" not in result.output
