"""Somebody on the host replaces a file that is closed to a program, and the program uses what is there now.

The person means no harm: `git config`, `sed -i`, an editor or `git switch` write a new file and give it the old name,
and what the walls had mounted over the old one is gone with it.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from attacks.walled_programs import PYTHON, Programs, needs_namespaces
from licet.events import CapabilityDenied
from licet.ports import Finished
from licet.sandbox.programs import supervisor_client

pytestmark = [needs_namespaces, pytest.mark.who]
PATIENCE = 60.0  # seconds; for what comes at once on a machine that has time
NEW = "new"

# It does what it is told by files, and says what came of it in files.
PROGRAM = """
import ctypes, json, mmap, os, signal, socket, sys, time
top, held = sys.argv[1], []
libc = ctypes.CDLL(None)
env, config, hooks = top + "/.env", top + "/.git/config", top + "/.vscode"

def read(path):
    with open(path) as file: return file.read()
def write(path):
    with open(path, "a") as file: file.write("planted")
    return "written"
def opened(path, flags):
    held.append(os.open(path, flags))
    return "held"
def linked(path):
    os.link(path, path + ".link")
    return "linked"
def mapped(path):
    file = os.open(path, os.O_RDWR)
    libc.mmap(None, 4096, 3, 1, file, 0)  # `mmap.mmap` keeps a copy of the file open
    os.close(file)
    return "mapped"
def mapped_by_thread(path):
    # The first thread of a process can end before the others: then nothing is told of the process as a whole.
    import threading
    done, ready = os.pipe()
    def hold():
        mapped(path)
        os.write(ready, b"mapped")
        time.sleep(1000)
    if not os.fork():
        threading.Thread(target=hold).start()
        libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # `exit` ends this thread alone
    said = os.read(done, 6).decode()
    while not any(is_zombie(name) for name in os.listdir("/proc") if name.isdigit()): time.sleep(0.005)
    return said
def is_zombie(name):
    with open(f"/proc/{name}/stat") as file: return file.read().rpartition(")")[2].split()[0] == "Z"
def written_by_mapping(path):
    file = os.open(path, os.O_RDWR)
    libc.mmap.restype = ctypes.c_void_p
    place = ctypes.c_void_p(libc.mmap(None, 4096, 3, 1, file, 0))
    ctypes.memmove(place, b"bad", 3)
    libc.munmap(place, 4096)
    os.close(file)
    return "written"
def written_among_much(path):
    for number in range(4000):
        name = top + "/" + f"{number:0200}"
        open(name, "w").close()
    return write(path)
def renamed_over(path):
    with open(path + ".planted", "w") as file: file.write("planted")
    os.rename(path + ".planted", path)
    return "renamed"
def opened_by_another_name(path):
    name = os.path.dirname(path) + "/sub/name"
    os.makedirs(os.path.dirname(name), exist_ok=True)
    os.link(path, name)
    held.append(os.open(name, os.O_RDWR))
    os.unlink(name)
    return "held"
def mapped_by_another_name(path):
    opened_by_another_name(path)
    libc.mmap(None, 4096, 3, 1, held[-1], 0)
    os.close(held.pop())
    return "mapped"
def written_when_covered():
    while not os.path.exists(top + "/covered"): time.sleep(0.005)
    os.write(held[-1], b"planted")
    os.close(held.pop())
    open(top + "/written", "w").close()
    return "written"
def logs(number):
    with open(top + "/one.log", "wb", 0) as one, open(top + "/two.log", "wb", 0) as two:
        for _ in range(number):
            one.write(b".")
            two.write(b".")
    return "logged"
def inside(path):
    os.chdir(path)
    return "inside"
def sent(path):
    near, far = socket.socketpair()
    with open(path) as file: socket.send_fds(near, [b"x"], [file.fileno()])
    held.extend((near, far))
    return "sent"
def moved(path):
    os.rename(path, path + ".moved")
    return "moved"
