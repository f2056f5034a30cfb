"""`licet init` without a file looks around, and `--preset coding` writes a policy that a real program runs under."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import warm
from attacks.walled_programs import needs_walls
from cli.terminals import at_terminal
from licet.assemble import review
from licet.cli import init as init_look
from licet.cli import init_preset
from licet.cli.app import licet
from licet.policy_files import secret_files
from pins import trust

TOOLS = """
from licet import Context, tool

@tool(needs=["fs:read:${workdir}/notes"], effect="read_only", sandbox="restricted")
async def read_note(ctx: Context, city: str) -> str: ...
"""
FRAMEWORKS = {
    "pydantic-ai": "from pydantic_ai import Agent",
    "openai-agents": "from agents import Agent, Runner",
    "langchain": "import langchain_core.tools",
    "claude-agent-sdk": "from claude_agent_sdk import query",
    "openai": "    import openai",
    "anthropic": "from anthropic import Anthropic",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("STATE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    return project


def init(*words: str) -> Result:
    return CliRunner().invoke(licet, ["init", *words])


@pytest.mark.parametrize(("name", "line"), FRAMEWORKS.items())
def test_frameworks_are_known_by_their_imports(here: Path, name: str, line: str) -> None:
    (here / "app.py").write_text(f"{line}\n")
    assert [one.name for one in init_look.look_around(here).frameworks] == [name]


@pytest.mark.parametrize("line", ["from myagents import x", "import agents", "# import openai", "x = 'import openai'"])
def test_other_lines_are_no_frameworks(here: Path, line: str) -> None:
    (here / "app.py").write_text(f"{line}\n")
    assert init_look.look_around(here).frameworks == ()


@pytest.mark.parametrize("kind", ["fifo", "newlines", "too large", "link in a circle"])
def test_odd_files_are_passed_over(here: Path, kind: str) -> None:
    path = here / "a.py"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "newlines":
            path.write_bytes(b"\n" * (1 << 20))
        case "too large":
            path.write_bytes(b"import openai\n" * (1 << 18))
        case _:
            path.symlink_to(path)
    assert init_look.look_around(here) == init_look.Found({}, (), ())


def test_tools_and_servers_are_found_and_nothing_is_imported(here: Path) -> None:
    (here / "web").mkdir()
    (here / "web" / "tools.py").write_text(f"{TOOLS}\nraise SystemExit('imported')\n")
    (here / ".venv").mkdir()
    (here / ".venv" / "other.py").write_text(TOOLS)
    (here / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}))
    found = init_look.look_around(Path())
    assert found.tools == {Path("web/tools.py"): 1}
    assert [(one.client, one.servers) for one in found.clients] == [("Claude Code", 2)]


def test_nothing_is_written_without_a_yes_or_a_terminal(here: Path) -> None:
    (here / "tools.py").write_text(TOOLS)
    shown = init()
    assert (shown.exit_code, "`licet init --yes` writes .licet/licet.yaml" in shown.output) == (0, True)
    assert json.loads(init("--json").stdout)["found"]["tools"] == {"tools.py": 1}
    assert not (here / ".licet").exists()


def test_yes_writes_the_policy_and_names_the_next_steps(here: Path) -> None:
    (here / "tools.py").write_text(TOOLS)
    (here / "app.py").write_text("import openai\n")
    written = init("--yes")
    assert written.exit_code == 0, written.output
    assert review(here / ".licet" / "licet.yaml").problems == ()
    for step in ("licet lock", "licet.adapters.openai_tools(gate, session=…)"):
        assert step in written.output
    assert init("--yes").exit_code == 1  # it never overwrites


def test_an_empty_directory_is_told_what_else_there_is() -> None:
    shown = init()
    assert shown.exit_code == 1
    for step in ("licet init FILE.py", "licet init --preset coding", "licet demo"):
        assert step in shown.output


@pytest.mark.parametrize("agents", [(), init_preset.AGENTS[:1], init_preset.AGENTS], ids=len)
def test_the_coding_policy_is_sound(here: Path, agents: tuple[init_preset.CodingAgent, ...]) -> None:
    policy = here / "licet.yaml"
    policy.write_text(init_preset.coding_policy("coder", "x.json", agents, here))
    assert review(policy).problems == ()


def test_what_exists_is_denied_and_what_must_never_be_planted(here: Path) -> None:
    policy = init_preset.coding_policy("coder", "x.json", (), here)
    for name in (".git", ".claude", ".mcp.json", ".vscode"):
        assert f'    - "fs:write:${{workdir}}/{name}"' in policy
    assert '    - "fs:write:${workdir}/.github/workflows"' in policy
    for name in (".env", ".venv"):
        assert f'${{workdir}}/{name}"' not in policy  # it may be made in the course of the work
        (here / name).mkdir(parents=True)
    later = init_preset.coding_policy("coder", "x.json", (), here)
    assert '    - "fs:*:${workdir}/.env"' in later
    assert '    - "fs:write:${workdir}/.venv"' in later


def test_a_policy_for_any_directory_denies_what_is_not_here(here: Path) -> None:
    policy = init_preset.coding_policy("default", "x.json", (), here, {}, everywhere=True)
    assert '    - "fs:*:${workdir}/.env"' in policy
    assert '${workdir}/.venv"' not in policy


SECRET = (".env.local", "packages/api/.env", "key.pem", "packages/api/credentials.json")
NOT_SECRET = (".env.example", "token.py", ".npmrc", "node_modules/a/key.pem", "a\nb.pem")


def test_files_that_hold_secrets_by_custom_are_denied_wherever_they_are(here: Path) -> None:
    for name in (*SECRET, *NOT_SECRET):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("x")
    (here / "link.pem").symlink_to("key.pem")
    (here / "dir.pem").mkdir()
    text = init_preset.coding_policy("coder", "x.json", (), here)
    (here / "licet.yaml").write_text(text)
    assert review(here / "licet.yaml").problems == ()
    denied = {line.split('"')[1].removeprefix("fs:*:${workdir}/") for line in text.splitlines() if '"fs:*:' in line}
    assert denied == set(SECRET)
    assert "NOT ALL OF THEM" in text
    (here / "a\nb.pem").unlink()
    assert "NOT ALL OF THEM" not in init_preset.coding_policy("coder", "x.json", (), here)


@pytest.mark.parametrize(("limit", "number"), [("MOST_LOOKED_THROUGH", 2), ("MOST_SECRET_FILES", 2)])
def test_a_search_for_secrets_is_bounded_and_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, limit: str, number: int
) -> None:
    monkeypatch.setattr(secret_files, limit, number)
    for name in ("a.pem", "b.pem", "c.pem"):
        (here / name).touch()
    found = secret_files.secret_files(str(here))
    assert (len(found.paths) <= number + 1, found.is_whole) == (True, False)


def test_what_is_closed_and_missing_is_made_empty_and_said(here: Path) -> None:
    (here / ".vscode").mkdir()
    (here / ".vscode" / "tasks.json").write_text("{}")
    printed = init("--preset", "coding", "-o", "-")
    assert (printed.exit_code, [path.name for path in here.iterdir()]) == (0, [".vscode"])
    written = init("--preset", "coding", "--json")
    made = json.loads(written.stdout)["made"]
    assert {".git/", ".claude/", ".mcp.json"} <= set(made)
    assert ".vscode/" not in made
    assert json.loads((here / ".mcp.json").read_text()) == {"mcpServers": {}}
    assert (here / ".vscode" / "tasks.json").exists()
    (here / ".mcp.json").unlink()
    again = init("--preset", "coding", "--force")
    assert "made, empty, because they are closed to the agent: .mcp.json\n" in again.stdout


def test_opencode_finds_in_its_closed_directory_what_it_would_write_there(here: Path) -> None:
    init("--preset", "coding")
    assert "package.json" in (here / ".opencode" / ".gitignore").read_text()


def test_nothing_is_made_through_a_link_of_the_project(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (here / ".opencode").symlink_to(elsewhere)
    init("--preset", "coding")
    assert list(elsewhere.iterdir()) == []


def test_an_agent_of_npm_may_read_its_packages(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path_factory.mktemp("prefix")
    modules = prefix / "lib" / "node_modules"
    script = modules / "@example" / "agent" / "bin" / "agent.js"
    script.parent.mkdir(parents=True)
    script.write_text("#!/usr/bin/env node\n")
    script.chmod(0o755)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "copilot").symlink_to(script)
    monkeypatch.setenv("PATH", f"{prefix / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert init("--preset", "coding").exit_code == 0
    text = (here / ".licet" / "licet.yaml").read_text()
    assert f'      - "{modules}"  # an agent and the packages' in text
    assert '      - "*.githubcopilot.com"' in text
    assert review(here / ".licet" / "licet.yaml").problems == ()


def test_what_the_preset_does_not_start_is_said(here: Path) -> None:
    said = init("--preset", "coding").stdout
    assert "an agent that is not under `allowed_binaries` is refused" in said.split("next: ")[1]
    assert "NODE_USE_ENV_PROXY" not in (here / ".licet" / "licet.yaml").read_text()  # `licet run` sets it


NOT_COPIED = ("*-packages", "test", "tests", "idlelib", "tkinter", "config-*", "lib2to3", "ensurepip")


@needs_walls
@pytest.mark.sampled(0)
def test_an_environment_of_a_python_outside_of_the_system_runs_below_a_shell(
    here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base, name = tmp_path_factory.mktemp("pythons") / "3.x", f"python3.{sys.version_info.minor}"
    # A copy, as a version manager keeps one.
    shutil.copytree(sysconfig.get_path("stdlib"), base / "lib" / name, ignore=shutil.ignore_patterns(*NOT_COPIED))
    for library in Path(sys.base_prefix, "lib").glob("libpython3*.so*"):
        shutil.copy(library, base / "lib")
    (base / "bin").mkdir()
    shutil.copy(os.path.realpath(sys.executable), base / "bin" / name)
    subprocess.run([base / "bin" / name, "-m", "venv", "--without-pip", ".venv"], check=True)
    assert init("--preset", "coding", "--agent", "coder").exit_code == 0
    text = (here / ".licet" / "licet.yaml").read_text()
    assert f'      - "{base}"  # an interpreter' in text
    text = re.sub(r"approvals: .*", "approvals: {write: manifest}", text)
    (here / ".licet" / "licet.yaml").write_text(text)
    trust(here / ".licet" / "licet.yaml", Path(os.environ["XDG_STATE_HOME"]))
    ended = warm.run(warm.PROGRAM, ["run", "--", "sh", "-c", ".venv/bin/python -c 'import json; print(1)'"], cwd=here)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr


PLANTED = (
    "cp .git/config .git/config.worktree",
    "echo ../evil > .git/commondir",
    "echo x > .git/hooks/pre-commit",
    "git config core.fsmonitor id",
    "git init -q lib && git -C lib config core.fsmonitor id && git add lib",
    "rm -rf .git",
    "mv .git other",
    "cat .env",
    "echo x >> .licet/licet.yaml",
)


@needs_walls
def test_an_interactive_shell_works_in_the_project_and_plants_nothing(here: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    (here / ".env").write_text("KEY=1\n")
    assert init("--preset", "coding", "--agent", "coder").exit_code == 0
    before = {path: path.read_bytes() for path in (here / ".git").rglob("*") if path.is_file()}
    work = "echo a > a.txt && mv a.txt b.txt && git status --short b.txt && test -w b.txt && echo worked"
    tries = "; ".join(f"{{ {planted}; }} 2>/dev/null && echo planted" for planted in PLANTED)
    prompts = ((b"agree?",), b"y\n"), ((b"# ", b"$ "), f"{work}; {tries}; exit 3\n".encode())  # root's, and others'
    code, said = at_terminal(["run", "--ask", "--", "bash", "--norc", "-i"], *prompts)
    assert code == 3
    assert "\r\nworked\r\n" in said
    assert "\nplanted\r\n" not in said
    assert "KEY=1" not in said
    assert {path: path.read_bytes() for path in (here / ".git").rglob("*") if path.is_file()} == before
