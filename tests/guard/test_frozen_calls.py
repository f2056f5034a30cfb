"""A freeze stops what begins and what runs, in every process on a state, and a thaw lets it go on."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import warm
from attacks.walled_programs import needs_namespaces
from guard.gates import gate
from hooks.lines import Desk
from licet import Backends, Context, Gate, Refused, Result, tool
from licet.backends.freezes import MemoryFreezes, SqliteFreezes
from licet.backends.memory import MemoryLedger
from licet.backends.secrets import generated_key
from licet.guard.freezing import ActRefused
from licet.guard.ports import Answer, Question

SOON = 2.0  # seconds: one, and another for a machine that is busy with other tests
BEGUN: list[asyncio.Event] = []
SEEN: list[str] = []


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(**given: Any) -> None:
        async def inside() -> None:
            BEGUN[:] = [asyncio.Event()]
            SEEN.clear()
            await asyncio.wait_for(test(**given), 90)

        asyncio.run(inside())

    return run


@tool(needs=["fs:*:/srv"], effect="write_limited", sandbox="native")
async def hold(ctx: Context) -> None:
    """Wait until somebody stops this."""
    BEGUN[0].set()
    await asyncio.sleep(60)


@tool(needs=["fs:*:/srv"], effect="write_limited", sandbox="native")
async def write(ctx: Context, pause: bool = False) -> str:
    """Write a file, before and after another process had a turn."""
    await ctx.fs.write("/srv/a", "x")
    if pause:
        await asyncio.to_thread(freeze_elsewhere, str(ctx.workdir))
        try:
            await ctx.fs.write("/srv/a", "y")
        except Refused as refusal:
            SEEN.append(refusal.code)
            raise
    return "written"


def freeze_elsewhere(state: str, *words: str) -> None:
    done = warm.run(warm.PROGRAM, ["freeze", "--why", "by another process", "--state", state, *words])
    assert done.returncode == 0, done.stderr


def thaw_elsewhere(state: Path) -> None:
    done = warm.run(warm.PROGRAM, ["thaw", "--all", "--state", str(state)])
    assert done.returncode == 0, done.stderr


def frozen_gate(place: Path, approvals: Mapping[str, str] | None = None, **parts: Any) -> Gate:
    """A gate whose tools may write in memory."""
    backends = Backends.memory(files={"/srv/old": ""}, **parts)
    reach = {"read": ["/srv"], "write": ["/srv"]}
    return gate(place, hold, write, backends=backends, fs_reach=reach, approvals=approvals or {"write": "manifest"})


def made(tmp_path: Path) -> Gate:
    """One on a state directory."""
    tmp_path.chmod(0o700)
    return frozen_gate(tmp_path, freezes=SqliteFreezes(tmp_path / "freezes.sqlite"))


def refused(result: Result, why: str) -> bool:
    return result.reason == "FROZEN" and why in result.error


@in_loop
async def test_a_freeze_by_another_process_cuts_a_running_call_and_refuses_the_next(tmp_path: Path) -> None:
    at = made(tmp_path)
    async with at.session("s") as session:
        running = asyncio.create_task(session.call("hold"))
        await BEGUN[0].wait()
        await asyncio.to_thread(freeze_elsewhere, str(tmp_path))
        returned = time.monotonic()
        result = await running
        assert time.monotonic() - returned < SOON
        assert refused(result, "by another process")
        assert refused(await session.call("write"), "by another process")
        assert "licet thaw" in (await session.call("write")).explain()
        await asyncio.to_thread(thaw_elsewhere, tmp_path)
        assert (await session.call("write")).value == "written"


@in_loop
async def test_a_running_call_is_refused_at_its_next_check(tmp_path: Path) -> None:
    at = made(tmp_path)
    at.watch.begin = lambda: None  # type: ignore[method-assign]  # so that the check alone stops it
    async with at.session("s") as session:
        assert (await session.call("write")).ok
        result = await session.call("write", {"pause": True})
    assert SEEN == ["FROZEN"]
    assert refused(result, "by another process")


@in_loop
async def test_a_freeze_is_of_an_agent_or_of_a_tool(tmp_path: Path) -> None:
    freezes, ledger = MemoryFreezes(), MemoryLedger()
    at = frozen_gate(tmp_path, freezes=freezes, ledger=ledger)
    async with at.session("s") as session:
        delegate = session.delegate(agent="helper", allow=["tool:call:*", "fs:*:/srv"])
        one = at.freeze("the tool", tool="hold")
        assert refused(await session.call("hold"), "the tool")
        assert (await session.call("write")).ok
        delegate.gate.freeze("the helper")  # type: ignore[attr-defined]
        assert refused(await delegate.call("write"), "the helper")
        assert (await session.call("write")).ok
        at.thaw(one)
        at.freeze("the agent", agent=at.manifest.agent)
        assert refused(await session.call("write"), "the agent")
        at.thaw()
        assert (await session.call("write")).ok
        assert (await delegate.call("write")).ok
    kinds = [entry.kind for entry in ledger.entries if entry.session == "acts on the state"]
    assert kinds == ["freeze", "freeze", "thaw", "freeze", "thaw"]


@in_loop
async def test_a_call_that_waits_for_a_person_ends(tmp_path: Path) -> None:
    async def ask(question: Question) -> Answer:
        BEGUN[0].set()
        await asyncio.sleep(60)
        return "approved"

    at = frozen_gate(tmp_path, {"write": "call"}, approver=ask)
    async with at.session("s") as session:
        waiting = asyncio.create_task(session.call("write"))
        await BEGUN[0].wait()
        at.freeze("stop")
        assert refused(await waiting, "stop")


@in_loop
async def test_a_freeze_that_returned_while_the_decision_was_written_is_not_overtaken(tmp_path: Path) -> None:
    freezes = MemoryFreezes()
    other = frozen_gate(tmp_path, freezes=freezes)

    class Meanwhile(MemoryLedger):
        async def record(self, entry: Any) -> None:
            await super().record(entry)
            if entry.kind == "decision":
                other.freeze("meanwhile")

    at = frozen_gate(tmp_path, freezes=freezes, ledger=Meanwhile())
    async with at.session("s") as session:
        assert refused(await session.call("write"), "meanwhile")


@in_loop
async def test_a_gate_thaws_with_the_key_of_an_operator_alone(tmp_path: Path) -> None:
    anna, place = generated_key(), tmp_path / "anna.pem"
    place.write_bytes(anna.pem())
    place.chmod(0o600)
    at = frozen_gate(tmp_path, freezes=MemoryFreezes([anna.public]))
    at.freeze()
    with pytest.raises(ActRefused, match="sign with the key"):
        at.thaw()
    with pytest.raises(ActRefused, match="is no key of an operator"):
        at.thaw(key=generated_key())
    assert at.frozen
    at.thaw(key=place)
    assert not at.frozen


def test_a_store_that_cannot_be_read_refuses(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "freezes.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "freezes.sqlite").chmod(0o600)
    at = made(tmp_path)

    async def call() -> Result:
        async with at.session("s") as session:
            return await session.call("write")

    assert asyncio.run(call()).reason == "BACKEND_MISSING"


@needs_namespaces
def test_a_line_of_a_coding_agent_and_its_programs_end_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    desk = Desk(tmp_path)
    ended: list[float] = []

    async def run() -> Any:
        line = asyncio.create_task(desk.walled("touch begun; sleep 61.25; echo never"))
        while not (desk.project / "begun").exists():
            assert not line.done(), line.result()
            await asyncio.sleep(0.02)
        await asyncio.to_thread(freeze_elsewhere, str(desk.state))
        returned = time.monotonic()
        found = await line
        ended.append(time.monotonic() - returned)
        with pytest.raises(AssertionError, match="by another process"):
            await desk.opened("echo no")  # the next event of the agent's hook
        return found

    found = asyncio.run(run())
    assert ended[0] < SOON
    assert found.code == 125
    assert b"the line was ended: FROZEN: by another process" in found.stderr
    assert b"never" not in found.stdout
    running = [one for one in os.listdir("/proc") if one.isdigit() and b"61.25" in _command(one)]
    assert not running


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
