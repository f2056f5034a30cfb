"""`licet run --allow-read . -- CMD`: flags in place of a policy, next to a policy, and saved as one."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm
from attacks.walled_programs import needs_namespaces, needs_walls
from licet import load_manifest
from licet.assemble.program import Flags, made_manifest, manifest_text, understood
from licet.assemble.review import Places
from licet.backends.ledger.reader import LedgerReader
from licet.backends.memory import Answer
from licet.cli import run_hints
from licet.core.decision.reach import Reach, reach_of
from licet.core.policy.manifest import COMMANDS, with_commands
from loopback import serving
from pins import give_standing, trust

pytestmark = needs_walls

NAMES = ("licet.lock", "licet.yaml")  # empty directories stand for them while a command runs
POLICY: dict[str, Any] = {
    "agent": "desk",
    "capabilities": {
        "max_side_effect_class": "write_limited",
        "fs_reach": {"read": ["${workdir}/in"], "write": ["${workdir}/out"]},
        "process": {"allowed_binaries": ["sh"]},
        "env": ["LICET_TEST"],
        "approvals": {"write": "manifest"},
        "sandbox": {"allow_degraded": True},
    },
}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A directory with no policy, a home with nothing in it, something to read and somewhere to write."""
    here = tmp_path / "desk"
    for name in ("in", "out", "my files"):
        (here / name).mkdir(parents=True)
        (here / name / "file").write_text(f"{name}\n")
    (here / "secret").write_text("beside\n")
    (tmp_path / "home").mkdir()
    return here


