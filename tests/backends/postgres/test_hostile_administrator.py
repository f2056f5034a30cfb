"""Whoever administers the database can change every row of it. Each change is shown to work, and then to be located.

What is not here, because nothing of it is believed or kept there:

- Limits of budgets are in the policy, which is no part of a state. The counters are compared with the ledger when a
  node starts; other tests change them.
- A function or a trigger can drop, delay or repeat what it is given, and answer anything. It cannot sign: what it drops
  is refused or missing in its session, and what it adds is in no batch. The catalog may lie about it, so that `verify`
  names it is a help, and no proof.
- Who stops the server, or leaves a transaction open for ever, stops calls or lets heads age, and forges nothing.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from backends.postgres.team_ledger import Team, call, entry, filled
from licet.backends.postgres.node_keys import Node, node_entry
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.backends.secrets import generated_key
from licet.core.ledger.entry import Entry, link, read_entry, time_text
from licet.core.ledger.merkle import leaf_hash
from licet.guard.deadlines import CURRENT, StoreDeadline
from licet.guard.ports import LedgerUnavailable, Unavailable
from postgres_server import fresh


class Case(Struct, frozen=True):
    """What an administrator does, how the database shows that it worked, and what is then found."""

    name: str
    does: Callable[[Team], object]
    worked: str  # a query that returns true
    kind: str  # of the finding
    number: int
    text: str  # in the finding
    until: int = 0
    heals: bool = False  # the next head has it right again


def _another_body(team: Team) -> None:
    """A receipt says another tool, and its hashes are computed again, at its place too."""
    (found,) = team.sql("SELECT body FROM licet.entries WHERE agent = 'agent' AND session = 's-1' AND sequence = 2")
    body = found[0].replace(b'"tool":"add"', b'"tool":"rob"')
    own = "agent = 'agent' AND session = 's-1' AND sequence = 2"
    team.sql(f"UPDATE licet.entries SET tool = 'rob', body = $1, hash = $2 WHERE {own}", body, leaf_hash(body))
    team.sql(f"UPDATE licet.places SET hash = $1 WHERE {own}", leaf_hash(body))


def _insert(team: Team, batch: bytes, number: int = 9) -> None:
    """An own entry, which links to the end of its session, at the next place."""
    tail = team.tails["agent", "s-1"]
    row = link(entry("decision", number), team.ledger, 9, tail, time_text(team.moment))
    team.sql(
        "INSERT INTO licet.entries (agent, session, sequence, id, kind, tool, verdict, time, hash, body, batch) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        row.agent, row.session, row.sequence, row.id, row.kind, row.tool, row.verdict, row.time, row.hash, row.body,
        batch,
    )  # fmt: skip


def _insert_placed(team: Team) -> None:
    _insert(team, b"none")
    team.sql(
        "INSERT INTO licet.places SELECT 9, hash, agent, session, sequence FROM licet.entries WHERE batch = 'none'"
    )


def _insert_with_copied_signature(team: Team) -> None:
    (batch,) = team.sql("SELECT id FROM licet.batches LIMIT 1")
    _insert(team, batch[0])


def _insert_into_batch(team: Team) -> None:
    """The batch of another entry gets the hash of the own one, and its signature stays."""
    _insert_with_copied_signature(team)
    team.sql("UPDATE licet.batches SET hashes = hashes || (SELECT hash FROM licet.entries WHERE id = 'r-s-1-9') "
             "WHERE id = (SELECT batch FROM licet.entries WHERE id = 'r-s-1-9')")  # fmt: skip


def _second_sequencer(team: Team) -> None:
    team.write(*call(4))
    other = generated_key()
    for number, row in enumerate(team.waiting, team.frontier.size + 1):
        team.sql("INSERT INTO licet.places VALUES ($1, $2, $3, $4, $5)", number, row.hash, *row[3:6])
    team.frontier.extend(row.hash for row in team.waiting)
    team.sign(other, remember=False)


def _backup(team: Team) -> None:
    """All that is newer than the first head is gone, as if yesterday's backup were restored."""
    team.sql("DELETE FROM licet.entries WHERE (agent, session, sequence) IN "
             "(SELECT agent, session, sequence FROM licet.places WHERE number > 6)")  # fmt: skip
    team.sql("DELETE FROM licet.places WHERE number > 6")
    team.sql("DELETE FROM licet.heads WHERE size > 6")


