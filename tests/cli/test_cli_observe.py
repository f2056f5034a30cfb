"""`licet observe`: each act of a real command becomes its use, failures do not, and the command notices nothing."""

import json
import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import warm
from attacks.walled_programs import needs_namespaces
from licet.backends.memory import Answer
from licet.core.review.recording_lines import recording_start, touch
from loopback import serving

PYTHON = (sys.executable, "-I", "-S")
DEFAULT_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


@pytest.fixture(scope="module", autouse=True)
def reported_calls() -> None:
    """Skip all of this where the kernel, or a sandbox around the tests, does not report calls."""
    tried = "import os\nfrom licet.sandbox.kernel import hardening, notifications, reported_calls, system_calls\n"
    tried += "hardening.no_new_privs()\n"
    tried += "try:\n    notifications.install(reported_calls.program(system_calls.machine()))\n"
    tried += "except OSError:\n    os._exit(77)\nos._exit(0)"
    ended = warm.run(tried, [])
    if ended.returncode == 77:
        pytest.skip("calls are not reported here")
    assert ended.returncode == 0, ended.stderr


class Ended:
    """A command that was observed."""

    def __init__(self, code: int, out: str, error: str, recording: Path) -> None:
        self.code, self.out, self.error, self.recording = code, out, error, recording

    @property
    def touches(self) -> list[Any]:
        first, *lines = self.recording.read_bytes().splitlines()
        recording_start(first)
        return [touch(line) for line in lines]

    @property
    def uses(self) -> set[str]:
        return {one.use for one in self.touches}


