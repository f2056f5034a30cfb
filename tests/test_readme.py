"""The commands of the README, played from the file: blocks of `sh`, and `make` after `$`.

Each block runs in a fresh home and a directory with what the text around it speaks of. LICET_LONG=1 also builds the
Python that models write for, and runs `make demo`. If root runs the tests, `test_ordinary_user.py` plays them again.
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
ASKS = re.compile(r"^licet (trust|run --ask|hooks install)\b")  # a person answers
README = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
SHELL = [body for language, body in README if language == "sh"]
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
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
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


def some_receipts(reader: Reader) -> None:
    """The call that the README shows was refused, in the example that it names."""
    shutil.copytree(ROOT / "examples" / "desk", reader.desk, dirs_exist_ok=True)
    called = next(command for command in SESSIONS if command.startswith("licet call"))
    code, said = reader.types(called)
    found = RECEIPT.search(said)
    assert code == 1, said
    assert found, said
    reader.receipt = found[0]


def a_project(reader: Reader) -> None:
    (reader.desk / "Makefile").write_text("test:\n\t@cat input > /dev/null && echo tested\n")
    (reader.desk / "input").write_text("text")


def a_server(reader: Reader) -> None:
    """A policy that starts a server."""
    shutil.copy(SCRIPTED, reader.desk / "server.py")
    offers = {"tools": [{"name": "report", "inputSchema": {"type": "object"}}]}
    server = {"command": ["python3", "server.py", json.dumps(offers)]}
    content = {"agent": "research", "servers": {"files": server}, "capabilities": {"native": ["files"]}}
    (reader.desk / "research.yaml").write_text(json.dumps(content))


def a_coding_agent(reader: Reader) -> None:
    """Settings of an agent; its program is not needed."""
    (reader.home / ".claude").mkdir()


def nothing(reader: Reader) -> None:
    pass


# By the command with which a block begins. A block that is new needs a line here.
SETTINGS: dict[str, Callable[[Reader], None]] = {
    "licet run": a_project,
    "licet receipts": some_receipts,
    "licet observe": a_project,
    "licet hooks": a_coding_agent,
    "licet lock": a_server,
    "pip install": nothing,
}


def first_words(block: str) -> str:
    return " ".join(block.split()[:2])


@needs_walls
@pytest.mark.sampled(len(SHELL) if os.getuid() else 1)  # root has the others played by an ordinary user
@pytest.mark.who
@pytest.mark.parametrize("block", SHELL, ids=map(first_words, SHELL))
def test_the_commands_of_a_block_work_as_they_are_written(block: str, tmp_path: Path) -> None:
    if "licet wasm build" in block and not LONG:
        pytest.skip("the Python that models write for is built with LICET_LONG=1")
    if "licet observe" in block and not probe.support().namespaces:
        pytest.skip("no namespaces here")
    reader = Reader(tmp_path)
    SETTINGS[first_words(block)](reader)
    for command in commands(block):
        if command.startswith("pip install"):
            installed(command)
            continue
        code, said = reader.types(command)
        refused = command.startswith("licet explain") and said.startswith("denied: ")
        assert code == refused, f"$ {command}\n{said}"
        assert "Traceback" not in said
    if "licet run" in block:
        assert "tested" in said
    if "licet hooks" in block:
        assert "canary   refused" in said
        reader.types(f"{sys.executable} -c '{STOP_RESIDENTS}'")
    if "licet call python.yaml" in block:
        assert json.loads(said)["result"] == 8


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
    played = LONG and target == "demo"  # `make test` is what runs this
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


def test_every_block_has_a_setting() -> None:
    assert {first_words(block) for block in SHELL} == set(SETTINGS)
