"""The streams of `licet run` and of its command: all bytes are passed on, in order, and no more are read."""

import fcntl
import json
import os
import select
import shlex
import signal
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest

import warm
from attacks.walled_programs import PYTHON, needs_namespaces, needs_walls
from cli.messages import message
from licet.cli.run import Interrupts

pytestmark = needs_walls

MANIFEST: dict[str, Any] = {
    "agent": "runner",
    "capabilities": {
        "max_side_effect_class": "read_only",
        "fs_reach": {"read": ["${workdir}"]},
        "process": {"allowed_binaries": ["sh", "cat", "true", "head", "yes", "stty", PYTHON]},
        "sandbox": {"allow_degraded": True},
        "limits": {"wall_seconds": 300},
    },
}
# The first terminal that the leader of a session opens becomes its controlling terminal.
AT_TERMINAL = f"import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); {warm.PROGRAM}"


def licet(*words: str, program: str = warm.PROGRAM) -> list[str]:
    return [*warm.command(program), "run", "agent.yaml", *words]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.yaml").write_text(json.dumps(MANIFEST))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: str, words: tuple[str, ...] = (), **given: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(licet(*words, "--", *command), timeout=600, check=False, **given)


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """A line of a shell in which `licet run --` is `walled`."""
    script = 'walled() { "$@"; }\n' + line.replace("walled ", f"walled {shlex.join(licet())} -- ")
    return subprocess.run(["bash", "-c", script], capture_output=True, timeout=600, check=False)


def test_every_byte_arrives_in_both_directions(desk: Path) -> None:
    data = os.urandom(3 << 20)
    ended = run("cat", input=data, capture_output=True)
    assert (ended.returncode, ended.stderr, ended.stdout == data) == (0, b"", True)


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_output_goes_to_a_file_where_its_owner_was(desk: Path, mode: str) -> None:
    with open("log", mode, buffering=0) as log:
        log.write(b"before\n")
        run("sh", "-c", "echo one; echo two >&2", stdout=log, stderr=log)
        log.write(b"after\n")
    assert Path("log").read_bytes() == b"before\none\ntwo\nafter\n"


