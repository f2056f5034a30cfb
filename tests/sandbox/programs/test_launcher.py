"""How a program comes to be behind walls: what it finds there, how it ends, and what refuses to start it."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attacks.programs import until
from attacks.walled_programs import (
    PYTHON,
    Programs,
    both_kinds,
    degraded,
    needs_namespaces,
    needs_walls,
    place,
    without_namespaces,
)
from descriptors import left_open, open_files
from guard.grants import grant
from licet.backends.http import HttpClient
from licet.backends.memory import Answer
from licet.errors import Refused
from licet.guard.execution import Layers, SandboxUnavailable, Walls
from licet.sandbox import probe
from licet.sandbox.grant_paths import around, identity, kernel_paths
from licet.sandbox.kernel import landlock
from licet.sandbox.programs import launcher
from licet.sandbox.programs.walls import ProgramWalls
from loopback import serving


@both_kinds
@pytest.mark.parametrize("code", [0, 1, 7, 125, 255])
@pytest.mark.sampled(4)
def test_a_program_ends_with_its_own_code(kind: str, code: int) -> None:
    assert Programs(kind).run("sh", "-c", f"exit {code}").exit_code == code


@both_kinds
@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "PIPE", "INT"])
@pytest.mark.sampled(4)
def test_a_program_ends_by_its_own_signal(kind: str, name: str) -> None:
    ended = Programs(kind).run("sh", "-c", f"kill -{name} $$; sleep 5")
    assert ended.exit_code == -getattr(signal, f"SIG{name}")


@both_kinds
def test_input_output_and_arguments_arrive(kind: str) -> None:
    ended = Programs(kind).run("sh", "-c", 'cat; printf "%s|" "$0" "$@"; echo no >&2', "a b", "", "ü", stdin="in\n")
    assert (ended.stdout_bytes.decode(), ended.stderr_bytes) == ("in\na b||ü|", b"no\n")


@both_kinds
def test_the_environment_is_what_was_declared_and_a_place_for_scratch(kind: str) -> None:
    ended = Programs(kind, ("env:read:MINE",), environ={"MINE": "1", "OTHER": "2"}).run("env")
    names = {line.partition("=")[0] for line in ended.stdout_bytes.decode().splitlines()}
    assert names == {"HOME", "MINE", "SCREENDIR", "TMPDIR"}


@both_kinds
def test_home_is_scratch_unless_it_was_declared(kind: str) -> None:
    asked = ("sh", "-c", 'test "$HOME" = "$TMPDIR" && : > "$HOME/x" && echo scratch || echo "$HOME"')
    assert Programs(kind).run(*asked).stdout_bytes == b"scratch\n"
    declared = Programs(kind, ("env:read:HOME",), environ={"HOME": "/home/u"})
    assert declared.run(*asked).stdout_bytes == b"/home/u\n"


@both_kinds
def test_it_starts_where_it_was_told_to(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    assert Programs(kind, (f"fs:read:{where}",)).run("pwd", cwd=where).stdout_bytes.decode() == f"{where}\n"


@both_kinds
def test_a_program_that_is_no_program(kind: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("neither binary nor script")
    broken.chmod(0o755)
    with pytest.raises(Refused, match="could not be started: Exec format error"):
        Programs(kind).run(str(broken))


@both_kinds
def test_python_and_its_library_run(kind: str) -> None:
    assert Programs(kind).run(PYTHON, "-I", "-c", "import json, ssl, sqlite3; print('fine')").stdout_bytes == b"fine\n"


@both_kinds
def test_a_program_finds_nothing_open_but_its_streams(kind: str) -> None:
    code = """
found = []
for file in range(1024):
    try:
        os.fstat(file)
        found.append(file)
    except OSError:
        pass
