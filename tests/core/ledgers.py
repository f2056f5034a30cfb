"""Ledgers for tests of the core: entries linked by hand, and checkpoints signed by a key that anybody can compute."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

from licet.core.ledger.entry import (
    START,
    AccessCounts,
    AccessFact,
    AgentFact,
    ApprovalFact,
    BodiesFact,
    BudgetFact,
    BundleBudgetFact,
    Caller,
    Checkpoint,
    Entry,
    EventFact,
    FlowFact,
    FoundFact,
    MetFact,
    NodeFact,
    ObservedFact,
    ParentFact,
    ProgramAccessFact,
    ProgramsFact,
    Row,
    SandboxFact,
    SecretFact,
    SpentFact,
    StandingFact,
    StateFact,
    Tail,
    UnmetFact,
    checkpoint_body,
    link,
)
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify import Outcome, verify

LEDGER, KEY, OTHER_KEY = "ledger-1", "test:key", "test:other"


def sign(key: str, message: bytes) -> bytes:
    """A stand-in for a signature that needs only the text of the key."""
    return hashlib.sha256(key.encode() + message).digest()


def check(key: str, message: bytes, signature: bytes) -> bool:
    return sign(key, message) == signature


_ACCESS = AccessFact(
    granted=("fs:read:/srv",),
    closed=("fs:read:/srv/x",),
    rules=("read /srv",),
    runtime=("read /usr",),
    counts=AccessCounts(granted=1, closed=1, rules=1, runtime=9),
    digest="sha256:c",
    direct=True,
)
_SPENT = SpentFact(
    calls=1, calls_of_tool=1, calls_today=1, cost_usd="0.25", cost_usd_of_tool="0.25", cost_usd_today="0.25"
)


def sample_entry(
    number: int, session: str = "s", agent: str = "a", kind: Literal["decision", "progress", "receipt"] = "receipt"
) -> Entry:
    """An entry in which every field has a value."""
    return Entry(
        kind=kind,
        id=f"r-{number}",
        agent=agent,
        session=session,
        tool="t",
        time="2026-01-01T00:00:00.000000Z",
        manifest="sha256:m",
        tool_digest="sha256:t",
        parent=ParentFact(agent="above", session=session),
        caller=Caller(person="ada", client="desk", actors=("planner", "worker")),
        purpose="to look it up",
        flags=("--allow-read=/srv",),
        arguments="sha256:a",
        bodies=BodiesFact(arguments="{}", result="1.5"),
        verdict="deny",
        organisation=("sha256:o",),
        observed=ObservedFact(verdict="deny", reasons=("R",), rules=("y (f:1)",), walls=False),
        coding_agent=AgentFact(
            name="claude",
            version="2.1.326",
            call="toolu_1",
            subagent="explore",
            event="PreToolUse",
            rewritten=True,
            asked=True,
            in_order=True,
            end="reported",
        ),
        reason="HOST_NOT_ALLOWED",
        rules=("y (f:1)",),
        approvals=(ApprovalFact(by=("x",), arguments="sha256:a", request="q-1", use="fs:delete:/w/f"),),
        budget=BudgetFact(before=_SPENT, after=_SPENT, bundles={"b": BundleBudgetFact(before=_SPENT, after=_SPENT)}),
        sandbox=SandboxFact(
            level="isolated",
            layers=("landlock",),
            access=_ACCESS,
            programs=ProgramsFact(
                access=ProgramAccessFact(sets=(_ACCESS,), more=1, digest="sha256:d"),
                ended=(0, -9),
                layers=("landlock",),
                missing=("seccomp",),
            ),
        ),
        events=(EventFact(kind="CapabilityDenied", capability="x", reason="R", rule="y (f:1)"),),
        code="execution_failed",
        error="é \\u0000 no",
        result="sha256:b",
        truncated=True,
        flow=FlowFact(
            tainted_by=("r-0",),
            unmet=(
                UnmetFact(
                    reason="FLOW_ORIGIN",
                    argument="to",
                    pointer="/0",
                    value_digest="hmac-sha256:v",
                    origins=(FoundFact(origin="seen", receipt="r-0", tool="t", pointer="/a", label="untrusted"),),
                    allowed=("task",),
                    rule="agent.yaml:3",
                ),
            ),
            met=(MetFact(argument="cc", origins=(FoundFact(origin="task"),)),),
            labels={"untrusted": 1},
            untrusted=("/a",),
            taints=True,
            secrets=(SecretFact(tool="t", fields=("card",), readers=("network:write:hr.example.com",)),),
        ),
        call_id="order-1",
        repeats="r-1",
        standing=StandingFact(directory="/w", deletes=("fs:delete:/w",), expires="2026-02-01", request="sha256:q"),
        state=StateFact(by="gate", agent="a", tool="t", why="w", about=("f-1",), act="{}", signature="00"),
        node=NodeFact(node="ed25519:n", act="e30=", signature="c2ln", by="ed25519:o"),
        cost_usd="0.25",
        duration_ms="1.234",
    )


def plain_entry(number: int, agent: str = "a", session: str = "s") -> Entry:
    """An entry with nothing but the required fields."""
    return Entry(kind="receipt", id=f"r-{number}", agent=agent, session=session, tool="t", time="then", manifest="m")


def rows(entries: Iterable[Entry], ledger: str = LEDGER, times: Iterable[int] | None = None) -> list[Row]:
    """A ledger of these entries."""
    tails: dict[tuple[str, str], Tail] = {}
    made: list[Row] = []
    for second, entry in zip(times or itertools.count(1), entries, strict=False):
        session = entry.agent, entry.session
        tail = tails.get(session, START)
        row = link(entry, ledger, len(made) + 1, tail, f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z")
        tails[session] = Tail(row.sequence, row.hash, row.number)
        made.append(row)
    return made


def checkpoints(entries: Sequence[Row], sizes: Iterable[int], ledger: str = LEDGER, key: str = KEY) -> list[Checkpoint]:
    """Signed checkpoints at these sizes."""
    frontier, made, wanted = Frontier(), [], set(sizes)
    for row in (None, *entries):
        if row is not None:
            frontier.add(row.hash)
        if frontier.size in wanted:
            body = checkpoint_body(ledger, frontier.size, frontier.root, "2026-01-01T00:01:00.000000Z", key)
            made.append(Checkpoint(frontier.size, body, sign(key, body)))
    return made


def verified(entries: Iterable[Row], signed: Iterable[Checkpoint], kept: Iterable[Checkpoint] = ()) -> Outcome:
    """The outcome of verifying a ledger with the key of these tests."""
    return verify(entries, signed, key=KEY, check=check, kept=kept)


__all__ = [
    "KEY", "LEDGER", "OTHER_KEY", "check", "checkpoints", "plain_entry", "rows", "sample_entry", "sign", "verified",
]  # fmt: skip
