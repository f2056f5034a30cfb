"""`licet init`: the written manifest is valid, fits exactly and explains itself; wrong sources leave no file."""

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.messages import message
from licet.assemble import review
from licet.cli.app import licet
from licet.cli.output import write_file
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import reach_of
from licet.core.policy.layer import CLASSES, permits
from licet.core.policy.tool import ToolSpec
from licet.source.declarations import read_tools

SCRIPT = Path(sysconfig.get_path("scripts")) / "licet"
POLICY = ".licet/licet.yaml"
HEAD = "from licet import Context, tool\n\n"
WEATHER = """
@tool(
    capabilities={"network": {"allowed_hosts": ["api.weather.gov"]}, "secrets": ["WEATHER_API_KEY"]},
    effect="read_only",
    sandbox="restricted",
)
async def fetch_weather(ctx: Context, city: str) -> dict: ...
"""
RULES = """
@tool(
    needs=[
        "network:https:get@*.github.com", "network:tcp:db.internal:5432", "network:*:*:8443", "network:write:x.example",
        "fs:write:${workdir}/out", "fs:*:/srv/both", "fs:delete:/srv/old", "fs:read:/srv", "process:exec:/usr/bin/grep",
        "process:exec:git", "env:read:PATH", "secret:read:team/*", "storage:read:personality", "tool:call:other",
        "tool:call:fetch_weather", "connector:use:slack",
    ],
    effect="full", sandbox="isolated", connector="github@2.1",
)
def everything() -> None: ...
"""
WRITER = """
@tool(
    capabilities={"fs_reach": {"write": ["~/notes"]}, "storage": {"scope": "personality"}, "env": ["no", "1"]},
    effect="write_limited", sandbox="restricted", name="team/notes.write",
)
def note() -> None: ...
"""
DEFERRING = """
@tool(capabilities={
    "network": {"allowed_hosts": ["*"]}, "fs_reach": {"read": "from-personality", "write": "from-personality"},
    "process": {"allowed_binaries": ["*"]}, "secrets": ["*"], "env": ["*"],
}, effect="write_limited", sandbox="restricted")
def anything() -> None: ...
"""
SILENT = """
@tool(capabilities={})
def quiet() -> None: ...
"""
NATIVE = """
@tool(capabilities={}, effect="read_only", sandbox="native")
def trusted() -> None: ...
"""
DESTRUCTIVE = """
@tool(needs=["fs:delete:/srv"], effect="destructive", sandbox="isolated")
def wipe() -> None: ...
"""
LOCAL = """
@tool(needs=["network:http:get@localhost:8000", "network:*:a.localhost"], effect="read_only", sandbox="restricted")
def at_home() -> None: ...
"""
DEAR = """
@tool(needs=[], effect="read_only", sandbox="restricted", cost_usd=0.30)
def dear() -> None: ...

@tool(needs=[], effect="read_only", sandbox="restricted", cost_usd=0.05)
def cheap() -> None: ...
"""
OWN_STORE = """
@tool(capabilities={"storage": {"scope": "session"}}, effect="read_only", sandbox="restricted")
def remember() -> None: ...
"""
ODD_NAMES = """
@tool(capabilities={"network": {"allowed_hosts": ["get", "bücher.example", "[::1]:80", "10.0.0.1"]},
                    "secrets": ["a#b", "q:'\\""]}, effect="read_only", sandbox="restricted", name="1.0")
def one() -> None: ...

@tool(needs=[], effect="read_only", sandbox="restricted", name="null")
def two() -> None: ...

@tool(needs=[], effect="read_only", sandbox="restricted", name="no")
def three() -> None: ...
"""
VERSIONS = """
@tool(needs=[], effect="read_only", sandbox="restricted", connector="github@2.1")
def old() -> None: ...

@tool(needs=[], effect="read_only", sandbox="restricted", connector="github@3.0rc1")
def new() -> None: ...

@tool(needs=[], effect="read_only", sandbox="restricted", connector="slack")
def talk() -> None: ...

@tool(needs=[], effect="read_only", sandbox="restricted", connector="slack@1.5")
def talk_more() -> None: ...
"""

