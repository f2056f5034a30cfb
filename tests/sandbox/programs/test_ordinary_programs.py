"""What ordinary programs do works behind walls as it does outside, and what a policy closes stays closed to them."""

import os
import pwd
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from attacks.walled_programs import Programs, both_kinds, needs_namespaces
from licet.sandbox.kernel.namespaces import DEVICES

PATH = "/usr/bin:/bin"
MAKEFILE = "all: one two\none:\n\t@echo one\ntwo:\n\t@for i in 1 2; do echo two; done\n"
OTHER = 4321  # an id that nobody here has

# Python that prints its result. `os.setresuid` and the like take the own id, or -1.
IDS = {
    "all of the user's": "os.setuid(os.getuid()); os.setreuid(-1, os.getuid()); os.setresuid(os.getuid(), -1, -1)",
    "all of the group's": "os.setgid(os.getgid()); os.setregid(-1, os.getgid()); os.setresgid(os.getgid(), -1, -1)",
    "the effective ones": "os.seteuid(os.getuid()); os.setegid(os.getgid())",
    "as posix_spawn resets them": "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}, resetids=True), 0)",
    "a FIFO": "os.mkfifo(os.environ['TMPDIR'] + '/fifo')",
    "memory with a descriptor": "os.memfd_create('m')",
    "a signal when the parent ends": "import ctypes; assert ctypes.CDLL(None).prctl(1, 15, 0, 0, 0) == 0",
}
REFUSED = {
    "another user": f"os.setuid({OTHER})",
    "another user, later": f"os.setresuid(-1, -1, {OTHER})",
    "another group": f"os.setresgid({OTHER}, -1, -1)",
    "fewer groups": "os.setgroups([])",
    "more groups": f"os.setgroups([os.getgid(), {OTHER}])",
    "a device": "os.mknod(os.environ['TMPDIR'] + '/null', 0o20666, os.makedev(1, 3))",
    "a set-uid FIFO": "os.mknod(os.environ['TMPDIR'] + '/fifo', 0o14600)",
}


def granted(where: Path) -> tuple[str, ...]:
    return (f"fs:read:{where}", f"fs:write:{where}", "process:exec:sh", "process:exec:make", "env:read:PATH")


def programs(kind: str, where: Path, **given: object) -> Programs:
    """Programs that may start `sh` and `make`, and nothing else; they read and write one directory."""
    given = {"environ": {"PATH": PATH}, "anything": False, "workdir": str(where), **given}
    return Programs(kind, granted(where), **given)  # type: ignore[arg-type]


def said(kind: str, where: Path, script: str, **given: object) -> str:
    ended = programs(kind, where, **given).run("sh", "-c", script)
    return (ended.stdout_bytes + ended.stderr_bytes).decode()


@both_kinds
@pytest.mark.parametrize("name", IDS)
@pytest.mark.sampled(4)
def test_what_programs_may_do_to_themselves(kind: str, name: str) -> None:
    assert Programs(kind).python(f"{IDS[name]}\nprint('done')") == "done\n"


@both_kinds
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.sampled(4)
def test_what_they_may_not_do(kind: str, name: str) -> None:
    # Without the walls root does all of it, and in a namespace of its own the kernel refuses what the filter refuses.
    assert "PermissionError" in Programs(kind).python(f"{REFUSED[name]}\nprint('done')")