def observe(
    *words: str,
    options: tuple[str, ...] = (),
    before: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Ended:
    folder = cwd or Path.cwd()
    recording = folder / f"recording-{len(list(folder.glob('recording-*')))}.jsonl"
    given = ["observe", "--output", str(recording), *options, "--", *words]
    ended = warm.run(before + warm.PROGRAM, given, cwd=folder, env=env or os.environ)
    return Ended(ended.returncode, ended.stdout, ended.stderr, recording)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Each act and its uses -----------------------------------------------------------------------------------------------

# A name, what Python does in a directory of its own, and the uses. In each directory are: `file` with a text, `full`
# with a file in it, `empty`, `link` to `file`, `dangling` to `absent`, and `out`, a link to the directory `elsewhere`.
ACTS = [
    ("read", "open('file')", "read:file"),
    ("read-twice", "open('file'); open('file')", "read:file"),
    ("write", "open('file', 'w')", "write:file"),
    ("append", "open('file', 'a')", "write:file"),
    ("read-and-write", "open('file', 'r+')", "read:file write:file"),
    ("create", "open('new', 'x')", "write:new"),
    ("create-to-read", "open('new', 'w+')", "read:new write:new"),
    ("truncate-while-reading", "os.open('file', os.O_RDONLY | os.O_TRUNC)", "read:file write:file"),
    ("read-missing", "open('missing')", ""),
    ("read-below-a-file", "open('file/missing')", ""),
    ("write-in-a-missing-directory", "open('missing/new', 'w')", ""),
    ("create-what-exists", "open('file', 'x')", ""),
    ("through-a-link", "open('link')", "read:file read:link"),  # behind walls the link must be there, too
    ("through-a-linked-directory", "open('out/there')", "read:elsewhere/there read:out/there"),
    ("no-link-wanted", "os.open('link', os.O_RDONLY | os.O_NOFOLLOW)", ""),
    ("create-through-a-link", "open('dangling', 'w')", "write:absent"),
    ("dots", "open('full/../empty/../file')", "read:file"),
    ("relative-to-a-directory", "os.open('inner', os.O_RDONLY, dir_fd=os.open('full', os.O_PATH))", "read:full/inner"),
    ("after-a-change-of-directory", "os.chdir('full'); open('inner'); os.chdir('..')", "read:full/inner"),
    ("by-its-open-file", "open(f'/proc/self/fd/{os.open(\"file\", os.O_PATH)}')", "read:file"),
    ("by-its-open-file-doubled", "open(f'//proc//self/fd/{os.open(\"file\", os.O_PATH)}')", "read:file"),
    ("by-its-open-file-dotted", "open(f'/proc/../dev/./fd/{os.open(\"file\", os.O_PATH)}')", "read:file"),
    (
        "by-its-open-file-from-proc",
        "f = os.open('file', os.O_PATH); os.chdir('/proc'); open(f'self/fd/{f}')",
        "read:file",
    ),
    ("list", "os.listdir('full')", "read:full"),
    ("name-only", "os.open('file', os.O_PATH)", ""),
    ("look", "os.stat('file'); os.access('file', 4)", ""),
    ("directory-as-file", "open('full', 'w')", ""),
    ("file-as-directory", "os.open('file', os.O_RDONLY | os.O_DIRECTORY)", ""),
    ("nameless-file", "os.open('empty', os.O_RDWR | os.O_TMPFILE)", "write:empty"),
    ("delete", "os.remove('file')", "delete:file"),
    ("delete-a-link", "os.remove('link')", "delete:link"),
    ("delete-missing", "os.remove('missing')", ""),
    ("delete-a-directory", "os.rmdir('empty')", "delete:empty"),
    ("delete-a-full-directory", "os.rmdir('full')", ""),
    ("delete-a-directory-as-a-file", "os.remove('empty')", ""),
    ("move", "os.rename('file', 'moved')", "delete:file write:moved"),
    (
        "delete-what-it-made",
        "open('new', 'x').close(); os.remove('new')",
        "write:new delete:new",
    ),
    (
        "delete-in-what-it-made",
        "os.mkdir('new'); open('new/inner', 'x').close(); os.remove('new/inner')",
        "write:new write:new/inner delete:new/inner",
    ),
    (
        "delete-again",
        "os.remove('file'); open('file', 'x').close(); os.remove('file')",
        "write:file delete:file",
    ),
    ("move-a-directory", "os.rename('full', 'moved')", "delete:full write:moved"),
    ("move-over-a-directory", "os.rename('full', 'empty')", "delete:full write:empty"),
    ("move-missing", "os.rename('missing', 'moved')", ""),
    ("make-a-directory", "os.mkdir('new')", "write:new"),
    ("make-a-directory-again", "os.mkdir('empty')", ""),
    ("make-a-pipe", "os.mkfifo('new')", "write:new"),
    ("hard-link", "os.link('file', 'new')", "read:file write:new"),
    ("link", "os.symlink('file', 'new')", "write:new"),
    ("link-again", "os.symlink('file', 'link')", ""),
    ("cut", "os.truncate('file', 1)", "write:file"),
    ("mode", "os.chmod('file', 0o600)", "write:file"),
    ("times", "os.utime('link')", "write:file"),
    ("times-of-a-link", "os.utime('link', follow_symlinks=False)", "write:link"),
    ("attribute", "os.setxattr('file', 'user.a', b'b')", "write:file"),
    ("unix-server", "socket.socket(socket.AF_UNIX).bind('new')", "write:new"),
    ("thread", "t = threading.Thread(target=open, args=('file',)); t.start(); t.join()", "read:file"),
    ("child", "os.fork() or (open('file'), os._exit(0)); os.wait()", "read:file"),
    ("bytes-that-are-no-text", "open(b'new\\xff', 'w')", ""),
    ("a-star", "open('new*', 'w')", ""),
]
PROGRAM = """
import os, socket, sys, threading
for name, code in {acts!r}:
    os.chdir(os.path.join({place!r}, name))
    try:
        exec(code)
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def acted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """One command that does everything in `ACTS`."""
    place = tmp_path_factory.mktemp("acts")
    for name, _, _ in ACTS:
        for folder in ("full", "empty", "elsewhere"):
            (place / name / folder).mkdir(parents=True)
        for file in ("file", "full/inner", "elsewhere/there"):
            (place / name / file).write_text("text")
        for link, target in (("link", "file"), ("dangling", "absent"), ("out", "elsewhere")):
            (place / name / link).symlink_to(target)
    program = PROGRAM.format(acts=[(name, code) for name, code, _ in ACTS], place=str(place))
    ended = observe(*PYTHON, "-c", program, cwd=tmp_path_factory.mktemp("observed"))
    assert ended.code == 0, ended.error
    return place, ended


@pytest.mark.parametrize(
    ("name", "expected"), [(name, uses) for name, _, uses in ACTS], ids=[name for name, _, _ in ACTS]
)
def test_each_act_is_recorded_as_its_use(acted: tuple[Path, Ended], name: str, expected: str) -> None:
    place, ended = acted
    here = f"{place / name}/"
    found = {use.replace(here, "").removeprefix("fs:") for use in ended.uses if here in use}
    assert found == set(expected.split())


# What is said of a use besides: `made` of a write, that the name is new, of a delete, that the command had made it.
NAMES = [
    ("create", "write:new", (True, False)),
    ("write", "write:file", (False, False)),
    ("make-a-directory", "write:new", (True, True)),
    ("move", "write:moved", (True, False)),
    ("move", "delete:file", (False, False)),
    ("delete", "delete:file", (False, False)),
    ("delete-what-it-made", "delete:new", (True, False)),
    ("delete-in-what-it-made", "delete:new/inner", (True, False)),
    ("delete-again", "delete:file", (False, False)),
    ("move-a-directory", "write:moved", (True, True)),
    ("move-over-a-directory", "write:empty", (True, False)),
]


@pytest.mark.parametrize(("name", "use", "said"), NAMES, ids=[f"{name}-{use}" for name, use, _ in NAMES])
def test_a_line_says_what_was_made(acted: tuple[Path, Ended], name: str, use: str, said: tuple[bool, bool]) -> None:
    action, _, path = use.partition(":")
    (line,) = [one for one in acted[1].touches if one.use == f"fs:{action}:{acted[0]}/{name}/{path}"]
    assert (line.made is True, line.directory is True) == said


@pytest.mark.parametrize(("line", "said"), [
    ("mkdir -p out/deep; touch out/x; mkdir gone; rmdir gone", "made out, which the next run finds"),
    ("mkdir out; mv out kept", "made kept, which the next run finds"),
    ("touch there/x; rmdir empty; mkdir empty; mkdir __pycache__", ""),
])  # fmt: skip
def test_directories_that_the_next_run_finds_are_named(desk: Path, line: str, said: str) -> None:
    for name in ("there", "empty"):
        (desk / name).mkdir()
    shown = [text for text in observe("sh", "-c", line).error.splitlines() if "next run" in text]
    assert [said in text for text in shown] == [True] * bool(said)


def test_the_same_use_of_one_process_is_one_line_with_a_count(acted: tuple[Path, Ended]) -> None:
    place, ended = acted
    (one,) = [one for one in ended.touches if one.use == f"fs:read:{place}/read-twice/file"]
    assert (one.count, one.outcome, one.call) == (2, "used", "process 1")


def test_what_every_program_may_read_is_left_out(acted: tuple[Path, Ended]) -> None:
    place, ended = acted
    others = {use for use in ended.uses if str(place) not in use}
    assert others == {f"process:exec:{os.path.realpath(sys.executable)}"}


def test_names_that_no_rule_can_write_are_mentioned(acted: tuple[Path, Ended]) -> None:
    assert "files whose names no rule can write" in acted[1].error
    assert "new*" in acted[1].error


# Programs ------------------------------------------------------------------------------------------------------------


def test_programs_their_interpreters_and_children_are_recorded(desk: Path) -> None:
    Path("script").write_text("#!/bin/sh\nmissing-program; cat data; exit 3\n")
    Path("script").chmod(0o755)
    Path("data").write_text("a text\n")
    ended = observe("./script")
    assert (ended.code, ended.out) == (3, "a text\n")
    shell, cat = (os.path.realpath(shutil.which(name) or "") for name in ("sh", "cat"))
    programs = {f"process:exec:{path}" for path in (desk / "script", shell, cat)}
    assert ended.uses == {*programs, f"fs:read:{desk}/data"}
    tools = {(one.call, one.tool) for one in ended.touches if one.use == f"fs:read:{desk}/data"}
    assert tools == {("process 2", "cat")}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_git_can_be_observed(desk: Path) -> None:
    ended = observe("git", "init", "--quiet", "new", env={**os.environ, "HOME": str(desk)})
    assert ended.code == 0, ended.error
    assert f"fs:write:{desk}/new/.git/HEAD" in ended.uses
    assert f"fs:delete:{desk}/new/.git/HEAD.lock" in ended.uses


def test_many_processes_and_threads_at_once_lose_nothing(desk: Path) -> None:
    code = (
        "import os, threading\n"
        "def work(name):\n"
        "    for number in range(5): open(f'{name}-{number}', 'w').close()\n"
        "for child in range(6):\n"
        "    if not os.fork():\n"
        "        threads = [threading.Thread(target=work, args=(f'{child}-{one}',)) for one in range(4)]\n"
        "        for one in threads: one.start()\n"
        "        for one in threads: one.join()\n"
        "        os._exit(0)\n"
        "for child in range(6): os.wait()\n"
    )
    ended = observe(*PYTHON, "-c", code)
    wanted = {
        f"fs:write:{desk}/{child}-{one}-{number}" for child in range(6) for one in range(4) for number in range(5)
    }
    assert (ended.code, wanted - ended.uses) == (0, set())
    assert len({one.call for one in ended.touches}) == 7


def test_temporary_files_are_left_out_and_removed(desk: Path) -> None:
    ended = observe("sh", "-c", 'echo x > "$TMPDIR/new"; echo "$TMPDIR"')
    assert not os.path.exists(ended.out.strip())
    assert {use for use in ended.uses if use.startswith("fs:")} == set()


# The network ---------------------------------------------------------------------------------------------------------

ASK = """
import socket, sys
for head in sys.argv[2:]:
    with socket.socket() as made:
        made.connect(("127.0.0.1", int(sys.argv[1])))
        made.sendall(head.encode() + b" HTTP/1.1\\r\\n\\r\\n")
        print(made.recv(1000).split(b"\\r\\n")[0].decode())
"""


def page(exchange: Any) -> Answer:
    return Answer(200, (), b"a page")


@needs_namespaces
def test_hosts_that_are_reached_through_the_proxy_have_names(desk: Path) -> None:
    with serving(page) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        near, nobody = f"localhost:{server.port}", f"localhost:{closed.getsockname()[1]}"
        heads = [f"GET http://{near}/x", f"DELETE http://{near}/x", f"CONNECT {near}", f"GET http://{nobody}/"]
        ended = observe("sh", "-c", '"$@"; true', "sh", *PYTHON, "-c", ASK, "3128", *heads)
    assert ended.out.split("\n")[:3] == ["HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 200 Connection established"]
    found = {use for use in ended.uses if use.startswith("network:")}
    assert found == {f"network:http:get@{near}", f"network:http:delete@{near}", f"network:tcp:{near}"}
    assert {one.call for one in ended.touches if one.use in found} == {"process 2"}  # which the shell has started


@needs_namespaces
def test_a_connection_past_the_proxy_is_mentioned(desk: Path) -> None:
    code = "import socket; print(socket.socket().connect_ex(('192.0.2.1', 80)) != 0)"
    ended = observe(*PYTHON, "-c", code, options=("--json",))
    (text,) = json.loads(ended.error)["not_seen"]
    assert ended.out == "True\n"
    assert "192.0.2.1:80" in text
    assert "--no-proxy" in text


OWN_SERVER = """
import http.server, threading, urllib.request, warnings
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
server.RequestHandlerClass.log_message = lambda *_: None
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in ("127.0.0.1", "localhost"):
    print(urllib.request.urlopen(f"http://{host}:{server.server_port}/").status)
server.shutdown()
"""


@needs_namespaces
def test_a_server_of_the_command_itself_is_reached_without_the_proxy(desk: Path) -> None:
    ended = observe(*PYTHON, "-c", OWN_SERVER, options=("--json",))
    assert ended.out == "200\n200\n", ended.error
    assert json.loads(ended.error)["not_seen"] == []
    assert not [use for use in ended.uses if use.startswith("network:")]


@needs_namespaces
def test_a_server_of_the_machine_that_is_not_reached_is_mentioned(desk: Path) -> None:
    # Under `licet run` an address of loopback means the network of the program, unless a rule says otherwise.
    with serving(page) as server:
        code = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {server.port})) != 0)"
        ended = observe(*PYTHON, "-c", code, options=("--json",))
        (text,) = json.loads(ended.error)["not_seen"]
    assert ended.out == "True\n"
    assert f"127.0.0.1:{server.port}" in text
    assert "--no-proxy" in text


def refusing(call: str) -> str:
    """Code that lets a kernel be one without a call, for what comes after."""
    steps = "[(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50026), (6, 0, 0, 0x7FFF0000)]"
    return (
        "import struct\nfrom licet.sandbox.kernel import hardening, seccomp, system_calls\n"
        f"number = system_calls.NUMBERS[system_calls.machine()][{call!r}]\nhardening.no_new_privs()\n"
        f"seccomp.install(b''.join(struct.pack('=HBBI', *step) for step in {steps}))\n"
    )


@pytest.mark.parametrize(
    ("options", "before", "why"),
    [((), refusing("unshare"), "because this machine has no network namespaces"), (("--no-proxy",), "", "addresses")],
    ids=["no-namespaces", "no-proxy"],
)
def test_without_a_proxy_addresses_are_recorded_and_that_is_said(
    desk: Path, options: tuple[str, ...], before: str, why: str
) -> None:
    with serving(page) as server:
        ended = observe(*PYTHON, "-c", ASK, str(server.port), "GET /x", options=options, before=before)
    assert ended.out.startswith("HTTP/1.1 ")
    assert {use for use in ended.uses if use.startswith("network:")} == {f"network:tcp:127.0.0.1:{server.port}"}
    assert f"licet: not recorded: host names, only addresses{', ' if before else ''}" in ended.error
    assert why in ended.error


def test_a_socket_of_another_program_is_recorded(desk: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("server")
        server.listen()
        code = "import socket; socket.socket(socket.AF_UNIX).connect('server')"
        ended = observe(*PYTHON, "-c", code)
    assert f"socket:connect:{desk}/server" in ended.uses


def test_a_socket_that_the_command_made_is_no_use_of_another(desk: Path) -> None:
    made = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('own'); s.listen()"
    ended = observe(*PYTHON, "-c", f"{made}; socket.socket(socket.AF_UNIX).connect('own')")
    assert not [use for use in ended.uses if use.startswith("socket:")]


def test_a_socket_without_a_path_is_mentioned(desk: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0licet-{os.getpid()}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0licet-{os.getpid()}')"
        ended = observe(*PYTHON, "-c", code)
    assert "unix sockets without a path" in ended.error


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_programs_with_rights_of_others_and_of_32_bits_are_mentioned(desk: Path) -> None:
    shutil.copy(os.path.realpath(shutil.which("true") or ""), "other")
    os.chown("other", 65534, 65534)
    os.chmod("other", 0o4755)
    Path("small").write_bytes(b"\x7fELF\x01" + bytes(100))
    os.chmod("small", 0o755)
    ended = observe("sh", "-c", "./other; ./small; true")
    assert f"they ran without them ({desk}/other)" in ended.error
    assert f"what 32-bit programs touch ({desk}/small)" in ended.error


# How it runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
def test_the_exit_code_is_that_of_the_command(desk: Path, script: str, code: int) -> None:
    assert observe("sh", "-c", script).code == code


def test_streams_are_those_of_the_command(desk: Path) -> None:
    words = [*warm.command(warm.PROGRAM), "observe", "--output", "recording", "--", "cat"]
    data = os.urandom(1 << 20)
    ended = subprocess.run(words, input=data, capture_output=True, check=False, timeout=300)
    assert (ended.returncode, ended.stdout == data) == (0, True)


def test_processes_that_are_left_running_are_ended(desk: Path) -> None:
    ended = observe("sh", "-c", "sleep 1000 & echo $!")
    assert "ended with the command: 1 process that it left running" in ended.error
    assert not is_alive(int(ended.out))


def is_alive(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_terminal_and_its_interrupts_reach_the_command(desk: Path) -> None:
    main, side = pty.openpty()
    code = "import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); "
    words = [*warm.command(code + DEFAULT_INTERRUPTS + warm.PROGRAM), "observe", "--output", "recording", "--"]
    script = "trap 'echo interrupted; exit 9' INT; tty; while :; do sleep 0.05; done"
    with subprocess.Popen([*words, "sh", "-c", script], stdin=side, stdout=side, stderr=side) as running:
        os.close(side)
        seen, sent = b"", False
        with suppress(OSError):  # the end of a terminal
            while data := os.read(main, 4096):
                seen += data
                if not sent and b"/dev/pts/" in seen:
                    sent = bool(os.write(main, b"\x03"))
        os.close(main)
    assert b"interrupted" in seen
    assert b"licet: recorded" in seen
    assert running.returncode == 9


def test_a_signal_to_licet_reaches_the_command(desk: Path) -> None:
    words = [*warm.command(warm.PROGRAM), "observe", "--output", "recording", "--"]
    script = "trap 'exit 8' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen([*words, "sh", "-c", script], stdout=-1, stderr=-1, stdin=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.terminate()
        running.communicate()
    assert running.returncode == 8


@pytest.mark.parametrize(
    ("killed", "code", "text"),
    [
        ("recorder", -9, b"licet: the process that records has ended, so the command was ended too"),
        ("guardian", 125, b"licet: the process that guards the command was killed, so the command was ended"),
    ],
)
def test_a_command_whose_observer_dies_is_ended(desk: Path, killed: str, code: int, text: bytes) -> None:
    words = [*warm.command(warm.PROGRAM), "observe", "--output", "recording", "--"]
    script = "sleep 1000 & echo $PPID $$ $!; while :; do cat data; done 2>/dev/null"
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": -1, "stderr": -1}
    with subprocess.Popen([*words, "sh", "-c", script], **streams) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        guardian, shell, child = map(int, running.stdout.readline().split())
        recorder = int(Path(f"/proc/{guardian}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(recorder if killed == "recorder" else guardian, signal.SIGKILL)
        assert text in running.stderr.read()  # which ends with the last process that has it open
    assert running.returncode == code
    assert not is_alive(shell)
    assert not is_alive(child)


def test_a_full_disk_ends_the_command(desk: Path) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    code = "import time\nfor number in range(100): open(str(number), 'w')\ntime.sleep(100)"
    ended = observe(*PYTHON, "-c", code, before=limit)
    assert ended.code == 125
    assert "recording failed, so the command was ended" in ended.error
    assert len(ended.touches) < 100  # what was written before stays, in whole lines
    assert ended.recording.stat().st_size <= 2000


@pytest.mark.parametrize(
    ("words", "before", "text"),
    [
        (("no-such-program",), "", "`no-such-program` is not a program that can be run"),
        (("./no-program",), "", "the command could not be started: Exec format error"),
        (("true",), refusing("seccomp"), "does not report system calls (seccomp user notification)"),
    ],
    ids=["missing", "no-program", "old-kernel"],
)
def test_a_command_that_cannot_be_observed_is_refused(
    desk: Path, words: tuple[str, ...], before: str, text: str
) -> None:
    Path("no-program").write_bytes(b"\x7fELF")
    Path("no-program").chmod(0o755)
    ended = observe(*words, before=before)
    assert (ended.code, text in ended.error) == (125, True), ended.error


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_can_observe() -> None:
    before = "import ctypes, os; os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # other users cannot enter `tmp_path`
        os.chmod(place, 0o777)
        Path(place, "secret").write_text("of root")
        os.chmod(Path(place, "secret"), 0o600)
        script = "id -u > new; cat secret; rm new"
        # No secrets: the codecs that search for them belong to root.
        ended = observe("sh", "-c", script, before=before, cwd=Path(place), env={"PATH": os.environ["PATH"]})
        assert ended.code == 0, ended.error
        found = {use for use in ended.uses if place in use}
        assert found == {f"fs:write:{place}/new", f"fs:delete:{place}/new"}  # the secret was not read


# The recording -------------------------------------------------------------------------------------------------------


def test_a_recording_is_private_and_its_place_is_said(desk: Path) -> None:
    ended = warm.run(warm.PROGRAM, ["observe", "--", "true"])
    (recording,) = desk.glob("state/licet/*/recordings/*-true.jsonl")
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600
    assert stat.S_IMODE(recording.parent.stat().st_mode) == 0o700
    assert str(recording) in ended.stderr
    assert "licet learn" in ended.stderr
    start = recording_start(recording.read_bytes().splitlines()[0])
    assert (start.source, start.command, start.workdir) == ("program", ("true",), str(desk))


def test_an_existing_file_is_not_overwritten(desk: Path) -> None:
    Path("kept").write_text("kept")
    ended = warm.run(warm.PROGRAM, ["observe", "--output", "kept", "--", "touch", "new"])
    assert (ended.returncode, Path("kept").read_text(), Path("new").exists()) == (125, "kept", False)


def test_secrets_get_into_no_recording(desk: Path) -> None:
    value = "hunter2-and-more"
    words = ("sh", "-c", f'echo x > "file-$SERVICE_TOKEN"; : {value}', "--password", "another-one", "--api-key=third")
    ended = observe(*words, env={**os.environ, "SERVICE_TOKEN": value})
    text = ended.recording.read_text() + ended.error
    assert Path(f"file-{value}").exists()
    assert [secret for secret in (value, "another-one", "third") if secret in text] == []
    assert f"fs:write:{desk}/file-[redacted SERVICE_TOKEN]" in ended.uses


def test_a_secret_in_the_name_of_a_process_gets_into_no_recording(desk: Path) -> None:
    short, long = "hunter2-more", "correct-horse-battery"
    for number, value in enumerate((short, long)):
        Path(value).symlink_to(shutil.which("cat") or "")
        Path(f"file{number}").write_text("text")
    ended = observe("sh", "-c", f"./{short} file0; ./{long} file1", env={**os.environ, "A_TOKEN": short, "B_KEY": long})
    assert {f"fs:read:{desk}/file0", f"fs:read:{desk}/file1"} <= ended.uses
    text = ended.recording.read_text() + ended.error
    assert [part for part in (short, long[:15]) if part in text] == []


def test_a_working_directory_that_no_call_can_name_does_not_end_the_command(desk: Path) -> None:
    deep = "import os\nfor _ in range(20):\n os.mkdir('d' * 250); os.chdir('d' * 250)\n"
    ended = observe(*PYTHON, "-c", f"{deep}open('new', 'w').write('x'); open('new'); print('done')")
    assert (ended.code, ended.out) == (0, "done\n"), ended.error
    assert "a path of more than 4096 bytes" in ended.error


def test_words_that_are_no_text_are_spelled_out(desk: Path) -> None:
    ended = observe("printf", "%s", "\udcff")
    start = recording_start(ended.recording.read_bytes().splitlines()[0])
    assert (ended.code, start.command) == (0, ("printf", "%s", "\\udcff"))


def test_the_report_as_json(desk: Path) -> None:
    Path("data").write_text("text")
    ended = observe("sh", "-c", "cat data; exit 3", options=("--json",))
    report = json.loads(ended.error)
    assert (report["exit_code"], report["read"], report["written"], report["processes"]) == (3, 1, 0, 2)
    assert report["recording"] == str(ended.recording)
    assert len(report["programs"]) == 2


def test_uses_are_on_disk_while_the_command_runs(desk: Path) -> None:
    words = [*warm.command(warm.PROGRAM), "observe", "--output", "recording", "--"]
    with subprocess.Popen([*words, "sh", "-c", "echo x > new; read line"], stdin=-1, stdout=-1, stderr=-1) as running:
        assert running.stdin is not None
        while not Path("recording").exists() or b"/new" not in Path("recording").read_bytes():
            assert running.poll() is None
        running.communicate(b"\n")
    assert running.returncode == 0
