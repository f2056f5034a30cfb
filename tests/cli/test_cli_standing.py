"""Standing approvals of deletes in `licet trust` and `licet approvals`, and what commands do under them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import warm
from attacks.walled_programs import needs_walls
from cli.terminals import at_terminal
from licet import Backends, Gate, load_manifest
from licet.assemble import Places, acceptance
from licet.assemble.acceptance import state_of
from licet.assemble.gate import CommandGate
from licet.backends.approvals import standing
from licet.backends.secrets import make_key
from licet.cli.app import licet
from pins import STANDING, give_standing

POLICY = """\
agent: a
capabilities:
  max_side_effect_class: full
  fs_reach: {read: ["${workdir}"], write: ["${workdir}/out"]}
  grants: ["fs:delete:${workdir}/log"]
  process: {allowed_binaries: [rm]}
  sandbox: {allow_degraded: true}
  approvals: {write: manifest, delete: manifest}
  budget: {max_calls_per_day: 100}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path.resolve() / "project"
    for name in ("out", "log"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a").touch()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder / "licet.yaml").write_text(POLICY)
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words, catch_exceptions=False)


def answered(*words: str, answer: str) -> str:
    """Run a command at a terminal, and answer the question about the standing approval."""
    code, said = at_terminal(words, ((b"give this standing approval? [y/N]",), f"{answer}\n".encode()))
    assert code == 0
    return said


def listed() -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run("approvals", "list", "--json").stdout)["requests"]
    return [one for one in found if one["holds_for"] == "standing"]


@pytest.mark.parametrize(("answer", "given"), [("y", True), ("n", False)])
def test_a_person_at_a_terminal_is_shown_the_paths_and_asked(here: Path, answer: str, given: bool) -> None:
    run("trust", "--yes")
    said = answered("trust", "--days", "7", answer=answer)
    for path in ("fs:delete:${workdir}/log", "fs:delete:${workdir}/out", "this holds for 7 days"):
        assert path in said
    assert [one["deletes"] for one in listed()] == (
        [[f"fs:delete:{here}/log", f"fs:delete:{here}/out"]] if given else []
    )


@pytest.mark.parametrize("words", [("trust", "--yes"), ("trust", "--yes", "--json")])
def test_yes_gives_no_standing_approval(words: tuple[str, ...]) -> None:
    for _ in range(2):  # also if the policy is accepted already
        said = run(*words)
        assert said.exit_code == 0
        assert "its deletes are not approved" in said.stderr
    assert listed() == []


def test_check_says_that_deletes_ask_without_it_and_why() -> None:
    run("trust", "--yes")
    assert "nobody has given a standing approval" in run("check").output
    give_standing(Path("licet.yaml"), ["fs:delete:*"])
    assert "standing approval" not in run("check").output
    Path("licet.yaml").write_text(POLICY.replace("100", "101"))
    assert "was given for another policy, or for this one before it was changed" in run("check").output


@needs_walls
def test_a_program_deletes_under_it_and_its_receipt_cites_it(here: Path) -> None:
    run("trust", "--yes")
    refused = run("run", "--", "rm", "out/a")
    assert (refused.exit_code, (here / "out/a").exists()) == (125, True)
    assert "give a standing approval with `licet trust licet.yaml`, at a terminal" in refused.output
    give_standing(Path("licet.yaml"), [f"fs:delete:{here}"])
    done = warm.run(warm.PROGRAM, ("run", "--json", "--", "rm", "out/a", "log/a"))
    assert done.returncode == 0, done.stderr
    assert not (here / "out/a").exists()
    (cited,) = json.loads(done.stderr)["approvals"]
    assert (cited["request"], cited["standing"], cited["by"]) == (STANDING, True, ["terminal"])
    assert run("approvals", "withdraw", STANDING).stdout.startswith(f"{STANDING}: withdrawn\n")
    (here / "out/b").touch()
    assert run("run", "--", "rm", "out/b").exit_code == 125
    assert (here / "out/b").exists()


