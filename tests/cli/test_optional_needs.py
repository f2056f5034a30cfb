"""Optional needs as people meet them: read from source, written by `init`, shown by `surface`, `diff` and `explain`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from licet.cli.app import licet

SOURCE = '''from licet import Context, tool

CACHE = "fs:*:/srv/cache"


@tool(
    capabilities={"network": {"allowed_hosts": ["api.weather.gov"]}},
    optional=["network:*:backup.example", CACHE, "env:read:*"],
    effect="read_only",
    sandbox="restricted",
)
async def weather(ctx: Context, city: str) -> str:
    """The weather."""
    return city
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(SOURCE)
    return tmp_path


def run(*words: str) -> Result:
    """What a command printed."""
    return CliRunner().invoke(licet, list(words))


def test_init_marks_what_may_be_taken_out_again(here: Path) -> None:
    assert run("init", "tools.py", "-o", "a.yaml").exit_code == 0
    text = (here / "a.yaml").read_text()
    marked = [line.strip() for line in text.splitlines() if line.endswith("# weather (optional)")]
    assert marked == [
        message("optional_needs.backup_example_weather_optional"),
        *[message("optional_needs.srv_cache_weather_optional")] * 2,
    ]
    assert message("optional_needs.weather_optional_takes_whatever_listed") in text
    assert message("optional_needs.tool_does_without_them") in text
    assert run("check", "a.yaml").exit_code == 0
    kept = [line for line in text.splitlines() if "optional" not in line and line.strip() not in ("read:", "write:")]
    (here / "a.yaml").write_text("\n".join(kept).replace("fs_reach:", "") + "\n")
    assert run("check", "a.yaml").exit_code == 0


def test_a_file_without_optional_needs_says_nothing_of_them(here: Path) -> None:
    (here / "tools.py").write_text(SOURCE.replace('optional=["network:*:backup.example", CACHE, "env:read:*"],', ""))
    assert run("init", "tools.py", "-o", "a.yaml").exit_code == 0
    assert "(optional)" not in (here / "a.yaml").read_text()


POLICY = """
agent: a
tools: {weather: {from: "tools:weather"}}
capabilities: {tools: [weather], destinations: {allow: [api.weather.gov]}}
"""


def test_surface_and_explain_show_what_a_tool_can_do_without(here: Path) -> None:
    (here / "a.yaml").write_text(POLICY)
    (tool,) = json.loads(run("surface", "a.yaml", "--json").stdout)["tools"]
    assert tool["optional"] == ["env:read:*", "fs:*:/srv/cache", "network:*:backup.example"]
    assert message("optional_needs.weather_can_do_without_env") in run("surface", "a.yaml").stdout
    said = run("explain", "a.yaml", "weather", "network:https:get@backup.example").stdout
    assert "  optional      network:*:backup.example" in said
    assert message("optional_needs.allow_add_network_https_get") in said


@pytest.mark.parametrize(
    ("optional", "code", "side"),
    [
        ('["network:*:backup.example", CACHE]', 0, "changed"),
        ('["network:*:backup.example", CACHE, "env:read:*", "network:*:api.weather.gov"]', 0, "changed"),
        ('["network:*:backup.example", CACHE, "env:read:*", "secret:read:KEY"]', 1, "grown"),
    ],
)
def test_diff_reports_needs_that_become_optional_and_their_reach(
    here: Path, optional: str, code: int, side: str
) -> None:
    new = SOURCE.replace('["network:*:backup.example", CACHE, "env:read:*"]', optional)
    for name, text in (("old", SOURCE), ("new", new)):
        (here / name).mkdir()
        (here / name / "tools.py").write_text(text)
        (here / name / "a.yaml").write_text(POLICY.replace("capabilities: {", "capabilities: {secrets: [KEY], "))
    result = run("diff", "old/a.yaml", "new/a.yaml", "--json")
    said: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == code
    assert said[side]
    assert [change["kind"] for change in said["changed"]] == ["optional"]


@pytest.mark.parametrize(
    ("optional", "said"),
    [
        ("sorted([CACHE])", "`optional=` of `weather` given by a call"),
        ('["fs:fly:/srv"]', "expected"),
        ('"fs:read:/srv"', "a list of rules such as `fs:read:/srv/data` as `optional`"),
    ],
)
def test_optional_needs_are_read_from_source_or_are_a_problem(here: Path, optional: str, said: str) -> None:
    wrong = SOURCE.replace('["network:*:backup.example", CACHE, "env:read:*"]', optional)
    (here / "tools.py").write_text(wrong)
    (here / "a.yaml").write_text(POLICY)
    result = run("check", "a.yaml")
    assert result.exit_code == 1
    assert said in result.stdout


def test_the_schema_knows_optional_needs() -> None:
    schema = run("schema", "workspace").stdout
    assert schema.count('"optional"') == 2  # of tools, and of the tools of servers
