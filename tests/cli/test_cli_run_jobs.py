"""`licet run` at a real terminal: jobs, sizes, keys and pipelines are as without licet, and the terminal comes back."""

import json
import os
import shutil
import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import PYTHON, needs_namespaces, needs_walls
from cli.terminals import Person
from licet.backends.memory import Answer
from loopback import serving

pytestmark = [needs_walls, needs_namespaces]

PROMPT = b"ready> "


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("L", f"{warm.SCRIPT} run --allow-read . --allow-env TERM --")
    monkeypatch.setenv("PS1", PROMPT.decode())
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "desk"


@pytest.fixture
def person(desk: Path) -> Iterator[Person]:
    """In a shell with jobs, without its line editor, so that the terminal is what it is for programs."""
    person = Person("bash", "--norc", "--noprofile", "--noediting", "-i")
    person.until(PROMPT)
    person.before = termios.tcgetattr(person.terminal)
    yield person
    person.close()


def is_as_before(person: Person) -> bool:
    return termios.tcgetattr(person.terminal) == person.before


def test_a_job_is_stopped_and_goes_on_with_all_that_it_started(person: Person) -> None:
    person.types("$L sh -c 'echo begun; sleep 0.5; echo $((40 + 2)); exit 4'", b"begun\r\n")
    person.type(b"\x1a")
    assert b"Stopped" in person.until(PROMPT)
    assert is_as_before(person)
    assert b"42" not in person.types("sleep 1; jobs", PROMPT)
    assert b"42" in person.types("fg", PROMPT)
    assert b"code 4" in person.types("echo code $?", PROMPT)
    assert is_as_before(person)


def test_a_job_that_was_stopped_goes_on_in_the_background(person: Person) -> None:
    person.types("$L sh -c 'echo begun; sleep 0.5; echo ov\"\"er'", b"begun\r\n")
    person.type(b"\x1a")
    person.until(PROMPT)
    person.types("bg", b"over\r")
    assert b"Done" in person.types("wait; jobs; echo", PROMPT)


def test_a_job_in_the_background_stops_when_it_wants_to_read(person: Person) -> None:
    person.type(b"$L sh -c 'echo begun; read line; echo got $line' &\r")
    person.until(b"begun\r")
    person.types("until jobs | grep -q Stopped; do sleep 0.1; done; echo se''en", b"seen\r\n")
    person.types("fg", b"$line'\r\n")
    person.type(b"some text\r")
    assert b"got some text" in person.until(PROMPT)


def test_the_keys_of_a_terminal_are_for_the_program(person: Person) -> None:
    person.types("$L sh -c 'echo begun; exec cat'; echo code $?", b"begun\r\n")
    person.type(b"a line\r\x04")
    assert b"a line\r\na line\r\ncode 0" in person.until(PROMPT)
    person.types("$L sh -c 'trap \"\" QUIT; echo begun; cat; echo on'; echo code $?", b"begun\r\n")
    person.type(b"\x1c\x04")
    person.until(PROMPT)
    person.types(f"$L {PYTHON} -c 'print(\"begun\", flush=True); input()'; echo code $?", b"begun\r\n")
    person.type(b"\x1c")
    assert b"code 131" in person.until(PROMPT)


def test_settings_of_the_program_are_those_of_its_own_terminal(person: Person) -> None:
    ask = "import getpass; print(chr(39).join(getpass.getpass(chr(64)).split()))"
    person.types(f"$L sh -c '/usr/bin/python3 -c \"{ask}\"; stty -echo; stty -a'", b"@")
    person.type(b"a secret\r")
    shown = person.until(PROMPT)
    assert b"a'secret" in shown
    assert b"a secret" not in shown
    assert b"-echo " in shown
    assert is_as_before(person)


def test_the_size_is_that_of_the_terminal_and_follows_it(person: Person) -> None:
    code = "import os, signal; show = lambda *_: os.write(1, b'%d %d\\n' % os.get_terminal_size()); "
    code += "signal.signal(signal.SIGWINCH, show); show(); signal.pause()"
    person.types(f'$L {PYTHON} -c "{code}"', b"77 33\r\n")
    termios.tcsetwinsize(person.terminal, (40, 100))
    person.until(b"100 40\r\n")


@pytest.mark.skipif(shutil.which("less") is None, reason="needs less")
@pytest.mark.parametrize("line", ["seq 1 500 | $L less", "$L seq 1 500 | less", "$L less numbers"])
def test_a_pager_has_its_keys_on_both_sides_of_a_pipe(person: Person, desk: Path, line: str) -> None:
    (desk / "numbers").write_text("".join(f"{number}\n" for number in range(1, 501)))
    person.types(line, b"\r\n30\r\n")
    person.type(b"G")
    person.until(b"\r\n500\r\n")
    person.type(b"q")
    person.until(PROMPT)
    assert is_as_before(person)


