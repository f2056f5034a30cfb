"""The resident and its clients as real processes: it starts on demand, inherits nothing, answers, and ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from attacks.programs import alive, until
from hooks.installation import PATIENCE, Installation
from hooks.residents import Connection, named, stopped

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="residents need SO_PEERCRED and /proc")

REFUSAL = 2


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path / "it", FILES_SECONDS=0, START_SECONDS=60, HOOK_SECONDS=100)
    yield made
    stopped(made)


def answer(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """What the small service has answered through a resident."""
    assert (done.returncode, done.stderr) == (0, b""), done
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_resident_starts_on_demand_and_answers_the_next_event_too(installed: Installation) -> None:
    first = answer(installed.hook(b'{"a": "\xc3\xa9"}', "claude-code", cwd=installed.root))
    assert first["agent"] == "claude"
    assert first["client"] not in (0, first["pid"])  # the process that was started as the hook
    assert (first["event"], first["payload"], first["directory"]) == ("PreToolUse", {"a": "é"}, str(installed.root))
    assert answer(installed.hook())["pid"] == first["pid"]


def test_clients_that_start_at_once_make_one_resident(installed: Installation) -> None:
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda _: answer(installed.hook())["pid"], range(8)))
    assert len(set(done)) == 1
    assert len(named(installed)) == 1


def test_two_residents_at_once_are_one(installed: Installation) -> None:
    first = answer(installed.hook())["pid"]
    (name,) = named(installed)
    command = [str(installed.python), "-I", "-m", "licet.hooks.resident", name]
    subprocess.run(command, env=installed.environment(), timeout=PATIENCE, check=True)  # it ends at once
    assert answer(installed.hook())["pid"] == first


def test_output_errors_and_exit_code_are_those_of_the_answer(installed: Installation) -> None:
    done = installed.hook(b'{"do": "refuse"}')
    assert (done.returncode, done.stdout, done.stderr) == (REFUSAL, b"", b"no\n")
    done = installed.hook(b'{"do": "long", "size": 3000000}')
    assert (done.returncode, done.stdout) == (0, b"x" * 3_000_000)


def test_a_large_event_arrives_and_a_larger_one_is_refused(installed: Installation) -> None:
    limit = 8 << 20
    payload = b'{"a": "' + b"y" * (limit - 9) + b'"}'
    assert len(payload) == limit
    assert len(answer(installed.hook(payload))["payload"]["a"]) == limit - 9
    done = installed.hook(payload + b" ")
    assert (done.returncode, done.stdout) == (REFUSAL, b"")
    assert b"more than 8388608 bytes" in done.stderr
    done = installed.hook(payload + b" ", event="PostToolUse")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("payload", [b'{"do": "crash"}', b"no json", b""])
def test_a_failure_before_a_call_is_a_refusal_and_any_other_is_silent(installed: Installation, payload: bytes) -> None:
    done = installed.hook(payload)
    assert (done.returncode, done.stdout) == (REFUSAL, b"")
    assert b"the hook failed" in done.stderr
    assert b"secret" not in done.stderr
    done = installed.hook(payload, event="PostToolUse")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = installed.hook(payload, event="AnEventOfTomorrow")
    assert done.returncode == REFUSAL


def test_an_answer_that_cannot_be_printed_is_a_refusal(installed: Installation) -> None:
    done = installed.hook(b'{"do": "bad code"}')
    assert (done.returncode, done.stdout) == (REFUSAL, b"")
    assert b"the hook failed: ValueError" in done.stderr


def test_a_resident_that_dies_meanwhile_refuses_nothing_and_allows_nothing(installed: Installation) -> None:
    first = answer(installed.hook())["pid"]
    done = installed.hook(b'{"do": "die"}')  # the command that works alone dies of it too
    assert done.returncode == REFUSAL
    assert b"`licet hook` ended with 9" in done.stderr
    assert answer(installed.hook())["pid"] != first


def test_a_killed_resident_leaves_a_socket_that_the_next_one_replaces(installed: Installation) -> None:
    first = answer(installed.hook())["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: not alive(first))
    assert list(installed.place.glob("*.sock"))
    assert answer(installed.hook())["pid"] != first


def test_the_time_of_a_hook_is_limited(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60)
    try:
        answer(installed.hook())
        installed.limit(HOOK_SECONDS=0.5)
        done = installed.hook(b'{"do": "wait"}')
        assert (done.returncode, done.stdout) == (REFUSAL, b"")
        assert b"no answer in time" in done.stderr
        done = installed.hook(b'{"do": "wait"}', event="PostToolUse")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    finally:
        stopped(installed)


def test_the_agent_need_not_end_its_event_for_the_time_to_be_up(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", HOOK_SECONDS=0.2)
    with subprocess.Popen(
        installed.words("hook", "codex", "PreToolUse"), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        env=installed.environment(),
    ) as client:  # fmt: skip
        assert client.wait(PATIENCE) == REFUSAL
        assert client.stderr is not None
        assert b"no answer in time" in client.stderr.read()


def test_a_resident_inherits_nothing_of_the_client_that_started_it(installed: Installation) -> None:
    read, write = os.pipe()
    try:
        done = subprocess.run(
            installed.words("hook", "claude", "PreToolUse"), input=b"{}", capture_output=True, check=True,
            env=installed.environment(TOKEN="key", LD_LIBRARY_PATH="/nowhere", PYTHONPATH="/nowhere"),
            cwd=installed.home, pass_fds=[write], umask=0o000, timeout=PATIENCE,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGALRM]),
        )  # fmt: skip
    finally:
        os.close(write)
    resident = Path("/proc", str(answer(done)["pid"]))
    assert os.read(read, 1) == b""  # nobody has the other end open
    os.close(read)
    environ = dict(pair.split(b"=", 1) for pair in (resident / "environ").read_bytes().split(b"\0") if pair)
    assert environ.keys() == {b"HOME", b"PATH", b"LANG"}
    assert environ[b"HOME"] == os.fsencode(installed.home)
    assert environ[b"PATH"].startswith(b"/usr/local/sbin:")
    assert (resident / "cwd").readlink() == Path("/")
    opened = {str((resident / "fd" / name).readlink()) for name in ("0", "1", "2")}
    assert opened == {"/dev/null"}
    others = [str(file.readlink()) for file in (resident / "fd").iterdir() if int(file.name) > 2]
    own = ("socket:", "anon_inode:", "pipe:", str(installed.place))
    assert [file for file in others if not file.startswith(own)] == []
    about = dict(line.split(":\t", 1) for line in (resident / "status").read_text().splitlines() if ":\t" in line)
    assert about["Umask"] == "0077"
    assert int(about["SigBlk"], 16) == 0
    parent, _group, session = (resident / "stat").read_text().rpartition(")")[2].split()[1:4]
    assert int(session) != os.getsid(0)
    assert int(parent) != os.getpid()


@pytest.mark.parametrize("variable", ["XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG_DIR"])
def test_directories_of_its_own_make_another_resident(installed: Installation, variable: str) -> None:
    first = answer(installed.hook())["pid"]
    other = installed.environment(**{variable: str(installed.root / "data")})
    second = answer(installed.hook(environment=other))["pid"]
    assert second != first
    assert f"{variable}=".encode() in Path(f"/proc/{second}/environ").read_bytes()


def test_a_resident_ends_when_nobody_needs_it(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60, HOOK_SECONDS=100, IDLE_SECONDS=0.3, LOOK_SECONDS=0.05)
    first = answer(installed.hook())["pid"]
    until(lambda: not alive(first))
    assert not list(installed.place.glob("*.sock"))
    (log,) = installed.place.glob("*.log")
    assert "nobody needs it" in log.read_text()
    assert answer(installed.hook())["pid"] != first
    stopped(installed)


@contextmanager
def running_line(installed: Installation) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
    """The client of a line that has begun and prints what it reads, with both of its pipes."""
    with subprocess.Popen(
        installed.words("line", "", "echo begun; cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=installed.environment(), cwd=installed.home,
    ) as client:  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == b"begun\n"
        yield client, client.stdin, client.stdout


def test_a_line_or_a_session_keeps_a_resident(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60, HOOK_SECONDS=100, IDLE_SECONDS=0, LOOK_SECONDS=0.01)
    (installed.home / "needed").touch()
    first = answer(installed.hook())["pid"]
    assert answer(installed.hook())["pid"] == first
    with running_line(installed) as (client, stdin, _):
        (installed.home / "needed").unlink()
        assert answer(installed.hook())["pid"] == first
        stdin.close()
        assert client.wait(PATIENCE) == 0
    until(lambda: not alive(first))


@pytest.mark.parametrize("file", ["__init__.py", "hooks/agent_event.py", "hooks/new.py"])
def test_a_change_of_licet_makes_a_new_resident_and_lines_go_on(installed: Installation, file: str) -> None:
    with running_line(installed) as (client, stdin, stdout):
        first = answer(installed.hook())["pid"]
        with (installed.licet / file).open("a") as changed:
            changed.write("\n# changed\n")
        second = answer(installed.hook())["pid"]
        assert second != first
        assert alive(first)
        stdin.write(b"still here\n")
        stdin.close()
        assert stdout.read() == b"still here\n"
        assert client.wait(PATIENCE) == 0
    until(lambda: not alive(first))
    assert answer(installed.hook())["pid"] == second


def test_a_socket_that_was_removed_ends_its_resident(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60, HOOK_SECONDS=100, LOOK_SECONDS=0.05)
    first = answer(installed.hook())["pid"]
    for file in installed.place.glob("*.sock"):
        file.unlink()
    until(lambda: not alive(first))
    assert answer(installed.hook())["pid"] != first
    stopped(installed)


def test_a_told_resident_ends_and_the_next_event_has_another(installed: Installation) -> None:
    first = answer(installed.hook())["pid"]
    (state,) = json.loads(installed.run(STATUS))
    assert (state["pid"], state["hooks"], state["refused"]) == (str(first), "1", "0")
    os.kill(first, signal.SIGTERM)
    until(lambda: not alive(first))
    assert json.loads(installed.run(STATUS)) == []
    assert answer(installed.hook())["pid"] != first


STATUS = "import json; from licet.hooks.resident_control import resident_status; print(json.dumps(resident_status()))"


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_an_unsafe_directory_has_no_resident(installed: Installation, how: str) -> None:
    installed.place.parent.mkdir(parents=True)
    if how == "open to others":
        installed.place.mkdir()
        installed.place.chmod(0o750)
    elif how == "a link":
        (installed.root / "elsewhere").mkdir(0o700)
        installed.place.symlink_to(installed.root / "elsewhere")
    else:
        installed.place.write_text("")
    done = installed.hook(b'{"a": 1}')
    assert done.returncode == 0
    assert done.stdout.endswith(b" alone")
    assert json.loads(done.stdout.removesuffix(b" alone"))["payload"] == {"a": 1}
    assert not installed.place.is_dir() or not list(installed.place.iterdir())


def test_without_a_home_there_is_no_resident(installed: Installation) -> None:
    done = installed.hook(environment={"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stdout[-6:]) == (0, b" alone")


def test_a_resident_that_cannot_start_is_done_without(installed: Installation) -> None:
    (installed.hooks / "answering.py").rename(installed.hooks / "small.py")
    (installed.licet / "__main__.py").write_text(
        "import sys; from licet.hooks.small import _alone; _alone(sys.argv[1:])"
    )
    done = installed.hook(b'{"do": "refuse"}')
    assert (done.returncode, done.stderr) == (REFUSAL, b"no\n")
    assert installed.hook().stdout.endswith(b" alone")


def test_a_broken_installation_refuses(installed: Installation) -> None:
    (installed.hooks / "resident_wire.py").write_text("broken =")
    done = installed.hook()
    assert (done.returncode, done.stdout) == (REFUSAL, b"")
    assert b"SyntaxError" in done.stderr
    done = installed.hook(event="SessionStart")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    installed.limit(HOOK_SECONDS=100)
    (installed.hooks / "resident_client.py").unlink()
    assert installed.hook().returncode == REFUSAL  # as the interpreter does it


def test_a_path_of_any_length_will_do(installed: Installation) -> None:
    state = installed.root / ("long" * 30) / ("longer" * 20)
    environment = installed.environment(XDG_STATE_HOME=str(state))
    first = answer(installed.hook(environment=environment))["pid"]
    assert answer(installed.hook(environment=environment))["pid"] == first
    os.kill(first, signal.SIGTERM)
    until(lambda: not alive(first))


LIGHT = {
    "posix", "_socket", "_signal", "_imp", "errno", "importlib", "warnings", "licet", "licet.hooks",
    *(f"licet.hooks.{name}" for name in ("limits", "resident_hook", "resident_place", "resident_wire")),
}  # fmt: skip


def test_a_client_loads_hardly_more_than_an_interpreter_does(installed: Installation) -> None:
    answer(installed.hook())
    command = installed.words("hook", "claude", "PreToolUse")
    done = subprocess.run(
        [*command[:1], "-X", "importtime", *command[1:]], input=b"{}", capture_output=True, check=True,
        env=installed.environment(), timeout=PATIENCE,
    )  # fmt: skip
    bare = subprocess.run([*command[:3], "-X", "importtime", "-c", "pass"], capture_output=True, check=True)
    assert imported(done.stderr) - imported(bare.stderr) <= LIGHT
    assert "licet.hooks.resident_hook" in imported(done.stderr)


def imported(text: bytes) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in text.decode().splitlines() if line.startswith("import time:")}


def test_no_hook_is_late_on_a_busy_machine(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it")  # with the limits as they are
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        assert [installed.hook().returncode for _ in range(30)] == [0] * 30
    finally:
        for process in busy:
            process.kill()
            process.wait()
        stopped(installed)


def test_a_socket_is_not_inherited_by_what_a_service_starts(installed: Installation) -> None:
    answer(installed.hook())
    done = subprocess.run(
        installed.words("line", "", "ls -l /proc/self/fd"), capture_output=True, env=installed.environment(),
        cwd=installed.home, timeout=PATIENCE, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert b"socket:" not in done.stdout


def test_one_client_more_than_there_is_room_for_works_alone(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60, HOOK_SECONDS=100, MOST_CLIENTS=2, REQUEST_SECONDS=500)
    first = answer(installed.hook())["pid"]
    held = [Connection(installed) for _ in range(2)]
    assert installed.hook().stdout.endswith(b" alone")
    for one in held:
        one.end.close()
    until(lambda: installed.hook().stdout[-6:] != b" alone")
    assert answer(installed.hook())["pid"] == first
    stopped(installed)
