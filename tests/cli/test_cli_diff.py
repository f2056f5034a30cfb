"""`licet diff`: what grew, what shrank, and the exit code that a review can stop on."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from licet.cli.app import licet

SHARED = """tools:
  t: {needs: ["network:*:*"], effect: read_only, sandbox: restricted}
"""
MANIFEST = """agent: a
capabilities:
  tools: [t]
  destinations: {allow: [%s]}
"""
HOST, OTHER = "one.example", "two.example"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "licet.yaml").write_text(SHARED)
    return tmp_path


def compare(old: str, new: str, *words: str) -> Result:
    Path("old/m.yaml").write_text(MANIFEST % old)
    Path("new/m.yaml").write_text(MANIFEST % new)
    return CliRunner().invoke(licet, ["diff", "old/m.yaml", "new/m.yaml", *words])


GROWN = f"+ t: network:read:{OTHER}  (new/m.yaml:4)"
RISK = "; riskiest: low: reads from the network"
SHRUNK = f"− t: network:read:{HOST}  (old/m.yaml:4)"


@pytest.mark.parametrize(
    ("old", "new", "lines", "summary"),
    [
        (HOST, HOST, [], "no difference"),
        (f"{HOST}, {OTHER}", f'"{OTHER}",   {HOST}', [], "no difference"),
        (HOST, f"{HOST}, {OTHER}", [GROWN], f"1 grown{RISK}"),
        (f"{HOST}, {OTHER}", OTHER, [SHRUNK], "1 shrunk"),
        (HOST, OTHER, [GROWN, SHRUNK], f"1 grown, 1 shrunk{RISK}"),
    ],
)
def test_lines_say_what_grew_and_what_shrank(old: str, new: str, lines: list[str], summary: str) -> None:
    result = compare(old, new)
    assert result.stdout.splitlines() == lines
    assert result.stderr == f"{summary}\n"
    assert result.exit_code == (1 if GROWN in lines else 0)


@pytest.mark.parametrize(
    ("versions", "hosts", "said"),
    [
        (("1.0", "1.0"), (HOST, OTHER), "new/m.yaml: its contents changed, and its version is still 1.0\n"),
        (("1.0", "1.1"), (HOST, OTHER), ""),
        (("1.0", "1.0"), (HOST, HOST), ""),
    ],
)
def test_other_contents_under_the_same_version_are_named(
    versions: tuple[str, str], hosts: tuple[str, str], said: str
) -> None:
    for folder, version, host in zip(("old", "new"), versions, hosts, strict=True):
        Path(folder, "m.yaml").write_text(f'version: "{version}"\n{MANIFEST % host}')
    result = CliRunner().invoke(licet, ["diff", "old/m.yaml", "new/m.yaml"])
    assert result.stderr.partition("\n")[2] == said
    data = json.loads(CliRunner().invoke(licet, ["diff", "old/m.yaml", "new/m.yaml", "--json"]).stdout)
    assert data.get("same_version") == ("1.0" if said else None)


def test_a_new_name_is_a_change_that_neither_grows_nor_shrinks(here: Path) -> None:
    compare(HOST, HOST)
    (here / "new/m.yaml").write_text((MANIFEST % HOST).replace("agent: a", "agent: b"))
    result = CliRunner().invoke(licet, ["diff", "old/m.yaml", "new/m.yaml"])
    assert (result.exit_code, result.stdout) == (0, "~ agent: a → b  (new/m.yaml:1)\n")


def test_a_tool_that_can_newly_be_called_is_named_once(here: Path) -> None:
    compare(HOST, HOST)
    (here / "old/m.yaml").write_text("agent: a\n")
    result = CliRunner().invoke(licet, ["diff", "old/m.yaml", "new/m.yaml"])
    assert result.stdout.splitlines()[0] == message("diff.can_be_called_new_licet")


@pytest.mark.parametrize(
    ("old", "new", "fail_on", "code"),
    [
        (HOST, OTHER, "grown", 1),
        (HOST, OTHER, "changed", 1),
        (HOST, OTHER, "none", 0),
        (f"{HOST}, {OTHER}", OTHER, "grown", 0),
        (f"{HOST}, {OTHER}", OTHER, "changed", 1),
        (HOST, HOST, "changed", 0),
    ],
)
def test_the_reviewer_chooses_what_fails(old: str, new: str, fail_on: str, code: int) -> None:
    assert compare(old, new, "--fail-on", fail_on).exit_code == code


def test_json_has_both_digests_and_every_change() -> None:
    result = compare(HOST, OTHER, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (1, "")
    assert said["old"].startswith("sha256:")
    assert said["old"] != said["new"]
    assert [change["text"] for change in said["grown"]] == [f"network:read:{OTHER}"]
    assert [change["origin"] for change in said["shrunk"]] == ["old/m.yaml:4:26"]
    assert said["changed"] == []


def test_each_side_has_its_own_workspace_or_both_are_given_one(here: Path) -> None:
    (here / "tight.yaml").write_text(SHARED + f"destinations: {{allow: [{HOST}]}}\n")
    both = f"{HOST}, {OTHER}"
    assert compare(both, both).exit_code == 0
    assert compare(both, both, "--old-workspace", "tight.yaml").stdout.splitlines() == [GROWN]
    assert compare(both, both, "--new-workspace", "tight.yaml").exit_code == 0
    assert compare(both, both, "--workspace", "tight.yaml", "--fail-on", "changed").exit_code == 0


def test_a_personality_narrows_both_sides(here: Path) -> None:
    (here / "p.yaml").write_text(f"id: p\ntoolset: [t]\nsafety: {{network: {{allow: [{HOST}]}}}}\n")
    assert compare(HOST, f"{HOST}, {OTHER}", "--personality", "p.yaml").exit_code == 0


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_side_that_is_wrong_ends_with_1_and_says_why(side: str, here: Path) -> None:
    compare(HOST, HOST)
    (here / side / "m.yaml").write_text("agent: 7\n")
    result = CliRunner().invoke(licet, ["diff", "old/m.yaml", "new/m.yaml", "--fail-on", "none"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{side}/m.yaml:1:8: error: found ")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("t: {}", "t: {max_calls: 3}", "− t: max_calls: no limit → 3  (old/m.yaml:4)"),
        ("t: {max_calls: 3}", "t: {max_calls: 5}", "+ t: max_calls: 3 → 5  (new/m.yaml:4)"),
        ("t: {max_calls: 3}", "t: {}", "+ t: max_calls: 3 → no limit  (new/m.yaml:4)"),
        ("t: {max_cost_usd: 3}", "t: {max_cost_usd: 5}", "+ t: max_cost_usd: 3 → 5  (new/m.yaml:4)"),
        ("t: {limits: {processes: 3}}", "t: {limits: {processes: 5}}", "+ t: processes: 3 → 5  (new/m.yaml:4)"),
        (
            't: {args: {to: {const: "a"}}}',
            't: {args: {to: {const: "b"}}}',
            '+ t: rules on `to`: {"const":"a"} → {"const":"b"}  (new/m.yaml:4)',
        ),
    ],
    ids=["stated", "raised", "left out", "money", "limits", "arguments"],
)
def test_what_a_manifest_states_about_a_tool_is_cited_there(before: str, after: str, line: str) -> None:
    manifest = "agent: a\ncapabilities:\n  tools:\n    {}\n  destinations: {{allow: [one.example]}}\n"
    Path("old/m.yaml").write_text(manifest.format(before))
    Path("new/m.yaml").write_text(manifest.format(after))
    result = CliRunner().invoke(licet, ["diff", "old/m.yaml", "new/m.yaml"])
    assert result.stdout.splitlines() == [line], result.output