SOURCES = {
    "one tool": [WEATHER],
    "rules of every kind": [WEATHER, RULES],
    "paths and storage": [WRITER],
    "scopes that defer": [DEFERRING],
    "scopes that defer beside scopes that do not": [DEFERRING, WEATHER, WRITER],
    "no class and no level": [SILENT, WEATHER],
    "a native tool": [NATIVE],
    "a destructive tool": [DESTRUCTIVE],
    "a host on this machine": [LOCAL],
    "tools that cost": [DEAR],
    "a store of its own": [OWN_STORE],
    "names that YAML would take for something else": [ODD_NAMES],
    "connectors at several versions": [VERSIONS],
    "all together": [WEATHER, RULES, WRITER, DEFERRING, SILENT, NATIVE, DESTRUCTIVE, OWN_STORE, ODD_NAMES],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "weather agent!"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


def write(name: str, *parts: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "".join(parts), encoding="utf-8")


@dataclass(frozen=True)
class Written:
    """A manifest that was written, and the tools it was written for."""

    text: str
    data: Any
    specs: tuple[ToolSpec, ...]


def written(*parts: str) -> Written:
    write("tools.py", *parts)
    result = run("init", "tools.py")
    assert result.exit_code == 0, result.stderr
    text = Path(POLICY).read_text(encoding="utf-8")
    return Written(text, yaml.safe_load(text), read_tools("tools.py").specs)


# The round trip ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", SOURCES.values(), ids=SOURCES.keys())
def test_the_written_manifest_has_no_problems(parts: list[str]) -> None:
    written(*parts)
    result = run("check")
    # The addresses of names in the local network are declared by no tool.
    told = [line for line in result.stdout.splitlines() if "has no public address" not in line]
    assert (result.exit_code, told) == (0, [])


@pytest.mark.parametrize("parts", SOURCES.values(), ids=SOURCES.keys())
def test_every_tool_gets_all_it_needs_and_the_file_allows_nothing_that_none_needs(parts: list[str], here: Path) -> None:
    specs = written(*parts).specs
    manifest = review(POLICY).manifest
    assert manifest is not None
    assert set(manifest.admissions) == {spec.name for spec in specs}

    stated = CapabilitySet(
        rule for spec in specs for rule in spec.needs.expand(str(here), str(Path.home())).allow if not rule.defers
    )
    connectors = [f"connector:use:{name}" for name in manifest.connectors.names()]
    allowed = CapabilitySet([*(rule for rule in manifest.ceiling.allow if rule.domain != "connector"), *connectors])
    always = CapabilitySet(["storage:*:tool-private", "storage:*:session", *(f"tool:call:{s.name}" for s in specs)])
    assert allowed - (stated | always) == ()
    assert stated - allowed == ()

    for spec in specs:
        reach = reach_of(manifest, spec.name)
        assert reach is not None
        assert reach.grounds == ()
        if not any(rule.defers for rule in spec.needs.allow):
            needs = spec.needs.expand(str(here), str(Path.home()))
            named_tcp = CapabilitySet(rule for rule in needs.allow if str(rule).startswith("network:tcp:"))
            held = needs & permits(spec.effect or CLASSES[0], named_tcp)
            assert (held - reach.grant, reach.grant - held) == ((), ())


@pytest.mark.parametrize("parts", SOURCES.values(), ids=SOURCES.keys())
def test_the_schema_next_to_the_manifest_accepts_it(parts: list[str]) -> None:
    made = written(*parts)
    first, _, _ = made.text.partition("\n")
    _, _, schema = first.partition("# yaml-language-server: $schema=")
    assert jsonschema_rs.validator_for(json.loads(Path(".licet", schema).read_text())).is_valid(made.data)


@pytest.mark.parametrize("parts", SOURCES.values(), ids=SOURCES.keys())
def test_a_second_run_writes_the_same(parts: list[str]) -> None:
    first = written(*parts).text
    assert run("init", "tools.py", "--force").exit_code == 0
    assert Path(POLICY).read_text(encoding="utf-8") == first


@pytest.mark.parametrize(("parts", "count"), [([WEATHER, RULES], 18), ([WRITER], 4)])
def test_without_any_one_line_it_no_longer_fits(parts: list[str], count: int) -> None:
    lines = written(*parts).text.splitlines()
    needed = [number for number, line in enumerate(lines) if line.strip().startswith("- ") and "  # " in line]
    assert len(needed) == count
    for number in needed:
        Path(POLICY).write_text("\n".join(line for at, line in enumerate(lines) if at != number))
        assert run("check").exit_code == 1, lines[number]


# What the file says --------------------------------------------------------------------------------------------------


def test_the_file_for_one_tool_reads_well() -> None:
    assert "\n".join(line for line in written(WEATHER).text.splitlines() if not line.strip().startswith("#")) == (
        """
licet: 1  # the format of this file
agent: weather-agent

tools:
  fetch_weather: {from: "tools:fetch_weather"}

capabilities:
  tools:
    - fetch_weather

  max_side_effect_class: read_only

  destinations:
    allow:
      - "api.weather.gov"  # fetch_weather

  secrets:
    - "WEATHER_API_KEY"  # fetch_weather

examples:
  match:
    - {tool: fetch_weather, use: "network:https:get@api.weather.gov"}
  no_match:
    - {tool: fetch_weather, use: "network:https:get@collect.example"}
    - {tool: fetch_weather, use: "fs:read:/etc/shadow"}"""
    )


@pytest.mark.parametrize(
    ("parts", "key", "value"),
    [
        ([WEATHER], "max_side_effect_class", "read_only"),
        ([WEATHER], "approvals", None),
        ([WEATHER], "budget", None),
        ([WEATHER], "storage", None),
        ([WEATHER], "native", None),
        ([WRITER], "max_side_effect_class", "write_limited"),
        ([WRITER], "approvals", {"write": "session"}),
        ([WRITER], "budget", None),
        ([WRITER], "storage", ["personality"]),
        ([WRITER], "fs_reach", {"write": ["~/notes"]}),
        ([RULES], "budget", {"max_calls_per_session": 100}),
        ([RULES, WEATHER], "max_side_effect_class", "full"),
        ([RULES], "connectors", ["github", "slack"]),
        ([WEATHER], "private", None),
        ([LOCAL], "private", ["127.0.0.0/8", "::1/128"]),
        ([DEAR], "budget", {"max_cost_usd": 30}),
        ([DEAR, RULES], "budget", {"max_calls_per_session": 100, "max_cost_usd": 30}),
        ([DESTRUCTIVE], "budget", {"max_calls_per_session": 100}),
        ([DESTRUCTIVE, RULES], "max_side_effect_class", "destructive"),
        ([NATIVE], "native", ["trusted"]),
        ([DEFERRING], "destinations", {"allow": []}),
        ([DEFERRING], "fs_reach", {"read": [], "write": []}),
        ([DEFERRING], "secrets", []),
        ([DEFERRING], "env", []),
        ([DEFERRING], "process", {"allowed_binaries": []}),
        ([DEFERRING, WEATHER], "secrets", ["WEATHER_API_KEY"]),
        ([WEATHER], "tools", ["fetch_weather"]),
        (
            [SILENT, WEATHER],
            "tools",
            {"quiet": {"side_effect_class": "read_only", "sandbox": "restricted"}, "fetch_weather": {}},
        ),
    ],
)
def test_each_key_holds_what_the_tools_declare(parts: list[str], key: str, value: Any) -> None:
    assert written(*parts).data["capabilities"].get(key) == value


def test_connectors_are_allowed_at_the_versions_that_tools_name() -> None:
    lists = written(VERSIONS).data
    assert lists["connectors"]["tenant_allowlist"] == [
        {"connector": "github", "version": "==2.1"},
        {"connector": "github", "version": "==3.0rc1"},
        {"connector": "slack"},
    ]


@pytest.mark.parametrize(
    ("part", "lesson"),
    [
        (WEATHER, "# Hosts that may be connected to. `*.example.com` means every name below it"),
        (WRITER, "# `team/notes.write` can write. You are asked about that once a session"),
        (DEAR, "# A call costs up to 0.3 USD (`dear`). This is what a hundred of them cost"),
        (LOCAL, "# Addresses that are not public"),
        (DESTRUCTIVE, "# Each delete asks, unless `delete: session` is added here"),
        (DEFERRING, '# Add what it needs, such as `- "api.example.com"`'),
        (DEFERRING, "# `anything` takes whatever is listed here, and nothing while nothing is"),
        (SILENT, "# The class or level that `quiet` does not declare is the strictest one here"),
        (NATIVE, "# WARNING: a native tool runs inside your process"),
    ],
)
def test_comments_teach(part: str, lesson: str) -> None:
    assert lesson in written(part).text


def test_filling_a_list_as_its_comment_says_opens_it() -> None:
    text = written(DEFERRING).text
    asked = ("explain", "anything", "https://api.example.com", "--json")
    assert json.loads(run(*asked).stdout)["verdict"] == "deny"
    Path(POLICY).write_text(text.replace("allow: []", 'allow:\n    - "api.example.com"'))
    assert json.loads(run(*asked).stdout)["verdict"] == "ask"  # it can write


# Where it goes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "words", "target", "sources"),
    [
        (["a.py"], ["a.py"], POLICY, ["a:fetch_weather"]),
        (["pkg/a.py"], ["pkg/a.py"], f"pkg/{POLICY}", ["a:fetch_weather"]),
        (["pkg/a.py"], ["pkg/a.py", "-o", POLICY], POLICY, ["pkg.a:fetch_weather"]),
        (["pkg/a.py"], ["pkg/a.py", "-o", "licet.yaml"], "licet.yaml", ["pkg.a:fetch_weather"]),
        (["pkg/__init__.py"], ["pkg/__init__.py", "-o", "x.yaml"], "x.yaml", ["pkg:fetch_weather"]),
        (["src/pkg/a.py"], ["src/pkg/a.py", "-o", "x.yaml"], "x.yaml", ["pkg.a:fetch_weather"]),
        (["a.py", "b.py"], ["a.py", "b.py", "a.py"], POLICY, ["a:fetch_weather", "b:note"]),
    ],
)
def test_tools_are_named_as_an_import_would(
    files: list[str], words: list[str], target: str, sources: list[str]
) -> None:
    for file, part in zip(files, (WEATHER, WRITER), strict=False):
        write(file, part)
    result = run("init", *words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == f"wrote {target} for {len(sources)} tool{'s' * (len(sources) > 1)}"
    declared = yaml.safe_load(Path(target).read_text())["tools"]
    assert [entry["from"] for entry in declared.values()] == sources
    assert run("check", target).stderr == "1 file, fine\n"


def test_printing_writes_nothing(here: Path) -> None:
    write("tools.py", WEATHER)
    result = run("init", "tools.py", "-o", "-")
    assert result.exit_code == 0
    assert os.listdir(here) == ["tools.py"]
    run("init", "tools.py")
    assert Path(POLICY).read_text() == result.stdout


@pytest.mark.parametrize(
    ("folder", "words", "agent"),
    [
        ("x", ["--agent", "team/weather"], "team/weather"),
        ("Wetter (Ålesund)", [], "Wetter-lesund"),
        ("déjà vu", [], "d-j-vu"),
        ("天気", [], "agent"),
        ("7", [], "7"),
        ("x" * 200, [], "x" * 128),
    ],
)
def test_the_agent_is_called_like_the_directory_unless_told(folder: str, words: list[str], agent: str) -> None:
    write(f"{folder}/tools.py", WEATHER)
    assert run("init", f"{folder}/tools.py", *words).exit_code == 0
    assert yaml.safe_load(Path(f"{folder}/{POLICY}").read_text())["agent"] == agent


def test_json_has_the_file_and_its_text() -> None:
    write("tools.py", WEATHER)
    said = json.loads(run("init", "tools.py", "--json").stdout)
    assert said.pop("manifest") == Path(POLICY).read_text()
    assert said == {"file": POLICY, "tools": ["fetch_weather"], "problems": []}


def test_nothing_of_the_source_is_run(here: Path) -> None:
    write("tools.py", "open('ran', 'w')\n", WEATHER)
    assert run("init", "tools.py").exit_code == 0
    result = run("check")
    assert (result.exit_code, "[LIC101]" in result.stdout) == (1, True)  # it is read, and its import would write a file
    assert not (here / "ran").exists()


# What goes wrong -----------------------------------------------------------------------------------------------------

WRONG = """
@tool(effect="read_only")
def undecided() -> None: ...

@tool(capabilities={"network": {"allowed_hosts": ["https://x.example/"]}}, effect="readonly")
def misspelt() -> None: ...
"""
TOO_WIDE = """
@tool(capabilities={"network": {"allowed_hosts": ["*.com"]}}, effect="read_only", sandbox="restricted")
def wide() -> None: ...
"""
NATIVE_FULL = """
@tool(needs=[], effect="full", sandbox="native")
def mighty() -> None: ...
"""


TWICE = {"a.py": [WEATHER], "b.py": [WEATHER]}
BESIDE = {"a.py": [WEATHER], "licet.yaml": []}
SCHEMA = ".licet/manifest.schema.json"
FOREIGN = {"a.py": [WEATHER], SCHEMA: []}


@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        ({"a.py": [WRONG]}, ["a.py"], ["a.py:4:1: error: ", "a.py:7:", "a.py:7:"]),
        ({"a.py": [WEATHER], "b.py": [WRONG]}, ["a.py", "b.py"], ["b.py:4:1: error: ", "b.py:7:", "b.py:7:"]),
        ({"a.py": []}, ["a.py"], ["a.py:1:1: error: found no tool, expected at least one; decorate a function"]),
        ({}, ["gone.py"], ["gone.py:1:1: error: found no readable file"]),
        ({"a.py": ["def ("]}, ["a.py"], ["a.py:3:5: error: found a syntax error"]),
        (TWICE, ["a.py", "b.py"], ["b.py:4:1: error: found a second tool called `fetch_weather`"]),
        ({"a.py": [WEATHER, TOO_WIDE]}, ["a.py"], ["a.py:11:1: error: found `*.com`, expected "]),
        (
            {"a.py": [WEATHER, NATIVE_FULL]},
            ["a.py"],
            ["a.py:11:1: error: found that `mighty` does not fit: class full "],
        ),
        ({"my-tools.py": [WEATHER]}, ["my-tools.py"], ["my-tools.py:1:1: error: found the path my-tools.py, "]),
        ({"tools.txt": [WEATHER]}, ["tools.txt"], ["tools.txt:1:1: error: found the path tools.txt, expected "]),
        ({"p/__init__.py": [WEATHER]}, ["p/__init__.py"], ["p/__init__.py:1:1: error: found the package itself"]),
        ({"a.py": [WEATHER], "p/x": []}, ["a.py", "-o", "p/l.yaml"], ["a.py:1:1: error: found a file outside p"]),
        ({"a.py": [WEATHER]}, ["a.py", "-o", "p/l.yaml"], ["a.py:1:1: ", "p/l.yaml:1:1: error: found no directory p"]),
        (BESIDE, ["a.py"], ["licet.yaml:1:1: error: found a file that is there already, expected none, since"]),
        (BESIDE, ["a.py", "--force"], ["licet.yaml:1:1: error: found a file that is there already, expected none"]),
        (BESIDE, ["a.py", "-o", "licet.yaml"], ["licet.yaml:1:1: error: found a file that is there already"]),
        (BESIDE, ["a.py", "-o", "b.yaml"], ["b.yaml:1:1: error: found a licet.yaml next to it"]),
        ({"a.py": [WEATHER], "a/__init__.py": []}, ["a.py"], ["a.py:4:1: error: found `a` in two places"]),
        (FOREIGN, ["a.py"], [f"{SCHEMA}:1:1: error: found a file that licet did not write, expected "]),
        (FOREIGN, ["a.py", "--force"], [f"{SCHEMA}:1:1: error: found a file that licet did not write, expected "]),
        (
            {"a.py": [WEATHER], f"{SCHEMA}/x": []},
            ["a.py"],
            [f"{SCHEMA}:1:1: error: found something that is not a file"],
        ),
        ({"a.py": [WEATHER], ".licet": []}, ["a.py"], [".licet:1:1: error: found something that is no directory"]),
    ],
)
@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["", "json"])
def test_every_problem_is_reported_and_nothing_is_written(
    files: dict[str, list[str]], words: list[str], said: list[str], extra: list[str], here: Path
) -> None:
    for file, parts in files.items():
        write(file, *parts)
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    result = run("init", *words, *extra)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    if extra:
        lines = [problem["message"] for problem in json.loads(result.stdout)["problems"]]
    assert [line[: len(start)] for line, start in zip(lines, said, strict=True)] == said
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


