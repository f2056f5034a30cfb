"""Tools that start programs as any Python code does, and know of no handle."""

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from licet import tool

NEEDS = ["process:exec:*", "fs:read:*", "env:read:GIVEN", "env:read:KEPT", "secret:read:*"]
WAITS = "trap 'exit 7' TERM; echo ready; sleep 60 & wait"
PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT


def _run(*args: str, **more: Any) -> Any:
    return subprocess.run(args, check=False, **more)


def communicate() -> Any:
    ended = _run("cat", input=b"in", capture_output=True)
    return [ended.returncode, ended.stdout.decode(), ended.stderr.decode()]


def much_both_ways() -> Any:
    data = bytes(range(256)) * 8000
    return _run("cat", input=data, capture_output=True).stdout == data


def output_and_errors() -> Any:
    ended = _run("/bin/sh", "-c", "echo out; echo err >&2; exit 3", capture_output=True, text=True)
    return [ended.returncode, ended.stdout, ended.stderr]


def errors_among_output() -> Any:
    return subprocess.check_output(["/bin/sh", "-c", "echo out; echo err >&2"], stderr=STDOUT, text=True)


def nothing_is_kept() -> Any:
    ended = _run("/bin/sh", "-c", "cat; head -c 300000 /dev/zero; echo err >&2; exit 4", stdout=DEVNULL, stderr=DEVNULL)
    return [ended.returncode, ended.stdout]


def inherited_streams_lead_nowhere() -> Any:
    return [_run("/bin/sh", "-c", "cat; echo out; echo err >&2; exit 5").returncode]


def a_failure_is_raised() -> Any:
    try:
        subprocess.check_call(["/bin/sh", "-c", "exit 6"])
    except subprocess.CalledProcessError as error:
        return error.returncode


def into_a_file() -> Any:
    with tempfile.TemporaryFile() as file:
        code = _run("/bin/sh", "-c", "head -c 200000 /dev/zero; echo end", stdout=file, stderr=file).returncode
        file.seek(0)
        text = file.read()
        return [code, len(text), text[-4:].decode()]


def out_of_a_file() -> Any:
    with tempfile.TemporaryFile() as file:
        file.write(b"in a file")
        file.seek(0)
        return _run("cat", stdin=file, capture_output=True, text=True).stdout


def one_into_another() -> Any:
    with (
        subprocess.Popen(["echo", "through both"], stdout=PIPE) as one,
        subprocess.Popen(["cat"], stdin=one.stdout, stdout=PIPE, text=True) as two,
    ):
        assert one.stdout
        one.stdout.close()
        return [two.communicate()[0], one.wait(), two.returncode]


def line_by_line() -> Any:
    with subprocess.Popen(["cat"], stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as cat:
        assert cat.stdin
        assert cat.stdout
        said = []
        for word in ("one\n", "two\n"):
            cat.stdin.write(word)
            said.append(cat.stdout.readline())
        running = cat.poll()
        cat.stdin.close()
        return [said, running, cat.wait()]


def in_time() -> Any:
    try:
        _run("sleep", "60", timeout=0.2)
    except subprocess.TimeoutExpired:
        return "late"


def ended_by(name: str) -> Callable[[], Any]:
    def end() -> Any:
        with subprocess.Popen(["sleep", "60"]) as sleeping:
            running = sleeping.poll()
            getattr(sleeping, name)()
            return [running, sleeping.wait(), sleeping.pid > 1 << 22]

    return end


def asked_to_end() -> Any:
    with subprocess.Popen(["/bin/sh", "-c", WAITS], stdout=PIPE, text=True, start_new_session=True) as waiting:
        assert waiting.stdout
        ready = waiting.stdout.readline()
        os.killpg(os.getpgid(waiting.pid), signal.SIGTERM)
        return [ready, waiting.wait()]


def a_signal_that_cannot_be_sent() -> Any:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        try:
            sleeping.send_signal(signal.SIGSTOP)
        except OSError as error:
            return error.errno
        finally:
            sleeping.kill()


def a_signal_to_what_has_ended() -> Any:
    with subprocess.Popen(["echo"], stdout=PIPE) as ended:
        assert ended.stdout
        ended.stdout.read()
        os.kill(ended.pid, 0)
        ended.wait()
        try:
            os.kill(ended.pid, 0)
        except (ProcessLookupError, PermissionError):
            return "gone"


def by_a_shell() -> Any:
    return subprocess.check_output("echo $((1 + 2)) | cat", shell=True, text=True)


def by_os_system() -> Any:
    return [os.system("exit 8") >> 8, os.system("kill -9 $$")]


def by_os_popen() -> Any:
    with os.popen("echo popen") as said:
        return said.read()


def by_posix_spawn() -> Any:
    read, write = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_CLOSE, read)]
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "echo spawned; exit 9"], {}, file_actions=actions)
    os.close(write)
    with open(read) as file:
        text = file.read()
    ended, status = os.waitpid(pid, 0)
    other = os.posix_spawnp("echo", ["echo"], os.environ)
    return [text, ended == pid, os.waitstatus_to_exitcode(status), os.waitpid(other, 0)[1]]