def gone(path):
    os.unlink(path)
    return "removed"
def forked(path):
    file = os.open(path, os.O_RDONLY)
    if not os.fork():
        time.sleep(1000)
    os.close(file)
    return "forked"
def nothing(): return "nothing"
def crowd():
    import threading
    for number in range(8):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    for number in range(3):
        if not os.fork():
            if os.getuid() == 0: libc.prctl(4, 0, 0, 0, 0)
            while number: pass
            time.sleep(1000)
    if not os.fork():
        if os.getuid() == 0: libc.prctl(4, 0, 0, 0, 0)
        while True:
            child = os.posix_spawn("/bin/true", ["true"], dict())
            os.waitpid(child, 0)
    os.mkfifo(top + "/fifo")
    if not os.fork():  # `vfork` ends when the child executes its program, and it waits for a writer before
        opening = (os.POSIX_SPAWN_OPEN, 0, top + "/fifo", os.O_RDONLY, 0)
        os.posix_spawn("/bin/cat", ["cat"], dict(), file_actions=[opening])
    return "crowd"
def hammer(path):
    while not os.path.exists(top + "/enough"):
        try: write(path)
        except OSError: pass

def say(name, text):
    with open(top + "/" + name + ".part", "w") as file: file.write(text)
    os.rename(top + "/" + name + ".part", top + "/" + name)

say("started", "")
number = 0
while True:
    while not os.path.exists(f"{top}/do-{number}"): time.sleep(0.005)
    with open(f"{top}/do-{number}") as file: what = file.read()
    if what == "end": break
    try: said = str(eval(what))
    except OSError as error: said = type(error).__name__
    say(f"did-{number}", said)
    number += 1
print("ended by itself")
"""


class Run:
    """A program behind walls that does what it is told, in a directory with closed names."""

    def __init__(
        self,
        where: Path,
        *,
        watched: bool = True,
        more: Sequence[str] = (),
        hidden: Sequence[str] = (),
        before: str = "",
    ) -> None:
        self.top, self._before = where, before if watched else BLIND
        self._number = 0
        self.finished: Finished | None = None
        self.programs = Programs(
            "namespaces",
            [f"fs:*:{where}", *more],
            deny=[
                *hidden,
                f"fs:*:{where}/.env",
                *(f"fs:{act}:{where}/{name}" for act in CHANGES for name in CLOSED),
            ],
            effect="destructive",
            seconds=PATIENCE,
        )
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        before = supervisor_client.PRELUDE
        if self._before:
            supervisor_client.PRELUDE = before + supervisor_client._IMPORT_LICET + self._before
        try:
            self.finished = self.programs.run(PYTHON, "-I", "-S", "-c", PROGRAM, str(self.top))
        finally:
            supervisor_client.PRELUDE = before

    def start(self) -> None:
        """Start it, and wait until it runs."""
        self._thread.start()
        assert eventually(lambda: (self.top / "started").exists() or not self._thread.is_alive())

    def tell(self, what: str) -> str:
        """Have it do something; what came of it, or an empty text if it was ended."""
        number, self._number = self._number, self._number + 1
        self._order(number, what)
        did = self.top / f"did-{number}"
        assert eventually(lambda: did.exists() or not self._thread.is_alive())
        return did.read_text() if did.exists() else ""

    def _order(self, number: int, what: str) -> None:
        (self.top / "part").write_text(what)
        (self.top / "part").rename(self.top / f"do-{number}")

    def wait_until_ended(self) -> Finished:
        """Wait until its walls have ended it."""
        assert eventually(lambda: not self._thread.is_alive())
        return self.end()

    def end(self) -> Finished:
        """End it, if it was not ended."""
        if self._thread.is_alive():
            self._order(self._number, "end")
        self._thread.join(PATIENCE)
        assert self.finished is not None
        return self.finished

    def process(self) -> int:
        """The program, by its id on the host."""
        wanted = os.fsencode(self.top)
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")[-2:-1] == [wanted]:
                    return int(name)
        raise AssertionError("it does not run")

    def watcher(self) -> int:
        """The process of its walls that waits outside of its namespace."""
        return parent(parent(self.process()))

    def is_closed(self, name: str) -> bool:
        """Whether something is mounted over a name, and the program goes on."""
        path = os.path.normpath(self.top / name)
        with suppress(AssertionError, OSError):
            process = self.process()
            mounts = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
            status = Path(f"/proc/{process}/status").read_text()
            return any(line.split()[4] == path for line in mounts) and "TracerPid:\t0" in status
        return False

    def wait_until_closed(self, name: str) -> None:
        """Wait until a name is closed again."""
        assert eventually(lambda: self.is_closed(name) or not self._thread.is_alive())
        assert self._thread.is_alive(), self.finished

    @contextmanager
    def nobody_watching(self) -> Iterator[None]:
        """Make the moment longer in which a name is open."""
        watcher = self.watcher()
        os.kill(watcher, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(watcher, signal.SIGCONT)


CHANGES, CLOSED = ("write", "delete"), (".git/config", ".vscode", "new.json", "other.json")
# What the supervisor runs first when nobody shall watch.
BLIND = """
from licet.sandbox.kernel import cover_watch
cover_watch.CoverWatch.look = lambda watch, ready: None
cover_watch.CoverWatch.register = lambda watch, poll: None
"""
# What it runs first for a program to stand still for a shorter time, however often a file is replaced. A file is there
# meanwhile.
IMPATIENT = """
import os
from licet.sandbox import limits
limits.CLOSE_SECONDS, limits.MOST_REPLACED = 1.0, 1
from licet.sandbox.kernel import cover_watch
judge, wait = cover_watch.CoverWatch._check_histories, cover_watch.CoverWatch._wait_until_quiet
def judged(watch):
    judge(watch)
    open({0!r}, "w").close()
