"""`licet check`: every problem of every file, in one run and in three formats."""

import json
import os
import re
import subprocess
import sysconfig
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from cli.terminals import read_all
from licet.cli.app import licet

SCRIPT = Path(sysconfig.get_path("scripts")) / "licet"

MANIFEST = "agent: a\ncapabilities: {bundles: [b], destinations: {allow: [api.example.com]}}\n"
BUNDLE = "bundles: {b: {tools: [t], sandbox: restricted, side_effect_class: read_only}}\n"
SOURCE = """from licet import tool

@tool(capabilities={"network": {"allowed_hosts": ["%s"]}})
def t() -> None: ...
"""


SECRET = "hunter2-xyz"
FOREIGN = {
    "one.env": f"shop/token={SECRET}\n",
    "several.env": f"# keys\nshop/token={SECRET}\nother={SECRET}\n",
    "colon.env": f"shop/token={SECRET}: {SECRET}\n",
    "colons.env": f"{SECRET}: {SECRET}\n{SECRET}2: {SECRET}\n",
    "quoted.yaml": f'"{SECRET}"\n',
    "text.json": f'"{SECRET}"',
    "number.yaml": "31337\n",
    "hidden.env": f"{SECRET}\u200b\n",
    "hidden-quoted.yaml": f'"{SECRET}\\u200b"\n',
    "hidden-key.yaml": f"{SECRET}\u200b: x\n",
    "hidden-item.yaml": f"- {SECRET}\u200b\n",
    "hidden-nested.yaml": f"- x:\n    agent: {SECRET}\u200b\n",
    "tag.yaml": f"- !{SECRET} x\n",
    "anchor.yaml": f"- *{SECRET}\n",
    "twice.yaml": f"- {{{SECRET}: 1, {SECRET}: 2}}\n",
    "huge.yaml": "- 3133731337313373133731337\n",
    "number-key.yaml": "31337: x\n",
    "ini.conf": f"[keys]\n{SECRET} = x\n",
    "after.yaml": f'"keys" {SECRET}\n',
    "after.json": f'"keys" {SECRET}\n',
    "open.json": f'{{"keys": {SECRET}\n',
    "open.yaml": f"{{keys: [x] {SECRET}\n",
    "broken.yaml": f"keys: 'x' {SECRET}\n",
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("words", [["check"], ["check", "--json"], ["surface"], ["explain"]], ids=" ".join)
def test_nothing_of_a_file_that_is_no_policy_is_repeated(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(FOREIGN[name])
    result = CliRunner().invoke(licet, [*words, name, *(["t"] if words == ["explain"] else [])])
    assert result.exit_code == 1
    assert message("check.policy_file_mapping_agent") in result.output
    assert SECRET not in result.output
    assert "31337" not in result.output


@dataclass(frozen=True)
class Case:
    """Files, a command line, and all expected lines."""

    name: str
    files: dict[str, str]
    words: list[str]
    code: int
    lines: list[str]
    summary: str


CASES = [
    Case(
        "a sound manifest is fine",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE + "tools: {t: {needs: ['network:https:api.example.com']}}\n"},
        ["m.yaml", "licet.yaml"],
        0,
        [],
        "2 files, fine",
    ),
    Case(
        "problems of several files come in the order of files, lines and columns",
        {"z.yaml": "agent: 7\n", "a.yaml": "agent: a\ncapabilities: {env: [=, PATH], secrets: ['/', '/']}\n"},
        ["z.yaml", "a.yaml"],
        1,
        [
            "a.yaml:2:22: error: found `=`, expected the name of an environment variable…",
            "a.yaml:2:42: error: found `/`, expected a secret reference…",
            "a.yaml:2:47: error: found `/`, expected a secret reference…",
            "z.yaml:1:8: error: found a number `7`, expected a name…; quote it if you mean the text",
        ],
        "2 files, 4 errors",
    ),
    Case(
        "a warning is shown and is not fatal",
        {"m.yaml": "agent: a\ncapabilities: {destinations: {allow: ['*.github.io']}}\n"},
        ["m.yaml"],
        0,
        ["m.yaml:2:39: warning: found `*.github.io`, expected …"],
        "1 file, 1 warning",
    ),
    Case(
        "a file that is not there is a problem like others",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE + "tools: {t: {needs: []}}\n"},
        ["m.yaml", "gone.yaml"],
        1,
        ["gone.yaml:1:1: error: found no file there, expected a policy file"],
        "2 files, 1 error",
    ),
    Case(
        "a Python file is not a policy",
        {"t.py": SOURCE % "x.example"},
        ["t.py"],
        1,
        ["t.py:1:1: error: found a Python file, expected a policy file in YAML or JSON; `licet init t.py` writes …"],
        "1 file, 1 error",
    ),
    Case(
        "a directory is not a policy; the files in it that may be meant are named",
        {
            "d/b.yml": "",
            "d/licet.yaml": "",
            "d/a.json": "",
            "d/.hidden.yaml": "",
            "d/t.py": "",
            "d/e.yaml/x": "",
        },
        ["d"],
        1,
        ["d:1:1: error: found a directory, expected a policy file; perhaps `d/licet.yaml`, `d/a.json`, `d/b.yml`"],
        "1 file, 1 error",
    ),
    Case(
        "a directory with one file, and one with many",
        {"one/m.yaml": "", **{f"many/{letter}.yaml": "" for letter in "fedcba"}},
        ["one", "many"],
        1,
        [
            "many:1:1: error: found a directory, expected a policy file; perhaps `many/a.yaml`, …, `many/e.yaml` …",
            "one:1:1: error: found a directory, expected a policy file; perhaps `one/m.yaml`",
        ],
        "2 files, 2 errors",
    ),
    Case(
        "directories that stand for other files of a policy",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE, "empty/t.py": "", "d/p.yaml": ""},
        ["m.yaml", "--workspace", "empty", "--personality", "d"],
        1,
        [
            "d:1:1: error: found a directory, expected a policy file; perhaps `d/p.yaml`",
            "empty:1:1: error: found a directory, expected a policy file; there is none in it",
        ],
        "1 file, 2 errors",
    ),
    Case(
        "a tool that is declared in source and does not fit is a problem there",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE + "tools: {t: {from: 't:t'}}\n", "t.py": SOURCE % "api.stripe.com"},
        ["m.yaml"],
        1,
        ["t.py:3:1: error: found that `t` needs network:*:api.stripe.com, …, expected a tool that fits the agent …; …"],
        "1 file, 1 error",
    ),
    Case(
        "a tool that is declared in the workspace and does not fit is a problem there, with the way out",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE + "tools: {t: {needs: ['secret:read:KEY'], effect: full}}\n"},
        ["m.yaml"],
        1,
        [
            "licet.yaml:2:9: error: found that `t` does not fit: class full needs a budget …; add `budget: …",
            "licet.yaml:2:9: error: found that `t` is full; at most read_only is allowed (licet.yaml:1), …; set …",
            "licet.yaml:2:9: error: found that `t` is full; at most read_only is allowed, the default …; set …",
            "licet.yaml:2:9: error: found that `t` needs secret:read:KEY, …; add `KEY` under …, or narrow what …",
        ],
        "1 file, 4 errors",
    ),
    Case(
        "what is wrong with sources is told beside what is wrong with the files, and fit is not guessed at",
        {
            "m.yaml": "agent: a\ncapabilities: {bundles: [nowhere], tools: [good, typo]}\n",
            "licet.yaml": "tools:\n  good: {from: 'tools:good'}\n  typo: {from: 'tools:god'}\n  crash:\n",
            "tools.py": "from licet import tool\n@tool(needs=['env:read:A'], effect='reed_only')\ndef good(): ...\n",
        },
        ["m.yaml"],
        1,
        [
            "licet.yaml:3:16: error: found no `god` in tools.py, expected …",
            "licet.yaml:4:9: error: found nothing, expected a mapping with `from`, …; write `{}` for an empty …",
            "m.yaml:2:26: error: found the bundle `nowhere`, expected a bundle of the workspace; …",
            "tools.py:2:36: error: found `reed_only`, expected one of …",
        ],
        "1 file, 4 errors",
    ),
    Case(
        "a workspace alone is looked through to its sources",
        {"licet.yaml": "tools:\n  x: {}\n  y: {from: 'tools:god'}\n", "tools.py": "\n"},
        ["licet.yaml"],
        1,
        [
            "licet.yaml:2:3: error: found neither `from` nor `needs`, expected …",
            "licet.yaml:3:13: error: found no `god` in tools.py, expected …",
        ],
        "1 file, 2 errors",
    ),
    Case(
        "a key that is misspelt is one problem and not two",
        {"m.yaml": "agnet: a\ntools: {t: {form: 'tools:t'}}\ncapabilities: {}\n"},
        ["m.yaml"],
        1,
        [
            "m.yaml:1:1: error: found the key `agnet`, expected …; did you mean `agent`?",
            "m.yaml:2:13: error: found the key `form`, expected …; did you mean `from`?",
        ],
        "1 file, 2 errors",
    ),
    Case(
        "a name under native that does nothing is told, and one that does is not",
        {
            "m.yaml": "agent: a\ncapabilities:\n  tools: {t: {}, u: {sandbox: restricted}, v: {sandbox: native}}\n"
            "  native: [t, u, v]\n",
            "licet.yaml": "tools:\n  t: {needs: [], effect: read_only, sandbox: isolated}\n"
            "  u: {needs: [], effect: read_only}\n  v: {needs: [], effect: read_only}\n",
        },
        ["m.yaml"],
        0,
        [
            'm.yaml:4:3: warning: found `t` in `native`, but `sandbox="isolated"` on the tool, expected …',
            "m.yaml:4:3: warning: found `u` in `native`, but `sandbox: restricted`, expected a tool of level native; …",
        ],
        "1 file, 2 warnings",
    ),
    Case(
        "a tool of the workspace that this agent does not have is no problem of it",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE + "tools: {t: {needs: []}, u: {needs: ['fs:read:/x']}}\n"},
        ["m.yaml"],
        0,
        [],
        "1 file, fine",
    ),
    Case(
        "tools that no file declares are said once",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE.replace("[t]", "[t, u]")},
        ["m.yaml"],
        0,
        ["licet.yaml:1:23: warning: found 2 tools without a declaration (`t`, `u`), expected `from` or `needs` …"],
        "1 file, 1 warning",
    ),
    Case(
        "a tool that nothing declares may be another one, misspelt",
        {
            "m.yaml": MANIFEST,
            "licet.yaml": BUNDLE.replace("[t]", "[fetch_wether]") + "tools: {fetch_weather: {needs: []}}\n",
        },
        ["m.yaml"],
        0,
        ["licet.yaml:1:23: warning: found a tool …; did you mean `fetch_weather` by `fetch_wether`?"],
        "1 file, 1 warning",
    ),
    Case(
        "each of several is told which, and what is not near is not offered",
        {
            "m.yaml": MANIFEST,
            "licet.yaml": BUNDLE.replace("[t]", "[raeder, upload, lster]")
            + "tools: {reader: {needs: []}, lister: {from: 'gone:x'}, far: {needs: []}}\n",
        },
        ["m.yaml"],
        1,
        [
            "licet.yaml:1:23: warning: found 3 tools …; did you mean `reader` by `raeder`, `lister` by `lster`?",
            "licet.yaml:2:45: error: found no module `gone`, …",
        ],
        "1 file, 1 error, 1 warning",
    ),
    Case(
        "a source that is not there is said once",
        {"m.yaml": MANIFEST, "licet.yaml": BUNDLE + "tools: {t: {from: 'gone:t'}}\n"},
        ["m.yaml"],
        1,
        ["licet.yaml:2:19: error: found no module `gone`, …"],
        "1 file, 1 error",
    ),
    Case(
        "what two files share is reported once",
        {"m.yaml": MANIFEST, "n.yaml": MANIFEST.replace("agent: a", "agent: n"), "licet.yaml": BUNDLE + "x: 1\n"},
        ["m.yaml", "n.yaml"],
        1,
        ["licet.yaml:2:1: error: found the key `x`, expected …"],
        "2 files, 1 error",
    ),
    Case(
        "the workspace and the personality can lie elsewhere",
        {
            "m.yaml": MANIFEST,
            "w/shared.yaml": BUNDLE + "tools: {t: {needs: ['network:https:api.example.com']}}\n",
            "p.yaml": "id: p\ntoolset: [t]\n",
        },
        ["m.yaml", "--workspace", "w/shared.yaml", "--personality", "p.yaml"],
        1,
        ["w/shared.yaml:2:9: error: found that `t` needs …, which the personality does not allow (p.yaml:1), …"],
        "1 file, 1 error",
    ),
    Case(
        "a personality alone names a tool whose bundle the manifest assigns",
        {"p.yaml": "id: p\ntoolset: [t]\n", "licet.yaml": BUNDLE},
        ["p.yaml"],
        0,
        [],
        "1 file, fine",
    ),
    Case(
        "the working directory can be another one",
        {
            "m.yaml": "agent: a\ncapabilities: {tools: [t], fs_reach: {read: ['/srv/data']}}\n"
            "tools: {t: {needs: ['fs:read:${workdir}/x'], effect: read_only, sandbox: restricted}}\n"
        },
        ["m.yaml", "--workdir", "/srv/data"],
        0,
        [],
        "1 file, fine",
    ),
    Case(
        "a workspace alone that lists names of a private network, or everything",
        {"licet.yaml": "bundles: {b: {tools: [t], destinations: ['*.internal.corp', '*']}}\n"},
        ["licet.yaml"],
        0,
        [
            "licet.yaml:1:42: warning: found `*.internal.corp`, which has no public address, …; add `private: …",
            "licet.yaml:1:61: warning: found `network:*:*` under `bundles.b.destinations`, which is every host, …",
        ],
        "1 file, 2 warnings",
    ),
    Case(
        "a tool without walls that needs everything of a kind",
        {
            "m.yaml": "agent: a\ncapabilities: {tools: {t: {}, walled: {}, narrow: {}, read_file: {}}, "
            "native: [t, narrow], env: [HOME], fs_reach: {read: [/srv]}}\n"
            "tools:\n"
            "  t: {needs: ['fs:read:/', 'network:*:*', 'env:read:HOME'], effect: read_only, sandbox: native}\n"
            "  walled: {needs: ['fs:read:*'], effect: read_only, sandbox: isolated}\n"
            "  narrow: {needs: ['storage:*:session'], effect: read_only, sandbox: native}\n"
            "  read_file: {from: 'licet.tools:read_file'}\n"
        },
        ["m.yaml"],
        0,
        ["m.yaml:4:3: warning: found `t` at level native with `fs:read:*`, `network:*:*`, expected needs with …"],
        "1 file, 1 warning",
    ),
    Case(
        "the name of a file cannot act on the terminal",
        {},
        ["\x1b[2Jgone.yaml"],
        1,
        ["\\u001b[2Jgone.yaml:1:1: error: found …"],
        "1 file, 1 error",
    ),
]


