"""Commands on a state in PostgreSQL, as a user of the database with the least rights, in processes of their own."""

import asyncio
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

import warm
from postgres_server import server

SOURCE = """
from licet import Context, tool


@tool(capabilities={"storage": {"scope": "session"}}, effect="read_only", sandbox="native")
async def count(ctx: Context) -> int:
    number = (await ctx.kv.get("n") or 0) + 1
    await ctx.kv.set("n", number)
    return number

"""
POLICY: dict[str, Any] = {
    "agent": "counter",
    "tools": {"count": {"from": "counting:count"}, "write_file": {"from": "licet.tools:write_file"}},
    "capabilities": {
        "tools": {"count": {}, "write_file": {"sandbox": "native"}},
        "native": ["count", "write_file"],
        "max_side_effect_class": "write_limited",
        "fs_reach": {"write": ["${workdir}/drafts"]},
        "approvals": {"write": "call"},
        "budget": {"max_calls_per_session": 4},
        "limits": {"wall_seconds": 5},
    },
}


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest) -> str:
    """A user of the server who may do what processes need, and nothing else."""
    made = "DO $$ BEGIN CREATE ROLE runner LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"  # by another file
    asyncio.run(server().sql(made, "GRANT licet_runtime TO runner", "SELECT 1"))
    return "runner"


