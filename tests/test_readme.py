"""The commands of the README and of the pages that it leads to, played: blocks of `sh`, and `make` after `$`.

Each block runs in a fresh home and a directory with what the text around it speaks of. LICET_LONG=1 also builds the
Python that models write for, and runs `make demo` and `make install`. If root runs the tests, `test_ordinary_user.py`
plays them again.
"""

import importlib.metadata
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from attacks.walled_programs import needs_walls
from effort import LONG
from gateway.servers import SCRIPTED
from licet.sandbox import probe

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?=\S).*?(?:<<(\w+)\n.*?^\1$|$)", re.MULTILINE | re.DOTALL)
RECEIPT = re.compile(r"\br-[0-9a-f]{8,}-\d+\b")
ELSEWHERE = re.compile(r"/mnt/elsewhere\b")
STOP_RESIDENTS = "from licet.hooks.resident_control import stop_residents as stop; assert stop()"
ASKS = re.compile(r"^licet (trust|run --ask|hooks (install|remove)|init --mcp)\b")  # a person answers
README = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
DOORS = sorted((ROOT / "docs" / "doors").glob("*.md"))
LEARN, WASM = ROOT / "docs" / "learn.md", ROOT / "docs" / "wasm.md"  # of these, the first block
SESSIONS = [
    line[2:] for language, body in README if language == "console" for line in body.splitlines() if line[:2] == "$ "
]