def fits(lines: list[str], patterns: list[str]) -> bool:
    """Whether each line matches its pattern, in which `…` is any text: the wording of a problem is tested elsewhere."""
    wanted = [".*".join(map(re.escape, pattern.split("…"))) for pattern in patterns]
    return len(lines) == len(wanted) and all(map(re.fullmatch, wanted, lines))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, ["check", *words])


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check_prints_the_expected_lines(case: Case) -> None:
    write(case.files)
    result = run(*case.words)
    assert fits(result.stdout.splitlines(), case.lines), result.stdout
    assert result.stderr == f"{case.summary}\n"
    assert result.exit_code == case.code


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_json_says_the_same(case: Case) -> None:
    write(case.files)
    result = run(*case.words, "--json")
    assert result.stderr == ""
    assert result.exit_code == case.code
    said = json.loads(result.stdout)
    assert said["files"] == list(takewhile(lambda word: word[:2] != "--", case.words))
    severities = [problem["severity"] for problem in said["problems"]]
    assert (said["errors"], said["warnings"]) == (severities.count("error"), severities.count("warning"))
    assert fits([visible(line_of(problem)) for problem in said["problems"]], case.lines)
    assert fits([visible(problem["message"]) for problem in said["problems"]], case.lines)


def line_of(problem: dict[str, Any]) -> str:
    place = f"{problem['file']}:{problem['line']}:{problem['column']}"
    tail = f"; {problem['hint']}" if problem["hint"] else ""
    return f"{place}: {problem['severity']}: found {problem['found']}, expected {problem['expected']}{tail}"


