"""`licet surface`: a table that reads well anywhere, the same as JSON, and a picture."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from cli.terminals import read_all
from licet.cli.app import licet

SCRIPT = Path(sysconfig.get_path("scripts")) / "licet"
WORKSPACE = """bundles:
  reading: {tools: [fetch, notes, unknown], sandbox: restricted, side_effect_class: read_only}
  writing: {tools: [save], sandbox: isolated, side_effect_class: full}
tools:
  fetch: {needs: ["network:https:*", "secret:read:KEY", "env:read:LANG"]}
  notes: {needs: ["fs:read:/srv/notes", "storage:*:session"]}
  save: {needs: ["fs:*:/srv/out", "process:exec:git"]}
  blocked: {needs: []}
  left: {needs: []}
"""
MANIFEST = """agent: research
version: "1.0"
capabilities:
  bundles: [reading, writing]
  tools: {blocked: {}, fetch: {max_calls: 5, max_cost_usd: 0.50}}
  max_side_effect_class: full
  destinations: {allow: [api.example.com], deny: [evil.example]}
  fs_reach: {read: [/srv], write: [/srv/out]}
  secrets: [KEY]
  env: [LANG]
  process: {allowed_binaries: [git, make]}
  deny: ["fs:*:/srv/notes/private"]
  budget: {max_calls_per_session: 9, max_calls_per_day: 99, max_cost_usd: 1.50, max_cost_usd_per_day: 20}
"""
TABLE = """\
agent    research 1.0
risk     high: deletes (save)
digest   sha256:{digest}
files    m.yaml, licet.yaml
at most  full
budget   9 calls a session, 99 calls a day, 1.5 USD a session, 20 USD a day

tool      runs as            reaches
────────────────────────────────────────────────────────────────────────────────
save      high risk          paths     /srv/out  read, write, delete
          full               binaries  git
          isolated
          in writing
          asks per session
          asks per delete
fetch     high risk          hosts    api.example.com  https read
          read_only          secrets  KEY
          restricted         env      LANG
          in reading
          5 calls
          0.5 USD
unknown   high risk          hosts     api.example.com  read
          read_only          paths     /srv  read except /srv/notes/private
          restricted         secrets   KEY
          in reading         binaries  git, make
                             env       LANG
                             storage   session, tool-private
                             tools     blocked, fetch, notes, save, unknown
notes     low risk           paths    /srv/notes  read except /srv/notes/private
          read_only          storage  session
          restricted
          in reading
blocked   no class           cannot be called
          no level
any       high risk          hosts     api.example.com  any protocol
command   full               paths     /srv  read except /srv/notes/private
          isolated                     /srv/out  write, delete
          asks per session   binaries  git, make
          asks per delete    env       LANG

undeclared   unknown is admitted but not declared; shown is the most that any
             declaration gives
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "licet.yaml").write_text(WORKSPACE)
    (tmp_path / "m.yaml").write_text(MANIFEST)
    return tmp_path


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(licet, ["surface", "m.yaml", *words], env={"COLUMNS": "80", **environment})


def test_the_table_shows_every_tool_and_what_it_reaches() -> None:
    said = run().stdout
    digest = json.loads(run("--json").stdout)["digest"].removeprefix("sha256:")
    assert said.startswith(TABLE.format(digest=digest))


def test_the_table_says_what_a_call_costs(here: Path) -> None:
    (here / "licet.yaml").write_text(WORKSPACE.replace("notes: {", "notes: {cost_usd: 0.25, "))
    assert "0.25 USD a call" in run(COLUMNS="200").stdout


def test_any_command_is_shown_where_there_is_no_tool_at_all(here: Path) -> None:
    (here / "licet.yaml").write_text("tools: {}\n")
    (here / "m.yaml").write_text("agent: a\ncapabilities: {process: {allowed_binaries: [wc]}}\n")
    said = run(COLUMNS="200").stdout
    assert message("surface.any_read_only_binaries_wc") in said
    assert message("surface.any_command_what_licet_run") in said
    assert "binaries  wc" in said
    assert "tools    none: only commands, with `licet run`" in said


def test_a_tool_that_reaches_nothing_has_no_risk(here: Path) -> None:
    (here / "licet.yaml").write_text("tools: {left: {needs: [], effect: read_only, sandbox: restricted}}\n")
    (here / "m.yaml").write_text("agent: a\ncapabilities: {tools: [left]}\n")
    assert "left   no risk " in run().stdout


