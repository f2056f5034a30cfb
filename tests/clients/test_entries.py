"""What entries of clients say, and which of them stay where they are."""

from pathlib import Path
from typing import Any

import pytest

from licet.clients.entries import Entry, Stays, read_entry, starts_gateway
from licet.clients.jsonc import looks_random, looks_secret, secret_word
from licet.clients.known import CLAUDE_CODE, CODEX, CURSOR, GEMINI, VS_CODE, ZED, Client

PROGRAM = "/opt/venv/bin/licet"
GITHUB = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
MOVES: dict[str, tuple[Client, dict[str, Any], dict[str, Any]]] = {
    "a command": (CURSOR, {"command": "npx", "args": ["-y", "x"]}, {"command": ("npx", "-y", "x")}),
    "values": (
        CURSOR,
        {"command": "x", "env": {"A": "1", "N": 2, "B": True}},
        {"values": {"A": "1", "N": "2", "B": "true"}},
    ),
    "an empty value": (CURSOR, {"command": "x", "env": {"A": ""}}, {"empty": ("A",), "values": {}}),
    "a variable of the same name": (
        CLAUDE_CODE,
        {"type": "stdio", "command": "x", "env": {"A": "${A}"}},
        {"references": {"A": "A"}, "carried": {"A": "${A}"}},
    ),
    "a variable of another name": (
        VS_CODE,
        {"command": "x", "env": {"A": "${env:B}"}},
        {"references": {"A": "B"}, "carried": {"B": "${env:B}"}},
    ),
    "a bare variable": (
        GEMINI,
        {"command": "x", "env": {"A": "$B"}},
        {"references": {"A": "B"}, "carried": {"B": "$B"}},
    ),
    "a dollar that is none": (CURSOR, {"command": "x", "env": {"A": "$B"}}, {"values": {"A": "$B"}}),
    "listed variables": (
        CODEX,
        {"command": "x", "env_vars": ["A"], "startup_timeout_sec": 9},
        {"references": {"A": "A"}, "listed": ("A",), "dropped": ("startup_timeout_sec",)},
    ),
    "the project": (
        VS_CODE,
        {"command": "x", "args": ["${workspaceFolder}/a", "${userHome}/b"], "cwd": "${workspaceFolder}"},
        {"command": ("x", "${workdir}/a", "~/b")},
    ),
    "an older form": (
        ZED,
        {"source": "custom", "command": {"path": "x", "args": ["y"], "env": {"A": "1"}}},
        {"command": ("x", "y"), "values": {"A": "1"}},
    ),
    "an address": (
        CURSOR,
        {"url": "https://a.example/mcp", "headers": {"X-Key": GITHUB}},
        {"url": "https://a.example/mcp", "values": {"X-Key": GITHUB}},
    ),
    "another address": (GEMINI, {"httpUrl": "https://a.example/mcp", "timeout": 1}, {"url": "https://a.example/mcp"}),
    "headers from variables": (
        CODEX,
        {"url": "https://a.example/mcp", "env_http_headers": {"X-Key": "K"}},
        {"references": {"X-Key": "K"}, "listed": ("K",)},
    ),
    "switched on": (ZED, {"command": "x", "enabled": True}, {"command": ("x",)}),
}


@pytest.mark.parametrize(("client", "data", "expected"), MOVES.values(), ids=MOVES)
def test_an_entry_is_read(client: Client, data: dict[str, Any], expected: dict[str, Any]) -> None:
    entry = read_entry("a", data, client, "/p", PROGRAM)
    assert isinstance(entry, Entry)
    assert {key: getattr(entry, key) for key in expected} == expected