@both_kinds
@pytest.mark.parametrize("flags", ["", "-j4"])
@pytest.mark.skipif(shutil.which("make", path=PATH) is None, reason="there is no make here")
def test_make_runs_its_recipes(kind: str, flags: str, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    ended = programs(kind, tmp_path).run("make", *flags.split())
    assert sorted(ended.stdout_bytes.split()) == [b"one", b"two", b"two"], ended.stderr_bytes


@both_kinds
@pytest.mark.parametrize("place", ["$PWD", "$TMPDIR"])
def test_a_file_that_was_just_written_is_executed(kind: str, place: str, tmp_path: Path) -> None:
    script = f"printf '#!/bin/sh\\necho script' > {place}/s && chmod +x {place}/s; cp /bin/echo {place}/e"
    if kind == "no-namespaces":  # modes cannot be changed there: the copy has the mode of its source
        script = f"cp /bin/echo {place}/e"
    found = said(kind, tmp_path, f"{script}; {place}/e binary; test ! -e {place}/s || {place}/s")
    assert found.split() == (["binary", "script"] if kind == "namespaces" else ["binary"])


@both_kinds
def test_a_deny_of_reading_is_one_of_executing(kind: str, tmp_path: Path) -> None:
    for name in ("open", "closed"):
        shutil.copy("/bin/echo", tmp_path / name)
    script = "./open open; ./closed closed; /usr/bin/env echo env"
    denied = said(kind, tmp_path, script, deny=[f"fs:read:{tmp_path}/closed", "fs:read:/usr/bin/env"])
    assert "open\n" in denied
    assert "closed\n" not in denied.replace("./closed", "")
    assert "env\n" not in denied


@pytest.mark.who
@both_kinds
def test_a_deny_of_starting_stops_nothing_behind_the_walls(kind: str, tmp_path: Path) -> None:
    # It says what licet starts. What may be read is run by any shell, interpreter or loader.
    assert said(kind, tmp_path, "id -u", deny=["process:exec:id"]).strip() == str(os.getuid())


@both_kinds
def test_what_may_be_written_and_not_read_is_not_executed(kind: str, tmp_path: Path) -> None:
    shutil.copy("/bin/echo", tmp_path / "echo")
    rules = (f"fs:write:{tmp_path}", "process:exec:sh")
    ended = Programs(kind, rules, anything=False).run("sh", "-c", f"{tmp_path}/echo ran")
    assert b"ran\n" not in ended.stdout_bytes


@both_kinds
def test_a_file_that_may_be_read_is_written_where_its_directory_may(kind: str, tmp_path: Path) -> None:
    for name in ("open", "closed"):
        (tmp_path / name).write_text("one ")
    rules = (f"fs:read:{tmp_path}/open", f"fs:write:{tmp_path}", "process:exec:sh", "env:read:PATH")
    script = f"cd {tmp_path}; echo two >> open; cat open; echo two >> closed; cat closed"
    ended = Programs(kind, rules, environ={"PATH": PATH}, anything=False).run("sh", "-c", script)
    assert ended.stdout_bytes == b"one two\n", ended.stderr_bytes
    assert (tmp_path / "closed").read_text() == "one two\n"


@both_kinds
def test_a_program_finds_itself_by_the_name_that_it_has_on_the_path(kind: str, tmp_path: Path) -> None:
    place = tmp_path.resolve() / "tools" / "bin"
    place.mkdir(parents=True)
    shutil.copy("/bin/sh", place / "shell-1")
    (place / "shell").symlink_to("shell-1")
    found = Programs(
        kind,
        ("process:exec:shell", "env:read:PATH"),
        environ={"PATH": f"{place}:{PATH}"},
        anything=False,
        path=f"{place}:{PATH}",
    )
    ended = found.run("shell", "-c", "command -v shell; command -v shell-1; ls -d /usr")
    assert ended.stdout_bytes.decode().split() == [f"{place}/shell", f"{place}/shell-1", "/usr"], ended.stderr_bytes


SHARED = """
import multiprocessing
from multiprocessing import shared_memory
with multiprocessing.Lock(), multiprocessing.Semaphore(2):
    memory = shared_memory.SharedMemory(create=True, size=100)
    memory.buf[0] = 7
    if os.fork() == 0:
        again = shared_memory.SharedMemory(memory.name)
        print(again.buf[0], flush=True)
        os._exit(0)
    os.wait(); memory.close(); memory.unlink()
print(os.listdir('/dev/shm'))
"""


@needs_namespaces
def test_locks_and_shared_memory(tmp_path: Path) -> None:
    assert Programs("namespaces").python(SHARED) == "7\n[]\n"


@needs_namespaces
def test_shared_memory_is_counted_with_scratch() -> None:
    fill = "open('/dev/shm/x', 'wb').write(bytes(900 << 10)); open('/tmp/y', 'wb').write(bytes(200 << 10))"
    assert "No space left" in Programs("namespaces", limits={"scratch_mb": 1}).python(fill)


@pytest.mark.who
@needs_namespaces
def test_names_of_the_user_and_of_this_machine(tmp_path: Path) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    shown = said("namespaces", tmp_path, "whoami; id -un; id -gn; cut -d: -f1 /etc/passwd")
    assert shown.split()[:2] == [name, name]
    assert set(shown.split()[3:]) == {"root", "nobody", name}


@needs_namespaces
def test_the_real_list_of_users_only_where_it_is_granted(tmp_path: Path) -> None:
    real = Path("/etc/passwd").read_text()
    asked = ("cat", "/etc/passwd")
    assert Programs("namespaces", ("fs:read:/etc/passwd",)).run(*asked).stdout_bytes.decode() == real
    assert Programs("namespaces").run(*asked).stdout_bytes.decode() != real
    denied = Programs("namespaces", ("fs:read:/etc",), deny=["fs:read:/etc/passwd"]).run(*asked)
    assert (denied.exit_code, denied.stdout_bytes) == (1, b"")


@needs_namespaces
def test_open_files_have_names_and_terminals_can_be_made(tmp_path: Path) -> None:
    ended = programs("namespaces", tmp_path).run("sh", "-c", "cat /dev/stdin; echo x > /dev/fd/1", stdin="in\n")
    assert ended.stdout_bytes == b"in\nx\n"
    code = "import pty\npty.spawn(['sh', '-c', 'tty > /dev/tty'])"
    assert Programs("namespaces").python(code).split() == ["/dev/pts/0"]
    assert "/dev/tty" in DEVICES


@pytest.mark.who
@needs_namespaces
def test_more_processes_than_by_default_where_the_policy_says_so() -> None:
    code = "import time\nfor n in range(400):\n    if os.fork() == 0: time.sleep(600)\nprint('made')"
    assert "BlockingIOError" in Programs("namespaces", limits={"processes": 50}).python(code) or not os.getuid()
    assert Programs("namespaces", limits={"processes": 500}).python(code) == "made\n"


BELOW_TMP = """
try_it() { if sh -c "$2"; then echo $1; fi; }
try_it made 'd=$(mktemp -d /tmp/x.XXXXXX) && echo x > $d/file'
try_it removed 'rm -r /tmp/x.*'
try_it temporary 'f=$(mktemp) && mv $f $f.moved && rm $f.moved'
try_it read 'cat kept >&2'
try_it written 'echo x >> kept'
try_it new 'echo x > new'
try_it deleted 'rm kept'
try_it renamed 'cd /tmp && mv "$OLDPWD" /tmp/elsewhere'
try_it piped 'test -p pipe && : <> pipe'
"""
# What a program may do in a project below /tmp: the rules, whether a FIFO is there, and what succeeds.
IN_TMP = {
    "all": (("read", "write", "delete"), False, "made removed temporary read written new deleted"),
    "no delete": (("read", "write"), False, "made temporary read written new"),
    "only reads": (("read",), False, "made removed temporary read"),
    "only reads, and a pipe": (("read",), True, "temporary read"),
    "only writes": (("write",), False, "temporary written new"),
}


@needs_namespaces
@pytest.mark.parametrize("case", IN_TMP)
def test_a_program_has_a_tmp_of_its_own_around_a_project_in_tmp(case: str) -> None:
    actions, has_pipe, expected = IN_TMP[case]
    with TemporaryDirectory(prefix="licet-tmp-", dir="/tmp") as made:
        project = Path(made, "inner", "project").resolve()
        project.mkdir(parents=True)
        (project / "kept").write_text("kept")
        if has_pipe:
            os.mkfifo(project / "pipe")
        outside = set(os.listdir("/tmp"))
        rules = (*(f"fs:{action}:{project}" for action in actions), "env:read:PATH")
        given = Programs(
            "namespaces", rules, environ={"PATH": PATH}, effect="full", deletes="manifest", workdir=str(project)
        )
        ended = given.run("sh", "-c", BELOW_TMP)
        assert ended.stdout_bytes.decode().split() == expected.split(), ended.stderr_bytes
        assert {name for name in set(os.listdir("/tmp")) - outside if name.startswith("x.")} == set()
