"""`licet approvals`: waiting requests are listed, shown, answered and signed from a shell."""

import asyncio
import json
import os
import pty
import re
import sqlite3
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import warm
from cli.messages import message
from licet.backends.approvals.store import SqliteApprovals
from licet.cli.app import licet

SCRIPT = Path(sysconfig.get_path("scripts")) / "licet"
ID = re.compile(r"a-[0-9a-f]{12}")
MANIFEST: dict[str, Any] = {
    "agent": "desk",
    "tools": {"write_file": {"from": "licet.tools:write_file"}},
    "capabilities": {
        "tools": {"write_file": {"sandbox": "native"}},
        "native": ["write_file"],
        "max_side_effect_class": "write_limited",
        "fs_reach": {"write": ["${workdir}/drafts"]},
        "approvals": {"write": "call"},
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "drafts").mkdir()
    policy()
    return tmp_path


def policy(**approvals: Any) -> None:
    capabilities = {**MANIFEST["capabilities"], "approvals": {"write": "call", **approvals}}
    Path("m.yaml").write_text(json.dumps({**MANIFEST, "capabilities": capabilities}))


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words, prog_name="licet")


def call(*more: str, text: str = "Rain.") -> Result:
    return run("call", "m.yaml", "write_file", "path=drafts/a.md", f"text={text}", *more)


def asked(*more: str, text: str = "Rain.") -> str:
    """Make a call that is refused, and return its request."""
    found = ID.search(call(*more, text=text).stderr)
    assert found is not None
    return found[0]