def test_notes_are_printed_below_the_table() -> None:
    said = run(COLUMNS="200").stdout
    assert message("surface.blocked_blocked_cannot_be_called") in said
    assert message("surface.left_out_left_declared_but") in said
    assert "fs:*:/srv/notes/private (m.yaml:12)" in said
    assert "network:*:evil.example (m.yaml:7)" in said
    assert message("surface.closed_no_grant_writes_policy") in said
    assert "fs:write:" not in said


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut_off(columns: int, here: Path) -> None:
    host = f"{'long-' * 11}.{'very-' * 11}.example.com"
    (here / "m.yaml").write_text(MANIFEST.replace("api.example.com", host))
    lines = run(COLUMNS=str(columns)).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if line != line.rstrip() or "…" in line] == []
    # Long text continues below, in the same column.
    first = next(number for number, line in enumerate(lines) if "long-" in line)
    column = lines[first].index("long-")
    assert "".join(line[column:] for line in lines[first:]).startswith(host)


def test_an_agent_without_tools_is_told_so(here: Path) -> None:
    (here / "m.yaml").write_text("agent: nobody\n")
    assert message("surface.tools_none_nothing_can_be") in run().stdout


def test_text_from_files_cannot_act_on_the_terminal(here: Path) -> None:
    (here / "\x1b[2J.yaml").write_text(MANIFEST)
    result = CliRunner().invoke(licet, ["surface", "\x1b[2J.yaml"])
    assert result.exit_code == 1
    assert "\x1b" not in result.output
    assert result.stderr.startswith("\\u001b[2J.yaml:1:1: error: found the path")


def test_a_working_directory_that_no_rule_can_name_is_refused() -> None:
    result = run("--workdir", "/srv/a*b")
    assert result.exit_code == 2
    assert message("surface.no_rule_can_contain_path") in result.stderr


def test_brackets_in_text_are_text(here: Path) -> None:
    (here / "m.yaml").write_text(MANIFEST.replace("api.example.com", '"[::1]"'))
    (here / "licet.yaml").write_text(WORKSPACE.replace("/srv/notes", "/srv/[bold]"))
    said = run().stdout
    assert "[::1]  https read" in said
    assert "/srv/[bold]  read" in said


def test_json_has_the_complete_surface() -> None:
    result = run("--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (said["agent"], said["version"]) == ("research", "1.0")
    tools = {tool["name"]: tool for tool in said["tools"]}
    standings = {name: tool["standing"] for name, tool in tools.items()}
    assert standings == {
        "blocked": "blocked",
        "fetch": "callable",
        "notes": "callable",
        "save": "callable",
        "unknown": "undeclared",
    }
    assert [host["target"] for host in tools["fetch"]["reach"]["hosts"]] == ["api.example.com"]


@pytest.mark.parametrize(
    ("words", "workdir"), [([], "{here}"), (["--workdir", "/srv"], "/srv"), (["--workdir", "sub"], "{here}/sub")]
)
def test_json_says_which_directories_it_was_computed_with(words: list[str], workdir: str, here: Path) -> None:
    (here / "m.yaml").write_text(MANIFEST.replace("read: [/srv]", 'read: ["${workdir}/x", "~/y", /srv/notes]'))
    said = json.loads(run("--json", *words, HOME="/home/somebody").stdout)
    assert (said["workdir"], said["home"]) == (workdir.format(here=here), "/home/somebody")
    [unknown] = [tool for tool in said["tools"] if tool["name"] == "unknown"]
    paths = {path["target"] for path in unknown["reach"]["paths"]}
    assert {f"{said['workdir']}/x", f"{said['home']}/y"} <= paths


def test_the_picture_names_directories_as_the_table_does(here: Path) -> None:
    manifest = here / "m.yaml"
    manifest.write_text(MANIFEST.replace("read: [/srv]", "read: [/srv, '${workdir}/x', '~/y']"))
    picture = run("--svg", "-", HOME="/home/somebody").stdout
    assert "${workdir}/x" in picture
    assert "~/y" in picture
    assert str(here) not in picture
    assert "/home/somebody" not in picture


@pytest.mark.parametrize("target", ["map.svg", "-"])
def test_the_picture_is_a_picture_of_this_surface(target: str, here: Path) -> None:
    result = run("--svg", target)
    assert result.exit_code == 0, result.output
    picture = result.stdout if target == "-" else (here / target).read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert "research" in picture
    assert "api.example.com" in picture
    if target != "-":
        assert (result.stdout, result.stderr) == ("", "wrote map.svg\n")


def test_a_picture_that_cannot_be_written_is_said_plainly() -> None:
    result = run("--svg", "gone/map.svg")
    assert result.exit_code == 1
    assert result.stderr == message("surface.cannot_write_gone_map_svg")


def test_a_picture_replaces_a_picture_in_one_step_and_keeps_who_may_read_it(here: Path) -> None:
    picture, second = here / "map.svg", here / "second.svg"
    picture.write_text("old")
    picture.chmod(0o640)
    os.link(picture, second)  # the old file is not written to, so a process that has it open reads it undisturbed
    assert run("--svg", "map.svg").exit_code == 0
    assert picture.read_text("utf-8").startswith("<svg")
    assert picture.stat().st_mode & 0o777 == 0o640
    assert second.read_text() == "old"


def test_a_picture_replaces_a_link_and_not_what_it_leads_to(here: Path) -> None:
    (here / "private").write_text("mine")
    (here / "private").chmod(0o600)
    (here / "map.svg").symlink_to("private")
    assert run("--svg", "map.svg").exit_code == 0
    assert (here / "private").read_text() == "mine"
    assert not (here / "map.svg").is_symlink()


def test_a_picture_that_cannot_be_finished_leaves_the_old_one(here: Path) -> None:
    (here / "map.svg").write_text("old")
    before = sorted(os.listdir(here))
    # As on a full disk: a part of the picture can be written. No half compiled module may be left either.
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (99, 99))"
    program = f"import os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", program, str(SCRIPT), "surface", "m.yaml", "--svg", "map.svg"]
    alone = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=alone)
    assert (done.returncode, done.stderr) == (1, message("surface.cannot_write_map_svg_file"))
    assert (here / "map.svg").read_text() == "old"
    assert sorted(os.listdir(here)) == before