def waited(watch, until):
    wait(watch, until)
    os.unlink({0!r})
cover_watch.CoverWatch._check_histories, cover_watch.CoverWatch._wait_until_quiet = judged, waited
"""
# What it runs first for a program to go on for a while after a name was covered.
SLOW = """
import os, time
from licet.sandbox.kernel import cover_watch
close = cover_watch.CoverWatch._close_again
def slowly(watch):
    watch._cover_existing()
    open({0!r} + "/covered", "w").close()
    while not os.path.exists({0!r} + "/written"): time.sleep(0.005)
    close(watch)
cover_watch.CoverWatch._close_again = slowly
"""
EVENTS = (
    int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) if os.path.exists("/proc/sys/fs/inotify") else 0
)


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository with a branch that has another file of a closed name."""
    top = (tmp_path / "top").resolve()
    top.mkdir()
    (top / "new.json").write_text("{}")
    git = ("git", "-C", str(top), "-c", "user.name=me", "-c", "user.email=me@example.com")
    tool(*git, "init", "--initial-branch", "main")
    tool(*git, "add", ".")
    tool(*git, "commit", "--message", "first")
    tool(*git, "switch", "--create", "other")
    (top / "new.json").write_text("{1: 2}")
    tool(*git, "commit", "--all", "--message", "other")
    tool(*git, "switch", "main")
    (top / ".env").write_text("TOKEN=secret\n")
    (top / ".vscode").mkdir()
    return top


@contextmanager
def run(top: Path, *, watched: bool = True, hidden: Sequence[str] = (), before: str = "") -> Iterator[Run]:
    made = Run(top, watched=watched, hidden=hidden, before=before)
    made.start()
    try:
        yield made
    finally:
        made.end()