def visible(text: str) -> str:
    return text.replace("\x1b", "\\u001b")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sarif_says_the_same(case: Case) -> None:
    write(case.files)
    result = run(*case.words, "--sarif")
    assert result.stderr == ""
    assert result.exit_code == case.code
    log = json.loads(result.stdout)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    [one] = log["runs"]
    assert one["tool"]["driver"]["name"] == "licet"
    rules = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    said = []
    for found in one["results"]:
        assert rules[found["ruleIndex"]] == found["ruleId"]
        [location] = found["locations"]
        place, region = location["physicalLocation"]["artifactLocation"], location["physicalLocation"]["region"]
        text = found["message"]["text"]
        said.append(f"{place['uri']}:{region['startLine']}:{region['startColumn']}: {found['level']}: {text}")
    assert fits(said, [line.replace("\\u001b[2J", "%1B%5B2J") for line in case.lines])


def test_sarif_gives_an_absolute_path_as_a_file_address(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "beside").mkdir()
    monkeypatch.chdir(here / "beside")
    [found] = json.loads(run(str(here / "a b.yaml"), "--sarif").stdout)["runs"][0]["results"]
    address = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert address == f"{here.as_uri()}/a%20b.yaml"


def test_the_real_command_checks_without_colours_in_a_pipe() -> None:
    write({"m.yaml": "agent: a\nverison: x\n"})
    done = subprocess.run(
        [SCRIPT, "check", "m.yaml"], check=False, capture_output=True, text=True, env=os.environ | {"TERM": "xterm"}
    )
    assert done.returncode == 1
    assert done.stdout.startswith(message("check.yaml_key_verison"))
    assert done.stderr == "1 file, 1 error\n"
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(("settings", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
@pytest.mark.sampled(1)
def test_a_terminal_gets_colours_unless_it_asks_for_none(settings: dict[str, str], coloured: bool) -> None:
    write({"m.yaml": "agent: a\nverison: x\n"})
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    master, slave = os.openpty()
    subprocess.run(
        [SCRIPT, "check", "m.yaml"],
        check=False,
        stdout=slave,
        stderr=subprocess.DEVNULL,
        env=environment | {"TERM": "xterm"} | settings,
    )
    os.close(slave)
    said = read_all(master)
    os.close(master)
    assert ("\x1b[" in said) == coloured
    assert "verison" in said


ARGUED = """from typing import Annotated, Literal
from licet import Context, tool
from elsewhere import Odd
from pydantic import Field

@tool(needs=[], effect="read_only", sandbox="restricted")
def ask(%s) -> None: ...
"""
MISNAMED = "that `qestion` is not an argument of `ask`, so its rule has no effect"


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ("ctx: Context, question: str", f"{MISNAMED}, expected one of question; did you mean `question`?"),
        ("question: list[str] | None = None, *, b: Literal['qestion'] = 'qestion'", MISNAMED),
        ("", MISNAMED),
        ("qestion: str", None),
        # Another name may stand behind what is not a plain type.
        ("question: Annotated[str, Field(alias='qestion')]", None),
        ("question: Odd", None),
        ("question: str = Field(alias='qestion')", None),
        ("question", None),
    ],
)
def test_a_rule_on_an_argument_that_a_tool_does_not_have_is_found(
    parameters: str, found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tools.py").write_text(ARGUED % parameters)
    Path("licet.yaml").write_text(
        'agent: a\ntools: {ask: {from: "tools:ask"}}\n'
        "capabilities:\n  tools:\n    ask: {args: {qestion: {maxLength: 5}}}\n"
    )
    result = CliRunner().invoke(licet, ["check", "licet.yaml"])
    assert result.exit_code == (0 if found is None else 1), result.output
    if found is not None:
        assert result.stdout.startswith("licet.yaml:5:")
        assert found in result.stdout


UNPERMITTED: dict[str, tuple[str, str, str]] = {
    "a write": ("fs:write:/srv/x", "read_only", "set `effect: write_limited` on the tool"),
    "a connection": ("network:tcp:a.example.com:80", "read_only", "set `effect: write_limited` on the tool"),
    "a request that writes": (
        "network:https:post@a.example.com",
        "read_only",
        "set `effect: write_limited` on the tool",
    ),
    "a delete": ("fs:delete:/srv/x", "write_limited", "set `effect: full` on the tool"),
    "a connection that only a destination allows": ("network:tcp:a.example.com:80", "write_limited", "network:tcp"),
    "a read": ("fs:read:/srv/x", "read_only", ""),
    "a read and a write": ("fs:*:/srv/x", "read_only", ""),
}


@pytest.mark.parametrize(("need", "effect", "fix"), UNPERMITTED.values(), ids=UNPERMITTED)
def test_a_need_that_its_class_never_permits_is_a_warning(
    need: str, effect: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tool = {"needs": [need], "effect": effect, "sandbox": "isolated"}
    reach = {"read": ["/srv"], "write": ["/srv"]}
    own = {"tools": ["t"], "max_side_effect_class": "write_limited", "fs_reach": reach}
    own["destinations"] = {"allow": ["a.example.com"]}
    (tmp_path / "m.yaml").write_text(json.dumps({"agent": "a", "tools": {"t": tool}, "capabilities": own}))
    said = CliRunner().invoke(licet, ["check", "m.yaml"]).output
    assert (message("check.warning_which_needs", need=need, effect=effect) in said) == bool(fix)
    assert fix in said