print(found)"""
    assert Programs(kind).python(code) == "[0, 1, 2]\n"


@needs_namespaces
def test_nothing_else_is_there() -> None:
    code = "print(os.getpid() < 5, os.listdir('/proc/1') != [], [p for p in os.listdir('/proc') if p.isdigit()])"
    small, own, pids = Programs("namespaces").python(code).split(maxsplit=2)
    assert (small, own) == ("True", "True")
    assert len(pids.split()) <= 3
    foreign = [path for path in ("/etc/shadow", "/home", "/root", "/var/log", "/run", "/sys") if os.path.exists(path)]
    assert Programs("namespaces").run("ls", "-d", *foreign).stdout_bytes == b""


@needs_namespaces
def test_orphans_are_buried_while_the_program_runs() -> None:
    dead = "'State:.Z' /proc/[0-9]*/status"
    some = "for i in 1 2 3 4 5; do (sleep 0.01 &) ; done; sleep 0.5"
    buried = f"for i in $(seq 200); do grep -q {dead} || break; sleep 0.1; done"
    ended = Programs("namespaces", seconds=300.0).run("sh", "-c", f"{some}; {buried}; grep -l {dead}; echo end")
    assert ended.stdout_bytes == b"end\n"


@needs_namespaces
def test_one_http_request_of_a_program(tmp_path: Path) -> None:
    with serving(lambda _: Answer(200, (), b"a page")) as server:
        rules = (f"network:http:127.0.0.1:{server.port}",)
        code = "import urllib.request as u; print(u.urlopen(sys.argv[1]).read(), 'http_proxy' in os.environ)"
        walled = Programs("namespaces", rules, http=HttpClient())
        assert walled.python(code, f"http://127.0.0.1:{server.port}/") == "b'a page' True\n"
        assert "403" in walled.python(code, "http://example.test/")
    assert [event.reason for event in walled.grant.events if "network" in event.capability] == [
        "",
        "HOST_NOT_ALLOWED",
    ]


BECOMING = """
import os, signal, sys
from licet.sandbox.programs import launcher
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
launcher._exec({"directory": "/", "binary": sys.argv[1], "argv": ["cat", "/proc/self/status"], "environment": {}})
"""


def test_a_program_finds_every_signal_as_it_is_by_default() -> None:
    found = shutil.which("cat")
    assert found is not None
    ended = subprocess.run([sys.executable, "-c", BECOMING, found], capture_output=True, text=True, timeout=600)
    lines = dict(line.split(":", 1) for line in ended.stdout.splitlines())
    own = 0b11 << 31  # two that the C library keeps for itself, and may leave ignored when it starts a program
    assert [int(lines[name], 16) & ~own for name in ("SigBlk", "SigIgn", "SigCgt")] == [0, 0, 0]


# What refuses


def put(support: Callable[[], probe.Support], rules: list[str], http: HttpClient | None, *, degraded: bool) -> Walls:
    held = grant(rules)
    held.reach = replace(held.reach, manifest=replace(held.reach.manifest, allow_degraded=degraded))
    return ProgramWalls(http, support).walls(held)


@needs_walls
@pytest.mark.parametrize("rules", [["process:exec:*"], ["network:http:example.com", "process:exec:*"]])
def test_a_machine_without_supervised_calls_refuses_programs_and_says_both_ways_out(rules: list[str]) -> None:
    with pytest.raises(SandboxUnavailable) as refused:
        put(degraded, rules, HttpClient(), degraded=False)
    said = str(refused.value)
    assert "no program can be put behind its walls here" in said
    assert "supervised calls: nothing was tried" in said
    assert "namespaces: nothing was tried" in said
    assert "unshare" in said or "sysctl" in said
    assert "sandbox: {allow_degraded: true}" in said


BASE = ("process", f"landlock-{landlock.abi()}", "seccomp", "hardening")
LACKED = ("namespaces", "private root")
UNCOUNTED = () if os.getuid() else ("limit of processes",)


@pytest.mark.who
@needs_walls
@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        (["process:exec:*"], (*LACKED, probe.SUPERVISED, *UNCOUNTED)),
        (["network:http:example.com", "process:exec:*"], (*LACKED, probe.SUPERVISED, "egress proxy", *UNCOUNTED)),
    ],
)
def test_where_the_manifest_does_without_them_it_is_told_what_is_missing(
    rules: list[str], missing: tuple[str, ...]
) -> None:
    assert put(degraded, rules, HttpClient(), degraded=True).layers == Layers(BASE, missing)


@needs_walls
@pytest.mark.parametrize("allowed", [True, False])
def test_supervised_calls_take_the_place_of_namespaces(allowed: bool) -> None:
    rules, in_force = ["network:http:example.com", "process:exec:*"], (*BASE, probe.SUPERVISED)
    walls = [put(without_namespaces, rules, http, degraded=allowed).layers for http in (HttpClient(), None)]
    assert walls == [Layers((*in_force, "egress proxy"), LACKED), Layers(in_force, LACKED)]
    assert all(layers.is_whole for layers in walls)


@needs_namespaces
@pytest.mark.parametrize("degraded", [True, False])
def test_nothing_is_missing_where_there_are_namespaces(degraded: bool) -> None:
    rules = ["network:http:example.com", "process:exec:*"]
    assert put(probe.support, rules, HttpClient(), degraded=degraded).layers == Layers((*BASE, *LACKED, "egress proxy"))
    assert put(probe.support, rules, None, degraded=degraded).layers == Layers((*BASE, *LACKED))


@needs_walls
def test_a_degraded_program_has_no_network_and_no_proxy() -> None:
    walled = Programs("degraded", ("network:http:127.0.0.1:1",), http=HttpClient())
    code = "print('http_proxy' in os.environ)\nsocket.socket().connect(('127.0.0.1', 1))"
    said = walled.python(code)
    assert said.startswith("False\n")
    assert "PermissionError" in said
    assert walled.grant.programs is not None
    assert "egress proxy" in walled.grant.programs.missing


def test_walls_that_do_not_hold_are_not_relied_on() -> None:
    nothing = probe.Support(0, (), "this system is not Linux")
    with pytest.raises(SandboxUnavailable, match="not Linux"):
        put(lambda: nothing, ["process:exec:*"], None, degraded=True)


@both_kinds
def test_walls_that_cannot_be_built_refuse_the_program(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Somebody exchanges a granted directory between the check and the walls.
    where = place(tmp_path) / "in"
    walled = Programs(kind, (f"fs:read:{where}",))
    from licet.sandbox import grant_paths

    monkeypatch.setattr(grant_paths._Identities, "of", lambda self, path: (1, 1))
    with pytest.raises(Refused, match="was replaced by another file") as refusal:
        walled.run("echo", "ran")
    assert refusal.value.code == "SANDBOX_UNAVAILABLE"


LAUNCHED = "import sys; from licet.sandbox.programs.launcher import main; main(int(sys.argv[1]), 1)"


def launched(orders: bytes) -> tuple[int, str]:
    near, far = socket.socketpair()
    with near, far:
        process = subprocess.Popen([sys.executable, "-c", LAUNCHED, str(far.fileno())], pass_fds=[far.fileno()])
        far.close()
        near.sendall(orders)
        near.shutdown(socket.SHUT_WR)
        said = b""
        while more := near.recv(1000):
            said += more
        return process.wait(), json.loads(said)["text"]


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        (b"", "the host has closed the connection"),
        ((1 << 40).to_bytes(8, "big"), "the orders are too long"),
        ((2).to_bytes(8, "big") + b"{}", "KeyError('namespaces')"),
        ((3).to_bytes(8, "big") + b"nil", "cannot be followed"),
        ((9).to_bytes(8, "big") + b"{}", "the host has closed the connection"),
    ],
)
def test_orders_that_make_no_sense_start_nothing(orders: bytes, said: str) -> None:
    code, text = launched(orders)
    assert code == launcher.FAILED
    assert said in text


@both_kinds
@pytest.mark.sampled(1)
def test_a_host_that_dies_takes_its_programs_along(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path) / "in"
    code = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parents[2])]!r}
from attacks.walled_programs import Programs
walled = Programs({kind!r}, ["fs:read:{where}", "fs:write:{where}"])
walled.run("sh", "-c", "while :; do echo . >> {where}/mark; sleep 0.05; done")
"""
    # Its scratch outlives it where there is no private root: here, among what pytest removes.
    host = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    mark = where / "mark"
    until(lambda: mark.exists() and mark.stat().st_size > 4)
    host.kill()
    host.wait()
    sizes = [0]

    def stopped() -> bool:
        threading.Event().wait(0.4)
        sizes.append(mark.stat().st_size)
        return sizes[-1] == sizes[-2]

    until(stopped)