def tool(*command: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no `{command[0]}` here")
    subprocess.run(command, check=True, capture_output=True)


def replaced(path: Path) -> None:
    other = path.with_name(path.name + ".other")
    other.write_text(NEW)
    other.rename(path)


def removed_and_made(path: Path) -> None:
    path.unlink()
    path.write_text(NEW)


def moved_and_made(path: Path) -> None:
    path.rename(path.with_name(path.name + "~"))
    path.write_text(NEW)


def exchanged(path: Path) -> None:
    other = path.with_name(path.name + ".other")
    other.write_text(NEW)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(-100, os.fsencode(other), -100, os.fsencode(path), 2) == 0


def directory_moved_and_made(path: Path) -> None:
    path.parent.rename(path.parent.with_name(path.parent.name + "~"))
    path.parent.mkdir()
    path.write_text(NEW)


def made_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text(NEW)


def a_directory_replaced(path: Path) -> None:
    other = path.with_name("other")
    other.mkdir()
    other.rename(path)


def configured(path: Path) -> None:
    tool("git", "config", "-f", str(path), "user.name", "me")


def edited(path: Path) -> None:
    tool("sed", "-i", "s/secret/other/", str(path))


def moved_over(path: Path) -> None:
    path.with_name("x").write_text(NEW)
    tool("mv", str(path.with_name("x")), str(path))


def switched(path: Path) -> None:
    """Another branch has another file of this name."""
    git = ("git", "-C", str(path.parent), "-c", "user.name=me", "-c", "user.email=me@example.com")
    tool(*git, "switch", "other")


def a_directory_made_again(path: Path) -> None:
    path.rmdir()
    path.mkdir()


def a_directory_moved_and_made(path: Path) -> None:
    path.rename(path.with_name("old"))
    path.mkdir()


def moved_by_host(path: Path) -> None:
    path.rename(path.with_name("moved-by-host"))


def directory_moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old-git"))


# What somebody does on the host: the closed name, and what is done to it.
OPERATIONS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "git config": (".git/config", configured),
    "git switch": ("new.json", switched),
    "sed -i": (".env", edited),
    "mv": (".env", moved_over),
    "replaced": (".env", replaced),
    "a read-only file replaced": (".git/config", replaced),
    "removed and made": (".env", removed_and_made),
    "a read-only file removed and made": (".git/config", removed_and_made),
    "moved and made": (".env", moved_and_made),
    "a read-only file moved and made": (".git/config", moved_and_made),
    "exchanged": (".env", exchanged),
    "a read-only file exchanged": (".git/config", exchanged),
    "its directory moved and made": (".git/config", directory_moved_and_made),
    "a file becomes a directory": (".env", made_a_directory),
    "an empty directory removed and made": (".vscode", a_directory_made_again),
    "an empty directory replaced": (".vscode", a_directory_replaced),
    "a directory moved and made": (".vscode", a_directory_moved_and_made),
    "a placeholder replaced": ("other.json", replaced),
    "a placeholder moved and made": ("other.json", moved_and_made),
}
# Where nothing has the name afterwards.
REMOVALS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "removed": (".env", Path.unlink),
    "a read-only file removed": (".git/config", Path.unlink),
    "moved": (".env", moved_by_host),
    "a placeholder removed": ("other.json", Path.unlink),
    "a placeholder moved": ("other.json", moved_by_host),
    "an empty directory removed": (".vscode", Path.rmdir),
    "its directory moved": (".git/config", directory_moved),
}


def used(path: Path, name: str) -> str:
    """How a program uses what is at a closed name."""
    if name == ".vscode":
        return f'write("{path}/settings.json")'
    return f'read("{path}")' if name == ".env" and not path.is_dir() else f'write("{path}")'


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.sampled(8)
def test_a_closed_name_that_somebody_replaces_stays_closed(operation: str, top: Path) -> None:
    name, act = OPERATIONS[operation]
    path = top / name
    for watched in (False, True):
        directory = top.with_name(f"top-{watched}")
        shutil.copytree(top, directory)
        path = directory / name
        with run(directory, watched=watched) as program:
            assert program.tell(used(path, name)).endswith("Error")
            act(path)
            if watched:
                program.wait_until_closed(name)
            said = (
                program.tell(used(path, name))
                if not (name == ".env" and path.is_dir())
                else program.tell(f'os.listdir("{path}")')
            )
            assert said.endswith("Error") == watched, (watched, said)
        assert program.end().reason == "", program.end()
        assert b"ended by itself" in program.end().stdout_bytes