def _stranger(team: Team) -> Node:
    return Node.of(team.folder / "stranger")


def _insert_signed_by_a_stranger(team: Team) -> None:
    team.write(entry("decision", 9), node=_stranger(team))


def _place_what_a_stranger_signed(team: Team) -> None:
    """Even if a sequencer had been deceived."""
    _insert_signed_by_a_stranger(team)
    team.place()


def _enrol_a_stranger(team: Team) -> None:
    """An enrolment that is signed with an own key, in a batch that the stranger has signed."""
    stranger = _stranger(team)
    team.write(team.enrolment(stranger, generated_key()), entry("decision", 9), node=stranger)


def _enrol_with_the_key_of_the_ledger(team: Team) -> None:
    """Operators enrol, and somebody who has taken over the node with the key of the ledger goes on with that."""
    anna = generated_key()
    team.write(node_entry("operators", [anna.public], team.ledger, team.key, team.moment))
    team.write(team.enrolment(_stranger(team), anna))
    team.place()
    assert team.verify().ok
    team.write(team.enrolment(_stranger(team)))


def _repeat_an_enrolment(team: Team) -> None:
    """The act that enrolled a node is written once more, after that node was dismissed."""
    first = read_entry(team.sql("SELECT body FROM licet.entries WHERE kind = 'enrolment' AND sequence = 2")[0][0])
    team.write(node_entry("dismissal", [team.nodes[1].public], team.ledger, team.key, team.moment))
    team.place()
    fields = {name: getattr(first, name) for name in Entry.__struct_fields__}
    team.write(Entry(**{**fields, "id": "n-again"}), node=1)


def _swap_the_key_of_a_node(team: Team) -> None:
    """The enrolment of a node names another one, and its hashes are computed again."""
    own, other = team.nodes[1].public, _stranger(team).public
    (found,) = team.sql("SELECT body FROM licet.entries WHERE kind = 'enrolment' AND sequence = 2")
    body = found[0].replace(own.encode(), other.encode())
    team.sql("UPDATE licet.entries SET body = $1, hash = $2 WHERE kind = 'enrolment' AND sequence = 2", body,
             leaf_hash(body))  # fmt: skip
    team.sql("UPDATE licet.places SET hash = $1 WHERE number = 2", leaf_hash(body))


def _hold_back(team: Team) -> None:
    """The sequencer is told that every transaction so far has its places."""
    team.write(*call(4))
    team.sql("UPDATE licet.heads SET below = '999999999' WHERE size = 8")


def _delete_from_a_chain_without_places(team: Team) -> None:
    team.write(*call(4))
    team.sql("DELETE FROM licet.entries WHERE id = 'r-s-1-4' AND kind = 'decision'")


def _sql(*statements: str) -> Callable[[Team], object]:
    def does(team: Team) -> None:
        for statement in statements:
            team.sql(statement)

    return does


