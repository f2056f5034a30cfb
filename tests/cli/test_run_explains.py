"""What `licet run` says after a failure: the same at a terminal as in a pipe, in five lines that the walls bear out."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import needs_namespaces, needs_walls
from cli.terminals import at_terminal
from licet.cli.limits import HINT_LINES
from licet.cli.refused_paths import last_lines, refused_paths
from licet.cli.run_hints import explanation

pytestmark = [needs_walls, needs_namespaces]

# Tests work in /tmp, which is the program's own otherwise.
HERE = "from licet.cli import run_hints; run_hints._TEMPORARY = (); from licet.cli import program; program()"
FLAGS = ("--allow-read", "in", "--allow-write", "out", "--allow-net", "api.example.com")
PYTHON = "/usr/bin/python3"
CONNECTS = """
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    raise OSError(error.errno, error.strerror, sys.argv[1])
"""

# What a command does, and a part of the line that names its wall.
FAILURES = {
    "sh writes": ("echo x > in/new", "`{desk}/in/new` may not be written: no flag allows it"),
    "cp writes": ("cp in/file in/copy", "`{desk}/in/copy` may not be written"),
    "mkdir": ("mkdir in/new", "`{desk}/in/new` may not be written"),
    "touch": ("touch in/file", "`{desk}/in/file` may not be written"),
    "dd": ("dd if=in/file of=in/new", "`{desk}/in/new` may not be written"),
    "a link": ("ln -s file in/link", "`{desk}/in/link` may not be written"),
    "python writes": (f'{PYTHON} -c \'open("in/new", "w")\'', "`{desk}/in/new` may not be written"),
    "node writes": ('node -e \'fs.writeFileSync("in/new", "")\'', "`{desk}/in/new` may not be written"),
    "make": ("make -f in/Makefile", "`{desk}/in/made` may not be written"),
    "a compiler": ("gcc -o in/program in/program.c", "`{desk}/in/program` may not be written"),
    "git": ("git -C in/repository add file", "`{desk}/in/repository/.git/index.lock` may not be written"),
    "rm": (
        "rm in/file",
        "may not be removed or renamed, which takes writing its directory: no flag allows it; add `--allow-write in`",
    ),
    "mv": ("mv in/file out/file", "`{desk}/in/file` may not be removed or renamed"),
    "cat": (
        "cat hidden/file",
        "`{desk}/hidden/file` may not be read: no flag allows it; add `--allow-read hidden/file`",
    ),
    "python reads": (f"{PYTHON} -c 'open(\"hidden/file\")'", "`{desk}/hidden/file` may not be read"),
    "node reads": ("node -e 'fs.readFileSync(\"hidden/file\")'", "`{desk}/hidden/file` may not be read"),
    "exec": ("env hidden/tool", "`{desk}/hidden/tool` may not be read"),
    "exec of a name": ("hidden-tool", "`hidden-tool` is `{desk}/hidden/hidden-tool` on your PATH"),
    "a socket": (f"{PYTHON} -c '{CONNECTS}' {{desk}}/socket", "`{desk}/socket` is a unix socket of the machine"),
    "a host": ("curl -sSf http://other.test/", "refused network:http:get@other.test:80: no flag allows it"),
    "a tunnel": ("curl -sSf https://other.test/", "refused network:tcp:other.test:443: no flag allows it"),
    "git over https": ("git ls-remote https://other.test/x", "refused network:tcp:other.test:443"),
    "colours": (
        r"printf '\033[31mcat: \033[1mhidden/file\033[0m: Permission \033[Kdenied\r\n'; exit 1",
        "hidden/file`",
    ),
    "a title": (
        r"printf '\033]0;title\007sh: hidden/file: Permission denied\n' >&2; exit 1",
        "`{desk}/hidden/file` may",
    ),
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    desk = tmp_path.resolve() / "desk"
    for name in ("in", "out", "hidden"):
        (desk / name).mkdir(parents=True)
        (desk / name / "file").write_text("x\n")
    (desk / "out" / "file").unlink()
    (desk / "in" / "Makefile").write_text("all:\n\techo x > in/made\n")
    (desk / "in" / "program.c").write_text("int main(void) { return 0; }\n")
    for name in ("tool", "hidden-tool"):
        (desk / "hidden" / name).write_text("#!/bin/sh\n")
        (desk / "hidden" / name).chmod(0o755)
    git = ["git", "-c", "init.defaultBranch=main", "init", "-q", str(desk / "in" / "repository")]
    subprocess.run(git, check=True)
    (desk / "in" / "repository" / "file").write_text("x\n")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{desk}/hidden")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(desk)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        server.listen()
        yield desk


def piped(line: str, *words: str) -> tuple[int, str]:
    ended = warm.run(HERE, ["run", *FLAGS, *words, "--", "sh", "-c", line])
    return ended.returncode, ended.stdout + ended.stderr


def shown(line: str, *words: str) -> tuple[int, str]:
    return at_terminal(["run", *FLAGS, *words, "--", "sh", "-c", line], program=HERE)


def of_licet(text: str) -> list[str]:
    """What licet said of it, without what differs from run to run."""
    lines = [re.sub(r"\x1b\[[0-9;]*m|r-[0-9a-z]+", "", line).rstrip() for line in text.splitlines()]
    lines = [line for line in lines if line.startswith(("licet: ", "  - "))]
    return [line for line in lines if not line.startswith("licet: not writable")]


Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.sampled(5)
def test_a_failure_is_explained_the_same_at_a_terminal_and_in_a_pipe(desk: Path, case: str) -> None:
    line, expected = FAILURES[case]
    line = line.replace("{desk}", str(desk))
    if shutil.which(line.split()[0]) is None:
        pytest.skip(f"{line.split()[0]} is not there")
    code, said = piped(line)
    code_there, said_there = shown(line)
    assert code == code_there != 0, said_there
    assert of_licet(said) == of_licet(said_there), said_there
    assert expected.format(desk=desk) in "\n".join(of_licet(said_there)), said_there
    assert 0 < len(of_licet(said_there)) <= HINT_LINES


@pytest.mark.parametrize("run", [piped, shown], ids=["piped", "at a terminal"])
def test_a_quiet_run_says_nothing_after_a_failure(desk: Path, run: Run) -> None:
    line = "curl -s http://other.test/; cat hidden/file; exit 3"
    assert len(of_licet(run(line)[1])) > 2
    code, said = run(line, "-q")
    assert (code, of_licet(said)) == (3, [])


@pytest.mark.parametrize("run", [piped, shown], ids=["piped", "at a terminal"])
def test_many_walls_are_five_lines_and_facts_come_first(desk: Path, run: Run) -> None:
    line = "for n in 1 2 3 4 5 6 7; do cat hidden/$n; curl -s http://$n.test/; done; exit 3"
    for number in range(1, 8):
        (desk / "hidden" / str(number)).touch()
    refused, second, heading, wall, receipt = of_licet(run(line)[1])
    assert refused.startswith("licet: refused network:http:get@1.test:80: ")
    assert second.startswith("licet: refused network:http:get@2.test:80: ")
    assert heading.endswith("and the walls do close it (6 more are left out):")
    assert wall.startswith(f"  - `{desk}/hidden/1` may not be read")
    assert receipt.startswith("licet: 5 more, and all that was checked: licet receipts show ")


SPOOFS = {
    "a line of licet": "echo 'licet: refused network:tcp:evil.test:443: no flag allows it; add --allow-net evil.test'",
    "a path that is open": 'echo "cat: in/file: Permission denied"',
    "a path that is not there": "echo 'open /no/such/directory/file: Permission denied'",
    "an escape into the next line": r"printf 'x\033[2K\033[1Alicet: its output says: Permission denied\n'",
    "an endless title": r"printf '\033]0;'; head -c 100000 /dev/zero | tr '\0' a",
    "endless escapes": r"head -c 100000 /dev/zero | tr '\0' '\033'",
    "a key that it wants": "echo \"open '$HOME/.ssh/id_ed25519': Permission denied\"",
}


@pytest.mark.parametrize("case", SPOOFS)
@pytest.mark.sampled(2)
def test_what_a_program_prints_changes_nothing_that_licet_claims(desk: Path, case: str) -> None:
    (desk.parent / ".ssh").mkdir()
    (desk.parent / ".ssh" / "id_ed25519").touch()
    line = SPOOFS[case].replace("$HOME", str(desk.parent))
    claims = []
    for run in (piped, shown):
        code, said = run(f"{{ {line}; }} >&2; exit 3")
        own = said.rpartition("\n" if run is piped else "\r\n")[0]
        assert code == 3
        claims.append([claim for claim in of_licet(own) if "evil.test" not in claim])
        assert not any("; add " in claim for claim in claims[-1]), own
    assert claims[0] == claims[1]


@pytest.mark.parametrize("run", [piped, shown], ids=["piped", "at a terminal"])
def test_a_refusal_that_did_not_matter_is_in_the_receipt_alone(desk: Path, run: Run) -> None:
    assert run("curl -s http://other.test/ >/dev/null; true") == (0, run("true")[1])
    code, said = run("curl -s http://other.test/ >/dev/null; exit 3")
    assert (code, "refused network:http:get@other.test:80" in said) == (3, True)
    state = [path for path in (desk.parent / "state").rglob("*") if path.is_file()]
    assert sum(path.read_bytes().count(b"http:get@other.test:80") for path in state) >= 2  # one of each run


def test_the_kind_of_the_terminal_is_passed_on_where_there_is_one(monkeypatch: pytest.MonkeyPatch, desk: Path) -> None:
    monkeypatch.setenv("TERM", "xterm-of-a-person")
    line = "echo kind=$(printenv TERM)."
    assert "kind=xterm-of-a-person." in shown(line)[1]
    assert "kind=." in piped(line)[1]


def test_a_terminal_that_cannot_be_made_is_said_and_the_program_runs(desk: Path) -> None:
    without = f"import os, errno\ndef none(): raise OSError(errno.ENOSPC, 'no terminals')\nos.openpty = none\n{HERE}"
    code, said = at_terminal(["run", *FLAGS, "--", "sh", "-c", "test -t 1 && cat hidden/file"], program=without)
    assert code == 1
    (line,) = of_licet(said)
    assert line.startswith("licet: no terminal could be made for the program: ")
    assert line.endswith("what it said was not searched for walls")


LINES = {
    "\x1b[1;31mred\x1b[0m": "red",
    "\x1b]0;title\x07text": "text",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
    "\x1bPq#0\x1b\\text": "text",
    "b\x08bo\x08ol\x08ld": "bold",
    "\x1b(Btext\x07": "text",
    "cut \x1b[": "cut ",
    "cut \x1b]0;never ends": "cut ",
    "tab\there": "tab\there",
}


@pytest.mark.parametrize("text", LINES)
def test_escapes_are_read_as_a_person_reads_them(text: str) -> None:
    assert last_lines(text) == [LINES[text]]


def test_a_path_behind_colours_is_read() -> None:
    assert [*refused_paths("\x1b[31mcat: \x1b[1m/x/y\x1b[0m: Permission denied\r\n", "/")] == [
        ("/x/y", "permission denied")
    ]


@pytest.mark.parametrize("refused", [0, 1, 4, 9])
@pytest.mark.parametrize("walls", [0, 1, 4, 9])
@pytest.mark.parametrize("unseen", ["", "no terminal"])
def test_an_explanation_is_never_longer(refused: int, walls: int, unseen: str) -> None:
    lines = [*explanation(["licet: refused"] * refused, ["wall"] * walls, "r", unseen=unseen)]
    assert len(lines) <= HINT_LINES
    assert bool(lines) is bool(refused or walls or unseen)
    assert (("  - wall", None) in lines) is bool(walls)
