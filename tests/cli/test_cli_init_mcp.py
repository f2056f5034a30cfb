"""`licet init --mcp`: clients get the gateway, the policy gets their servers, and `--undo` gives everything back."""

import asyncio
import contextlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.terminals import at_terminal
from licet.assemble.acceptance import accept_policy
from licet.backends.secrets import FileSecrets
from licet.cli.app import licet
from licet.cli.gateway import own_secrets
from licet.cli.init_mcp import _policy, accept_edited
from licet.clients.jsonc import Jsonc
from licet.clients.setup_plan import (
    DraftedServer,
    Policy,
    next_steps,
    server_name,
    servers_without_gateway,
    surroundings,
    this_licet,
)
from licet.core.policy.lock import FORMAT, Lock, write_lock
from licet.policy_files.additions import NotKept, with_servers
from licet.policy_files.load import load_manifest
from licet.policy_files.trust import is_accepted

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
CURSOR = f"""{{
  // my servers
  "mcpServers": {{
    "files": {{
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"],
    }}, // notes
    "GitHub": {{"command": "uvx", "args": ["gh-server"], "env": {{"GH_TOKEN": "{TOKEN}", "MODE": "fast"}}}},
    "off": {{"command": "x", "disabled": true, "env": {{"KEY": "{TOKEN}-off"}}}},
    "web": {{"url": "https://mcp.example.com/mcp", "headers": {{"Authorization": "Bearer {TOKEN}-web"}}}},
  }},
}}
"""
CODEX = f"""# codex
model = "m"

[mcp_servers.files]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"]

[mcp_servers.db]
command = "uvx"
args = ["db-server"]

[mcp_servers.db.env]
DB_PASSWORD = "{TOKEN}-db"

[tui]
"""
VS_CODE = (
    '{"servers": {"git": {"command": "uvx", "args": ["git-server", "${workspaceFolder}"], '
    '"env": {"GH": "${env:GH_TOKEN}"}}}}\r\n'
)
CLAUDE = {"projects": {"PROJECT": {"mcpServers": {"own": {"command": "own-server"}}}}, "mcpServers": {}, "oauth": TOKEN}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory and a project of nobody; the project is the current directory."""
    home, project = tmp_path / "home", tmp_path / "project"
    for path in (home, project):
        path.mkdir()
    monkeypatch.chdir(project)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "APPDATA", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{os.path.dirname(this_licet())}:{os.environ['PATH']}")  # as of whoever runs licet
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    return home


@pytest.fixture
def clients(home: Path) -> dict[Path, bytes]:
    """Configurations of four clients, and their bytes."""
    claude = json.dumps(CLAUDE).replace("PROJECT", os.getcwd())
    texts = {
        home / ".cursor" / "mcp.json": CURSOR,
        home / ".codex" / "config.toml": CODEX,
        home / ".claude.json": claude,
        Path.cwd() / ".vscode" / "mcp.json": VS_CODE,
    }
    for path, text in texts.items():
        write(path, text)
    return {path: text.encode() for path, text in texts.items()}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, ["init", "--mcp", *words], catch_exceptions=False)


def contents(paths: dict[Path, bytes]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in paths}


def secrets_file(home: Path) -> Path:
    (found,) = (home / "state").rglob("mcp-secrets.env")
    return found


def every_file(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def test_without_a_terminal_and_without_yes_it_only_shows(home: Path, clients: dict[Path, bytes]) -> None:
    before = every_file(home, Path.cwd())
    result = run()
    assert result.exit_code == 0
    assert "nothing was changed: add --yes" in result.output
    assert '- "files": {"command": "npx"' in result.output
    assert '+ "licet": {"command": ' in result.output
    assert '"off" stays: it is switched off' in result.output
    assert contents(clients) == clients
    assert every_file(home, Path.cwd()) == before


def test_clients_get_the_gateway_and_the_policy_their_servers(home: Path, clients: dict[Path, bytes]) -> None:
    result = run("--yes")
    assert result.exit_code == 0, result.output
    here, manifest = Path.cwd(), Path.cwd() / ".licet" / "licet.yaml"
    policy = load_manifest(manifest)
    assert policy.servers == {
        "own": {"command": ("own-server",)},
        "files": {"command": ("npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/notes")},
        "github": {
            "command": ("uvx", "gh-server"),
            "secrets": {"GH_TOKEN": "mcp/github/GH_TOKEN", "MODE": "mcp/github/MODE"},
        },
        "web": {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "mcp/web/Authorization"}},
        "db": {"command": ("uvx", "db-server"), "secrets": {"DB_PASSWORD": "mcp/db/DB_PASSWORD"}},
        "git": {"command": ("uvx", "git-server", "${workdir}"), "secrets": {"GH": "GH_TOKEN"}},
    }
    args = ["gateway", str(manifest), "--accepted"]
    cursor = Jsonc().read((home / ".cursor" / "mcp.json").read_text())["mcpServers"]
    assert list(cursor) == ["licet", "off"]
    assert (cursor["licet"]["command"], cursor["licet"]["args"]) == (this_licet(), args)
    vs_code = json.loads((here / ".vscode" / "mcp.json").read_text())["servers"]["licet"]
    shared = ["gateway", "${workspaceFolder}/.licet/licet.yaml", "--accepted"]
    assert (vs_code["type"], vs_code["args"], vs_code["env"]) == ("stdio", shared, {"GH_TOKEN": "${env:GH_TOKEN}"})
    claude = json.loads((home / ".claude.json").read_text())
    assert list(claude["projects"][str(here)]["mcpServers"]) == ["licet"]
    assert (claude["mcpServers"], claude["oauth"]) == ({}, TOKEN)
    assert "// my servers" in (home / ".cursor" / "mcp.json").read_text()
    assert "these clients had different servers" in result.output
    assert f"licet lock --init --secrets {secrets_file(home)}: starts the servers" in result.output


SHARED = {".mcp.json": "mcpServers", ".cursor/mcp.json": "mcpServers", ".vscode/mcp.json": "servers",
          ".gemini/settings.json": "mcpServers", ".zed/settings.json": "context_servers"}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_a_file_of_the_project_has_no_path_of_this_machine(home: Path, name: str) -> None:
    file, table = Path.cwd() / name, SHARED[name]
    write(file, json.dumps({table: {"a": {"command": "a", "env": {"KEY": TOKEN}}}}))
    assert run("--yes").exit_code == 0
    written = file.read_text()
    for place in (home, Path.cwd(), Path(this_licet()).parent):
        assert str(place) not in written
    (entry,) = json.loads(written)[table].values()
    assert (entry["command"], entry["args"][0], entry["args"][2:]) == ("licet", "gateway", ["--accepted"])
    assert entry["args"][1] in (".licet/licet.yaml", "${workspaceFolder}/.licet/licet.yaml")

    # A gateway of a version before has paths of whoever ran it. It is known by what it starts, and written anew.
    policy = str(Path.cwd() / ".licet" / "licet.yaml")
    older = ["gateway", policy, "--workdir", str(Path.cwd()), "--secrets", str(secrets_file(home))]
    for args in (older, [*older, "--accepted"], ["gateway", policy]):
        write(file, json.dumps({table: {"licet": {"command": this_licet(), "args": args}, "b": {"command": "b"}}}))
        run("--yes")
        assert json.loads(file.read_text())[table] == {"licet": entry}

    # Whatever else a gateway is given is somebody's choice.
    for more in (
        ["--state", "/srv"],
        ["--workdir", "/"],
        ["--workdir"],
        ["x.yaml"],
        ["--workdir", ".", "--workdir", "."],
    ):
        args = ["gateway", policy, *more]
        write(file, json.dumps({table: {"mine": {"command": this_licet(), "args": args}, "c": {"command": "c"}}}))
        run("--yes")
        assert json.loads(file.read_text())[table]["mine"]["args"] == args


# Acceptance -----------------------------------------------------------------------------------------------------------


def is_on_the_list(file: str) -> bool:
    return is_accepted(file, load_manifest(file))


def test_a_new_policy_is_accepted(home: Path, clients: dict[Path, bytes]) -> None:
    result = json.loads(run("--yes", "--json").output)
    assert result["accepted"] is True
    assert is_on_the_list(".licet/licet.yaml")
    assert "licet trust: accepts what the policy says then" in result["next"]


def test_servers_that_were_agreed_to_are_accepted_with_an_accepted_policy(
    home: Path, clients: dict[Path, bytes]
) -> None:
    write(Path("licet.yaml"), EXISTING)
    accept_policy(Path("licet.yaml"), load_manifest("licet.yaml"))
    result = run("--yes")
    assert is_on_the_list("licet.yaml")
    assert "the most that it allows" not in result.output  # nothing else is new


def other_lock() -> None:
    lock = Lock(format=FORMAT, manifests={"agent.yaml": f"sha256:{'0' * 64}"})
    write(Path("licet.lock"), write_lock(lock).decode())


CHANGED_MEANWHILE: dict[str, tuple[Callable[[], object], str]] = {
    "a lock that came": (other_lock, "licet.lock changed meanwhile"),
    "a lock that nobody can read": (lambda: write(Path("licet.lock"), "{"), "licet.lock changed meanwhile"),
    "another file of the policy": (
        lambda: write(Path("agent.yaml"), "agent: me\ncapabilities: {fs_reach: {read: [/srv/precious]}}\n"),
        "another file of the policy changed meanwhile",
    ),
    "the file of the servers": (
        lambda: write(Path("licet.yaml"), "servers: {evil: {command: [evil]}}\n"),
        "licet.yaml changed meanwhile",
    ),
}


@pytest.mark.parametrize("what", CHANGED_MEANWHILE)
def test_what_changes_while_the_user_is_asked_is_not_accepted(what: str, home: Path) -> None:
    change, said = CHANGED_MEANWHILE[what]
    write(Path("licet.yaml"), "bundles: {}\n")
    write(Path("agent.yaml"), "agent: me\ncapabilities: {}\n")
    accept_policy(Path("agent.yaml"), load_manifest("agent.yaml"))
    with click.Context(click.Command("init")):
        policy = _policy(Path("agent.yaml"))
    assert policy.accepted
    text = "servers: {a: {command: [a-server]}}\n"
    write(policy.file, text)
    change()
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        assert not accept_edited(policy, text, lambda _: True)
    assert said in heard.getvalue()
    found = load_manifest("agent.yaml")
    assert not is_accepted("agent.yaml", found)


def test_a_policy_that_was_not_accepted_is_shown_as_a_whole(home: Path, clients: dict[Path, bytes]) -> None:
    """A cloned project may have a policy of its own, which nobody here has looked at."""
    write(Path("licet.yaml"), EXISTING.replace("{tools: []}", "{tools: [], fs_reach: {read: [/srv/precious]}}"))
    shown = run()
    assert not is_on_the_list("licet.yaml")
    assert "/srv/precious" not in shown.output
    result = run("--yes")
    assert "the most that it allows, whatever its tools declare:" in result.output
    assert "fs:read:/srv/precious" in result.output
    assert is_on_the_list("licet.yaml")


def test_a_person_who_does_not_accept_it_is_told_what_is_left(home: Path) -> None:
    write(home / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"a": {"command": "a-server"}}}))
    write(Path("licet.yaml"), "agent: me\ncapabilities: {}\n")
    answers = [
        ((b"[y/N]", b"[Y/n]"), answer) for answer in (b"y\n", b"y\n", b"n\n")
    ]  # Cursor; the policy; accepting it
    code, said = at_terminal(["init", "--mcp"], *answers)
    assert code == 0, said
    assert "accept licet.yaml, so that clients may start it?" in said
    assert "licet trust: shows the policy; the clients start nothing before it is accepted" in said
    assert not is_on_the_list("licet.yaml")


def test_a_list_that_cannot_be_written_is_reported(home: Path, clients: dict[Path, bytes]) -> None:
    write(Path("licet.yaml"), EXISTING)
    write(home / "state" / "licet" / "trust", "{")
    result = run("--yes", "--json")
    assert json.loads(result.stdout)["accepted"] is False
    assert "the policy could not be accepted: " in result.stderr


# Gateways that are there ----------------------------------------------------------------------------------------------


def cursor_entry(home: Path) -> dict[str, Any]:
    entry: dict[str, Any] = Jsonc().read((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["licet"]
    return entry


OLDER: dict[str, dict[str, Any]] = {
    "without the option": {},
    "of another licet": {"command": "/opt/older/bin/licet"},
    "of a program in the project": {"command": "./licet"},
    "with code of its own": {"env": {"PYTHONPATH": "/srv/evil", "GH_TOKEN": "${GH_TOKEN}"}},
    "with code of the project": {"env": {"PYTHONPATH": "${PWD}", "GH_TOKEN": "${GH_TOKEN}"}},
}
APPROVALS = {"trust": True, "autoApprove": ["*"], "alwaysAllow": ["x"]}


@pytest.mark.parametrize("more", OLDER.values(), ids=OLDER)
def test_an_older_entry_is_written_anew_and_can_be_undone(home: Path, more: dict[str, Any]) -> None:
    cursor = home / ".cursor" / "mcp.json"
    write(cursor, json.dumps({"mcpServers": {"a": {"command": "a-server"}}}))
    run("--yes")
    now = cursor_entry(home)
    older = {**now, "args": now["args"][:-1], "timeout": 5, **APPROVALS, **more}
    write(cursor, json.dumps({"mcpServers": {"licet": older}}))
    result = run("--yes")
    assert result.exit_code == 0, result.output
    kept: dict[str, Any] = {"env": {"GH_TOKEN": "${GH_TOKEN}"}} if "env" in more else {}
    kept |= {} if more else APPROVALS  # the choice of whoever wrote the entry, which is only known to be ours
    assert cursor_entry(home) == {**now, "timeout": 5, **kept}
    assert "restart the clients" in result.output
    assert (run("--yes").exit_code, cursor_entry(home)["args"]) == (1, now["args"])  # nothing is left to do
    run("--undo", "--yes")
    left = json.loads(cursor.read_text())["mcpServers"]
    # An entry whose program somebody changed is not taken out: it is no longer the one that was written.
    assert left == ({"licet": older} if "command" in more else {}) | {"a": {"command": "a-server"}}


def test_an_older_entry_of_a_changed_file_is_put_back_by_undo(home: Path) -> None:
    cursor = home / ".cursor" / "mcp.json"
    write(cursor, json.dumps({"mcpServers": {"a": {"command": "a-server"}}}))
    run("--yes")
    now = cursor_entry(home)
    write(cursor, json.dumps({"mcpServers": {"licet": {**now, "args": now["args"][:-1]}}}))
    run("--yes")
    write(cursor, json.dumps({**json.loads(cursor.read_text()), "theme": "dark"}))
    run("--undo", "--yes")
    assert json.loads(cursor.read_text()) == {"mcpServers": {"a": {"command": "a-server"}}, "theme": "dark"}


def test_a_second_entry_of_the_gateway_is_taken_out(home: Path) -> None:
    """It may lack the option, and a client starts both."""
    cursor = write(home / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"a": {"command": "a-server"}}}))
    run("--yes")
    now = cursor_entry(home)
    before = json.dumps({"mcpServers": {"licet": now, "two": {**now, "args": now["args"][:-1]}}})
    write(cursor, before)
    assert run("--yes").exit_code == 0
    assert json.loads(cursor.read_text())["mcpServers"] == {"licet": now}


def test_a_gateway_written_by_hand_stays_with_advice(home: Path) -> None:
    run_by_hand = {"command": this_licet(), "args": ["gateway", "/srv/agent.yaml"]}
    write(home / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"mine": run_by_hand}}))
    assert '"mine" stays: it is a gateway already, for another policy or with other options; with `--accepted`' in (
        run().output
    )


def test_a_program_called_licet_is_a_server_like_any_other(home: Path) -> None:
    """A project's configuration could name a program of the project, which would then run without any wall."""
    entries = {"licet": {"command": "./licet", "args": ["gateway", "x.yaml"]}, "other": {"command": "o"}}
    write(Path.cwd() / ".mcp.json", json.dumps({"mcpServers": entries}))
    assert sum(number for _, number in servers_without_gateway(surroundings(Path.cwd()))) == 2
    assert run("--yes").exit_code == 0
    left = json.loads((Path.cwd() / ".mcp.json").read_text())["mcpServers"]
    assert list(left) == ["licet-2"]
    assert load_manifest(".licet/licet.yaml").servers["licet"] == {"command": ("./licet", "gateway", "x.yaml")}
    assert sum(number for _, number in servers_without_gateway(surroundings(Path.cwd()))) == 0