def test_it_is_shown_listed_and_withdrawn_and_the_ledger_has_both_entries(here: Path) -> None:
    give_standing(Path("licet.yaml"), [f"fs:delete:{here}"])
    assert f"{STANDING}  approved         standing approval of deletes, a, until " in run("approvals", "list").stdout
    assert "for every tool below class destructive" in run("approvals", "show", STANDING).stdout
    assert run("approvals", "approve", STANDING, "--yes").exit_code == 1
    assert run("approvals", "withdraw", STANDING).exit_code == 0
    again = run("approvals", "withdraw", STANDING)
    assert (again.exit_code, again.stderr) == (1, f"{STANDING} was withdrawn already\n")
    assert listed() == []
    story = run("receipts", "show", STANDING)
    assert "a standing approval of deletes was given" in story.stdout
    assert "a standing approval of deletes was withdrawn" in story.stdout
    assert run("receipts", "verify").exit_code == 0


def test_removing_the_policy_from_the_list_withdraws_it(here: Path) -> None:
    run("trust", "--yes")
    give_standing(Path("licet.yaml"), [f"fs:delete:{here}"])
    assert f"the standing approval {STANDING} of its deletes is withdrawn" in run("trust", "--remove").stdout
    assert listed() == []


def test_keys_of_the_policy_must_sign_it(here: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "me.key")
    policy = POLICY.replace("delete: manifest", f"delete: manifest, keys: [{key.public!r}]")
    Path("licet.yaml").write_text(policy)
    run("trust", "--yes")
    said = answered("trust", answer="y")
    (waiting,) = listed()
    name = str(waiting["id"])
    assert f"licet approvals approve {name} --key FILE" in said.replace("\r\n", "")
    assert "has 0 of 1 signatures" in run("check").output
    signed = run("approvals", "approve", name, "--key", str(tmp_path / "me.key"))
    assert (signed.exit_code, listed()[0]["state"]) == (0, "approved")
    assert "standing approval" not in run("check").output


def test_a_program_passes_its_id_to_the_gate(here: Path) -> None:
    given = give_standing(Path("licet.yaml"), [f"fs:delete:{here}"])
    state = state_of(Path("licet.yaml"))
    for name, stands in ((None, False), (given, True), ("a-1", False)):
        gate = Gate.load("licet.yaml", Backends.local(state), standing_approval=name)
        assert (gate.policy.manifest.standing is not None) is stands


@pytest.mark.parametrize(("searches", "finds"), [(True, True), (False, False)])
def test_one_that_is_given_later_counts_for_a_gate_that_searches_for_it(
    here: Path, searches: bool, finds: bool
) -> None:
    gate = (CommandGate if searches else Gate).load("licet.yaml", Backends.local(state_of(Path("licet.yaml"))))
    gate.renew_standing()
    assert gate.policy.manifest.standing is None
    given = give_standing(Path("licet.yaml"), [f"fs:delete:{here}"])
    gate.renew_standing()
    found = gate.policy.manifest.standing
    assert (found is not None and found.id == given) is finds
    run("approvals", "withdraw", given)
    gate.renew_standing()
    assert gate.policy.manifest.standing is None


def test_a_state_that_was_copied_to_another_machine_approves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("trust", "--yes")
    give_standing(Path("licet.yaml"), [f"fs:delete:{here}"])
    monkeypatch.setattr(standing.LocalStanding.__init__, "__defaults__", (lambda: "sha256:another",))
    assert "was given on another machine" in run("check").output


@needs_walls
def test_a_pulled_repository_deletes_nothing_without_the_person(here: Path) -> None:
    """The policy says that deletes need no question, and it was accepted with --yes, or is named, or is locked."""
    assert run("run", "licet.yaml", "--", "rm", "out/a").exit_code == 125
    run("trust", "--yes")
    run("lock")
    for words in (("run", "--", "rm", "out/a"), ("run", "licet.yaml", "--", "rm", "out/a")):
        assert run(*words).exit_code == 125
    assert (here / "out/a").exists()


def test_a_newer_approval_for_a_changed_policy_marks_the_older_one(here: Path) -> None:
    def give() -> str:
        policy = here / "licet.yaml"
        return acceptance.give_standing(load_manifest(policy), Places.here(None), state_of(policy), 30).request.id

    first = give()
    (here / "licet.yaml").write_text(POLICY.replace("[rm]", "[rm, ls]"))
    second, third = give(), give()
    assert [one["superseded_by"] for one in listed()] == [third, third, None]
    said = run("approvals", "list").output
    assert f"superseded by {third}, since this one counts only for the policy before it was changed" in said
    assert f"superseded by {third}, for the same policy; `licet approvals withdraw {second}` ends it" in said
    run("approvals", "withdraw", third)
    assert [(one["id"], one["superseded_by"]) for one in listed()] == [(first, second), (second, None)]