@pytest.mark.parametrize("operation", REMOVALS)
@pytest.mark.sampled(4)
def test_a_closed_name_that_somebody_removes_cannot_be_made(operation: str, top: Path) -> None:
    name, act = REMOVALS[operation]
    for watched in (False, True):
        directory = top.with_name(f"top-{watched}")
        shutil.copytree(top, directory)
        path = directory / name
        planted = f'(os.makedirs("{path.parent}", exist_ok=True), open("{path}", "w").write("planted"))'
        with run(directory, watched=watched) as program:
            assert program.tell(planted).endswith("Error")
            act(path)
            if watched:
                program.wait_until_closed(name)
            assert program.tell(planted).endswith("Error") == watched
        assert program.end().reason == "", program.end()
        # What stood for it is gone with the program.
        assert os.path.lexists(path) != watched
        assert path.parent.exists() != (watched and "its directory" in operation)


# What a program does in the moment in which a name is open: the name, what it does, and what is said of it.
MEANWHILE = {
    "writes": (".git/config", 'write("{}")', "it was written while it was open"),
    "writes by a mapping": (".git/config", 'written_by_mapping("{}")', "it was open for writing"),
    "writes while much else happens": (".git/config", 'written_among_much("{}")', "it was written while it was open"),
    "maps in a process without its first thread": (".git/config", 'mapped_by_thread("{}")', "mapped"),
    "reads": (".env", 'read("{}")', "it was opened before it was hidden again"),
    "links": (".git/config", 'linked("{}")', "has a second name now"),
    "holds it open": (".git/config", 'opened("{}", os.O_RDONLY)', "a process has"),
    "holds its path": (".git/config", 'opened("{}", os.O_PATH)', "a process has"),
    "passes it to a child": (".git/config", 'forked("{}")', "a process has"),
    "maps": (".git/config", 'mapped("{}")', "mapped"),
    "sends it to itself": (".git/config", 'sent("{}")', "on their way from one process to another"),
    "renames a file of its own there": (".git/config", 'renamed_over("{}")', "more than one file was put there"),
    "removes it": (".git/config", 'gone("{}")', "it was removed while it was open"),
    "opens it by another name": (".git/config", 'opened_by_another_name("{}")', "a process has"),
    "opens a hidden one by another name": (".env", 'opened_by_another_name("{}")', "a process has"),
    "maps it by another name": (".git/config", 'mapped_by_another_name("{}")', "mapped"),
    "moves it away": (".env", 'moved("{}")', "it was moved away while it was open"),
}


@pytest.mark.parametrize("deed", MEANWHILE)
@pytest.mark.sampled(5)
def test_what_a_program_got_hold_of_meanwhile_ends_it(deed: str, top: Path) -> None:
    name, act, told = MEANWHILE[deed]
    path = top / name
    with run(top) as program:
        process = program.process()
        with program.nobody_watching():
            replaced(path)
            assert not program.tell(act.format(path)).endswith("Error")
        finished = program.wait_until_ended()
    assert finished.reason == "CLOSED_FILE_REPLACED"
    assert str(path) in finished.detail
    assert told in finished.detail
    assert finished.exit_code == -signal.SIGKILL
    assert not os.path.exists(f"/proc/{process}")
    denied = [event for event in program.programs.grant.events if isinstance(event, CapabilityDenied)]
    assert [event.reason for event in denied] == ["CLOSED_FILE_REPLACED"]


