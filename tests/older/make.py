"""Makes what a version leaves behind, for the tests of all later versions: `python -m older.make older/COMMIT`.

It runs in `tests`, with the code of the commit that the directory is named after, and is never run again for that
commit. What differs from machine to machine is left out: the clock is that of the desk, and paths are below `/desk` and
`/srv`. Keys, nonces and ids are random.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from msgspec.structs import replace

from licet import load_manifest
from licet.assemble.operators import set_operators
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.backends.secrets import create_key, read_approver_key
from licet.cli.app import licet
from licet.core.ledger.entry import (
    AccessCounts,
    AccessFact,
    AgentFact,
    Caller,
    Entry,
    EventFact,
    ObservedFact,
    ProgramAccessFact,
    ProgramsFact,
    SandboxFact,
)
from licet.core.policy.lock import LockedDistribution, Resolved, lock_digest, read_lock, write_lock
from licet.core.policy.terms import Approvals
from licet.guard.facts import Call
from licet.guard.freezing import freeze_act, freeze_state, keep_act, thaw_act
from licet.guard.open_call import kept, open_call
from licet.guard.ports import Claim
from licet.hooks.resident_place import address
from licet.hooks.resident_wire import TAKEN, WANTED, packed
from licet.hooks.tickets import AgentShell, Ticket, Tickets, digest_of
from licet.policy_files.trust import accept
from older.desk import START, DatabaseStores, FileStores, Still, Stores
from older.policies import write_policies

Facts = dict[str, Any]
LINE = "echo hi"
_REQUEST = re.compile(r"\ba-[0-9a-f]{12}\b")
OUTCOMES = {
    **dict.fromkeys(("expired", "waiting", "given", "used", "refused", "session", "signed"), "APPROVAL_REQUIRED"),
    "denied": "PATH_NOT_REACHABLE",
    "unknown": "UNKNOWN_TOOL",
    "failed": "TOOL_FAILED",
}
POLICIES = ["desk.yaml", "signed.yaml", "mail.yaml", "every/agent.yaml", "locked/agent.yaml"]
CONVERSATIONS = [
    (["hook", "claude", "PreToolUse"], b'{"do": "refuse", "tool_name": "Bash", "tool_input": {"command": "ls"}}'),
    (["hook", "codex", "PostToolUse"], b'{"do": "crash"}'),
    (["line", "", "echo hi; exit 7"], b""),
    (["line", "", "kill -TERM $$"], b""),
    (["line", "bad", "echo hi"], b""),
    (["line", "TOKEN,ABSENT", "echo $TOKEN; exit 3"], b""),
]

_EVENTS = (
    EventFact(kind="CapabilityGranted", capability="tool:call:agent", reason="", rule=""),
    EventFact(kind="KeyPlaced", capability="secret:read:github/token", rule="api.github.com"),
    EventFact(kind="RequestMade", capability="network:https:get@api.github.com", rule="GET /repos/x → 200, 1234 bytes"),
    EventFact(kind="CapabilityDenied", capability="network:https:post@evil.example", reason="HOST_NOT_ALLOWED",
              rule="no rule"),
    EventFact(kind="KeyKept", capability="secret:read:github/token", rule="in the query"),
    EventFact(kind="RequestMade", rule="9 more of these, which are not listed", count=9),
)  # fmt: skip


def _rare() -> Iterator[Entry]:
    """Entries of commands, hooks and gateways, with the facts that no call of the desk has."""
    access = AccessFact(
        granted=("fs:read:/srv/data",), closed=("fs:read:/srv/data/.env",),
        rules=("read /srv/data", "hide /srv/data/.env"), runtime=("read /usr/lib",),
        counts=AccessCounts(granted=1, closed=1, rules=2, runtime=1), digest="sha256:0", direct=False,
    )  # fmt: skip
    programs = ProgramsFact(
        access=ProgramAccessFact(sets=(access,), more=1, digest="sha256:0"), ended=(0, -9), layers=("landlock",),
        missing=("seccomp",),
    )  # fmt: skip
    common: dict[str, Any] = {"agent": "desk", "session": "programs", "time": START.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
              "manifest": "sha256:0"}  # fmt: skip
    for kind, events in (("decision", _EVENTS[:1]), ("progress", _EVENTS[1:3]), ("progress", _EVENTS[3:4]),
                         ("receipt", _EVENTS)):  # fmt: skip
        yield Entry(kind=kind, id="r-1-1", tool="agent", events=events, **common)  # type: ignore[arg-type]
    yield Entry(kind="decision", id="r-1-2", tool="agent", events=_EVENTS[:1], **common)
    yield Entry(kind="progress", id="r-1-2", tool="agent", events=_EVENTS[3:4], **common)
    yield Entry(
        kind="receipt", id="r-1-3", tool="Bash", organisation=("sha256:1",), purpose="to see what is there",
        flags=("--allow-read=/srv/data",), caller=Caller(person="ada", client="desk", actors=("agent", "gateway")),
        observed=ObservedFact(verdict="deny", reasons=("HOST_NOT_ALLOWED",), rules=("no rule",), walls=False),
        sandbox=SandboxFact(level="isolated", layers=("landlock",), missing=("seccomp",), access=access,
                            programs=programs),
        coding_agent=AgentFact(name="claude", version="2.0", call="toolu_1", subagent="helper", event="PreToolUse",
                               rewritten=True, asked=True, in_order=True, end="reported"),
        duration_ms="12.5", truncated=True, **common,
    )  # fmt: skip


async def live(stores: Stores, keys: Path) -> Facts:
    """Let the desk work, and tell the names of what it leaves behind."""
    operator, alice = (read_approver_key(keys / f"{name}.key") for name in ("operator", "alice"))
    clock, requests, receipts = stores.clock, dict[str, str](), dict[str, str]()

    async def call(name: str, session: str, tool: str, policy: str = "desk.yaml", /, **given: Any) -> Any:
        clock.moment += timedelta(minutes=1)
        result = await stores.call(session, tool, policy, **given)
        assert result.reason == OUTCOMES.get(name, "ALLOWED"), (name, result)
        receipts[name] = result.receipt
        if (asked := _REQUEST.search(result.explain())) is not None:
            requests[name] = asked[0]
        return result

    async def answer(name: str, **how: Any) -> None:
        await stores.approvals.approve(await stores.approvals.find(requests[name]), **how)

    for entry in _rare():
        await stores.ledger.record(entry)
    await set_operators(stores.freezes, stores.ledger, [operator.public], clock.now())
    await call("expired", "main", "note", name="expired")
    clock.moment = START + timedelta(days=3)
    await call("allowed", "main", "look", path="/srv/notes/a")
    await call("denied", "main", "look", path="/etc/passwd")
    await call("unknown", "main", "nope")
    await call("failed", "main", "fail")
    for name in ("waiting", "given", "used", "refused"):
        await call(name, "main", "note", name=name)
    for name in ("given", "used"):
        await answer(name)
    await call("used up", "main", "note", name="used")
    await stores.approvals.deny(await stores.approvals.find(requests["refused"]))
    await call("session", "main", "jot", name="first")
    await answer("session")
    await call("session again", "main", "jot", name="second")
    await call("signed", "signed", "note", "signed.yaml", name="signed")
    await answer("signed", key=alice)
    deletes, approvals = ["fs:delete:/srv/notes/out"], Approvals(delete="manifest")
    digest = load_manifest(stores.policies / "desk.yaml").digest
    standing = [await stores.standing.give(digest, "desk", "/desk", deletes, approvals, days) for days in (30, 7)]
    await stores.standing.withdraw(standing[1])
    for number in (1, 2):
        await call(f"spent {number}", "spent", "pay", order=f"spent-{number}")
    day = clock.now().strftime("%Y-%m-%d")
    budget = load_manifest(stores.policies / "desk.yaml").budget
    await stores.budgets.reserve(Claim("desk", "crashed", "pay", day, Decimal("0.25"), budget, 3, Decimal(2)))
    await call("kept", "kept", "pay", id="order-1", order="kept")
    await call("repeated", "kept", "pay", id="order-1", order="kept")
    finish, stores.kept_calls.finish = stores.kept_calls.finish, _lost  # type: ignore[method-assign, assignment]
    await call("lost", "kept", "pay", id="order-2", order="lost")
    stores.kept_calls.finish = finish  # type: ignore[method-assign]
    async with stores.gate("desk.yaml").session("main") as session:
        delegate = session.delegate(agent="helper", allow=["tool:call:look", "fs:read:/srv/notes"])
        receipts["delegated"] = (await delegate.call("look", {"path": "/srv/notes/a"})).receipt
        receipts["delegate denied"] = (await delegate.call("pay", {"order": "x"})).receipt
    await call("counted", "counting", "count", step=2)
    await call("counted away", "over", "count", step=2)
    async with stores.gate("desk.yaml").session("over") as session:
        await session.end()
    await stores.kv.set("personality/desk", "colour", {"name": "blue"})
    await stores.kv.set("personality/desk", "gone", 1, 60)
    async with stores.gate("mail.yaml").session("mail", task="Mail the plan to bob@else.test") as session:
        receipts["read"] = (await session.call("read_mail", {"name": "eve"})).receipt
        asked = await session.call("send_mail", {"to": "drop@collector.test", "body": "The plan"})
        receipts["flow"], requests["flow"] = asked.receipt, _REQUEST.findall(asked.explain())[0]
    clock.moment += timedelta(minutes=1)
    freezes = [freeze_act(clock.now(), why, "command", *about)
               for why, about in (("strange calls", ("desk", "count")), ("a drill", ("other", None)))]  # fmt: skip
    for act in freezes:
        await freeze_state(stores.freezes, stores.ledger, act)
    view = await stores.freezes.view()
    thaw = thaw_act([freezes[1].id], clock.now(), view, "command", operator)
    await keep_act(stores.freezes, stores.ledger, thaw)
    return {
        "requests": requests,
        "receipts": receipts,
        "standing": {"given": standing[0].request.id, "withdrawn": standing[1].request.id},
        "freezes": {"in force": freezes[0].id, "ended": freezes[1].id},
        "manifest": digest,
    }


async def _lost(*_: object) -> None:
    """Keep nothing: the process has ended meanwhile."""


async def issued(stores: Stores, directory: Path) -> str:
    """Decide a call that is run later, by another process, and issue its ticket."""
    session, policy = stores.gate("desk.yaml").session("line"), stores.policies / "desk.yaml"
    call = await open_call(session, session.admission, "pay", {"order": "line"})
    assert isinstance(call, Call)
    ticket = Ticket(
        agent="claude", session="line", text_digest=digest_of(LINE), shell=AgentShell("/bin/sh", "directory"),
        directory="/desk", policy="/desk/desk.yaml", policy_digest=load_manifest(policy).digest, workdir="/desk",
        call=kept(call), expires=0.0,
    )  # fmt: skip
    return Tickets(directory).issue(ticket)


def dumped(path: Path) -> str:
    """A file of SQLite as the statements that make it again."""
    with closing(sqlite3.connect(path)) as db:
        numbers = [f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};"
                   for name in ("application_id", "user_version")]  # fmt: skip
        text = "\n".join(["PRAGMA journal_mode = WAL;", *db.iterdump(), *numbers]) + "\n"
    return re.sub(r"'\d{4}-\d\d-\d\dT[\d:.]+\+00:00'", "'2026-03-04T12:00:00+00:00'", text)


def make_files(folder: Path, policies: Path, scratch: Path) -> None:
    """A state in a directory, the ticket of a line that nobody has run yet, and evidence packs."""
    folder.mkdir()
    state = scratch / "state"
    stores = FileStores(state, Still(), policies)

    async def opened() -> tuple[Facts, str]:
        facts = await live(stores, folder.parent / "keys")
        return facts, await issued(stores, scratch / "tickets")

    facts, ticket = asyncio.run(opened())
    stores.close()
    shutil.copy(scratch / "tickets" / ticket, folder / "ticket.json")
    packs = folder / "packs"
    packs.mkdir()
    for name, words in {
        "session": ("--session", "main", "--agent", "desk"),
        "calls": (facts["receipts"]["allowed"], facts["receipts"]["kept"], "r-1-1"),
    }.items():
        words = ("receipts", "export", *words, "-o", str(packs / f"{name}.json"), "--state", str(state))
        done = CliRunner().invoke(licet, words, prog_name="licet", catch_exceptions=False)
        assert done.exit_code == 0, done.output
    for path in sorted(state.iterdir()):
        if path.suffix == ".sqlite":
            (folder / f"{path.stem}.sql").write_text(dumped(path))
        elif "-" not in path.name:  # a lock, or what SQLite needs while a file is open
            shutil.copy(path, folder / path.name)
    write_json(folder / "facts.json", facts)


def make_database(folder: Path, policies: Path, scratch: Path) -> None:
    """A state in a database, as a dump; and what its only node keeps for itself."""
    from postgres_server import fresh, server

    folder.mkdir()
    address, node = fresh(), scratch / "node"
    stores = DatabaseStores(address, node, Still(), policies)
    facts = asyncio.run(live(stores, folder.parent / "keys"))
    assert isinstance(stores.ledger, PostgresLedger)
    stores.ledger.place_waiting()
    stores.close()
    words = ["pg_dump", "--inserts", "--rows-per-insert=50", "--no-owner", "--schema=licet", address]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    drops = ("\\restrict", "\\unrestrict", "-- Dumped ")  # of some versions of pg_dump, and about them
    lines = [line for line in text.splitlines() if not line.startswith(drops)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    # Times of the server itself: what depends on them is moved by who restores the dump.
    text = re.sub(r"'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*\+00'", "'2026-03-04 12:00:00+00'", text)
    assert str(server().folder) not in text
    (folder / "licet.sql").write_text(text + "\n")
    shutil.copytree(node, folder / "node")
    write_json(folder / "facts.json", facts)


def make_locks(policies: Path) -> None:
    """A lock that `licet lock` wrote; and one with what needs a registry, or another machine."""
    locked = policies / "locked"
    with chdir(locked):
        done = CliRunner().invoke(licet, ["lock", "agent.yaml"], prog_name="licet", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lock = read_lock((locked / "licet.lock").read_bytes())
    (server,) = lock.servers.values()
    packages = {"linux-x86_64": {"weather": "sha512-abc", "zod": "sha512-def"}}
    servers = {
        "npm": replace(server, command=("npx", "-y", "weather@1"), volatile={"tools/today": ("description",)},
                       resolved=Resolved("npm", "weather", "1.2.3", "weather", packages)),
        "pypi": replace(server, command=("uvx", "weather"), hidden=("instructions",), announced=("roots", "sampling"),
                        instructions="Ask\u200b for a city.",
                        resolved=Resolved("pypi", "weather", "1.0", "weather", packages)),
        "installed": replace(server, resolved=Resolved("distribution", "weather", "1.0", "weather")),
        "docker": replace(server, command=("docker", "run", "weather"), resolved=Resolved("docker", "weather:1"),
                          refused={"tools/resources": "a name that clients use"}),
        "remote": replace(server, command=(), url="https://mcp.example.com/mcp", resolved=None, version="2026-07-28",
                          claimed_version="2.1"),
        "own": replace(server, code={"${workdir}/served": {"a.py": "sha256:" + 64 * "0"}}),
    }  # fmt: skip
    distributions = {"desk-tools": LockedDistribution("1.0", {"any": "sha256:" + 64 * "0"})}
    (policies / "packages.lock").write_bytes(write_lock(replace(lock, servers=servers, distributions=distributions)))


def make_trust(folder: Path, policies: Path) -> None:
    """The list of policies that a user has accepted, with copies. Nothing is at their paths."""
    os.environ["XDG_STATE_HOME"] = str(folder)
    for name, lock in (("desk.yaml", False), ("locked/agent.yaml", True)):
        manifest = load_manifest(policies / name)
        text = (policies / "locked" / "licet.lock").read_text() if lock else ""
        accept(
            f"/desk/{name}", manifest.digest, {Path(name).name: (policies / name).read_text()}, START,
            lock=lock_digest(manifest.lock), lock_text=text,
        )  # fmt: skip


def make_wire(path: Path, scratch: Path) -> None:
    """What clients and the resident of an installation say to each other, in hexadecimal."""
    from hooks.installation import Installation
    from hooks.residents import Connection, named, stopped

    installed = Installation(scratch / "it", START_SECONDS=60)
    installed.hook()  # starts a resident
    (name,) = named(installed)
    stopped(installed)
    said = []
    for words, given in CONVERSATIONS:
        (installed.place / f"{name}.sock").unlink()
        request, streams, values = _asked(installed, name, words, given)
        installed.hook()
        connection = Connection(installed)
        if streams:
            socket.send_fds(connection.end, [request], [0, 1, 2])
        else:
            connection.end.sendall(request)
        if values:
            connection.end.sendall(values)
        answer = connection.said()
        said.append({"words": words, "stdin": given.decode(), "streams": streams, "request": request.hex(),
                     "values": values.hex(), "answer": answer.hex()})  # fmt: skip
        stopped(installed)
    write_json(path, said)


def _asked(installed: Any, name: str, words: list[str], given: bytes) -> tuple[bytes, int, bytes]:
    """What a client says to a resident, how many descriptors it passes on, and the values that it is asked for."""
    wanted = words[1].split(",") if "," in words[1] else []
    place = os.open(installed.place, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(place, name))
        listener.listen()
        client = subprocess.Popen(
            installed.words(*words), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=installed.environment(TOKEN="a token"), cwd="/",
        )  # fmt: skip
        assert client.stdin is not None
        client.stdin.write(given)
        client.stdin.close()
        end, _ = listener.accept()
        data, streams, _, _ = socket.recv_fds(end, 1 << 16, 3)
        values = b""
        if wanted:
            end.sendall(packed(TAKEN) + packed(WANTED, *(word.encode() for word in wanted)))
            values = end.recv(1 << 16)
        client.kill()
        client.wait()
        end.close()
    os.close(place)
    return data, len(streams), values


def write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def main(directory: Path) -> None:
    """Make everything in a new directory."""
    directory.mkdir()
    (directory / "keys").mkdir()
    scratch = Path(tempfile.mkdtemp())
    keys = directory / "keys"
    _, alice, bob = (create_key(str(keys / f"{name}.key")).public for name in ("operator", "alice", "bob"))
    try:
        write_policies(directory / "policies", alice, bob)
        make_locks(directory / "policies")
        digests = {name: load_manifest(directory / "policies" / name).digest for name in POLICIES}
        write_json(directory / "policies" / "digests.json", digests)
        make_trust(directory / "trust", directory / "policies")
        (directory / "trust" / "licet" / "trust.lock").unlink()
        make_wire(directory / "wire.json", scratch)
        make_files(directory / "files", directory / "policies", scratch)
        make_database(directory / "database", directory / "policies", scratch)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