def test_variables_of_new_servers_reach_a_gateway_that_is_there(home: Path) -> None:
    path = Path.cwd() / ".vscode" / "mcp.json"
    write(path, json.dumps({"servers": {"a": {"command": "a", "env": {"A": "${env:A}"}}}}))
    run("--yes")
    data = json.loads(path.read_text())
    write(path, json.dumps({"servers": {**data["servers"], "b": {"command": "b", "env": {"B": "${env:B}"}}}}))
    run("--yes")
    servers = json.loads(path.read_text())["servers"]
    assert (list(servers), servers["licet"]["env"]) == (["licet"], {"A": "${env:A}", "B": "${env:B}"})


def test_a_new_policy_for_servers_with_secrets_offers_trifecta_and_does_not_set_it(
    home: Path, clients: dict[Path, bytes]
) -> None:
    assert run("--yes").exit_code == 0
    text = Path(".licet/licet.yaml").read_text()
    assert "flow" not in yaml.safe_load(text)
    assert "# These servers hold secrets." in text
    assert yaml.safe_load(text.replace("# flow: ", "flow: "))["flow"] == {"preset": "trifecta"}


def test_secrets_are_in_the_secrets_file_and_nowhere_else(home: Path, clients: dict[Path, bytes]) -> None:
    result = run("--yes")
    file = secrets_file(home)
    assert file.stat().st_mode & 0o777 == 0o600
    found = {
        name: asyncio.run(FileSecrets(file).get(name))
        for name in ("mcp/github/GH_TOKEN", "mcp/github/MODE", "mcp/web/Authorization", "mcp/db/DB_PASSWORD")
    }
    assert list(found.values()) == [TOKEN, "fast", f"Bearer {TOKEN}-web", f"{TOKEN}-db"]
    assert TOKEN not in result.output
    assert "`MODE` may be no secret" in result.output
    with_token = [path for path in every_file(Path.cwd()) if TOKEN.encode() in path.read_bytes()]
    assert with_token == []
    private = [path for path in every_file(home / "state") if path.stat().st_mode & 0o077]
    assert private == []