def test_output_and_errors_to_one_place_keep_their_order(desk: Path) -> None:
    line = "i=0; while [ $i -lt 300 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done"
    ended = run("sh", "-c", line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ended.stdout.decode().split() == [f"{kind}{i}" for i in range(300) for kind in "oe"]


def test_unread_input_stays_for_the_next_command(desk: Path) -> None:
    Path("lines").write_text("".join(f"{n}\n" for n in range(50_000)))
    with open("lines", "rb", buffering=0) as lines:
        first = run(PYTHON, "-c", "import os; print(os.read(0, 6))", stdin=lines, stdout=subprocess.PIPE)
        second = run("true", stdin=lines)
        assert (first.stdout, second.returncode, lines.read(4)) == (b"b'0\\n1\\n2\\n'\n", 0, b"3\n4\n")


def test_a_loop_over_the_lines_of_a_file_has_all_of_them(desk: Path) -> None:
    Path("names").write_text("a\nb\nc\n")
    said = shell('while read name; do walled sh -c "echo $name"; done < names')
    assert (said.stdout, said.stderr) == (b"a\nb\nc\n", b"")


def test_input_that_never_ends_does_not_hold_up_the_end(desk: Path) -> None:
    reading, writing = os.pipe()
    try:
        assert run("sh", "-c", "exit 3", stdin=reading).returncode == 3
        with open("/dev/zero", "rb") as zero:
            assert run("head", "-c", "3", stdin=zero, stdout=subprocess.PIPE).stdout == bytes(3)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_closed_output_ends_the_command(desk: Path) -> None:
    said = shell("walled yes | head -n 2; echo ${PIPESTATUS[0]}")
    assert said.stdout == b"y\ny\n141\n"


def test_output_is_taken_when_its_reader_takes_it(desk: Path) -> None:
    """Nothing is buffered in memory, and nothing is lost if the command ends before its reader begins."""
    reading, writing = os.pipe()
    size = fcntl.fcntl(writing, 1032)  # F_GETPIPE_SZ
    code = f"import os; os.write(1, bytes({size + 50_000}))"
    with subprocess.Popen(licet("--", PYTHON, "-c", code), stdout=writing) as walled:
        os.close(writing)
        found = 0
        while part := os.read(reading, 1 << 16):
            found += len(part)
    os.close(reading)
    assert (found, walled.returncode) == (size + 50_000, 0)


@pytest.mark.parametrize(("inner", "code"), [("echo hi", 1), ("echo hi; exit 7", 7)])
@pytest.mark.sampled(1)
def test_output_that_cannot_be_written_is_reported(desk: Path, inner: str, code: int) -> None:
    with open("/dev/full", "wb") as full:
        ended = run("sh", "-c", inner, stdout=full, stderr=subprocess.PIPE)
        assert ended.returncode in (code, 128 + 13)  # it may notice while it still runs
        assert ended.stderr == b"licet: standard output could not be written: No space left on device\n"
        ended = run("sh", "-c", "echo hi", words=("--json",), stdout=full, stderr=subprocess.PIPE)
    assert json.loads(ended.stderr)["lost"] == message("run_streams.standard_output_could_not_be")


class Terminal:
    """A terminal with `licet run` on it, as the first of a session."""

    def __init__(self, *command: str) -> None:
        self._near, self.far = os.openpty()
        termios.tcsetwinsize(self.far, (33, 77))
        self.before = termios.tcgetattr(self.far)
        self._walled = subprocess.Popen(
            licet("--", *command, program=AT_TERMINAL), stdin=self.far, stdout=self.far, stderr=self.far
        )
        self.said = b""

    def until(self, text: bytes) -> None:
        """Wait for a text."""
        while text not in self.said:
            assert select.select([self._near], [], [], 300)[0], self.said
            self.said += os.read(self._near, 1 << 16)

    def type(self, text: bytes) -> None:
        """Type something."""
        os.write(self._near, text)

    def code(self) -> int:
        """How it ended, with all that it said before."""
        code = self._walled.wait(300)
        while select.select([self._near], [], [], 0)[0]:
            self.said += os.read(self._near, 1 << 16)
        assert termios.tcgetattr(self.far) == self.before
        os.close(self._near)
        os.close(self.far)
        return code


def test_being_ended_leaves_the_terminal_as_it_was(desk: Path) -> None:
    near, far = os.openpty()
    before = termios.tcgetattr(far)
    line = "stty raw -echo; echo ready; sleep 200"
    with subprocess.Popen(licet("--", "sh", "-c", line), stdin=far, stdout=far, stderr=far) as walled:
        assert select.select([near], [], [], 300)[0]
        assert b"ready" in os.read(near, 1 << 16)
        walled.terminate()
    assert (walled.returncode, termios.tcgetattr(far)) == (128 + 15, before)
    os.close(near)
    os.close(far)


@needs_namespaces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_ended_run_leaves_no_placeholder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    project.mkdir()
    words = ["run", "--allow-read", ".", "--allow-write", ".", "--", "sh", "-c", "echo ready; sleep 200"]
    before = sorted(project.iterdir())
    with subprocess.Popen([*warm.command(warm.PROGRAM), *words], cwd=project, stdin=-1, stdout=-1, stderr=-1) as walled:
        assert walled.stdout is not None
        assert walled.stdout.readline() == b"ready\n"
        assert sorted(project.iterdir()) != before
        walled.send_signal(number)
    assert sorted(project.iterdir()) == before
    assert walled.returncode == 128 + number


@needs_namespaces
def test_closing_the_terminal_ends_the_run_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    project.mkdir()
    near, far = os.openpty()
    words = ["run", "--allow-read", ".", "--allow-write", ".", "--", "sh", "-c", "echo ready; sleep 200"]
    command = [*warm.command(AT_TERMINAL), *words]
    with subprocess.Popen(command, cwd=project, stdin=far, stdout=far, stderr=far) as walled:
        os.close(far)
        said = b""
        while b"ready" not in said:
            assert select.select([near], [], [], 300)[0], said
            said += os.read(near, 1 << 16)
        os.close(near)
    assert (sorted(project.iterdir()), walled.returncode) == ([], 128 + signal.SIGHUP)


def test_a_command_on_a_terminal_has_a_terminal(desk: Path) -> None:
    code = "import os; print(*map(os.isatty, range(3)), *os.get_terminal_size())"
    terminal = Terminal(PYTHON, "-c", code)
    assert (terminal.code(), terminal.said) == (0, b"True True True 77 33\r\n")


def test_a_line_that_is_typed_arrives(desk: Path) -> None:
    terminal = Terminal("sh", "-c", "echo ready; read line; echo got $line")
    terminal.until(b"ready")
    terminal.type(b"a line\n")
    assert (terminal.code(), terminal.said.split()[-3:]) == (0, [b"got", b"a", b"line"])


def test_control_c_ends_it(desk: Path) -> None:
    # No shell: the child that it forks for `sleep` drops a signal that comes before `sleep` has started.
    terminal = Terminal(PYTHON, "-c", "import time; print('ready', flush=True); time.sleep(200)")
    terminal.until(b"ready")
    terminal.type(b"\x03")
    assert terminal.code() == 130


def test_control_c_belongs_to_the_command(desk: Path) -> None:
    # Short sleeps: a child that was forked, and has not started its program yet, may miss the signal.
    terminal = Terminal("sh", "-c", "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.2; done")
    terminal.until(b"ready")
    terminal.type(b"\x03")
    assert (terminal.code(), terminal.said.replace(b"^C", b"").split()[-1]) == (4, b"caught")


class Taking:
    """Streams of a program that takes every Ctrl-C, or none."""

    def __init__(self, runs: bool) -> None:
        self._runs = runs

    def interrupt(self) -> bool:
        return self._runs

    def show(self, text: bytes) -> None:
        """Nobody reads it."""


@pytest.mark.parametrize(("runs", "taken"), [(True, 2), (False, 0)])
def test_three_control_c_in_a_row_end_the_run(runs: bool, taken: int) -> None:
    pressed = Interrupts(Taking(runs))  # type: ignore[arg-type]
    for _ in range(taken):
        pressed(2, None)
    with pytest.raises(KeyboardInterrupt):
        pressed(2, None)


def test_settings_that_a_command_leaves_behind_are_undone(desk: Path) -> None:
    terminal = Terminal("sh", "-c", "stty raw -echo; echo ready; exit 5")
    assert (terminal.code(), terminal.said) == (5, b"ready\n")