_AT = "agent = 'agent' AND session = 's-1' AND sequence = 2"
CASES = (
    Case(
        "edit the bytes of an entry",
        _sql(f"UPDATE licet.entries SET body = replace(encode(body, 'escape'), 'add', 'rob')::bytea WHERE {_AT}"),
        f"SELECT position('rob' in encode(body, 'escape')) > 0 FROM licet.entries WHERE {_AT}",
        "edited", 4, "its bytes are not those that were hashed",
    ),
    Case("edit an entry, and its hashes", _another_body, f"SELECT tool = 'rob' FROM licet.entries WHERE {_AT}",
         "signature", 4, "did not sign this entry"),
    Case("edit an index column", _sql(f"UPDATE licet.entries SET verdict = 'deny' WHERE {_AT}"),
         f"SELECT verdict = 'deny' FROM licet.entries WHERE {_AT}", "column", 4, "verdict `deny`"),
    Case("delete an entry", _sql(f"DELETE FROM licet.entries WHERE {_AT}"),
         f"SELECT NOT EXISTS (SELECT FROM licet.entries WHERE {_AT})", "missing", 4, "which was removed"),
    Case("delete an entry and its place",
         _sql(f"DELETE FROM licet.entries WHERE {_AT}", f"DELETE FROM licet.places WHERE {_AT}"),
         f"SELECT NOT EXISTS (SELECT FROM licet.places WHERE {_AT})", "missing", 4, "after entry 3 comes entry 5", 4),
    Case("delete the last entry",
         _sql("DELETE FROM licet.entries WHERE id = 'r-s-1-3' AND kind = 'receipt'",
              "DELETE FROM licet.places WHERE number = 8"),
         "SELECT count(*) = 7 FROM licet.entries", "truncated", 8, "and there are 7", 8),
    Case("exchange two places",
         _sql("UPDATE licet.places SET number = -number WHERE number IN (3, 5)",
              "UPDATE licet.places SET number = CASE number WHEN -3 THEN 5 ELSE 3 END WHERE number < 0"),
         "SELECT session = 's-2' FROM licet.places WHERE number = 3", "chain", 3, "is number 2 of its session", 4),
    Case("insert an entry without a batch", lambda team: _insert(team, b"none"),
         "SELECT count(*) = 9 FROM licet.entries", "edited", 0, "the batch that it names is not there"),
    Case("insert an entry with a place", _insert_placed,
         "SELECT count(*) = 9 FROM licet.places", "signature", 9, "the batch that it names is not there"),
    Case("insert an entry with a copied signature", _insert_with_copied_signature,
         "SELECT count(*) = 9 FROM licet.entries", "edited", 0, "did not sign this entry"),
    Case("insert an entry into a batch", _insert_into_batch,
         "SELECT count(*) = 9 FROM licet.entries", "signature", 1, "not signed by the node"),
    Case("insert an entry that a stranger has signed", _insert_signed_by_a_stranger,
         "SELECT count(*) = 9 FROM licet.entries", "edited", 0, "is not enrolled"),
    Case("give a place to what a stranger has signed", _place_what_a_stranger_signed,
         "SELECT count(*) = 9 FROM licet.places", "signature", 9, "is not enrolled"),
    Case("enrol a stranger", _enrol_a_stranger, "SELECT count(*) = 10 FROM licet.entries",
         "edited", 0, "is no operator of this state"),
    Case("enrol with the key of the ledger, and not as an operator", _enrol_with_the_key_of_the_ledger,
         "SELECT count(*) = 11 FROM licet.entries", "edited", 0, "is no operator of this state"),
    Case("repeat an enrolment after a dismissal", _repeat_an_enrolment, "SELECT count(*) = 10 FROM licet.entries",
         "edited", 0, "its act has counted before"),
    Case("swap the key of a node", _swap_the_key_of_a_node, "SELECT count(*) = 8 FROM licet.entries",
         "signature", 2, "did not sign this entry"),
    Case("leave out entries that wait", _hold_back, "SELECT count(*) = 8 FROM licet.places",
         "missing", 0, "it was left out"),
    Case("delete an entry that waits, before another one", _delete_from_a_chain_without_places,
         "SELECT count(*) = 9 FROM licet.entries", "edited", 0, "does not link to the end of its session"),
    Case("set a sequence back", _sql("UPDATE licet.entries SET sequence = 9 WHERE agent = 'agent' AND session = 's-1' "
                                     "AND sequence = 4"),
         "SELECT EXISTS (SELECT FROM licet.entries WHERE sequence = 9)", "missing", 8, "which was removed"),
    Case("restore yesterday's backup", _backup, "SELECT count(*) = 6 FROM licet.entries",
         "truncated", 7, "has signed 8 entries, and there are 6", 8),
    Case("run a sequencer with another key", _second_sequencer, "SELECT count(*) = 4 FROM licet.heads",
         "key", 10, "is signed with"),
    Case("replace the key of the ledger", _sql("UPDATE licet.ledger SET key = 'ed25519:x'"),
         "SELECT key = 'ed25519:x' FROM licet.ledger", "column", 1, "the table `ledger` says", 8),
    Case("replace the id of the ledger", _sql("UPDATE licet.ledger SET id = 'mine'"),
         "SELECT id = 'mine' FROM licet.ledger", "column", 1, "the table `ledger` says 'mine'", 8),
    Case("a signed head with another size", _sql("UPDATE licet.heads SET size = 7 WHERE size = 8"),
         "SELECT EXISTS (SELECT FROM licet.heads WHERE size = 7)", "checkpoint", 7, "says size 7"),
    Case("remove all heads", _sql("DELETE FROM licet.heads"), "SELECT count(*) = 0 FROM licet.heads",
         "unsigned", 1, "no head covers any entry", 8),
    Case("another edge of the tree", _sql("UPDATE licet.heads SET frontier = '' WHERE size = 8"),
         "SELECT frontier = '' FROM licet.heads WHERE size = 8", "column", 8, "edge of the tree", heals=True),
    Case("remove everything", _sql("TRUNCATE licet.entries, licet.places, licet.heads, licet.batches, licet.ledger"),
         "SELECT count(*) = 0 FROM licet.entries", "truncated", 1, "and there are 0", 8),
    Case("a view in place of the entries",
         _sql("ALTER TABLE licet.entries RENAME TO other", "CREATE VIEW licet.entries AS SELECT * FROM licet.other"),
         "SELECT count(*) = 8 FROM licet.entries", "column", 1, "licet.entries is no table"),
    Case("a table that inherits", _sql("CREATE TABLE licet.more () INHERITS (licet.entries)"),
         "SELECT count(*) = 8 FROM licet.entries", "column", 1, "inherits"),
    Case("a policy of rows", _sql("ALTER TABLE licet.entries ENABLE ROW LEVEL SECURITY"),
         "SELECT count(*) = 8 FROM licet.entries", "column", 1, "hides some"),
    Case("a column of another type", _sql("ALTER TABLE licet.entries ALTER time TYPE bytea USING time::bytea"),
         "SELECT count(*) = 8 FROM licet.entries", "column", 1, "its index says time"),
    Case("a table that is gone", _sql("DROP TABLE licet.batches"), "SELECT to_regclass('licet.batches') IS NULL",
         "column", 1, "there is no table licet.batches"),
    Case("a column that is gone", _sql("ALTER TABLE licet.entries DROP body"),
         "SELECT count(*) = 8 FROM licet.entries", "edited", 1, "cannot be read"),
    Case("a trigger", _sql("CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
                           "CREATE TRIGGER quiet BEFORE INSERT ON licet.entries FOR EACH ROW "
                           "EXECUTE FUNCTION public.f()"),
         "SELECT count(*) = 1 FROM pg_trigger WHERE tgname = 'quiet'", "column", 1, "trigger `quiet`", 8),
    Case("a function with another text",
         _sql("UPDATE pg_proc SET prosrc = 'BEGIN RETURN; END' WHERE proname = 'append_entries'"),
         "SELECT prosrc = 'BEGIN RETURN; END' FROM pg_proc WHERE proname = 'append_entries'",
         "column", 1, "the function licet.append_entries is not the one", 8),
)  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A ledger that every test gets a copy of."""
    team = filled(fresh(), tmp_path_factory.mktemp("written"))
    assert team.verify().ok
    team.close()
    return team


@pytest.fixture
def team(written: Team, tmp_path: Path) -> Iterator[Team]:
    team = written.copied(tmp_path)
    yield team
    team.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_an_administrator_does_is_located(team: Team, case: Case) -> None:
    case.does(team)
    assert team.sql(case.worked)[0][0], "it does not work, so there is nothing to find"
    finding = team.verify().finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == (case.kind, case.number, case.until), str(finding)
    assert case.text in finding.text
    # Whether a node that starts then notices or not: no row makes it fail in another way, and what was found stays.
    assert "Error" not in refusal_of_a_node(team)
    assert team.verify().ok is case.heals


def refusal_of_a_node(team: Team) -> str:
    """What a node that starts now says when it writes; empty if it can."""
    ledger = PostgresLedger(team.database, team.nodes[0], team.folder)
    deadline = CURRENT.set(StoreDeadline(1))
    try:
        asyncio.run(ledger.record(entry("decision", 20, "s-9")))
        asyncio.run(ledger.sequencer.place_now())
    except (LedgerUnavailable, Unavailable) as wrong:
        return str(wrong)
    finally:
        CURRENT.reset(deadline)
        ledger.close()
    return ""


# What is harmless, or cannot be noticed -------------------------------------------------------------------------------


def test_a_deleted_end_that_has_no_place_yet_is_noticed_by_the_node_that_wrote_it(team: Team) -> None:
    """Nothing else knows of it: a place takes at most some tenths of a second, unless a transaction is left open."""
    ledger = PostgresLedger(team.database, team.nodes[0], team.folder, sequences=False)
    asyncio.run(ledger.record(entry("decision", 9, "s-9")))
    team.sql("DELETE FROM licet.entries WHERE session = 's-9'")
    assert team.verify().ok
    with pytest.raises(LedgerUnavailable, match="s-9"):
        asyncio.run(ledger.record(entry("receipt", 9, "s-9")))
    ledger.close()
