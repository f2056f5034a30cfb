"""Shell lines through the resident: its client passes on descriptors, signals and values, and ends with the line."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from attacks.programs import alive, until
from hooks.installation import PATIENCE, Installation
from hooks.residents import processes, stopped, without_resident

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="residents need SO_PEERCRED and /proc")

NOT_RUN = 125


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path / "it", START_SECONDS=60)
    yield made
    stopped(made)


def line(installed: Installation, text: str, names: str = "", **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line. The small service asks for the variables that the ticket names."""
    return subprocess.run(
        installed.words("line", names, text), input=b"given\n", capture_output=True, timeout=PATIENCE, check=False,
        env=installed.environment(**more), cwd=installed.root,
    )  # fmt: skip


@contextmanager
def begun(installed: Installation, text: str, **given: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The client of a line whose first line is its pid. A test that fails leaves none, also no stopped one."""
    with subprocess.Popen(
        installed.words("line", "", f"echo $$; {text}"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=installed.environment(), cwd=installed.home, **given,
    ) as client:  # fmt: skip
        try:
            yield client
        except BaseException:
            client.kill()
            raise


def first_number(client: subprocess.Popen[bytes]) -> int:
    assert client.stdout is not None
    return int(client.stdout.readline())


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_streams_directory_and_exit_code_are_those_of_the_line(installed: Installation) -> None:
    done = line(installed, "cat; pwd; echo oh >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, f"given\n{installed.root}\n".encode(), b"oh\n")


def test_a_text_arrives_as_it_was(installed: Installation) -> None:
    text = "cat <<'X'\n\"$(id)\" `id` 'é\\' \t\x01\udcff\nX"
    assert line(installed, text).stdout == os.fsencode(text[len("cat <<'X'\n") : -1])


def test_the_values_of_variables_come_if_they_are_asked_for(installed: Installation) -> None:
    done = line(installed, "env | grep -c SECRET; echo $TOKEN-$EMPTY-$MISSING", "TOKEN,EMPTY,MISSING", TOKEN="é=1\n2",
                EMPTY="", SECRET="key")  # fmt: skip
    assert done.stdout.decode() == "0\né=1 2--\n"


def test_a_line_that_a_signal_ended_ends_its_client_in_that_way(installed: Installation) -> None:
    assert line(installed, "kill -KILL $$").returncode == -signal.SIGKILL
    assert line(installed, "kill -TERM $$").returncode == -signal.SIGTERM
    assert line(installed, "kill -INT $$").returncode == -signal.SIGINT


QUICK = """
import _socket, socket, sys
from licet.hooks.resident_line import _Line
from licet.hooks.resident_wire import ENDED, TAKEN, number, packed

class Slow:  # a client that is not scheduled until its line has ended, and the resident has closed
    def __init__(self):
        self.near, self.far = _socket.socketpair()

    def sendmsg(self, *parts):
        sent = self.near.sendmsg(*parts)
        self.far.recv(100)
        self.far.sendall(packed(TAKEN) + packed(ENDED, number(7)))
        self.far.close()
        return sent

    def __getattr__(self, name):
        return getattr(self.near, name)

sys.exit(_Line(Slow()).run(b"request"))
"""


def test_a_line_that_ended_before_its_client_went_on_is_not_run_again() -> None:
    done = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (7, b"")


def test_a_line_without_a_resident_ends_in_that_way_too(installed: Installation) -> None:
    without_resident(installed.home / ".local" / "state")
    assert line(installed, "exit 7").stdout == b"alone\n"
    assert line(installed, "kill -TERM $$").returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGWINCH, signal.SIGQUIT])
def test_a_signal_reaches_the_line(installed: Installation, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    with begun(installed, f"trap 'echo got; exit 9' {name}; echo ready; while :; do read x || exit 1; done") as client:
        first_number(client)
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        client.send_signal(number)
        until(lambda: client.poll() is not None or feed(client))
        assert client.stdout.read() == b"got\n"
    assert client.returncode == 9


def feed(client: subprocess.Popen[bytes]) -> bool:
    """A shell runs its trap when `read` returns."""
    assert client.stdin is not None
    with suppress(BrokenPipeError):
        client.stdin.write(b"\n")
        client.stdin.flush()
    return False


def test_ctrl_z_stops_the_line_and_its_client_and_both_go_on(installed: Installation) -> None:
    # A group of its own: the kernel stops no process of a group without a parent in the same session. And no program: a
    # shell whose child stops before it is one waits for it, and cannot be stopped meanwhile.
    with begun(installed, "read x; echo $x", process_group=0) as client:
        process = first_number(client)
        client.send_signal(signal.SIGTSTP)
        assert os.WIFSTOPPED(os.waitpid(client.pid, os.WUNTRACED)[1])
        until(lambda: state(process) == "T")
        client.send_signal(signal.SIGCONT)
        until(lambda: state(process) == "S")
        out, _ = client.communicate(b"on\n", PATIENCE)
        assert (client.returncode, out) == (0, b"on\n")


def test_a_killed_client_ends_the_line_and_all_that_it_started(installed: Installation) -> None:
    with begun(installed, "sleep 1000 & echo $!; wait") as client:
        shell, child = first_number(client), first_number(client)
        client.kill()
        until(lambda: not alive(shell) and not alive(child))


def test_a_killed_resident_ends_the_client_with_a_reason(installed: Installation) -> None:
    with begun(installed, "cat") as client:
        first_number(client)
        (resident,) = processes(installed)
        os.kill(resident, signal.SIGKILL)
        assert client.wait(PATIENCE) == NOT_RUN
        assert client.stdin is not None
        assert client.stderr is not None
        client.stdin.close()
        assert b"the resident has ended, and the line with it" in client.stderr.read()


def test_a_resident_that_is_told_to_end_ends_its_lines(installed: Installation) -> None:
    with begun(installed, "cat") as client:
        shell = first_number(client)
        (resident,) = processes(installed)
        os.kill(resident, signal.SIGTERM)
        assert client.wait(PATIENCE) == NOT_RUN
        until(lambda: not alive(shell) and not alive(resident))


def test_a_line_that_is_refused_says_why(installed: Installation) -> None:
    done = line(installed, "echo ran", "bad")
    assert (done.returncode, done.stdout) == (NOT_RUN, b"")
    assert b"the line failed: ValueError" in done.stderr
    assert b"secret" not in done.stderr


def test_without_a_resident_a_line_runs_all_the_same(installed: Installation) -> None:
    installed.place.mkdir(parents=True)
    installed.place.chmod(0o777)
    done = line(installed, "cat; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"alone\ngiven\n", b"")


def test_lines_side_by_side(installed: Installation) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(begun(installed, "read x; exit $x")) for _ in range(6)]
        for client in clients:
            first_number(client)
        for number, client in reversed(list(enumerate(clients))):
            _, errors = client.communicate(f"{number}\n".encode(), PATIENCE)
            assert (client.returncode, errors) == (number, b"")


def test_the_resident_keeps_nothing_open_of_a_line_that_has_ended(installed: Installation) -> None:
    assert line(installed, "true").returncode == 0
    (resident,) = processes(installed)
    before = len(os.listdir(f"/proc/{resident}/fd"))
    for _ in range(3):
        assert line(installed, "true").returncode == 0
    until(lambda: len(os.listdir(f"/proc/{resident}/fd")) <= before)


def test_wrong_words_are_refused(installed: Installation) -> None:
    for words in ((), ("line", "ticket"), ("other", "a", "b"), ("hook", "claude")):
        done = subprocess.run(installed.words(*words), capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"expected `hook AGENT EVENT`" in done.stderr
