"""Calls with an id that come again while the first one runs, after a crash, and in a session that remembers."""

import asyncio
import gc
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from guard.flow_gates import MAILS, mail_gate, send
from guard.gates import gate
from licet import Backends, Context, Gate, Result, Session, tool
from licet.backends.kept_calls import MemoryKeptCalls
from licet.backends.memory import MemoryLedger
from licet.core.ledger.entry import FlowFact
from licet.guard.ports import Begun, CallKey, Unavailable
from licet.guard.repeated_calls import is_call_id

RAN: list[str] = []


@tool(needs=[], effect="read_only", sandbox="native")
async def slow(seconds: str = "0.1", fail: bool = False) -> str:
    """Take a while."""
    RAN.append(seconds)
    await asyncio.sleep(float(seconds))
    if fail:
        raise ValueError("no")
    return f"ran {len(RAN)}"


@tool(needs=[], effect="read_only", sandbox="native")
async def numbers() -> Any:
    """Return what JSON can hardly carry."""
    return {"é": [2**80, 1.5, None, "\x00"], "b": True}


@pytest.fixture
def slow_gate(tmp_path: Path) -> Gate:
    RAN.clear()
    backends = Backends.memory(ledger=MemoryLedger())
    return gate(tmp_path, slow, numbers, backends=backends, limits={"wall_seconds": 1})


def run(at: Gate, story: Callable[[Session], Any]) -> Any:
    async def play() -> Any:
        async with at.session("s") as session:
            return await story(session)

    return asyncio.run(play())


def told(results: list[Result]) -> list[Any]:
    return [(one.reason, one.value) for one in results]


def test_those_that_come_meanwhile_wait_for_the_first(slow_gate: Gate) -> None:
    async def story(session: Session) -> list[Result]:
        return await asyncio.gather(*(session.call("slow", id="one") for _ in range(8)))

    results = run(slow_gate, story)
    assert told(results) == [("ALLOWED", "ran 1")] * 8
    [first] = [one.receipt for one in results if not one.repeats]
    assert {one.repeats for one in results} == {"", first}
    assert "has run before, with this id" in next(one for one in results if one.repeats).explain()


def test_one_that_waits_gives_up_at_its_own_deadline(tmp_path: Path) -> None:
    RAN.clear()
    kept = MemoryKeptCalls()
    at = gate(tmp_path, slow, backends=Backends.memory(kept_calls=kept), limits={"wall_seconds": 1})

    async def story(session: Session) -> Result:
        from licet.guard.argument_checks import arguments_digest

        digest = arguments_digest({"seconds": "0.1", "fail": False})
        first = await kept.begin(CallKey("tester", "s", "slow", "one"), digest, "r-1")
        assert isinstance(first, Begun)
        return await session.call("slow", id="one")

    result = run(at, story)
    assert (result.code, result.reason, RAN) == ("timed_out", "LIMIT_TIME", [])
    assert "the first call with this id still runs (receipt r-1): waited" in result.error


def test_one_that_waits_takes_over_if_the_first_is_refused(tmp_path: Path) -> None:
    RAN.clear()
    answers = iter(["denied", "approved"])

    async def answer(_: object) -> Any:
        await asyncio.sleep(0.1)
        return next(answers)

    @tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="native")
    async def change() -> str:
        """Change something."""
        RAN.append("")
        return "done"

    at = gate(
        tmp_path,
        change,
        backends=Backends.memory(approver=answer),
        approvals={"write": "call"},
        fs_reach={"write": ["/srv"]},
    )

    async def story(session: Session) -> list[Result]:
        return await asyncio.gather(*(session.call("change", id="one") for _ in range(3)))

    results = run(at, story)
    assert sorted(one.reason for one in results) == ["ALLOWED", "ALLOWED", "APPROVAL_DENIED"]
    assert (len(RAN), [one.value for one in results if one.ok]) == (1, ["done", "done"])


def test_the_end_of_its_session_reaches_one_that_waits(slow_gate: Gate) -> None:
    async def story(session: Session) -> Any:
        calls = asyncio.gather(
            session.call("slow", {"seconds": "0.9"}, id="one"), session.call("slow", {"seconds": "0.9"}, id="one")
        )
        await asyncio.sleep(0.05)
        await session.end()
        return await calls

    assert [one.reason for one in run(slow_gate, story)] == ["SESSION_ENDED", "SESSION_ENDED"]
    assert RAN == ["0.9"]


def test_a_reload_reaches_one_that_waits(slow_gate: Gate) -> None:
    async def story(session: Session) -> list[Result]:
        calls = asyncio.gather(*(session.call("slow", {"seconds": "0.4"}, id="one") for _ in range(2)))
        await asyncio.sleep(0.05)
        slow_gate.reload(slow_gate.manifest)
        return await calls

    assert [one.reason for one in run(slow_gate, story)] == ["ALLOWED", "MANIFEST_CHANGED"]