def test_an_accepted_gateway_finds_the_secrets_of_its_policy(
    home: Path, clients: dict[Path, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    run("--yes")
    policy = load_manifest(".licet/licet.yaml")
    assert own_secrets(policy) == secrets_file(home)
    assert f"licet: secrets are taken from {secrets_file(home)}" in capsys.readouterr().err
    write(Path("licet.yaml"), EXISTING)  # of the same project, and no server of it is given a secret
    assert own_secrets(load_manifest("licet.yaml")) is None
    secrets_file(home).unlink()
    assert own_secrets(policy) is None


def test_the_json_has_no_value_either(home: Path, clients: dict[Path, bytes]) -> None:
    shown = run("--json")
    data = json.loads(shown.output)
    assert (data["written"], contents(clients)) == ([], clients)
    done = json.loads((result := run("--json", "--yes")).output)
    assert sorted(done["written"]) == sorted(map(str, clients))
    assert done["secrets"]["file"] == str(secrets_file(home))
    assert TOKEN not in shown.output + result.output


def test_undo_restores_every_byte(home: Path, clients: dict[Path, bytes]) -> None:
    run("--yes")
    assert contents(clients) != clients
    assert run("--undo").exit_code == 0  # only shows
    assert contents(clients) != clients
    result = run("--undo", "--yes")
    assert result.exit_code == 0, result.output
    assert contents(clients) == clients
    assert "is as it was before" in result.output
    again = run("--undo", "--yes")
    assert (again.exit_code, "nothing to undo" in again.output) == (1, True)


def test_undo_of_a_changed_file_puts_back_the_entries_alone(home: Path, clients: dict[Path, bytes]) -> None:
    run("--yes")
    codex = home / ".codex" / "config.toml"
    codex.write_text(codex.read_text().replace('"m"', '"new"') + 'theme = "dark"\n')
    result = run("--undo", "--yes", "--json")
    undone = {one["path"]: one for one in json.loads(result.output)["undone"]}
    assert undone[str(codex)] == {"path": str(codex), "exact": False, "put_back": ["files", "db"], "skipped": []}
    text = codex.read_text()
    assert text == CODEX.replace('"m"', '"new"') + 'theme = "dark"\n'
    assert (home / ".cursor" / "mcp.json").read_text() == CURSOR


def test_a_second_run_moves_only_what_is_new(home: Path, clients: dict[Path, bytes]) -> None:
    run("--yes")
    again = run("--yes")
    assert (again.exit_code, "it is a gateway already" in again.output) == (1, True)
    cursor = home / ".cursor" / "mcp.json"
    cursor.write_text(cursor.read_text().replace('"off"', '"more": {"command": "more-server"},\n    "off"'))
    middle = contents(clients)
    assert run("--yes").exit_code == 0
    assert list(Jsonc().read(cursor.read_text())["mcpServers"]) == ["licet", "off"]
    assert "more" in load_manifest(".licet/licet.yaml").servers
    assert {path: data for path, data in contents(clients).items() if path != cursor} == {
        path: data for path, data in middle.items() if path != cursor
    }
    run("--undo", "--yes")
    servers = Jsonc().read(cursor.read_text())["mcpServers"]
    assert sorted(servers) == ["GitHub", "files", "more", "off", "web"]


def test_setting_up_again_after_undo_reuses_the_servers(home: Path, clients: dict[Path, bytes]) -> None:
    run("--yes")
    policy, secrets = Path(".licet/licet.yaml").read_bytes(), secrets_file(home).read_bytes()
    run("--undo", "--yes")
    assert run("--yes").exit_code == 0
    assert Path(".licet/licet.yaml").read_bytes() == policy
    assert secrets_file(home).read_bytes() == secrets


def test_a_rotated_token_is_not_overwritten(home: Path, clients: dict[Path, bytes]) -> None:
    run("--yes")
    run("--undo", "--yes")
    file = secrets_file(home)
    file.write_text(file.read_text().replace(f"GH_TOKEN={TOKEN}", "GH_TOKEN=rotated"))
    result = run()
    assert '"GitHub" stays: ' in result.output
    assert "has another value for `mcp/github/GH_TOKEN`: remove that line first" in result.output


EXISTING = """# mine
agent: me
capabilities: {tools: []}

servers:
  # the notes
  files: {command: [other]}  # mine too
"""


def test_an_existing_policy_keeps_all_that_it_says(home: Path, clients: dict[Path, bytes]) -> None:
    write(Path("licet.yaml"), EXISTING)
    result = run("--yes")
    assert result.exit_code == 0, result.output
    text = Path("licet.yaml").read_text()
    assert [line for line in EXISTING.splitlines() if line not in text.splitlines()] == []
    before, after = yaml.safe_load(EXISTING), yaml.safe_load(text)
    assert after["servers"].pop("files") == before["servers"]["files"]
    assert list(after["servers"]) == ["own", "files-2", "github", "web", "db", "git"]
    assert {**after, "servers": 0} == {**before, "servers": 0}
    assert "under `capabilities.secrets`: mcp/github/GH_TOKEN" in result.output
    assert "under `capabilities.destinations.allow`: mcp.example.com" in result.output
    assert "trifecta" not in text
    assert not Path(".licet").exists()


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("agent: me\ncapabilities: {}\nservers: {a: {command: [x]}}\n", "its `servers` are written on one line"),
        ("{agent: me, capabilities: {}}\n", "it is not written in lines"),
        ("servers:\n  a: {command: [x]}\n", "is a workspace, and the gateway needs the manifest of an agent"),
        ("agent: me\nagnet: you\n", "found the key `agnet`"),
    ],
)
def test_a_policy_that_cannot_be_added_to_stops_everything(
    home: Path, clients: dict[Path, bytes], policy: str, reason: str
) -> None:
    write(Path("licet.yaml"), policy)
    result = run("--yes")
    assert result.exit_code == 1
    assert reason in result.output
    assert contents(clients) == clients
    assert Path("licet.yaml").read_text() == policy
    assert [path for path in every_file(home) if path not in clients] == []


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("agent: me\nversion: |+\n  a\n", "the new entries would change what is there"),  # the blank line would count
        ("agent: me\n...\n", "the new entries would break it"),
    ],
)
def test_an_insertion_that_would_say_something_else_is_refused(policy: str, reason: str) -> None:
    with pytest.raises(NotKept, match=reason):
        with_servers(policy, {"a": {"command": ["x"]}})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("My GitHub_server", "my-github-server"), ("7zip", "s-7zip"), ("日本", "server"), ("a" * 40, "a" * 28)],
)
def test_names_of_entries_become_names_of_servers(name: str, expected: str) -> None:
    assert server_name(name) == expected