def test_what_a_program_got_of_a_directory_meanwhile_ends_it(top: Path) -> None:
    with run(top) as program:
        with program.nobody_watching():
            (top / ".vscode").rmdir()
            (top / ".vscode").mkdir()
            assert program.tell(f'inside("{top}/.vscode")') == "inside"
        finished = program.wait_until_ended()
    assert finished.reason == "CLOSED_FILE_REPLACED"
    assert "a process uses" in finished.detail


def test_a_program_that_did_nothing_meanwhile_goes_on(top: Path) -> None:
    with run(top) as program:
        with program.nobody_watching():
            replaced(top / ".env")
            assert program.tell("nothing()") == "nothing"
        program.wait_until_closed(".env")
        assert program.tell(f'read("{top}/.env")') == "PermissionError"
    assert program.end().reason == ""


def test_a_name_that_is_made_where_a_program_only_reads(top: Path) -> None:
    # There was nothing to hide when the program started, and nothing can be put there in advance.
    for watched in (False, True):
        directory = top.with_name(f"top-{watched}")
        shutil.copytree(top, directory)
        keys = directory.with_name(f"keys-{watched}")
        (keys / "sub").mkdir(parents=True)
        made = Run(directory, watched=watched, more=[f"fs:read:{keys}"], hidden=[f"fs:*:{keys}/sub/key"])
        made.start()
        (keys / "sub" / "key").write_text("secret")
        if watched:
            made.wait_until_closed(f"../keys-{watched}/sub/key")
        assert made.tell(f'read("{keys}/sub/key")').endswith("Error") == watched
        assert made.end().reason == ""


def test_processes_that_are_hard_to_stop(top: Path) -> None:
    # Undumpable ones, threads, a child that has not executed its program yet, and one that has restricted itself.
    with run(top) as program:
        assert program.tell("crowd()") == "crowd"
        for number in range(3):
            replaced(top / ".env")
            program.wait_until_closed(".env")
            assert program.tell(f'read("{top}/.env")') == "PermissionError", number
    assert program.end().reason == ""


@pytest.mark.who
def test_a_process_that_cannot_be_looked_at_ends_the_program(top: Path) -> None:
    with run(top) as program:
        assert program.tell("libc.prctl(4, 0, 0, 0, 0)") == "0"
        with program.nobody_watching():
            replaced(top / ".env")
        if os.getuid():  # its directory in /proc is that of a user whom its namespace does not have
            assert program.wait_until_ended().reason == "CLOSED_FILE_REPLACED"
        else:
            program.wait_until_closed(".env")


def test_several_names_at_once(top: Path) -> None:
    with run(top) as program:
        with program.nobody_watching():
            replaced(top / ".env")
            moved_and_made(top / ".git" / "config")
            (top / ".vscode").rmdir()
            (top / "other.json").unlink()
        for name in (".env", ".git/config", ".vscode", "other.json"):
            program.wait_until_closed(name)
        assert program.tell(f'read("{top}/.env")') == "PermissionError"
        assert program.tell(f'write("{top}/.git/config")') == "OSError"
    assert program.end().reason == ""


def test_a_link_in_its_place_ends_the_program(top: Path) -> None:
    with run(top) as program:
        (top / ".env").unlink()
        (top / ".env").symlink_to(top / ".git" / "config")
        assert program.wait_until_ended().reason == "CLOSED_FILE_REPLACED"


def test_a_program_that_writes_as_fast_as_it_can(top: Path) -> None:
    # Either it is ended, or the file is as the person has written it, and closed.
    config = top / ".git" / "config"
    with run(top) as program:
        thread = threading.Thread(target=program.tell, args=(f'hammer("{config}")',))
        thread.start()
        for number in range(5):
            if program.finished is None:
                tool("git", "config", "-f", str(config), "user.name", f"me{number}")
                assert eventually(lambda: program.is_closed(".git/config") or program.finished is not None)
        (top / "enough").write_text("")
        thread.join(PATIENCE)
        finished = program.end()
    assert finished.reason == "CLOSED_FILE_REPLACED" or "planted" not in config.read_text()


