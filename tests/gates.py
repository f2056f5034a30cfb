"""Gates and tools for the tests of adapters, with and without a framework."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from licet import Backends, Context, Gate, Tool, tool
from licet.backends.secrets import generated_key
from licet.policy_files.data import manifest_from_data
from licet.ports import Answered, Question

DONE: list[str] = []  # what tools did, in order
WAITS: dict[str, asyncio.Event] = {}


@tool(needs=[], effect="read_only", sandbox="native")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    DONE.append(f"add {a} {b}")
    return a + b


@tool(name="desk/weather.today", needs=[], effect="read_only", sandbox="native")
async def weather(city: str) -> dict[str, str]:
    """Today's weather."""
    return {"city": city, "sky": "rain"}


@tool(needs=["fs:write:${workdir}/notes"], effect="write_limited", sandbox="native")
async def note(ctx: Context, name: str, text: str) -> str:
    """Write a note."""
    await ctx.fs.write(f"notes/{name}", text)
    DONE.append(f"note {name} {text}")
    return f"wrote {name}"


@tool(needs=["fs:read:*"], effect="read_only", sandbox="native")
async def read(ctx: Context, path: str) -> str:
    """Read a file."""
    return await ctx.fs.read(path)


@tool(needs=[], effect="read_only", sandbox="native")
async def slow(name: str) -> str:
    """Wait until the test lets it go on, or is cancelled."""
    DONE.append(f"begin {name}")
    WAITS[name].set()
    await asyncio.Event().wait()
    return name


@tool(needs=["fs:read:/never"], effect="read_only", sandbox="native")
async def hidden(ctx: Context) -> str:
    """Not for this agent."""
    return await ctx.fs.read("/never")


@tool(needs=["fs:delete:${workdir}/notes"], effect="full", sandbox="restricted")
async def remove(ctx: Context, path: str, also: str = "") -> str:
    """Delete a note, and perhaps a second one."""
    for one in filter(None, (path, also)):
        await ctx.fs.delete(one)
        DONE.append(f"removed {one}")
    return "gone"


ALL: tuple[Tool, ...] = (add, weather, note, read, slow, hidden)


class Behind:
    """An approver that keeps the questions that reach it, and answers nothing."""

    verifies = True
    shows_acts = True

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answered:
        """Keep a question."""
        self.asked.append(question)
        return Answered("absent", note="stored")


def policy(tools: Sequence[Tool] = ALL, /, *, flow: str = "", **capabilities: Any) -> Any:
    """A manifest that admits all but `hidden`, and asks before each write."""
    admitted = [one.name for one in tools if one is not hidden]
    return manifest_from_data(
        {
            "agent": "desk",
            **({"flow": {"preset": flow}} if flow else {}),
            "capabilities": {
                "tools": admitted,
                "native": admitted,
                "max_side_effect_class": "write_limited",
                "fs_reach": {"read": ["${workdir}/notes"], "write": ["${workdir}/notes"]},
                "approvals": {"write": "call", "expires_seconds": 300},
                **capabilities,
            },
        }
    )


def gate_of(
    tools: Sequence[Tool] = ALL,
    /,
    *,
    parts: Mapping[str, Any] | None = None,
    workdir: str = "/desk",
    **capabilities: Any,
) -> Gate:
    """A gate on memory backends."""
    DONE.clear()
    backends = Backends.memory(files={f"{workdir}/notes/a": "Rain.", f"{workdir}/key": "x"}, **(parts or {}))
    return Gate(policy(tools, **capabilities), tools, backends, workdir=Path(workdir))


def signed(number: int) -> dict[str, Any]:
    """Approvals that need the signatures of so many people."""
    keys = [generated_key().public for _ in range(number)]
    return {"write": "call", "quorum": number, "keys": keys}


def receipts(gate: Gate) -> list[Any]:
    """The receipts of a gate, the oldest first."""
    ledger: Any = gate.ports.ledger
    return list(ledger.receipts)


def task_of(gate: Gate) -> str:
    """What the user has said in the session of the tests of frameworks."""
    return gate.session("s-42").task


def taints_of(gate: Gate) -> tuple[str, ...]:
    """Why that session is tainted."""
    memory = gate.session("s-42").remembering()
    with ThreadPoolExecutor(1) as thread:  # a test may run in a loop of its own
        return thread.submit(asyncio.run, memory.ask(None, lambda known: known.tainted_by)).result()
