"""A program reaches for files that its call does not hold: to read, to write, to change, to delete."""

import os
from pathlib import Path

import pytest

from attacks.walled_programs import CANARY, Programs, both_kinds, open_programs, place

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
    words = ("cat", f"/proc/{own}/cmdline", "/sys/kernel/notes")
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
