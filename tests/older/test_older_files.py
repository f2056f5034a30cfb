"""Policies, locks, accepted policies, evidence, tickets and the wire of the resident, as earlier commits wrote them."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hooks.installation import PATIENCE, Installation
from hooks.residents import Connection, named, stopped
from licet import load_manifest
from licet.cli.app import licet
from licet.core.policy.lock import lock_digest, read_lock, write_lock
from licet.guard.open_call import restored, run_open
from licet.hooks import resident_wire as wire
from licet.hooks.resident_place import address
from licet.hooks.tickets import AgentShell, BadTicket, Tickets, digest_of
from licet.policy_files.trust import acceptance, accepted, accepted_files, accepted_lock
from older.desk import RAN, READ, FileStores, Still
from older_files import MADE_BY, OLDER, older_state, private_copy

residents = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="residents need SO_PEERCRED and /proc")


@pytest.fixture(params=MADE_BY)
def made(request: pytest.FixtureRequest) -> Path:
    return OLDER / str(request.param)


def run(*words: object) -> Result:
    return CliRunner().invoke(licet, [str(word) for word in words], prog_name="licet", catch_exceptions=False)


# Policies -------------------------------------------------------------------------------------------------------------


def test_policies_mean_what_they_meant(made: Path) -> None:
    digests = json.loads((made / "policies" / "digests.json").read_text())
    assert {name: load_manifest(made / "policies" / name).digest for name in digests} == digests


def test_policies_pass_their_check(made: Path) -> None:
    policies = made / "policies"
    every = policies / "every"
    more = "--personality", every / "personality.yaml", "--organisation", every / "organisation.yaml"
    names = [
        name for name in json.loads((policies / "digests.json").read_text()) if policies / name != every / "agent.yaml"
    ]
    for words in (
        *((policies / name,) for name in names),
        (every / "licet.yaml",),
        (every / "organisation.yaml",),
        (every / "agent.yaml", *more),
        (every / "agent.yaml", "--personality", every / "broad.yaml"),
    ):
        done = run("check", *words)
        assert done.exit_code == 0, done.output


def test_a_key_file_in_a_directory_that_programs_reach_is_refused_with_what_to_do(made: Path) -> None:
    """A log-in during a run replaced the file, and programs saw the key."""
    done = run("check", made / "policies" / "every" / "agent.yaml")
    assert done.exit_code == 1
    (error,) = (line for line in done.output.splitlines() if " error: " in line)
    assert "agent.yaml:33:5: error: found `/srv/keys/netrc.json` of the stand-in `FILE_KEY`" in error
    assert "grant the file alone, as `read: [/srv/keys/netrc.json]`" in error


# Locks ----------------------------------------------------------------------------------------------------------------


def test_a_lock_is_what_it_was(made: Path) -> None:
    for path in (made / "policies" / "locked" / "licet.lock", made / "policies" / "packages.lock"):
        assert write_lock(read_lock(path.read_bytes())) == path.read_bytes()


def test_nothing_differs_from_the_lock_until_a_source_changes(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "locked"
    shutil.copytree(made / "policies" / "locked", copy)
    words = "check", "--locked", copy / "agent.yaml", "--workdir", copy
    assert run(*words).exit_code == 0
    with (copy / "reports.py").open("a") as file:
        file.write("\n# changed\n")
    refused = run(*words)
    assert (refused.exit_code, "reports.py" in refused.output) == (1, True)


@pytest.mark.parametrize("change", [False, True])
def test_its_servers_are_compared_with_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: bool
) -> None:
    copy = tmp_path / "locked"
    shutil.copytree(made / "policies" / "locked", copy)
    if change:
        lock = (copy / "licet.lock").read_text()
        (copy / "licet.lock").write_text(lock.replace('"minimum":0.5', '"minimum":0.25'))
    monkeypatch.chdir(copy)
    done = run("lock", "agent.yaml")
    assert (done.exit_code, "today" in done.output) == ((1, True) if change else (0, False)), done.output


def test_accepted_policies_stay_accepted(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in sorted((made / "trust").rglob("*")):
        if file.is_file():
            private_copy(file, tmp_path / file.relative_to(made / "trust"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    policies = made / "policies"
    manifest, digest = load_manifest(policies / "locked" / "agent.yaml"), load_manifest(policies / "desk.yaml").digest
    assert set(accepted()) == {"/desk/desk.yaml", "/desk/locked/agent.yaml"}
    assert acceptance("/desk/desk.yaml", digest).answer == "accepted"
    assert acceptance("/desk/desk.yaml", manifest.digest).answer == "changed"
    assert acceptance("/desk/locked/agent.yaml", manifest.digest, lock_digest(manifest.lock)).answer == "accepted"
    assert acceptance("/desk/locked/agent.yaml", manifest.digest, "").answer == "changed"
    assert accepted_files("/desk/desk.yaml") == {"desk.yaml": (policies / "desk.yaml").read_text()}
    assert accepted_lock("/desk/locked/agent.yaml") == (policies / "locked" / "licet.lock").read_text()


# Evidence -------------------------------------------------------------------------------------------------------------


def test_evidence_is_verified_and_a_change_of_it_shown(made: Path, tmp_path: Path) -> None:
    key = (made / "files" / "ledger.pub").read_text().strip()
    for pack in sorted((made / "files" / "packs").iterdir()):
        done = run("receipts", "verify", pack, "--key", key)
        assert done.exit_code == 0, done.output
        envelope = json.loads(pack.read_text())
        payload = envelope["payload"]
        envelope["payload"] = payload[:400] + ("A" if payload[400] != "A" else "B") + payload[401:]
        (changed := tmp_path / pack.name).write_text(json.dumps(envelope))
        assert run("receipts", "verify", changed, "--key", key).exit_code == 1


# Lines that were decided, and not run ---------------------------------------------------------------------------------


def test_a_line_that_was_decided_runs_once(made: Path, tmp_path: Path, store_path: Path) -> None:
    name, line, kept = "0123456789abcdef" * 2, "echo hi", json.loads((made / "files" / "ticket.json").read_text())
    path = private_copy(made / "files" / "ticket.json", tmp_path / "tickets" / name)
    tickets, state = Tickets(path.parent), older_state(made, store_path / "state")
    stores = FileStores(state, Still(READ), made / "policies")
    path.write_text(json.dumps({**kept, "expires": time.time() + 60}))
    ticket = tickets.redeem(name, line)
    with pytest.raises(BadTicket, match="used already"):
        tickets.redeem(name, line)
    assert (ticket.agent, ticket.session, ticket.text_digest) == ("claude", "line", digest_of(line))
    assert (ticket.shell, ticket.directory, ticket.workdir) == (AgentShell("/bin/sh", "directory"), "/desk", "/desk")
    RAN.clear()

    async def ran() -> Any:
        gate = stores.gate("desk.yaml")
        assert ticket.policy_digest == gate.policy.digest
        return await run_open(restored(gate.session(ticket.session), ticket.call))

    result = asyncio.run(ran())
    assert (result.value, RAN) == ("paid line", ["pay line"])
    stores.close()
    shown = json.loads(run("receipts", "show", result.receipt, "--state", state, "--json").stdout)
    assert (shown["decision"]["kind"], shown["receipt"]["reason"]) == ("decision", "ALLOWED")
    assert run("receipts", "verify", "--state", state).exit_code == 0


def test_a_line_that_was_decided_long_ago_is_refused(made: Path, tmp_path: Path) -> None:
    private_copy(made / "files" / "ticket.json", tmp_path / "tickets" / ("0" * 32))
    with pytest.raises(BadTicket, match="has expired"):
        Tickets(tmp_path / "tickets").redeem("0" * 32, "echo hi")


# The wire of the resident ---------------------------------------------------------------------------------------------


def conversations(made: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((made / "wire.json").read_text())
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installation]:
    found = Installation(tmp_path / "it", START_SECONDS=60)
    yield found
    stopped(found)


@residents
def test_the_resident_answers_older_clients_as_it_did(made: Path, installed: Installation) -> None:
    installed.hook()  # starts it
    for said in conversations(made):
        connection, request = Connection(installed), bytes.fromhex(said["request"])
        with connection.end, open(os.devnull, "r+b") as nothing:
            if said["streams"]:
                socket.send_fds(connection.end, [request], [nothing.fileno()] * said["streams"])
            else:
                connection.end.sendall(request)
            if said["values"]:
                connection.end.sendall(bytes.fromhex(said["values"]))
            assert connection.said().hex() == said["answer"], said["words"]


@residents
def test_clients_understand_an_older_resident(made: Path, installed: Installation) -> None:
    installed.hook()
    (name,) = named(installed)
    stopped(installed)
    for said in conversations(made):
        done, asked = between(installed, name, said)
        assert asked.hex() == said["request"]
        kind, fields = wire.Messages(wire.FROM_RESIDENT).feed(bytes.fromhex(said["answer"]))[-1]
        if kind == wire.ANSWER:
            assert (done.stdout, done.stderr, done.returncode) == (fields[0], fields[1], wire.number_in(fields[2]))
        elif kind == wire.ENDED:
            assert done.returncode == wire.number_in(fields[0])
        else:
            assert kind == wire.REFUSED
            assert (done.returncode != 0) == (said["words"][0] == "line")
            assert fields[0].decode() in done.stderr.decode() or said["words"][0] == "hook"


def between(
    installed: Installation, name: str, said: dict[str, Any]
) -> tuple[subprocess.CompletedProcess[bytes], bytes]:
    """What becomes of a client that gets the answer of an older resident, and what it asked."""
    (installed.place / f"{name}.sock").unlink(missing_ok=True)
    place = os.open(installed.place, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(place, name))
        os.close(place)
        listener.listen()
        listener.settimeout(PATIENCE)
        with subprocess.Popen(
            installed.words(*said["words"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=installed.environment(TOKEN="a token"), cwd="/",
        ) as client:  # fmt: skip
            assert client.stdin is not None
            client.stdin.write(said["stdin"].encode())
            client.stdin.close()
            client.stdin = None
            end, _ = listener.accept()
            with end:
                asked, streams, _, _ = socket.recv_fds(end, 1 << 16, 3)
                for stream in streams:
                    os.close(stream)
                end.sendall(bytes.fromhex(said["answer"]))
                end.shutdown(socket.SHUT_WR)
                output, errors = client.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(said["words"], client.returncode, output, errors), asked