def side_by_side() -> Any:
    said: dict[int, str] = {}

    def echo(number: int) -> None:
        said[number] = subprocess.check_output(["echo", str(number)], text=True).strip()

    threads = [threading.Thread(target=echo, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(said.values())


def too_many() -> Any:
    running = []
    try:
        for _ in range(17):
            running += [subprocess.Popen(["sleep", "60"])]
    except OSError as error:
        return [len(running), type(error).__name__]
    finally:
        for one in running:
            one.kill()
            one.wait()


def its_environment() -> Any:
    before = subprocess.check_output(["env"], text=True).splitlines()
    os.environ["KEPT"] = "kept"
    given = {**os.environ, "GIVEN": "given", "LD_PRELOAD": "/evil.so", "OTHER": "other"}
    lines = subprocess.check_output(["env"], env=given, text=True).splitlines()
    own = subprocess.check_output(["env"], text=True).splitlines()
    return [sorted(line for line in some if not line.startswith(("HOME=", "TMPDIR="))) for some in (before, lines, own)]


def a_relative_path() -> Any:
    return subprocess.check_output(["./own"], text=True)


def a_directory(path: str) -> Any:
    return subprocess.check_output(["pwd"], cwd=path, text=True).strip()


def changed_directory(path: str) -> Any:
    os.chdir(path)
    return subprocess.check_output(["pwd"], text=True).strip()


def reads(path: str) -> Any:
    ended = _run("cat", path, capture_output=True, text=True)
    return [ended.returncode, ended.stdout]


def starts(program: str) -> Any:
    return _run(program, "--version", capture_output=True).returncode


def a_script(text: str) -> Any:
    return _run("/bin/sh", "-c", text).returncode


def with_open_files() -> Any:
    return _run("echo", pass_fds=[0]).returncode


def with_a_function() -> Any:
    return _run("echo", preexec_fn=os.getpid).returncode


def with_a_user() -> Any:
    return _run("echo", user=os.getuid()).returncode


def with_a_mask() -> Any:
    return _run("echo", umask=0o022).returncode


def around_the_shim() -> Any:
    return os.fork()


def left_running() -> Any:
    subprocess.Popen(["/bin/sh", "-c", "trap '' TERM HUP INT; echo; sleep 600; sleep 600"], stdout=PIPE).stdout.read(1)  # type: ignore[union-attr]
    return "left"


WAYS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(communicate, much_both_ways, output_and_errors, errors_among_output, nothing_is_kept, a_failure_is_raised),
        *(inherited_streams_lead_nowhere, into_a_file, out_of_a_file, one_into_another, line_by_line, in_time),
        *(asked_to_end, a_signal_that_cannot_be_sent, a_signal_to_what_has_ended, by_a_shell, by_os_system),
        *(by_os_popen, by_posix_spawn, side_by_side, too_many, its_environment, a_relative_path, a_directory),
        *(
            changed_directory,
            reads,
            starts,
            a_script,
            with_open_files,
            with_a_function,
            with_a_user,
            with_a_mask,
            around_the_shim,
        ),
        left_running,
    )
} | {name: ended_by(name) for name in ("kill", "terminate")}


@tool(needs=NEEDS, effect="read_only")
def start(way: str, path: str = "") -> Any:
    """Start something, one way or another."""
    try:
        return WAYS[way](path) if path else WAYS[way]()
    except OSError as error:
        return f"no: {type(error).__name__} {error.errno}: {error.strerror}"


@tool(needs=NEEDS, effect="read_only")
async def start_in_a_loop(way: str) -> Any:
    """Start something in an event loop."""
    try:
        match way:
            case "communicate":
                cat = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
                said, _ = await cat.communicate(b"in")
                return [said.decode(), cat.returncode]
            case "shell":
                shell = await asyncio.create_subprocess_shell("echo out; exit 3", stdout=PIPE)
                said, _ = await shell.communicate()
                return [said.decode(), shell.returncode]
            case "kill":
                sleeping = await asyncio.create_subprocess_exec("sleep", "60")
                sleeping.kill()
                return await sleeping.wait()
            case "together":
                some = [await asyncio.create_subprocess_exec("echo", str(n), stdout=PIPE) for n in range(5)]
                return [said.decode().strip() for said, _ in await asyncio.gather(*(one.communicate() for one in some))]
            case "late":
                sleeping = await asyncio.create_subprocess_exec("sleep", "60")
                try:
                    await asyncio.wait_for(sleeping.wait(), 0.2)
                except TimeoutError:
                    return "late"
            case "refused":
                await asyncio.create_subprocess_exec("ls")
    except OSError as error:
        return f"no: {type(error).__name__} {error.errno}: {error.strerror}"


@tool(needs=["fs:read:*"], effect="read_only")
def start_without(way: str) -> Any:
    """The same, for a tool that declared no programs."""
    try:
        return WAYS[way]()
    except OSError as error:
        return f"no: {type(error).__name__} {error.errno}: {error.strerror}"


@tool(needs=NEEDS, effect="read_only", reuse=True)
def start_again() -> str:
    """Something, in a process that stays."""
    return subprocess.check_output(["echo", "again"], text=True)