def test_servers_go_into_the_workspace_next_to_a_manifest(home: Path, clients: dict[Path, bytes]) -> None:
    write(Path("licet.yaml"), "destinations: {allow: [a.example]}\r\nservers: {}  # none yet\r\n")
    write(Path("research.yaml"), "agent: me\ncapabilities: {tools: []}\n")
    result = run("--yes", "-o", "research.yaml")
    assert result.exit_code == 0, result.output
    assert Path("research.yaml").read_text() == "agent: me\ncapabilities: {tools: []}\n"
    text = Path("licet.yaml").read_bytes()
    assert text.startswith(b"destinations: {allow: [a.example]}\r\nservers:  # none yet\r\n  own:\r\n")
    assert text.count(b"\n") == text.count(b"\r\n")
    assert len(load_manifest("research.yaml").servers) == 6
    args = Jsonc().read((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["licet"]["args"]
    assert args[1] == str(Path.cwd() / "research.yaml")


def test_links_are_refused_and_the_rest_is_set_up(home: Path, clients: dict[Path, bytes]) -> None:
    """A project could lead the edit to any other file of this user, such as another agent's configuration."""
    target = write(home / "precious.json", '{"mcpServers": {"a": {"command": "x"}}}')
    (Path.cwd() / ".mcp.json").symlink_to(target)
    result = run("--yes")
    assert result.exit_code == 0
    assert "not touched: " in result.output
    assert ".mcp.json is a link: edit the file that it leads to by hand" in result.output
    assert target.read_text() == '{"mcpServers": {"a": {"command": "x"}}}'
    assert "a" not in load_manifest(".licet/licet.yaml").servers


def test_a_broken_configuration_is_left_and_named(home: Path, clients: dict[Path, bytes]) -> None:
    broken = write(home / ".gemini" / "settings.json", '{"mcpServers": {"a": {}, "a": {}}}')
    result = run("--yes")
    assert result.exit_code == 0
    assert f'{broken} cannot be edited: line 1: the key "a" is there twice' in result.output
    assert broken.read_text() == '{"mcpServers": {"a": {}, "a": {}}}'


def test_an_address_with_a_user_name_stays_and_is_not_repeated(home: Path) -> None:
    write(home / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"a": {"url": "https://hunter2@a.example/mcp"}}}))
    result = run()
    assert (result.exit_code, "stays: policy cannot say it" in result.output) == (1, True)
    lines = [line for line in result.output.splitlines() if "stays" in line]
    assert "hunter2" not in "".join(lines)


