"""Runs code behind walls: in a child of a fresh interpreter that has no threads, which says what happened in JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from licet.sandbox.kernel import landlock, system_calls

needs_landlock = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock, or it is switched off")
needs_filter = pytest.mark.skipif(
    sys.platform != "linux" or system_calls.machine() not in system_calls.NUMBERS, reason="no filter for this system"
)


def needs_abi(version: int) -> pytest.MarkDecorator:
    """Skip where Landlock is older than this."""
    return pytest.mark.skipif(landlock.abi() < version, reason=f"Landlock {version} is not in this kernel")


_BEGIN = """
import ctypes, errno, json, os, signal, socket, struct, subprocess, sys, threading
from licet.sandbox.kernel import hardening, landlock, seccomp, system_calls

spec = json.load(sys.stdin)
NUMBERS = system_calls.NUMBERS[os.uname().machine]
OUTSIDE = os.getpid()

def attempt(do):
    # What a call came to: its value, or the name of its error.
    try:
        value = do()
    except OSError as wrong:
        return errno.errorcode.get(wrong.errno, str(wrong))
    return value if isinstance(value, (int, str, list, bool, type(None))) else "done"

def raw(name, *arguments):
    number = NUMBERS[name] if isinstance(name, str) else name
    words = [a.encode() if isinstance(a, str) else a for a in arguments]
    try:
        return system_calls.syscall(str(name), number, *words)
    except OSError as wrong:
        return errno.errorcode.get(wrong.errno, str(wrong.errno))

def apart(do):
    # In a process of its own, which may die of it.
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(do()).encode())
        except BaseException as wrong:
            os.write(writing, json.dumps(repr(wrong)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = b""
    while part := os.read(reading, 65536):
        said += part
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else json.loads(said)

if spec["filter"] is not None:  # each child writes its own number into a filter that is made once
    seccomp.program(own_pid=OUTSIDE if spec["own_pid"] else None, **spec["filter"])

def walls():
    hardening.no_new_privs()
    if spec["rules"] is not None:
        rules = [landlock.PathRule(path, access) for path, access in spec["rules"]]
        landlock.restrict(landlock.ruleset(rules, tcp_ports=spec["tcp_ports"], version=spec["version"]))
    if spec["filter"] is not None:
        own_pid = os.getpid() if spec["own_pid"] else None
        seccomp.install(seccomp.program(own_pid=own_pid, **spec["filter"]))

"""


def run(
    code: str,
    *,
    rules: Sequence[tuple[str, int]] | None = None,
    tcp_ports: Sequence[int] | None = (),
    filtered: Mapping[str, Any] | None = None,
    own_pid: bool = False,
    version: int | None = None,
    given: Any = None,
) -> Any:
    """Run code that puts its answer in `answer`; it calls `walls()` where the walls are to stand.

    `version` is that of Landlock, if not this kernel's own.
    """
    spec = {"rules": rules, "tcp_ports": tcp_ports, "filter": filtered, "own_pid": own_pid, "given": given}
    spec["version"] = version
    program = f"{_BEGIN}{code}\nprint(json.dumps(answer))"
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program],
        input=json.dumps(spec), capture_output=True, text=True, timeout=600, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.returncode}: {ended.stderr}"
    return json.loads(ended.stdout)