def test_one_whose_caller_was_cancelled_is_repeated_as_its_receipt_says(slow_gate: Gate) -> None:
    async def story(session: Session) -> Result:
        call = asyncio.create_task(session.call("slow", {"seconds": "0.9"}, id="one"))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await session.call("slow", {"seconds": "0.9"}, id="one")

    result = run(slow_gate, story)
    assert result.error == "TOOL_FAILED: the call was interrupted before it ended"
    assert RAN == ["0.9"]


def test_one_that_was_dropped_without_a_word_is_unknown(slow_gate: Gate) -> None:
    async def story(session: Session) -> Result:
        calls = [session.call("slow", {"seconds": "0.9"}, id="one")]

        async def begin() -> None:
            calls[0].send(None)

        await asyncio.create_task(begin())
        calls.pop().close()  # by another task than the one that ran it
        gc.collect()
        return await session.call("slow", {"seconds": "0.9"}, id="one")

    result = run(slow_gate, story)
    assert (result.reason, len(RAN)) == ("CALL_UNKNOWN", 1)
    assert "it is not run again" in result.error
    assert "licet receipts show r-" in result.explain()


@pytest.mark.parametrize("kind", ["finish", "begin", "cancelled"])
def test_a_store_that_fails_never_lets_a_call_run_twice(kind: str, tmp_path: Path) -> None:
    class Failing(MemoryKeptCalls):
        async def begin(self, *given: Any) -> Any:
            if kind == "begin":
                raise Unavailable("the disk is full")
            return await super().begin(*given)

        async def finish(self, begun: Begun, data: bytes) -> None:
            raise asyncio.CancelledError if kind == "cancelled" else Unavailable("the disk is full")

    RAN.clear()
    at = gate(tmp_path, slow, backends=Backends.memory(kept_calls=Failing()))

    async def story(session: Session) -> list[str]:
        return [(await session.call("slow", id="one")).reason for _ in range(2)]

    expected = ["BACKEND_MISSING"] * 2 if kind == "begin" else ["ALLOWED", "CALL_UNKNOWN"]
    assert (run(at, story), len(RAN)) == (expected, 0 if kind == "begin" else 1)


def test_values_come_back_as_they_were(slow_gate: Gate) -> None:
    async def story(session: Session) -> list[Result]:
        return [await session.call("numbers", id="one") for _ in range(2)]

    one, two = run(slow_gate, story)
    assert one.value == two.value == {"é": [2**80, 1.5, None, "\x00"], "b": True}
    entries = slow_gate.ports.ledger.receipts  # type: ignore[union-attr]
    assert len({entry.result for entry in entries}) == 1
    assert [entry.repeats for entry in entries][1] == one.receipt


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\n", 7, b"a"])
def test_what_is_no_id_is_an_error(given: Any, slow_gate: Gate) -> None:
    async def story(session: Session) -> Any:
        await session.call("slow", id=given)

    with pytest.raises(ValueError, match="1 to 128 visible ASCII characters"):
        run(slow_gate, story)
    assert not is_call_id(given)


# Secrets and flow ----------------------------------------------------------------------------------------------------


def test_a_secret_is_not_kept(tmp_path: Path) -> None:
    @tool(needs=["secret:read:key"], effect="read_only", sandbox="native")
    async def leak(ctx: Context) -> str:
        """Return a secret."""
        return f"it is {await ctx.secrets.get('key')}"

    data: list[bytes] = []

    class Seeing(MemoryKeptCalls):
        async def finish(self, begun: Begun, given: bytes) -> None:
            data.append(given)
            await super().finish(begun, given)

    backends = Backends.memory(secrets={"key": "xyzzy-plugh-4711"}, kept_calls=Seeing())
    at = gate(tmp_path, leak, backends=backends, secrets=["key"])

    async def story(session: Session) -> list[Any]:
        return [(await session.call("leak", id="one")).value for _ in range(2)]

    one, two = run(at, story)
    assert one == two, one
    assert one.startswith("it is [")
    assert b"plugh" not in data[0]