def test_a_command_in_a_pipe_leaves_the_terminal_to_the_others(person: Person, desk: Path) -> None:
    """What is typed is read by who asks for it: here a shell on the other side of the pipe."""
    person.type(b"{ echo one; sleep 2; read word </dev/tty; echo word $word; } | $L sh -c 'cat; echo two'\r")
    person.until(b"one\r")
    person.type(b"typed\r")
    assert b"word typed\r" in person.until(b"two\r")
    person.until(PROMPT)
    assert is_as_before(person)
    (desk / "lines").write_text("first\nsecond\n")
    assert b"True first\r\n" in person.types(
        f"$L {PYTHON} -c 'import os; print(os.isatty(1), input())' < lines", PROMPT
    )


def test_what_was_started_in_a_shell_of_its_own_has_jobs(person: Person) -> None:
    person.types("$L bash --norc -i", b"bash-")
    person.types("(echo in; exec sleep 50)", b"in\r\n")
    person.type(b"\x1a")
    person.until(b"Stopped")
    person.type(b"fg\r")
    person.until(b"fg\r\n")
    person.until(b"sleep 50")
    person.type(b"\x03")
    person.until(b"bash-")
    person.type(b"exit 3\r")
    person.until(PROMPT)
    assert b"code 3" in person.types("echo code $?", PROMPT)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_the_terminal_comes_back_however_licet_ends(desk: Path, number: int) -> None:
    person = Person(warm.SCRIPT, "run", "--allow-read", ".", "--", "sh", "-c", "stty raw -echo; echo begun; sleep 500")
    try:
        person.until(b"begun")
        assert not is_as_before(person)
        person.started.send_signal(number)
        person.started.wait()
        while not is_as_before(person):  # the supervisor of the program does it, if licet could not
            time.sleep(0.01)
    finally:
        person.close()


def test_a_program_that_is_killed_leaves_the_terminal_as_it_was(person: Person) -> None:
    person.types("$L sh -c 'stty raw -echo; echo begun; kill -9 $$'; echo code $?", b"begun")
    assert b"code 137" in person.until(PROMPT)
    assert is_as_before(person)


def test_three_control_c_that_are_typed_end_the_run(person: Person) -> None:
    person.types("$L sh -c 'trap \"\" INT; echo begun; while :; do sleep 0.1; done'; echo code $?", b"begun\r\n")
    person.type(b"\x03\x03")
    person.until(b"licet: press Ctrl-C once more to end the command\r\n")
    person.type(b"\x03")
    assert b"code 130" in person.until(PROMPT)
    assert is_as_before(person)


def test_the_terminal_of_a_program_is_not_the_one_of_the_person(person: Person) -> None:
    name = os.ttyname(person.terminal).encode()
    code = "import os; print(*map(os.ttyname, range(3)))"
    assert name + b"\r" not in person.types(f"$L {PYTHON} -c '{code}' 2>&1 | cat", PROMPT)
    assert name not in person.types(f"$L {PYTHON} -c '{code}'", PROMPT)


@pytest.mark.parametrize(("answer", "status"), [(b"y", b"200"), (b"n", b"403")])
def test_a_question_during_the_run_has_the_terminal_to_itself(
    desk: Path, person: Person, answer: bytes, status: bytes
) -> None:
    with serving(lambda _: Answer(200, (), b"gone")) as server:
        capabilities = {
            "max_side_effect_class": "full",
            "fs_reach": {"read": ["${workdir}"]},
            "process": {"allowed_binaries": ["sh", "curl"]},
            "grants": [f"network:http:delete@127.0.0.1:{server.port}"],
            "private": ["127.0.0.0/8"],
            "budget": {"max_calls_per_day": 9},
            "approvals": {"write": "manifest", "delete": "call"},
        }
        (desk / "agent.yaml").write_text(json.dumps({"agent": "runner", "capabilities": capabilities}))
        send = f"curl -s -o /dev/null -w '%{{http_code}}' -X DELETE {server.url}"
        line = (
            f"{warm.SCRIPT} run agent.yaml --ask -- sh -c 'stty -echo; echo begun; {send}; read line; echo got $line'"
        )
        person.types(line, b"agree? ")
        person.type(b"y\r")
        person.until(b"begun\r\n")
        person.until(b"agree? ")
        assert is_as_before(person)
        person.type(answer + b"\r")
        person.until(status)
        person.type(b"more\r")
        person.until(b"got more\r\n")
        person.until(PROMPT)
        assert is_as_before(person)
