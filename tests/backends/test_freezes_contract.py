"""The contract of stores of freezes, on the memory twin, on SQLite and on PostgreSQL; and what a file adds to it."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from licet.assemble.operators import set_operators
from licet.backends.freezes import MemoryFreezes, SqliteFreezes
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_freezes import PostgresFreezes
from licet.backends.secrets import SigningKey, generated_key
from licet.core.ledger.entry import StateFact
from licet.core.ledger.operator_acts import OperatorAct, act_bytes
from licet.core.ledger.state_acts import StateAct, row_bytes
from licet.guard.freezing import ActRefused, freeze_act, freeze_state, keep_act, operator_act, thaw_act
from licet.guard.ports import Freezes, Unavailable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANNA = generated_key()


async def everybody(public: str) -> bool:
    return True


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def freezes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Freezes]:
    if request.param == "memory":
        yield MemoryFreezes()
    elif request.param == "sqlite":
        yield SqliteFreezes(tmp_path / "state" / "freezes.sqlite")
    else:
        database = Database(request.getfixturevalue("postgres"))
        yield PostgresFreezes(database, Node(generated_key()), everybody, tmp_path)
        database.close()


def freeze(freezes: Freezes, why: str = "why", agent: str | None = None, tool: str | None = None) -> StateAct:
    act = freeze_act(NOW, why, "test", agent, tool)
    asyncio.run(freeze_state(freezes, None, act))
    return act


def thaw(freezes: Freezes, *ids: str, key: SigningKey | None = None) -> None:
    async def end() -> None:
        await keep_act(freezes, None, thaw_act(ids, NOW, await freezes.view(), "test", key))

    asyncio.run(end())


def test_a_freeze_stops_what_it_names_until_it_is_thawed(freezes: Freezes) -> None:
    assert freezes.frozen("a", "t") == ""
    act = freeze(freezes, "of a", agent="a")
    assert freezes.frozen("a", "t") == freezes.frozen("a", "") == freezes.frozen("a>b", "t") == "of a"
    assert freezes.frozen("ab", "t") == freezes.frozen("b", "a") == ""
    freeze(freezes, "of t", tool="t")
    freeze(freezes, "of b at u", "b", "u")
    assert freezes.frozen("b", "t") == "of t"
    assert freezes.frozen("b", "u") == "of b at u"
    assert freezes.frozen("c", "u") == ""
    asyncio.run(freezes.look_up("b", "u"))
    thaw(freezes, act.id)
    assert freezes.frozen("a", "u") == ""
    freeze(freezes, "of all")
    assert freezes.frozen("c", "") == "of all"
    thaw(freezes)
    assert freezes.frozen("b", "t") == freezes.frozen("c", "") == ""
    with pytest.raises(ActRefused, match="nothing is frozen"):
        thaw(freezes)


def test_an_act_that_is_added_again_is_the_same(freezes: Freezes) -> None:
    act = freeze(freezes)
    asyncio.run(freezes.add(act))
    asyncio.run(freezes.add(replace(act, fact=StateFact(why="other"))))
    assert asyncio.run(freezes.view()).freezes == (act,)


# Files with operators -------------------------------------------------------------------------------------------------


class State:
    """A state directory with Anna as its operator."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.freezes = SqliteFreezes(directory / "freezes.sqlite")
        self.ledger = SqliteLedger(directory / "ledger.sqlite")

    def set(self, *keys: str, key: SigningKey | None = None) -> None:
        asyncio.run(set_operators(self.freezes, self.ledger, keys, NOW, key))

    def freeze(self) -> StateAct:
        act = freeze_act(NOW, "stop", "test")
        asyncio.run(freeze_state(self.freezes, self.ledger, act))
        return act

    def thaw(self, key: SigningKey | None) -> None:
        async def end() -> None:
            await keep_act(self.freezes, self.ledger, thaw_act((), NOW, await self.freezes.view(), "test", key))

        asyncio.run(end())

    def insert(self, act: StateAct) -> None:
        """As somebody who can write the file, and nothing else."""
        with sqlite3.connect(self.freezes._file.path) as db:
            db.execute("INSERT INTO acts (id, body) VALUES (?, ?)", (act.id, row_bytes(act)))
        db.close()

    @property
    def frozen(self) -> str:
        return self.freezes.frozen("a", "t")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path / "state")
    made.set(ANNA.public)
    yield made
    made.freezes.close()
    made.ledger.close()


def test_only_an_operator_thaws_a_state_that_has_operators(state: State) -> None:
    state.freeze()
    with pytest.raises(ActRefused, match="sign with the key of one of them"):
        state.thaw(None)
    with pytest.raises(ActRefused, match="is no key of an operator"):
        state.thaw(generated_key())
    assert state.frozen == "stop"
    state.thaw(ANNA)
    assert state.frozen == ""