def test_a_repeated_result_is_remembered_like_the_first(tmp_path: Path) -> None:
    """Also in another process, which has only the ledger and what was kept."""
    ledger, kept = MemoryLedger(), MemoryKeptCalls()

    def opened() -> Gate:
        return mail_gate(tmp_path, backends=Backends.memory(ledger=ledger, kept_calls=kept))

    async def first(session: Session) -> None:
        assert (await session.call("search_people", id="people")).ok

    async def again(session: Session) -> list[Any]:
        people = await session.call("search_people", id="people")  # its labels are trusted: nothing is tainted
        free = await send(session, "carol@corp.example")
        mails = await session.call("list_mail", id="mail")
        return [people.ok, free, mails.value, await send(session, "eve@evil.example", body=MAILS[1]["body"])]

    run(opened(), first)
    people, free, mails, sent = run(opened(), again)
    assert (people, free, mails) == (True, "ALLOWED", MAILS)
    facts = [entry.flow for entry in ledger.receipts if entry.tool == "search_people"]
    assert [fact.labels for fact in facts] == [{"trusted": 4}] * 2  # type: ignore[union-attr]
    assert sent == "FLOW_ORIGIN"

    async def mails_again(session: Session) -> list[Any]:
        told = await session.call("list_mail", id="mail")
        return [told.value, told.repeats != "", await send(session, "mallory@evil.example")]

    value, is_repeated, sent = run(opened(), mails_again)
    assert (value, is_repeated, sent) == (MAILS, True, "FLOW_ORIGIN")
    facts = [entry.flow for entry in ledger.receipts if entry.tool == "list_mail"]
    assert isinstance(facts[1], FlowFact)
    assert facts[1].taints is True
    assert facts[0].labels == facts[1].labels  # type: ignore[union-attr]


def read_again(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> list[FlowFact]:
    """What the receipts say about a file that is read under one policy, and again with the same id under another."""
    ledger, kept = MemoryLedger(), MemoryKeptCalls()
    files = {f"{folder}/note.txt": "Ask dora@corp.example."}
    for flow in (first, second):
        backends = Backends.memory(files=files, ledger=ledger, kept_calls=kept)
        at = mail_gate(folder, backends=backends, flow={"results": {"send_mail": "ack"}, **flow})
        assert run(at, lambda session: session.call("read_file", {"path": f"{folder}/note.txt"}, id="note")).ok
    facts = [entry.flow for entry in ledger.receipts]
    assert [entry.repeats for entry in ledger.receipts] == [UNSET, ledger.receipts[0].id]
    return [one for one in facts if isinstance(one, FlowFact)]


def test_what_a_call_had_read_labels_its_result_again(tmp_path: Path) -> None:
    flow = {
        "sources": [{"use": f"fs:read:{tmp_path}", "label": "trusted"}],
        "secrets": [{"from": f"fs:read:{tmp_path}/note.txt", "readers": []}],
    }
    one, two = read_again(tmp_path, flow, flow)
    assert one.labels == two.labels == {"trusted": 1}
    assert one.secrets == two.secrets != UNSET
    assert one.taints == two.taints == UNSET


def test_under_another_policy_what_was_kept_is_untrusted_and_may_be_secret(tmp_path: Path) -> None:
    flow = {"sources": [{"use": f"fs:read:{tmp_path}", "label": "trusted"}]}
    one, two = read_again(tmp_path, flow, {**flow, "secrets": [{"from": "fs:read:/srv/other", "readers": []}]})
    assert (one.labels, one.taints, one.secrets) == ({"trusted": 1}, UNSET, UNSET)
    assert (two.labels, two.taints) == (UNSET, True)
    assert two.secrets != UNSET


# Processes -----------------------------------------------------------------------------------------------------------

HOST = """
import asyncio, sys, time
from pathlib import Path
from licet import Backends, Context, Gate, Manifest, tool

place = Path(sys.argv[1])

@tool(needs=[], effect="read_only", sandbox="native")
async def pay(amount: int) -> str:
    "Pay."
    with open(place / "paid", "a") as file:
        file.write(f"{amount}\\n")
    await asyncio.sleep(float(sys.argv[2]))
    return f"paid {amount}"

manifest = Manifest.from_data({"agent": "desk", "capabilities": {"tools": ["pay"], "native": ["pay"]}})

async def scene():
    with Backends.local(place / "state") as backends:
        async with Gate(manifest, [pay], backends).session("s") as session:
            result = await session.call("pay", {"amount": 7}, id="order-1")
            print(result.reason, result.value, bool(result.repeats), flush=True)

asyncio.run(scene())
"""


def host(place: Path, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOST, str(place), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(path: Path) -> None:
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_call_is_repeated_by_another_process(store_path: Path) -> None:
    first = host(store_path, 0.5)
    wait_for(store_path / "paid")
    waits = host(store_path, 0.5)
    told = [process.communicate(timeout=30)[0] for process in (first, waits, host(store_path, 0))]
    assert told == ["ALLOWED paid 7 False\n", "ALLOWED paid 7 True\n", "ALLOWED paid 7 True\n"]
    assert (store_path / "paid").read_text() == "7\n"


def test_a_call_whose_process_was_killed_is_never_run_again(store_path: Path) -> None:
    first = host(store_path, 60)
    wait_for(store_path / "paid")
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=30)
    for _ in range(2):
        assert host(store_path, 0).communicate(timeout=30)[0] == "CALL_UNKNOWN None False\n"
    assert (store_path / "paid").read_text() == "7\n"