STAYS: dict[str, tuple[Client, Any, str]] = {
    "no table": (CURSOR, [], "it is no table"),
    "a gateway": (
        CURSOR,
        {"command": PROGRAM, "args": ["gateway", "m"]},
        "it is a gateway already, for another policy",
    ),
    "off": (CURSOR, {"command": "x", "disabled": True}, "it is switched off"),
    "not on": (CODEX, {"command": "x", "enabled": False}, "it is switched off"),
    "an extension": (ZED, {"source": "extension", "settings": {}}, "an extension of the client starts it"),
    "a variable of a loader": (
        CURSOR,
        {"command": "x", "env": {"A": "${env:NODE_OPTIONS}"}},
        "it needs `NODE_OPTIONS` of the client, and a gateway that gets that could load other code",
    ),
    "an unknown key": (CURSOR, {"command": "x", "envFile": ".env"}, "it has the key `envFile`, which the gateway"),
    "a bearer": (
        CODEX,
        {"url": "https://a.example", "bearer_token_env_var": "T"},
        "it has the key `bearer_token_env_var`",
    ),
    "two ways": (CURSOR, {"command": "x", "url": "https://a.example"}, "it has to have either"),
    "no way": (CURSOR, {}, "it has to have either"),
    "a directory": (CURSOR, {"command": "x", "cwd": "/srv"}, "it has a directory of its own"),
    "an input": (VS_CODE, {"command": "x", "env": {"A": "${input:a}"}}, "`env.A` is made of variables"),
    "a default": (CLAUDE_CODE, {"command": "x", "env": {"A": "${A:-b}"}}, "`env.A` is made of variables"),
    "part of a value": (CURSOR, {"command": "x", "env": {"A": "b${A}"}}, "`env.A` is made of variables"),
    "part of a bare value": (GEMINI, {"command": "x", "env": {"A": "b$A"}}, "`env.A` is made of variables"),
    "a variable": (CURSOR, {"command": "x", "args": ["${env:A}"]}, "its command has the variable `${env:A}`"),
    "a variable of policy": (
        CURSOR,
        {"command": "x", "args": ["${workdir}"]},
        "its command has the variable `${workdir}`",
    ),
    "home, not as a directory": (
        CURSOR,
        {"command": "x", "args": ["${HOME}x"]},
        "its command has the variable `${HOME}`",
    ),
    "no text": (CURSOR, {"command": "x", "args": [1]}, "its command has something other than text"),
    "no value": (CURSOR, {"command": "x", "env": {"A": None}}, "`env.A` is no text"),
    "an old transport": (CLAUDE_CODE, {"type": "sse", "url": "https://a.example"}, "it uses an older transport"),
    "an old address": (CURSOR, {"url": "https://a.example/sse"}, "it uses an older transport"),
    "an old key": (GEMINI, {"url": "https://a.example/mcp"}, "it uses an older transport"),
    "a query": (CURSOR, {"url": "https://a.example/mcp?key=1"}, "its address has more than"),
    "a token in a path": (
        CURSOR,
        {"url": "https://a.example/k3J9xQ2mZ8vB5nL7pR4tW1yC/mcp"},
        "its address has more than",
    ),
    "a token": (CURSOR, {"command": "x", "args": ["--api-key", "abc"]}, "argument 2 looks like a token"),
    "a token after =": (CURSOR, {"command": "x", "args": ["--token=abc"]}, "argument 1 looks like a token"),
    "a known token": (CURSOR, {"command": "x", "args": ["-t", GITHUB]}, "argument 2 looks like a token"),
    "a password": (CURSOR, {"command": "x", "args": ["postgresql://a:b@h/d"]}, "argument 1 looks like a token"),
    "a header": (
        CURSOR,
        {"command": "x", "args": ["--header", "X: Bearer abcdef123"]},
        "argument 2 looks like a token",
    ),
}


@pytest.mark.parametrize(("client", "data", "reason"), STAYS.values(), ids=STAYS)
def test_an_entry_that_cannot_be_kept_whole_stays(client: Client, data: Any, reason: str) -> None:
    entry = read_entry("a", data, client, "/p", PROGRAM)
    assert isinstance(entry, Stays)
    assert entry.reason.startswith(reason)
    assert GITHUB not in entry.reason


GATEWAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "its path": ({"command": PROGRAM, "args": ["gateway", "m"]}, True),
    "what a client adds": ({"command": PROGRAM, "args": ["gateway", "m"], "timeout": 3, "type": "stdio"}, True),
    "variables that are passed on": ({"command": PROGRAM, "args": ["gateway"], "env": {"A": "${env:B}"}}, True),
    "another path": ({"command": "/usr/bin/licet", "args": ["gateway", "m"]}, False),
    "a relative path": ({"command": "./licet", "args": ["gateway", "m"]}, False),
    "a path with a way up": ({"command": "/opt/venv/bin/../../../tmp/licet", "args": ["gateway", "m"]}, False),
    "a name that is not on PATH": ({"command": "licet-of-nobody", "args": ["gateway", "m"]}, False),
    "another command": ({"command": PROGRAM, "args": ["run", "--", "x"]}, False),
    "a variable of its own": ({"command": PROGRAM, "args": ["gateway"], "env": {"PYTHONPATH": "/srv/evil"}}, False),
    "a variable that leads into the project": (
        {"command": PROGRAM, "args": ["gateway"], "env": {"PYTHONPATH": "${PWD}"}},
        False,
    ),
    "a variable that a client may not replace": (
        {"command": PROGRAM, "args": ["gateway"], "env": {"PYTHONPATH": "${PYTHONPATH}"}},
        False,
    ),
    "a library": ({"command": PROGRAM, "args": ["gateway"], "env": {"LD_PRELOAD": "${env:PWD}"}}, False),
    "options of Node": ({"command": PROGRAM, "args": ["gateway"], "env": {"NODE_OPTIONS": "$PWD"}}, False),
    "a loader's variable by name": ({"command": PROGRAM, "args": ["gateway"], "env_vars": ["PYTHONPATH"]}, False),
    "another list of what was accepted": (
        {"command": PROGRAM, "args": ["gateway"], "env": {"XDG_STATE_HOME": "${PWD}"}},
        False,
    ),
    "other programs": ({"command": PROGRAM, "args": ["gateway"], "env": {"PATH": "${PWD}"}}, False),
    "the programs of the client": ({"command": PROGRAM, "args": ["gateway"], "env": {"PATH": "${env:PATH}"}}, True),
    "a directory of its own": ({"command": PROGRAM, "args": ["gateway"], "cwd": "/srv"}, False),
    "an unknown key": ({"command": PROGRAM, "args": ["gateway"], "envFile": ".env"}, False),
    "no words": ({"command": PROGRAM}, False),
    "no text": ({"command": [PROGRAM], "args": ["gateway"]}, False),
}


@pytest.mark.parametrize(("data", "expected"), GATEWAYS.values(), ids=GATEWAYS)
def test_only_this_licet_is_taken_for_the_gateway(data: dict[str, Any], expected: bool) -> None:
    assert starts_gateway(data, PROGRAM) is expected


def test_a_program_is_known_by_the_file_that_it_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program, fake = tmp_path / "licet", tmp_path / "bin" / "licet"
    for path in (program, fake):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    entry = {"command": "licet", "args": ["gateway", "m"]}
    assert not starts_gateway(entry, str(program))
    fake.unlink()
    fake.symlink_to(program)
    assert starts_gateway(entry, str(program))
    monkeypatch.chdir(tmp_path)
    assert not starts_gateway({**entry, "command": "./licet"}, str(program))  # the client may start it elsewhere


def test_the_project_is_only_known_where_the_gateway_works_there() -> None:
    data = {"command": "x", "args": ["${workspaceFolder}"]}
    assert isinstance(read_entry("a", data, VS_CODE, "", PROGRAM), Stays)


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("GITHUB_TOKEN", "x", True),
        ("api-key", "x", True),
        ("GH_PAT", "x", True),
        ("DB_PASS", "x", True),
        ("PATH_LIST", "x", False),
        ("COMPASS", "north", False),
        ("TOKEN", "", False),
        ("MODE", "production", False),
        ("ROOT", "/home/someone/projects/2026-notes/with-long-names", False),
        ("X", GITHUB, True),
        ("X", "k3J9xQ2mZ8vB5nL7pR4tW1yC", True),
        ("X", "00000000000000000000000a", False),
        ("URL", "postgres://u:p@h/d", True),
    ],
)
def test_tokens_are_told_from_other_values(name: str, value: str, is_secret: bool) -> None:
    assert looks_secret(name, value) is is_secret


@pytest.mark.parametrize(
    "command",
    [
        ("npx", "-y", "@modelcontextprotocol/server-filesystem@2026.7.1", "/srv/notes"),
        ("uvx", "--from", "git-tools==1.0", "mcp-server-git", "--repository", "/home/me/some-project-2026/src"),
        ("node", "/opt/servers/build/index.js", "--port", "8080", "--no-auth"),
        ("docker", "run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"),
        ("x", "--project", "0b6e2f0e-5d5e-4f0a-9a3e-2f1f4f6f7a8b"),
    ],
)
def test_ordinary_commands_have_no_token(command: tuple[str, ...]) -> None:
    assert secret_word(command) is None


def test_a_token_inside_other_text_is_seen() -> None:
    assert looks_random(f"Authorization: token {GITHUB}")
