"""A lock is used only for the command that it is about: kind, package, version and program."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from effort import LONG
from licet.packages.node_modules import is_tag, satisfies
from licet.packages.server_packages import Disagrees, Resolved, check_agreement, disagreement, installed, launch_of


def npm(name: str, version: str, *more: str, program: str = "demo", **other: str) -> Resolved:
    keys = (f"{name}@{version}", *more)
    return Resolved("npm", name, version, program, {"any": {key: f"sha512-{key}" for key in keys}})


def pypi(name: str, version: str, *more: str, program: str = "demo") -> Resolved:
    keys = (f"{name}=={version}", *more)
    return Resolved("pypi", name, version, program, {"linux": {key: f"sha256:{key}" for key in keys}})


FILE = Resolved("file", program="server.py", digest="sha256:0")
MODULE = Resolved("distribution", "mcp-demo", "1.0", "mcp_demo.server")

AGREE = [
    ("npx demo", npm("demo", "1.0.0")),
    ("npx demo@latest", npm("demo", "2.0.0-beta.1")),
    ("npx demo@^1.2", npm("demo", "1.9.0")),
    ("npx -y @org/demo@1.2.3", npm("@org/demo", "1.2.3")),
    ("npx -p demo -p other@2 run", npm("demo", "1.0.0", "other@2.1.0", program="run")),
    ("npx demo", npm("demo", "1.0.0", "other > demo@0.1.0", "demo-more@1.0.0")),
    ("npx demo", Resolved("npm", "demo", "1.0.0", "demo", {"any": {"demo@1.0.0": "x", "a > b=demo@1.0.0": "x"}})),
    ("uvx demo", pypi("demo", "1.0")),
    ("uvx Demo.Server@1.2", pypi("demo-server", "1.2")),
    ("uvx demo[web]>=1,<2", pypi("demo", "1.9")),
    ("uvx --from demo==1.0 run", pypi("demo", "1.0", program="run")),
    ("uvx --with lib>=2 demo", pypi("demo", "1.0", "lib==2.3")),
    ("python server.py", FILE),
    ("python /srv/code/server.py", FILE),
    ("python -m mcp_demo.server", MODULE),
    ("demo", Resolved("file", program="demo-1.2")),  # a link to it
    ("demo", MODULE),
    ("docker run -i mcp/demo", Resolved("docker", "mcp/demo", program="docker")),
]


@pytest.mark.parametrize(("command", "resolved"), AGREE, ids=lambda one: str(one)[:40])
def test_a_lock_that_may_be_about_the_command_agrees(command: str, resolved: Resolved) -> None:
    assert disagreement(launch_of(command.split()), resolved) == ""


def test_a_module_in_code_is_pinned_as_a_file_and_one_elsewhere_by_its_distribution() -> None:
    launch = launch_of(["python", "-m", "mcp_demo.server"])
    file = Resolved("file", program="mcp_demo.server", digest="sha256:0")
    with_code = replace(launch, code=("/srv/code",))
    assert disagreement(launch, file)
    assert disagreement(with_code, file) == disagreement(with_code, MODULE) == ""
    assert disagreement(with_code, FILE)


DIFFER = {
    "the hash of another version": (
        "npx demo",
        Resolved("npm", "demo", "2.0.0", "demo", {"any": {"demo@2.0.0": "x", "zz=demo@1.0.0": "x"}}),
        "npm demo",
        "npm demo 2.0.0 with one hash for demo@2.0.0 and demo@1.0.0",
    ),
    "the hash of another package on another platform": (
        "npx demo",
        Resolved("npm", "demo", "2.0.0", "demo", {"any": {"demo@2.0.0": "x"}, "linux": {"demo > evil@2.0.0": "x"}}),
        "npm demo",
        "npm demo 2.0.0 with one hash for demo@2.0.0 and evil@2.0.0",
    ),
    "the hash of another wheel": (
        "uvx demo",
        Resolved("pypi", "demo", "2.0", "demo", {"linux": {"demo==2.0": "x", "evil==2.0": "x"}}),
        "pypi demo",
        "pypi demo 2.0 with one hash for demo==2.0 and evil==2.0",
    ),
    "another package": ("npx demo", npm("evil", "1.0.0"), "npm demo", "npm evil 1.0.0"),
    "a scope": ("npx @org/demo", npm("demo", "1.0.0"), "npm @org/demo", "npm demo 1.0.0"),
    "an older version": ("npx demo@^2", npm("demo", "1.9.0"), "npm demo@^2", "npm demo 1.9.0"),
    "a prerelease": ("npx demo@>=1", npm("demo", "2.0.0-rc.1"), "npm demo@>=1", "npm demo 2.0.0-rc.1"),
    "no version": ("npx demo@latest", npm("demo", ""), "npm demo@latest", "npm demo"),
    "another registry": ("npx demo", pypi("demo", "1.0"), "npm demo", "pypi demo 1.0"),
    "a file for a package": ("npx demo", FILE, "npm demo", "the file server.py"),
    "another program": ("npx -p demo run", npm("demo", "1.0.0", program="evil"), "the program `run`", "`evil`"),
    "the files of another version": (
        "npx demo@^2",
        Resolved("npm", "demo", "2.1.0", "demo", {"any": {"demo@1.9.0": ""}}),
        "npm demo@^2",
        "npm demo 2.1.0 with the files of 1.9.0",
    ),
    "two versions": (
        "npx demo",
        npm("demo", "2.0.0", "demo@1.0.0"),
        "npm demo",
        "npm demo 2.0.0 with the files of 1.0.0",
    ),
    "another package under its name": (
        "npx demo",
        npm("demo", "1.0.0", "demo=evil@1.0.0"),
        "npm demo",
        "npm demo 1.0.0 with the files of no version of it",
    ),
    "files without it": (
        "npx demo",
        Resolved("npm", "demo", "1.0.0", "demo", {"any": {"evil@1.0.0": ""}}),
        "npm demo",
        "npm demo 1.0.0 with the files of no version of it",
    ),
    "an extra package in another version": (
        "npx -p demo -p other@2 run",
        npm("demo", "1.0.0", "other@1.0.0", program="run"),
        "npm other@2",
        "1.0.0 of it",
    ),
    "another wheel": ("uvx demo", pypi("evil", "1.0"), "pypi demo", "pypi evil 1.0"),
    "an older wheel": ("uvx demo>=2", pypi("demo", "1.9"), "pypi demo>=2", "pypi demo 1.9"),
    "not the exact wheel": ("uvx demo@1.2", pypi("demo", "1.3"), "pypi demo==1.2", "pypi demo 1.3"),
    "one platform with other wheels": (
        "uvx demo",
        Resolved("pypi", "demo", "1.0", "demo", {"linux": {"demo==1.0": ""}, "macos": {"demo==0.9": ""}}),
        "pypi demo",
        "pypi demo 1.0 with the files of 0.9",
    ),
    "a wheel that is missing": ("uvx --with lib demo", pypi("demo", "1.0"), "pypi lib", "no version of it"),
    "another script": ("python other.py", FILE, "the file other.py", "the file server.py"),
    "a script for a module": ("python -m mcp_demo.server", FILE, "the module mcp_demo.server", "the file server.py"),
    "another module": ("python -m other", MODULE, "the module other", "distribution mcp-demo 1.0"),
    "a package for a file": ("python server.py", npm("demo", "1.0.0"), "the file server.py", "npm demo 1.0.0"),
    "another image": ("docker run -i mcp/demo", Resolved("docker", "evil"), "docker mcp/demo", "docker evil"),
}


@pytest.mark.parametrize(("command", "resolved", "says", "locked"), DIFFER.values(), ids=DIFFER)
def test_a_lock_about_something_else_is_refused_with_both(
    command: str, resolved: Resolved, says: str, locked: str, tmp_path: Path
) -> None:
    launch = launch_of(command.split())
    with pytest.raises(Disagrees) as refusal:
        check_agreement(launch, resolved)
    assert str(refusal.value) == f"the command says {says}, and licet.lock says {locked}: run `licet lock`"
    if launch.kind != "docker":
        with pytest.raises(Disagrees):
            installed(resolved, tmp_path, launch=launch)


# Ranges of npm --------------------------------------------------------------------------------------------------------

VERSIONS = [
    "0.0.0", "0.0.1", "0.0.2", "0.1.0", "0.1.5", "0.2.0", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0",
    "1.0.1", "1.2.0", "1.2.3", "1.2.4-rc.1", "1.2.4", "1.3.0", "1.9.9", "2.0.0-0", "2.0.0-alpha", "2.0.0", "2.1.0",
    "2.3.4", "3.0.0", "10.0.0", "1.2.3+build",
]  # fmt: skip
PARTS = [
    "*", "x", "1", "1.x", "1.2", "1.2.x", "1.2.3", "0", "0.1", "0.0", "0.0.1", "0.1.2", "1.0.0-beta",
    "1.0.0-beta.2", "2.0.0-0", "v1.2.3", "1.2.3+b", "latest", "next", "1.2.3.4",
]  # fmt: skip
SIGNS = ("", "^", "~", "~>", ">", "<", ">=", "<=", "=", "> ", "^ ")
RANGES = [
    *(f"{sign}{part}" for sign in SIGNS for part in PARTS),
    *(f"{low} - {high}" for low in PARTS for high in PARTS),
    *(f">={low} <{high}" for low in PARTS for high in PARTS),
    *(f"^{one} || ~{other}" for one in PARTS for other in PARTS),
]
SEMVER = Path("/usr/lib/node_modules/npm/node_modules/semver")
ORACLE = """
const semver = require(process.argv[1]);
const [versions, ranges] = JSON.parse(require("fs").readFileSync(0));
const all = ranges.map((one) => [semver.validRange(one) !== null, versions.map((v) => semver.satisfies(v, one))]);
console.log(JSON.stringify(all));
"""


@pytest.mark.skipif(not SEMVER.is_dir() or shutil.which("node") is None, reason="needs the semver of npm")
def test_ranges_mean_what_they_mean_to_npm(report_sample: Callable[[int, int], None]) -> None:
    ranges = RANGES if LONG else RANGES[::5]
    report_sample(len(ranges), len(RANGES))
    asked = json.dumps([VERSIONS, ranges])
    answer = subprocess.run(
        ["node", "-e", ORACLE, str(SEMVER)], input=asked, capture_output=True, text=True, check=True
    )
    for text, (is_range, expected) in zip(ranges, json.loads(answer.stdout), strict=True):
        found = [satisfies(version, text) for version in VERSIONS]
        if re.search(r"(^|[ ^~<>=])[x*]( |$)", text):
            # npm installs a prerelease for `*` if the registry calls it the latest version
            found = [
                ours and (theirs or "-" not in version)
                for version, ours, theirs in zip(VERSIONS, found, expected, strict=True)
            ]
        assert (text, found) == (text, expected)
        assert not (is_range and is_tag(text)), text


@pytest.mark.parametrize("text", ["latest", "next", "beta", "v-next"])
def test_a_word_that_is_no_range_is_a_tag(text: str) -> None:
    assert is_tag(text)
    assert not satisfies("1.0.0", text)


@pytest.mark.parametrize("text", ["01.2.3", "1.2.3-", "1.2.3.4", "x", "*", "1", "", "v1.2.3", "1.*.3 y", " - 2"])
def test_a_range_that_is_not_understood_is_no_tag(text: str) -> None:
    assert not is_tag(text)