class Desk:
    """A project, whose commands run in processes of their own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address

    def run(self, *words: str, code: int = 0, state: str = "", at: str = "state", **environ: str) -> str:
        env = {**os.environ, "XDG_STATE_HOME": str(self.folder / at), "LICET_STATE": state or self.address}
        done: subprocess.CompletedProcess[str] = warm.run(warm.PROGRAM, words, cwd=self.folder, env={**env, **environ})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def desk(tmp_path: Path, postgres: str, runner: str) -> Desk:
    (tmp_path / "counting.py").write_text(SOURCE)
    (tmp_path / "agent.yaml").write_text(json.dumps(POLICY))
    return Desk(tmp_path, postgres.replace("//postgres@", f"//{runner}@"))


def test_a_user_with_the_role_of_processes_alone_can_do_everything(desk: Desk) -> None:
    assert desk.run("call", "agent.yaml", "count") == "1\n"
    assert desk.run("call", "agent.yaml", "count") == "2\n"
    receipts = json.loads(desk.run("receipts", "list", "--json"))["receipts"]
    assert [one["verdict"] for one in receipts] == ["allow", "allow"]
    assert "fine: " in desk.run("receipts", "verify")
    assert f"receipt {receipts[0]['id']}"[8:] in desk.run("explain", receipts[0]["id"])

    (desk.folder / "drafts").mkdir()
    write = ("call", "agent.yaml", "write_file", "path=drafts/a.md", "text=Rain.")
    said = desk.run(*write, code=1)
    # Nothing in the message needs the variable: the address is in the command that it names.
    assert f"--state '{desk.address}'" in said
    request = json.loads(desk.run("approvals", "list", "--json"))["requests"][0]["id"]
    desk.run("approvals", "approve", request, "--yes")
    desk.run(*write)
    assert (desk.folder / "drafts" / "a.md").read_text() == "Rain."

    desk.run("session", "end", "main")
    assert json.loads(desk.run("session", "list", "--json"))["sessions"] == []
    assert desk.run("call", "agent.yaml", "count") == "1\n"  # in `main-2`
    assert "SESSION_ENDED" in desk.run("call", "agent.yaml", "count", "--session", "main", "--json", code=1)

    desk.run("freeze", "--why", "strange mails")
    assert "strange mails" in desk.run("call", "agent.yaml", "count", code=1)
    desk.run("thaw", "--all")
    assert desk.run("call", "agent.yaml", "count") == "2\n"
    assert "fine: " in desk.run("receipts", "verify")

    # Nothing of this was kept on this machine, but for the keys of the node.
    kept = {path.name for path in (desk.folder / "state").rglob("*") if path.is_file()}
    assert {"ledger.key", "ledger.pub", "node.key"} <= kept
    assert not {name for name in kept if name.endswith(".sqlite")}

    async def cannot() -> list[str]:
        name = urlsplit(desk.address).path.removeprefix("/")
        connection = await asyncpg.connect(host=str(server().folder), user="runner", database=name)
        refused = []
        try:
            for table in ("entries", "batches", "places", "heads", "ledger", "steps", "state_acts"):
                for statement in (f"DELETE FROM licet.{table}", f"TRUNCATE licet.{table}"):
                    try:
                        await connection.execute(statement)
                    except asyncpg.InsufficientPrivilegeError:
                        refused.append(statement)
            for column in ("body", "hash", "sequence"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(f"UPDATE licet.entries SET {column} = {column}")
        finally:
            await connection.close()
        return refused

    assert len(asyncio.run(cannot())) == 14


def test_a_budget_is_one_for_all_nodes(desk: Desk) -> None:
    for number in range(1, 5):
        assert desk.run("call", "agent.yaml", "count") == f"{number}\n"
    assert "BUDGET" in desk.run("call", "agent.yaml", "count", "--json", code=1)


def test_another_node_writes_once_it_is_enrolled(desk: Desk, tmp_path: Path) -> None:
    assert desk.run("call", "agent.yaml", "count") == "1\n"
    said = desk.run("call", "agent.yaml", "count", code=1, at="elsewhere")
    enrol = re.search(r"licet (state enrol ed25519:[A-Za-z0-9_-]{43})", said)
    assert enrol is not None, said
    # A node without the key of the ledger cannot enrol itself.
    assert "another node" in desk.run(*enrol[1].split(), code=1, at="elsewhere")
    desk.run(*enrol[1].split())
    assert desk.run("call", "agent.yaml", "count", at="elsewhere") == "2\n"
    nodes = json.loads(desk.run("state", "nodes", "--json"))["nodes"]
    assert sorted((one["enrolled"], one["this_node"]) for one in nodes) == [(True, False), (True, True)]
    desk.run("state", "dismiss", enrol[1].split()[-1])
    assert "dismissed" in desk.run("state", "nodes")
    desk.run("call", "agent.yaml", "count", code=1, at="elsewhere")
    assert "a state directory has no nodes" in desk.run("state", "nodes", "--state", str(tmp_path), code=2)


def test_operators_are_set_first_or_later_and_nodes_go_on(desk: Desk, tmp_path: Path) -> None:
    anna, bert = (desk.run("state", "key", f"{name}.pem").strip() for name in ("anna", "bert"))

    def joins(at: str, operator: str) -> None:
        """As docs/nodes.md says: the keys of the operators are pinned, and one of them enrols the node."""
        said = desk.run("state", "init", "--operator", anna, at=at)
        enrol = re.search(r"licet (state enrol ed25519:[A-Za-z0-9_-]{43}) --key FILE", said)
        assert enrol is not None, said
        assert "another node" not in desk.run(*enrol[1].split(), code=1)  # the key of the ledger enrols nobody now
        desk.run(*enrol[1].split(), "--key", operator, at="operator")  # a machine that is no node

    assert "operators set" in (said := desk.run("state", "init", "--operator", anna))
    assert "not enrolled" not in said
    assert desk.run("call", "agent.yaml", "count") == "1\n"
    joins("second", "anna.pem")
    assert desk.run("call", "agent.yaml", "count", at="second") == "2\n"
    assert "fine: " in desk.run("receipts", "verify")

    # Other operators: both nodes go on once they know them, and what was written before still counts.
    desk.run("state", "init", "--operator", bert, "--key", "anna.pem")
    assert "has other operators" in desk.run("call", "agent.yaml", "count", at="second", code=1)
    assert "known: pinned here" in desk.run("state", "init", "--operator", bert, at="second")
    assert desk.run("call", "agent.yaml", "count", at="second") == "3\n"
    assert desk.run("call", "agent.yaml", "count") == "4\n"
    assert "fine: " in desk.run("receipts", "verify")


def test_a_state_with_operators_moves_to_a_database_and_back(desk: Desk, tmp_path: Path, postgres: str) -> None:
    anna = desk.run("state", "key", "anna.pem").strip()
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    desk.run("state", "init", "--operator", anna, state=there)
    assert desk.run("call", "agent.yaml", "count", state=there) == "1\n"
    desk.run("state", "move", there, postgres)  # as the owner of the tables, from whom nodes differ by nothing
    assert anna in desk.run("state", "show")
    for at in ("state", "second"):
        enrol = re.search(r"licet (state enrol \S+) --key", desk.run("state", "init", "--operator", anna, at=at))
        assert enrol is not None
        desk.run(*enrol[1].split(), "--key", "anna.pem")
    assert desk.run("call", "agent.yaml", "count") == "2\n"
    assert desk.run("call", "agent.yaml", "count", at="second") == "3\n"

    # Who may not move it leaves no key behind, with which the directory would look robbed.
    assert "who owns its tables may move a ledger" in desk.run("state", "move", desk.address, back, code=1)
    assert not (tmp_path / "back" / "ledger.key").exists()
    # Entries of the second node had no place so far, and no gate runs that gives them one.
    desk.run("state", "move", postgres, back)
    assert desk.run("call", "agent.yaml", "count", state=back) == "4\n"
    assert "fine: " in desk.run("receipts", "verify", state=back)


@pytest.mark.parametrize("text", ["postgresql:/runner@/x", "postgresql:runner@/x", "postgres:/x"])
def test_an_address_with_a_slash_too_few_is_no_directory(desk: Desk, text: str) -> None:
    assert "is no state" in desk.run("call", "agent.yaml", "count", "--state", text, code=2)
    assert not list(desk.folder.glob("postgres*"))


def test_a_command_waits_once_for_a_server_that_it_never_reached(desk: Desk, tmp_path: Path) -> None:
    limits = {"capabilities": {**POLICY["capabilities"], "limits": {"wall_seconds": 2}}}
    (tmp_path / "agent.yaml").write_text(json.dumps(POLICY | limits))
    began = time.monotonic()
    said = desk.run("call", "agent.yaml", "count", state=f"postgresql://runner@/x?host={tmp_path}", code=1)
    assert "cannot be reached" in said or "did not answer" in said
    assert time.monotonic() - began < 20


def test_a_password_is_found_in_the_secrets_of_the_command(desk: Desk, tmp_path: Path) -> None:
    address = f"{desk.address}&password=secret:db/licet"
    said = desk.run("call", "agent.yaml", "count", code=1, state=address)
    assert "the secret `db/licet`, the password of the state, is not known here" in said
    assert desk.run("call", "agent.yaml", "count", state=address, DB__LICET="x") == "1\n"
    file = tmp_path / "secrets.env"
    file.write_text("db/licet=x\n")
    file.chmod(0o600)
    assert desk.run("call", "agent.yaml", "count", "--secrets", str(file), state=address) == "2\n"


def test_a_server_that_is_away_refuses_the_call_in_its_time(desk: Desk, tmp_path: Path) -> None:
    # A standing approval is looked up before the call, and its session at the beginning of the call.
    limits = {"limits": {"wall_seconds": 1}, "approvals": {"delete": "manifest"}}
    (tmp_path / "agent.yaml").write_text(json.dumps(POLICY | {"capabilities": {**POLICY["capabilities"], **limits}}))
    away, began = f"postgresql://runner@/x?host={tmp_path}", time.monotonic()
    said = desk.run("call", "agent.yaml", "count", "--state", away, "--json", code=1)
    assert json.loads(said)["reason"] == "LEDGER_UNAVAILABLE"
    assert time.monotonic() - began < 8  # where one of them has a time of its own, it is 10 seconds