def test_force_replaces_and_nothing_else_does(here: Path) -> None:
    write("tools.py", WEATHER)
    for words in ([], ["-o", "licet.yaml"]):
        path = Path(words[-1] if words else POLICY)
        path.parent.mkdir(exist_ok=True)
        path.write_text("agent: mine\n")
        assert run("init", "tools.py", *words).exit_code == 1
        assert path.read_text() == "agent: mine\n"
        assert run("init", "tools.py", *words, "--force").exit_code == 0
        assert yaml.safe_load(path.read_text())["agent"] == "weather-agent"
    assert sorted(os.listdir(here)) == [".licet", "licet.yaml", "tools.py"]


@pytest.mark.parametrize("words", [[], ["--force"]], ids=["", "force"])
@pytest.mark.parametrize("link", [".licet", SCHEMA])
@pytest.mark.parametrize("leads_to", ["own", "../elsewhere", "gone"])
def test_nothing_is_written_through_a_link(link: str, leads_to: str, words: list[str], here: Path) -> None:
    write("tools.py", WEATHER)
    assert run("schema", "-o", "own").exit_code == 0  # even if licet wrote what is there
    assert run("schema", "-o", "../elsewhere").exit_code == 0
    target = Path(leads_to).absolute()
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(target if link == ".licet" else target / "manifest.schema.json")
    before = {path: path.lstat().st_mtime_ns for path in here.parent.rglob("*")}
    result = run("init", "tools.py", *words)
    assert result.exit_code == 1
    assert result.stderr.startswith(message("init.link_expected", link=link))
    assert {path: path.lstat().st_mtime_ns for path in here.parent.rglob("*")} == before