class Reader:
    """Somebody who types the commands of one block."""

    def __init__(self, home: Path) -> None:
        self.home, self.desk, self.receipt = home, home / "desk", ""
        self.desk.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "LICET_", "PYTHON"))}
        # The command is beside the interpreter that runs this.
        programs = home / "bin"
        programs.mkdir()
        path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
        self.environment = {**kept, "HOME": str(home), "PATH": path, "COLUMNS": "100"}

    def types(self, command: str) -> tuple[int, str]:
        """The exit code of a command and what it printed; at a terminal, whoever is asked says yes."""
        if self.receipt:
            command = RECEIPT.sub(self.receipt, command)
        command = ELSEWHERE.sub(str(self.home), command)
        shell = ["sh", "-c", command]
        if not ASKS.match(command):
            ended = subprocess.run(
                shell, cwd=self.desk, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            return ended.returncode, ended.stdout
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            shell,
            cwd=self.desk,
            env=self.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            os.write(ours, b"y\n" * 3)
            said = b""
            try:
                while piece := os.read(ours, 65536):
                    said += piece
            except OSError:  # all that had the terminal open have ended
                pass
        os.close(ours)
        return process.returncode, said.decode()


def commands(block: str) -> list[str]:
    """The commands of a block, each with what follows `<<` in it."""
    return [found[0] for found in COMMAND.finditer(block)]


# What each block speaks of -------------------------------------------------------------------------------------------


def refused_call(reader: Reader) -> None:
    """The call that the README shows was refused, in the example that it names."""
    shutil.copytree(ROOT / "examples" / "desk", reader.desk, dirs_exist_ok=True)
    called = next(command for command in SESSIONS if command.startswith("licet call"))
    code, said = reader.types(called)
    found = RECEIPT.search(said)
    assert code == 1, said
    assert found, said
    reader.receipt = found[0]


def project(reader: Reader) -> None:
    (reader.desk / "Makefile").write_text("test:\n\t@cat input > /dev/null && echo tested\n")
    (reader.desk / "input").write_text("text")


def tools_of_the_page(reader: Reader) -> None:
    """`tools.py` as the page has it, and a note."""
    (python,) = (body for language, body in blocks_of(DOORS_BY_NAME["tools"]) if language == "python")
    (reader.desk / "tools.py").write_text(python)
    (reader.desk / "notes").mkdir()
    (reader.desk / "notes" / "oslo.md").write_text("Rain by noon.")


def locked_tools(reader: Reader) -> None:
    """A repository with a policy, and `main` where it was before the last commit."""
    tools_of_the_page(reader)
    assert reader.types("licet init tools.py")[0] == 0
    commit = "git add . && git -c user.name=me -c user.email=me@example.com commit --quiet --message"
    code, said = reader.types(
        f"git init --quiet --initial-branch main . && {commit} one && git checkout --quiet -b next"
    )
    assert code == 0, said


def coding_agent(reader: Reader) -> None:
    """Settings of an agent, and a program in its place, which starts as it would."""
    (reader.home / ".claude").mkdir()
    agent = reader.home / "bin" / "claude"
    agent.write_text("#!/bin/sh\necho at work\n")
    agent.chmod(0o755)


def client_with_a_server(reader: Reader) -> None:
    """The configuration of a client in a project, with a server that needs no key."""
    shutil.copy(SCRIPTED, reader.desk / "server.py")
    offers = {"tools": [{"name": "report", "inputSchema": {"type": "object"}}]}
    server = {"command": "python3", "args": ["server.py", json.dumps(offers)]}
    (reader.desk / ".mcp.json").write_text(json.dumps({"mcpServers": {"files": server}}))


def reviewed_agent(reader: Reader) -> None:
    """The example that the page names, in a directory where its agent has called a tool."""
    shutil.copytree(ROOT / "examples" / "weather", reader.desk, dirs_exist_ok=True)
    code, said = reader.types("licet call research.yaml save_report name=oslo.md text=Rain")
    assert "receipt" in said, (code, said)


def policy_of_the_page(reader: Reader) -> None:
    policy = next(body for language, body in blocks_of(WASM) if language == "yaml" and "python" in body)
    (reader.desk / "licet.yaml").write_text(policy)


def blocks_of(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text("utf-8"))


def first_words(block: str) -> str:
    return " ".join(block.split()[:2])


DOORS_BY_NAME = {page.stem: page for page in DOORS}
# By the page, and the command with which a block begins. A block that is new needs a line here.
SETTINGS: dict[str, Callable[[Reader], None]] = {
    "README: licet run": project,
    "README: licet explain": refused_call,
    "tools: licet init": tools_of_the_page,
    "agent: licet hooks": coding_agent,
    "servers: licet init": client_with_a_server,
    "team: licet lock": locked_tools,
    "review: licet check": reviewed_agent,
    "learn: licet observe": project,
    "wasm: pip install": policy_of_the_page,
}
SHELL = {
    f"{page.stem}: {first_words(body)}": body
    for page in (ROOT / "README.md", *DOORS, LEARN, WASM)
    for language, body in blocks_of(page)
    if language == "sh" and (page not in (LEARN, WASM) or f"{page.stem}: {first_words(body)}" in SETTINGS)
}


@needs_walls
@pytest.mark.sampled(len(SHELL) if os.getuid() else 2)  # root has the others played by an ordinary user
@pytest.mark.who
@pytest.mark.parametrize("name", SHELL)
def test_the_commands_of_a_block_work_as_they_are_written(name: str, tmp_path: Path) -> None:
    block = SHELL[name]
    if "licet wasm build" in block and not LONG:
        pytest.skip("the Python that models write for is built with LICET_LONG=1")
    if re.search(r"^licet (observe|run|hooks)\b", block, re.MULTILINE) and not probe.support().namespaces:
        pytest.skip("no namespaces here")
    reader = Reader(tmp_path)
    SETTINGS[name](reader)
    said = ""
    try:
        for command in commands(block):
            if command.startswith("pip install"):
                installed(command)
                continue
            code, said = reader.types(command)
            refused = command.startswith("licet explain") and said.startswith("denied: ")
            grown = command.startswith("licet diff") and re.search(r"^\d+ grown", said, re.MULTILINE) is not None
            assert code == (refused or grown), f"$ {command}\n{said}"
            assert "Traceback" not in said
            for beginning, expected in SAID.get(name, {}).items():
                assert not command.startswith(beginning) or expected in said, f"$ {command}\n{said}"
    finally:
        if "licet hooks" in block:
            reader.types(f"{sys.executable} -c '{STOP_RESIDENTS}'")


# What a command of a block must have said.
SAID = {
    "README: licet run": {"licet run": "tested"},
    "README: licet explain": {"licet explain": "denied: ", "licet receipts verify": "fine: "},
    "tools: licet init": {"licet call": "Rain by noon.", "licet explain": "denied: "},
    "agent: licet hooks": {"licet hooks status": "canary   refused", "licet run": "at work"},
    "servers: licet init": {"licet surface": "server files"},
    "team: licet lock": {"licet diff": "no difference", "licet freeze": "frozen: all calls"},
    "review: licet check": {"licet diff": "7 grown", "licet receipts verify": "fine: "},
    "learn: licet observe": {"licet run": "tested"},
    "wasm: pip install": {"licet call": '"result"'},
}


def installed(command: str) -> None:
    """What the README tells people to install is what this environment has: an extra of that name, and its packages."""
    extra = re.search(r"licet\[([\w-]+)\]", command)
    assert extra, command
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for requirement in extras[extra[1]]:
        assert importlib.metadata.version(re.split(r"[\s\[<>=!~;]", requirement)[0])


@pytest.mark.skipif(not (ROOT / "Makefile").exists(), reason="no Makefile in a copy for another user")
@pytest.mark.parametrize("command", [line.partition("#")[0].strip() for line in SESSIONS if line.startswith("make ")])
def test_what_the_readme_makes_can_be_made(command: str, tmp_path: Path) -> None:
    _, target = command.split()
    played = LONG and target in ("demo", "install")  # `make test` is what runs this
    made = subprocess.run(
        ["make", *(() if played else ("--dry-run",)), target],
        cwd=ROOT, env={**os.environ, "HOME": str(tmp_path)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("a b  # c\nd\n", ["a b  # c", "d"]),
        ("cat > x <<END\none\n\ntwo\nEND\nlast\n", ["cat > x <<END\none\n\ntwo\nEND", "last"]),
    ],
)
def test_commands_are_told_apart(block: str, found: list[str]) -> None:
    assert commands(block) == found


def test_readme_is_short_and_leads_to_each_door() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120
    assert set(re.findall(r"\(docs/doors/(\w+)\.md\)", text)) == set(DOORS_BY_NAME)
    assert {line.split()[2] for line in text.splitlines() if line.startswith("$ make ")} == {"install", "demo", "test"}


@pytest.mark.parametrize("page", DOORS, ids=DOORS_BY_NAME)
def test_a_door_is_half_a_screen_with_five_commands(page: Path) -> None:
    (block,) = (body for language, body in blocks_of(page) if language == "sh")
    assert len(commands(block)) == 5
    assert len(page.read_text("utf-8").splitlines()) <= 40


def test_every_block_has_a_setting() -> None:
    assert set(SHELL) == set(SETTINGS) == set(SAID)