def thaw_by(key: SigningKey, freeze: StateAct, ledger: str, nonce: str = "n") -> StateAct:
    body = act_bytes(OperatorAct("thaw", ledger, (freeze.id,), "now", nonce))
    fact = StateFact(by=key.public, about=(freeze.id,), act=body.decode(), signature=key.sign(body).hex())
    return StateAct("thaw", f"t-{nonce}", "now", fact)


def test_a_forged_thaw_is_not_believed(state: State, tmp_path: Path) -> None:
    without = State(tmp_path / "other")
    forged = StateAct("thaw", "t-1", "now", StateFact(about=(without.freeze().id,)))
    without.insert(forged)
    assert without.frozen == ""  # the attack works where the state has no operators: its owner may thaw it

    act, ledger = state.freeze(), asyncio.run(state.freezes.view()).ledger
    state.insert(replace(forged, fact=StateFact(about=(act.id,))))
    state.insert(replace(thaw_by(generated_key(), act, ledger), id="t-2"))
    claimed = thaw_by(generated_key(), act, ledger)
    state.insert(replace(claimed, id="t-3", fact=replace(claimed.fact, by=ANNA.public)))
    state.insert(replace(thaw_by(ANNA, act, "another ledger"), id="t-4"))
    other = thaw_by(ANNA, replace(act, id="f-other"), ledger)
    state.insert(replace(other, id="t-5", fact=replace(other.fact, about=(act.id,))))
    assert state.frozen == "stop"
    assert len(asyncio.run(state.freezes.view()).unsound) == 5
    state.insert(thaw_by(ANNA, act, ledger))
    assert state.frozen == ""


def test_an_act_counts_once(state: State) -> None:
    first, ledger = state.freeze(), asyncio.run(state.freezes.view()).ledger
    state.insert(thaw_by(ANNA, first, ledger))
    assert state.frozen == ""
    state.insert(replace(thaw_by(ANNA, first, ledger), id="t-again"))
    assert [one for one in asyncio.run(state.freezes.view()).unsound if "used before" in one]


def test_the_operators_are_changed_by_one_of_them_alone(state: State) -> None:
    bert = generated_key()
    with pytest.raises(ActRefused, match="is no key of an operator"):
        state.set(bert.public, key=bert)
    state.set(bert.public, key=ANNA)
    state.freeze()
    with pytest.raises(ActRefused, match="is no key of an operator"):
        state.thaw(ANNA)
    state.thaw(bert)
    assert state.frozen == ""


@pytest.mark.parametrize("lost", [("freezes.sqlite",), ("operators.json",), ("freezes.sqlite", "operators.json")])
def test_a_lost_file_thaws_nothing(state: State, lost: tuple[str, ...]) -> None:
    state.freeze()
    for name in lost:
        os.unlink(state.directory / name)
    again = SqliteFreezes(state.directory / "freezes.sqlite")
    for store in (state.freezes, again):
        if "operators.json" in lost:
            if store is again or len(lost) == 2:
                with pytest.raises(Unavailable, match=r"operators\.json with their keys is missing"):
                    store.frozen("a", "t")
        else:
            assert store.frozen("a", "t") == "stop"
    state.set(ANNA.public)  # the same keys are pinned again
    assert SqliteFreezes(state.directory / "freezes.sqlite").frozen("a", "t") == "stop"


def test_other_keys_in_the_pinned_copy_are_refused(state: State) -> None:
    pinned = state.directory / "operators.json"
    pinned.write_text(pinned.read_text().replace(ANNA.public, generated_key().public))
    with pytest.raises(Unavailable, match="has other operators than"):
        SqliteFreezes(state.directory / "freezes.sqlite").frozen("a", "t")


def test_an_own_act_of_operators_is_not_believed(state: State) -> None:
    mallory = generated_key()
    own = StateAct("operators", "o-1", "now", StateFact(by=mallory.public, about=(mallory.public,)))
    state.insert(own)
    view = asyncio.run(state.freezes.view())
    assert view.keys == (ANNA.public,)
    signed = operator_act("operators", (mallory.public,), NOW, replace(view, keys=(mallory.public,)), "x", mallory)
    state.insert(signed)
    assert asyncio.run(state.freezes.view()).keys == (ANNA.public,)


@pytest.mark.parametrize("body", ["text", b"", b"{}", b'{"kind":"thaw"}', b"\xff", 7])
def test_a_row_of_anything_is_named_and_not_believed(state: State, body: object) -> None:
    state.freeze()
    with sqlite3.connect(state.directory / "freezes.sqlite") as db:
        db.execute("INSERT INTO acts (id, body) VALUES ('x', ?)", (body,))
    db.close()
    assert state.frozen == "stop"
    assert asyncio.run(state.freezes.view()).unsound