def test_names_that_clash_are_told_apart(home: Path) -> None:
    entries: dict[str, Any] = {"My Server": {"command": "a"}, "my-server": {"command": "b"}, "licet": {"command": "c"}}
    path = write(home / ".cursor" / "mcp.json", json.dumps({"mcpServers": entries}))
    write(home / ".gemini" / "settings.json", json.dumps({"mcpServers": {"my_server": {"command": "b"}}}))
    assert run("--yes").exit_code == 0
    servers = load_manifest(".licet/licet.yaml").servers
    assert {name: server["command"] for name, server in servers.items()} == {
        "my-server": ("a",),
        "my-server-2": ("b",),
        "licet": ("c",),
    }
    assert list(json.loads(path.read_text())["mcpServers"]) == ["licet-2"]


def test_nothing_found_names_where_it_looked(home: Path) -> None:
    result = run("--yes")
    assert result.exit_code == 1
    assert str(home / ".cursor" / "mcp.json") in result.output
    assert every_file(home, Path.cwd()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--mcp", "tools.py"], "--mcp takes no FILE.py"),
        (["--mcp", "--force"], "--mcp takes no FILE.py"),
        (["--mcp", "-o", "-"], "--mcp takes no FILE.py"),
        (["--mcp", "--agent", "a b"], "--agent"),
        (["--undo"], "--undo needs --mcp"),
        (["--mcp", "--preset", "coding"], "--mcp takes no FILE.py"),
        (["tools.py", "--preset", "coding"], "--preset takes no FILE.py"),
        (["--preset", "other"], "'other' is not 'coding'"),
    ],
)
def test_a_wrong_command_line_is_refused(home: Path, words: list[str], reason: str) -> None:
    result = CliRunner().invoke(licet, ["init", *words])
    assert (result.exit_code, reason in result.output) == (2, True)


