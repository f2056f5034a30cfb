"""A state as text: what is a directory, what an address, and what is opened of each."""

import asyncio
import os
from pathlib import Path

import pytest

from command_line import enter_project, run
from gates import add
from licet import Backends, Gate
from licet.assemble.states import BadState, DatabaseState, DirectoryState, environment_state, own_directory, read_state
from licet.hooks.policy_choice import HookPolicies, Project, choose, read_policies
from licet.policy_files.data import manifest_from_data

STATES = [
    ("kept", DirectoryState(Path("kept"))),
    ("/srv/a:b", DirectoryState(Path("/srv/a:b"))),
    ("./postgresql:/x", DirectoryState(Path("postgresql:/x"))),
]


@pytest.mark.parametrize(("text", "state"), STATES, ids=[one[0] for one in STATES])
def test_a_directory_is_any_text_without_a_scheme(text: str, state: DirectoryState) -> None:
    assert read_state(text) == state


@pytest.mark.parametrize("text", ["mysql://db/licet", "https://db/licet", "postgresql+x://db/licet", "sqlite:///kept"])
def test_the_address_of_something_else_is_no_directory(text: str) -> None:
    with pytest.raises(BadState, match="expected a directory, or postgresql://"):
        read_state(text)


SAME = [
    "postgresql://a@db.example.com/licet",
    "postgresql://b@db.example.com/licet?lease=0.5&password=secret:db/b",
    "postgres://db.example.com/licet?sslrootcert=/etc/roots.pem",
]
OTHERS = [
    "postgresql://a@db.example.com/other",
    "postgresql://a@db2.example.com/licet",
    "postgresql://a@db.example.com:5433/licet",
]


def test_a_node_has_one_directory_for_each_database() -> None:
    (directory,) = {own_directory(one) for one in SAME}
    assert len({directory, *map(own_directory, OTHERS)}) == 1 + len(OTHERS)


def test_the_variable_names_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_state() is None
    monkeypatch.setenv("LICET_STATE", "")
    assert environment_state() is None
    monkeypatch.setenv("LICET_STATE", "kept")
    assert environment_state() == DirectoryState(Path("kept"))


def test_an_option_comes_before_the_variable_and_the_variable_before_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = enter_project(tmp_path, monkeypatch)
    (here / "agent.yaml").write_text("agent: a\n")
    monkeypatch.setenv("LICET_STATE", "named")
    assert "named/ledger.sqlite" in run("receipts", "list", code=1).output
    assert "other/ledger.sqlite" in run("receipts", "list", "--state", "other", code=1).output
    assert "named/ledger.sqlite" in run("receipts", "list", "--manifest", "agent.yaml", code=1).output
    assert "not both" in run("receipts", "list", "--manifest", "agent.yaml", "--state", "other", code=2).output


def test_backends_of_a_database_have_all_parts_and_protect_the_keys_of_the_node(postgres: str, tmp_path: Path) -> None:
    local, remote = Backends.local(tmp_path / "a"), Backends.postgres(postgres, directory=tmp_path / "node")
    lacks = [{name for name in one.__struct_fields__ if getattr(one, name) is None} for one in (local, remote)]
    assert lacks[0] - lacks[1] == {"opening"}  # only a database opens a call in one step
    assert not lacks[1] - lacks[0]
    assert Backends.postgres(postgres, directory=tmp_path / "node", ledger=local.ledger).opening is None
    assert str(tmp_path / "node") in remote.state
    manifest = manifest_from_data({"agent": "a", "capabilities": {"tools": ["add"], "native": ["add"]}})
    gate = Gate(manifest, [add], remote, workdir=tmp_path)

    async def call() -> str:
        async with gate.session("main") as session:
            return (await session.call("add", {"a": 1})).reason

    assert asyncio.run(call()) == "ALLOWED"
    remote.close()
    assert asyncio.run(call()) == "ALLOWED"  # stores open again
    remote.close()
    with pytest.raises(BadState, match="expected the address of a database"):
        Backends.postgres("kept")


def test_the_stores_of_a_node_share_its_connections(postgres: str, tmp_path: Path) -> None:
    one, other = (read_state(postgres, tmp_path) for _ in range(2))
    assert isinstance(one, DatabaseState)
    assert isinstance(other, DatabaseState)
    assert one.database is other.database
    assert one.ledger() is other.ledger()


def test_hooks_take_their_state_from_the_list_of_their_user_and_from_no_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_project(tmp_path, monkeypatch)
    monkeypatch.setenv("LICET_STATE", "postgresql://agent@evil.test/licet")
    assert choose("/srv/a", HookPolicies((Project("/srv/a", "p.yaml"),))).state == ""
    address = "postgresql://hooks@db.example.com/licet"
    assert address in run("hooks", "state", address).output
    assert read_policies().state == address
    policies = read_policies().with_project("/srv/a", "p.yaml").with_project("/srv/b", "p.yaml")
    assert choose("/srv/a", policies.without_project("/srv/b")).state == address
    assert "holds a password" in run("hooks", "state", "postgresql://a:b@db/licet", code=2).output
    run("hooks", "state", "kept")
    assert read_policies().state == os.path.realpath("kept")
    run("hooks", "state", "--own")
    assert read_policies().state == ""