def test_a_picture_never_replaces_a_file_that_is_no_picture(here: Path) -> None:
    before = (here / "m.yaml").read_text("utf-8")
    result = run("--svg", "m.yaml")
    assert result.exit_code == 2
    assert message("surface.yaml_exists_does_not_end") in result.stderr
    assert (here / "m.yaml").read_text("utf-8") == before


def test_a_manifest_that_is_wrong_is_not_shown(here: Path) -> None:
    (here / "m.yaml").write_text("agent: 7\n")
    result = run()
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("m.yaml:1:8: error: found ")


@pytest.mark.parametrize(
    ("settings", "coloured"),
    [({"TERM": "xterm-256color"}, True), ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False)],
)
@pytest.mark.sampled(1)
def test_a_terminal_gets_colours_unless_it_asks_for_none(settings: dict[str, str], coloured: bool) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    master, slave = os.openpty()
    subprocess.run([SCRIPT, "surface", "m.yaml"], check=True, stdout=slave, env=environment | settings)
    os.close(slave)
    said = read_all(master)
    os.close(master)
    # Bold is no colour; NO_COLOR leaves it.
    assert ("\x1b[33m" in said) == coloured
    assert "fetch" in said


@pytest.mark.parametrize(
    ("settings", "colours"),
    [
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
@pytest.mark.parametrize("words", [("surface", "m.yaml"), ("explain", "m.yaml", "fetch", "https://x.example")])
def test_colours_can_be_forced_in_a_pipe(words: tuple[str, ...], settings: dict[str, str], colours: bool) -> None:
    said = (
        CliRunner(env={"NO_COLOR": None, "FORCE_COLOR": None, "TERM": "xterm"} | settings).invoke(licet, words).stdout
    )
    assert bool(re.search("\x1b\\[[0-9;]*3[0-9]m", said)) == colours


def test_a_pipe_gets_no_codes_at_all() -> None:
    done = subprocess.run(
        [SCRIPT, "surface", "m.yaml"], check=True, capture_output=True, text=True, env=os.environ | {"TERM": "xterm"}
    )
    assert "\x1b" not in done.stdout


def test_the_page_shows_each_deny_on_a_line_of_its_own(here: Path) -> None:
    (here / "m.yaml").write_text(MANIFEST.replace('private"]', 'private", "fs:*:/srv/x"]'))
    assert run("--html", "page.html").exit_code == 0
    text = (here / "page.html").read_text("utf-8")
    assert "fs:*:/srv/notes/private (m.yaml:12)<br>fs:*:/srv/x (m.yaml:12)" in text
    assert "u000a" not in text
