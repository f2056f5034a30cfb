"""What the output of a program says about paths, and what `licet run` makes of it: it may say what it never tried."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import needs_namespaces
from cli.test_cli_run_flags import reach_of_flags as by_flags
from cli.test_run_advice import by_file
from licet.assemble.program import Flags, opened_by_flag, understood
from licet.assemble.review import Places
from licet.cli import run_hints
from licet.cli.refused_paths import refused_paths
from licet.policy_files.trusted_paths import TrustedPaths

# Lines as programs print them, with the paths in them.
LINES = {
    "cat: /w/a: Permission denied": ["/w/a"],
    "cat: my notes: No such file or directory": ["/w/my notes"],  # it is there
    "sh: 1: cannot create out/x: Read-only file system": ["/w/out/x"],
    "bash: line 1: out/x: Read-only file system": ["/w/out/x"],
    "touch: cannot touch 'a b': Read-only file system": ["/w/a b"],
    "mkdir: cannot create directory ‘x’: Read-only file system": ["/w/x"],
    "mv: cannot move 'a' to 'b': Device or resource busy": ["/w/a", "/w/b"],
    "busybox: can't open 'x': Permission denied": ["/w/x"],
    "error: could not lock config file .git/config: Read-only file system": ["/w/.git/config"],
    "error: could not write config file my notes/config: Device or resource busy": ["/w/my notes/config"],
    "fatal: cannot create directory at 'x/y': Read-only file system": ["/w/x/y"],
    "/usr/bin/ld: cannot open output file a.out: Read-only file system": ["/w/a.out"],
    "2026/01/01 open /w/x: permission denied": ["/w/x"],
    "OSError: [Errno 30] Read-only file system: 'x'": ["/w/x"],
    "OSError: [Errno 18] Invalid cross-device link: 'a' -> 'b'": ["/w/a", "/w/b"],
    "FileNotFoundError: [Errno 2] No such file or directory: '/w/x'": ["/w/x"],
    "Error: EACCES: permission denied, open '/w/x'": ["/w/x"],
    "npm error [Error: EROFS: read-only file system, mkdir '/w/node_modules']": ["/w/node_modules"],
    # No path in these. A name such as `OSError` is none.
    "OSError: [Errno 30] Read-only file system": [],
    "PermissionError: [Errno 13] Permission denied": [],
    "json.decoder.OSError: Permission denied": [],
    "Error: EACCES: permission denied, scandir": [],
    "  code: 'EROFS',": [],
    "[cause]: 'EACCES: permission denied'": [],
    "Permission denied": [],
}


@pytest.mark.parametrize("line", LINES)
def test_the_paths_of_a_line_are_read(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "lexists", lambda path: path in ("/w/my notes", "/w/my notes/config"))
    assert list(dict.fromkeys(path for path, _ in refused_paths(line, "/w"))) == LINES[line]


def run(project: Path, flags: list[str], *command: str) -> subprocess.CompletedProcess[str]:
    """`licet run` with flags alone, in a home and a state of its own."""
    home = project.parent / "home"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    return warm.run(warm.PROGRAM, ["run", *flags, "--", *command], cwd=project, env=environment)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project next to a home with keys."""
    home, made = tmp_path.resolve() / "home", tmp_path.resolve() / "project"
    for name in (".ssh/id_ed25519", ".aws/credentials", ".bashrc", "notes"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    (made / "in").mkdir(parents=True)
    (made / "in" / "file").write_text("x")
    (made / ".env").write_text("x")
    return made


CLAIMED = {
    "a key": "cat: {home}/.ssh/id_ed25519: No such file or directory",
    "credentials": "Error: ENOENT: no such file or directory, open '{home}/.aws/credentials'",
    "what the shell runs": "sh: 1: cannot create {home}/.bashrc: Read-only file system",
    "the home": "touch: cannot touch '{home}/x': Read-only file system",
    "what git runs": "sh: 1: cannot create .git/hooks/pre-commit: Read-only file system",
    "policy": "sh: 1: cannot create licet.yaml: Read-only file system",
    "the system": "touch: cannot touch '/etc/profile.d/x.sh': Read-only file system",
    "what is there and may be read": "cat: in/file: Permission denied",
    "what is nowhere": "cat: nowhere: No such file or directory",
    "no path": "OSError: [Errno 30] Read-only file system",
    "a name that is not seen as it is": "cat: '{home}/\u200bnotes': No such file or directory",
}


@pytest.mark.parametrize("case", CLAIMED)
def test_what_a_program_only_says_leads_to_no_advice(project: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It touches nothing, and prints a line about what it would like to have."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project.parent / "home"))
    monkeypatch.setattr(run_hints, "_TEMPORARY", ())  # where tests work
    claim = CLAIMED[case].format(home=project.parent / "home")
    reach = by_flags(read=("in",))
    for hint in run_hints.hints(claim, reach, str(project), (), degraded=False):
        assert "--allow-" not in hint, hint
        assert "OSError" not in hint
    other = project.parent / "home" / "other"
    other.write_text("x")
    (hint,) = run_hints.hints(f"cat: {other}: No such file or directory", reach, str(project), (), degraded=False)
    assert hint.endswith(f"add `--allow-read {other}`")  # an ordinary file that the walls do hide


LINKED = {
    "keys": ("{home}/.ssh", "it leads to `{home}/.ssh`: keys or credentials"),
    "a file of keys": ("{home}/.aws/credentials", "it leads to `{home}/.aws/credentials`: keys or credentials"),
    "the home": ("{home}", "it leads to `{home}`: a directory of many things"),
    "everything": ("/", "it leads to `/`: a directory of many things"),
    "a link to keys": ("{project}/step", "it leads to `{home}/.ssh`: keys or credentials"),
    "keys behind a name that goes up": ("in/../../home/.ssh", "it leads to `{home}/.ssh`: keys or credentials"),
    "the shadow file": ("/etc/shadow", "it leads to `/etc/shadow`: a file that may hold secrets"),
}


def linked(project: Path, target: str) -> Path:
    """A link with an ordinary name, as a program makes it where it may write."""
    (project / "step").symlink_to(project.parent / "home" / ".ssh")
    link = project / "docs-assets"
    link.symlink_to(target.format(home=project.parent / "home", project=project))
    return link


@pytest.mark.parametrize("form", ["flags", "a policy"])
@pytest.mark.parametrize("case", LINKED)
def test_a_link_that_a_program_made_is_not_advised(
    project: Path, case: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is an ordinary one, and allowing it would open what it leads to."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project.parent / "home"))
    monkeypatch.setattr(run_hints, "_TEMPORARY", ())  # where tests work
    target, why = LINKED[case]
    link = linked(project, target)
    reach = by_flags(read=("in",)) if form == "flags" else by_file(("fs:read:/work",))
    said = f"cat: {link}: Permission denied"
    (hint,) = run_hints.hints(said, reach, str(project), (), degraded=False)
    assert why.format(home=project.parent / "home") in hint
    assert "add " not in hint
    if os.path.isdir(link):
        (project.parent / "home" / ".ssh" / "config").write_text("x")
        below = next(name for name in ("config", ".ssh", "etc") if os.path.lexists(link / name))
        for hint in run_hints.hints(f"cat: {link / below}: EACCES", reach, str(project), (), degraded=False):
            assert "add " not in hint or below == "etc", hint


def test_a_link_to_what_others_run_is_not_advised_for_writing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(run_hints, "_TEMPORARY", ())  # where tests work
    home = project.parent / "home"
    (project / "in" / "style").symlink_to(home / ".bashrc")
    (project / "in" / "bin").symlink_to("/usr/bin")
    (project / "in" / "policy").symlink_to(project / "licet.yaml")
    monkeypatch.setenv("HOME", str(home))
    for name in ("style", "bin", "bin/x", "policy"):
        said = f"sh: 1: cannot create in/{name}: Read-only file system"
        for hint in run_hints.hints(said, by_flags(read=("in",)), str(project), (), degraded=False):
            assert "--allow-" not in hint, hint


def test_an_ordinary_path_behind_a_link_is_advised_by_its_real_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link can be replaced after it was advised."""
    monkeypatch.chdir(project)
    monkeypatch.setattr(run_hints, "_TEMPORARY", ())  # where tests work
    shelf = project.parent / "shelf"
    shelf.mkdir()
    (project / "books").symlink_to(shelf)
    said = f"cat: {project}/books: Permission denied"
    (hint,) = run_hints.hints(said, by_flags(read=("in",)), str(project), (), degraded=False)
    assert hint.endswith(f"no flag allows it; add `--allow-read {shelf}`")
    (hint,) = run_hints.hints(said, by_file(("fs:read:/work",)), str(project), (), degraded=False)
    assert f"add `{shelf}` under `fs_reach.read`" in hint
    (hint,) = run_hints.hints(said, by_flags(read=(str(shelf),)), str(project), (), degraded=False)
    assert hint.endswith(f"it leads to `{shelf}`, which is allowed: use that name")


@pytest.mark.parametrize("case", [*LINKED, "nothing special"])
def test_a_flag_whose_path_leads_to_more_than_it_says_warns(
    project: Path, case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project.parent / "home"))
    target, why = LINKED.get(case, ("in", ""))
    linked(project, target)
    typed = understood(Flags(read=("docs-assets",)), Places.here(None))
    run_hints.show_warnings(typed, by_flags(read=("docs-assets",)))
    said = capsys.readouterr().err
    expected = why.format(home=project.parent / "home").removeprefix("it ")
    assert said == (f"licet: --allow-read docs-assets {expected}{said.partition(expected)[2]}" if why else "")


def test_the_flag_for_a_closed_name_is_not_that_of_a_link(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    (project / ".idea").symlink_to(project.parent / "home" / ".ssh")
    closed = TrustedPaths((str(project),), str(project), str(project.parent / "home"))
    run_hints.show_closed(closed)
    said = capsys.readouterr().err
    assert " .idea, " in said
    assert " opens one\n" in said
    assert "--allow-write .idea" not in said
    assert "--allow-write" not in opened_by_flag(closed.paths)[str(project / ".idea")]
    assert "--allow-write .git" in opened_by_flag(closed.paths)[str(project / ".git")]


@needs_namespaces
def test_a_run_says_whose_words_these_are(project: Path) -> None:
    line = 'printf "sh: 1: cannot create in/x: Read-only file system\\n" >&2; exit 1'
    said = run(project, ["--allow-read", "in"], "sh", "-c", line).stderr.splitlines()[1:]
    assert said[0].startswith("licet: its output says that it was refused this")
    assert said[1].endswith("add `--allow-write in`")


REFUSED = {
    "sh": (["sh", "-c", "echo x > in/new"], "`{project}/in/new` may not be written: no flag allows it; add `--allow-"),
    "python": (["python3", "-c", "open('in/file', 'w')"], "add `--allow-write in/file`"),
    "node": (["node", "-e", "fs.writeFileSync('in/file', 'x')"], "add `--allow-write in/file`"),
    "git": (["git", "init", "in/made"], "add `--allow-write in`"),
    "make": (["make", "-f", "in/Makefile"], "add `--allow-write in`"),
}


@needs_namespaces
@pytest.mark.who
@pytest.mark.parametrize("case", REFUSED)
def test_what_the_walls_refused_is_told_as_what_the_output_says(project: Path, case: str) -> None:
    command, hint = REFUSED[case]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    (project / "in" / "Makefile").write_text("all:\n\ttouch in/made\n")
    if command[0] == "python3":
        command = [sys.executable, *command[1:]]
    ended = run(project, ["--allow-read", "in"], *command)
    assert ended.returncode != 0
    assert "licet: its output says that it was refused this" in ended.stderr
    assert hint.format(project=project) in ended.stderr
    (value,) = {line.rpartition("add `")[2].rstrip("`\n") for line in ended.stderr.splitlines() if "; add `" in line}
    flags = ["--allow-read", "in", *value.split()]
    assert run(project, flags, *command).returncode == 0


def test_a_line_that_is_made_to_be_slow_is_searched_for_a_few_names() -> None:
    # Each of these took up to a minute, and there may be two hundred.
    words, quotes = "a " * 1000 + "EPERM " * 300, " 'EPERM" * 580
    names = " ".join(f"'x{number}'" for number in range(500)) + ": Permission denied" * 30
    for line in (words, quotes, names):
        assert len(list(refused_paths(f"{line}\n" * 200, "/w"))) <= 200 * 4 * 8