def test_a_stopped_job_stays_stopped_and_a_running_one_is_not_reported(top: Path) -> None:
    command = "[sys.executable, '-c', 'import time; time.sleep(1000)']"
    code = f"globals().update(one=os.posix_spawn(sys.executable, {command}, dict()))"
    with run(top) as program:
        assert program.tell(code) == "None"
        assert program.tell(code.replace("one=", "two=")) == "None"
        assert program.tell("(os.kill(one, signal.SIGSTOP), os.waitpid(one, os.WUNTRACED)[0] == one)").endswith("True)")
        program.tell("globals().update(before=time.monotonic())")
        replaced(top / ".env")
        program.wait_until_closed(".env")
        # The processes are let go one after the other: the one that answers may run while another is still traced.
        state = "open(f'/proc/{NAME}/stat').read().rpartition(')')[2].split()[0]"
        settled = f"next(letter for letter in iter(lambda: {state}, '') if letter != 't')"
        assert program.tell(settled.replace("NAME", "one")) == "T"
        assert program.tell(settled.replace("NAME", "two")) in ("S", "R")
        assert program.tell("os.waitpid(-1, os.WUNTRACED | os.WNOHANG)") == "(0, 0)"
    assert program.end().reason == ""


def test_a_file_that_is_replaced_again_and_again_is_closed_each_time(top: Path) -> None:
    with run(top) as program:
        for number in range(5):
            tool("git", "config", "-f", str(top / ".git" / "config"), "user.name", f"me{number}")
            program.wait_until_closed(".git/config")
            assert program.tell(f'write("{top}/.git/config")') == "OSError"
    assert program.end().reason == ""


def test_a_file_that_is_replaced_all_the_time_stops_no_program_for_ever(top: Path) -> None:
    judged, end = top / "judged", time.monotonic() + PATIENCE
    with run(top, before=IMPATIENT.format(str(judged))) as program:
        replaced(top / ".env")
        assert eventually(judged.exists)
        while judged.exists() and time.monotonic() < end:  # it stands still
            replaced(top / ".env")
        assert time.monotonic() < end
        assert program.tell("nothing()") == "nothing", program.end()
    assert program.end().reason == ""


def test_two_files_that_come_before_the_name_is_closed_end_the_program(top: Path) -> None:
    # It may have kept the first, under a name of its own, or put the second there.
    with run(top) as program:
        with program.nobody_watching():
            replaced(top / ".env")
            replaced(top / ".env")
        finished = program.wait_until_ended()
    assert finished.reason == "CLOSED_FILE_REPLACED"
    assert "more than one file was put there" in finished.detail


def test_what_is_written_by_another_name_before_a_program_stands_still_ends_it(top: Path) -> None:
    config = top / ".git" / "config"
    with run(top, before=SLOW.format(str(top))) as program:
        with program.nobody_watching():
            replaced(config)
            assert program.tell(f'opened_by_another_name("{config}")') == "held"
        program.tell("written_when_covered()")
        finished = program.wait_until_ended()
    assert finished.reason == "CLOSED_FILE_REPLACED"
    assert "it was written while it was open" in finished.detail


# Beside names that are closed -----------------------------------------------------------------------------------------


def test_a_program_that_writes_much_beside_a_closed_name_goes_on(top: Path) -> None:
    # The kernel keeps only so many events for the process that watches.
    with run(top) as program:
        for _ in range(3):
            with program.nobody_watching():
                assert program.tell(f"logs({EVENTS})") == "logged"
            assert program.tell(f"logs({EVENTS})") == "logged"
        assert program.tell(f'read("{top}/.env")') == "PermissionError"
    assert program.end().reason == "", program.end()


