"""Lines of coding agents behind real walls give what they give bare, and the session keeps what the agent's shell does.

What is compared: standard output and errors, the exit code, and the directory where the next line starts.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import needs_programs
from hooks.lines import Desk, Ended, policy
from licet.hooks.shell_line import LineSignals, LineStreams
from licet.hooks.tickets import AgentShell
from licet.sandbox import scratch
from licet.sandbox.programs.early_supervisor import supervisor_ahead

pytestmark = needs_programs

SHELLS = [found for name in ("bash", "dash", "zsh") if (found := shutil.which(name, path="/bin:/usr/bin"))]

# Texts that each POSIX shell runs alike. Each starts in a project with the files of `project`.
LINES = [
    "echo hi",
    "true",
    "false",
    "exit 3",
    "(exit 7)",
    "echo one; echo two >&2; echo three",
    "printf '%s\\n' \"a  b\" 'c $HOME' d\\ e",
    "echo 'single '\\''quoted'\\'' text'",
    'echo "double \\"quoted\\" $((1 + 2)) `echo old` $(echo new)"',
    "cat <<EOF\nheredoc $((2 * 3))\n  'kept' \"as it is\"\nEOF",
    "cat <<'EOF'\nnothing $HOME `expands` here \\\nEOF",
    "cat <<-EOF\n\ttabs go\n\tEOF\necho after",
    "echo Grüße, 世界 🎉",
    "printf 'a\\tb\\\\n\\n'",
    "echo a \\\n  b \\\n  c",
    "\n\necho leading lines\n\n",
    "# only a comment",
    "echo x # with a comment",
    "",
    "   ",
    "cat",
    "cat | wc -c",
    "read line; echo got $line; cat",
    "wc -l < numbers | tr -d ' '",
    "sort -rn numbers | head -n 3",
    "cat numbers | while read n; do [ $n -gt 3 ] && echo $n; done; echo end",
    "for i in 1 2 3; do echo $i; done",
    "f() { echo in $1; return 4; }; f x; echo $?",
    "x=5; x=$((x + 1)); echo $x",
    "set -e; echo before; false; echo never",
    "set -u; echo ${unset_name-default}",
    "trap 'echo leaving' EXIT; echo here; exit 2",
    "trap 'echo leaving' EXIT; echo here",
    "exec echo replaced",
    "exec 2>&1; echo to both >&2",
    "kill -TERM $$",
    "kill -KILL $$",
    "{ sh -c 'kill -SEGV $$'; echo $?; } 2>/dev/null",
    "no-such-command-here",
    "./script with 'two words'",
    "./not-executable",
    "cat missing-file",
    "mkdir -p a/b && cd a/b && pwd",
    "cd sub",
    "cd sub && exit 0",
    "cd sub; false",
    "cd 'a dir with '\\''quotes'\\'' and $(echo text)' && pwd",
    "cd link && pwd -P",
    "(cd sub; pwd); pwd",
    "echo made > new; cat new; rm new; ls",
    "mv numbers moved && wc -l < moved | tr -d ' '; ls",
    "ls -a; stat -c %a script",
    "umask 027; touch u; stat -c %a u",
    "sleep 0.05 & wait; echo waited",
    "{ echo a; echo b; } | cat -n",
    "echo $GIVEN; echo ${SECRET-hidden}",
    "whoami; id -un; id -u",
    "make -s",
    "test -t 0; echo $?; test -t 1; echo $?",
    "dd if=/dev/zero bs=1024 count=64 2>/dev/null | wc -c",
    "yes | head -n 2",
    "printf 'no newline at the end'",
    "diff numbers script > /dev/null; echo $?",
    "grep -c 3 numbers; git --version > /dev/null && echo git",
    "-leading-dash",
]


def project(place: Path) -> None:
    """Make the project anew."""
    for one in place.iterdir():
        shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
    (place / ".licet").mkdir()
    for name in ("licet.yaml", "licet.lock", ".env"):  # while a line runs, something empty stands for a missing one
        (place / name).touch()
    (place / "sub").mkdir()
    (place / "a dir with 'quotes' and $(echo text)").mkdir()
    (place / "link").symlink_to("sub")
    (place / "numbers").write_text("1\n2\n3\n4\n5\n")
    (place / "script").write_text('#!/bin/sh\nprintf "<%s>" "$@"\nexit 9\n')
    (place / "script").chmod(0o755)
    (place / "not-executable").write_text("echo no\n")
    (place / "Makefile").write_text("all:\n\t@echo made by make\n")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Desk(tmp_path)
    yield made
    assert scratch.end_session(f"claude/{made.session}")


def bare(desk: Desk, text: str, stdin: bytes) -> Ended:
    """What an agent gets of a line without licet: its shell reads the line by `eval`, and says where that ends."""
    shell = desk.shell
    file = desk.project.parent / "where"
    file.unlink(missing_ok=True)
    words = ["-c", "--", text]
    if shell.keeps != "nothing":
        quoted = "'" + (" " * text.startswith("-") + text).replace("'", "'\\''") + "'"
        words = ["-c", f"eval {quoted}\n{{ ended=$?; pwd -P >|'{file}'; (exit $ended); }} 2>/dev/null"]
    variables = {name: value for name, value in desk.variables.items() if name != "SECRET"}
    ended = subprocess.run(
        [shell.path, *words], input=stdin, capture_output=True, cwd=desk.project, env=variables, check=False
    )
    where = file.read_text().removesuffix("\n") if file.exists() else str(desk.project)
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    return Ended(ended.stdout, ended.stderr, code, where)


def compare(desk: Desk, text: str) -> None:
    given = b"first line\nsecond line\n"
    project(desk.project)
    expected = bare(desk, text, given)
    project(desk.project)
    assert desk.run(text, stdin=given) == expected


@pytest.mark.parametrize("text", LINES)
@pytest.mark.sampled(12)
def test_a_line_gives_what_it_gives_bare(desk: Desk, text: str) -> None:
    desk.shell = AgentShell("/bin/bash", "directory")
    compare(desk, text)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", LINES)
@pytest.mark.sampled(8)
def test_a_line_of_an_agent_that_keeps_nothing(desk: Desk, text: str, shell: str) -> None:
    desk.shell = AgentShell(shell)
    compare(desk, text)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", LINES)
@pytest.mark.sampled(8)
def test_a_line_of_an_agent_that_keeps_a_whole_shell(desk: Desk, text: str, shell: str) -> None:
    desk.shell = AgentShell(shell, "shell")
    compare(desk, text)


@pytest.mark.who
def test_lines_of_any_user(desk: Desk) -> None:
    for shell in SHELLS:
        for text in ("cd sub; pwd; whoami; exit 3", "cat | ./script a; cd sub", "set -e; false", LINES[46]):
            desk.shell = AgentShell(shell, "directory")
            compare(desk, text)
    said = desk.run("echo x > $TMPDIR/kept; cd sub")
    assert said.directory == str(desk.project / "sub")
    assert desk.run("cat $TMPDIR/kept").stdout == b"x\n"


# What lasts ----------------------------------------------------------------------------------------------------------


def kept(desk: Desk, *lines: str) -> list[Ended]:
    """Lines of one session, each where the last one ended."""
    here, found = desk.project, []
    for line in lines:
        found.append(desk.run(line, here))
        here = Path(found[-1].directory)
    return found


def test_the_directory_lasts_where_the_agent_keeps_it(desk: Desk) -> None:
    project(desk.project)
    desk.shell = AgentShell("/bin/bash", "directory")
    said = kept(desk, "cd sub", "pwd; cd ..; exit 4", "pwd; cd link; false", "pwd")
    assert [one.stdout.decode().strip() for one in said] == [
        *("", f"{desk.project}/sub", f"{desk.project}/sub", f"{desk.project}/sub")
    ]
    desk.shell = AgentShell("/bin/bash")
    assert kept(desk, "cd sub", "pwd")[1].stdout.decode() == f"{desk.project}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_whole_shell_lasts(desk: Desk, shell: str) -> None:
    project(desk.project)
    desk.shell = AgentShell(shell, "shell")
    said = kept(
        desk,
        "export A='a \"quoted\" $(text)\nof two lines'; cd sub; set -u",
        'echo "$A"; pwd; echo ${B-unset}',
        "export A=other; exit 3",  # its shell is gone, and with it what it has changed
        'echo "$A"; echo $NONE; echo never',
        'echo "$A"; ((',
        'echo "$A"; kill -KILL $$',
        'export A=changed; echo "$A"',
        'exec sh -c "echo \\"$A\\""',
        "export A=lost; set -e; false; echo never",
        'echo "$A"',
    )
    first = 'a "quoted" $(text)\nof two lines\n'
    assert said[1].stdout.decode() == f"{first}{desk.project}/sub\nunset\n"
    assert said[2].code == 3
    assert (said[3].stdout.decode().startswith(first), said[3].code != 0) == (True, True)
    assert (said[5].stdout.decode(), said[5].code) == (first, 137)
    assert [said[number].stdout for number in (6, 7, 9)] == [b"changed\n"] * 3
    assert said[8].code == 1


def test_functions_variables_and_options_of_bash_last(desk: Desk) -> None:
    desk.shell = AgentShell("/bin/bash", "shell")
    said = kept(
        desk,
        "f() { echo \"in f: $1\"; }; export -f f; plain='not exported'; list=(a 'b c')",
        "shopt -s nullglob; alias x='echo'; shopt -s expand_aliases; set -o pipefail",
        "f 1; bash -c 'f 2'; echo \"$plain ${list[1]}\"; echo none*; x alias; false | true; echo $?",
    )
    assert said[2].stdout == b"in f: 1\nin f: 2\nnot exported b c\n\nalias\n1\n"
    assert {one.stderr for one in said} == {b""}


def test_scratch_lasts_as_long_as_the_session(desk: Desk) -> None:
    desk.run("echo text > $TMPDIR/file; mkdir -p ~/.cache; echo text > /tmp/other; echo > /dev/shm/gone")
    said = desk.run("cat $TMPDIR/file /tmp/other; ls -A $HOME; ls -A /dev/shm")
    assert said.stdout.split()[:3] == [b"text", b"text", b".cache"]
    other = Desk(desk.project.parent)
    other.session = f"{desk.session}-other"
    assert b"file" not in other.run("ls -A $TMPDIR").stdout
    assert scratch.end_session(f"claude/{other.session}")
    assert scratch.end_session(f"claude/{desk.session}")
    assert desk.run("ls $TMPDIR/file").code == 2


def test_stale_scratch_is_removed_and_scratch_in_use_is_not() -> None:
    names = [f"{name}-{os.getpid()}" for name in ("used", "unused")]
    with ExitStack() as stack:
        used = stack.enter_context(scratch.session_scratch(names[0], 1 << 20))
        with scratch.session_scratch(names[1], 1 << 20) as unused:
            pass
        assert not scratch.end_session(names[0])
        scratch.remove_stale()
        assert os.path.exists(unused.directory)
        for one in (used, unused):
            os.utime(os.path.join(one.directory, "lock"), (1, 1))
        scratch.remove_stale()
        assert (os.path.exists(unused.directory), os.path.exists(used.state)) == (False, True)
    assert scratch.end_session(names[0])
    assert not os.path.exists(used.directory)


def test_a_session_has_a_limit_of_scratch(tmp_path: Path) -> None:
    desk = Desk(tmp_path, policy(limits={"scratch_mb": 8}))
    said = desk.run("i=0; while :; do head -c 1000000 /dev/zero > $TMPDIR/$i; i=$((i+1)); sleep 0.02; done")
    assert (said.code, b"`limits.scratch_mb`" in said.stderr) == (137, True)
    assert desk.run("ls -A $TMPDIR").stdout.count(b"\n") < 3  # it was emptied
    assert scratch.end_session(f"claude/{desk.session}")


def test_variables_are_those_that_the_policy_names_and_the_terminal(desk: Desk) -> None:
    said = desk.run("env")
    names = {line.partition(b"=")[0] for line in said.stdout.splitlines()}
    assert {b"GIVEN", b"PATH", b"TERM"} <= names
    assert b"SECRET" not in names


def test_a_plan_mode_changes_nothing(desk: Desk) -> None:
    project(desk.project)
    said = desk.run(
        "cat numbers | head -n 1; echo x > $TMPDIR/own && echo x > new; rm numbers; ls sub", reads_only=True
    )
    assert said.stdout == b"1\n"
    assert sorted(os.listdir(desk.project)) == sorted({*os.listdir(desk.project), "numbers"} - {"new"})


def test_lines_of_one_session_run_at_once(desk: Desk) -> None:
    project(desk.project)

    async def both() -> tuple[Ended, Ended]:
        waits = "while ! [ -e $TMPDIR/go ]; do sleep 0.02; done; echo first"
        return await asyncio.gather(desk.walled(waits), desk.walled("echo second; touch $TMPDIR/go"))

    assert [one.stdout for one in asyncio.run(both())] == [b"first\n", b"second\n"]


def test_much_output_arrives_complete(desk: Desk) -> None:
    said = desk.run("head -c 50000000 /dev/zero; head -c 1000000 /dev/zero >&2")
    assert (len(said.stdout), len(said.stderr), said.code) == (50_000_000, 1_000_000, 0)


def test_the_policys_directory_stays_where_the_line_is_elsewhere(desk: Desk) -> None:
    project(desk.project)
    said = desk.run("pwd; cat ../numbers | head -n 1; cat ../.env", desk.project / "sub")
    assert said.stdout.decode() == f"{desk.project}/sub\n1\n"


def test_a_directory_that_the_policy_does_not_let_read_is_refused(desk: Desk) -> None:
    said = desk.run("echo never", desk.project.parent)
    assert (said.code, said.stdout) == (125, b"")
    assert said.stderr.startswith(b"licet: ")


# How it ends ---------------------------------------------------------------------------------------------------------


async def begun(desk: Desk, text: str, **given: Any) -> tuple["asyncio.Task[int]", int]:
    """A line that runs, and the reading end of its output; it has written `ready`."""
    reading, writing = os.pipe()
    name, _ = await desk.opened(text)
    nowhere = os.open(os.devnull, os.O_RDWR)
    task = asyncio.create_task(desk.redeemed(name, text, LineStreams(nowhere, writing, nowhere), **given))
    assert (await asyncio.to_thread(os.read, reading, 100)).startswith(b"ready")
    os.close(writing)
    return task, reading


def test_cancelling_a_line_ends_all_of_it(desk: Desk) -> None:
    async def cancelled() -> bytes:
        task, reading = await begun(desk, "trap '' TERM INT HUP; (setsid sleep 1000 &) ; echo ready; sleep 1000")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return await asyncio.to_thread(os.read, reading, 100)  # empty as soon as nobody can write any more

    assert asyncio.run(cancelled()) == b""


def test_what_a_line_leaves_in_the_background_ends_with_it(desk: Desk) -> None:
    """The one thing that differs from the bare line, besides the numbers of processes."""
    said = desk.run("(sleep 1000; echo never > $TMPDIR/late) & echo started")
    assert (said.stdout, said.stderr, said.code) == (b"started\n", b"", 0)
    assert desk.run("ls $TMPDIR/late; pgrep sleep").stdout == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_are_passed_on(desk: Desk, number: int, code: int) -> None:
    async def told() -> int:
        signals = LineSignals()
        task, _ = await begun(desk, "echo ready; sleep 1000", signals=signals)
        signals.send(number)
        return await task

    assert asyncio.run(told()) == code


def test_a_line_may_handle_a_signal(desk: Desk) -> None:
    async def told() -> int:
        signals = LineSignals()
        task, _ = await begun(desk, "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done", signals=signals)
        signals.send(signal.SIGTERM)
        return await task

    assert asyncio.run(told()) == 5


def test_a_supervisor_that_was_started_ahead_runs_it(desk: Desk) -> None:
    async def run() -> tuple[int, bool]:
        with supervisor_ahead() as ready, open(os.devnull, "r+b") as nowhere:
            assert ready is not None
            name, _ = await desk.opened("exit 6")
            stream = nowhere.fileno()
            code = await desk.redeemed(name, "exit 6", LineStreams(stream, stream, stream), ready=ready)
            return code, ready.process.poll() is not None

    assert asyncio.run(run()) == (6, True)


def test_nothing_of_a_line_stays_in_its_host(desk: Desk) -> None:
    desk.run("true")
    for line in ("echo x", "exit 3", "kill -KILL $$", "(("):
        desk.run(line)
    streams = {one.name for one in threading.enumerate() if one.name.startswith("licet-")}
    assert not streams & {"licet-input", "licet-output", "licet-terminal"}
    links = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    ]
    assert not [one for one in links if scratch.sessions_parent() in one]


# A terminal ----------------------------------------------------------------------------------------------------------


def at_terminal(desk: Desk, text: str, *typed: tuple[bytes, bytes]) -> tuple[int, bytes, bool]:
    """The code and the output of a line at a terminal, and whether that terminal was left as it was."""
    import termios

    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (33, 77))
    before, said, answers = termios.tcgetattr(theirs), b"", list(typed)

    async def run() -> int:
        nonlocal said
        name, _ = await desk.opened(text)
        loop = asyncio.get_running_loop()

        def seen() -> None:
            nonlocal said
            said += os.read(ours, 1 << 16)
            if answers and answers[0][0] in said:
                os.write(ours, answers.pop(0)[1])

        loop.add_reader(ours, seen)
        code = await desk.redeemed(name, text, LineStreams(theirs, theirs, theirs))
        loop.remove_reader(ours)
        return code

    code = asyncio.run(run())
    os.set_blocking(ours, False)
    with suppress(BlockingIOError):
        said += os.read(ours, 1 << 16)
    same = termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
    return code, said, same


def test_a_line_at_a_terminal_has_one_of_its_own(desk: Desk) -> None:
    text = "test -t 0 && test -t 1 && test -t 2 && stty size; echo to it > /dev/tty; set -m && echo jobs; exit 6"
    assert at_terminal(desk, text) == (6, b"33 77\r\nto it\r\njobs\r\n", True)


def test_what_is_typed_arrives_and_is_shown_once(desk: Desk) -> None:
    code, said, same = at_terminal(desk, "echo ready; read line; echo got $line", (b"ready", b"some text\r"))
    assert (code, said, same) == (0, b"ready\r\nsome text\r\ngot some text\r\n", True)


def test_control_c_is_typed_into_the_lines_own_terminal(desk: Desk) -> None:
    code, said, same = at_terminal(desk, "echo ready; sleep 1000", (b"ready", b"\x03"))
    assert (code, said, same) == (130, b"ready\r\n^C", True)


def test_a_line_cannot_change_the_terminal_of_its_agent(desk: Desk) -> None:
    text = "stty raw -echo; python3 -c 'import fcntl; fcntl.ioctl(0, 0x5412, b\"x\")' 2>/dev/null; echo done"
    code, said, same = at_terminal(desk, text)
    assert (code, said.strip(), same) == (0, b"done", True)
