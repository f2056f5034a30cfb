"""What a process has given up after hardening, by trying to use it."""

import os
import sys
from typing import Any

import pytest

from licet.sandbox.kernel import hardening, system_calls
from sandbox.walled import needs_filter, run

pytestmark = needs_filter

HARDENED = """
import resource
def hard(keep=(), parent=None, **limits):
    reading = {0, 1, 2, *keep}
    # The pipe that `apart` answers on is kept, whatever its number is.
    hardening.harden(limits=hardening.Limits(**limits), keep_fds=reading | set(pipes()), parent=parent)
def pipes():
    return [fd for fd in range(64) if is_pipe(fd)]
def is_pipe(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")
    except OSError:
        return False
"""


def behind(body: str, **options: Any) -> Any:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return run(f"{HARDENED}\ndef inner():\n{lines}\nanswer = apart(inner)", **options)


@pytest.mark.parametrize(
    ("limits", "do", "free", "walled"),
    [
        ("open_files=40", "[os.dup(0) for _ in range(100)] and 'done'", "done", "EMFILE"),
        ("file_bytes=1000", "open(spec['given'], 'wb', 0).write(bytes(5000))", 5000, 1000),
        ("memory_bytes=100 << 20", "len(bytearray(200 << 20))", 200 << 20, "MemoryError"),
        ("open_files=40", "resource.setrlimit(resource.RLIMIT_NOFILE, (41, 41))", None, "ValueError"),
        ("", "resource.getrlimit(resource.RLIMIT_CORE)[1]", None, 0),
    ],
    ids=["open files", "file size", "memory", "raised again", "no core files"],
)
@pytest.mark.sampled(3)
def test_limits_hold(tmp_path: Any, limits: str, do: str, free: Any, walled: Any) -> None:
    code = f"""
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def tried():
    try:
        return attempt(lambda: {do})
    except (MemoryError, ValueError) as wrong:
        return type(wrong).__name__
HARDEN
return tried()
"""
    given = str(tmp_path / "file")
    if free is not None:
        assert behind(code.replace("HARDEN", ""), given=given) == free
    assert behind(code.replace("HARDEN", f"hard({limits})"), given=given) == walled


def test_the_time_on_the_processor_ends_with_its_own_signal() -> None:
    assert behind("hard(cpu_seconds=1)\nwhile True: pass") == "SIGXCPU"


def test_what_is_lower_already_stays() -> None:
    code = "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\nhard(open_files=1000)\n"
    assert behind(code + "return resource.getrlimit(resource.RLIMIT_NOFILE)") == [40, 40]


def test_open_files_are_closed_unless_named() -> None:
    code = """
kept, lost = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
{}
return [attempt(lambda: os.fstat(kept) and None), attempt(lambda: os.fstat(lost) and None)]
"""
    assert behind(code.format("")) == [None, None]
    assert behind(code.format("hard(keep=(kept,))")) == [None, "EBADF"]


@pytest.mark.who
def test_no_capability_is_left_or_comes_back() -> None:
    code = """
hard()
lines = dict(line.split(":") for line in open("/proc/self/status") if line.startswith(("Cap", "NoNewPrivs")))
return {name: value.strip() for name, value in lines.items()}
"""
    if os.getuid():
        code = code.replace("hard()", "hard()\nsystem_calls.prctl('dumpable', 4, 1)")
    found = behind(code)
    assert found["NoNewPrivs"] == "1"
    assert {name: int(found[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == dict.fromkeys(
        ("CapEff", "CapPrm", "CapInh", "CapAmb"), 0
    )
    if not os.getuid():
        assert int(found["CapBnd"], 16) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="capabilities to lose are root's")
def test_root_without_capabilities_does_not_override_modes(tmp_path: Any) -> None:
    other = tmp_path / "other"
    other.write_text("secret")
    os.chown(other, 65534, 65534)
    other.chmod(0o600)
    code = "{}\nreturn attempt(lambda: open(spec['given']).read())"
    assert behind(code.format(""), given=str(other)) == "secret"
    assert behind(code.format("hard()"), given=str(other)) == "EACCES"


def test_a_process_dies_with_its_parent() -> None:
    # The middle one ends at once; the inner one is gone before it could write.
    code = """
reading, writing = os.pipe()
middle = os.fork()
if not middle:
    ready, go = os.pipe()
    if not os.fork():
        hardening.die_with(os.getppid())
        os.write(go, b"x")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    os._exit(0)
os.waitpid(middle, 0)
os.close(writing)
answer = os.read(reading, 1).decode()
"""
    assert run(code) == ""


def test_a_process_whose_parent_is_gone_already_dies_now() -> None:
    assert run("answer = apart(lambda: hardening.die_with(os.getppid() + 1))") == "SIGKILL"


@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user is tried with `ptrace` in tests/attacks")
def test_memory_is_not_dumped() -> None:
    assert behind("hard()\nreturn system_calls.prctl('PR_GET_DUMPABLE', 3)") == 0
    assert behind("return system_calls.prctl('PR_GET_DUMPABLE', 3)") == 1


def test_tasks_of_this_user_are_counted() -> None:
    code = """
before = hardening.tasks_of_user()
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(50)]
for thread in threads: thread.start()
after = hardening.tasks_of_user()
stop.set()
answer = [before > 0, after - before]
"""
    some, more = run(code)
    assert some
    assert more > 25  # others come and go meanwhile


def test_an_error_names_the_call() -> None:
    with pytest.raises(OSError, match="close_range: Invalid argument"):
        system_calls.syscall("close_range", 436, 5, 4, 0)


def test_elsewhere_it_refuses_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    system_calls._libc.cache_clear()
    try:
        with pytest.raises(OSError, match="walls need Linux"):
            hardening.no_new_privs()
    finally:
        system_calls._libc.cache_clear()