@pytest.mark.parametrize(
    ("there", "replaced"),
    [
        ('{"title": "licet manifest"}', True),
        ('{"title": "licet workspace"}', False),
        ('{"title": ["licet manifest"]}', False),
        ('["licet manifest"]', False),
        ('{"title": "licet manifest"', False),
        ("[" * 100_000, False),
        ("", False),
    ],
    ids=["of another version", "of another kind", "a list", "no object", "cut off", "deep", "empty"],
)
def test_only_a_schema_that_licet_wrote_is_replaced(there: str, replaced: bool) -> None:
    write("tools.py", WEATHER)
    Path(".licet").mkdir()
    Path(SCHEMA).write_text(there)
    result = run("init", "tools.py")
    assert result.exit_code == (0 if replaced else 1)
    assert Path(POLICY).exists() == replaced
    assert (Path(SCHEMA).read_text() == run("schema", "manifest").stdout) == replaced
    assert (Path(SCHEMA).read_text() == there) != replaced


def test_a_schema_that_is_up_to_date_is_not_touched() -> None:
    write("tools.py", WEATHER)
    assert run("init", "tools.py").exit_code == 0
    before = Path(SCHEMA).stat()
    assert run("init", "tools.py", "--force").exit_code == 0
    assert Path(SCHEMA).stat() == before


def test_a_file_that_comes_in_between_stays(here: Path) -> None:
    (here / "there").write_text("mine")
    with pytest.raises(click.ClickException, match=r"cannot write .*there: File exists"):
        write_file(here / "there", "new", replace=False)
    assert {path.name: path.read_text() for path in here.iterdir()} == {"there": "mine"}


def test_a_warning_is_shown_and_the_file_is_written() -> None:
    write("tools.py", WEATHER.replace("api.weather.gov", "*.github.io"))
    result = run("init", "tools.py")
    assert result.exit_code == 0
    assert message("init.tools_py_warning_github_io") in result.stderr
    assert Path(POLICY).exists()


def test_the_real_command_does_the_same_under_any_umask(here: Path) -> None:
    write("tools.py", WEATHER)
    program = "import os, sys; os.umask(0o022); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", program, SCRIPT, "init", "tools.py"], check=True, capture_output=True)
    assert done.stdout == b"wrote .licet/licet.yaml for 1 tool\nnext: licet surface\n"
    assert (here / POLICY).stat().st_mode & 0o777 == 0o644