def test_a_refused_call_prints_the_line_that_settles_it_and_the_same_call_then_runs() -> None:
    refused = call()
    assert refused.exit_code == 1
    [line] = re.findall(r"to settle it  run `(licet approvals approve a-[0-9a-f]{12})`", refused.stderr)
    assert run(*line.split()[1:], "--yes").exit_code == 0
    done = call("--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["approvals"] == [{"by": ["command"], "request": line.split()[-1], "use": None}]
    assert Path("drafts/a.md").read_text() == "Rain."
    assert call().exit_code == 1  # that was one call


@pytest.mark.parametrize("more", [[], ["--json"], ["--only-these-arguments"]], ids=str)
def test_without_a_terminal_approving_needs_yes_or_a_signature(more: list[str]) -> None:
    request = asked()
    refused = run("approvals", "approve", request, *more)
    assert refused.exit_code == 2
    assert message("approvals.add_yes_or_sign_key") in refused.stderr
    assert json.loads(run("approvals", "show", request, "--json").stdout)["state"] == "waiting"
    run("approvals", "key", "me.key")
    assert run("approvals", "approve", request, "--key", "me.key", *more).exit_code == 0


def test_the_line_names_a_state_that_the_command_would_not_find_by_itself(here: Path) -> None:
    refused = call("--state", "other state")
    [line] = re.findall(r"`licet approvals approve (a-\w+) (--state '.*other state')`", refused.stderr)
    assert run("approvals", "approve", line[0], "--yes").exit_code == 1
    assert run("approvals", "approve", line[0], "--yes", "--state", str(here / "other state")).exit_code == 0
    assert call("--state", "other state").exit_code == 0


def test_a_denial_is_shown_and_lasts(here: Path) -> None:
    assert run("approvals", "deny", asked()).stdout.splitlines()[0].endswith(": denied")
    for _ in range(2):
        assert "APPROVAL_DENIED" in json.loads(call("--json").stdout)["error"]
    assert not (here / "drafts" / "a.md").exists()


def test_list_shows_open_requests_and_with_all_every_request() -> None:
    first, second, third = (asked(text=text) for text in "abc")
    run("approvals", "approve", first, "--yes")
    run("approvals", "deny", second)
    assert ID.findall(run("approvals", "list").stdout) == [first, third]
    states = json.loads(run("approvals", "list", "--all", "--json").stdout)["requests"]
    assert [(one["id"], one["state"]) for one in states] == [
        (first, "approved"),
        (second, "denied"),
        (third, "waiting"),
    ]
    call(text="a")
    assert ID.findall(run("approvals", "list").stdout) == [third]


def test_a_list_shows_the_beginning_of_the_arguments_of_each_request() -> None:
    requests = [asked(text=text) for text in ("Rain.\u202e", "x" * 500)]
    lines = run("approvals", "list").stdout.splitlines()
    assert [line[:14] for line in lines[::2]] == requests
    assert all(re.search(r", asked \d+ \w+ ago, until ", line) for line in lines[::2])
    assert lines[1] == r'    path="drafts/a.md", text="Rain.\u202e"'
    assert lines[3].endswith("xxx…")
    assert len(lines[3]) < 120


def test_a_request_replaced_under_a_newer_manifest_is_marked() -> None:
    old = asked()
    policy(expires_seconds=200)
    new = asked()
    assert f"{new} is a newer request" in run("approvals", "list").stdout
    assert f"{new} is a newer request" in run("approvals", "approve", old, "--yes").stderr
    assert call().exit_code == 1
    assert "another manifest" not in run("approvals", "approve", new, "--yes").stderr
    assert call().exit_code == 0


def test_an_approval_that_was_denied_later_is_shown_as_taken_back() -> None:
    request = asked()
    run("approvals", "approve", request, "--yes")
    said = run("approvals", "deny", request).stdout
    assert said.startswith(f"{request}: taken back\n")
    assert "  had agreed    command\n" in said
    assert "taken back" in run("approvals", "list", "--all").stdout


def test_a_signature_is_optional_if_the_manifest_lists_no_keys() -> None:
    run("approvals", "key", "me.key")
    assert message("approvals.anybody_signed_or_not") in run("approvals", "approve", asked(), "--key", "me.key").stdout


def test_an_expired_unanswered_request_is_listed_without_its_arguments() -> None:
    policy(expires_seconds=1)
    expired, seconds = asked(text="Rain."), 0
    while asked(text=f"Hail {seconds}.") and "Rain." in run("approvals", "list", "--all").stdout:
        time.sleep(0.2)
        seconds += 1
    assert "no longer stored" in run("approvals", "list", "--all").stdout
    assert message("approvals.deleted_arguments") in run("approvals", "show", expired).stdout
    assert json.loads(run("approvals", "show", expired, "--json").stdout)["arguments"] is None
    assert "is expired since" in run("approvals", "approve", expired, "--yes").stderr


def test_an_empty_list_says_so() -> None:
    result = run("approvals", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", message("approvals.no_call_waits_answer"))
    assert json.loads(run("approvals", "list", "--json").stdout) == {"requests": []}


def test_show_prints_the_exact_call_and_what_it_could_reach(here: Path) -> None:
    shown = run("approvals", "show", asked(text="Rain.\u202e\nSun."))
    for line in (
        r'argument      "text": "Rain.\u202e\nSun."',
        'argument      "path": "drafts/a.md"',
        f"paths         fs:write:{here}/drafts",
        f"directory     {here}",
        "agent         desk, session main",
        "class         write_limited",
        "tool          write_file",
        "holds         once, with exactly these arguments",
    ):
        assert f"\n  {line}\n" in shown.stdout


def test_show_as_json() -> None:
    said = json.loads(run("approvals", "show", asked(), "--json").stdout)
    assert (said["tool"], said["state"], said["holds_for"], said["session"]) == (
        "write_file",
        "waiting",
        "call",
        "main",
    )
    assert said["arguments"]["text"] == "Rain."
    assert said["manifest"].startswith("sha256:")
    assert said["expires"] > said["asked"]


def expired() -> str:
    policy(expires_seconds=1)
    request = asked()
    store = SqliteApprovals(next(Path("state").rglob("approvals.sqlite")))
    while asyncio.run(store.find(request)).state(store.now()) != "expired":
        time.sleep(0.05)
    store.close()
    return request


def used() -> str:
    request = asked()
    run("approvals", "approve", request, "--yes")
    call()
    return request


def denied() -> str:
    request = asked()
    run("approvals", "deny", request)
    return request


OVER: dict[str, Callable[[], str]] = {
    "is denied, and that holds until": denied,
    "is used": used,
    "is expired": expired,
    "there is no request `a-0` here": lambda: "a-0",
}


@pytest.mark.parametrize("said", OVER)
@pytest.mark.parametrize("word", ["approve", "deny"])
def test_a_finished_request_cannot_be_answered(said: str, word: str) -> None:
    request = OVER[said]()
    words = ["approvals", word, request, *(["--yes"] if word == "approve" else [])]
    result = run(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    result = run(*words, "--json")
    assert (result.exit_code, list(json.loads(result.stdout))) == (1, ["error"])


def test_a_request_of_another_manifest_is_found_by_its_manifest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked()
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    said = run("approvals", "approve", request, "--yes").stderr
    assert message("approvals.go_its_directory_or_name") in said
    policy_file = next(path for path in here.iterdir() if path.suffix == ".yaml")
    assert run("approvals", "approve", request, "--yes", "--manifest", str(policy_file)).exit_code == 0


def test_a_session_can_be_agreed_to_with_these_arguments_alone() -> None:
    policy(write="session")
    request = asked(text="a")
    shown = run("approvals", "approve", request, "--only-these-arguments", "--yes")
    assert message("approvals.agreed_command_exactly_these_arguments") in shown.stdout
    assert message("approvals.holds_every_call_session_exactly") in shown.stdout
    assert "with any arguments" not in shown.stdout
    assert [call(text=text).exit_code for text in "aab"] == [0, 0, 1]
    policy(write="session", expires_seconds=200)
    run("approvals", "approve", asked(text="a"), "--yes")
    assert [call(text=text).exit_code for text in "aab"] == [0, 0, 0]


def test_a_quorum_of_keys(here: Path) -> None:
    made = [run("approvals", "key", f"keys/{name}").stdout.strip() for name in ("one", "two", "other")]
    assert all(re.fullmatch(r"ed25519:[A-Za-z0-9_-]{43}", key) for key in made)
    assert stat.S_IMODE((here / "keys" / "one").stat().st_mode) == 0o600
    policy(quorum=2, keys={"ann": made[0], "bob": made[1]})
    request = asked()
    assert message("approvals.signatures_are_there") in call().stderr
    for words, said in (
        (["--yes"], "sign with `--key FILE`"),
        (["--key", "keys/other"], "is not among the manifest's"),
    ):
        refused = run("approvals", "approve", request, *words)
        assert refused.exit_code == 1
        assert said in refused.stderr
    for _ in range(2):  # the same key twice is one
        agreed = run("approvals", "approve", request, "--key", "keys/one").stdout
        assert "1 of 2 agree" in agreed
        assert f"  agreed        ann ({made[0]})\n" in agreed
        assert f"  may sign      bob ({made[1]})\n" in agreed
        assert call().exit_code == 1
    assert "1 of 2 agree" in run("approvals", "list").stdout
    assert ": approved" in run("approvals", "approve", request, "--key", "keys/two").stdout
    done = json.loads(call("--json").stdout)
    assert done["approvals"] == [{"by": sorted(made[:2]), "request": request, "use": None}]


def test_signatures_that_are_taken_back_are_gone_and_their_names_are_not() -> None:
    made = [run("approvals", "key", f"keys/{name}").stdout.strip() for name in ("one", "two")]
    policy(quorum=2, keys=made)
    request = asked()
    run("approvals", "approve", request, "--key", "keys/one")
    run("approvals", "approve", request, "--key", "keys/two")
    said = run("approvals", "deny", request).stdout
    assert said.startswith(f"{request}: taken back\n")
    assert all(f"  had agreed    {key}\n" in said for key in made)


def test_a_key_is_never_replaced_and_shows_its_public_half() -> None:
    first = run("approvals", "key", "me.key")
    again = run("approvals", "key", "me.key")
    assert again.exit_code == 1
    assert "is there already" in again.stderr
    assert run("approvals", "key", "me.key", "--public").stdout == first.stdout
    assert json.loads(run("approvals", "key", "me.key", "--public", "--json").stdout)["public"] == first.stdout.strip()


def readable() -> None:
    run("approvals", "key", "bad.key")
    Path("bad.key").chmod(0o644)


def text() -> None:
    Path("bad.key").touch(0o600)
    Path("bad.key").write_text("my key")


def open_text() -> None:
    Path("bad.key").write_text("agent: a")
    Path("bad.key").chmod(0o644)


def pipe() -> None:
    os.mkfifo("bad.key", 0o600)  # nothing ever writes into it, so a reader would block for ever


def another_kind() -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path("bad.key").touch(0o600)
    Path("bad.key").write_bytes(key)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (readable, "is open to others"),
        (text, "holds no Ed25519 key"),
        (open_text, "holds no Ed25519 key"),
        (another_kind, "holds no Ed25519 key"),
        (pipe, "is a named pipe, not a regular file"),
    ],
)
def test_a_file_without_a_usable_key_is_a_bad_command_line(make: Any, said: str) -> None:
    make()
    result = run("approvals", "approve", asked(), "--key", "bad.key")
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_broken_store_is_one_line(here: Path) -> None:
    (here / "broken").mkdir()
    (here / "broken" / "approvals.sqlite").touch(0o600)
    (here / "broken" / "approvals.sqlite").write_text("no database, but long enough to be looked at" * 30)
    result = run("approvals", "list", "--state", "broken")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message("approvals.damaged_or_no_database") in result.stderr
    refused = call("--state", "broken")
    assert refused.exit_code == 1
    assert "Traceback" not in refused.stderr


# At a terminal --------------------------------------------------------------------------------------------------------


# The first terminal that the leader of a session opens becomes its controlling terminal, which is `/dev/tty`.
LEADER = f"import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); {warm.PROGRAM}"


def at_terminal(
    words: list[str], prompt: bytes, typed: bytes, meanwhile: Callable[[], object] = lambda: None
) -> tuple[int, str]:
    """Run a command at a new terminal, and type when it asks."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([*warm.command(LEADER), *words], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, answered = b"", False
    with suppress(OSError):  # the other end is closed when the command ends
        while piece := os.read(ours, 65536):
            shown += piece
            if not answered and prompt in shown:
                answered = True
                meanwhile()
                os.write(ours, typed)
    os.close(ours)
    return child.wait(), shown.decode()


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
@pytest.mark.sampled(2)
def test_call_asks_at_the_terminal(here: Path, typed: bytes, code: int) -> None:
    words = ["call", "m.yaml", "write_file", "path=drafts/a.md", "text=Rain.\u202e", "--ask"]
    ended, shown = at_terminal(words, b"[y]es, [N]o ", typed)
    assert ended == code
    assert '"text": "Rain.\\u202e"' in shown
    assert (here / "drafts" / "a.md").exists() is (code == 0)


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_approve_shows_the_request_and_asks_again_at_a_terminal(typed: bytes, code: int) -> None:
    request = asked()
    ended, shown = at_terminal(["approvals", "approve", request], b"agree? [y/N]: ", typed)
    assert ended == code
    assert "tool          write_file" in shown
    assert call().exit_code == code


def test_a_request_replaced_while_it_is_shown_is_not_approved(here: Path) -> None:
    """Somebody who can write the file stores another call under the id of the shown request."""
    shown_one, other = asked(text="Rain."), asked(text="Hail.")

    def exchange() -> None:
        [path] = (here / "state").rglob("approvals.sqlite")
        with sqlite3.connect(path) as db:
            body, *more = db.execute("SELECT body, subject, arguments FROM requests WHERE id = ?", (other,)).fetchone()
            db.execute("DELETE FROM requests WHERE id = ?", (other,))
            change = "UPDATE requests SET body = ?, subject = ?, arguments = ? WHERE id = ?"
            db.execute(change, (body.replace(other, shown_one), *more, shown_one))
        db.close()

    ended, shown = at_terminal(["approvals", "approve", shown_one], b"agree? [y/N]: ", b"y\n", exchange)
    assert ended == 1
    assert message("approvals.no_longer_what_was_shown", shown_one=shown_one) in shown
    assert [call(text=text).exit_code for text in ("Rain.", "Hail.")] == [1, 1]


def test_without_a_terminal_call_leaves_a_request_although_it_should_ask() -> None:
    words = [sys.executable, str(SCRIPT), "call", "m.yaml", "write_file", "path=drafts/a.md", "text=x", "--ask"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, start_new_session=True)
    assert done.returncode == 1
    assert ID.search(done.stderr) is not None
