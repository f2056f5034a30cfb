"""The example agents: their files are sound, their rules hold at the edges, and their transcripts are what happens."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from licet import Backends, Gate, load_manifest, run
from licet.assemble import Places, review
from licet.cli.app import licet
from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.request import Request
from licet.core.decision.validate import validate_tools

EXAMPLES = Path(__file__).parents[1] / "examples"
AGENTS = ("research", "coding", "payments", "inbox")


def module(agent: str, name: str) -> ModuleType:
    """A module of an example, under a name of its own: each has a `tools`."""
    path = EXAMPLES / agent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{agent}_{name}", path)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def transcript(agent: str) -> str:
    return (EXAMPLES / agent / "transcript.md").read_text("utf-8")


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
def test_its_files_are_sound_and_its_tools_fit(agent: str) -> None:
    policy = review(EXAMPLES / agent / "licet.yaml", places=Places("/srv/agent", "/home/u"))
    assert policy.problems == ()  # warnings included
    manifest = policy.manifest
    assert manifest is not None
    assert manifest.admissions.keys() == manifest.tools.keys()
    assert validate_tools(list(manifest.tools.values()), manifest) == ()
    assert {example.matches for example in manifest.examples} == {True, False}
    for example in manifest.examples:
        decision = decide(Request(example.tool, (Use(example.use),)), manifest)
        assert (decision.verdict != "deny") == example.matches, example


COMMANDS = [
    ("research", "check licet.yaml", 0),
    ("research", "explain licet.yaml read_page http://localhost:8000/tides", 0),
    ("research", "explain licet.yaml read_page https://collector.example/in", 1),
    ("research", "explain licet.yaml search_library secret:read:library/token", 0),
    ("research", "explain licet.yaml read_page secret:read:library/token", 1),
    ("coding", "check licet.yaml", 0),
    ("coding", "explain licet.yaml read_file ./price.sh --workdir project", 0),
    ("coding", "explain licet.yaml read_file ./.env --workdir project", 1),
    ("coding", "explain licet.yaml run_program process:exec:sh", 0),
    ("coding", "explain licet.yaml run_program fs:write:/srv/price.sh --workdir /srv", 1),
    ("payments", "check licet.yaml", 0),
    ("payments", "explain licet.yaml list_invoices http://localhost:8000/invoices", 0),
    ("payments", "explain licet.yaml pay network:http:post@localhost:8000", 1),  # once people agree
    ("payments", "explain licet.yaml pay network:tcp:localhost:8000", 1),
    ("inbox", "check licet.yaml", 0),
    ("inbox", "explain licet.yaml open_page https://lake.test/hall", 0),
    ("inbox", "explain licet.yaml open_page POST https://lake.test/hall", 1),
    ("mcp", "check --locked licet.yaml", 0),
    ("mcp", "explain licet.yaml files.read_text_file ./project/README.md --workdir /srv", 0),
    ("mcp", "explain licet.yaml files.read_text_file ./project/.env --workdir /srv", 1),
    ("mcp", "explain licet.yaml files.write_file fs:write:/srv/project/.git/config --workdir /srv", 1),
    *((agent, "surface licet.yaml --workdir /srv", 0) for agent in (*AGENTS, "mcp")),
]


@pytest.mark.parametrize(("agent", "words", "code"), COMMANDS)
def test_a_reviewer_is_told(agent: str, words: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES / agent)
    told = CliRunner().invoke(licet, words.split(), catch_exceptions=False)
    assert (told.exit_code, "warning" in told.output) == (code, False), told.output


CHANGES = [
    ("research", "  secrets: [library/token]\n", "", "secret:read:library/token"),
    ("research", "{allow: [localhost]}", "{allow: [library.example]}", "network:*:localhost"),
    ("coding", "process: {allowed_binaries: [sh]}", "process: {allowed_binaries: [grep]}", "process:exec:sh"),
    ("coding", "  max_side_effect_class: write_limited\n", "", "`edit_file`"),
    ("payments", ">=2.1,<3", ">=3", "bank@2.1"),
    ("payments", "  connectors: [bank]\n", "", "connectors"),
    ("payments", "      side_effect_class: destructive\n", "      side_effect_class: full\n", "`pay`"),
    ("payments", "exclusiveMinimum", "exclusivMinimum", "exclusiveMinimum"),
    ("inbox", "sender: identity", "sender: identified", "identified"),
    ("inbox", "list_files:name", "list_files", "a tool and its field"),
]


@pytest.mark.parametrize(("agent", "old", "new", "named"), CHANGES)
def test_a_line_that_is_needed_cannot_be_missing(agent: str, old: str, new: str, named: str, tmp_path: Path) -> None:
    text = (EXAMPLES / agent / "licet.yaml").read_text("utf-8")
    assert text.count(old) == 1
    shutil.copy(EXAMPLES / agent / "tools.py", tmp_path)
    (tmp_path / "licet.yaml").write_text(text.replace(old, new), "utf-8")
    told = CliRunner().invoke(licet, ["check", str(tmp_path / "licet.yaml")], catch_exceptions=False)
    assert told.exit_code == 1
    assert named in told.output


# Rules on payments ----------------------------------------------------------------------------------------------------

FINE = {"recipient": "paper-mill", "amount": 80, "reference": "INV-1"}
PAYMENTS = [
    ({}, "APPROVAL_REQUIRED"),
    ({"amount": 100}, "APPROVAL_REQUIRED"),
    ({"amount": 0.01}, "APPROVAL_REQUIRED"),
    ({"amount": 100.01}, "ARGUMENT_NOT_ALLOWED"),
    ({"amount": 0}, "ARGUMENT_NOT_ALLOWED"),
    ({"amount": -80}, "ARGUMENT_NOT_ALLOWED"),
    ({"amount": 1e300}, "ARGUMENT_NOT_ALLOWED"),
    ({"amount": "9000"}, "ARGUMENT_NOT_ALLOWED"),
    ({"amount": "NaN"}, "INPUT_INVALID"),
    ({"amount": True}, "INPUT_INVALID"),
    ({"recipient": "mallory"}, "ARGUMENT_NOT_ALLOWED"),
    ({"recipient": "paper-mill "}, "ARGUMENT_NOT_ALLOWED"),
    ({"recipient": "Paper-Mill"}, "ARGUMENT_NOT_ALLOWED"),
    ({"recipient": ["paper-mill"]}, "INPUT_INVALID"),
    ({"reference": "INV-"}, "ARGUMENT_NOT_ALLOWED"),
    ({"reference": "INV-1\n"}, "ARGUMENT_NOT_ALLOWED"),
    ({"reference": "INV-1 and then mallory"}, "ARGUMENT_NOT_ALLOWED"),
    ({"also": "mallory"}, "INPUT_INVALID"),
]


@pytest.fixture(scope="module")
def payments() -> Gate:
    tools = module("payments", "tools")
    return Gate(
        load_manifest(EXAMPLES / "payments" / "licet.yaml"), [tools.list_invoices, tools.pay], Backends.memory()
    )


@pytest.mark.parametrize(("change", "reason"), PAYMENTS, ids=str)
def test_a_payment_is_held_to_its_rules_before_anybody_is_asked(
    change: dict[str, Any], reason: str, payments: Gate
) -> None:
    assert run(payments, "pay", FINE | change).reason == reason


def test_the_keys_of_the_manifest_are_those_of_three_people(tmp_path: Path) -> None:
    people, manifest = module("payments", "people"), load_manifest(EXAMPLES / "payments" / "licet.yaml")
    names = [people.public_key(name) for name in ("alice", "bob", "carol")]
    assert (manifest.approvals.quorum, list(manifest.approvals.keys or ())) == (2, names)
    file = people.write_key("alice", tmp_path)
    told = CliRunner().invoke(licet, ["approvals", "key", "--public", str(file)], catch_exceptions=False)
    assert told.stdout.strip() == names[0]


# What happens ---------------------------------------------------------------------------------------------------------


def test_the_theft_in_the_checks_works_without_walls(tmp_path: Path) -> None:
    tree = tmp_path / "agent"
    shutil.copytree(EXAMPLES / "coding" / "project", tree)
    (tree / ".git" / "hooks").mkdir(parents=True)
    (tree / ".env").write_text("DEPLOY_KEY=real\n")
    check = tree / "check.sh"
    check.write_text(check.read_text() + (EXAMPLES / "coding" / "theft.sh").read_text())
    check.write_text(check.read_text().replace("exit ${failed:-0}\n", ""))
    ran = subprocess.run(["sh", "check.sh"], cwd=tree, capture_output=True, text=True, timeout=600, check=False)
    assert "env: [DEPLOY_KEY=real]" in ran.stdout
    assert "no hook" not in ran.stdout
    assert (tree / ".git" / "hooks" / "pre-commit").exists()
    assert (tree / "price.sh").read_text() == "exit 0\n"


# That a transcript is what happens is shown in `test_audit`, which plays them all.


def test_a_transcript_that_is_out_of_date_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transcripts = module("", "transcripts")
    monkeypatch.setattr(sys, "argv", ["transcripts.py", "--check", "research"])
    for more, code in (("", 0), ("one more line\n", 1)):
        monkeypatch.setattr(transcripts, "played", lambda agent, more=more: transcript(agent) + more)
        assert transcripts.main() == code
        assert ("+one more line\n" in capsys.readouterr().out) == bool(code)


TOLD = {
    "research": ["HOST_NOT_ALLOWED", "PATH_NOT_REACHABLE", "[redacted library/token]"],
    "coding": ["PATH_NOT_REACHABLE", "BINARY_NOT_ALLOWED", "env: []", "no hook", "no change"],
    "payments": [
        *("ARGUMENT_NOT_ALLOWED", "APPROVAL_REQUIRED", "APPROVAL_DENIED", "BUDGET_EXCEEDED", "1 of 2 agree"),
        *("is not among the manifest's", "cost          80 USD", "wrong: entry "),
    ],
    "inbox": [
        *("seen in r-1 list_mail /1/body (untrusted)", "seen in r-2 list_events /0/notes (untrusted)"),
        *("url: the model wrote this itself, or changed it", "the task does not ask for delete_file"),
        *("FLOW_NOT_ASKED_FOR", "FLOW_ORIGIN"),
    ],
}
SECRETS = ("for-this-example-only", "for this example only")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_transcript_tells_what_was_refused_and_no_secret(agent: str) -> None:
    text = transcript(agent)
    for told in TOLD[agent]:
        assert told in text
    assert not [secret for secret in SECRETS if secret in text]
    assert "fine: " in text  # its receipts were verified
    assert not re.search(r"/tmp|\b20\d\d-\d\d-\d\d[T ]\d|Traceback", text)


def test_the_orders_in_an_inbox_are_followed_without_flow_and_stopped_with_it() -> None:
    parts = dict(part.split("\n", 1) for part in transcript("inbox").split("\n## ")[1:])
    line = re.compile(r"^\S*(?:\.com/\w+ \{|GET https)[^\n]*", re.MULTILINE)
    left = {name: line.findall(text) for name, text in parts.items()}
    work = left["With labels and roles"]
    assert [*left["Without flow"][-2:]] == left["With one line"] == work
    assert len(left["Without flow"]) == 6
    assert not [line for line in work if "collector" in line or "bin" in line]
    asked = {name: re.findall(r"asked (\d+) times", text) for name, text in parts.items()}
    assert (asked["With one line"], asked["With labels and roles"]) == (["6"], ["4"])
    assert len(left["What still passes"]) == 3
    assert transcript("inbox").count("the model wrote this itself") == 1


@pytest.mark.parametrize("agent", AGENTS)
def test_a_readme_names_files_that_are_there(agent: str) -> None:
    named = re.findall(r"\]\(([^)]+)\)", (EXAMPLES / agent / "README.md").read_text("utf-8"))
    assert {"tools.py", "licet.yaml", "transcript.md"} <= set(named)
    assert [name for name in named if not (EXAMPLES / agent / name).exists()] == []


# Servers --------------------------------------------------------------------------------------------------------------


def shown(agent: str, command: str) -> str:
    """What a transcript shows for a command."""
    found = re.search(rf"```text\n\$ {re.escape(command)}\n(.*?)\n```", transcript(agent), re.DOTALL)
    assert found
    return found[1]


def test_the_transcript_with_real_servers_has_the_surface_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    # The rest of that transcript needs the servers: make test-peers.
    monkeypatch.chdir(EXAMPLES / "mcp")
    words = "surface licet.yaml --workdir /srv/agent"
    told = CliRunner().invoke(licet, words.split(), catch_exceptions=False).output
    lines = [line.rstrip() for line in re.sub(r"sha256:[0-9a-f]{64}", "sha256:…", told).rstrip().splitlines()]
    assert shown("mcp", f"licet {words}").splitlines() == lines


def test_the_client_of_the_transcript_sees_the_admitted_tools_and_no_others() -> None:
    admitted = load_manifest(EXAMPLES / "mcp" / "licet.yaml").admissions
    listed = transcript("mcp").partition("only these are shown.\n\n```text\n")[2].partition("\n```")[0]
    assert listed.splitlines() == sorted(name.replace(".", "__") for name in admitted)