def licet(desk: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = {**kept, "HOME": str(desk.parent / "home"), **(env or {})}
    return warm.run(warm.PROGRAM, words, cwd=desk, env=environment)


def entries(desk: Path) -> list[dict[str, Any]]:
    (ledger,) = (desk.parent / "home").glob(".local/state/licet/*/ledger.sqlite")
    with LedgerReader(ledger) as reader:
        return [json.loads(row.body) for row in reader.entries()]


LINES = {
    "reads below the path": (["--allow-read", "in"], "cat in/file", (0, "in\n")),
    "reads nothing beside it": (["--allow-read", "in"], "cat secret || echo no", (0, "no\n")),
    "reads a name with a space": (["--allow-read=my files"], "cat 'my files/file'", (0, "my files\n")),
    "flags add up": (["--allow-read", "in", "--allow-read", "secret"], "cat in/file secret", (0, "in\nbeside\n")),
    "does not write what it reads": (["--allow-read", "."], "echo a > in/file || echo no", (0, "no\n")),
    "writes, renames and deletes": (
        ["--allow-write", "out", "--allow-read", "out"],
        "echo a > out/a && mv out/a out/b && rm out/file && ls out",
        (0, "b\n"),
    ),
    "passes on one variable": (["--allow-env", "LICET_TEST"], "echo $LICET_TEST $LICET_OTHER", (0, "given\n")),
    "passes on every variable": (["--allow-env=*"], "echo $LICET_TEST $LICET_OTHER", (0, "given other\n")),
}


@pytest.mark.parametrize(("flags", "line", "ended"), LINES.values(), ids=LINES)
@pytest.mark.sampled(3)
def test_a_run_reaches_what_its_flags_say_and_nobody_is_asked(
    desk: Path, flags: list[str], line: str, ended: tuple[int, str]
) -> None:
    found = licet(desk, "run", *flags, "--", "sh", "-c", line, env={"LICET_TEST": "given", "LICET_OTHER": "other"})
    assert (found.returncode, found.stdout) == ended


def test_the_receipt_has_the_flags_who_approved_and_the_digest(desk: Path) -> None:
    flags = ["--allow-read", "in", "--allow-write", "out"]
    found = licet(desk, "run", *flags, "--save", "s.yaml", "--", "sh", "-c", "rm out/file")
    assert found.returncode == 0, found.stderr
    decision, receipt = entries(desk)
    for entry in (decision, receipt):
        assert entry["flags"] == [f"--allow-read={desk}/in", f"--allow-write={desk}/out"]
        assert [(one["by"], one["deletes"]) for one in entry["approvals"]] == [(["command line"], True)]
        assert (entry["agent"], entry["verdict"]) == ("command-line", "allow")
    assert receipt["manifest"] == load_manifest(desk / "s.yaml").digest
    shown = licet(desk, "receipts", "show", receipt["id"]).stdout
    assert f"  flags         --allow-read={desk}/in --allow-write={desk}/out\n" in shown
    assert licet(desk, "receipts", "verify").returncode == 0


def test_a_missing_directory_to_write_is_made_and_named(desk: Path) -> None:
    found = licet(desk, "run", "--allow-write", "new", "--", "sh", "-c", "mkdir -p new && echo a > new/a")
    assert (found.returncode, found.stderr) == (0, "licet: made the directory new, for --allow-write\n")
    assert (desk / "new" / "a").read_text() == "a\n"
    found = licet(desk, "run", "--allow-write", "no/way", "--", "sh", "-c", "echo ran")
    assert (found.returncode, found.stdout) == (2, "")


REFUSED = {
    "no value": (["--allow-read"], "requires an argument"),
    "an empty value": (["--allow-read", ""], "expected a value"),
    "a flag as a value": (["--allow-read", "--allow-write", "out"], "found `--allow-write`"),
    "two values": (["--allow-read", "in", "out"], "`out` is no policy file: each path, host or variable needs a flag"),
    "a tool": (["--allow-read", "in", "--tool", "look"], "need a policy"),
    "saving nothing": (["--save"], "--save needs flags"),
    "saving over a file": (["--allow-read", "in", "--save", "secret"], "--save: secret: found a file that is there"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
@pytest.mark.sampled(2)
def test_a_bad_command_line_runs_nothing(desk: Path, words: list[str], said: str) -> None:
    found = licet(desk, "run", *words, "--", "sh", "-c", "echo ran")
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr


def test_without_flags_and_policy_both_ways_are_named(desk: Path) -> None:
    found = licet(desk, "run", "--", "true")
    assert found.returncode == 125
    assert "`licet init`; or say what the command may reach, such as `--allow-read .`" in found.stderr


def test_policy_files_and_the_state_stay_closed_to_every_flag(desk: Path) -> None:
    (desk / "agent.yaml").write_text(json.dumps(POLICY))
    home = desk.parent / "home"
    line = f"echo x >> agent.yaml; rm agent.yaml; ls {home}/.local/state/licet/*; echo new > note; ls"
    found = licet(desk, "run", "--allow-read", "/", "--allow-write", str(desk.parent), "--", "sh", "-c", line)
    listed = found.stdout.split()  # with the names of what is closed there, which is not what this is about
    assert {"agent.yaml", "in", *NAMES, "my", "files", "note", "out", "secret"} <= {*listed}
    assert not [name for name in listed if name.startswith("ledger")]
    assert json.loads((desk / "agent.yaml").read_text()) == POLICY


@pytest.mark.parametrize("found", ["agent.yaml", "licet.yaml"])
def test_flags_next_to_a_policy_only_narrow_it(desk: Path, found: str) -> None:
    (desk / found).write_text(json.dumps(POLICY))
    trust(desk / found, desk.parent / "home" / ".local" / "state")
    named = [found] if found == "agent.yaml" else []
    line = "cat in/file; cat secret; echo a > out/a; echo $LICET_TEST"
    ended = licet(desk, "run", *named, "--allow-read", ".", "--", "sh", "-c", line, env={"LICET_TEST": "given"})
    assert ended.stdout == "in\n\n"  # neither the file beside it, nor what no flag names
    assert ended.stderr.startswith(f"licet: the flags narrow {found}\n")
    assert not (desk / "out" / "a").exists()
    assert entries(desk)[-1]["flags"] == [f"--allow-read={desk}"]
    assert entries(desk)[-1]["manifest"] == load_manifest(desk / found).digest
    assert licet(desk, "run", *named, "--allow-read", "/", "--", "cat", "in/file").returncode == 125  # not allowed


def test_no_flag_skips_the_policy_that_is_here(desk: Path) -> None:
    (desk / "licet.yaml").write_text(json.dumps(POLICY))
    ended = licet(desk, "run", "--allow-read", "/", "--", "sh", "-c", "echo ran")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "has not been accepted" in ended.stderr
    (desk / "licet.yaml").write_text("agent: [")
    assert licet(desk, "run", "--allow-read", "/", "--", "sh", "-c", "echo ran").returncode == 125
    (desk / "licet.yaml").write_text(json.dumps(POLICY))
    saving = licet(desk, "run", "--allow-read", "/", "--save", "a.yaml", "--", "sh", "-c", "echo ran")
    assert (saving.returncode, "only narrow licet.yaml" in saving.stderr) == (2, True)


def test_flags_approve_nothing_that_a_policy_asks_about(desk: Path) -> None:
    asking = {**POLICY, "capabilities": {**POLICY["capabilities"], "approvals": {"write": "session"}}}
    (desk / "agent.yaml").write_text(json.dumps(asking))
    ended = licet(desk, "run", "agent.yaml", "--allow-write", "out", "--", "sh", "-c", "echo a > out/a")
    assert ended.returncode == 125
    assert ended.stderr.startswith("licet: the flags narrow agent.yaml\nasks: `run` may be called once a person agrees")


def test_saved_flags_are_a_policy_that_does_the_same(desk: Path) -> None:
    line = ["sh", "-c", "cat in/file"]
    first = licet(desk, "run", "--allow-read", "in", "--save", "--", *line)
    assert (first.returncode, first.stdout) == (0, "in\n")
    assert first.stderr == "licet: wrote .licet/licet.yaml; `licet run -- …` uses it\n"
    again = licet(desk, "run", "--", *line)
    assert (again.returncode, again.stdout, again.stderr) == (0, "in\n", "")
    assert len({entry["manifest"] for entry in entries(desk)}) == 1
    assert licet(desk, "check").returncode == 0
    assert licet(desk, "run", "--", "sh", "-c", "cat secret").returncode == 1


@needs_namespaces
def test_saved_writes_are_approved_and_saved_deletes_are_not(desk: Path) -> None:
    first = licet(desk, "run", "--allow-write", "out", "--save", "s.yaml", "--", "sh", "-c", "rm out/file")
    assert first.returncode == 0, first.stderr
    assert "licet: next: `licet trust s.yaml`, to agree to renames and deletes for 30 days" in first.stderr
    state = next((desk.parent / "home").glob(".local/state/licet/*/ledger.sqlite")).parent
    own = licet(desk, "run", "s.yaml", "--", "sh", "-c", "echo a > out/b && rm out/b && echo a > out/a")
    assert own.returncode == 0, own.stderr
    older = licet(desk, "run", "s.yaml", "--", "sh", "-c", "rm out/a")
    assert older.returncode == 1
    assert f"not deleted, since nobody has approved deletes, and it was there before: `{desk}/out/a`" in older.stderr
    assert "licet trust s.yaml" in older.stderr
    assert [entry["reason"] for entry in entries(desk) if entry["kind"] == "receipt"][-1] == "ALLOWED"
    give_standing(desk / "s.yaml", [f"fs:delete:{desk}/out"], state)  # as `licet trust` does at a terminal
    assert licet(desk, "run", "s.yaml", "--", "sh", "-c", "rm out/a").returncode == 0


@needs_namespaces
def test_a_typed_address_is_reached_and_a_refusal_names_the_flag(desk: Path) -> None:
    with serving(lambda request: Answer(200, body=b"hello")) as server:
        port = server.port
        curl = ["--", "curl", "-sS", "--max-time", "60"]
        reached = licet(desk, "run", "--allow-net", f"127.0.0.1:{port}", *curl, f"http://127.0.0.1:{port}/")
        assert (reached.returncode, reached.stdout) == (0, "hello"), reached.stderr
        other = licet(desk, "run", "--allow-net", "example.com", *curl, "--fail", f"http://other.test:{port}/")
        assert f"add `--allow-net other.test:{port}`" in other.stderr
        # Unless it is named, this is the command's own loopback, where nothing listens.
        every = licet(desk, "run", "--allow-net", "*", *curl, f"http://127.0.0.1:{port}/")
        name = licet(desk, "run", "--allow-net", f"localhost:{port}", *curl, "--fail", f"http://localhost:{port}/")
        assert f"write the address instead of the name, also as `--allow-net ADDRESS:{port}`" in name.stderr
        assert "hello" not in other.stdout + every.stdout + name.stdout


HINTS = {  # the flags, whether a policy is narrowed by them, a line that fails, and the flag in the hint
    "a directory to write": (["--allow-read", "."], "echo a > in/new", "no flag allows it; add `--allow-write in`"),
    "another directory": (["--allow-write", "out"], "touch 'my files/new'", "add `--allow-write 'my files'`"),
    "a file that is there": (
        ["--allow-read", "."],
        "echo a >> in/file",
        "no flag allows it; add `--allow-write in/file`",
    ),
}


@needs_namespaces
@pytest.mark.parametrize(("flags", "line", "hint"), HINTS.values(), ids=HINTS)
def test_a_hint_about_flags_names_a_flag_and_no_line_of_a_policy(
    desk: Path, flags: list[str], line: str, hint: str
) -> None:
    said = licet(desk, "run", "--allow-read", ".", *flags, "--", "sh", "-c", line).stderr
    assert hint in said
    assert not {"policy", "fs_reach", "manifest"} & {*said.replace("`", " ").split()}


@needs_namespaces
def test_a_switch_of_branches_that_leaves_closed_files_as_they_were_says_so(desk: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=n", "-c", "user.email=n@example.com")
        subprocess.run(["git", *identity, *words], cwd=desk, check=True, capture_output=True)

    git("init", "-b", "main")
    for branch in ("main", "other"):
        (desk / "AGENTS.md").write_text(branch)
        git("checkout", "-B", branch)
        git("add", "AGENTS.md")
        git("commit", "-m", branch)
    ended = licet(desk, "run", "--allow-read", ".", "--allow-write", ".", "--", "git", "checkout", "main")
    assert (ended.returncode, (desk / "AGENTS.md").read_text()) == (0, "other")
    assert "it ended with code 0, but its output says that it was refused this" in ended.stderr
    assert f"`{desk}/AGENTS.md` may not be written" in ended.stderr


@needs_namespaces
def test_a_hint_about_a_narrowed_policy_names_what_lacks_it(desk: Path) -> None:
    reach = {"read": ["${workdir}"], "write": ["${workdir}/out"]}
    (desk / "agent.yaml").write_text(
        json.dumps({**POLICY, "capabilities": {**POLICY["capabilities"], "fs_reach": reach}})
    )
    trust(desk / "agent.yaml", desk.parent / "home" / ".local" / "state")
    run = ["run", "agent.yaml", "--allow-read", ".", "--", "sh", "-c"]
    allowed = licet(desk, *run, "echo a > out/new").stderr  # by the policy
    assert allowed.endswith("may not be written: no flag allows it; add `--allow-write out`\n")
    neither = licet(desk, *run, "echo a > in/new").stderr
    assert "add `--allow-write in`, and add the path under `fs_reach.write` (agent.yaml:" in neither


def reach_of_flags(**flags: tuple[str, ...]) -> Reach:
    places = Places.here(None)
    made = made_manifest(manifest_text(understood(Flags(**flags), places), "cat", places))
    reach = reach_of(with_commands(made.expand(places.workdir, places.home)), COMMANDS)
    assert reach is not None
    return reach


def test_a_file_that_is_hidden_is_told_from_one_that_is_not_there(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setattr(run_hints, "_TEMPORARY", ())  # where tests work
    (desk / "hidden").write_text("beside\n")
    said = "cat: {}: No such file or directory"
    hint = f"`{desk}/hidden` may not be read: no flag allows it; add `--allow-read hidden`"
    for name, expected in {"hidden": [hint], "nothing": [], "in/nothing": [], "/usr/nothing": []}.items():
        reach = reach_of_flags(read=("in",))
        assert run_hints.hints(said.format(name), reach, str(desk), (), degraded=False) == expected


# The Python that a virtual environment was made with, outside of the project, and how it is found on PATH.
ENVIRONMENTS = {
    "of the system": ("/usr/bin/python3", "env"),
    "of another": (sys.executable, "env"),
    "by a link": ("", "ln"),
}
PREFIXES = "import sys; print(sys.executable, sys.prefix, sys.base_prefix)"


def environment_at(place: Path, python: str) -> dict[str, str]:
    """Make a virtual environment with a program `tool` in it, and put it first on PATH."""
    real = python if os.access(python, os.X_OK) else sys.executable
    subprocess.run([real, "-m", "venv", "--symlinks", "--without-pip", place], check=True)
    (place / "bin" / "tool").write_text(f"#!{place}/bin/python3\nimport sys\nprint(sys.prefix)\n")
    (place / "bin" / "tool").chmod(0o755)
    return {"PATH": f"{place}/bin:{os.environ['PATH']}"}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_the_python_of_an_active_environment_starts_as_bare(desk: Path, case: str) -> None:
    python, name = ENVIRONMENTS[case]
    env = environment_at(desk.parent / "env", python)
    (desk.parent / "ln").symlink_to("env")
    env["PATH"] = f"{desk.parent / name}/bin:{env['PATH']}"
    bare = subprocess.run(["python3", "-c", PREFIXES], env={**os.environ, **env}, capture_output=True, text=True)
    assert licet(desk, "run", "--allow-read", ".", "--", "python3", "-c", PREFIXES, env=env).stdout == bare.stdout
    assert f"{desk.parent / name} " in bare.stdout
    make = ["python3", "-m", "venv", "--symlinks", "--without-pip", "out/made"]
    assert licet(desk, "run", "--allow-read", ".", "--allow-write", "out", "--", *make, env=env).returncode == 0
    made = desk / "out" / "made"
    links = {path.name: os.readlink(path) for path in made.glob("bin/python*")}
    settings = (made / "pyvenv.cfg").read_text()
    shutil.rmtree(made)
    subprocess.run(make, cwd=desk, env={**os.environ, **env}, check=True)
    assert settings == (made / "pyvenv.cfg").read_text()
    assert links == {path.name: os.readlink(path) for path in made.glob("bin/python*")}


# What a run may write of a virtual environment, with which a program could choose what the next one reads.
WRITTEN = {"the settings": "env/pyvenv.cfg", "the links": "env/bin", "all of it": "env"}


@pytest.mark.parametrize("case", [*WRITTEN, "nothing"])
def test_an_environment_that_a_run_may_write_opens_nothing(desk: Path, case: str) -> None:
    env = environment_at(desk / "env", "/usr/bin/python3")
    (desk / "env" / "lib" / "kept").write_text("kept\n")
    # Python does not start with settings that it sees and cannot read.
    reach = {"read": ["${workdir}/env/pyvenv.cfg"], "write": [f"${{workdir}}/{WRITTEN.get(case, 'out')}"]}
    process = {"allowed_binaries": ["python3"]}
    capabilities = {**POLICY["capabilities"], "fs_reach": reach, "process": process, "env": ["PATH"]}
    (desk / "agent.yaml").write_text(json.dumps({**POLICY, "capabilities": capabilities}))
    trust(desk / "agent.yaml", desk.parent / "home" / ".local" / "state")
    read = f"print('ran', flush=True); print(open({str(desk / 'env' / 'lib' / 'kept')!r}).read())"
    ended = licet(desk, "run", "agent.yaml", "--", "python3", "-c", read, env=env)
    assert ended.stdout.split() == (["ran", "kept"] if case == "nothing" else ["ran"]), ended


@needs_namespaces
def test_a_script_whose_interpreter_is_hidden_says_so(desk: Path) -> None:
    """As `env/bin/pip` of an environment that a program behind walls made."""
    python = desk.parent / "prefix" / "bin" / "interpreter"
    python.parent.mkdir(parents=True)
    shutil.copy("/bin/echo", python)
    (desk / "out" / "tool").write_text(f"#!{python}\n")
    (desk / "out" / "tool").chmod(0o755)
    flags = ["--allow-read", ".", "--allow-write", "out"]
    assert f"and `{python}` may not be read" in licet(desk, "run", *flags, "--", "out/tool").stderr
    ended = licet(desk, "run", *flags, "--allow-read", str(python.parent), "--", "out/tool")
    assert ended.stdout == f"{desk}/out/tool\n"


NOT_FOUND = {
    "sh without namespaces": ("sh: 1: tool: Permission denied", True),
    "a program that was given the name": ("touch: cannot touch 'tool': Permission denied", False),
    "sh": ("sh: 1: tool: not found", True),
    "bash": ("bash: line 1: tool: command not found", True),
    "zsh": ("zsh:1: command not found: tool", True),
    "make": ("make: tool: No such file or directory", True),
    "env": ("env: ‘tool’: No such file or directory", True),
    "Python": ("FileNotFoundError: [Errno 2] No such file or directory: 'tool'", True),
    "Node": ("Error: spawn tool ENOENT", True),
    "a program that is nowhere": ("sh: 1: nosuch: not found", False),
    "a program that can be read": ("sh: 1: sh: not found", False),
    "another error": ("sh: 1: tool: syntax error", False),
}


@pytest.mark.parametrize(("said", "named"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_a_program_on_the_path_that_cannot_be_read_is_named(
    desk: Path, monkeypatch: pytest.MonkeyPatch, said: str, named: bool
) -> None:
    monkeypatch.chdir(desk)
    place = desk.parent / "env"
    monkeypatch.setenv("PATH", environment_at(place, "/usr/bin/python3")["PATH"])
    lines = run_hints.programs_not_found(f"before\n{said}\n", reach_of_flags(read=(".",)))
    hint = f"`tool` is `{place}/bin/tool` on your PATH, and `{place}` may not be read: no flag allows it; add "
    assert lines[:1] == ([f"{hint}`--allow-read {place}`"] if named else [])
    base = os.path.realpath(place / "bin" / "python3")
    assert not run_hints.programs_not_found(said, reach_of_flags(read=(".", str(place), os.path.dirname(base))))


def test_a_program_that_a_shell_was_refused_is_no_file_to_write(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setattr(run_hints, "_TEMPORARY", ())  # where tests work
    monkeypatch.setenv("PATH", environment_at(desk.parent / "env", "/usr/bin/python3")["PATH"])
    said, reach = "sh: 1: {}: Permission denied", reach_of_flags(read=(".",))
    assert not run_hints.hints(said.format("tool"), reach, str(desk), (), degraded=True, whole=True)
    (hint,) = run_hints.hints(said.format("new"), reach, str(desk), (), degraded=True, whole=True)  # as bash says it
    assert hint.endswith("add `--allow-write .`")


# The flags, what the output says, and the end of the hint; none where the grant is no obstacle.
REMOVALS = {
    "rm": ({"read": (".",)}, "rm: cannot remove 'in/file': {}", "add `--allow-write in`"),
    "git": ({"read": (".",)}, "error: unable to unlink old in/file: {}", "add `--allow-write in`"),
    "node": ({"read": (".",)}, "Error: EACCES: {}, unlink 'in/file'", "add `--allow-write in`"),
    "a file that is granted alone": (
        {"read": (".",), "write": ("in/file",)},
        "mv: cannot move 'in/file' to 'out/x': {}",
        "which takes writing its directory: no flag allows it; add `--allow-write in`",
    ),
    "its directory is granted": ({"read": (".",), "write": ("in",)}, "rm: cannot remove 'in/file': {}", ""),
    "a write": ({"read": (".",)}, "sh: 1: cannot create in/file: {}", "add `--allow-write in/file`"),
}


@pytest.mark.parametrize(("degraded", "error"), [(True, "permission denied"), (False, "Read-only file system")])
@pytest.mark.parametrize("case", REMOVALS)
def test_removing_takes_the_directory(
    desk: Path, monkeypatch: pytest.MonkeyPatch, case: str, degraded: bool, error: str
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setattr(run_hints, "_TEMPORARY", ())  # where tests work
    flags, said, expected = REMOVALS[case]
    reach = reach_of_flags(**flags)
    lines = run_hints.hints(said.format(error), reach, str(desk), (), degraded=degraded, whole=True)
    assert bool(lines) is bool(expected), lines
    assert not expected or lines[0].endswith(expected)


@needs_namespaces
def test_another_python_than_the_first_on_the_path_is_named(desk: Path) -> None:
    env = environment_at(desk.parent / "env", "/usr/bin/python3")
    env["PATH"] = f"{desk.parent}/env/bin:/usr/bin:/bin"
    for line, name in (("tool", "tool"), ("python3 -m nosuchmodule", "python3")):
        ended = licet(desk, "run", "--allow-read", ".", "--", "sh", "-c", line, env=env)
        assert f"`{name}` is `{desk.parent}/env/bin/{name}` on your PATH" in ended.stderr
        opened = licet(desk, "run", "--allow-read", ".", "--allow-read", "../env", "--", "sh", "-c", line, env=env)
        assert "on your PATH" not in opened.stderr


@needs_namespaces
def test_a_python_that_was_named_by_its_path_is_not_told_from_the_one_on_the_path(desk: Path) -> None:
    env = environment_at(desk.parent / "env", "/usr/bin/python3")
    environment_at(desk / "env2", "/usr/bin/python3")
    env["PATH"] = f"{desk.parent}/env/bin:/usr/bin:/bin"
    for line in ("env2/bin/python3 -m nosuchmodule", f"{desk}/env2/bin/python3 -m nosuchmodule"):
        ended = licet(desk, "run", "--allow-read", ".", "--", "sh", "-c", line, env=env)
        assert "No module named nosuchmodule" in ended.stderr
        assert "on your PATH" not in ended.stderr


@needs_namespaces
def test_the_line_about_closed_names_says_what_lists_them_all(desk: Path) -> None:
    flags = ["--allow-read", ".", "--allow-write", "."]
    said = licet(desk, "run", *flags, "--", "true").stderr
    (more,) = re.findall(r"and (\d+) more \(`--save` lists them\)", said)
    licet(desk, "run", *flags, "--save", "saved.yaml", "--", "true")
    assert (desk / "saved.yaml").read_text().count("fs:write:") >= int(more)


@needs_namespaces
def test_the_line_about_closed_names_begins_with_those_that_people_know(desk: Path) -> None:
    said = licet(desk, "run", "--allow-read", ".", "--allow-write", ".", "--", "true").stderr
    assert "run or trust it: .git, .envrc, .vscode and " in said


@needs_namespaces
def test_who_set_session_for_deletes_is_told_of_ask(desk: Path) -> None:
    reach = {"read": ["${workdir}"], "write": ["${workdir}/out"]}
    approvals = {"write": "manifest", "delete": "session"}
    full = {"max_side_effect_class": "full", "budget": {"max_calls_per_day": 9}, "approvals": approvals}
    (desk / "agent.yaml").write_text(
        json.dumps({**POLICY, "capabilities": {**POLICY["capabilities"], "fs_reach": reach, **full}})
    )
    trust(desk / "agent.yaml", desk.parent / "home" / ".local" / "state")
    ended = licet(desk, "run", "agent.yaml", "--", "sh", "-c", "rm out/file")
    assert ended.returncode == 1, ended.stderr
    assert "; or run with `--ask`\n" in ended.stderr


WARNINGS = {
    "nothing to read": (["--allow-read", "nosuch"], "--allow-read nosuch allows nothing: there is no such file"),
    "never writable": (["--allow-write", sys.prefix], "allows nothing: the interpreter is never writable"),
    "keys": (["--allow-write", "~/.ssh"], "opens a place of keys and credentials to the command, which may write them"),
    "a directory with keys in it": (
        ["--allow-read", "~"],
        "--allow-read {home} opens the directory to the command, and with",
    ),
    "the keys in it": (["--allow-read", "~"], " it ~/.ssh, a place of keys\n"),
    "everything": (["--allow-read", "/"], "--allow-read / opens the directory to the command, and with it ~/.ssh"),
    "a single file": (["--allow-write", "in/file"], "--allow-write in/file names a single file: the command may"),
    "nothing is wrong": (["--allow-read", ".", "--allow-write", "out"], ""),
}


@pytest.mark.parametrize(("flags", "said"), WARNINGS.values(), ids=WARNINGS)
def test_flags_that_allow_nothing_or_open_keys_are_named(desk: Path, flags: list[str], said: str) -> None:
    (desk.parent / "home" / ".ssh").mkdir()
    said = said.format(home=desk.parent / "home")
    ended = licet(desk, "run", *flags, "--", "sh", "-c", "echo ran")
    assert (ended.returncode, ended.stdout) == (0, "ran\n")
    assert (said in ended.stderr, bool(ended.stderr)) == (True, bool(said)), ended.stderr
    as_json = licet(desk, "run", "--json", *flags, "--", "sh", "-c", "echo ran")
    assert json.loads(as_json.stderr)["exit_code"] == 0
