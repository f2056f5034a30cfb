"""`licet trust`, and policies that commands find by themselves: which one is found, and when it is used."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import warm
from attacks.walled_programs import needs_walls
from cli.messages import message
from licet.cli.app import licet

TOOLS = '''
from licet import tool

@tool(needs=[], effect="read_only", sandbox="native")
def hello(name: str = "you") -> str:
    """Greet somebody."""
    return f"hello {name}"
'''
POLICY = """\
agent: a
tools:
  hello: {from: "found_tools:hello"}
capabilities:
  tools: [hello]
  native: [hello]
  process: {allowed_binaries: [echo]}
  sandbox: {allow_degraded: true}
"""
WIDER = POLICY.replace("capabilities:\n", "capabilities:\n  fs_reach: {read: [/srv]}\n")
INSIDE = ".licet/licet.yaml"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path.resolve() / "project"
    (folder / ".licet").mkdir(parents=True)
    (folder / "found_tools.py").write_text(TOOLS)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delitem(sys.modules, "found_tools", raising=False)
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words, catch_exceptions=False)


def real(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(warm.PROGRAM, words)


def write(text: str, *names: str) -> None:
    for name in names or (INSIDE,):
        Path(name).write_text(text)


# What is found -------------------------------------------------------------------------------------------------------

REVIEWS = [["check"], ["surface"], ["explain", "hello"], ["diff", INSIDE]]


@pytest.mark.parametrize("words", REVIEWS, ids=" ".join)
def test_reviews_find_the_policy_here_and_need_no_trust(words: list[str]) -> None:
    write(POLICY)
    assert run(*words).exit_code == 0, run(*words).stderr


@pytest.mark.parametrize(
    "words", [*REVIEWS[:3], ["call", "hello"], ["diff", "a.yaml"], ["trust", "--yes"]], ids=" ".join
)
def test_where_there_is_none_it_is_missing(words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message("trust.there_no_licet_licet_yaml") in result.stderr


def test_only_this_directory_is_looked_at_and_a_policy_above_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "far" / "below").mkdir(parents=True)
    monkeypatch.chdir(here / "far" / "below")
    assert "cd .." not in run("check").stderr
    write(POLICY, str(here / INSIDE), str(here / "licet.yaml"))
    found = run("check")
    assert (found.exit_code, "there is ../../.licet/licet.yaml: a policy is used in" in found.stderr) == (
        2,
        True,
    )
    for words in (["check"], ["approvals", "list"], ["receipts", "list"], ["session", "list"]):
        assert "`cd ../..`" in run(*words).stderr


def test_a_second_policy_next_to_the_directory_is_reported_and_not_read() -> None:
    write(POLICY.replace("agent: a", "agent: inside"))
    write(POLICY.replace("agent: a", "agent: beside"), "licet.yaml")
    result = run("surface", "--json")
    assert json.loads(result.stdout)["agent"] == "inside"
    assert result.stderr == message("trust.licet_licet_yaml_ignored_since")
    assert run("surface", "licet.yaml").stderr == ""  # it was named


def test_without_the_directory_a_file_at_the_top_is_found() -> None:
    write(POLICY, "licet.yaml")
    assert json.loads(run("surface", "--json").stdout)["files"] == ["licet.yaml"]


# What the words mean -------------------------------------------------------------------------------------------------

WORDS = [
    (["hello"], "hello you"),
    (["hello", "name=x"], "hello x"),
    ([INSIDE, "hello", "name=x"], "hello x"),
    (["./odd", "hello"], "hello you"),
    (["odd", "hello"], "hello you"),
]


@pytest.mark.parametrize(("words", "said"), WORDS, ids=lambda words: " ".join(words))
def test_a_call_with_and_without_its_policy(words: list[str], said: str) -> None:
    write(POLICY, INSIDE, "odd")
    Path("name=x").touch()
    assert run("trust", "--yes").exit_code == 0
    result = run("call", *words)
    assert (result.exit_code, result.stdout) == (0, f"{said}\n"), result.stderr


def test_a_directory_with_the_name_of_a_tool_is_no_policy() -> None:
    write(POLICY)
    run("trust", "--yes")
    Path("hello").mkdir()
    assert run("call", "hello").stdout == "hello you\n"


@pytest.mark.parametrize("command", ["call", "explain"])
def test_a_file_with_the_name_of_a_tool_is_ambiguous(command: str) -> None:
    write(POLICY)
    run("trust", "--yes")
    Path("hello").touch()
    result = run(command, "hello")
    assert result.exit_code == 2
    assert message("trust.hello_file_tool_policy_here") in result.stderr
    assert run(command, INSIDE, "hello").exit_code == 0


@pytest.mark.parametrize("words", [["name=x"], [INSIDE, "name=x"]], ids=" ".join)
def test_a_call_with_arguments_and_no_tool_says_so(words: list[str]) -> None:
    write(POLICY)
    result = run("call", *words)
    assert result.exit_code == 2
    assert "Missing argument 'TOOL'" in result.stderr


def test_a_call_without_words_lists_the_tools_of_the_policy_here() -> None:
    write(POLICY)
    listed = run("call")
    assert (listed.exit_code, listed.stdout) == (0, run("call", INSIDE).stdout)


# What is used --------------------------------------------------------------------------------------------------------

NOT_ACCEPTED = ".licet/licet.yaml has not been accepted: review and accept it with `licet trust`, or name it\n"
CHANGED = ".licet/licet.yaml has changed since it was accepted: review and accept the change with `licet trust`\n"


def test_a_policy_that_was_found_is_used_once_it_is_accepted() -> None:
    write(POLICY)
    result = run("call", "hello")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", NOT_ACCEPTED)
    assert "found_tools" not in sys.modules  # nothing of it ran
    assert json.loads(run("call", "hello", "--json").stdout) == {"error": NOT_ACCEPTED.strip()}
    assert run("call", INSIDE, "hello").exit_code == 0  # named, it needs no acceptance
    assert run("call", "hello").exit_code == 1  # and that is none
    assert run("trust", "--yes").exit_code == 0
    assert run("call", "hello").stdout == "hello you\n"


@needs_walls
def test_so_is_one_that_a_command_is_run_under() -> None:
    write(POLICY)
    ended = real("run", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout, ended.stderr) == (125, "", NOT_ACCEPTED)
    run("trust", "--yes")
    assert real("run", "--", "echo", "ran").stdout == "ran\n"
    write(WIDER)
    ended = real("run", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout, ended.stderr) == (125, "", CHANGED)
    assert real("run", INSIDE, "--", "echo", "ran").stdout == "ran\n"


@needs_walls
def test_without_any_policy_nothing_is_run() -> None:
    ended = real("run", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert message("trust.there_no_licet_licet_yaml") in ended.stderr


CHANGES = {
    "a wider ceiling": WIDER,
    "other code": POLICY.replace("found_tools:hello", "found_tools:hullo"),
    "another agent": POLICY.replace("agent: a", "agent: b"),
    "a limit": POLICY + "  limits: {wall_seconds: 1000}\n",
    "an approval": POLICY + "  approvals: {write: manifest}\n",
}
NO_CHANGES = {
    "a comment": POLICY + "# more\n",
    "the order": POLICY.replace("  tools: [hello]\n  native: [hello]\n", "  native: [hello]\n  tools: [hello]\n"),
}


@pytest.mark.parametrize("text", CHANGES.values(), ids=CHANGES)
def test_a_changed_meaning_must_be_accepted_again(text: str) -> None:
    write(POLICY)
    run("trust", "--yes")
    write(text)
    result = run("call", "hello")
    assert (result.exit_code, result.stderr) == (1, CHANGED)
    write(POLICY)
    assert run("call", "hello").exit_code == 0  # as it was accepted


@pytest.mark.parametrize("text", NO_CHANGES.values(), ids=NO_CHANGES)
def test_a_changed_layout_needs_no_new_acceptance(text: str) -> None:
    write(POLICY)
    run("trust", "--yes")
    write(text)
    assert run("call", "hello").exit_code == 0


def test_a_change_of_its_workspace_is_a_change_too() -> None:
    workspace = 'tools:\n  hello: {from: "found_tools:hello"}\n'
    write(workspace)
    write(POLICY.replace(workspace, ""), ".licet/agent.yaml")
    assert run("trust", ".licet/agent.yaml", "--yes").exit_code == 0
    listed = json.loads(run("trust", "--list", "--json").stdout)["accepted"]
    assert [entry["path"] for entry in listed] == [os.path.realpath(".licet/agent.yaml")]
    write(workspace + "destinations: {allow: [a.example]}\n")
    result = run("trust", ".licet/agent.yaml", "--yes")
    assert message("trust.differs_what_its_capabilities_personality") in result.stdout


def test_a_copy_in_another_place_is_not_accepted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(POLICY)
    run("trust", "--yes")
    elsewhere = here.parent / "elsewhere"
    (here.parent / "elsewhere" / ".licet").mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    write(POLICY)
    assert run("call", "hello").exit_code == 1


@pytest.mark.parametrize("link", [".licet", INSIDE, "licet.yaml"])
def test_a_link_to_an_accepted_policy_brings_it_to_no_other_directory(
    link: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(POLICY)
    run("trust", "--yes")
    hostile = here.parent / "hostile"
    hostile.mkdir()
    (hostile / "found_tools.py").write_text(TOOLS.replace("hello {name}", "taken over"))
    (hostile / link).parent.mkdir(exist_ok=True)
    (hostile / link).symlink_to(here / ".licet" if link == ".licet" else here / INSIDE)
    monkeypatch.chdir(hostile)
    result = run("call", "hello")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message("trust.reached_through_link") in result.stderr


@pytest.mark.parametrize("option", ["--workspace", "--personality"])
def test_an_accepted_policy_is_not_combined_with_another_file(option: str) -> None:
    write(POLICY)
    write("id: p\ntoolset: [hello]\n", "p.yaml")
    run("trust", "--yes")
    result = run("call", "hello", option, "p.yaml")
    assert result.exit_code == 2
    assert "need a named manifest" in result.stderr


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
def test_a_damaged_list_trusts_nothing(content: bytes, tmp_path: Path) -> None:
    write(POLICY)
    run("trust", "--yes")
    (tmp_path / "state" / "licet" / "trust").write_bytes(content)
    for words in (["call", "hello"], ["trust", "--yes"], ["trust", "--list"]):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "licet trust" in result.stderr
    assert run("call", INSIDE, "hello").exit_code == 0


def test_the_list_is_not_moved_with_the_state(tmp_path: Path) -> None:
    write(POLICY)
    run("trust", "--yes")
    assert run("call", "hello", "--state", str(tmp_path / "elsewhere")).exit_code == 0
    assert (tmp_path / "state" / "licet" / "trust").exists()


def test_a_policy_written_by_init_is_accepted(here: Path) -> None:
    (here / ".licet").rmdir()
    assert run("init", "found_tools.py").exit_code == 0
    assert run("call", "hello").stdout == "hello you\n"
    write(Path(INSIDE).read_text() + "  env: [PATH]\n")
    assert run("call", "hello").exit_code == 1


def test_where_nothing_can_be_accepted_init_says_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "")
    result = run("init", "found_tools.py")
    assert result.exit_code == 0
    assert message("trust.warning_policy_could_not_be") in result.stderr


# The command itself --------------------------------------------------------------------------------------------------


def test_at_first_everything_is_shown() -> None:
    write(WIDER)
    said = run("trust", "--yes").stdout
    assert "hello" in said
    assert "  fs:read:/srv\n" in said  # no tool needs it today, but one may tomorrow
    assert "  process:exec:echo\n" in said
    assert said.endswith("accepted .licet/licet.yaml\n")


def test_then_what_has_changed() -> None:
    write(POLICY)
    run("trust", "--yes")
    write(WIDER.replace("found_tools:hello", "found_tools:other").replace("[echo]", "[echo, cat]"))
    Path("found_tools.py").write_text(
        TOOLS.replace("def hello", "def other").replace("needs=[]", 'needs=[], name="hello"')
    )
    lines = run("trust", "--yes").stdout.splitlines()
    for line in (
        ".licet/licet.yaml, since it was accepted:",
        "+ allowed in all: fs:read:/srv",
        "+ allowed in all: process:exec:cat",
        "~ hello: from found_tools:hello → found_tools:other",
        "~ differs in: what its `capabilities`, personality or workspace allow and deny, `from` of its tools",
        "accepted .licet/licet.yaml",
    ):
        assert line in lines
    assert run("trust", "--yes").stdout == message("trust.licet_licet_yaml_already_accepted")


def test_reading_a_policy_does_not_accept_it() -> None:
    write(POLICY)
    result = run("trust")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message("trust.there_no_terminal_ask_add") in result.stderr
    assert run("trust", "--json").exit_code == 2
    assert run("call", "hello").exit_code == 1


def test_a_policy_that_is_wrong_is_not_accepted() -> None:
    write("agent: a\ncapabilites: {}\n")
    assert run("trust", "--yes").exit_code == 1
    assert run("trust", "--list").stdout == ""


def test_accepted_policies_are_listed_and_removed() -> None:
    write(POLICY)
    assert json.loads(run("trust", "--yes", "--json").stdout)["accepted"] is True
    path = os.path.realpath(INSIDE)
    assert run("trust", "--list").stdout.startswith(f"{path}  sha256:")
    assert run("trust", "--remove").stdout == message("trust.licet_licet_yaml_no_longer")
    assert run("trust", "--list").stdout == ""
    assert run("trust", "--remove").exit_code == 1
    assert run("call", "hello").exit_code == 1


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_a_person_at_a_terminal_is_asked(answer: str, code: int) -> None:
    write(POLICY)
    ours, theirs = pty.openpty()
    command = [*warm.command(f"import os; os.setsid(); {warm.PROGRAM}"), "trust"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, until = b"", time.monotonic() + 300
    while b"accept it? [y/N]" not in said and time.monotonic() < until:
        if select.select([ours], [], [], 1)[0]:
            said += os.read(ours, 65536)
    assert b"hello" in said
    os.write(ours, f"{answer}\n".encode())
    assert process.wait(300) == code
    os.close(ours)
    assert run("call", "hello").exit_code == code


# The lock -------------------------------------------------------------------------------------------------------------


def accepted_and_locked() -> None:
    write(POLICY)
    assert run("trust", "--yes").exit_code == 0
    locked = run("lock")
    assert locked.stdout.endswith(f"accepted {INSIDE} with this lock\n"), locked.output


def pull_lock(**changes: object) -> None:
    file = Path(".licet/licet.lock")
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **changes}))


USES = [["call", "hello"], ["run", "--", "echo", "x"], ["serve"], ["gateway"]]


@pytest.mark.parametrize("words", USES, ids=" ".join)
def test_a_lock_that_was_changed_is_used_by_no_command(words: list[str]) -> None:
    accepted_and_locked()
    assert run("call", "hello").exit_code == 0
    pull_lock(tools={})  # a lock without tools says nothing about their code
    Path("found_tools.py").write_text(TOOLS.replace("hello {name}", "evil {name}"))
    result = run(*words)
    assert (result.exit_code, result.stdout) == (125 if words[0] == "run" else 1, "")
    assert f"{INSIDE[:-10]}licet.lock has changed since it was accepted: review and accept" in result.stderr
    said = run("trust", "--yes").stdout
    assert "- tool hello\n" in said
    assert f"accepted {INSIDE}\n" in said


def test_a_lock_that_says_the_same_in_other_spelling_is_the_same() -> None:
    accepted_and_locked()
    pull_lock()
    assert run("call", "hello").exit_code == 0
    assert run("trust", "--yes").stdout == f"{INSIDE} is already accepted\n"


def test_all_that_a_lock_says_is_shown_before_it_is_accepted_first() -> None:
    write(POLICY)
    assert run("lock", INSIDE).stdout.count("\n") == 1  # an unaccepted policy is not accepted by locking it
    assert run("call", "hello").exit_code == 1
    said = run("trust", "--yes").stdout
    assert "licet.lock next to it, all that it says:\n+ manifest licet.yaml\n+ tool hello\n" in said


def test_a_changed_policy_is_not_accepted_by_locking_it() -> None:
    accepted_and_locked()
    write(WIDER)
    result = run("lock", "--update", INSIDE)
    assert result.exit_code == 0
    assert f"{INSIDE}: it is not accepted as it is now: review and accept it with `licet trust`" in result.stderr
    assert "has changed since it was accepted" in run("call", "hello").stderr


def test_an_update_of_the_lock_by_its_user_needs_no_further_question() -> None:
    accepted_and_locked()
    Path("found_tools.py").write_text(TOOLS + "\n# more\n")
    result = run("lock", "--update")
    assert f"accepted {INSIDE} with this lock" in result.stdout
    assert run("call", "hello").exit_code == 0
    Path("found_tools.py").write_text(TOOLS)
    data = json.loads(run("lock", "--update", "--json").stdout)
    assert (data["written"], data["accepted"]) == (True, [INSIDE])


def test_a_lock_that_cannot_be_read_is_written_and_accepted_again() -> None:
    accepted_and_locked()
    Path(".licet/licet.lock").write_text("<<<<<<< ours\n")
    assert run("call", "hello").exit_code == 1
    result = run("lock", "--update")
    assert "+ tool hello" in result.stdout  # all of it is shown
    assert f"accepted {INSIDE} with this lock" in result.stdout
    assert run("call", "hello").exit_code == 0


def test_what_an_older_licet_accepted_is_asked_about_again(tmp_path: Path) -> None:
    accepted_and_locked()
    file = tmp_path / "state" / "licet" / "trust"
    entries = json.loads(file.read_text())["accepted"]
    for entry in entries.values():
        del entry["lock"]
    file.write_text(json.dumps({"format": 1, "accepted": entries}))
    result = run("call", "hello")
    assert result.exit_code == 1
    assert f"{INSIDE} was accepted by an older licet, which did not look at licet.lock: review and" in result.stderr
    assert "not with its lock" in run("trust", "--list").stdout
    assert run("trust", "--yes").exit_code == 0
    assert run("call", "hello").exit_code == 0


def test_a_demand_for_acceptance_takes_no_other_files() -> None:
    accepted_and_locked()
    result = run("serve", INSIDE, "--accepted", "--workspace", "other.yaml")
    assert result.exit_code == 2
    assert "--workspace and --personality need a named manifest without --accepted" in result.stderr


def test_examples_can_be_added_without_locking_or_accepting_again() -> None:
    accepted_and_locked()
    write(POLICY + "examples:\n  match: [{tool: hello, use: 'env:read:A'}]\n")
    assert run("check", "--locked").exit_code == 0
    assert run("call", "hello").exit_code == 0
