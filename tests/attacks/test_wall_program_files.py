"""Programs reach for files that their call does not hold: to read, to write, to delete, to leave behind."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from attacks.walled_programs import (
    CANARY,
    PYTHON,
    Programs,
    both_kinds,
    needs_namespaces,
    needs_walls,
    open_programs,
    place,
)

# A program reaches for files that its call does not hold: to read, to write, to change, to delete ---------------------


READS = {
    "cat": ("cat", "{out}/secret"),
    "through a link": ("cat", "{in}/link"),
    "through dots": ("cat", "{in}/../out/secret"),
    "through /proc/self/root": ("cat", "/proc/self/root{out}/secret"),
    "through /proc/self/cwd": ("cat", "/proc/self/cwd/../out/secret"),
    "a shell": ("sh", "-c", "read x < {out}/secret && echo $x || [ $x ] && echo $x"),
    "a hard link": ("sh", "-c", "ln {out}/secret {in}/hard && cat {in}/hard"),
}


def filled(command: tuple[str, ...], where: Path) -> list[str]:
    return [word.replace("{out}", str(where / "out")).replace("{in}", str(where / "in")) for word in command]


@both_kinds
@pytest.mark.parametrize("command", READS.values(), ids=READS.keys())
@pytest.mark.sampled(3)
def test_reading_what_is_not_granted(kind: str, command: tuple[str, ...], tmp_path: Path) -> None:
    where = place(tmp_path)
    (where / "in" / "link").symlink_to(where / "out" / "secret")
    rules = (f"fs:read:{where}/in", f"fs:write:{where}/in")
    words, start = filled(command, where), str(where / "in")
    assert CANARY in open_programs(*rules).run(*words, cwd=start).stdout_bytes.decode()
    (where / "in" / "hard").unlink(missing_ok=True)
    walled = Programs(kind, rules)
    assert walled.run("cat", f"{where}/in/file").stdout_bytes == b"granted\n"
    ended = walled.run(*words, cwd=start)
    assert (CANARY in ended.stdout_bytes.decode(), ended.exit_code != 0) == (False, True)


WRITES = {
    "create": "echo x > {out}/new",
    "overwrite": "echo x > {out}/secret",
    "append": "echo x >> {out}/secret",
    "truncate": "truncate -s 0 {out}/secret",
    "remove": "rm -f {out}/secret",
    "rename": "mv {out}/secret {out}/other",
    "make a directory": "mkdir {out}/dir",
    "change the mode": "chmod 600 {out}/secret",
    "change the time": "touch -d 2001-01-01 {out}/secret",
    "a link there": "ln -s /etc {out}/link",
    "over a granted link": "echo x > {in}/link",
    "write where only reading is granted": "echo x > {in}/file",
    "remove where only reading is granted": "rm -f {in}/file",
    "change a mode where only reading is granted": "chmod 600 {in}/file",
    "change a time where only reading is granted": "touch -d 2001-01-01 {in}/file",
}


def state(where: Path) -> list[object]:
    found: list[object] = []
    for path in sorted(where.rglob("*")):
        about = path.lstat()
        found.append((str(path), about.st_mode, about.st_size, about.st_mtime_ns if path.is_file() else 0))
    return found


@both_kinds
@pytest.mark.parametrize("line", WRITES.values(), ids=WRITES.keys())
@pytest.mark.sampled(4)
def test_changing_what_is_not_granted(kind: str, line: str, tmp_path: Path) -> None:
    for number, walls in enumerate(("open", kind)):
        (tmp_path / str(number)).mkdir()
        where = place(tmp_path / str(number))
        (where / "in" / "link").symlink_to(where / "out" / "secret")
        before = state(where)
        Programs(walls, (f"fs:read:{where}/in",)).run("sh", "-c", filled((line,), where)[0])
        assert (state(where) == before) is (walls == kind), f"{walls}: {line}"


@both_kinds
def test_what_is_granted_can_be_written_and_not_deleted(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    lines = (
        f"echo a > {where}/new && mkdir {where}/dir && echo b >> {where}/file; rm {where}/new; mv {where}/new {where}/x"
    )
    ended = Programs(kind, (f"fs:read:{where}", f"fs:write:{where}", f"fs:delete:{where}")).run("sh", "-c", lines)
    assert sorted(os.listdir(where)) == ["dir", "file", "new"]
    assert (where / "file").read_text() == "granted\nb\n"
    assert ended.stderr_bytes.count(b"ermission denied") == 2


@both_kinds
def test_a_read_only_call_writes_to_scratch_alone(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    rules = (f"fs:read:{where}", f"fs:write:{where}")
    line = f'echo x > "$TMPDIR/x" && cat "$TMPDIR/x" && rm "$TMPDIR/x"; echo y > {where}/new; echo "$TMPDIR"'
    ended = Programs(kind, rules, effect="read_only").run("sh", "-c", line)
    assert ended.stdout_bytes.startswith(b"x\n")
    assert not (where / "new").exists()
    scratch = Path(ended.stdout_bytes.decode().split()[1])
    assert kind == "namespaces" or not scratch.exists()  # it is gone


@both_kinds
def test_what_is_denied_inside_a_granted_tree(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    (where / ".env").write_text(CANARY)
    (where / "deep" / "keys").mkdir(parents=True)
    (where / "deep" / "keys" / "id").write_text(CANARY)
    (where / "deep" / "open").write_text("fine\n")
    rules, denies = (f"fs:read:{where}", f"fs:write:{where}"), (f"fs:*:{where}/.env", f"fs:*:{where}/deep/keys")
    line = f"cd {where}; cat .env deep/keys/id; echo x > .env; echo x > deep/keys/id; cat deep/open"
    assert open_programs(*rules, deny=denies).run("sh", "-c", line).stdout_bytes.count(CANARY.encode()) == 2
    (where / ".env").write_text(CANARY)
    ended = Programs(kind, rules, deny=denies).run("sh", "-c", line)
    assert ended.stdout_bytes == b"fine\n"
    assert (where / ".env").read_text() == CANARY


@both_kinds
def test_a_denied_name_that_is_not_there_yet_cannot_be_made(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    rules, denies = (f"fs:read:{where}", f"fs:write:{where}"), (f"fs:write:{where}/licet.lock",)
    for walls in ("open", kind):
        Programs(walls, rules, deny=denies).run("sh", "-c", f"echo x > {where}/licet.lock; echo y > {where}/file")
        assert (where / "licet.lock").exists() is (walls == "open")
        (where / "licet.lock").unlink(missing_ok=True)
    assert (where / "file").read_text() == "y\n"


@both_kinds
def test_a_link_in_the_place_of_a_granted_directory(kind: str, tmp_path: Path) -> None:
    # Some tool may write `in`, and puts a link where another tool's grant begins.
    where = place(tmp_path)
    (where / "in" / "data").symlink_to(where / "out")
    rules = (f"fs:read:{where}/in/data", f"fs:write:{where}/in")
    words = ("cat", f"{where}/in/data/secret")
    assert open_programs(*rules).run(*words).stdout_bytes.decode() == CANARY
    assert Programs(kind, rules).run(*words).stdout_bytes == b""


@both_kinds
@pytest.mark.sampled(1)
def test_everything_granted_is_still_not_the_processes_and_devices_of_the_host(kind: str) -> None:
    own = os.getpid()
    # Without namespaces, command lines are seen, and nothing more: see `test_looking_into_another_process`.
    words = ("cat", f"/proc/{own}/{'cmdline' if kind == 'namespaces' else 'environ'}", "/sys/kernel/notes")
    assert open_programs("fs:read:*").run(*words).stdout
    walled = Programs(kind, ("fs:read:*",), effect="read_only")
    assert walled.run(*words).stdout_bytes == b""
    assert walled.run("cat", "/etc/passwd").stdout


@both_kinds
@pytest.mark.parametrize("names", [False, True], ids=["any program", "this program"])
@pytest.mark.sampled(2)
def test_picking_a_program_for_the_libraries_beside_it(kind: str, names: bool, tmp_path: Path) -> None:
    # With `process:exec:*` the caller picks the program, and with it what lies beside it.
    where = tmp_path.resolve()
    for folder in ("bin", "lib"):
        (where / folder).mkdir()
    (where / "lib" / "secret").write_text(CANARY)
    program = where / "bin" / "program"
    program.write_text(f"#!/bin/sh\ncat {where}/lib/secret\n")
    program.chmod(0o755)
    rules = (f"process:exec:{program}",) if names else ()
    assert open_programs(*rules).run(str(program)).stdout_bytes.decode() == CANARY
    assert (Programs(kind, rules).run(str(program)).stdout_bytes.decode() == CANARY) is names


@both_kinds
@pytest.mark.skipif(os.getuid() != 0, reason="only root can read these without walls")
def test_the_private_keys_of_the_system(kind: str) -> None:
    words = ("ls", "/etc/ssl/private", "/etc/ssl/private/")
    if open_programs().run(*words).exit_code:
        pytest.skip("this system keeps no keys there")
    assert Programs(kind).run(*words).exit_code != 0


# Programs that may remove and rename files, because `approvals.delete` says so, try it where they may not -------------


DELETES = {
    "a rename out of the tree": "mv {in}/file {out}/stolen",
    "a rename into the tree": "mv {out}/secret {in}/stolen",
    "a delete beside the tree": "rm -f {out}/secret",
    "a delete through a link": "rm -f {in}/link/secret",
    "a rename through a link": "mv {in}/link/secret {in}/stolen",
    "a delete through dots": "rm -f {in}/../out/secret",
    "a delete of the tree itself": "rm -rf {in}/sub/.. ; mv {in} {in}-away",
    "a rename over a policy file": "echo planted > {in}/sub/new && mv -f {in}/sub/new {in}/.licet/licet.yaml",
    "a rename over the policy directory": "mkdir {in}/f && mv -T {in}/.licet {in}/w && mv -T {in}/f {in}/.licet",
    "a delete of a policy file": "rm -f {in}/.licet/licet.yaml",
    "a delete of a denied file": "rm -f {in}/keep/denied",
    "a rename of a denied file": "mv {in}/keep/denied {in}/keep/moved",
    "a rename of a directory on the way to a denied file": "mv {in}/keep {in}/gone",
    "an exchange with a denied file": "echo planted > {in}/keep/x && mv --exchange {in}/keep/x {in}/keep/denied"
    " || mv -f {in}/keep/x {in}/keep/denied",
    "a hard link that is then renamed": "ln {out}/secret {in}/hard && mv {in}/hard {in}/stolen",
    "a link in the place of a directory": "rm -rf {in}/sub && ln -s {out} {in}/sub && rm -f {in}/sub/secret",
}


def world(where: Path) -> dict[str, Path]:
    """A tree in `fs_reach.write` with policy and a denied file, one that only `grants` allow, and one outside."""
    places = {"in": where / "in", "out": where / "out", "granted": where / "granted"}
    for name in ("in/sub", "in/keep", "in/.licet", "out", "granted"):
        (where / name).mkdir(parents=True)
    for name in ("in/file", "in/keep/denied", "in/.licet/licet.yaml", "granted/file"):
        (where / name).write_text("kept")
    (where / "out" / "secret").write_text(CANARY)
    (where / "in" / "link").symlink_to(where / "out")
    return places


def programs(walls: str, places: dict[str, Path], deletes: str) -> Programs:
    """The programs of a `full` call whose manifest allows `in` by `fs_reach.write`, and `granted` by `grants`."""
    own, other = places["in"], places["granted"]
    closed = (f"{own}/.licet", f"{own}/keep/denied")
    deny = [f"fs:{action}:{path}" for path in closed for action in ("write", "delete")]
    rules = [*(f"fs:{action}:{own}" for action in ("read", "write", "delete")), f"fs:*:{other}"]
    return Programs(walls, rules, deny=deny, effect="full", deletes=deletes)


def kept_state(where: Path) -> dict[str, str]:
    """What must stay: everything that is closed, denied, or outside."""
    kept = ("in/.licet/licet.yaml", "in/keep/denied", "out/secret")
    found = {name: (where / name).read_text() if (where / name).is_file() else "gone" for name in kept}
    found["out"] = " ".join(sorted(os.listdir(where / "out")))
    found["in"] = str((where / "in").is_dir())
    stolen = where / "in" / "stolen"
    found["stolen"] = stolen.read_text() if stolen.is_file() else ""
    return found


@both_kinds
@pytest.mark.parametrize("deletes", ["session", "manifest"])
@pytest.mark.parametrize("attack", DELETES)
@pytest.mark.sampled(9)
def test_deletes_and_renames_stay_inside(kind: str, attack: str, deletes: str, tmp_path: Path) -> None:
    for walls in ("open", kind):
        where = tmp_path.resolve() / walls
        places = world(where)
        before = kept_state(where)
        line = DELETES[attack].format(**places)
        programs(walls, places, deletes).run("sh", "-c", line, cwd=str(places["in"]))
        assert (kept_state(where) == before) is (walls == kind), f"{walls}: {attack}"


OWN_WORK = "cd {at} && echo a > x && mv x y && echo b > z && mv -f z y && mkdir d && rmdir d && rm y && echo own"


@both_kinds
@pytest.mark.parametrize(("deletes", "works"), [("call", False), ("session", True), ("manifest", True)])
@pytest.mark.parametrize("by", ["fs_reach", "grants"])
def test_inside_a_program_removes_what_was_there_if_that_was_approved(
    kind: str, deletes: str, works: bool, by: str, tmp_path: Path
) -> None:
    places = world(tmp_path.resolve() / "here")
    at = {"fs_reach": places["in"] / "sub", "grants": places["granted"]}[by]
    (at / "old").write_text("before")
    ended = programs(kind, places, deletes).run("sh", "-c", f"{OWN_WORK.format(at=at)} && rm old && echo old")
    assert ended.stdout_bytes == (b"own\nold\n" if works else b"own\n")
    assert (b"ermission denied" in ended.stderr_bytes) is not works
    assert (at / "old").exists() is not works


@needs_namespaces
def test_a_rename_across_a_mount_does_not_leave_the_tree(tmp_path: Path) -> None:
    where = tmp_path.resolve() / "here"
    places = world(where)
    (where / "scratch").mkdir()
    # Without walls a directory on the same disk; behind them the scratch of the program, which is a mount of its own.
    for walls, target, said in (("open", f"'{where}/scratch'", "moved"), ("namespaces", "os.environ['TMPDIR']", "OSE")):
        (places["in"] / "file").write_text("kept")
        code = f"os.rename('{places['in']}/file', {target} + '/file'); print('moved')"
        assert programs(walls, places, "manifest").python(code).startswith(said)
    assert (places["in"] / "file").read_text() == "kept"


# A program without a private root fills its scratch with what is hard to remove; nothing may stay on the host ---------


TREES = {
    "deeper than the stack of Python": "for _ in range(1500): os.mkdir('d'); os.chdir('d')",
    "longer than the longest path": "for _ in range(60): os.mkdir('n' * 250); os.chdir('n' * 250)",
    "deep, with files at each level": "for _ in range(1200): open('f', 'w').close(); os.mkdir('d'); os.chdir('d')",
    "directories that nobody may enter": "os.makedirs('a/b/c'); os.umask(0o777); os.mkdir('a/b/c/d'); os.mkdir('x')",
    "names that are no text": "os.makedirs(b'\\xff\\xfe/\\x80'); open(b'\\xff\\xfe/\\xc3', 'w').close()",
    "names of line ends and dashes": "os.makedirs('-rf\\n/ /*'); open('-rf\\n/\\t', 'w').close()",
    "links to what is outside": "os.symlink('/', 'root'); os.makedirs('d'); os.symlink('..', 'd/up')",
    "names that whoever removes could use": (
        "for n in range(1, 40): os.makedirs(f'.{sys.argv[1]}.{n}/kept')\n"
        "for n in range(1, 40): os.makedirs(f'a{n}/b/c')"
    ),
}


@needs_walls
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
@pytest.mark.sampled(2)
def test_whatever_a_program_leaves_in_its_scratch_is_removed(
    tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what `tempfile` remembers of the variable
    code = f"print(os.environ['TMPDIR'])\nos.chdir(os.environ['TMPDIR'])\n{tree}\nprint('made')"
    scratch, said = Programs("no-namespaces").python(code, str(os.getpid())).splitlines()
    assert said == "made"
    assert tmp_path in Path(scratch).parents
    assert [str(path) for path in tmp_path.rglob("*") if path.is_file() or path == Path(scratch)] == []


# A granted program is talked into running another: that one is behind the same walls, so nothing is gained ------------


STEAL = "cat {out}/secret > {in}/loot"
LAUNCHERS = {
    "env": ("env", "X=1", "sh", "-c", STEAL),
    "sh": ("sh", "-c", STEAL),
    "find": ("find", "{in}/file", "-exec", "sh", "-c", STEAL, ";"),
    "xargs": ("xargs", "sh", "-c", STEAL),
    "tar": ("tar", "--to-command", STEAL, "-xf", "{in}/a.tar"),
    "tar checkpoint": ("tar", "-cf", "{in}/b.tar", "--checkpoint=1", f"--checkpoint-action=exec={STEAL}", "{in}/a.tar"),
    "git alias": ("git", "-C", "{in}/repo", "-c", f"alias.x=!{STEAL}", "x"),
    "git fsmonitor": ("git", "-C", "{in}/repo", "-c", f"core.fsmonitor={STEAL};true", "status"),
    "git ssh": ("git", "-C", "{in}/repo", "-c", f"core.sshCommand=sh -c '{STEAL}' #", "ls-remote", "ssh://h/x"),
    "git hook": ("git", "-C", "{in}/repo", "-c", "core.hooksPath={in}/hooks", "commit", "--allow-empty", "-m", "x"),
    "python": (PYTHON, "-I", "-c", f"import os; os.system('{STEAL}')"),
    "sed": ("sed", "-n", f"1e {STEAL}", "{in}/file"),
    "awk": ("awk", f'BEGIN {{ system("{STEAL}") }}'),
    "the loader": ("/lib64/ld-linux-x86-64.so.2", "/bin/sh", "-c", STEAL),
    "timeout": ("timeout", "5", "sh", "-c", STEAL),
    "nohup": ("nohup", "sh", "-c", STEAL),
    "setsid": ("setsid", "-w", "sh", "-c", STEAL),
}


def furnished(where: Path) -> None:
    """What some of the launchers need: an archive, a repository, a hook."""
    inside = where / "in"
    subprocess.run(["tar", "-C", inside, "-cf", inside / "a.tar", "file"], check=True)
    if shutil.which("git"):
        git = ["git", "-C", str(inside / "repo")]
        subprocess.run(["git", "init", "-q", inside / "repo"], check=True)
        for key, value in (("user.name", "n"), ("user.email", "e@x"), ("safe.directory", "*")):
            subprocess.run([*git, "config", key, value], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    (inside / "hooks").mkdir()
    hook = inside / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\n" + filled((STEAL,), where)[0] + "\n")
    hook.chmod(0o755)


@both_kinds
@pytest.mark.parametrize("words", LAUNCHERS.values(), ids=LAUNCHERS.keys())
@pytest.mark.sampled(3)
def test_a_launcher_gains_nothing(kind: str, words: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]} here")
    where = place(tmp_path)
    furnished(where)
    loot = where / "in" / "loot"
    rules = (f"fs:read:{where}/in", f"fs:write:{where}/in")
    command = filled(words, where)
    open_programs(*rules).run(*command)
    assert loot.read_text() == CANARY
    loot.unlink()
    Programs(kind, rules).run(*command)
    assert not loot.exists() or loot.read_text() == ""