@both_kinds
def test_nothing_stays_open_in_the_host(kind: str) -> None:
    walled = Programs(kind, seconds=5.0)

    async def several() -> set[tuple[str, str]]:
        await walled.handle.spawn("true")
        before = open_files()
        await asyncio.gather(*(walled.handle.spawn("true") for _ in range(3)))
        task = asyncio.create_task(walled.handle.spawn("sleep", ["30"]))
        await asyncio.sleep(0.3)
        while not task.done():  # as a deadline does, until its task has ended
            task.cancel()
            await asyncio.sleep(0)
        return left_open(before)

    assert asyncio.run(several()) == set()


# Which paths


def test_around_a_deny(tmp_path: Path) -> None:
    for name in ("a/b/secret", "a/b/c", "a/d", "e"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("/etc")
    root = str(tmp_path)
    assert list(around(root, [])) == [root]
    assert list(around(root, ["/elsewhere"])) == [root]
    assert list(around(root, [f"{root}/a/b/secret"])) == [f"{root}/a/b/c", f"{root}/a/d", f"{root}/e"]
    assert list(around(root, [f"{root}/a"])) == [f"{root}/e"]
    assert list(around(root, [root])) == list(around(root, ["/"])) == []


@pytest.mark.parametrize("private_root", [True, False])
@pytest.mark.parametrize("leads_to", ["/", "/proc", "/sys/kernel", "/dev"])
@pytest.mark.sampled(3)
def test_no_grant_of_files_means_the_windows_of_the_kernel(tmp_path: Path, leads_to: str, private_root: bool) -> None:
    link = tmp_path.resolve() / "link"
    link.symlink_to(leads_to)
    found = kernel_paths(grant([f"fs:read:{link}", "fs:read:/proc/self"]), private_root=private_root)
    assert (found.read, found.rules) == ((), ())
    everything = kernel_paths(grant(["fs:read:*"]), private_root=private_root)
    granted = {*everything.read, *(rule.path for rule in everything.rules)}
    assert os.path.realpath("/usr") in granted
    assert not granted & {"/", "/proc", "/sys", "/dev"}


DELETES = {
    "write_limited, and nothing settles deletes": ("write_limited", "call", True, False),
    "write_limited has no deletes": ("write_limited", "manifest", True, False),
    "full asks about each": ("full", "call", True, False),
    "full, approved in the policy, by grants": ("full", "manifest", False, True),
    "full, approved once a session": ("full", "session", True, True),
    "full, approved in the policy": ("full", "manifest", True, True),
    "destructive, approved with the call": ("destructive", "call", True, True),
    "destructive, by grants": ("destructive", "call", False, True),
}


@pytest.mark.parametrize("case", DELETES)
@pytest.mark.parametrize("private_root", [False, True])
def test_which_calls_delete_by_themselves(tmp_path: Path, private_root: bool, case: str) -> None:
    from licet.sandbox.kernel import landlock

    effect, deletes, written, expected = DELETES[case]
    rules = [f"fs:read:{tmp_path}", f"fs:write:{tmp_path}", f"fs:delete:{tmp_path}"]
    held = grant(rules, effect=effect, deletes=deletes, written=written)  # type: ignore[arg-type]
    access = 0
    for rule in kernel_paths(held, private_root=private_root).rules:
        access |= rule.access
    assert bool(access & landlock.DELETE) is expected


def test_which_file_a_path_is_no_link_says(tmp_path: Path) -> None:
    where = place(tmp_path)
    for name, target in (("link", "out"), ("to", "out/secret")):
        (where / name).symlink_to(where / target)
    os.mkfifo(where / "pipe")
    for path in (where, where / "out", where / "out" / "secret"):
        assert identity(str(path)) == (path.stat().st_dev, path.stat().st_ino)
    for name in ("link", "link/secret", "to", "pipe", "missing", "out/secret/more"):
        with pytest.raises(OSError):  # noqa: PT011 - which one is the kernel's to say
            identity(str(where / name))


@pytest.mark.parametrize("private_root", [True, False])
def test_a_granted_path_through_a_link_that_a_tool_may_write_is_left_out(tmp_path: Path, private_root: bool) -> None:
    where = place(tmp_path)
    (where / "in" / "link").symlink_to(where / "out")
    (where / "link").symlink_to(where / "out")
    rules = [f"fs:read:{where}/in/link/secret", f"fs:read:{where}/link/secret", f"fs:write:{where}/in"]
    found = kernel_paths(grant(rules), private_root=private_root)
    assert found.read == (f"{where}/link/secret",)
    assert f"{where}/out/secret" in [rule.path for rule in found.rules]
