"""`licet call` that is interrupted."""

import signal
import subprocess
from pathlib import Path

import pytest

import warm
from command_line import enter_project

TOOLS = '''
from licet import tool

@tool(needs=[], effect="read_only", sandbox="native")
async def sleep() -> None:
    """Wait for long."""
    import asyncio
    print("asleep", flush=True)
    await asyncio.sleep(60)

@tool(needs=[], effect="read_only", sandbox="native")
async def interrupted() -> None:
    """Be interrupted while it computes."""
    import asyncio, signal
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(60)
'''
POLICY = """agent: a
tools: {sleep: {from: "own_tools:sleep"}, interrupted: {from: "own_tools:interrupted"}}
capabilities: {tools: [sleep, interrupted], native: [sleep, interrupted]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter_project(tmp_path, monkeypatch)
    Path("own_tools.py").write_text(TOOLS)
    Path("m.yaml").write_text(POLICY)


def test_ctrl_c_ends_a_call_cleanly() -> None:
    words = [warm.SCRIPT, "call", "m.yaml", "sleep"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
        assert done.stdout
        assert done.stdout.readline() == "asleep\n"
        done.send_signal(signal.SIGINT)
        rest, complaints = done.communicate(timeout=50)
    assert (done.returncode, rest) == (130, "")
    assert complaints.startswith("licet: interrupted: the call was ended; `licet receipts list")


def test_ctrl_c_while_a_tool_computes_ends_the_command_and_not_only_the_tool() -> None:
    words = [warm.SCRIPT, "call", "m.yaml", "interrupted"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("licet: interrupted: the call was ended")
