"""`licet check` and `licet lock` on a manifest that admits tools of a server which its workspace does not have."""

import json
from pathlib import Path

import pytest

from command_line import run

SERVERS = "servers:\n  files: {command: [x], tools: {}}\n"
MANIFEST = "agent: a\ncapabilities: {tools: [files.read, files.write]}\n"
INTO = "`.licet/licet.yaml` has servers: put the manifest into `.licet/`"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


# The manifest, the other files, and the hint.
MISSING: dict[str, tuple[str, dict[str, str], str]] = {
    "servers in .licet": ("a.yaml", {".licet/licet.yaml": SERVERS}, INTO),
    "other servers in .licet": ("a.yaml", {".licet/licet.yaml": SERVERS.replace("files", "git")}, INTO),
    "also a workspace next to it": ("a.yaml", {".licet/licet.yaml": SERVERS, "licet.yaml": "bundles: {}\n"}, INTO),
    "a manifest further down": ("agents/a.yaml", {".licet/licet.yaml": SERVERS}, INTO),
    "servers at the top": (
        ".licet/a.yaml",
        {"licet.yaml": SERVERS},
        "`licet.yaml` has servers: put the manifest into this directory",
    ),
    "the one with that server first": (
        "agents/a.yaml",
        {"agents/.licet/licet.yaml": SERVERS.replace("files", "git"), "licet.yaml": SERVERS},
        "`licet.yaml` has servers",
    ),
    "a name that is almost right": ("a.yaml", {"licet.yaml": SERVERS.replace("files", "file")}, "did you mean `file`?"),
    "no servers": ("a.yaml", {}, "`licet lock --init files -- COMMAND` drafts one"),
    "a file that cannot be read": ("a.yaml", {".licet/licet.yaml": "servers: ["}, "`licet lock --init files"),
    "no mapping of servers": ("a.yaml", {".licet/licet.yaml": "servers: [files]\n"}, "`licet lock --init files"),
}


@pytest.mark.parametrize(("file", "others", "hint"), MISSING.values(), ids=MISSING)
def test_a_missing_server_is_reported_with_the_file_that_has_servers(
    file: str, others: dict[str, str], hint: str, here: Path
) -> None:
    for name, text in {file: MANIFEST, **others}.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    found = "found `files.read`, `files.write`, but no server `files` and no such tool in its workspace"
    (checked,) = [line for line in run("check", file, code=0).stdout.splitlines() if "files.read" in line]
    said = run("lock", file, code=1).stderr
    for text, severity in ((checked, "warning"), (said, "error")):
        assert f"{file}:2:24: {severity}: {found}" in text
        assert hint in text
    assert not list(here.rglob("licet.lock"))
    assert hint in json.loads(run("lock", file, "--json", code=1).stdout)["problems"][0]["hint"]


FINE = {
    "a tool of the workspace": 'agent: a\ntools: {files.read: {from: "t:f"}}\ncapabilities: {tools: [files.read]}\n',
    "a name without a server": "agent: a\ncapabilities: {tools: [read, My.read]}\n",
    "a tool that is denied": 'agent: a\ncapabilities: {tools: [files.read], deny: ["tool:call:files.read"]}\n',
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_other_tools_are_locked(text: str, here: Path) -> None:
    (here / "t.py").write_text(
        "from licet import tool\n@tool(name='files.read', needs=[], effect='read_only')\ndef f(): ...\n"
    )
    (here / "a.yaml").write_text(text)
    run("lock", "a.yaml", code=0)
