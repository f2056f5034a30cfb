"""Calls from code without an event loop: their thread survives a fork, and starts again after a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.growth_tools import again
from sandbox.levels import gate

FORKED = """
import asyncio, os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from licet.adapters.framework_calls import wait_for
from sandbox.growth_tools import again
from sandbox.levels import gate

at = gate(Path({place!r}), "native", again)

async def main():
    return (await at.session("s").call("again", {{"text": "x"}})).unwrap()

assert wait_for(main()) == "xNone"
child = os.fork()
if not child:
    assert wait_for(main()) == "xNone"
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert wait_for(main()) == "xNone"

async def stay():
    try:
        await asyncio.sleep(600)
    finally:
        print("cleared up", flush=True)

async def leave():
    global left
    left = asyncio.create_task(stay())
    await asyncio.sleep(0)

wait_for(leave())
print("done", flush=True)
"""


def test_a_session_under_another_event_loop_names_the_alternative(tmp_path: Path) -> None:
    session = gate(tmp_path, "native", again).session("s")
    for attempt in (session.__aenter__(), session.call("again")):
        with pytest.raises(RuntimeError, match=r"loop of asyncio.*`licet.run` in a thread"):
            attempt.send(None)


def test_a_host_may_fork_and_ends_quietly(tmp_path: Path) -> None:
    script = FORKED.format(tests=str(Path(__file__).parent.parent), place=str(tmp_path))
    command = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=os.environ)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\ncleared up\n", "")


FULL = """
import os, resource
from licet.adapters.framework_calls import wait_for

async def answer():
    return "answered"

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(os.dup(0))
except OSError:
    pass
coroutine = answer()
try:
    wait_for(coroutine)
except OSError as wrong:
    print(wrong.strerror, flush=True)
coroutine.close()
for file in files:
    os.close(file)
print(wait_for(answer()), flush=True)
"""


def test_a_loop_that_cannot_be_started_raises_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (0, "Too many open files\nanswered\n")