def test_a_person_at_a_terminal_is_asked_about_each_file(home: Path, clients: dict[Path, bytes]) -> None:
    # Claude Code: no; Cursor: yes; Codex: no; VS Code: no; the policy: yes; the secrets: no.
    code, said = at_terminal(["init", "--mcp"], *(((b"[y/N]", b"[Y/n]"), f"{one}\n".encode()) for one in "nynnyn"))
    assert code == 0, said
    changed = [path.name for path, data in contents(clients).items() if data != clients[path]]
    assert changed == ["mcp.json"]
    assert sorted(load_manifest(".licet/licet.yaml").servers) == ["files", "github", "web"]
    assert not list((home / "state").rglob("mcp-secrets.env"))
    assert "yourself: mcp/github/GH_TOKEN, mcp/github/MODE, mcp/web/Authorization" in said
    assert TOKEN not in said


def test_a_key_that_is_known_is_offered_as_a_stand_in() -> None:
    known = DraftedServer(
        "gh", {"command": ["x"], "secrets": {"GITHUB_TOKEN": "mcp/gh/GITHUB_TOKEN", "OTHER": "o"}}, {}
    )
    plain = DraftedServer("other", {"command": ["x"], "secrets": {"OTHER": "o"}}, {})
    file = Path("licet.yaml")
    policy = Policy(file, file, Path(), True, "", {}, Path("secrets"), {})
    (step,) = (step for step in next_steps(policy, [known, plain]) if step.startswith("to keep keys out of"))
    assert step == (
        "to keep keys out of `gh`, write there `inspect: [api.github.com, github.com, uploads.github.com]`, and as "
        "secrets `GITHUB_TOKEN: {secret: mcp/gh/GITHUB_TOKEN, hosts: [api.github.com, github.com, uploads.github.com]}`"
    )