@pytest.mark.parametrize("move", [False, True])
def test_what_is_not_known_of_a_file_that_was_replaced_ends_the_program(move: bool, top: Path) -> None:
    with run(top) as program:
        with program.nobody_watching():
            assert program.tell(f"logs({EVENTS})") == "logged"
            if move:
                moved_and_made(top / ".env")
            else:
                replaced(top / ".env")
            assert program.tell("nothing()") == "nothing"
        finished = program.wait_until_ended()
    assert finished.reason == "CLOSED_FILE_REPLACED"
    assert "more happened beside it than can be followed" in finished.detail


# Directories on the way to a closed name ------------------------------------------------------------------------------


@pytest.fixture
def deep(top: Path) -> Path:
    """A file two directories deep, to be hidden."""
    file = top / "d" / "e" / "file"
    file.parent.mkdir(parents=True)
    file.write_text("secret")
    return file


@contextmanager
def run_with(deep: Path) -> Iterator[Run]:
    top = deep.parents[2]
    with run(top, hidden=[f"fs:*:{deep}"]) as program:
        yield program


def other_directory(deep: Path) -> None:
    """Another directory takes the place of the outer one."""
    outer = deep.parents[1]
    other = outer.with_name("other")
    (other / "e").mkdir(parents=True)
    (other / "e" / "file").write_text("new secret")
    shutil.rmtree(outer)
    other.rename(outer)


def test_a_closed_name_in_nested_directories_that_are_made_again(deep: Path) -> None:
    with run_with(deep) as program:
        for _ in range(2):
            with program.nobody_watching():
                other_directory(deep)
            program.wait_until_closed("d/e/file")
            assert program.tell(f'read("{deep}")') == "PermissionError"
    assert program.end().reason == ""


def test_a_directory_on_the_way_may_hold_whatever_it_likes(deep: Path) -> None:
    # A package manager gives one file two names; the program could read all of it before.
    with run_with(deep) as program:
        with program.nobody_watching():
            other_directory(deep)
            (deep.parents[1] / "package").write_text("code")
            os.link(deep.parents[1] / "package", deep.parents[1] / "same")
            assert program.tell(f'opened("{deep.parents[1]}/package", os.O_RDWR)') == "held"
        program.wait_until_closed("d/e/file")
        assert program.tell(f'read("{deep}")') == "PermissionError"
    assert program.end().reason == ""


@pytest.mark.parametrize("replacing", [False, True])
def test_a_program_in_a_directory_that_somebody_moves_goes_on(replacing: bool, deep: Path) -> None:
    with run_with(deep) as program:
        assert program.tell(f'inside("{deep.parent}")') == "inside"
        with program.nobody_watching():
            if replacing:
                other_directory(deep)
            else:
                away = deep.parents[3] / "away"
                deep.parents[1].rename(away)
                away.rename(deep.parents[1])
        program.wait_until_closed("d/e/file")
        assert program.tell('read("file")').endswith("Error")
    assert program.end().reason == ""


@pytest.mark.parametrize("name", ["d", "d/e", "d/gone"])
def test_a_directory_from_which_a_closed_name_is_reached_beneath_its_cover(name: str, deep: Path) -> None:
    path = deep.parents[2] / name
    with run_with(deep) as program:
        with program.nobody_watching():
            other_directory(deep)
            path.mkdir(exist_ok=True)
            assert program.tell(f'opened("{path}", os.O_PATH)') == "held"
            if name == "d/gone":
                path.rmdir()
        finished = program.wait_until_ended()
    assert finished.reason == "CLOSED_FILE_REPLACED"
    assert "a process has" in finished.detail


def test_a_program_ends_with_the_process_that_watches(top: Path) -> None:
    with run(top) as program:
        process = program.process()
        os.kill(program.watcher(), signal.SIGKILL)
        finished = program.wait_until_ended()
    assert finished.exit_code == -signal.SIGKILL
    assert not os.path.exists(f"/proc/{process}")
